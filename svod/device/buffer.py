"""Storage: owned bytes on a device. Buffer: a typed window into a storage.

A storage takes its memory when first needed and gives it back when nothing refers to it: no
buffer, and no NumPy view that was handed out. Many buffers may share one storage; hazards between
them are byte ranges of it. Memory of others (a NumPy array, a DLPack tensor, a mapped file) is a
storage with an ``owner`` that is kept alive, and it may be read-only.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import DeviceError, DTypeError, ShapeError
from svod.base.locks import OUTER, held_lock
from svod.device.names import DISK_PREFIX, HOST_KINDS, base_key, canonical, memory_device
from svod.dtype.convert import from_numpy, to_numpy
from svod.dtype.types import DType

if TYPE_CHECKING:
    from svod.device.allocator import Allocator, Block, Bytes

# An array of any storable dtype: which one is known only at run time.
Array = NDArray[Any]

_storage_ids = itertools.count(1)
_buffer_ids = itertools.count(1)
_allocating = held_lock(OUTER)


class MappedFile(Protocol):
    """A mapping that knows how long its file is now."""

    def size(self) -> int: ...


class Storage:
    """Bytes on a device. ``address`` is 0 until ``allocate``."""

    __slots__ = (
        "__weakref__", "_allocator", "_block", "_is_ready", "address", "device", "file", "id",
        "is_read_only", "nbytes", "owner",
    )  # fmt: skip

    def __init__(self, device: str, nbytes: int, allocator: Allocator | None = None) -> None:
        self._block: Block | None = None
        self._is_ready = False
        self._allocator = allocator
        self.id = next(_storage_ids)
        self.device = memory_device(canonical(device))
        self.nbytes = nbytes
        self.address = 0
        self.owner: object = None  # what keeps memory alive that the allocator does not own
        self.is_read_only = False
        self.file: MappedFile | None = None  # what the memory is a mapping of

    @classmethod
    def wrap(
        cls, device: str, nbytes: int, address: int, owner: object, is_read_only: bool = False
    ) -> Storage:
        """Memory that ``owner`` keeps alive."""
        storage = cls(device, nbytes)
        storage.address = address
        storage.owner = owner
        storage.is_read_only = is_read_only
        storage._is_ready = True
        return storage

    @property
    def allocator(self) -> Allocator:
        """The allocator of the device."""
        if self._allocator is None:
            from svod.device.registry import get_device

            self._allocator = get_device(self.device).allocator
        return self._allocator

    @property
    def is_allocated(self) -> bool:
        return self._is_ready

    def allocate(self) -> None:
        """Take the memory now; does nothing where that has happened."""
        if self._is_ready:
            return
        allocator = self.allocator
        with _allocating:
            if not self._is_ready:
                block = allocator.allocate(self.nbytes)
                self._block = block
                self.address = block.address
                self.is_read_only = block.is_read_only
                if self.device.startswith(DISK_PREFIX):
                    self.file = cast("MappedFile | None", block.keep)
                self._is_ready = True

    def require_file(self) -> None:
        """Refuse a file that has become shorter: to touch what is missing ends the process."""
        if self.file is not None and (size := self.file.size()) < self.nbytes:
            raise DeviceError(
                f"{self.device}: the file had {self.nbytes} bytes when it was opened and has "
                f"{size} now; replace files by renaming, and open this one again"
            )

    @property
    def __array_interface__(self) -> dict[str, object]:
        # An array made from this refers to the storage, so views keep the memory.
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, self.is_read_only),
            "version": 3,
        }

    def host_bytes(self) -> Bytes:
        """All bytes as an array that shares the memory; only where this process can see it."""
        if not self.allocator.host_visible:
            raise DeviceError(
                f"memory of {self.device} is not visible to the host: use copyout() for a copy"
            )
        self.allocate()
        self.require_file()
        return np.asarray(self)

    def __del__(self) -> None:
        block = self._block
        if block is not None:
            block.allocator.give_back(block)

    def __repr__(self) -> str:
        state = f"{self.address:#x}" if self._is_ready else "not allocated"
        return f"Storage({self.id}, {self.device}, {self.nbytes} bytes, {state})"


class Buffer:
    """``size`` elements of ``dtype``, ``offset`` bytes into ``storage``."""

    __slots__ = ("__weakref__", "dtype", "id", "offset", "size", "storage")

    def __init__(self, storage: Storage, size: int, dtype: DType, offset: int = 0) -> None:
        self.id = next(_buffer_ids)
        self.storage = storage
        self.size = size
        self.dtype = dtype
        self.offset = offset

    @classmethod
    def new(cls, device: str, size: int, dtype: DType) -> Buffer:
        """A buffer with a storage of its own; the memory is taken at first use."""
        if size < 0:
            raise ShapeError(f"a buffer cannot have {size} elements")
        return cls(Storage(device, size * dtype.itemsize), size, dtype)

    @classmethod
    def from_numpy(cls, array: Array, copy: bool = False, device: str = "CPU") -> Buffer:
        """The elements of an array in row-major order.

        With ``copy=False`` the memory is shared where the array is contiguous, aligned and in
        native byte order, and the device is the host; a read-only array gives a read-only buffer.
        """
        array = _native(array)
        dtype = from_numpy(array.dtype)
        flags = array.flags
        is_shareable = flags.c_contiguous and flags.aligned and base_key(device) in HOST_KINDS
        if is_shareable and array.size and not copy:
            address = array.ctypes.data
            storage = Storage.wrap(device, array.nbytes, address, array, not flags.writeable)
            return cls(storage, array.size, dtype)
        buffer = cls.new(device, array.size, dtype)
        buffer.copyin(array)
        return buffer

    # -- facts ---------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        return self.storage.device

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def storage_id(self) -> int:
        return self.storage.id

    @property
    def byte_range(self) -> tuple[int, int]:
        """First byte and the byte after the last, within the storage."""
        return self.offset, self.offset + self.nbytes

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two share a byte."""
        if self.storage is not other.storage:
            return False
        start, stop = self.byte_range
        first, last = other.byte_range
        return start < last and first < stop

    @property
    def is_allocated(self) -> bool:
        return self.storage._is_ready

    @property
    def is_read_only(self) -> bool:
        return self.storage.is_read_only

    @property
    def address(self) -> int:
        """Where the first element is; takes the memory if needed."""
        storage = self.storage
        if not storage._is_ready:
            storage.allocate()
        if storage.file is not None:
            storage.require_file()
        return storage.address + self.offset

    # -- memory --------------------------------------------------------------------------------

    def allocate(self) -> Buffer:
        """Take the memory now; does nothing where that has happened."""
        self.storage.allocate()
        return self

    def require_writable(self) -> None:
        """Refuse a buffer that must not be written."""
        if self.storage.is_read_only:
            raise DeviceError(
                f"{self!r} is read-only and cannot be written: make a copy first "
                "(Tensor(array) copies, Tensor.from_numpy(array) shares)"
            )

    def view(self, offset: int, size: int, dtype: DType | None = None) -> Buffer:
        """A window of ``size`` elements, ``offset`` bytes after the start of this buffer."""
        dtype = dtype or self.dtype
        end = offset + size * dtype.itemsize
        if offset < 0 or size < 0 or end > self.nbytes:
            raise ShapeError(
                f"a view of bytes {offset} to {end} does not fit {self!r} of {self.nbytes} bytes"
            )
        start = self.offset + offset
        # Files hold elements at any byte; kernels never run on them, they are copied first.
        if start % dtype.itemsize and not self.storage.device.startswith(DISK_PREFIX):
            raise ShapeError(
                f"a view of {dtype} at byte {start} is not aligned to {dtype.itemsize} bytes"
            )
        return Buffer(self.storage, size, dtype, start)

    def cast_to(self, dtype: DType) -> Buffer:
        """The same bytes as elements of another dtype: floats as complex numbers and back."""
        return Buffer(self.storage, self.nbytes // dtype.itemsize, dtype, self.offset)

    @property
    def is_host_visible(self) -> bool:
        """Whether the host reads and writes the memory where it is."""
        return self.storage.allocator.host_visible

    def numpy(self) -> Array:
        """The elements as a one-dimensional array that shares the memory."""
        raw = self.storage.host_bytes()[self.offset : self.offset + self.nbytes]
        return raw.view(to_numpy(self.dtype))

    def copyin(self, array: Array) -> None:
        """Overwrite the elements with those of an array of the same dtype, in row-major order."""
        array = _native(array)
        if array.size != self.size:
            raise ShapeError(f"an array of {array.size} elements does not fit {self!r}")
        if from_numpy(array.dtype) is not self.dtype:
            raise DTypeError(f"an array of {array.dtype} does not fit {self!r}: cast it first")
        self.allocate().require_writable()
        if self.storage.allocator.host_visible:
            np.copyto(self.numpy().reshape(array.shape), array)
            return
        if self.size:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.storage.allocator.write(self.address, data)

    def copyout(self) -> Array:
        """The elements as a new one-dimensional array."""
        allocator = self.storage.allocator
        if allocator.host_visible:
            return self.numpy().copy()
        found = np.empty(self.size, to_numpy(self.dtype))
        if self.size:
            allocator.read(self.address, found.view(np.uint8))
        return found

    def copy_from(self, other: Buffer) -> None:
        """Overwrite the bytes with those of another buffer, of any device."""
        if other.nbytes != self.nbytes:
            raise ShapeError(
                f"cannot copy {other!r} of {other.nbytes} bytes into {self!r} of {self.nbytes}"
            )
        target, source = self.address, other.address
        self.require_writable()
        mine, theirs = self.storage.allocator, other.storage.allocator
        if mine.host_visible and theirs.host_visible:
            ctypes.memmove(target, source, self.nbytes)
        elif mine.host_visible:
            theirs.read(source, self.numpy().view(np.uint8))
        elif theirs.host_visible:
            mine.write(target, other.numpy().view(np.uint8))
        else:
            mine.write(target, other.copyout().view(np.uint8))

    def copied(self) -> Buffer:
        """The same elements in memory of their own."""
        twin = Buffer.new(self.device, self.size, self.dtype)
        twin.copy_from(self)
        return twin

    def __repr__(self) -> str:
        where = f" at byte {self.offset}" if self.offset else ""
        return f"Buffer({self.id}: {self.dtype.short}[{self.size}] {self.device}{where})"


def _native(array: Array) -> Array:
    """The array in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
