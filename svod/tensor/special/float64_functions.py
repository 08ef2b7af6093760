"""Helpers of special functions: computing in float64 and rounding once, polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import Operand, float_node, pair, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.gradients.reverse_mode import GradientError

if TYPE_CHECKING:
    from svod.dtype.types import DType
    from svod.tensor.tensor import Tensor


def precise(x: Tensor) -> Tensor:
    """x in float64."""
    return wrap(B.cast(float_node(x.uop), dt.float64), x._device)


def is_single(x: Tensor) -> bool:
    """Whether a result like x has the places of a float32 at most."""
    return float_node(x.uop).dtype is not dt.float64


def like(found: Tensor, x: Tensor) -> Tensor:
    """A float64 result in the float dtype of x."""
    return found.cast(float_node(x.uop).dtype)


def precise_pair(x: Tensor, y: Operand) -> tuple[Tensor, Tensor, DType]:
    """Both in float64 and of one shape, and the dtype of the result."""
    a, b, device = pair(x, y)
    shape = B.broadcast_shapes(a.shape, b.shape)
    left, right = wrap(float_node(a), device), wrap(float_node(b), device)
    return left.double().expand(shape), right.double().expand(shape), left.dtype


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor | Any:
    """Horner's rule, the highest power first."""
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = x * found + c
    return found


@custom_gradient
def _without_gradient(x: Tensor, what: str) -> Tensor:
    return x * 1


@_without_gradient.backward
def _(grad: Tensor, output: Tensor, x: Tensor, what: str) -> Tensor:
    raise GradientError(what)


def without_gradient(x: Tensor, what: str) -> Tensor:
    """x, through which no gradient may flow: ``backward`` says what is missing."""
    found: Tensor = _without_gradient(x, what)
    return found
