"""Fused operators of com.microsoft: products with activations, norms with what precedes them."""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.convolution import conv
from svod.frontend.onnx.operators.linear import gemm
from svod.frontend.onnx.operators.normalization import layer_norm
from svod.frontend.onnx.registry import Tensor, operator

MICROSOFT = "com.microsoft"

operator("LayerNormalization", domain=MICROSOFT)(layer_norm)


def activated(x: Tensor, name: str, a: float | None = None, b: float | None = None) -> Tensor:
    """What an operator does last, by the name in its attributes."""
    if name in ("", "Identity"):
        return x
    if name in ("Relu", "Sigmoid", "Tanh", "Softplus"):
        found: Tensor = getattr(x, name.lower())()
        return found
    if name == "LeakyRelu":
        return svod.where(x >= 0, x, (0.01 if a is None else a) * x)
    if name == "Clip":
        return x.clamp(a, b)
    if name == "HardSigmoid":
        return (x * (0.2 if a is None else a) + (0.5 if b is None else b)).clamp(0, 1)
    if name == "HardSwish":
        return x * (x / 6 + 0.5).clamp(0, 1)
    raise UnsupportedError(f"activation {name!r} is not supported")


def _turned(x: Tensor, is_transposed: int, is_batch: int) -> Tensor:
    """The last two axes exchanged; with the flag of batches, the first one moves before them."""
    if is_batch:
        x = x.permute(*range(1, x.ndim - 1), 0, x.ndim - 1)
    return x.transpose(-1, -2) if is_transposed else x


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    a = _turned(a, transA, transBatchA) if a.ndim > 1 else a
    b = _turned(b, transB, transBatchB) if b.ndim > 1 else b
    found = a @ b
    return found if alpha == 1.0 else (found * alpha).cast(a.dtype)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    found = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(found, activation, activation_alpha, activation_beta)


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, other: Tensor | None = None, *,
    activation: str = "", activation_params: Any = None, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    found = conv(
        x, weight, bias, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads,
        strides=strides,
    )  # fmt: skip
    found = found if other is None else found + other
    return activated(found, activation, *(activation_params or [])[:2])


@operator("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, other: Tensor | None = None, *,
    activation: str = "", activation_params: Any = None, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    last = x.ndim - 1
    found = conv(
        x.permute(0, last, *range(1, last)), weight.permute(0, last, *range(1, last)), bias,
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    ).permute(0, *range(2, last + 1), 1)  # fmt: skip
    found = found if other is None else found + other
    return activated(found, activation, *(activation_params or [])[:2])


def _gelu(x: Tensor) -> Tensor:
    return x.gelu(approximate="none")


@operator("Gelu", domain=MICROSOFT)
def gelu(x: Tensor) -> Tensor:
    return _gelu(x)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return _gelu(x + bias)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return (x if bias is None else x + bias).gelu(approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * (alpha * x).sigmoid()


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int = 1) -> Tensor:
    lead, inner = tuple(x.shape[: axis % x.ndim]), tuple(x.shape[axis % x.ndim :])
    if not is_inner_broadcast:
        repeated = list(bias.shape[: bias.ndim - len(inner)])
        bias = bias.reshape(*repeated, *[1] * (len(lead) - len(repeated)), *inner)
    return (x + bias).reshape(*lead, -1).softmax(-1).reshape(x.shape)


def _normed(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, is_rms: bool) -> Any:
    """The result, the mean and the inverse deviation over the last axis, in float32."""
    wide = x if x.dtype is dt.float64 else x.cast(dt.float32)
    mean = wide.mean(-1, keepdim=True)
    centred = wide if is_rms else wide - mean
    inverse = 1 / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()
    found = centred * inverse * gamma.cast(wide.dtype)
    found = found if beta is None else found + beta.cast(wide.dtype)
    return found.cast(x.dtype), mean, inverse


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None,
    bias: Tensor | None = None, *, epsilon: float = 1e-12, node: NodeView,
) -> Any:  # fmt: skip
    total = x + skip if bias is None else x + skip + bias
    return (*_normed(total, gamma, beta, epsilon, False), total)[: max(node.outputs, 1)]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *,
    epsilon: float = 1e-12, node: NodeView,
) -> Any:  # fmt: skip
    total = x + skip if bias is None else x + skip + bias
    return (*_normed(total, gamma, None, epsilon, True), total)[: max(node.outputs, 1)]


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
    node: NodeView,
) -> Any:  # fmt: skip
    axis %= x.ndim
    flat = x.reshape(*x.shape[:axis], -1)
    found, _, inverse = _normed(flat, scale.reshape(-1), None, epsilon, True)
    kept = inverse.reshape(*x.shape[:axis], *[1] * (x.ndim - axis))
    return (found.reshape(x.shape), kept)[: max(node.outputs, 1)]


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    ids: Tensor, segments: Tensor | None, words: Tensor, places: Tensor,
    segment_words: Tensor | None = None, gamma: Tensor | None = None, beta: Tensor | None = None,
    mask: Tensor | None = None, position_ids: Tensor | None = None, *, epsilon: float = 1e-12,
    mask_index_type: int = 1, node: NodeView,
) -> Any:  # fmt: skip
    total = words[ids]
    if position_ids is None:
        total = total + places[: ids.shape[1]].unsqueeze(0)
    else:
        total = total + places[position_ids]
    if segments is not None and segment_words is not None:
        total = total + segment_words[segments]
    if gamma is None:
        raise UnsupportedError("without gamma is not supported")
    found = _normed(total, gamma, beta, epsilon, False)[0]
    lengths = svod.zeros((ids.shape[0],), dtype=dt.int32)
    if mask is not None:
        lengths = mask.cast(dt.int32).sum(1, dtype=dt.int32)
    return (found, lengths, total)[: max(node.outputs, 1)]
