"""Factorisations of matrices, computed on the host by NumPy's LAPACK inside a plan.

A factorisation is a custom function of kind ``linalg.<name>``. Its attributes are the shapes of
the inputs and the options, and whether the numbers are complex; its result is one vector with all
parts one after the other, which the tensor side cuts up again. Complex numbers come and go as pairs
of floats, and all parts of a complex result are complex. ``parts`` gives the shapes of those parts
without computing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import LinAlgError
from svod.device.buffer import Buffer

PREFIX: Final = "linalg."

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]


def _cholesky(x: Array) -> tuple[Array, ...]:
    return (np.linalg.cholesky(x),)


def _inv(x: Array) -> tuple[Array, ...]:
    return (np.linalg.inv(x),)


def _solve(a: Array, b: Array) -> tuple[Array, ...]:
    return (np.linalg.solve(a, b),)


def _det(x: Array) -> tuple[Array, ...]:
    return (np.linalg.det(x),)


def _slogdet(x: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.slogdet(x))


def _eigh(x: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.eigh(x))


def _eig(x: Array) -> tuple[Array, ...]:
    """Of matrices that are real in fact, LAPACK's real algorithm keeps conjugate pairs exact."""
    return tuple(np.linalg.eig(x if x.imag.any() else np.ascontiguousarray(x.real)))


def _svd(x: Array, full: bool) -> tuple[Array, ...]:
    return tuple(np.linalg.svd(x, full_matrices=full))


def _qr(x: Array, mode: Literal["reduced", "complete"]) -> tuple[Array, ...]:
    return tuple(np.linalg.qr(x, mode))


def _exp(x: Array) -> tuple[Array, ...]:
    """The exponential: a Padé quotient of degree 6 of x / 2**k, squared k times."""
    size = np.abs(x).sum(-1).max(-1) if x.size else np.zeros(x.shape[:-2])
    known = np.isfinite(size)
    _, exponent = np.frexp(np.where(known, size, 0.0))
    halvings = np.maximum(exponent + 1, 0)  # so that the scaled size is at most a half
    usable = np.where(known[..., None, None], x, 0.0)
    scaled = usable / np.exp2(halvings)[..., None, None]
    unit = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    term, above, below, factor = unit, unit, unit, 1.0
    for k in range(1, _DEGREE + 1):
        factor *= (_DEGREE - k + 1) / (k * (2 * _DEGREE - k + 1))
        term = term @ scaled
        above = above + factor * term
        below = below + factor * (term if k % 2 == 0 else -term)
    found = np.linalg.solve(below, above)
    for k in range(int(halvings.max(initial=0))):
        found = np.where((halvings > k)[..., None, None], found @ found, found)
    return (np.where(known[..., None, None], found, np.nan),)


def _lu(x: Array, checked: bool) -> tuple[Array, ...]:
    """Both triangles in one matrix, row exchanges counted from 1, and where a pivot is zero."""
    m, n = x.shape[-2:]
    count = prod(x.shape[:-2])
    found, each = x.reshape(count, m, n).copy(), np.arange(count)
    pivots, info = np.empty((count, min(m, n)), np.int64), np.zeros(count, np.int64)
    for k in range(min(m, n)):
        column = found[:, k:, k]
        size = np.abs(column.real) + np.abs(column.imag)  # LAPACK's measure
        best = k + size.argmax(-1)
        pivots[:, k] = best + 1
        found[each, best], found[:, k] = found[:, k].copy(), found[each, best]
        pivot = found[:, k, k]
        info[(info == 0) & (pivot == 0)] = k + 1
        found[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)[:, None]
        found[:, k + 1 :, k + 1 :] -= found[:, k + 1 :, k, None] * found[:, None, k, k + 1 :]
    if checked and info.any():
        raise np.linalg.LinAlgError(
            f"the pivot {info[info > 0][0]} is zero: the matrix is singular"
        )
    return found, pivots, info


def _permutation(pivots: Array, rows: int) -> tuple[Array, ...]:
    """Where each row comes from after exchanging rows k and pivots[k] - 1 one after the other."""
    steps = pivots.reshape(prod(pivots.shape[:-1]), pivots.shape[-1]).real.astype(np.int64) - 1
    if steps.size and not (steps.min() >= 0 and steps.max() < rows):
        raise np.linalg.LinAlgError(f"pivots are from 1 to {rows}")
    found, each = np.tile(np.arange(rows), (len(steps), 1)), np.arange(len(steps))
    for k, row in enumerate(steps.T):
        found[each, row], found[:, k] = found[:, k].copy(), found[each, row]
    return (found,)


