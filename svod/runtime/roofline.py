"""What this machine can do at best, measured once per process with NumPy.

The limits of a profile: bytes per second of a copy that no cache holds, and float32 operations
per second of a matrix product. A kernel whose data is in cache may move more than the first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter_ns

import numpy as np

from svod.runtime.profile import Roofline

COPY_BYTES = 64 << 20  # read and written once each
SIDE = 512  # of the matrices: large enough for NumPy's library to reach its speed
RUNS = 6


@cache
def measured_roofline() -> Roofline:
    """The best of a few runs; takes some tens of milliseconds the first time."""
    source = np.ones(COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    copy = _best(lambda: np.copyto(target, source))
    square = np.ones((SIDE, SIDE), np.float32)
    product = np.empty_like(square)
    multiply = _best(lambda: np.matmul(square, square, out=product))
    return Roofline(2 * COPY_BYTES / copy, 2 * SIDE**3 / multiply)


def _best(run: Callable[[], object]) -> int:
    """Nanoseconds of the fastest run."""
    times = []
    for _ in range(RUNS):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return max(1, min(times))
