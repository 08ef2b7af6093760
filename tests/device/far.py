"""FAR: a device whose memory nobody else can reach, for tests of what happens between devices.

Its addresses are those of the host moved far away, so that a kernel of another device that is given
one ends the process, and its own programs refuse addresses of the host. NumPy runs the kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import ClassVar

from svod.device.allocator import Block, Bytes
from svod.device.cpu.allocator import HostAllocator
from svod.device.device import Device, Size3, Toolchain
from svod.device.ref import RefProgram, ref_toolchain
from svod.device.registry import register_device
from svod.device.spec import CompiledSpec

DISTANCE = 1 << 60  # no address of the host has this bit


class FarAllocator(HostAllocator):
    """Memory that only FAR sees."""

    host_visible: ClassVar[bool] = False

    def obtain(self, nbytes: int) -> Block:
        block = super().obtain(nbytes)
        return Block(self, block.address + DISTANCE, nbytes, block)

    def read(self, address: int, into: Bytes) -> None:
        ctypes.memmove(into.ctypes.data, _near(address), into.nbytes)

    def write(self, address: int, data: Bytes) -> None:
        ctypes.memmove(_near(address), data.ctypes.data, data.nbytes)


class FarProgram(RefProgram):
    """A kernel that NumPy runs on memory of FAR."""

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        super().__call__([_near(address) for address in buffers], vals)


def _near(address: int) -> int:
    assert address & DISTANCE, f"{address:#x} is no memory of FAR"
    return address - DISTANCE


def _load(compiled: CompiledSpec) -> FarProgram:
    return FarProgram(compiled.ast, compiled.name, compiled.var_names)


def _toolchain() -> Toolchain:
    return Toolchain(ref_toolchain().pairs, _load)


def register() -> None:
    """Make FAR known."""
    register_device("FAR", lambda name: Device(name, FarAllocator(name), _toolchain))
