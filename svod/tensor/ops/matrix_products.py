"""Products of matrices: one multiplication under a sum, so they fuse with what is around them.

``matmul`` spreads both operands to (batch.., rows, columns, inner) with reshape and expand and
reduces the last axis. 16-bit and narrower floats are multiplied and added in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic
from svod.ir.pairs import joined, parts
from svod.tensor.core.slicing import transpose
from svod.tensor.core.tensor_core import (
    Core,
    accumulator,
    axes_of,
    axis_of,
    integer,
    nodes_of,
    pair,
    wrap,
)
from svod.tensor.ops.creation import eye
from svod.tensor.ops.elementwise import widened
from svod.tensor.ops.reductions import fold, total

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def multiply_sum(a: UOp, b: UOp, axes: tuple[int, ...], dtype: Any = None) -> UOp:
    """The sum of a * b over axes, kept in float32 for narrow floats.

    A wider ``dtype`` is what values are multiplied and added in, not only that of the result.
    """
    kind = promote(a.dtype, b.dtype)
    target = kind if dtype is None else dtype_of(dtype)
    if kind is dt.bool_ and target is dt.bool_:
        return fold(B.binary(O.AND, a, b), O.OR, axes, False)
    wide = accumulator(promote(kind, target))
    if wide.kind == "c":
        return B.cast(_complex_sum(B.cast(a, wide), B.cast(b, wide), axes), target)
    product = B.binary(O.MUL, B.cast(a, wide), B.cast(b, wide))
    return B.cast(fold(product, O.ADD, axes, False), target)


def _complex_sum(a: UOp, b: UOp, axes: tuple[int, ...]) -> UOp:
    """Four sums of real products, each of them a contraction."""
    (p, q), (r, s) = parts(a), parts(b)
    re = B.binary(O.SUB, multiply_sum(p, r, axes), multiply_sum(q, s, axes))
    im = B.binary(O.ADD, multiply_sum(p, s, axes), multiply_sum(q, r, axes))
    return joined(re, im)


def matmul(a: UOp, b: UOp, dtype: Any = None) -> UOp:
    """The matrix product over the last two axes, as in NumPy."""
    left, right = a.shape, b.shape
    if not left or not right:
        raise ShapeError(f"matmul needs at least 1 axis on each side: {left} and {right}")
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner and is_symbolic((left[-1], inner)):
        a = B.at_values(a, (*left[:-1], inner))
        left = a.shape
    if left[-1] != inner:
        raise ShapeError(f"matmul of {left} and {right}: inner sizes {left[-1]} and {inner} differ")
    columns = right[-1] if len(right) > 1 else 1
    b = transpose(b, -1, -2) if len(right) > 1 else B.reshape(b, (1, inner))
    rows = left[-2] if len(left) > 1 else 1
    lead_a, lead_b = left[:-2], right[:-2]
    lead = lead_a if lead_a == lead_b else B.broadcast_shapes(lead_a, lead_b)
    full = (*lead, rows, columns, inner)
    a = B.broadcast_to(B.reshape(a, (*lead_a, rows, 1, inner)), full)
    b = B.broadcast_to(B.reshape(b, (*lead_b, 1, columns, inner)), full)
    found = multiply_sum(a, b, (len(full) - 1,), dtype)
    shape = lead + ((rows,) if len(left) > 1 else ()) + ((columns,) if len(right) > 1 else ())
    return B.reshape(found, shape)


class Linear(Core):
    """matmul, linear, outer products and relatives."""

    __slots__ = ()

    def matmul(self: Tensor, other: Tensor, *, dtype: Any = None) -> Tensor:
        """The matrix product over the last two axes; leading axes broadcast.

        ``dtype`` is that of the result. Where it is wider than the operands, the sum is kept in
        it: ``a.matmul(b, dtype=svod.int32)`` of int8 does not wrap at 8 bits.
        """
        x, y, device = pair(self, other)
        return wrap(matmul(x, y, dtype), device)

    def __matmul__(self: Tensor, other: Tensor) -> Tensor:
        x, y, device = pair(self, other)
        return wrap(matmul(x, y), device)

    def __rmatmul__(self: Tensor, other: Any) -> Tensor:
        x, y, device = pair(self, other)
        return wrap(matmul(y, x), device)

    def dot(self: Tensor, other: Tensor) -> Tensor:
        """The matrix product; of two vectors, their inner product."""
        return self @ other

    def mm(self: Tensor, other: Tensor) -> Tensor:
        """The product of two matrices."""
        _require_axes("mm", 2, self, other)
        return self @ other

    def bmm(self: Tensor, other: Tensor) -> Tensor:
        """The products of two batches of matrices."""
        _require_axes("bmm", 3, self, other)
        return self @ other

    def mv(self: Tensor, vector: Tensor) -> Tensor:
        """A matrix times a vector."""
        _require_axes("mv", 2, self)
        _require_axes("mv", 1, vector)
        return self @ vector

    def addmm(self: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta * self + alpha * (a @ b)."""
        return _scaled_sum(self, a.mm(b), beta, alpha)

    def addmv(
        self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        """beta * self + alpha * (mat @ vec)."""
        return _scaled_sum(self, mat.mv(vec), beta, alpha)

    def addr(
        self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        """beta * self + alpha * all products of two vectors."""
        products = vec1.outer(vec2)
        if products.dtype.kind in "biu" and (type(beta) is float or type(alpha) is float):
            raise DTypeError(f"addr of {products.dtype.name}: beta and alpha are whole numbers")
        return _scaled_sum(self, products, beta, alpha)

    def baddbmm(
        self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        """beta * self + alpha * the products of two batches of matrices."""
        return _scaled_sum(self, batch1.bmm(batch2), beta, alpha)

    def addbmm(
        self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        """beta * self + alpha * the sum of the products of two batches of matrices."""
        products = batch1.bmm(batch2)
        return _scaled_sum(self, products.sum(0, dtype=products.dtype), beta, alpha)

    def vdot(self: Tensor, other: Tensor) -> Tensor:
        """The inner product of two vectors."""
        _require_axes("vdot", 1, self, other)
        return self @ other

    def linear(self: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weight.T + bias, with the weight as torch keeps it: (outputs, inputs)."""
        x, w, device = pair(self, weight)
        if len(w.shape) not in (1, 2):
            raise ShapeError(f"linear needs a weight of 1 or 2 axes, not {w.shape}")
        found = wrap(matmul(x, transpose(w, 0, 1) if len(w.shape) == 2 else w), device)
        return found if bias is None else found + bias

    def outer(self: Tensor, other: Tensor) -> Tensor:
        """All products of two vectors, as a matrix."""
        _require_axes("outer", 1, self, other)
        return self.unsqueeze(1) * other.unsqueeze(0)

    def inner(self: Tensor, other: Tensor) -> Tensor:
        """The sum of products over the last axis of both."""
        if not self.ndim or not other.ndim:
            return self * other
        return self.tensordot(other, ((-1,), (-1,)))

    def vecdot(self: Tensor, other: Tensor, dim: int = -1) -> Tensor:
        """The sum of products over one axis, which counts from the back."""
        x, y, device = pair(self, other)
        axis = axis_of(dim, min(len(x.shape), len(y.shape))) - min(len(x.shape), len(y.shape))
        if not x.shape or not y.shape:
            raise ShapeError(f"vecdot needs at least 1 axis: {x.shape} and {y.shape}")
        shape = B.broadcast_shapes(x.shape, y.shape)
        if x.shape[axis] != y.shape[axis]:
            raise ShapeError(f"vecdot of {x.shape} and {y.shape}: axis {dim} differs")
        a, b = B.broadcast_to(x, shape), B.broadcast_to(y, shape)
        return wrap(multiply_sum(a, b, (len(shape) + axis,)), device)

    def tensordot(self: Tensor, other: Tensor, dims: Any = 2) -> Tensor:
        """The sum of products over pairs of axes: a count, or two lists of axes."""
        x, y, device = pair(self, other)
        if hasattr(dims, "__index__"):
            count = integer(dims, "dims")
            if not 0 <= count <= min(len(x.shape), len(y.shape)):
                raise ShapeError(f"tensordot of {x.shape} and {y.shape} over {count} axes")
            mine = tuple(range(len(x.shape) - count, len(x.shape)))
            theirs = tuple(range(count))
        elif not isinstance(dims, (list, tuple)) or len(dims) != 2:
            raise ShapeError(f"tensordot: dims is a count or two lists of axes, not {dims!r}")
        else:
            mine, theirs = axes_of(dims[0], len(x.shape)), axes_of(dims[1], len(y.shape))
        for a, b in zip(mine, theirs, strict=False):  # axes of size 1 are summed first, as in torch
            if x.shape[a] == 1 != y.shape[b]:
                y = total(y, (b,), True, y.dtype)
            elif y.shape[b] == 1 != x.shape[a]:
                x = total(x, (a,), True, x.dtype)
        sizes = [x.shape[a] for a in mine]
        if sizes != [y.shape[a] for a in theirs]:
            raise ShapeError(f"tensordot of {x.shape} and {y.shape} over {mine} and {theirs}")
        rest_x = [a for a in range(len(x.shape)) if a not in mine]
        rest_y = [a for a in range(len(y.shape)) if a not in theirs]
        lead = tuple([x.shape[a] for a in rest_x])
        tail = tuple([y.shape[a] for a in rest_y])
        inner = prod(sizes)
        a = B.reshape(B.permute(x, (*rest_x, *mine)), (prod(lead), inner))
        b = B.reshape(B.permute(y, (*theirs, *rest_y)), (inner, prod(tail)))
        return wrap(B.reshape(matmul(a, b), lead + tail), device)

    def kron(self: Tensor, other: Tensor) -> Tensor:
        """The Kronecker product."""
        rank = max(self.ndim, other.ndim)
        a = (1,) * (rank - self.ndim) + self.shape
        b = (1,) * (rank - other.ndim) + other.shape
        left = self.reshape([m for n in a for m in (n, 1)])
        right = other.reshape([m for n in b for m in (1, n)])
        return (left * right).reshape([m * n for m, n in zip(a, b, strict=True)])

    def cross(self: Tensor, other: Tensor, dim: int = -1) -> Tensor:
        """The cross product of vectors of three elements."""
        sizes = [t.shape[axis_of(dim, t.ndim)] if t.ndim else 0 for t in (self, other)]
        if sizes != [3, 3]:
            raise ShapeError(f"cross needs 3 elements on axis {dim}: {self.shape}, {other.shape}")
        a = self.roll(-1, dim) * other.roll(1, dim)
        return a - self.roll(1, dim) * other.roll(-1, dim)

    def trace(self: Tensor, offset: int = 0) -> Tensor:
        """The sum of the diagonal of the last two axes."""
        return self.diagonal(offset, -2, -1).sum(-1)

    def matrix_power(self: Tensor, n: int) -> Tensor:
        """A square matrix multiplied with itself n times."""
        if self.ndim < 2 or self.shape[-1] != self.shape[-2] or n < 0:
            raise ShapeError(f"matrix_power({n}) of shape {self.shape}")
        result = eye(self.shape[-1], dtype=self.dtype).expand(self.shape)
        square = self
        while n:
            result = result @ square if n & 1 else result
            square = square @ square if n > 1 else square
            n >>= 1
        return result


def _scaled_sum(x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * x + alpha * product; with a beta of 0, x is not looked at.

    Integers take the whole part of the factors, as in torch.
    """
    if product.dtype.kind in "iu" and x.dtype.kind in "iu":
        alpha, beta = int(alpha), int(beta)
    if product.dtype.kind == "b" and x.dtype.kind == "b":
        alpha, beta = bool(alpha), bool(beta)
    kind = promote(x.dtype, product.dtype)
    wide = wrap(_not_rounded(product.uop), product._device)
    scaled = wide if alpha == 1 else wide * alpha
    if beta == 0:
        return scaled.cast(product.dtype)
    start = widened(x.expand(product.shape))
    return (scaled + (start if beta == 1 else start * beta)).cast(kind)


def _not_rounded(product: UOp) -> UOp:
    """The float32 sums that a product of narrow floats was rounded from."""
    if product.op == O.RESHAPE:
        return B.reshape(_not_rounded(product.src[0]), product.shape)
    is_rounded = product.op == O.CAST and product.dtype.kind == "f" and product.dtype.bits < 32
    return product.src[0] if is_rounded else product


def _require_axes(what: str, count: int, *tensors: Tensor) -> None:
    for t in tensors:
        if t.ndim != count:
            raise ShapeError(f"{what} needs {count} axes, not shape {t.shape}")


# -- einsum ------------------------------------------------------------------------------------


def einsum(formula: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """The sum of products that the formula names: ``einsum("bij,bjk->bik", a, b)``."""
    if len(operands) == 1 and not isinstance(operands[0], Core):
        operands = tuple(operands[0])
    nodes, device = nodes_of(operands)  # type: ignore[arg-type]
    terms, output = _parse(formula, nodes)
    found = [_take_diagonals(n, t) for n, t in zip(nodes, terms, strict=True)]
    node, letters = found[0]
    for i, (other, more) in enumerate(found[1:], 1):
        needed = set(output).union(*[t for _, t in found[i + 1 :]])
        node, letters = _contract(node, letters, other, more, needed)
    summed = tuple([i for i, c in enumerate(letters) if c not in output])
    if summed:
        wide = accumulator(node.dtype)
        node = B.cast(fold(B.cast(node, wide), O.ADD, summed, False), node.dtype)
        letters = [c for c in letters if c in output]
    return wrap(B.permute(node, tuple([letters.index(c) for c in output])), device)


def _parse(formula: str, nodes: list[UOp]) -> tuple[list[list[str]], list[str]]:
    text = formula.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(nodes):
        raise ShapeError(f"einsum {formula!r} names {len(terms)} operands, got {len(nodes)}")
    dots = max(
        [len(n.shape) - len(t.replace("...", "")) for n, t in zip(nodes, terms, strict=True)
         if "..." in t], default=0,
    )  # fmt: skip
    spare = [f".{i}" for i in range(dots)]
    expanded = []
    for node, term in zip(nodes, terms, strict=True):
        before, has_dots, after = term.partition("...")
        count = len(node.shape) - len(before) - len(after)
        if (
            count < 0
            or (count and not has_dots)
            or not (before + after).isalpha() * 1 + (not before + after)
        ):
            raise ShapeError(f"einsum term {term!r} of {formula!r} does not fit {node.shape}")
        expanded.append([*before, *spare[dots - count :], *after])
    if arrow:
        before, has_dots, after = output.partition("...")
        wanted = [*before, *(spare if has_dots else []), *after]
    else:
        every = [c for t in expanded for c in t if c[0] != "."]
        wanted = spare + sorted({c for c in every if every.count(c) == 1})
    known = {c for t in expanded for c in t}
    if len(set(wanted)) != len(wanted) or not known.issuperset(wanted):
        raise ShapeError(f"einsum {formula!r}: the output repeats or invents a letter")
    return expanded, wanted


def _take_diagonals(node: UOp, letters: list[str]) -> tuple[UOp, list[str]]:
    """A letter that appears twice in a term stands for a diagonal."""
    letters = list(letters)
    for letter in sorted({c for c in letters if letters.count(c) > 1}):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            node = wrap(node, None).diagonal(0, first, second).uop
            letters = [c for i, c in enumerate(letters) if i not in (first, second)] + [letter]
    return node, letters


def _contract(
    a: UOp, left: list[str], b: UOp, right: list[str], needed: set[str]
) -> tuple[UOp, list[str]]:
    """Two operands multiplied; letters nobody needs any more are summed, as the last axes."""
    every = left + [c for c in right if c not in left]
    order = [c for c in every if c in needed] + [c for c in every if c not in needed]
    x, y = _arrange(a, left, order), _arrange(b, right, order)
    try:
        shape = B.broadcast_shapes(x.shape, y.shape)
    except ShapeError as error:
        raise ShapeError(f"einsum: {error}") from None
    keep = [c for c in order if c in needed]
    axes = tuple(range(len(keep), len(order)))
    found = multiply_sum(B.broadcast_to(x, shape), B.broadcast_to(y, shape), axes)
    return found, keep


def _arrange(x: UOp, letters: list[str], order: list[str]) -> UOp:
    present = [c for c in order if c in letters]
    x = B.permute(x, tuple([letters.index(c) for c in present]))
    sizes = dict(zip(present, x.shape, strict=True))
    return B.reshape(x, tuple([sizes.get(c, 1) for c in order]))
