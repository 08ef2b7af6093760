"""Stochastic functions of ``torch.nn.functional``: dropout, gumbel_softmax, rrelu and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.core.tensor_core import real_axis
from svod.tensor.ops.creation import arange
from svod.tensor.ops.elementwise import select
from svod.tensor.random.threefry import rand

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_ALPHA = -1.7580993408473766  # what selu tends to below: -scale * alpha


def _kept(x: Tensor, shape: Any, p: float) -> Tensor:
    """Which elements stay; axes of size 1 stay or go together."""
    kind = x.dtype if x.dtype.kind == "f" else None
    return rand(*shape, dtype=kind, device=x._device) >= p


def _probability(p: float, what: str) -> None:
    if not 0 <= p <= 1:
        raise ShapeError(f"{what}: p is a probability, not {p}")


def _result(x: Tensor, found: Tensor, inplace: bool) -> Tensor:
    return x.become(found) if inplace else found


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeros with probability p, the rest scaled by 1 / (1 - p)."""
    return _result(input, input.dropout(p, training), inplace)


def _dropped_channels(x: Tensor, count: int, p: float, training: bool, inplace: bool) -> Tensor:
    _probability(p, f"dropout{count}d")
    if not training or p == 0:
        return x
    lead = max(x.ndim - count, 0)
    shape = (*x.shape[:lead], *[1] * (x.ndim - lead))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return _result(x, select(_kept(x, shape, p), x * scale, 0.0), inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, length) to zero with probability p."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"dropout1d takes 2 or 3 axes, not shape {input.shape}")
    return _dropped_channels(input, 1, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, height, width) to zero with probability p."""
    return _dropped_channels(input, 2, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, *space) to zero with probability p."""
    return _dropped_channels(input, 3, p, training, inplace)


def _alpha_dropped(x: Tensor, shape: Any, p: float, inplace: bool) -> Tensor:
    """Dropped elements become selu's lower limit; mean and variance stay."""
    if x.dtype.kind == "c":
        raise DTypeError(f"alpha dropout in training takes real numbers, not {x.dtype.name}")
    a = ((_ALPHA * _ALPHA * p + 1) * (1 - p)) ** -0.5 if p < 1 else 0.0
    kept = select(_kept(x, shape, p), x, _ALPHA)
    return _result(x, kept * a - p * a * _ALPHA, inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps the mean and variance of what selu makes."""
    _probability(p, "alpha_dropout")
    return _alpha_dropped(input, input.shape, p, inplace) if training and p else input


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    _probability(p, "feature_alpha_dropout")
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha_dropped(input, shape, p, inplace) if training and p else input


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """softmax of logits with Gumbel noise; ``hard`` gives one-hot values with soft gradients."""
    uniform = rand(*logits.shape, dtype=logits.dtype, device=logits._device)
    noise = -(-(1 - uniform).log()).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    best = soft.detach().argmax(dim, True)
    axis = real_axis(dim, soft.shape, "gumbel_softmax")
    line = [-1 if i == axis else 1 for i in range(soft.ndim)]
    places = arange(soft.shape[axis]).reshape(line)
    return (best == places).cast(soft.dtype) + (soft - soft.detach())


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with a random slope in training, and the mean slope otherwise."""
    if lower > upper:
        raise ShapeError(f"rrelu: lower {lower} is above upper {upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = rand(*input.shape, dtype=input.dtype, device=input._device)
        slope = slope * (upper - lower) + lower
    return _result(input, select(input > 0, input, input * slope), inplace)
