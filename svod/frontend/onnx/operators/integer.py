"""Products of 8-bit numbers as products of whole numbers.

The zero points are taken out of the product: (a - p)(b - q) is ab less p times the sums of b's
columns, less q times the sums of a's rows, and pq for each term. What is left is a product of
bytes, for which processors have instructions, and the sums of weights are constants. Sums wrap in
32 bits as the definition's do.

A tensor that DequantizeLinear made is remembered with what it was made of. A product of two such
tensors is the product of their whole numbers times both scales: the sum has no rounding, so the
result is nearer to the exact one than a sum of floats.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Tensor, Value
from svod.ir.node import largest

BYTES = (dt.int8, dt.uint8)
TERMS = (1 << 31) // (255 * 255)  # so many products of bytes cannot exceed 32 bits


class Quantized(NamedTuple):
    """What a dequantised tensor was made of."""

    real: Tensor  # kept, so that no other tensor gets its identity
    whole: Tensor
    scale: Tensor
    zero: Value  # an array where it is known, or None
    axis: int | None  # along which scales differ


def remember(node: NodeView, real: Tensor, whole: Tensor, axis: int, block: int) -> None:
    """Note how a tensor was dequantised, where a product may use it."""
    scale, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if whole.dtype not in BYTES or real.dtype is not dt.float32 or block:
        return
    if node.kind(0) is not None or not (zero is None or isinstance(zero, np.ndarray)):
        return
    is_one = prod(scale.shape) == 1
    if not is_one and len(scale.shape) != 1:
        return
    found = Quantized(
        real, whole, node.tensor(scale), zero, None if is_one else axis % whole.ndim
    )  # fmt: skip
    node.importer.quantized[id(real)] = found


def operands(
    node: NodeView, a: Tensor, b: Tensor, terms: Any
) -> tuple[Quantized, Quantized] | None:
    """What both operands of a product were made of; None where it is no product of bytes."""
    known = node.importer.quantized
    first, second = known.get(id(a)), known.get(id(b))
    if first is None or second is None or first.axis is not None or largest(terms) > TERMS:
        return None
    return first, second


def is_zero(point: Value) -> bool:
    return point is None or (isinstance(point, np.ndarray) and not point.any())


def _placed(zero: Tensor, x: Tensor, axis: int) -> Tensor | None:
    """A zero point in the shape of what it applies to; None for shapes that are not usual."""
    zero = zero.cast(dt.int32)
    if zero.ndim == 0 or (zero.ndim == 1 and zero.shape[0] == 1):
        return zero.reshape(())
    if zero.ndim != 1:
        return None
    return zero.reshape(-1, 1) if axis == -2 else zero.reshape(1, -1)


def product(a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor | None:
    """The product of matrices of bytes less their zero points, in int32."""
    if a.dtype not in BYTES or b.dtype not in BYTES or a.ndim < 2 or b.ndim < 2:
        return None
    p = None if a_zero is None else _placed(a_zero, a, -2)
    q = None if b_zero is None else _placed(b_zero, b, -1)
    if (a_zero is not None and p is None) or (b_zero is not None and q is None):
        return None
    left, right = a.cast(dt.int32), b.cast(dt.int32)
    total = left @ right
    if p is not None:
        total = total - p * right.sum(-2, keepdim=True, dtype=dt.int32)
    if q is not None:
        rows = left.sum(-1, keepdim=True, dtype=dt.int32)
        total = total - q * (rows if p is None else rows - p * a.shape[-1])
    return total


def real_product(node: NodeView, a: Tensor, b: Tensor, is_turned: bool = False) -> Tensor | None:
    """The product of two dequantised matrices, the second one turned where the flag is set."""
    found = operands(node, a, b, a.shape[-1])
    if found is None:
        return None
    first, second = found
    whole = second.whole.transpose(0, 1) if is_turned else second.whole
    columns = 0 if is_turned else whole.ndim - 1
    if second.axis not in (None, columns) or (second.axis is not None and whole.ndim != 2):
        return None
    zeros = [None if is_zero(z) else node.tensor(z) for z in (first.zero, second.zero)]
    total = product(first.whole, zeros[0], whole, zeros[1])
    if total is None:
        return None
    scale = second.scale.reshape(()) if second.axis is None else second.scale
    return total.cast(dt.float32) * (first.scale.reshape(()) * scale)
