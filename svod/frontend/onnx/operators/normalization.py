"""Normalisation: batch, layer, group, instance, RMS, and norms along axes."""

from __future__ import annotations

from typing import Any

import svod
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Tensor, operator
from svod.frontend.onnx.types import element


def _channels(x: Tensor, v: Tensor) -> Tensor:
    return v.reshape(1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else v


@operator("BatchNormalization")
def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, spatial: int = 1, is_test: int = 0,
    consumed_inputs: Any = None, node: NodeView,
) -> Any:  # fmt: skip
    if not training_mode:
        factor = scale / (var.cast(scale.dtype) + epsilon).sqrt()
        shift = bias - mean.cast(scale.dtype) * factor
        return (x * _channels(x, factor) + _channels(x, shift)).cast(x.dtype)
    axes = (0, *range(2, x.ndim))
    now, spread = x.mean(axes), x.var(axes, correction=0)
    found = (x - _channels(x, now)) / (_channels(x, spread) + epsilon).sqrt()
    found = found * _channels(x, scale) + _channels(x, bias)
    kept = mean * momentum + now * (1 - momentum)
    return found, kept, var * momentum + spread * (1 - momentum)


def _stash(number: int) -> DType:
    return element(number).carrier


@operator("LayerNormalization")
def layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1,
    epsilon: float = 1e-5, stash_type: int = 1, node: NodeView,
) -> Any:  # fmt: skip
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.cast(_stash(stash_type)) if x.dtype is not dt.float64 else x
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = 1 / (centred.square().mean(axes, keepdim=True) + epsilon).sqrt()
    found = (centred * inverse).cast(x.dtype) * scale
    found = found if bias is None else found + bias
    return (found, mean, inverse)[: max(node.outputs, 1)]


@operator("RMSNormalization")
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.cast(_stash(stash_type)) if x.dtype is not dt.float64 else x
    found = wide / (wide.square().mean(axes, keepdim=True) + epsilon).sqrt()
    return found.cast(x.dtype) * scale


@operator("InstanceNormalization")
def instance_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, consumed_inputs: Any = None
) -> Tensor:
    axes = tuple(range(2, x.ndim))
    centred = x - x.mean(axes, keepdim=True)
    found = centred / (centred.square().mean(axes, keepdim=True) + epsilon).sqrt()
    return found * _channels(x, scale) + _channels(x, bias)


@operator("GroupNormalization")
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5,
    stash_type: int = 1, node: NodeView,
) -> Tensor:  # fmt: skip
    n, c = x.shape[:2]
    wide = x.cast(_stash(stash_type)).reshape(n, num_groups, -1)
    centred = wide - wide.mean(-1, keepdim=True)
    found = centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()
    found = found.cast(x.dtype).reshape(*x.shape)
    if node.version < 21:  # a value for each group
        scale = scale.reshape(-1, 1).expand(num_groups, c // num_groups).reshape(-1)
        bias = bias.reshape(-1, 1).expand(num_groups, c // num_groups).reshape(-1)
    return found * _channels(x, scale) + _channels(x, bias)


@operator("MeanVarianceNormalization")
def mean_variance(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    chosen = tuple(axes or [0, 2, 3])
    centred = x - x.mean(chosen, keepdim=True)
    return centred / (centred.square().mean(chosen, keepdim=True).sqrt() + 1e-9)


@operator("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = x.abs().sum(axis, keepdim=True) if p == 1 else x.square().sum(axis, keepdim=True).sqrt()
    return svod.where(size == 0, svod.zeros_like(x), x / size)


@operator("LRN")
def lrn(
    x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    before = (size - 1) // 2
    spread = x.square().pad([0, 0] * (x.ndim - 2) + [before, size - 1 - before])
    total: Any = None
    for i in range(size):
        part = spread[:, i : i + x.shape[1]]
        total = part if total is None else total + part
    return x / (bias + (alpha / size) * total) ** beta


@operator("Dropout", since=12)
def dropout(
    x: Tensor, ratio: Tensor | None = None, training: Any = None, *, seed: int | None = None,
    node: NodeView,
) -> Any:  # fmt: skip
    is_training = training is not None and bool(node.host(node.inputs[2]).reshape(-1)[0])
    share = 0.5 if ratio is None else float(node.host(node.inputs[1]).reshape(-1)[0])
    if not is_training or share == 0:
        return x, svod.ones(x.shape, dtype=dt.bool_)
    kept = svod.rand(*x.shape) >= share
    return svod.where(kept, x / (1 - share), svod.zeros_like(x)), kept


@operator("Dropout")
def dropout_in_use(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Any = None,
    node: NodeView,
) -> Any:  # fmt: skip
    mask = svod.ones(x.shape, dtype=dt.bool_)
    return x, mask if node.version >= 10 else mask.cast(x.dtype)
