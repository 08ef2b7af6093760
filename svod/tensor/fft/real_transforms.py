"""Fourier transforms from and to real numbers, and the gradients of all transforms.

Real values of an even size are taken as complex numbers of half the size, which a pass after the
transform (or before it, on the way back) sorts out. Results for real input have n // 2 + 1
numbers; the others are their conjugates.

Every transform is a linear map of floats, and the transposed map is a transform again: that of a
complex one turns the other way, those of the real ones lead from each to the other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core.slicing import slice_axis
from svod.tensor.core.tensor_core import wrap
from svod.tensor.fft.butterflies import Point, roots, times
from svod.tensor.fft.dft_graph import TABLES, constant, stacked, transform
from svod.tensor.gradients.custom_gradient import custom_gradient

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


@custom_gradient
def complex_transform(z: Tensor, sign: int, scale: float, device: str) -> Tensor:
    """The transform of (a, n, s, 2) along n, turning by ``sign``, times the scale."""
    return wrap(transform(z.uop, sign, scale, device), device)


@complex_transform.backward
def _(grad: Tensor, output: Tensor, z: Tensor, sign: int, scale: float, device: str) -> Tensor:
    return complex_transform(grad, -sign, scale, device)


@custom_gradient
def real_transform(x: Tensor, scale: float, device: str) -> Tensor:
    """The transform of real (a, n, s), turning by -1, as (a, n // 2 + 1, s, 2)."""
    n = x.shape[1]
    make = _real_even if n % 2 == 0 else _real_odd
    return wrap(make(x.uop, scale, device), device)


@real_transform.backward
def _(grad: Tensor, output: Tensor, x: Tensor, scale: float, device: str) -> Tensor:
    n = x.shape[1]
    return half_transform(_weighted(grad, n, 0.5, device), n, scale, device)


@custom_gradient
def half_transform(z: Tensor, n: int, scale: float, device: str) -> Tensor:
    """The real (a, n, s) whose transform turned by +1 has these first n // 2 + 1 numbers.

    Numbers that must be real to give real results are taken to be so.
    """
    make = _half_even if n % 2 == 0 else _half_odd
    return wrap(make(z.uop, n, scale, device), device)


@half_transform.backward
def _(grad: Tensor, output: Tensor, z: Tensor, n: int, scale: float, device: str) -> Tensor:
    return _weighted(real_transform(grad, scale, device), n, 2.0, device)


def _weighted(z: Tensor, n: int, weight: float, device: str) -> Tensor:
    """Numbers that stand for two, for themselves and their conjugate, times the weight."""
    return wrap(B.binary(O.MUL, z.uop, _weights(n, weight, z.dtype, device)), device)


@lru_cache(maxsize=TABLES)
def _weights(n: int, weight: float, dtype: DType, device: str) -> UOp:
    weights = np.full((n // 2 + 1, 1, 1), weight)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return constant(weights, dtype, device)


# -- from real numbers -----------------------------------------------------------------------------


def _real_odd(x: UOp, scale: float, device: str) -> UOp:
    z = stacked([x, B.full(x.shape, 0, x.dtype)], 3)
    return slice_axis(transform(z, -1, scale, device), 1, 0, x.shape[1] // 2 + 1)


def _real_even(x: UOp, scale: float, device: str) -> UOp:
    """With z_j = x_2j + i x_(2j+1) and its transform Z: even and odd members are
    (Z_k + conj Z_(h-k)) / 2 and (Z_k - conj Z_(h-k)) / 2i."""
    a, n, s = x.shape
    h = n // 2
    z = transform(B.permute(B.reshape(x, (a, h, 2, s)), (0, 1, 3, 2)), -1, 1.0, device)
    around = B.cat([z, slice_axis(z, 1, 0, 1)], 1)
    (re, im), (back_re, back_im) = _parts(around), _parts(B.flip(around, (1,)))
    half = const(0.5 * scale, x.dtype)
    even = [_times(_plus(re, back_re), half), _times(_minus(im, back_im), half)]
    odd = times((_plus(im, back_im), _minus(back_re, re)), *_halves(n, 0.5 * scale, x, -1, device))
    return B.contiguous(stacked([_plus(e, o) for e, o in zip(even, odd, strict=True)], 3))


@lru_cache(maxsize=TABLES)
def _half_table(n: int, scale: float, sign: int, dtype: DType, device: str) -> Point:
    """exp(sign * 2 pi i k / n) times the scale for k up to n / 2, as columns."""
    cosine, sine = [scale * f.reshape(-1, 1) for f in roots(np.arange(n // 2 + 1), n)]
    return constant(cosine, dtype, device), constant(sign * sine, dtype, device)


def _halves(n: int, scale: float, x: UOp, sign: int, device: str) -> Point:
    return _half_table(n, scale, sign, x.dtype, device)


# -- to real numbers -------------------------------------------------------------------------------


def _half_odd(z: UOp, n: int, scale: float, device: str) -> UOp:
    re, im = _conjugate_ends(z, n)
    rest = [slice_axis(part, 1, 1, n // 2 + 1) for part in (re, im)]
    back_re, back_im = [B.flip(part, (1,)) for part in rest]
    whole = [B.cat([re, back_re], 1), B.cat([im, B.unary(O.NEG, back_im)], 1)]
    return _parts(transform(stacked(whole, 3), 1, scale, device))[0]


def _half_even(z: UOp, n: int, scale: float, device: str) -> UOp:
    """The way of `_real_even` back."""
    h = n // 2
    re, im = _conjugate_ends(z, n)
    back_re, back_im = [slice_axis(B.flip(part, (1,)), 1, 0, h) for part in (re, im)]
    re, im = [slice_axis(part, 1, 0, h) for part in (re, im)]
    cosine, sine = [slice_axis(t, 0, 0, h) for t in _halves(n, 1.0, z, 1, device)]
    odd = times((_minus(re, back_re), _plus(im, back_im)), cosine, sine)
    pairs = stacked([_minus(_plus(re, back_re), odd[1]), _plus(_minus(im, back_im), odd[0])], 3)
    a, _, s, _ = z.shape
    return B.reshape(transform(pairs, 1, scale, device, is_split=True), (a, n, s))


def _conjugate_ends(z: UOp, n: int) -> Point:
    """The parts, with the numbers that are their own conjugates made real."""
    re, im = _parts(z)
    stop = n // 2 + n % 2
    inner = slice_axis(im, 1, 1, max(stop, 1))
    return re, B.pad(inner, ((0, 0), (1, n // 2 + 1 - max(stop, 1)), (0, 0)))


def _parts(z: UOp) -> Point:
    shape = z.shape[:-1]
    re, im = [B.reshape(slice_axis(z, 3, c, c + 1), shape) for c in (0, 1)]
    return re, im


def _plus(a: UOp, b: UOp) -> UOp:
    return B.binary(O.ADD, a, b)


def _minus(a: UOp, b: UOp) -> UOp:
    return B.binary(O.SUB, a, b)


def _times(a: UOp, b: UOp) -> UOp:
    return B.binary(O.MUL, a, b)
