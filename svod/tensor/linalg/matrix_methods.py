"""Factorisations and other matrix functions as methods of Tensor, under torch's names.

The functions themselves are those of ``svod.linalg``, which is loaded when one of these is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import Axis, Core
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.creation import eye
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _linalg() -> Any:  # loaded when one of these is called: LAPACK is on the way
    from svod.tensor.linalg import linear_algebra

    return linear_algebra


class Matrices(Core):
    """det, inverse, cholesky, qr, svd, matrix_exp and relatives."""

    __slots__ = ()

    def _nuclear_norm(self: Tensor, dim: Axis, keepdim: bool) -> Tensor:
        return _linalg().norm(self, "nuc", dim, keepdim)

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
