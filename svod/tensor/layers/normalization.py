"""softmax, normalisation layers and attention, as in torch.nn.functional.

16-bit and narrower floats are computed in float32 and converted at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import sqrt
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.tensor.core.tensor_core import (
    Axis,
    Core,
    accumulator,
    float_node,
    integer,
    shape_of,
    wrap,
)
from svod.tensor.layers.attention import Call, attend
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.reductions import top_of
from svod.tensor.random.threefry import rand_like

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _wide(x: Tensor) -> Tensor:
    node = float_node(x.uop)
    return wrap(B.cast(node, accumulator(node.dtype)), x._device)


def _narrow(found: Tensor, like: Tensor) -> Tensor:
    return wrap(B.cast(found.uop, float_node(like.uop).dtype), found._device)


class Normalization(Core):
    """softmax, layer_norm, batch_norm, rms_norm, attention."""

    __slots__ = ()

    def softmax(self: Tensor, dim: Axis = -1, dtype: Any = None) -> Tensor:
        """exp(x) * (1 / sum(exp(x))) over an axis."""
        x = _wide(self if dtype is None else self.cast(dtype))
        grown = (x - top_of(x, dim)).exp()
        found = grown * grown.sum(dim, True).reciprocal()
        return _narrow(found, self) if dtype is None else found.cast(dtype)

    def log_softmax(self: Tensor, dim: Axis = -1, dtype: Any = None) -> Tensor:
        """log(softmax(x)) without loss."""
        x = _wide(self if dtype is None else self.cast(dtype))
        moved = x - top_of(x, dim)
        found = moved - moved.exp().sum(dim, True).log()
        return _narrow(found, self) if dtype is None else found.cast(dtype)

    def softmin(self: Tensor, dim: Axis = -1, dtype: Any = None) -> Tensor:
        """softmax(-x)."""
        return (-self).softmax(dim, dtype)

    def standardize(self: Tensor, dim: Axis = -1, eps: float = 1e-5) -> Tensor:
        """(x - mean) / sqrt(variance + eps) over axes."""
        return _narrow(_standardized(_wide(self), dim, eps), self)

    layernorm = standardize

    def layer_norm(
        self: Tensor,
        normalized_shape: int | Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Standardised over the last axes, then scaled and shifted."""
        axes = _last_axes(self, normalized_shape)
        return _affine(self, _standardized(_wide(self), axes, eps), weight, bias)

    def rms_norm(
        self: Tensor,
        normalized_shape: int | Sequence[int],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Tensor:
        """x / sqrt(mean(x**2) + eps) over the last axes, then scaled."""
        axes = _last_axes(self, normalized_shape)
        x = _wide(self)
        kind = dt.FLOATS_OF.get(x.dtype, self.dtype if self.dtype.kind == "f" else x.dtype)
        small = finfo(kind).eps if eps is None else eps
        return _affine(self, x * ((x * x).mean(axes, True) + small).rsqrt(), weight, None)

    def batch_norm(
        self: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Standardised per channel (axis 1), by running values or, in training, by the batch.

        In training the running values take in the new ones.
        """
        if self.ndim < 2:
            raise ShapeError(f"batch_norm needs a batch and a channel axis, not {self.shape}")
        axes = tuple([i for i in range(self.ndim) if i != 1])
        _check_channels(self, running_mean, running_var, weight, bias)
        if training and self.numel() == self.shape[1]:
            raise ShapeError(f"batch_norm: one value per channel in training, shape {self.shape}")
        kept: tuple[Tensor, ...] = ()
        if training or running_mean is None or running_var is None:
            mean, variance = _wide(self).mean(axes), _wide(self).var(axes, 0)
            if training and running_mean is not None and running_var is not None:
                fresh = _narrow(mean, self), self.var(axes, 1)
                running_mean.assign(running_mean * (1 - momentum) + fresh[0] * momentum)
                running_var.assign(running_var * (1 - momentum) + fresh[1] * momentum)
        else:
            kept = mean, variance = running_mean, running_var
        line = [-1 if i == 1 else 1 for i in range(self.ndim)]
        scale = (_wide(variance) + eps).rsqrt()
        scale = scale if weight is None else scale * _wide(weight)
        found = (_wide(self) - _wide(mean).reshape(line)) * scale.reshape(line)
        found = found if bias is None else found + _wide(bias).reshape(line)
        return _in_common(found, self, *kept, weight, bias)

    def group_norm(
        self: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Standardised per group of channels (axis 1)."""
        groups = integer(num_groups, "num_groups")
        if self.ndim < 2 or groups < 1 or self.shape[1] % groups:
            raise ShapeError(f"group_norm: {groups} groups of the channels of {self.shape}")
        parts = (groups, self.shape[1] // groups)
        x = self.reshape(self.shape[0], *parts, *self.shape[2:])
        found = _standardized(_wide(x), tuple(range(2, x.ndim)), eps)
        line = (1, *parts, *[1] * (self.ndim - 2))
        scale, shift = (None if t is None else t.reshape(line) for t in (weight, bias))
        return _affine(self, found, scale, shift).reshape(self.shape)

    def instance_norm(
        self: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Standardised per sample and channel."""
        if self.ndim < 3:
            raise ShapeError(f"instance_norm needs axes after the channels, not {self.shape}")
        found = _standardized(_wide(self), tuple(range(2, self.ndim)), eps)
        line = [-1 if i == 1 else 1 for i in range(self.ndim)]
        scale, shift = (None if t is None else t.reshape(line) for t in (weight, bias))
        return _affine(self, found, scale, shift)

    def normalize(self: Tensor, p: float = 2.0, dim: Axis = 1, eps: float = 1e-12) -> Tensor:
        """x divided by its norm over an axis, at least eps."""
        return self / self.norm(p, dim, True).clamp(eps)

    def dropout(self: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        """In training, zeros with probability p, the rest scaled by 1 / (1 - p)."""
        if not 0 <= p <= 1:
            raise ShapeError(f"dropout: p is a probability, not {p}")
        if not training or p == 0:
            return self
        if p == 1:
            return self * 0.0
        return select(rand_like(self) < p, 0.0, self * (1 / (1 - p)))

    def scaled_dot_product_attention(
        self: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """softmax(query @ key.T * scale + mask) @ value over the last two axes."""
        query = self
        if min(query.ndim, key.ndim, value.ndim) < 2:
            raise ShapeError(f"attention of {query.shape}, {key.shape} and {value.shape}")
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        factor = 1 / sqrt(query.shape[-1]) if scale is None else scale
        return attend(query, key, value, attn_mask, dropout_p, Call(factor, bool(is_causal)))


def _check_channels(x: Tensor, *given: Tensor | None) -> None:
    for t in given:
        if t is not None and t.shape != (x.shape[1],):
            raise ShapeError(f"batch_norm: {t.shape} for the {x.shape[1]} channels of {x.shape}")


def _last_axes(x: Tensor, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    shape = shape_of((normalized_shape,))
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"normalized_shape {shape} is not the end of {x.shape}")
    return tuple(range(x.ndim - len(shape), x.ndim))


def _standardized(x: Tensor, axes: Axis, eps: float) -> Tensor:
    apart = x - x.mean(axes, True)
    return apart * ((apart * apart).mean(axes, True) + eps).rsqrt()


def _affine(given: Tensor, found: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A wide result scaled and shifted, in the dtype of what was given: rounded once."""
    scaled = found if weight is None else found * _wide(weight)
    shifted = scaled if bias is None else scaled + _wide(bias)
    return _in_common(shifted, given, weight, bias)


def _in_common(found: Tensor, given: Tensor, *others: Tensor | None) -> Tensor:
    dtypes = [float_node(given.uop).dtype, *[t.dtype for t in others if t is not None]]
    return wrap(B.cast(found.uop, reduce(promote, dtypes)), found._device)
