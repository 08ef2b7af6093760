"""Discrete Fourier transforms of any size as graphs of ordinary ops, one kernel per factor.

A transform of n = r1 * r2 * .. points is one kernel per factor: each reads r values that are far
apart, makes a small transform of them (svod.tensor.fft.butterflies), multiplies by factors from a
table and writes. Complex numbers are a trailing axis of 2. In between, real and imaginary parts
lie in blocks of their own, and the last stage puts the results in order. A few sizes are one
matrix product; the others with a large prime factor become a convolution of a size that has none
(Bluestein's way).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from svod.dtype.convert import to_numpy
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core.slicing import slice_axis
from svod.tensor.fft.butterflies import LARGEST_PRIME, Point, roots, small_transform, times
from svod.tensor.ops.matrix_products import multiply_sum
from svod.tensor.ops.numpy_interchange import node_of_array

LARGEST_FACTOR = 16  # points of one stage: their parts fill the registers
DENSE = 64  # up to here a size with a large prime factor is one matrix product
TABLES = 64  # kept for the transforms that come


def transform(z: UOp, sign: int, scale: float, device: str, is_split: bool = False) -> UOp:
    """The transform of (a, n, s, 2) along n: the sum over j of z_j exp(sign * 2 pi i j k / n).

    Times the scale. The result is split when its parts come before s: (a, n, 2, s).
    """
    n = z.shape[1]
    factors = factors_of(n)
    if factors:
        return _staged(z, factors, sign, scale, None, device, is_split)
    make = _dense if n <= DENSE else _by_convolution
    found = make(z, sign, scale, device)
    return B.permute(found, (0, 1, 3, 2)) if is_split else found


@lru_cache(maxsize=1024)
def factors_of(n: int) -> tuple[int, ...]:
    """The sizes of the stages of n points: few and even; empty where a prime factor is too large.

    The first and the last are the largest ones: their lanes cross.
    """
    rest = n
    for p in range(2, LARGEST_PRIME + 1):
        while rest % p == 0:
            rest //= p
    if rest > 1:
        return ()
    count = 1
    while (found := _even_split(n, count)) is None:
        count += 1
    largest, *others = found
    return (largest, *others[1:], others[0]) if others else (largest,)


def _even_split(n: int, count: int) -> tuple[int, ...] | None:
    """n as a product of so many factors, descending, with the smallest first one."""
    if count == 1:
        return (n,) if n <= LARGEST_FACTOR else None
    for first in range(1, LARGEST_FACTOR + 1):
        if first**count < n or n % first:
            continue
        found = _even_split(n // first, count - 1)
        if found is not None and found[0] <= first:
            return (first, *found)
    return None


# -- stages ----------------------------------------------------------------------------------------


def _staged(
    z: UOp,
    factors: tuple[int, ...],
    sign: int,
    scale: float,
    table: Point | None,
    device: str,
    is_split: bool = False,
) -> UOp:
    """The transform by stages, times the scale and a table of n numbers."""
    a, n, s, _ = z.shape
    state = B.reshape(B.permute(z, (0, 3, 1, 2)), (a, 1, 2, n, s))
    done: list[int] = []
    for r in factors[:-1]:
        state = _stage(state, r, sign, device)
        done.append(r)
    points = small_transform(_legs(state, factors[-1]), sign)
    order = (0, *range(len(done), 0, -1), len(done) + 1)
    rows = []
    for k, (re, im) in enumerate(points):
        point = tuple([B.permute(B.reshape(x, (a, *done, s)), order) for x in (re, im)])
        if table is not None:
            line = (factors[-1], *reversed(done), 1)
            point = times(point, *[slice_axis(B.reshape(t, line), 0, k, k + 1) for t in table])
        elif scale != 1:
            factor = const(scale, re.dtype)
            point = tuple([B.binary(O.MUL, x, factor) for x in point])
        rows.append(stacked(point, len(point[0].shape) - is_split))
    return B.reshape(B.contiguous(stacked(rows, 1)), (a, n, 2, s) if is_split else (a, n, s, 2))


def _stage(state: UOp, r: int, sign: int, device: str) -> UOp:
    """(a, done, 2, n, s) to (a, done * r, 2, n / r, s)."""
    a, done, _, n, s = state.shape
    points = small_transform(_legs(state, r), sign)
    table = _stage_table(n, r, sign, state.dtype, device)
    rows = []
    for k, point in enumerate(points):
        if k:
            line = [slice_axis(slice_axis(table, 0, k - 1, k), 1, c, c + 1) for c in (0, 1)]
            point = times(point, *[B.reshape(x, (n // r, 1)) for x in line])
        rows.append(stacked(point, 2))
    return B.reshape(B.contiguous(stacked(rows, 2)), (a, done * r, 2, n // r, s))


def _legs(state: UOp, r: int) -> list[Point]:
    """The r points of each small transform, of shape (a, done, n / r, s)."""
    a, done, _, n, s = state.shape
    rest = n // r
    found = []
    for j in range(r):
        part = slice_axis(state, 3, j * rest, (j + 1) * rest)
        re, im = [slice_axis(part, 2, c, c + 1) for c in (0, 1)]
        found.append((B.reshape(re, (a, done, rest, s)), B.reshape(im, (a, done, rest, s))))
    return found


def stacked(parts: tuple[UOp, ...] | list[UOp], axis: int) -> UOp:
    """The parts side by side along a new axis."""
    shape = parts[0].shape
    wide = (*shape[:axis], 1, *shape[axis:])
    return B.side_by_side([B.reshape(x, wide) for x in parts], axis)


# -- other sizes -----------------------------------------------------------------------------------


def _dense(z: UOp, sign: int, scale: float, device: str) -> UOp:
    """One product with a matrix of (2n, 2n)."""
    a, n, s, _ = z.shape
    matrix = _matrix(n, sign, scale, z.dtype, device)
    left = B.reshape(B.permute(z, (0, 2, 1, 3)), (a * s, 1, 2 * n))
    right = B.reshape(matrix, (1, 2 * n, 2 * n))
    shape = (a * s, 2 * n, 2 * n)
    found = multiply_sum(B.broadcast_to(left, shape), B.broadcast_to(right, shape), (2,))
    return B.permute(B.reshape(found, (a, s, n, 2)), (0, 2, 1, 3))


def _by_convolution(z: UOp, sign: int, scale: float, device: str) -> UOp:
    """jk = (j^2 + k^2 - (k - j)^2) / 2 makes the sum a convolution with exp(pi i j^2 / n)."""
    a, n, s, _ = z.shape
    size = 1 << (2 * n - 2).bit_length()
    factors = factors_of(size)
    chirp = _chirp(n, 1.0, size, sign, z.dtype, device)
    last = _chirp(n, scale / size, size, sign, z.dtype, device)
    spectrum = _chirp_spectrum(n, size, sign, z.dtype, device)
    padded = B.pad(z, ((0, 0), (0, size - n), (0, 0), (0, 0)))
    re, im = [B.reshape(slice_axis(padded, 3, c, c + 1), (a, size, s)) for c in (0, 1)]
    point = times((re, im), *[B.reshape(x, (size, 1)) for x in chirp])
    found = _staged(stacked(point, 3), factors, -1, 1.0, spectrum, device)
    found = _staged(found, factors, 1, 1.0, last, device)
    return slice_axis(found, 1, 0, n)


# -- tables ----------------------------------------------------------------------------------------


@lru_cache(maxsize=TABLES)
def _stage_table(n: int, r: int, sign: int, dtype: DType, device: str) -> UOp:
    """exp(sign * 2 pi i k m / n) for k from 1 up to r and m up to n / r, as (r - 1, 2, n / r)."""
    exponents = np.arange(1, r)[:, None] * np.arange(n // r)[None, :]
    cosine, sine = roots(exponents, n)
    return constant(np.stack([cosine, sign * sine], 1), dtype, device)


@lru_cache(maxsize=TABLES)
def _matrix(n: int, sign: int, scale: float, dtype: DType, device: str) -> UOp:
    """The real matrix of a transform: (k, part) by (j, part)."""
    cosine, sine = roots(np.outer(np.arange(n), np.arange(n)), n)
    matrix = np.empty((n, 2, n, 2))
    matrix[:, 0, :, 0] = matrix[:, 1, :, 1] = cosine
    matrix[:, 0, :, 1], matrix[:, 1, :, 0] = -sign * sine, sign * sine
    return constant((matrix * scale).reshape(2 * n, 2 * n), dtype, device)


def _chirp_numbers(n: int, sign: int) -> np.ndarray:
    """exp(sign * pi i j^2 / n) for j from 0."""
    j = np.arange(n, dtype=np.int64)
    cosine, sine = roots(j * j % (2 * n), 2 * n)
    return cosine + 1j * sign * sine


@lru_cache(maxsize=TABLES)
def _chirp(n: int, scale: float, size: int, sign: int, dtype: DType, device: str) -> Point:
    numbers = np.zeros(size, np.complex128)
    numbers[:n] = _chirp_numbers(n, sign) * scale
    return _both(numbers, dtype, device)


@lru_cache(maxsize=TABLES)
def _chirp_spectrum(n: int, size: int, sign: int, dtype: DType, device: str) -> Point:
    numbers = np.zeros(size, np.complex128)
    numbers[:n] = _chirp_numbers(n, -sign)
    numbers[size - n + 1 :] = numbers[1:n][::-1]
    return _both(np.fft.fft(numbers), dtype, device)


def _both(numbers: np.ndarray, dtype: DType, device: str) -> Point:
    return constant(numbers.real, dtype, device), constant(numbers.imag, dtype, device)


def constant(values: np.ndarray, dtype: DType, device: str) -> UOp:
    """Numbers in memory of a device."""
    return node_of_array(np.ascontiguousarray(values, to_numpy(dtype)), None, device, False)[0]
