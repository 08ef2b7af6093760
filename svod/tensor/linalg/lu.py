"""LU factorisations, and the ``_ex`` functions that report for each matrix whether they worked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.tensor.core.tensor_core import wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.linalg import factorizations as F
from svod.tensor.linalg.linear_equations import solve_triangular
from svod.tensor.ops.creation import arange, eye, zeros
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class LUResult(NamedTuple):
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """Both triangles in one matrix, and with which row each was exchanged, counted from 1."""

    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    """An LUFactor, and for each matrix the number of the first pivot that is zero, else 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class CholeskyEx(NamedTuple):
    """The factor, and the order of the first minor that is not positive definite, else 0."""

    L: Tensor
    info: Tensor


class InverseEx(NamedTuple):
    """The inverse, and the number of the first pivot that is zero, else 0."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """The solution, and the number of the first pivot that is zero, else 0."""

    result: Tensor
    info: Tensor


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """P @ L @ U = A in one matrix; ``info`` is not zero where a pivot is zero."""
    if not pivot:
        raise ShapeError("lu_factor: there is no factorisation without pivots here")
    given = F.matrices(A, "lu_factor")
    packed, pivots, info = F.factors(_lu, "lu", given, bool(check_errors))
    return LUFactorEx(packed, pivots.real.cast(dt.int32), info.real.cast(dt.int32))


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """P @ L @ U = A in one matrix; a singular matrix is an error when the plan runs."""
    return LUFactor(*lu_factor_ex(A, pivot=pivot, check_errors=True)[:2])


def lu(A: Tensor, *, pivot: bool = True) -> LUResult:
    """P, L and U with P @ L @ U = A."""
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return LUResult(*lu_unpack(packed, pivots))


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U of a factorisation in one matrix; what is not asked for is empty."""
    _check_pivots(LU_data, LU_pivots)
    k = min(LU_data.shape[-2:])
    none = zeros(0, dtype=LU_data.dtype, device=LU_data._device)
    found = [none, none, none]
    if unpack_pivots:
        rows = _rows(LU_pivots, LU_data.shape[-2])
        found[0] = (arange(rows.shape[-1]).unsqueeze(-1) == rows.unsqueeze(-2)).cast(none.dtype)
    if unpack_data:
        unit = eye(LU_data.shape[-2], k, dtype=none.dtype)
        found[1:] = [LU_data[..., :k].tril(-1) + unit, LU_data[..., :k, :].triu()]
    return found[0], found[1], found[2]


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The X with A @ X = B, or X @ A = B, where LU and pivots are A's factorisation."""
    _check_pivots(F.square_shape(LU, "lu_solve"), pivots)
    if LU.dtype is not B.dtype:
        raise DTypeError(f"lu_solve: factors are {LU.dtype.name}, B is {B.dtype.name}")
    if B.ndim < 2 or B.shape[-2 if left else -1] != LU.shape[-1]:
        raise ShapeError(f"lu_solve: {LU.shape} and {B.shape} do not fit together")
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    P, _, _ = lu_unpack(LU, pivots, unpack_data=False)
    if adjoint:
        half = solve_triangular(LU.mH, B, upper=False)
        return P @ solve_triangular(LU.mH, half, upper=True, unitriangular=True)
    half = solve_triangular(LU, P.mT @ B, upper=False, unitriangular=True)
    return solve_triangular(LU, half, upper=True)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseEx:
    """The inverse of square matrices, NaN where ``info`` is not zero."""
    info, usable = _usable(F.square_shape(A, "inv_ex"), check_errors)
    return InverseEx(_where_zero(info, F.inv(usable)), info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """The X with A @ X = B, or X @ A = B, NaN where ``info`` is not zero."""
    info, usable = _usable(F.square_shape(A, "solve_ex"), check_errors)
    found = F.solve(usable, B, left=left)
    fits = found.ndim == A.ndim - 1  # vectors
    return SolveEx(_where_zero(info, found, 1 if fits else 2), info)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """The Cholesky factor, NaN where ``info`` is not zero."""
    given = F.matrices(F.square_shape(A, "cholesky_ex"), "cholesky_ex")
    if check_errors:
        info = zeros(A.shape[:-2], dtype=dt.int32, device=A._device)
    else:
        info = F.factors(_minor, "minor", given)[0].real.cast(dt.int32)
        given = _where_zero(info, given, other=eye(A.shape[-1], dtype=given.dtype))
    return CholeskyEx(_where_zero(info, F.cholesky(given, upper=upper)), info)


def _usable(A: Tensor, checked: bool) -> tuple[Tensor, Tensor]:
    """What LU says of the matrices, and the matrices with singular ones made the identity."""
    info = lu_factor_ex(A.detach(), check_errors=checked).info
    return info, _where_zero(info, A, other=eye(A.shape[-1], dtype=A.dtype))


def _where_zero(info: Tensor, found: Tensor, axes: int = 2, other: Any = float("nan")) -> Tensor:
    return select(info.reshape(info.shape + (1,) * axes) == 0, found, other)


def _check_pivots(LU: Tensor, pivots: Tensor) -> None:
    F.at_least_matrix(LU, "an LU factorisation")
    wanted = (*LU.shape[:-2], min(LU.shape[-2:]))
    if pivots.dtype is not dt.int32:
        raise DTypeError(f"pivots are int32, not {pivots.dtype.name}")
    if pivots.shape[-1:] != wanted[-1:] or pivots.ndim != len(wanted):
        raise ShapeError(f"pivots of a factorisation of {LU.shape} are {wanted}: {pivots.shape}")


def _rows(pivots: Tensor, count: int) -> Tensor:
    """Where the rows of L @ U come from."""
    wide = pivots.detach().cast(dt.float64).unsqueeze(-2)
    return F.factors(_permutation, "permutation", wide, count)[0].cast(dt.int64)


def _permutation(pivots: Tensor, count: int) -> Tensor:
    return F.on_host("permutation", [pivots], count)


def _minor(x: Tensor) -> Tensor:
    return F.on_host("minor", [x.detach()])


@custom_gradient
def _lu(x: Tensor, checked: bool) -> Tensor:
    return F.on_host("lu", [x], checked)


@_lu.backward
def _(grad: Tensor, output: Tensor, x: Tensor, checked: bool) -> Tensor:
    packed, pivots, _ = F.unpacked("lu", output, x, checked)
    given = F.unpacked("lu", grad, x, checked)[0]
    k = min(x.shape[-2:])
    square, rest, below = packed[..., :k, :k], packed[..., :k, k:], packed[..., k:, :k]
    of_lower, of_upper = given.tril(-1), given.triu()
    unit = square.tril(-1) + eye(k, dtype=x.dtype)
    lower = unit.mH @ of_lower[..., :k, :k]
    lower = lower - of_upper[..., :k, k:] @ rest.mH if rest.shape[-1] else lower
    upper = of_upper[..., :k, :k] @ square.triu().mH
    upper = upper - below.mH @ of_lower[..., k:, :k] if below.shape[-2] else upper
    middle = lower.tril(-1) + upper.triu()

    def past_lower(y: Tensor) -> Tensor:
        return solve_triangular(unit.mH, y, upper=True, unitriangular=True)

    def past_upper(y: Tensor) -> Tensor:
        return solve_triangular(square.triu().mH, y, upper=False, left=False)

    found = past_upper(past_lower(middle))
    if rest.shape[-1]:
        found = concatenate([found, past_lower(of_upper[..., :k, k:])], -1)
    if below.shape[-2]:
        found = concatenate([found, past_upper(of_lower[..., k:, :k])], -2)
    rows = _rows(pivots.real.cast(dt.int32), x.shape[-2])
    turned = (arange(rows.shape[-1]).unsqueeze(-1) == rows.unsqueeze(-2)).cast(x.dtype)
    return wrap((turned @ found).uop, x._device)
