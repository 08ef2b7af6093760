"""Products of matrices, and linear algebra."""

from __future__ import annotations

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators import integer
from svod.frontend.onnx.registry import Tensor, operator


@operator("MatMul")
def matmul(a: Tensor, b: Tensor, *, node: NodeView) -> Tensor:
    found = integer.real_product(node, a, b)
    return a @ b if found is None else found


@operator("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0, broadcast: int = 0, node: NodeView | None = None,
) -> Tensor:  # fmt: skip
    whole = None
    if node is not None and not transA:
        whole = integer.real_product(node, a, b, bool(transB))
    a = a.transpose(0, 1) if transA else a
    b = b.transpose(0, 1) if transB else b
    found = a @ b if whole is None else whole
    if alpha != 1.0:
        found = (found * alpha).cast(a.dtype)
    if c is None or beta == 0.0:
        return found
    return found + (c if beta == 1.0 else (c * beta).cast(a.dtype))


@operator("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    return svod.einsum(equation.replace(" ", ""), *xs)


@operator("Det")
def det(x: Tensor) -> Tensor:
    return svod.linalg.det(x)


def _shifted(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Whole numbers less their zero point, in int32."""
    x = x.cast(dt.int32)
    if zero is None:
        return x
    zero = zero.cast(dt.int32)
    if axis is not None and zero.ndim == 1 and x.ndim > 1:
        zero = zero.reshape(*[-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return x - zero


@operator("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None, *,
    node: NodeView,
) -> Tensor:  # fmt: skip
    return whole_product(a, a_zero, b, b_zero)


def whole_product(a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """The product of whole numbers less their zero points, in int32."""
    found = integer.product(a, a_zero, b, b_zero)
    return _shifted(a, a_zero, -2) @ _shifted(b, b_zero, -1) if found is None else found
