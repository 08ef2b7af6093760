"""The devices that come with Svod: CPU, CUDA, DISK, NULL and REF.

The package registers them; the modules of a kind are loaded when its first device is made.
"""

from __future__ import annotations

from functools import cache

from svod.device.device import Device, Toolchain
from svod.device.registry import register_device


def _make_cpu(name: str) -> Device:
    from svod.device.cpu.allocator import HostAllocator

    return Device(name, HostAllocator(name), _cpu_toolchain)


@cache  # one for all CPU devices: they share compiled code
def _cpu_toolchain() -> Toolchain:
    from svod.device.cpu.compiler import toolchain

    return toolchain()


@cache
def cpu_for(name: str, machine: str) -> Device:
    """A CPU whose kernels are for the machine of a text; its memory is here."""
    from svod.device.cpu.compiler import toolchain_for
    from svod.device.registry import get_device

    return Device(name, get_device(name).allocator, toolchain_for(machine))


def _make_mesh(name: str) -> Device:
    from svod.device.cpu.allocator import HostAllocator
    from svod.ir.placement import mesh_of

    mesh_of(name)  # an error where there is none
    return Device(name, HostAllocator("CPU"), _cpu_toolchain)


def _make_disk(name: str) -> Device:
    from svod.device.disk import DiskAllocator

    return Device(name, DiskAllocator(name))


def _make_null(name: str) -> Device:
    from svod.device.null import NullAllocator, null_toolchain

    return Device(name, NullAllocator(name), null_toolchain)


def _make_ref(name: str) -> Device:
    from svod.device.cpu.allocator import HostAllocator
    from svod.device.ref import ref_toolchain

    return Device(name, HostAllocator(name), ref_toolchain)


def _make_cuda(name: str) -> Device:
    from svod.device.cuda.device import make_device

    return make_device(name)


def register_builtin_devices() -> None:
    """Make the kinds known."""
    register_device("CPU", _make_cpu)
    register_device("CUDA", _make_cuda)
    register_device("DISK", _make_disk, keep=False)
    register_device("MESH", _make_mesh)
    register_device("NULL", _make_null)
    register_device("REF", _make_ref)
