"""Softmax, norms and attention, with what torch keeps of them for gradients."""

from __future__ import annotations

from math import prod
from typing import Any

import svod
import svod.nn.functional as F
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, op, reshaped, tensor
from svod.ir.node import is_symbolic
from svod.tensor.core.tensor_core import accumulator
from svod.tensor.tensor import Tensor


def _wide(x: Tensor) -> Tensor:
    """Narrow floats are summed in float32."""
    kind = accumulator(x.dtype)
    return x if kind is x.dtype else x.cast(kind)


@op("aten._softmax.default", "aten.softmax.int")
def softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return x.softmax(dim) if x.ndim else x * 0 + 1


@op("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return x.log_softmax(dim) if x.ndim else x * 0


@op("aten._safe_softmax.default")
def safe_softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """Rows that are minus infinity everywhere become zeros."""
    is_out = (x == float("-inf")).all(dim, True)
    return svod.where(is_out, tensor(0, x.dtype), x.softmax(dim))


@op("aten._softmax_backward_data.default")
def softmax_backward(grad: Tensor, output: Tensor, dim: int, *_: Any) -> Tensor:
    wide, y = _wide(grad), _wide(output)
    return y * (wide - (wide * y).sum(dim, True))


@op("aten._log_softmax_backward_data.default")
def log_softmax_backward(grad: Tensor, output: Tensor, dim: int, *_: Any) -> Tensor:
    wide, y = _wide(grad), _wide(output)
    return wide - y.exp() * wide.sum(dim, True)


# -- norms -----------------------------------------------------------------------------------------


@op("aten.native_layer_norm.default", call=True)
def layer_norm(
    call: Call, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    mean = wide.mean(axes, True)
    rstd = (wide.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    return F.layer_norm(x, tuple(shape), weight, bias, eps), mean, rstd


@op("aten._fused_rms_norm.default")
def rms_norm(x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    small = svod.finfo(x.dtype).eps if eps is None else eps
    rstd = (wide.square().mean(axes, True) + small).rsqrt()
    found = wide * rstd
    return found if weight is None else found * weight, rstd


@op("aten.native_group_norm.default")
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Any, channels: Any, space: Any,
    groups: int, eps: float,
) -> Any:  # fmt: skip
    rows = reshaped(_wide(x), (batch, groups, channels // groups * space))
    mean = rows.mean(2)
    rstd = (rows.var(2, correction=0) + eps).rsqrt()
    return F.group_norm(x, groups, weight, bias, eps), mean, rstd


def _statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and reciprocal deviation of each channel."""
    axes = (0, *range(2, x.ndim))
    wide = _wide(x)
    mean, variance = wide.mean(axes), wide.var(axes, correction=0)
    return mean, variance, (variance + eps).rsqrt()


def _normalized(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    line = (1, -1, *[1] * (x.ndim - 2))
    scale = rstd if weight is None else rstd * weight
    found = (_wide(x) - mean.reshape(line)) * scale.reshape(line)
    return (found if bias is None else found + bias.reshape(line)).cast(x.dtype)


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Any, Any]:  # fmt: skip
    """The result, what gradients need, and the new running statistics."""
    if not training:
        rstd = (_wide(variance) + eps).rsqrt()
        none = tensor(0, dt.float32).expand(0)
        return _normalized(x, _wide(mean), rstd, weight, bias), none, none, mean, variance
    now, spread, rstd = _statistics(x, eps)
    new_mean, new_variance = mean, variance
    if mean is not None:
        count = prod([x.shape[0], *x.shape[2:]])
        new_mean = now * momentum + mean * (1 - momentum)
        size = tensor(count, now.dtype)
        unbiased = spread * (size / (size - 1))
        new_variance = unbiased * momentum + variance * (1 - momentum)
    return _normalized(x, now, rstd, weight, bias), now, rstd, new_mean, new_variance


@op("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(*args: Any) -> Any:
    return _batch_norm(*args)


@op("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    found = _batch_norm(x, weight, bias, mean, variance, True, momentum, eps)
    return (*found[:3], tensor(0, dt.uint8).expand(0), *found[3:])


@op("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@op("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)[:3]


# -- attention -------------------------------------------------------------------------------------


def _factor(query: Tensor, scale: Any) -> float:
    return float(query.shape[-1]) ** -0.5 if scale is None else scale


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        rows, columns = scores.shape[-2:]
        return svod.where(_triangle(rows, columns), scores, tensor(float("-inf"), scores.dtype))
    if mask is None:
        return scores
    if mask.dtype is dt.bool_:
        return svod.where(mask, scores, tensor(float("-inf"), scores.dtype))
    return scores + mask


def _triangle(rows: Any, columns: Any) -> Tensor:
    from svod.ir import build as B
    from svod.tensor.core.tensor_core import wrap

    row = wrap(B.reshape(B.iota(rows), (rows, 1)), None)
    return wrap(B.reshape(B.iota(columns), (1, columns)), None) <= row


_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"


@op(f"{_FLASH}.default")
def attention(
    query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: Any = None,
) -> Any:  # fmt: skip
    """The result, and the logarithm of each row's sum of exponentials."""
    if dropout:
        raise UnsupportedError("attention with dropout")
    key, value, attn_mask = _matched(query, key, value, attn_mask)
    found = F.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=_factor(query, scale)
    )
    scores = _wide(query) @ _wide(key).mT * _factor(query, scale)
    return found, _masked(scores, attn_mask, is_causal).logsumexp(-1)


def _matched(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Any, ...]:
    """Keys and values for every head of queries, and of one length: torch's kernel asks for it,
    but nothing in the graph says so where each has a run-time length of its own."""
    if value.shape[2] is not key.shape[2]:
        value = reshaped(value, (*value.shape[:2], key.shape[2], value.shape[3]))
    if mask is not None and mask.shape[-1] is not key.shape[2] and is_symbolic(key.shape[2:3]):
        mask = reshaped(mask, (*mask.shape[:-1], key.shape[2]))
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    return key, value, mask


@op(f"{_FLASH}_backward.default")
def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, sums: Tensor,
    dropout: float, is_causal: bool, *, attn_mask: Any = None, scale: Any = None,
) -> Any:  # fmt: skip
    """Weights are made again from scores and the logarithms of their sums."""
    if dropout:
        raise UnsupportedError("attention with dropout")
    factor, shapes = _factor(query, scale), (key.shape, value.shape)
    key, value, attn_mask = _matched(query, key, value, attn_mask)
    q, k, v, g = (_wide(x) for x in (query, key, value, grad))
    scores = _masked(q @ k.mT * factor, attn_mask, is_causal)
    weights = (scores - sums.unsqueeze(-1)).exp()
    inner = (g * _wide(output)).sum(-1, True)
    slopes = weights * (g @ v.mT - inner) * factor
    parts = [_summed(x, s) for x, s in zip((slopes.mT @ q, weights.mT @ g), shapes, strict=True)]
    return slopes @ k, *parts


def _summed(grad: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The gradient of keys or values that several heads of queries share."""
    batch, heads, length, width = shape
    group = grad.shape[1] // heads
    if group == 1:
        return reshaped(grad, shape) if grad.shape != shape else grad
    return reshaped(grad, (batch, heads, group, length, width)).sum(2)


@op("aten.scaled_dot_product_attention.default")
def whole_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout, is_causal, scale=scale, enable_gqa=enable_gqa
    )
