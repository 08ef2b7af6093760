"""What a measurement says: one line per bar, with what is required and whether it is reached.

The ratio of a line tells how far the bar is reached: 1 is exactly, more is better, whether the
bar is an upper or a lower limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from svod.tools.report import duration

OK, SHORT, FIGURE, NO_PEER, FAILED = "ok", "short", "figure", "no peer", "failed"


@dataclass(frozen=True, slots=True)
class Line:
    """One bar, or with the verdict `figure` a number without one."""

    name: str
    required: str
    measured: str
    ratio: float | None
    verdict: str
    note: str = ""

    def data(self) -> dict[str, Any]:  # JSON values
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """What is run by name; it gives lines as they are measured."""

    name: str
    about: str
    run: Callable[[], Iterator[Line]]


class MissingPeer(Exception):
    """A framework to compare with is not installed."""


def at_most(
    name: str, value: float, limit: float, show: Callable[[float], str] = duration, note: str = ""
) -> Line:
    """A bar that is an upper limit."""
    verdict = OK if value <= limit else SHORT
    ratio = limit / value if value > 0 else None
    return Line(name, f"≤ {show(limit)}", show(value), ratio, verdict, note)


def at_least(
    name: str, value: float, limit: float, show: Callable[[float], str], note: str = ""
) -> Line:
    """A bar that is a lower limit."""
    verdict = OK if value >= limit else SHORT
    return Line(name, f"≥ {show(limit)}", show(value), value / limit, verdict, note)


def holds(name: str, required: str, measured: str, is_met: bool, note: str = "") -> Line:
    """A bar that is a fact, not a number."""
    return Line(name, required, measured, None, OK if is_met else SHORT, note)


def figure(name: str, measured: str, note: str = "") -> Line:
    """A number without a bar."""
    return Line(name, "", measured, None, FIGURE, note)


def failure(name: str, error: BaseException) -> Line:
    """The line of a case that ended with an exception."""
    if isinstance(error, MissingPeer):
        return Line(name, "", "", None, NO_PEER, str(error))
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return Line(name, "", "", None, FAILED, text[:300])


def peer(module: str) -> Any:  # a module whose type is not known here
    """A framework to compare with."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPeer(f"{module} is not installed") from error


def times(value: float) -> str:
    """A factor for people: 1.25 ×."""
    return f"{value:.2f} ×"


def percent(value: float) -> str:
    """A share for people: 61 %."""
    return f"{value * 100:.0f} %"


def whole(value: float) -> str:
    """A count for people."""
    return f"{value:,.0f}"
