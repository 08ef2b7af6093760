"""``svod.linalg``: the linear algebra extension of the array API standard.

Products, norms and traces are graphs like any other; factorisations are in ``factorizations.py``,
what torch has beyond the standard in ``matrices.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.ir import build as B
from svod.tensor.autograd import custom_gradient
from svod.tensor.complex import squares
from svod.tensor.core import Axis, axes_of, axis_of, pair, spelled, tensor_of, wrap
from svod.tensor.elementwise import select
from svod.tensor.factorizations import (
    at_least_matrix,
    cholesky,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    matrices,
    matrix_exp,
    qr,
    slogdet,
    solve,
    square_shape,
    svd,
    svdvals,
)
from svod.tensor.guard import guard
from svod.tensor.householder import householder_product
from svod.tensor.lu import (
    cholesky_ex,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    solve_ex,
)
from svod.tensor.matrices import (
    check_order,
    cond,
    lstsq,
    multi_dot,
    norm,
    solve_triangular,
    tensorinv,
    tensorsolve,
    vander,
)
from svod.tensor.tensor import Tensor

__all__ = [
    "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace",
    "vander", "vecdot", "vector_norm",
]  # fmt: skip


# -- what singular values say ----------------------------------------------------------------------


def pinv(x: Tensor, /, *, rtol: Any = None, atol: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse; singular values below rtol times the largest, or atol, count as zero.

    With ``hermitian`` the lower triangle says what the matrix is.
    """
    matrix = matrices(x, "pinv")
    if 0 in x.shape[-2:]:
        shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
        return wrap(B.full(shape, 0, matrix.dtype), x._device)
    return _pinv(matrix, *_limits(matrix, rtol, atol), hermitian)  # type: ignore[no-any-return]


@custom_gradient
def _pinv(x: Tensor, share: float | Tensor, least: float | Tensor, hermitian: bool) -> Tensor:
    left, values, right = svd(_mirrored(x, hermitian), full_matrices=False)
    counts = values > (values.amax(-1, True) * share).maximum(least)
    scale = select(counts, 1.0 / select(counts, values, 1.0), 0.0)
    return (right.mH * scale.unsqueeze(-2)) @ left.mH


@_pinv.backward
def _(grad: Tensor, output: Tensor, x: Tensor, *options: Any) -> tuple[Tensor | None, ...]:
    """Golub and Pereyra: it needs no singular vectors, so equal singular values do no harm."""
    turned, change = output.mH, grad.mH
    inner = output @ change @ output
    outside = change - x @ (output @ change)
    across = change - (change @ output) @ x
    return outside @ output @ turned + turned @ (output @ across) - inner.mH, None, None


def matrix_rank(
    x: Tensor, /, *, rtol: Any = None, atol: Any = None, hermitian: bool = False
) -> Tensor:
    """How many singular values are above rtol times the largest, and above atol."""
    matrix = _mirrored(matrices(x, "matrix_rank"), hermitian)
    values = svdvals(matrix)
    if 0 in x.shape[-2:]:
        return wrap(B.full(x.shape[:-2], 0, dt.int64), x._device)
    share, least = _limits(matrix, rtol, atol)
    return (values > (values.amax(-1, True) * share).maximum(least)).sum(-1)


def _mirrored(x: Tensor, hermitian: bool) -> Tensor:
    """The matrices; Hermitian ones by their lower triangle."""
    if not hermitian:
        return x
    lower = x.tril(-1)
    return lower + lower.mH + x.real.tril().triu()


def _limits(x: Tensor, rtol: Any, atol: Any) -> tuple[Any, Any]:
    """Which share of the largest singular value, and which size, counts as zero: a number, or one
    per matrix. A size that is given stands alone."""
    share = max(x.shape[-2:]) * finfo(dt.FLOATS_OF.get(x.dtype, x.dtype)).eps
    if rtol is not None:
        share = rtol if isinstance(rtol, (int, float)) else tensor_of(rtol, x).unsqueeze(-1)
    least: Any = 0.0
    if atol is not None:
        least = atol if isinstance(atol, (int, float)) else tensor_of(atol, x).unsqueeze(-1)
        if rtol is None:
            share = select(least > 0, 0.0, share) if isinstance(least, Tensor) else (
                0.0 if least > 0 else share
            )  # fmt: skip
    return share, least