def _minor(x: Array) -> tuple[Array, ...]:
    """The order of the first leading minor that is not positive definite, 0 when all are."""

    def fails(part: Array) -> bool:
        try:
            np.linalg.cholesky(part)
        except np.linalg.LinAlgError:
            return True
        return False

    def order(matrix: Array) -> int:
        n = len(matrix)
        if not fails(matrix):
            return 0
        return 1 + bisect_left(range(1, n), True, key=lambda k: fails(matrix[:k, :k]))

    return (np.array([order(a) for a in x.reshape(prod(x.shape[:-2]), *x.shape[-2:])]),)


def _geqrf(x: Array) -> tuple[Array, ...]:
    """Householder's reflections below R, and their factors."""
    turned, factors = np.linalg.qr(x, "raw")
    return np.swapaxes(turned, -1, -2), factors


_DEGREE: Final = 6  # of numerator and denominator: exact to float64 for matrices up to a half
_FUNCTIONS: Final[dict[str, Callable[..., tuple[Array, ...]]]] = {
    "cholesky": _cholesky,
    "inv": _inv,
    "solve": _solve,
    "det": _det,
    "slogdet": _slogdet,
    "eigh": _eigh,
    "eig": _eig,
    "svd": _svd,
    "qr": _qr,
    "exp": _exp,
    "lu": _lu,
    "permutation": _permutation,
    "minor": _minor,
    "geqrf": _geqrf,
}


def parts(name: str, shapes: Sequence[Shape], options: tuple[object, ...]) -> list[Shape]:
    """The shapes of the results, in the order in which they are stored."""
    *lead, m, n = shapes[0]
    batch = tuple(lead)
    small = min(m, n)
    if name == "solve":
        return [tuple(shapes[1])]
    if name in ("cholesky", "inv", "exp"):
        return [(*batch, m, n)]
    if name == "lu":
        return [(*batch, m, n), (*batch, small), batch]
    if name == "geqrf":
        return [(*batch, m, n), (*batch, small)]
    if name == "permutation":
        rows = options[0]
        assert isinstance(rows, int)
        return [(*batch, rows)]
    if name in ("det", "minor", "slogdet"):
        return [batch] * (2 if name == "slogdet" else 1)
    if name in ("eigh", "eig"):
        return [(*batch, n), (*batch, m, n)]
    if name == "svd":
        rows, columns = (m, n) if options[0] else (small, small)
        return [(*batch, m, rows), (*batch, small), (*batch, columns, n)]
    inner = m if options[0] == "complete" else small
    return [(*batch, m, inner), (*batch, inner, n)]


def compute(name: str, arrays: Sequence[Array], options: tuple[object, ...]) -> Array:
    """All parts of the result, one after the other."""
    try:
        with np.errstate(all="ignore"):  # NaN and infinities are results here
            found = _FUNCTIONS[name](*arrays, *options)
    except np.linalg.LinAlgError as error:
        shapes = " and ".join([str(a.shape) for a in arrays])
        raise LinAlgError(f"{name} of shape {shapes}: {error}") from None
    dtype = arrays[0].dtype
    return np.concatenate([np.asarray(f, dtype).reshape(-1) for f in found])


def run(
    kind: str, buffers: Sequence[Buffer], attrs: tuple[Any, ...], values: Mapping[str, int]
) -> None:
    """The implementation of every kind: read the inputs, compute, write the result."""
    shapes, options, is_complex = attrs
    flat = [b.copyout() for b in buffers[1:]]
    if is_complex:
        flat = [f.view(np.result_type(f.dtype, np.complex64)) for f in flat]
    arrays = [f.reshape(s) for f, s in zip(flat, shapes, strict=True)]
    found = compute(kind.removeprefix(PREFIX), arrays, options)
    buffers[0].copyin(found.view(found.real.dtype) if is_complex else found)


def size_of(name: str, shapes: Sequence[Shape], options: tuple[object, ...]) -> int:
    """How many elements all parts have together."""
    return sum([prod(s) for s in parts(name, shapes, options)])


KINDS: Final = tuple([PREFIX + name for name in _FUNCTIONS])
