"""Scalars with an axis argument: as in torch, they count as a vector of one element."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from svod.tensor.core.tensor_core import Core, axis_of

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def as_vectors(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The method for scalars too: they and the scalars among the arguments become vectors."""

    @wraps(method)
    def call(self: Any, dim: int, *args: Any, **options: Any) -> Tensor:
        if self.ndim:
            return method(self, dim, *args, **options)
        axis_of(dim, 0)
        given = [raised(a) for a in args]
        named = {name: raised(a) for name, a in options.items()}
        return method(self.reshape(1), 0, *given, **named).reshape(())

    return call


def raised(value: Any) -> Any:
    """A tensor without axes as a vector of one element; anything else as it is."""
    return value.reshape(1) if isinstance(value, Core) and not value.ndim else value  # type: ignore[attr-defined]
