"""custom_gradient: a function of tensors whose gradient is given, not derived.

Its inputs and its output are marked; equal calls make equal nodes. ``svod.autograd.Function`` is
torch's form of the same, with a context for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from svod.base.errors import DTypeError
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core.tensor_core import Core, tensor_of, wrap
from svod.tensor.gradients.reverse_mode import GradientError, Mark, custom_rules, mark

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
_numbers = count()
_TENSOR = "a tensor"  # in the place of a tensor among the plain arguments of a call


class CustomGradient:
    """A function of tensors with a gradient of its own; see ``custom_gradient``."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward
        self.rule: Callable[..., Any] | None = None
        self.name = f"{forward.__qualname__}#{next(_numbers)}"
        update_wrapper(self, forward)
        custom_rules[self.name] = self._apply

    def backward(self, rule: F) -> F:
        """Set the gradient: ``rule(grad, output, *arguments)`` gives one per tensor argument."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise GradientError(
                f"{self.name}: give the gradient with @{self.forward.__name__}.backward"
            )
        options = tuple([_TENSOR if isinstance(a, Core) else a for a in args])
        inputs = []
        for position, a in enumerate(args):
            if isinstance(a, Core):
                a = _marked(a, Mark(self.name, "input", position))
            inputs.append(a)
        result = self.forward(*inputs)
        if not isinstance(result, Core):
            raise GradientError(f"{self.name} returned a {type(result).__name__}, no tensor")
        try:
            return _marked(result, Mark(self.name, "output", 0, options))
        except TypeError:
            raise DTypeError(
                f"{self.name}: arguments that are no tensors must be hashable"
            ) from None

    def _apply(self, output: UOp, own: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
        assert self.rule is not None
        args: list[Any] = list(output.arg.options)
        for node in inputs:
            args[node.arg.position] = wrap(_seen(node.src[0], node), None)
        if any(a is _TENSOR for a in args):
            raise GradientError(f"{self.name}: its value must depend on every tensor argument")
        seen = [wrap(_seen(node, output), None) for node in (own, output)]
        given = self.rule(*seen, *args)
        found = iter(given if isinstance(given, (tuple, list)) else (given,))
        result: list[UOp | None] = [None] * len(args)
        for position, a in enumerate(args):
            if isinstance(a, Core):
                part = next(found, None)
                if part is not None:
                    result[position] = B.floats_of(tensor_of(part).cast(a.dtype).uop)
        return result


def _marked(x: Any, argument: Mark) -> Tensor:
    node = mark(B.floats_of(x.uop), argument._replace(is_complex=x.dtype.is_complex))
    return wrap(B.like(x.uop, node), x._device)


def _seen(floats: UOp, marked: UOp) -> UOp:
    """A value below a mark, or its gradient, as the function knows it."""
    return B.complex_view(floats) if marked.arg.is_complex else floats


def custom_gradient(forward: Callable[..., Any]) -> CustomGradient:
    """A function whose gradient is given, not derived.

    ::

        @custom_gradient
        def clipped(x, limit):
            return x

        @clipped.backward
        def _(grad, output, x, limit):
            return grad.clamp(-limit, limit)
    """
    return CustomGradient(forward)
