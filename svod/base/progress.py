"""A line on a terminal that says how far something is: what, how many of how many, time left.

`progress` goes through items; `watch` shows the steps that work further down reports with `step`,
which costs nothing where nobody watches. Nothing is written where the output is not a terminal (a
pipe, a file, a log).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TextIO, TypeVar

T = TypeVar("T")

_INTERVAL = 0.1  # seconds between two states of the line
_BAR = 24  # characters
_WHAT = 60  # characters of what a step is about


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


@contextmanager
def watch(label: str, stream: TextIO | None = None) -> Iterator[None]:
    """Show what the work of the block reports with `step`, and how long the block took."""
    out = stream or sys.stderr
    if not out.isatty():
        yield
        return
    line = _Watched(out, label)
    token = _watched.set(line)
    try:
        line.write("", 0, 0)
        yield
    finally:
        _watched.reset(token)
        line.close()


def step(what: str, done: int, total: int) -> None:
    """Say that ``what`` is at ``done`` of ``total``, to whoever watches."""
    line = _watched.get()
    if line is not None:
        line.write(what, done, total)


class _Watched:
    """The line of one `watch`."""

    def __init__(self, out: TextIO, label: str) -> None:
        self.out = out
        self.label = label
        self.start = monotonic()
        self.shown = 0.0

    def write(self, what: str, done: int, total: int) -> None:
        now = monotonic()
        if now - self.shown < _INTERVAL and 0 < done < total:
            return
        self.shown = now
        count = f" {done} of {total}" if total else ""
        text = f"{self.label}{': ' if what else ''}{what[:_WHAT]}{count}"
        self.out.write(f"\r{text}, {_time(now - self.start)}\x1b[K")
        self.out.flush()

    def close(self) -> None:
        self.out.write(f"\r{self.label}, {_time(monotonic() - self.start)}\x1b[K\n")
        self.out.flush()


_watched: ContextVar[_Watched | None] = ContextVar("watched", default=None)


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
