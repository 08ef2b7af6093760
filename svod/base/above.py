"""Tools that lie above what they are asked from: the package names them, whoever asks loads them.

A plan can be told to show itself, and what shows plans is built on plans. `know` is called once by
the package, which knows all its modules; `above` gives what it named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_known: dict[str, Callable[[], Any]] = {}


def know(name: str, load: Callable[[], Any]) -> None:
    """Name a tool, and how it is loaded."""
    _known[name] = load


def above(name: str) -> Any:
    """The tool of this name."""
    return _known[name]()
