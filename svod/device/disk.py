"""DISK: files as memory. A storage is a mapping of a file; programs never run on it.

``map_file`` opens a file; views of the buffer it gives are tensors inside the file, at any byte,
and are copied to a device that computes. A storage made by name (``DISK:path``) maps the file that
exists, read-only, or makes a new one of the asked size that can be written.
"""

from __future__ import annotations

import mmap
import os
from typing import ClassVar, Final, Literal

import numpy as np

from svod.base.errors import AllocationError, DeviceError
from svod.device.allocator import Allocator, Block
from svod.device.buffer import Buffer, Storage
from svod.device.names import DISK_PREFIX, canonical
from svod.dtype import types as dt

FileMode = Literal["r", "r+", "w+"]

_MODES: Final[dict[str, int]] = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}


def map_file(
    path: str | os.PathLike[str], mode: FileMode = "r", nbytes: int | None = None
) -> Buffer:
    """The bytes of a file as a uint8 buffer.

    "r" maps an existing file read-only, "r+" for writing, and "w+" makes it anew with ``nbytes``
    zeros. With "r" and "r+", ``nbytes`` is how much is mapped; without it, all.
    """
    device = canonical(DISK_PREFIX + os.fspath(path))
    if mode not in _MODES:
        raise DeviceError(f"file mode {mode!r} is unknown: use 'r', 'r+' or 'w+'")
    if mode == "w+" and nbytes is None:
        raise DeviceError(f"{device}: a new file needs a size: give nbytes")
    memory, size = _map(device, mode, nbytes)
    storage = Storage.wrap(device, size, _address(memory), memory, is_read_only=mode == "r")
    storage.file = memory
    return Buffer(storage, size, dt.uint8)


def map_descriptor(descriptor: int, path: str) -> Buffer:
    """The bytes of an open file as a read-only uint8 buffer; ``path`` names it in messages."""
    device = canonical(DISK_PREFIX + path)
    memory, size = _mapped(descriptor, device, "r", None)
    storage = Storage.wrap(device, size, _address(memory), memory, is_read_only=True)
    storage.file = memory
    return Buffer(storage, size, dt.uint8)


class DiskAllocator(Allocator):
    """Maps the file the device is named after."""

    host_visible: ClassVar[bool] = True

    def __init__(self, device: str) -> None:
        super().__init__(device, pool_bytes=0)  # a mapping is never used for something else

    def size_class(self, nbytes: int) -> int:
        return nbytes

    def obtain(self, nbytes: int) -> Block:
        exists = os.path.exists(self.device.removeprefix(DISK_PREFIX))
        memory, _ = _map(self.device, "r" if exists else "w+", nbytes)
        return Block(self, _address(memory), nbytes, memory, is_read_only=exists)


def _map(device: str, mode: FileMode, nbytes: int | None) -> tuple[mmap.mmap | None, int]:
    path = device.removeprefix(DISK_PREFIX)
    try:
        descriptor = os.open(path, _MODES[mode] | getattr(os, "O_CLOEXEC", 0), 0o644)
    except OSError as error:
        raise DeviceError(f"{device}: cannot open the file: {error.strerror}") from error
    try:
        return _mapped(descriptor, device, mode, nbytes)
    finally:
        os.close(descriptor)


def _mapped(
    descriptor: int, device: str, mode: FileMode, nbytes: int | None
) -> tuple[mmap.mmap | None, int]:
    try:
        if mode == "w+":
            os.truncate(descriptor, nbytes or 0)
        available = os.fstat(descriptor).st_size
        size = available if nbytes is None else nbytes
        if not 0 <= size <= available:
            raise AllocationError(f"{device}: {size} bytes were asked of a file of {available}")
        if not size:
            return None, 0  # an empty file cannot be mapped
        access = mmap.ACCESS_READ if mode == "r" else mmap.ACCESS_WRITE
        return mmap.mmap(descriptor, size, access=access), size
    except (OSError, ValueError) as error:
        raise DeviceError(f"{device}: cannot map the file: {error}") from error


def _address(memory: mmap.mmap | None) -> int:
    return 0 if memory is None else int(np.frombuffer(memory, np.uint8).ctypes.data)
