"""Quantised operators of com.microsoft.

Most are defined as: dequantise, compute in float32, quantise. Products are of whole numbers.
"""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.contrib import MICROSOFT
from svod.frontend.onnx.operators.linear import _shifted, whole_product
from svod.frontend.onnx.operators.pooling import average_pool
from svod.frontend.onnx.operators.quantization import (
    dequantize,
    dynamic_quantize,
    quantize,
    to_quantized,
)  # fmt: skip
from svod.frontend.onnx.registry import Tensor, operator

operator("QuantizeLinear", domain=MICROSOFT)(quantize)
operator("DequantizeLinear", domain=MICROSOFT)(dequantize)


def _real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return _shifted(x, zero).cast(dt.float32) * scale.reshape(())


def _number(x: Tensor) -> int:
    """ONNX's number of an 8-bit type."""
    return 2 if x.dtype is dt.uint8 else 3


def _whole(x: Tensor, scale: Tensor, zero: Tensor | None, number: int) -> Tensor:
    return to_quantized(x / scale.reshape(()), number, zero, True)


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(
    a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
    b_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None, *, node: NodeView,
) -> Tensor:  # fmt: skip
    left, right = _real(a, a_scale, a_zero), _real(b, b_scale, b_zero)
    found = left + right if node.proto.op_type == "QLinearAdd" else left * right
    return _whole(found, scale, zero, _number(a))


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(scale: Tensor, zero: Tensor, *xs: Tensor, axis: int) -> Tensor:
    parts = []
    for x, own, point in zip(xs[::3], xs[1::3], xs[2::3], strict=True):
        parts.append(_whole(_real(x, own, point), scale, zero, _number(x)))
    return svod.concat(parts, axis=axis)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_unary(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor,
    zero: Tensor | None = None, *, alpha: float = 0.01, node: NodeView,
) -> Tensor:  # fmt: skip
    real = _real(x, x_scale, x_zero)
    if node.proto.op_type == "QLinearSigmoid":
        found = real.sigmoid()
    else:
        found = svod.where(real >= 0, real, alpha * real)
    return _whole(found, scale, zero, _number(x))


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor, zero: Tensor, *,
    axis: int = -1, opset: int = 13,
) -> Tensor:  # fmt: skip
    real = _real(x, x_scale, x_zero)
    if opset < 13:
        flat = real.reshape(*x.shape[: axis % x.ndim], -1).softmax(-1).reshape(x.shape)
        return _whole(flat, scale, zero, _number(x))
    return _whole(real.softmax(axis), scale, zero, _number(x))


def _first(x: Tensor) -> Tensor:
    """Channels from the last axis to the second."""
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def _last(x: Tensor) -> Tensor:
    return x.permute(0, *range(2, x.ndim), 1)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None,
    *, channels_last: int = 0,
) -> Tensor:  # fmt: skip
    axes = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    return _whole(_real(x, x_scale, x_zero).mean(axes, keepdim=True), scale, zero, _number(x))


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None,
    *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    real = _real(x, x_scale, x_zero)
    found = average_pool(
        _first(real) if channels_last else real, kernel_shape=kernel_shape, auto_pad=auto_pad,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad, pads=pads, strides=strides,
    )  # fmt: skip
    return _whole(_last(found) if channels_last else found, scale, zero, _number(x))


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    c: Tensor | None = None, scale: Tensor | None = None, zero: Tensor | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    left, right = a.transpose(0, 1) if transA else a, b.transpose(0, 1) if transB else b
    total = whole_product(left, a_zero, right, b_zero)
    total = total if c is None else total + c
    factor = a_scale.reshape(()) * b_scale
    factor = factor * alpha if alpha != 1.0 else factor
    found = total.cast(dt.float32) * factor
    return found if scale is None else _whole(found, scale, zero, _number(a))


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero: Tensor | None = None,
    b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    total = whole_product(a, a_zero, b, b_zero)
    found = total.cast(dt.float32) * (a_scale * b_scale)
    return found if bias is None else found + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    whole, scale, zero = dynamic_quantize(a)
    return matmul_integer_to_float(whole, b, scale, b_scale, zero, b_zero, bias)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Whole numbers of a few bits from bytes, the lowest first, along the last axis."""
    if bits == 8:
        return x.cast(dt.int32)
    shifts = svod.arange(0, 8, bits, dtype=dt.int32)
    parts = x.cast(dt.int32).unsqueeze(-1).bitwise_right_shift(shifts) & ((1 << bits) - 1)
    return parts.reshape(*x.shape[:-1], x.shape[-1] * (8 // bits))


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    a: Tensor, b: Tensor, scales: Tensor, zeros: Tensor | None = None,
    groups: Tensor | None = None, bias: Tensor | None = None, *, K: int, N: int, bits: int = 4,
    block_size: int, accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Tensor:  # fmt: skip
    if groups is not None or bits not in (2, 4, 8) or weight_prepacked:
        raise UnsupportedError("g_idx, weight_prepacked and 3, 5, 6 or 7 bits are not supported")
    blocks = -(-K // block_size)
    codes = _unpacked(b.reshape(N, blocks, -1), bits).cast(dt.float32)
    if zeros is None:
        point: Any = float(1 << (bits - 1))
    elif zeros.dtype is dt.uint8:
        point = _unpacked(zeros.reshape(N, -1), bits)[:, :blocks].cast(dt.float32).unsqueeze(-1)
    else:
        point = zeros.reshape(N, blocks, 1).cast(dt.float32)
    weights = (codes - point) * scales.reshape(N, blocks, 1).cast(dt.float32)
    weights = weights.reshape(N, blocks * block_size)[:, :K].cast(a.dtype)
    found = a @ weights.transpose(0, 1)
    return found if bias is None else found + bias


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    data: Tensor, indices: Tensor, scales: Tensor, zeros: Tensor | None = None, *,
    bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
    node: NodeView,
) -> Tensor:  # fmt: skip
    last = data.ndim - 1
    if gather_axis != 0 or quantize_axis % data.ndim != last:
        raise UnsupportedError("only rows of blocks along the last axis are gathered")
    is_packed = node.element(0) == 2 and bits < 8
    codes = data[indices]
    codes = _unpacked(codes, bits) if is_packed else codes.cast(dt.int32)
    width = codes.shape[-1]
    factors = scales[indices]
    if zeros is not None:
        points = zeros[indices]
        points = _unpacked(points, bits) if is_packed else points.cast(dt.int32)
        codes = codes - _spread(points[..., : factors.shape[-1]], block_size, width)
    elif is_packed or node.element(0) == 2:
        codes = codes - (1 << (bits - 1))
    wide = _spread(factors, block_size, width)
    return (codes.cast(dt.float32) * wide.cast(dt.float32)).cast(scales.dtype)


def _spread(x: Tensor, block: int, width: Any) -> Tensor:
    """One value for each block along the last axis as one for each element."""
    count = x.shape[-1]
    found = x.unsqueeze(-1).expand(*x.shape, block).reshape(*x.shape[:-1], count * block)
    return found[..., :width]
