"""Hooks of modules that see gradients: those of the results, then those of the arguments.

Arguments and results of one call pass through functions that change nothing but let the hooks see
what flows back. They run while the graph of the gradients is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svod.autograd.function import Context, Function
from svod.base.errors import ShapeError
from svod.tensor.core.pytrees import flatten, unflatten
from svod.tensor.gradients.reverse_mode import GradientError
from svod.tensor.tensor import Tensor

Gradients = tuple[Tensor | None, ...]


class Passage:
    """One call of a module whose gradients are seen by hooks."""

    def __init__(
        self,
        module: Any,
        before: Sequence[Callable[..., Any]],
        after: Sequence[Callable[..., Any]],
    ) -> None:
        self.module, self.before, self.after = module, before, after
        self.arguments = 0
        self.has_inputs = False
        self.received: Gradients | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, where hooks of the module see their gradients."""
        self.arguments = len(args)
        floats = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        self.has_inputs = bool(floats and self.after)
        if not self.has_inputs:
            return args
        return _Pass.apply(self._leave, *args)  # type: ignore[no-any-return]

    def outputs(self, result: Any) -> Any:
        """The result, where hooks of the module see its gradient."""
        leaves, form = flatten(result)
        return unflatten(form, _Pass.apply(self._enter, *leaves)) if leaves else result

    def _enter(self, gradients: Gradients) -> Gradients:
        for hook in self.before:
            gradients = _changed(hook(self.module, gradients), gradients)
        self.received = gradients
        for hook in self.after if not self.has_inputs else ():
            if hook(self.module, (None,) * self.arguments, gradients) is not None:
                raise GradientError(
                    "a backward hook returned gradients for arguments that need none: return None"
                )
        return gradients

    def _leave(self, gradients: Gradients) -> Gradients:
        for hook in self.after if self.received is not None else ():
            gradients = _changed(hook(self.module, gradients, self.received), gradients)
        return gradients


def _changed(found: Any, gradients: Gradients) -> Gradients:
    """What a hook returned in the place of gradients."""
    if found is None:
        return gradients
    given = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(given) != len(gradients):
        raise ShapeError(f"a backward hook returned {len(given)} of {len(gradients)} gradients")
    return given


class _Pass(Function):
    """All values as they are; a function sees the gradients together."""

    @staticmethod
    def forward(ctx: Context, see: Callable[..., Any], *values: Any) -> tuple[Any, ...]:
        ctx.see = see  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        return (None, *ctx.see(gradients))
