"""Factorisations of matrices, on the host through LAPACK when the plan reaches them.

One matrix follows the other over the leading axes. The host writes all parts of a factorisation
into one vector, which is cut here; each has a gradient. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.ir.node import is_symbolic
from svod.runtime.host_linalg import PREFIX, compute, parts, size_of
from svod.tensor.core.complex_parts import joined
from svod.tensor.core.tensor_core import Core, float_node, pair, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.creation import eye
from svod.tensor.ops.custom_function import custom_function
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate
from svod.tensor.ops.numpy_interchange import node_of_data

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues in no order, and eigenvectors of length 1 as columns; both are complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, right ones transposed."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L @ L.mH = x, or with ``upper`` its conjugate transpose.

    Only the lower triangle of x is read; x must be positive definite.
    """
    (found,) = factors(_cholesky, "cholesky", _square(x, "cholesky"))
    return found.mH if upper else found


def inv(x: Tensor, /) -> Tensor:
    """The inverse of square matrices."""
    return factors(_inv, "inv", _square(x, "inv"))[0]


def det(x: Tensor, /) -> Tensor:
    """The determinant of square matrices."""
    return factors(_det, "det", _square(x, "det"))[0]


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its size, which do not overflow."""
    sign, size = factors(_slogdet, "slogdet", _square(x, "slogdet"))
    return SlogdetResult(sign, size.real)


def solve(x1: Tensor, x2: Tensor, /, *, left: bool = True) -> Tensor:
    """The x with x1 @ x = x2, or with ``left=False`` x @ x1 = x2.

    x2 is a matrix, with one right-hand side per column, or a vector; or one vector for each of
    x1's matrices, where it does not fit as a matrix.
    """
    a, b, device = pair(_square(x1, "solve"), _floats(x2, "solve"))
    given, right = wrap(a, device), wrap(b, device)
    n = given.shape[-1]
    are_rows = right.shape[-2 if left else -1 :][:1] != (n,) or 0 in right.shape
    is_vector = right.ndim == 1 or (are_rows and right.shape == given.shape[:-1])
    if is_vector:
        right = right.unsqueeze(-1)
    elif not left:
        return solve(x1.mT, x2.mT).mT
    if right.ndim < 2 or right.shape[-2] != n:
        raise ShapeError(f"solve: {x1.shape} and {x2.shape} do not fit together")
    lead = B.broadcast_shapes(given.shape[:-2], right.shape[:-2])
    given = given.expand((*lead, n, n))
    right = right.expand((*lead, *right.shape[-2:]))
    (found,) = factors(_solve, "solve", given, right)
    return found.squeeze(-1) if is_vector else found


def eigh(x: Tensor, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices, of which one triangle is read."""
    given = _square(x, "eigh")
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"eigh: UPLO is 'L' or 'U', not {UPLO!r}")
    values, vectors = factors(_eigh, "eigh", given.mH if UPLO.upper() == "U" else given)
    return EighResult(values.real, vectors)


