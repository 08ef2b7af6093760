"""Matrix functions under torch's names: methods of Tensor, and what torch.linalg has beyond the
array API standard. The factorisations themselves are in ``linalg.py``, which is loaded when one of
these is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.tensor.autograd import custom_gradient
from svod.tensor.complex import squares
from svod.tensor.core import Axis, Core, axes_of, nodes_of, spelled
from svod.tensor.creation import eye
from svod.tensor.elementwise import select
from svod.tensor.joining import concatenate

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class LstsqResult(NamedTuple):
    """What least squares finds; ``residuals`` are sums of squares over each column."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _linalg() -> Any:  # the module, which imports this one
    from svod.tensor import linalg

    return linalg


class Matrices(Core):
    """det, inverse, cholesky, qr, svd, matrix_exp and relatives."""

    __slots__ = ()

    def det(self: Tensor) -> Tensor:
        """The determinant of square matrices."""
        return _linalg().det(self)

    def slogdet(self: Tensor) -> Any:
        """The sign of the determinant and the logarithm of its size."""
        return _linalg().slogdet(self)

    def logdet(self: Tensor) -> Tensor:
        """The logarithm of the determinant; NaN where that is negative."""
        sign, size = _linalg().slogdet(self)
        return select(sign < 0, float("nan"), size)

    def inverse(self: Tensor) -> Tensor:
        """The inverse of square matrices."""
        return _linalg().inv(self)

    def pinverse(self: Tensor, rcond: float = 1e-15) -> Tensor:
        """The pseudo-inverse; singular values below rcond times the largest count as zero."""
        return _linalg().pinv(self, rtol=rcond)

    def cholesky(self: Tensor, upper: bool = False) -> Tensor:
        """The triangular L with L @ L.mH = self; with ``upper`` its conjugate transpose."""
        return _linalg().cholesky(self, upper=upper)

    def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
        """The x with A @ x = self, where ``input2`` is the Cholesky factor of A."""
        factor = _triangle(input2, upper)
        lower = factor.mH if upper else factor
        return _linalg().solve(lower.mH, _linalg().solve(lower, self))  # type: ignore[no-any-return]

    def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
        """The inverse of the matrix whose Cholesky factor this is."""
        if self.ndim < 2:
            raise ShapeError(f"cholesky_inverse needs at least 2 axes, not shape {self.shape}")
        unit = eye(self.shape[-1], dtype=self.dtype).expand(self.shape)
        return unit.cholesky_solve(self, upper)

    def qr(self: Tensor, some: bool = True) -> Any:
        """Q and R with Q @ R = self; with ``some=False`` Q is square."""
        return _linalg().qr(self, mode="reduced" if some else "complete")

    def svd(self: Tensor, some: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """U, S and V (not transposed) with self = U @ diag(S) @ V.mH."""
        left, values, right = _linalg().svd(self, full_matrices=not some)
        return left, values, right.mH

    def matrix_exp(self: Tensor) -> Tensor:
        """The exponential of square matrices."""
        return _linalg().matrix_exp(self)


@custom_gradient
def _triangle(x: Tensor, upper: bool) -> Tensor:
    return x.triu() if upper else x.tril()


@_triangle.backward
def _(grad: Tensor, output: Tensor, x: Tensor, upper: bool) -> Tensor:
    return grad  # as in torch: that of all elements, as if the other triangle were read too


@spelled
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The X with A @ X = B, or X @ A = B; one triangle of A is read."""
    if not left:
        turned = solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular)
        return turned.mT
    triangle = A.triu() if upper else A.tril()
    if unitriangular:
        unit = eye(A.shape[-1], dtype=A.dtype)
        triangle = triangle * (1 - unit) + unit
    return _linalg().solve(triangle, B)


class TriangularSolution(NamedTuple):
    """The solution, and the matrix it was found with."""

    solution: Tensor
    cloned_coefficient: Tensor


def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolution:
    """The X with A @ X = b, or A.mT @ X = b, under torch's older name."""
    turned = A.mT if transpose else A
    found = solve_triangular(turned, b, upper=upper != transpose, unitriangular=unitriangular)
    return TriangularSolution(found, A.clone())


@spelled
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of ``tensordot(A, ., ind)``: the first ``ind`` axes are the rows of a matrix."""
    rows, columns = A.shape[:ind], A.shape[ind:]
    if ind < 1 or prod(rows) != prod(columns):
        raise ShapeError(f"tensorinv: {rows} and {columns} have not as many elements")
    return _linalg().inv(A.reshape(prod(rows), -1)).reshape(*columns, *rows)


@spelled
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The X with ``tensordot(A, X, X.ndim) = B``; A's axes ``dims`` move to the end first."""
    turned = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    shape = turned.shape[B.ndim :]
    if B.numel() != prod(shape):
        raise ShapeError(f"tensorsolve: {turned.shape} and {B.shape} do not fit together")
    return _linalg().solve(turned.reshape(B.numel(), -1), B.ravel()).reshape(shape)


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


@spelled
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that takes the fewest steps."""
    given = list(tensors)
    if len(given) < 2:
        raise ShapeError(f"multi_dot needs at least 2 tensors, got {len(given)}")
    nodes_of(given)
    parts = list(given)
    if parts[0].ndim == 1:
        parts[0] = parts[0].unsqueeze(0)
    if parts[-1].ndim == 1:
        parts[-1] = parts[-1].unsqueeze(1)
    for part in parts:
        if part.ndim != 2:
            raise ShapeError(f"multi_dot takes matrices, not shape {part.shape}")
    sizes = [parts[0].shape[0], *[p.shape[1] for p in parts]]
    found = _chain(parts, _best_cuts(sizes), 0, len(parts))
    if given[0].ndim == 1:
        found = found.squeeze(0)
    return found.squeeze(-1) if given[-1].ndim == 1 else found


def _best_cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of factors so that all products together are cheapest."""
    count = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            steps = [
                (cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j], k)
                for k in range(i + 1, j)
            ]
            cost[i, j], cuts[i, j] = min(steps)
    return cuts


