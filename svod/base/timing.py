"""How long each step of a preparation took.

`with span("rangeify"):` notes a name, two clock readings and the thread in a ring of bounded size;
it costs well under a microsecond, so it is always on. Spans nest; an inner one is noted first.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident
from time import perf_counter_ns
from typing import NamedTuple

RING_SIZE = 8192  # a preparation of a large model notes a few thousand


class Span(NamedTuple):
    """One finished step, in nanoseconds of `time.perf_counter_ns`.

    Arguments:
        name: what the time was spent on.
        start_ns: when it began.
        end_ns: when it ended.
        thread: the number of the thread.

    Example:
        >>> with svod.timing.span("mine"):
        ...     total = sum(range(10))
        >>> svod.timing.spans()[-1].name
        'mine'
    """

    name: str
    start_ns: int
    end_ns: int
    thread: int


_ring: deque[tuple[str, int, int, int]] = deque(maxlen=RING_SIZE)
_note = _ring.append


class span:
    """Note how long the block took, also when it ends with an exception.

    Arguments:
        name: what the time is spent on.

    Example:
        >>> with svod.timing.span("mine"):
        ...     total = sum(range(10))
        >>> "mine" in svod.timing.totals()
        True
    """

    __slots__ = ("name", "start_ns")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.start_ns = perf_counter_ns()

    def __exit__(self, *failure: object) -> None:
        _note((self.name, self.start_ns, perf_counter_ns(), get_ident()))


def spans(since_ns: int = 0) -> list[Span]:
    """The noted spans that began at or after `since_ns`, in the order they ended.

    Arguments:
        since_ns: a time of `time.perf_counter_ns`.

    Example:
        >>> isinstance(svod.timing.spans(), list)
        True
    """
    return [Span(*noted) for noted in _ring.copy() if noted[1] >= since_ns]


def totals(since_ns: int = 0) -> dict[str, int]:
    """Nanoseconds by name, the longest first; nested spans count in each of their names.

    Arguments:
        since_ns: a time of `time.perf_counter_ns`.

    Example:
        >>> isinstance(svod.timing.totals(), dict)
        True
    """
    sums: dict[str, int] = {}
    for name, start_ns, end_ns, _ in spans(since_ns):
        sums[name] = sums.get(name, 0) + end_ns - start_ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def clear() -> None:
    """Forget every span.

    Example:
        >>> svod.timing.clear()
        >>> svod.timing.spans()
        []
    """
    _ring.clear()
