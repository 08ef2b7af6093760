"""Host memory, aligned to cache lines and, when large, to huge pages.

Fresh pages are the main cost of a large buffer: writing 64 MB for the first time took 34 ms with
small pages, 8 ms with huge ones, and 3 ms in a block used before. So blocks of 2 MB and more are
mapped on a huge page boundary and ask for huge pages. Large blocks start at different offsets
within a page: streams that share all low 12 address bits look dependent to the processor.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
from typing import ClassVar, Final

import numpy as np

from svod.base.system import system
from svod.device.allocator import ALIGNMENT, POOL_BYTES, Allocator, Block, Bytes

PAGE: Final = 4096
HUGE_PAGE: Final = 2 << 20
STAGGERED_FROM: Final = 64 << 10  # smaller blocks are spread by the system allocator already
# 16 places, 256 bytes apart; 7 has no factor with 16, so neighbours in time are far apart.
STAGGER: Final = tuple(7 * i % 16 * 256 for i in range(16))

_HUGE_PAGE_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


class HostAllocator(Allocator):
    """Memory of this process; used by CPU and REF."""

    host_visible: ClassVar[bool] = True

    def __init__(self, device: str = "CPU", pool_bytes: int = POOL_BYTES) -> None:
        super().__init__(device, pool_bytes)
        self._turn = itertools.count()

    def size_class(self, nbytes: int) -> int:
        unit = ALIGNMENT if nbytes < STAGGERED_FROM else PAGE
        return max(ALIGNMENT, -(-nbytes // unit) * unit)

    def obtain(self, nbytes: int) -> Block:
        if nbytes >= HUGE_PAGE:
            return self._map(nbytes)
        if nbytes >= STAGGERED_FROM:
            raw = np.empty(nbytes + 2 * PAGE, np.uint8)
            address = _round_up(raw.ctypes.data, PAGE) + self._next_shift()
        else:
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            address = _round_up(raw.ctypes.data, ALIGNMENT)
        return Block(self, address, nbytes, raw)

    def read(self, address: int, into: Bytes) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def write(self, address: int, data: Bytes) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def _map(self, nbytes: int) -> Block:
        shift = self._next_shift()
        # Address space that is never touched costs no memory.
        memory = system().private_map(nbytes + shift + HUGE_PAGE)
        start = np.frombuffer(memory, np.uint8).ctypes.data
        base = _round_up(start, HUGE_PAGE)
        whole = (nbytes + shift) // HUGE_PAGE * HUGE_PAGE  # a tail takes small pages: no waste
        if _HUGE_PAGE_ADVICE is not None:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(_HUGE_PAGE_ADVICE, base - start, whole)
        return Block(self, base + shift, nbytes, memory)

    def _next_shift(self) -> int:
        return STAGGER[next(self._turn) % len(STAGGER)]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
