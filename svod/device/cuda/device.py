"""The device CUDA: ``CUDA`` is the first GPU, ``CUDA:1`` the second."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from svod.device.device import Device
from svod.device.names import device_number

if TYPE_CHECKING:
    from svod.device.device import Toolchain


def make_device(name: str) -> Device:
    """The factory of the registry; without a driver or a GPU this is a DeviceError."""
    from svod.device.cuda.allocator import CudaAllocator
    from svod.device.cuda.driver import context

    number = device_number(name)
    return Device(name, CudaAllocator(name, context(number)), lambda: _toolchain(number))


@cache
def _toolchain(number: int) -> Toolchain:
    from svod.device.cuda.compiler import toolchain

    return toolchain(number)
