"""What singular values say of matrices: pseudo-inverse, rank, least squares.

Singular values below a share of the largest one, or below a size, count as zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.ir import build as B
from svod.tensor.core.complex_parts import squares
from svod.tensor.core.tensor_core import Core, spelled, tensor_of, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.linalg.factorizations import matrices, svd, svdvals
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


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
            share = select(least > 0, 0.0, share) if isinstance(least, Core) else (
                0.0 if least > 0 else share
            )  # fmt: skip
    return share, least


class LstsqResult(NamedTuple):
    """What least squares finds; ``residuals`` are sums of squares over each column."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@spelled
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LstsqResult:
    """The X that makes A @ X closest to B, by singular values.

    A ``driver`` of torch's is computed the same way, and leaves empty what it does not give there.
    """
    if driver is not None and driver not in _DRIVERS:
        raise ShapeError(f"lstsq: driver is one of {', '.join(_DRIVERS)}, not {driver!r}")
    is_vector = B.ndim == 1
    right = B.unsqueeze(-1) if is_vector else B
    solution = pinv(A, rtol=rcond) @ right
    apart = A @ solution - right
    found = solution.squeeze(-1) if is_vector else solution
    rank = matrix_rank(A, rtol=rcond)
    result = LstsqResult(found, squares(apart).sum(-2), rank, svdvals(A))
    if driver is None:
        return result
    left_out = {name for name, drivers in _GIVEN_BY.items() if driver not in drivers}
    if A.shape[-2] <= A.shape[-1]:
        left_out.add("residuals")
    empty = {name: getattr(result, name).new_zeros((0,)) for name in left_out}
    return result._replace(**empty)


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
_GIVEN_BY = {
    "residuals": ("gels", "gelsd", "gelss"),
    "rank": ("gelsy", "gelsd", "gelss"),
    "singular_values": ("gelsd", "gelss"),
}
