"""``svod.linalg``: the linear algebra extension of the array API standard.

Products and traces are here; norms, factorisations and solutions have files of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import axis_of, pair, spelled, tensor_of, wrap
from svod.tensor.linalg.factorizations import (
    at_least_matrix,
    cholesky,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    matrix_exp,
    qr,
    slogdet,
    solve,
    square_shape,
    svd,
    svdvals,
)
from svod.tensor.linalg.householder import householder_product
from svod.tensor.linalg.linear_equations import (
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from svod.tensor.linalg.lu import (
    cholesky_ex,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    solve_ex,
)
from svod.tensor.linalg.matrix_chain import multi_dot
from svod.tensor.linalg.norms import cond, matrix_norm, norm, vector_norm
from svod.tensor.linalg.pseudo_inverse import lstsq, matrix_rank, pinv
from svod.tensor.ops.joining import concatenate

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

__all__ = [
    "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor",
    "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace",
    "vander", "vecdot", "vector_norm",
]  # fmt: skip


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


@spelled
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 .. N - 1 of each element along a new last axis."""
    count = x.shape[-1] if N is None and x.ndim else N
    if count is None or count < 2:
        raise ShapeError(f"vander: N is above 1, not {count}, for shape {x.shape}")
    whole = x.cast(dt.int64) if x.dtype.kind == "b" else x
    whole = whole if x.ndim else whole.unsqueeze(0)
    first = whole.ones_like().unsqueeze(-1)
    rest = whole.unsqueeze(-1).expand(*whole.shape, count - 1)
    return concatenate([first, rest], -1).cumprod(-1)


guard(globals(), __all__)