def eigvalsh(x: Tensor, /, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending; one triangle is read."""
    return eigh(x, UPLO).eigenvalues


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex whatever x is."""
    given = _square(x, "eig")
    kind = promote(given.dtype, dt.complex64)
    return EigResult(*factors(_eig, "eig", given.cast(kind)))


def eigvals(x: Tensor, /) -> Tensor:
    """The eigenvalues of square matrices, complex and in no order."""
    return eig(x).eigenvalues


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S, Vh with x = U @ diag(S) @ Vh; without full_matrices only the vectors that count."""
    left, values, right = factors(_svd, "svd", matrices(x, "svd"), bool(full_matrices))
    return SVDResult(left, values.real, right)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, descending."""
    return svd(x, full_matrices=False).S


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Q with orthogonal columns and an upper triangular R with Q @ R = x."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    return QRResult(*factors(_qr, "qr", matrices(x, "qr"), mode))


def matrix_exp(x: Tensor, /) -> Tensor:
    """The exponential of square matrices: the sum of x**k / k!."""
    return factors(_exp, "exp", _square(x, "matrix_exp"))[0]


# -- the host functions as tensors -------------------------------------------------------------


def factors(function: Callable[..., Tensor], name: str, *args: Any) -> list[Tensor]:
    """The parts of a factorisation, cut from the one vector the host writes."""
    tensors = [a for a in args if isinstance(a, Core)]
    options = tuple([a for a in args if not isinstance(a, Core)])
    shapes = tuple([t.shape for t in tensors])
    pieces = parts(name, shapes, options)
    kind = tensors[0].dtype
    if kind.bits < 32:
        args = tuple([a.cast(dt.float32) if isinstance(a, Core) else a for a in args])
    if not any(prod(s) for s in pieces):
        flat = wrap(B.full((0,), 0, kind), tensors[0]._device)
    elif 0 in shapes[0]:  # nothing to read: LAPACK's answer is known now
        wide = np.complex128 if kind.is_complex else np.float64
        arrays = [np.empty(s, wide) for s in shapes]
        found = compute(name, arrays, options)
        flat = wrap(*node_of_data(found, kind, tensors[0].device))
    else:
        flat = function(*args)
    return [p.cast(kind) for p in _cut(flat, pieces)]


def _cut(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    ends = [0, *accumulate([prod(s) for s in shapes])]
    return [flat[a:b].reshape(s) for (a, b), s in zip(pairwise(ends), shapes, strict=True)]


def on_host(name: str, tensors: Sequence[Tensor], *options: Any) -> Tensor:
    """A function of `svod.runtime.host_linalg`: all parts of its result as one vector."""
    shapes = tuple([t.shape for t in tensors])
    size = size_of(name, shapes, options)
    is_complex = tensors[0].dtype.is_complex
    attrs = (shapes, options, is_complex)
    if not is_complex:
        return custom_function(PREFIX + name, *tensors, shape=(size,), attrs=attrs)
    floats = [wrap(B.floats_of(t.uop), t._device) for t in tensors]
    found = custom_function(PREFIX + name, *floats, shape=(size, 2), attrs=attrs)
    return wrap(B.complex_view(found.uop), found._device)


def unpacked(name: str, flat: Tensor, x: Tensor, *options: Any) -> list[Tensor]:
    """The parts of a result of ``on_host``."""
    return _cut(flat, parts(name, (x.shape,), options))


@custom_gradient
def _cholesky(x: Tensor) -> Tensor:
    return on_host("cholesky", [x])


@_cholesky.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    lower, g = output.reshape(x.shape), grad.reshape(x.shape)
    inverse = inv(lower)
    middle = (lower.mH @ g).tril()
    middle = middle - middle * _identity(x) * 0.5
    found = inverse.mH @ middle @ inverse
    return (found + found.mH) * 0.5


@custom_gradient
def _inv(x: Tensor) -> Tensor:
    return on_host("inv", [x])


@_inv.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    turned = output.reshape(x.shape).mH
    return -(turned @ grad.reshape(x.shape) @ turned)


@custom_gradient
def _exp(x: Tensor) -> Tensor:
    return on_host("exp", [x])


@_exp.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    # The corner of the exponential of [[x.mH, grad], [0, x.mH]] is the derivative of exp(x.mH)
    # in the direction of grad.
    turned, g = x.mH, grad.reshape(x.shape)
    above = concatenate([turned, g], -1)
    below = concatenate([turned * 0, turned], -1)
    n = x.shape[-1]
    return matrix_exp(concatenate([above, below], -2))[..., :n, n:]


@custom_gradient
def _solve(a: Tensor, b: Tensor) -> Tensor:
    return on_host("solve", [a, b])


@_solve.backward
def _(grad: Tensor, output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    right = solve(a.mH, grad.reshape(b.shape))
    return -(right @ output.reshape(b.shape).mH), right


@custom_gradient
def _det(x: Tensor) -> Tensor:
    return on_host("det", [x])


@_det.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    scale = (grad * output.conj()).reshape(x.shape[:-2])
    return inv(x).mH * scale.unsqueeze((-2, -1))


@custom_gradient
def _slogdet(x: Tensor) -> Tensor:
    return on_host("slogdet", [x])


@_slogdet.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    of_sign, scale = unpacked("slogdet", grad, x)
    if x.dtype.is_complex:  # a sign that turns
        sign, _ = unpacked("slogdet", output, x)
        scale = joined(scale.real, -(of_sign.conj() * sign).imag)
    return inv(x).mH * scale.unsqueeze((-2, -1))


@custom_gradient
def _eigh(x: Tensor) -> Tensor:
    return on_host("eigh", [x])


@_eigh.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    values, vectors = unpacked("eigh", output, x)
    of_values, of_vectors = unpacked("eigh", grad, x)
    turn = (vectors.mH @ of_vectors) * _gaps(values.real)
    middle = turn + _identity(x) * of_values.real.unsqueeze(-1)
    found = vectors @ middle @ vectors.mH
    return (found + found.mH) * 0.5


@custom_gradient
def _eig(x: Tensor) -> Tensor:
    return on_host("eig", [x])


@_eig.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    values, vectors = unpacked("eig", output, x)
    of_values, of_vectors = unpacked("eig", grad, x)
    turned = vectors.mH @ of_vectors
    along = turned.diagonal(0, -2, -1).real.unsqueeze(-2)  # vectors keep their length
    apart = (values.unsqueeze(-2) - values.unsqueeze(-1)).conj()
    differ = apart != 0
    middle = (turned - vectors.mH @ vectors * along) / select(differ, apart, 1.0)
    middle = select(differ, middle, 0.0) + _identity(x) * of_values.unsqueeze(-1)
    return solve(vectors.mH, middle @ vectors.mH)


@custom_gradient
def _svd(x: Tensor, full: bool) -> Tensor:
    return on_host("svd", [x], full)


@_svd.backward
def _(grad: Tensor, output: Tensor, x: Tensor, full: bool) -> Tensor:
    if full and x.shape[-1] != x.shape[-2]:
        raise DTypeError("svd has no gradient with full_matrices=True unless matrices are square")
    left, values, right = unpacked("svd", output, x, full)
    of_left, of_values, of_right = unpacked("svd", grad, x, full)
    values, of_values = values.real, of_values.real
    gaps = _gaps(values * values)
    line = values.unsqueeze(-2)
    turn_left = left.mH @ of_left
    turn_right = right @ of_right.mH
    middle = ((turn_left - turn_left.mH) * gaps) * line
    middle = middle + values.unsqueeze(-1) * ((turn_right - turn_right.mH) * gaps)
    along = of_values
    if x.dtype.is_complex:  # pairs of vectors may turn together
        along = joined(along, turn_left.diagonal(0, -2, -1).imag / values)
    middle = middle + eye(values.shape[-1], dtype=x.dtype) * along.unsqueeze(-2)
    found = left @ middle @ right
    inverse = 1.0 / line
    if x.shape[-2] > x.shape[-1]:
        outside = of_left * inverse
        found = found + (outside - left @ (left.mH @ outside)) @ right
    if x.shape[-1] > x.shape[-2]:
        outside = of_right * inverse.mT
        found = found + left @ (outside - (outside @ right.mH) @ right)
    return found


@custom_gradient
def _qr(x: Tensor, mode: str) -> Tensor:
    return on_host("qr", [x], mode)


@_qr.backward
def _(grad: Tensor, output: Tensor, x: Tensor, mode: str) -> Tensor:
    m, n = x.shape[-2:]
    if m < n or (mode == "complete" and m != n):
        raise DTypeError(f"qr in mode {mode!r} has no gradient for matrices of shape {(m, n)}")
    q, r = unpacked("qr", output, x, mode)
    of_q, of_r = unpacked("qr", grad, x, mode)
    middle = r @ of_r.mH - of_q.mH @ q
    lower = middle.tril(-1)
    symmetric = lower + lower.mH + middle.real * eye(n, dtype=middle.real.dtype)
    return solve(r, (of_q + q @ symmetric).mH).mH


def _gaps(values: Tensor) -> Tensor:
    """1 / (v_j - v_i), and 0 where they are equal."""
    apart = values.unsqueeze(-2) - values.unsqueeze(-1)
    differ = apart != 0
    return select(differ, 1.0 / select(differ, apart, 1.0), 0.0)


def _identity(x: Tensor) -> Tensor:
    return eye(x.shape[-1], dtype=x.dtype)


# -- arguments ---------------------------------------------------------------------------------


def _floats(x: Any, what: str) -> Tensor:
    if not isinstance(x, Core):
        raise DTypeError(f"{what} takes tensors, not a {type(x).__name__}: {x!r:.60}")
    if is_symbolic(x.shape):
        raise ShapeError(f"{what} needs sizes that are known, not {x.shape}")
    return wrap(float_node(x.uop), x._device)


def at_least_matrix(x: Tensor, what: str) -> Tensor:
    """x, which must have two axes for matrices."""
    if not isinstance(x, Core):
        raise DTypeError(f"{what} takes tensors, not a {type(x).__name__}: {x!r:.60}")
    if x.ndim < 2:
        raise ShapeError(f"{what} needs at least 2 axes, not shape {x.shape}")
    return x


def matrices(x: Any, what: str) -> Tensor:
    """Matrices of floats or complex numbers."""
    return _floats(at_least_matrix(x, what), what)


def square_shape(x: Any, what: str) -> Tensor:
    """x, which must be square matrices of any numbers."""
    if at_least_matrix(x, what).shape[-1] != x.shape[-2]:
        raise ShapeError(f"{what} needs square matrices, not shape {x.shape}")
    return x


def _square(x: Any, what: str) -> Tensor:
    return _floats(square_shape(x, what), what)
