"""Linear equations by a triangular matrix, and between tensors seen as matrices.

Under torch's names; each is a reshape or a turn around a solution in ``factorizations.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import spelled
from svod.tensor.linalg.factorizations import inv, solve
from svod.tensor.ops.creation import eye

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


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
    return solve(triangle, B)


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
    return inv(A.reshape(prod(rows), -1)).reshape(*columns, *rows)


@spelled
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The X with ``tensordot(A, X, X.ndim) = B``; A's axes ``dims`` move to the end first."""
    turned = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    shape = turned.shape[B.ndim :]
    if B.numel() != prod(shape):
        raise ShapeError(f"tensorsolve: {turned.shape} and {B.shape} do not fit together")
    return solve(turned.reshape(B.numel(), -1), B.ravel()).reshape(shape)
