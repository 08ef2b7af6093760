"""Products of Householder's reflections, and factorisations of low rank by random projection.

k reflections I - t v v^H in a row are I - V T V^H with a triangular T, so a few products of
matrices apply them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.core.tensor_core import integer
from svod.tensor.linalg import factorizations as F
from svod.tensor.linalg.linear_equations import solve_triangular
from svod.tensor.ops.creation import eye
from svod.tensor.random.threefry import randn

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class Reflections(NamedTuple):
    """R above the vectors of reflections, and their factors."""

    a: Tensor
    tau: Tensor


def geqrf(input: Tensor) -> Reflections:
    """The QR factorisation as LAPACK keeps it: see ``householder_product``."""
    return Reflections(*F.factors(_geqrf, "geqrf", F.matrices(input, "geqrf")))


def _geqrf(x: Tensor) -> Tensor:
    return F.on_host("geqrf", [x.detach()])


def _factored(A: Tensor, tau: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """V and T, with V T V^H taken from the identity being the product of all reflections."""
    m, n = F.matrices(A, what).shape[-2:]
    if tau.dtype is not A.dtype:
        raise DTypeError(f"{what}: the matrix is {A.dtype.name}, tau is {tau.dtype.name}")
    if tau.shape[:-1] != A.shape[:-2] or not tau.ndim or tau.shape[-1] > min(m, n):
        raise ShapeError(f"{what}: tau of shape {tau.shape} does not fit {A.shape}")
    k = tau.shape[-1]
    vectors = A[..., :k].tril(-1) + eye(m, k, dtype=A.dtype)
    mixed = (vectors.mH @ vectors).triu(1) * tau.unsqueeze(-1)
    factor = eye(k, dtype=A.dtype) * tau.unsqueeze(-2)
    return vectors, solve_triangular(mixed, factor, upper=True, unitriangular=True)


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections below the diagonal of A."""
    vectors, factor = _factored(A, tau, "householder_product")
    m, n = A.shape[-2:]
    if m < n:
        raise ShapeError(f"householder_product: at least as many rows as columns, not {A.shape}")
    return eye(m, n, dtype=A.dtype) - vectors @ (factor @ vectors[..., :n, :].mH)


def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q @ other, or other @ Q, with Q (or its adjoint) the product of the reflections in input."""
    if other.ndim < 2 or other.shape[-2 if left else -1] != input.shape[-2]:
        raise ShapeError(f"ormqr: {input.shape} and {other.shape} do not fit together")
    vectors, factor = _factored(input, tau, "ormqr")
    middle = factor.mH if transpose else factor
    if left:
        return other - vectors @ (middle @ (vectors.mH @ other))
    return other - ((other @ vectors) @ middle) @ vectors.mH


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of the q largest singular values of A, or of A - M, by random projection."""
    count = 6 if q is None else integer(q, "q")
    times = 2 if niter is None else integer(niter, "niter")
    given = F.matrices(A if M is None else A - M.expand(A.shape), "svd_lowrank")
    if times < 0 or not 0 <= count <= min(given.shape[-2:]):
        raise ShapeError(f"svd_lowrank: q={count} and niter={times} for shape {given.shape}")
    is_wide = given.shape[-2] < given.shape[-1]
    x = given.mH if is_wide else given
    start = randn(x.shape[-1], count, dtype=x.real.dtype, device=x._device).cast(x.dtype)
    basis = F.qr(x @ start).Q
    for _ in range(times):
        basis = F.qr(x @ F.qr(x.mH @ basis).Q).Q
    left, values, right = F.svd(basis.mH @ x, full_matrices=False)
    found = basis @ left, values, right.mH
    return (found[2], values, found[0]) if is_wide else found


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """svd_lowrank of the rows less their average: the principal components are in V."""
    F.matrices(A, "pca_lowrank")
    count = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - A.mean(-2, True) if center else A, count, niter)
