"""Module paths: the names of the modules whose ``forward`` runs, for the origins of tensors.

A model is named by its class, what is inside by the attributes it hangs on:
``ResNet.layer1.0.conv2``. Importers name nodes of a file the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

_NOWHERE: Final[tuple[Any, str]] = (None, "")
# The module whose forward runs, and its path. One per thread and task.
running: Final[ContextVar[tuple[Any, str]]] = ContextVar("running", default=_NOWHERE)


def current_path() -> str:
    """The path of the module whose forward runs, or an empty text."""
    return running.get()[1]


def path_below(module: Any) -> str:
    """The path of a module that is called now."""
    around, path = running.get()
    if around is None:
        name = type(module).__name__
        return f"{path}.{name}" if path else name
    for name, part in around._modules.items():
        if part is module:
            return f"{path}.{name}"
    if around is module:  # forward of a class calls that of its base
        return path
    return _deeper(around, path, module)


def _deeper(around: Any, path: str, module: Any) -> str:
    """A module that is not directly inside: in a list that is inside, or held elsewhere."""
    for name, part in around._modules.items():
        for inner, found in part._modules.items() if part is not None else ():
            if found is module:
                return f"{path}.{name}.{inner}"
    return f"{path}.{type(module).__name__}"


@contextmanager
def named(name: str) -> Iterator[None]:
    """Tensors made in the block belong to what the name says."""
    around, path = running.get()
    token = running.set((around, f"{path}.{name}" if path else name))
    try:
        yield
    finally:
        running.reset(token)
