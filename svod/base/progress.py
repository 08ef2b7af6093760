"""A line on a terminal that says how far something is: what, how many of how many, time left.

Nothing is written where the output is not a terminal (a pipe, a file, a log).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TextIO, TypeVar

T = TypeVar("T")

_INTERVAL = 0.1  # seconds between two states of the line
_BAR = 24  # characters


def progress(
    items: Iterable[T], label: str = "", total: int | None = None, stream: TextIO | None = None
) -> Iterator[T]:
    """The items, with a line on the terminal while they are gone through."""
    out = stream or sys.stderr
    if total is None:
        try:
            total = len(items)  # type: ignore[arg-type]
        except TypeError:
            total = None
    if not out.isatty():
        yield from items
        return
    start = shown = monotonic()
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            now = monotonic()
            if now - shown >= _INTERVAL:
                shown = now
                out.write("\r" + _line(label, done, total, now - start) + "\x1b[K")
                out.flush()
    finally:
        out.write("\r" + _line(label, done, total, monotonic() - start) + "\x1b[K\n")
        out.flush()


def _line(label: str, done: int, total: int | None, seconds: float) -> str:
    rate = f"{done / seconds:.1f}/s" if seconds > 0 else ""
    head = f"{label} " if label else ""
    if not total:
        return f"{head}{done} in {_time(seconds)} {rate}"
    full = min(_BAR, _BAR * done // total)
    bar = "█" * full + "░" * (_BAR - full)
    left = f", {_time(seconds / done * (total - done))} left" if 0 < done < total else ""
    return f"{head}{bar} {done}/{total} in {_time(seconds)}{left} {rate}"


def _time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}" if whole >= 60 else f"{seconds:.1f} s"