def _chain(parts: Sequence[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if j - i == 1:
        return parts[i]
    k = cuts[i, j]
    return _chain(parts, cuts, i, k) @ _chain(parts, cuts, k, j)


def check_order(order: Any, what: str) -> None:
    """Refuse what cannot be the order of a norm."""
    if order is not None and not isinstance(order, (int, float, str)):
        raise DTypeError(f"{what}: the order is a number or a name, not {order!r:.60}")


@spelled
def norm(A: Tensor, ord: Any = None, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The norm of a vector or of matrices, as np.linalg.norm chooses between the two."""
    check_order(ord, "norm")
    if dim is None and (ord is None or A.ndim == 1):
        return _linalg().vector_norm(A, ord=2 if ord is None else ord, keepdims=keepdim)
    if dim is None and A.ndim != 2:
        raise ShapeError(f"norm: with ord and no dim, a vector or a matrix, not shape {A.shape}")
    axes = axes_of(dim, A.ndim)
    if len(axes) == 1 or ord is None:
        order = 2 if ord is None else ord
        return _linalg().vector_norm(A, axis=axes, ord=order, keepdims=keepdim)
    if len(axes) != 2:
        raise ShapeError(f"norm: dim names 1 or 2 axes, not {dim}")
    found = _linalg().matrix_norm(A.movedim(axes, (-2, -1)), ord=ord)
    if not keepdim:
        return found
    for axis in sorted(axes):
        found = found.unsqueeze(axis)
    return found


@spelled
def cond(A: Tensor, p: Any = None) -> Tensor:
    """How much the matrix can magnify relative errors: norm(A) * norm(inv(A))."""
    linalg = _linalg()
    check_order(p, "cond")
    if p in (None, 2, -2):
        values = linalg.svdvals(A)
        large, small = values.amax(-1), values.amin(-1)
        return small / large if p == -2 else large / small
    if p not in ("fro", "nuc", 1, -1, inf, -inf):
        raise ShapeError(f"cond: p is None, 'fro', 'nuc', 1, 2, inf or a negative, not {p!r}")
    return linalg.matrix_norm(A, ord=p) * linalg.matrix_norm(linalg.inv(A), ord=p)


@spelled
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None) -> LstsqResult:
    """The X that makes A @ X closest to B, by singular values."""
    linalg = _linalg()
    is_vector = B.ndim == 1
    right = B.unsqueeze(-1) if is_vector else B
    solution = linalg.pinv(A, rtol=rcond) @ right
    apart = A @ solution - right
    found = solution.squeeze(-1) if is_vector else solution
    rank = linalg.matrix_rank(A, rtol=rcond)
    return LstsqResult(found, squares(apart).sum(-2), rank, linalg.svdvals(A))
