"""Quantised numbers: QuantizeLinear, DequantizeLinear and products of quantised operands."""

from __future__ import annotations

from typing import Any

import svod
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.narrow import cast_to, limits
from svod.frontend.onnx.operators.convolution import integer_conv
from svod.frontend.onnx.operators.integer import remember
from svod.frontend.onnx.operators.linear import whole_product
from svod.frontend.onnx.registry import Tensor, Value, operator
from svod.frontend.onnx.types import element


def _along(scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points in the shape of what they apply to."""
    if (
        scale.ndim == 0
        or (scale.ndim == 1 and x.ndim != 1 and block == 0)
        or (scale.ndim == 1 and not block)
    ):
        if scale.ndim == 0 or (scale.shape[0] == 1 and x.shape[axis % max(x.ndim, 1)] != 1):
            return scale.reshape(())
        axis %= x.ndim
        return scale.reshape(*[-1 if i == axis else 1 for i in range(x.ndim)])
    axis %= x.ndim
    size = block or x.shape[axis] // scale.shape[axis]
    wide = [*scale.shape[: axis + 1], size, *scale.shape[axis + 1 :]]
    spread = scale.unsqueeze(axis + 1).expand(*wide)
    flat = [*scale.shape[:axis], scale.shape[axis] * size, *scale.shape[axis + 1 :]]
    found = spread.reshape(*flat)
    return found[(slice(None),) * axis + (slice(0, x.shape[axis]),)]


def to_quantized(x: Tensor, number: int, zero: Tensor | None, saturate: bool) -> Tensor:
    """Scaled values as a quantised type: rounded to even, shifted, bounded."""
    kind = element(number)
    if "INT" in kind.name:
        lo, hi = limits(kind)
        found = x.round()
        if zero is not None:
            found = found + zero.cast(found.dtype)
        return found.clamp(lo, hi).cast(kind.carrier)
    return cast_to(x if zero is None else x + zero.cast(x.dtype), number, saturate)


@operator("QuantizeLinear")
def quantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1, node: NodeView,
) -> Tensor:  # fmt: skip
    number = output_dtype or (node.element(2) if zero is not None else 2)
    kind: DType = element(precision).carrier if precision else _wide(scale.dtype)
    factor = _along(scale, x, axis, block_size).cast(kind)
    shift = None if zero is None else _along(zero, x, axis, block_size)
    node.set_kind(number)
    return to_quantized(x.cast(kind) / factor, number, shift, bool(saturate))


def _wide(dtype: DType) -> DType:
    return dtype if dtype.is_float and dtype.bits >= 16 else dt.float32


@operator("DequantizeLinear")
def dequantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, node: NodeView,
) -> Tensor:  # fmt: skip
    kind = element(output_dtype).carrier if output_dtype else scale.dtype
    if output_dtype:
        node.set_kind(output_dtype)
    factor = _along(scale, x, axis, block_size).cast(dt.float32)
    if x.dtype.is_int:
        wide = x.cast(dt.int32)
        if zero is not None:
            wide = wide - _along(zero, x, axis, block_size).cast(dt.int32)
    else:
        wide = x.cast(dt.float32)
        if zero is not None:
            wide = wide - _along(zero, x, axis, block_size).cast(dt.float32)
    found = (wide.cast(dt.float32) * factor).cast(kind)
    remember(node, found, x, axis, block_size)
    return found


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    zero = svod.zeros((), dtype=dt.float32)
    low, high = svod.minimum(x.amin(), zero), svod.maximum(x.amax(), zero)
    scale = (high - low) / 255
    scale = svod.where(scale == 0, 1.0, scale)
    point = (-low / scale).round().clamp(0, 255)
    return ((x / scale).round() + point).clamp(0, 255).cast(dt.uint8), scale, point.cast(dt.uint8)


def _requantized(total: Tensor, factor: Tensor, zero: Tensor | None, number: int) -> Tensor:
    return to_quantized(total.cast(dt.float32) * factor, number, zero, True)


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, *, node: NodeView,
) -> Tensor:  # fmt: skip
    node.set_kind(node.element(7))
    if not a.dtype.is_int:
        total = (a.cast(dt.float32) - a_zero.cast(dt.float32)) @ (
            b.cast(dt.float32) - b_zero.cast(dt.float32)
        )
    else:
        total = whole_product(a, a_zero, b, b_zero)
    rows = a_scale.reshape(-1, 1) if a_scale.ndim == 1 and a_scale.shape[0] > 1 else a_scale
    factor = (rows * b_scale / y_scale).cast(dt.float32)
    return _requantized(total, factor, y_zero, node.element(7))


@operator("QLinearConv")
def qlinear_conv(
    x: Tensor, x_scale: Tensor, x_zero: Value, w: Tensor, w_scale: Tensor, w_zero: Value,
    y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    pads: list[int] | None = None, strides: list[int] | None = None, node: NodeView,
) -> Tensor:  # fmt: skip
    total = integer_conv(
        x, x_zero, w, w_zero, node, auto_pad=auto_pad, dilations=dilations, group=group,
        pads=pads, strides=strides,
    )  # fmt: skip
    total = total if bias is None else total + bias.reshape(-1, *[1] * (x.ndim - 2))
    factor = x_scale * w_scale / y_scale
    factor = factor.reshape(1, -1, *[1] * (x.ndim - 2)) if factor.ndim else factor
    return _requantized(total, factor, y_zero, node.element(7))