# -- products ----------------------------------------------------------------------------------


@spelled
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast."""
    return tensor_of(x1) @ x2


@spelled
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


@spelled
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors."""
    return x1.outer(x2)


@spelled
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over pairs of axes: a count, or two lists of axes."""
    return x1.tensordot(x2, axes)


@spelled
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products over one axis, which counts from the back."""
    return x1.vecdot(x2, axis)


@spelled
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements; the other axes broadcast."""
    a, b, device = pair(x1, x2)
    for t in (x1, x2):
        if not t.ndim or t.shape[axis_of(axis, t.ndim)] != 3:
            raise ShapeError(f"cross needs 3 elements on axis {axis}: {x1.shape}, {x2.shape}")
    shape = B.broadcast_shapes(a.shape, b.shape)
    place = axis_of(axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim) if axis < 0 else axis
    left, right = wrap(a, device).expand(shape), wrap(b, device).expand(shape)
    return left.cross(right, place)


@spelled
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A square matrix multiplied with itself n times; a negative n takes the inverse."""
    if n < 0:
        return inv(x).matrix_power(-n)
    return square_shape(x, "matrix_power").matrix_power(n)


def diagonal(x: Tensor, /, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two axes, the last ones unless told otherwise."""
    return at_least_matrix(x, "diagonal").diagonal(offset, dim1, dim2)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonal of the last two axes."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


# -- norms -------------------------------------------------------------------------------------


@spelled
def vector_norm(
    x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of the elements over axes, as of one vector."""
    check_order(ord, "vector_norm")
    found = x.norm(ord, axes_of(axis, x.ndim), True)
    if keepdims:
        return found
    axes = axes_of(axis, x.ndim)
    return found.reshape([n for i, n in enumerate(x.shape) if i not in axes])


@spelled
def matrix_norm(
    x: Tensor,
    /,
    ord: float | str | None = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdims: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices, which two axes hold: "fro", "nuc", 1, 2, inf or their negatives."""
    if tuple(dim) != (-2, -1) or dtype is not None:
        axes = axes_of(dim, x.ndim)
        if len(axes) != 2:
            raise ShapeError(f"matrix_norm: a matrix has two axes, not {dim}")
        turned = (x if dtype is None else x.cast(dtype)).movedim(axes, (-2, -1))
        found = matrix_norm(turned, ord, keepdims=keepdims)
        return found.movedim((-2, -1), axes) if keepdims else found
    matrix = matrices(x, "matrix_norm")
    check_order(ord, "matrix_norm")
    if 0 in matrix.shape[-2:]:
        found = matrix.real.sum((-2, -1))  # zeros: the norm of no elements
    elif ord in ("fro", None):
        found = squares(matrix).sum((-2, -1)).sqrt()
    elif ord in ("nuc", 2, -2):
        values = svdvals(matrix)
        fold: dict[Any, Callable[..., Tensor]] = {
            "nuc": values.sum, 2: values.amax, -2: values.amin,
        }  # fmt: skip
        found = fold[ord](-1)
    elif ord in (1, -1, inf, -inf):
        assert isinstance(ord, (int, float))
        sums = matrix.abs().sum(-2 if abs(ord) == 1 else -1)
        found = sums.amax(-1) if ord > 0 else sums.amin(-1)
    else:
        raise ShapeError(f"matrix_norm: ord is 'fro', 'nuc', 1, 2, inf or -1, -2, -inf, not {ord}")
    return found.unsqueeze((-2, -1)) if keepdims else found


guard(globals(), __all__)
