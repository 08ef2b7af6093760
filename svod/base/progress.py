"""How far long work is: what, how many of how many, time left; a line, or calls of a function.

Work reports with `step`, which costs next to nothing where nobody follows. `progress` follows the
work of a block, `watch` does so under a label, `shown` goes through items. Lines are for terminals:
nothing is written where the output is a pipe, a file or a log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import NamedTuple, TextIO, TypeVar

T = TypeVar("T")

_INTERVAL = 0.1  # seconds between two states of the line
_BAR = 24  # characters
_WHAT = 60  # characters of what a step is about


class Progress(NamedTuple):
    """How far some work is."""

    what: str  # such as "code of matmul_64x64"
    done: int
    total: int  # 0 where it is not known
    seconds: float  # since the block was entered
    left: float | None  # seconds, as far as one can tell; None where nothing can be said


@contextmanager
def progress(
    report: Callable[[Progress], object] | None = None, stream: TextIO | None = None
) -> Iterator[None]:
    """Follow preparation, searches and loading in a block: ``with svod.progress(): ...``

    ``report`` is called with a `Progress` for every step; without it there is a line on the
    terminal, and nothing where stderr is not one.
    """
    if report is None:
        with watch("", stream):
            yield
        return
    token = _followed.set((*_followed.get(), _Follower(report)))
    try:
        yield
    finally:
        _followed.reset(token)


@contextmanager
def watch(label: str, stream: TextIO | None = None) -> Iterator[None]:
    """Show what the work of the block reports with `step`, and how long the block took."""
    out = stream or sys.stderr
    if not out.isatty():
        yield
        return
    line = _Line(out, label)
    token = _followed.set((*_followed.get(), _Follower(line.show)))
    try:
        if label:
            line.show(Progress("", 0, 0, 0.0, None))
        yield
    finally:
        _followed.reset(token)
        line.close()


def step(what: str, done: int, total: int) -> None:
    """Say that ``what`` is at ``done`` of ``total``, to whoever follows."""
    for follower in _followed.get():
        follower.step(what, done, total)


def shown(
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
    start = last = monotonic()
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            now = monotonic()
            if now - last >= _INTERVAL:
                last = now
                out.write("\r" + _bar(label, done, total, now - start) + "\x1b[K")
                out.flush()
    finally:
        out.write("\r" + _bar(label, done, total, monotonic() - start) + "\x1b[K\n")
        out.flush()


class _Follower:
    """One block that follows: it knows when the present kind of work began."""

    def __init__(self, report: Callable[[Progress], object]) -> None:
        self.report = report
        self.start = self.begun = monotonic()
        self.at = (0, 0)  # done and total of the step before
        self.first = 0  # done, where the present work began

    def step(self, what: str, done: int, total: int) -> None:
        now = monotonic()
        if total != self.at[1] or done < self.at[0]:  # other work than before
            self.begun, self.first = now, done
        self.at = (done, total)
        made = done - self.first
        left = (now - self.begun) / made * (total - done) if made > 0 and total else None
        self.report(Progress(what, done, total, now - self.start, left))


class _Line:
    """The line of one `watch` on a terminal; where nothing was shown, nothing is closed."""

    def __init__(self, out: TextIO, label: str) -> None:
        self.out = out
        self.label = label
        self.start = monotonic()
        self.last: float | None = None  # when it was written

    def show(self, state: Progress) -> None:
        now = monotonic()
        if self.last is not None and now - self.last < _INTERVAL and 0 < state.done < state.total:
            return
        self.last = now
        count = f" {state.done} of {state.total}" if state.total else ""
        text = f"{self.label}{': ' if self.label and state.what else ''}{state.what[:_WHAT]}{count}"
        left = f", {_time(state.left)} left" if state.left is not None and state.left >= 1 else ""
        self.out.write(f"\r{text}, {_time(now - self.start)}{left}\x1b[K")
        self.out.flush()

    def close(self) -> None:
        if self.last is None:
            return
        end = f"{self.label}, {_time(monotonic() - self.start)}\x1b[K\n" if self.label else "\x1b[K"
        self.out.write(f"\r{end}")
        self.out.flush()


_followed: ContextVar[tuple[_Follower, ...]] = ContextVar("followed", default=())


def _bar(label: str, done: int, total: int | None, seconds: float) -> str:
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
