"""Names that go away: they work until a stated version, and warn from another one on.

In: the old name, what stands for it, and two versions. Out: what the new name holds, after a
warning at the line of the caller. A test fails for a name that should be gone by now.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from svod.base.errors import SvodWarning

F = TypeVar("F", bound=Callable[..., Any])

known: list[Deprecation] = []  # all that exist, for the test that looks for those to remove


class SvodDeprecationWarning(SvodWarning, DeprecationWarning):
    """The use of a name that a later version has no more."""


@dataclass(frozen=True)
class Deprecation:
    """A name that goes away, and what to use in its place."""

    name: str
    instead: str
    since: str  # the version that warns first
    until: str  # the version that has the name no more

    def __post_init__(self) -> None:
        if version(self.since) >= version(self.until):
            raise ValueError(f"{self.name} warns since {self.since} and is gone in {self.until}")
        known.append(self)

    def warn(self, level: int = 2) -> None:
        """Say so, at the line ``level`` calls above this one."""
        text = f"{self.name} is deprecated since {self.since} and will be gone in {self.until}: "
        warnings.warn(f"{text}use {self.instead}", SvodDeprecationWarning, level + 1)

    def found(self, lookup: Callable[[str], Any]) -> Any:
        """What the new name holds, for the ``__getattr__`` of a module."""
        self.warn(3)
        return lookup(self.instead.rpartition(".")[2])


def deprecated(name: str, instead: str, *, since: str, until: str) -> Callable[[F], F]:
    """A decorator of functions that go away: each call warns."""
    notice = Deprecation(name, instead, since, until)

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            notice.warn()
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def version(text: str) -> tuple[int, ...]:
    """A version as numbers that compare: "0.10.1" is above "0.9"."""
    return tuple([int(part) for part in text.split(".")])
