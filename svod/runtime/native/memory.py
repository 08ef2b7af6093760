"""Zeroed 64-bit words that start on a cache line and never move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]


def aligned_words(count: int, line: int = 64) -> tuple[Words, int]:
    """The words and their address; the array keeps the memory alive."""
    spare = line // 8
    block = np.zeros(count + spare, dtype=np.int64)
    skip = -(block.ctypes.data // 8) % spare
    return block[skip : skip + count], block.ctypes.data + skip * 8
