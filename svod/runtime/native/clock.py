"""The counter that native code reads, and how its ticks map to `time.perf_counter_ns`."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_SHORTEST_BASELINE = 20_000_000  # ns; with reads good to 100 ns the rate is then good to 10 ppm


class Clock:
    """A linear map between two moments, the first taken when it is made and one when it is used."""

    __slots__ = ("_read", "_start")

    def __init__(self, read_ticks: Callable[[], int]) -> None:
        self._read = read_ticks
        self._start = self._pair()

    def ticks_in(self, nanoseconds: int) -> int:
        """Roughly how many ticks that is; good to a few per cent from the first millisecond on."""
        rate = self._rate(1_000_000)
        return int(nanoseconds * rate)

    def nanoseconds(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moments in ticks as moments of `time.perf_counter_ns`."""
        rate = self._rate(_SHORTEST_BASELINE)
        first_ticks, first = self._start
        return (first + (ticks - first_ticks) / rate).astype(np.int64)

    def _rate(self, baseline: int) -> float:
        """Ticks per nanosecond."""
        first_ticks, first = self._start
        while True:
            ticks, now = self._pair()
            if now - first >= baseline:
                return (ticks - first_ticks) / (now - first)
            time.sleep((baseline - (now - first)) * 1e-9)

    def _pair(self) -> tuple[int, int]:
        """Both counters at one moment: of a few tries, the one that took the shortest."""
        best = None
        for _ in range(5):
            before = time.perf_counter_ns()
            ticks = self._read()
            after = time.perf_counter_ns()
            if best is None or after - before < best[0]:
                best = (after - before, ticks, (before + after) // 2)
        assert best is not None
        return best[1], best[2]
