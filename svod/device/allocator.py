"""Memory of one device: blocks, a pool of free ones, and counters.

An allocator hands out blocks and takes them back exactly once. Free blocks wait in a pool, grouped
by size class, because fresh pages cost more than most kernels; the block unused for longest leaves
first once the pool holds more than its limit. ``give_back`` may be called from a finaliser at any
moment, so it never waits: what it cannot file at once is filed by the next call.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import AllocationError
from svod.base.locks import held_lock

ALIGNMENT: Final = 64  # bytes: one cache line, and one vector of the widest kind
POOL_BYTES: Final = 1 << 30

Bytes = NDArray[np.uint8]


class Block:
    """Memory an allocator obtained: ``address`` and ``nbytes``, and what keeps it mapped."""

    __slots__ = ("address", "allocator", "in_use", "is_read_only", "keep", "nbytes")

    def __init__(
        self,
        allocator: Allocator,
        address: int,
        nbytes: int,
        keep: object,
        is_read_only: bool = False,
    ) -> None:
        self.allocator = allocator
        self.address = address
        self.nbytes = nbytes
        self.keep = keep
        self.is_read_only = is_read_only
        self.in_use = False


class MemoryCounters(NamedTuple):
    """Bytes of one allocator. ``allocated`` = ``live`` + ``pooled``; ``peak`` is of ``live``."""

    allocated: int
    live: int
    peak: int
    pooled: int


class Allocator:
    """The base of every allocator; a device kind defines ``obtain`` and the transfers."""

    host_visible: ClassVar[bool] = False  # the addresses can be read and written by this process

    def __init__(self, device: str, pool_bytes: int = POOL_BYTES) -> None:
        self.device = device
        self.pool_bytes = pool_bytes
        self._lock = held_lock()
        # Free blocks by size class, the last one given back at the end of its list; and all of
        # them in the order they were given back.
        self._free: dict[int, list[Block]] = {}
        self._ages: OrderedDict[Block, None] = OrderedDict()
        self._returned: deque[Block] = deque()
        self._live = self._peak = self._pooled = 0

    # -- what a device kind defines ------------------------------------------------------------

    def size_class(self, nbytes: int) -> int:
        """The size of the block that serves a request of ``nbytes``."""
        return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)

    def obtain(self, nbytes: int) -> Block:
        """A new block of exactly ``nbytes``, a size class. May raise MemoryError or OSError."""
        raise NotImplementedError

    def discard(self, block: Block) -> None:
        """Give a block back to the system."""
        block.keep = None

    def read(self, address: int, into: Bytes) -> None:
        """Copy device memory at ``address`` into a host array."""
        raise NotImplementedError

    def write(self, address: int, data: Bytes) -> None:
        """Copy a host array into device memory at ``address``."""
        raise NotImplementedError

    # -- allocating ----------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Block:
        """A block of at least ``nbytes``: the most recently used free one, else a new one."""
        if nbytes < 0:
            raise AllocationError(f"{self.device}: cannot allocate {nbytes} bytes")
        size = self.size_class(nbytes)
        with self._lock:
            self._file_returned()
            waiting = self._free.get(size)
            if waiting:
                block = waiting.pop()
                if not waiting:
                    del self._free[size]
                del self._ages[block]
                self._pooled -= size
            else:
                block = self._obtain_or_trim(size)
            block.in_use = True
            self._live += size
            self._peak = max(self._peak, self._live)
        return block

    def give_back(self, block: Block) -> None:
        """Take back a block; it must come from here and be in use."""
        if block.allocator is not self:
            raise AllocationError(
                f"{self.device}: a block of {block.nbytes} bytes belongs to "
                f"{block.allocator.device}, not to this device"
            )
        if not block.in_use:
            raise AllocationError(
                f"{self.device}: a block of {block.nbytes} bytes was given back twice"
            )
        block.in_use = False
        self._returned.append(block)
        # The lock may be held by this very thread: a finaliser can run inside `allocate`.
        if self._lock.acquire(blocking=False):
            try:
                self._file_returned()
            finally:
                self._lock.release()

    def free_all(self) -> int:
        """Give every free block back to the system; returns the bytes that were pooled."""
        with self._lock:
            self._file_returned()
            return self._trim(0)

    # -- counters ------------------------------------------------------------------------------

    @property
    def counters(self) -> MemoryCounters:
        """The bytes now allocated, in use, in use at most so far, and pooled."""
        with self._lock:
            self._file_returned()
            total = self._live + self._pooled
            return MemoryCounters(total, self._live, self._peak, self._pooled)

    def reset_peak(self) -> None:
        """Measure the peak from now on."""
        with self._lock:
            self._file_returned()
            self._peak = self._live

    # -- helpers; the lock is held -------------------------------------------------------------

    def _obtain_or_trim(self, size: int) -> Block:
        try:
            return self.obtain(size)
        except (MemoryError, OSError, OverflowError, ValueError):
            self._trim(0)  # what the pool holds may be what is missing
        try:
            return self.obtain(size)
        except (MemoryError, OSError, OverflowError, ValueError) as error:
            raise AllocationError(
                f"{self.device}: could not allocate {size:,} bytes "
                f"({self._live:,} bytes in use, {self._peak:,} at most so far): {error}"
            ) from error

    def _file_returned(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._live -= block.nbytes
            self._pooled += block.nbytes
            self._free.setdefault(block.nbytes, []).append(block)
            self._ages[block] = None
        if self._pooled > self.pool_bytes:
            self._trim(self.pool_bytes)

    def _trim(self, limit: int) -> int:
        dropped = 0
        while self._pooled > limit:
            block, _ = self._ages.popitem(last=False)
            waiting = self._free[block.nbytes]
            waiting.remove(block)
            if not waiting:
                del self._free[block.nbytes]
            self._pooled -= block.nbytes
            dropped += block.nbytes
            self.discard(block)
        return dropped
