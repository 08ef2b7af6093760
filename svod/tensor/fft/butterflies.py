"""Butterflies: Fourier transforms of a few points, written out as additions and products.

A point is a pair of nodes of equal shapes, its real and imaginary part. The transform of ``r``
points is a list of ``r`` such pairs made of sums, differences and products with constants; the
stages of a longer transform (svod.tensor.fft.dft_graph) are made of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const

Point = tuple[UOp, UOp]
LARGEST_PRIME = 13  # written out; the work grows with its square


def roots(exponents: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of 2 pi e / n for whole numbers e, each correct to about its last place.

    The angle is brought below an eighth of a turn by arithmetic on whole numbers.
    """
    e = np.asarray(exponents, np.int64) % n
    is_below = 2 * e > n
    e = np.where(is_below, n - e, e)  # the upper half of the circle
    is_left = 4 * e > n
    half = np.where(is_left, n - 2 * e, 2 * e)  # the first quarter, counted in 1 / 2n
    is_steep = 4 * half > n
    angle = np.where(is_steep, n - 2 * half, 2 * half) * (np.pi / (2 * n))
    near, far = np.cos(angle), np.sin(angle)
    cosine = np.where(is_steep, far, near)
    sine = np.where(is_steep, near, far)
    return np.where(is_left, -cosine, cosine), np.where(is_below, -sine, sine)


def small_transform(points: Sequence[Point], sign: int) -> list[Point]:
    """The transform of a few points: sum over j of x_j exp(sign * 2 pi i j k / r)."""
    r = len(points)
    if r == 1:
        return list(points)
    if r == 2:
        return [_plus(points[0], points[1]), _minus(points[0], points[1])]
    if r == 4:
        return _four(points, sign)
    first = _first_factor(r)
    if first == r:
        return _prime(points, sign)
    return _composed(points, first, sign)


def times(point: Point, cosine: UOp, sine: UOp) -> Point:
    """A point times another complex number."""
    re, im = point
    return (
        _sub(_mul(re, cosine), _mul(im, sine)),
        _add(_mul(re, sine), _mul(im, cosine)),
    )


def _first_factor(r: int) -> int:
    if r % 4 == 0:
        return 4
    return next((p for p in range(2, r) if r % p == 0), r)


def _composed(points: Sequence[Point], first: int, sign: int) -> list[Point]:
    """r = first * rest: transforms of ``first`` points, factors, transforms of the rest."""
    r = len(points)
    rest = r // first
    columns = [small_transform(points[m::rest], sign) for m in range(rest)]
    found: list[Point] = [points[0]] * r
    for k in range(first):
        row = [_turned(columns[m][k], k * m, r, sign) for m in range(rest)]
        for q, point in enumerate(small_transform(row, sign)):
            found[k + first * q] = point
    return found


def _four(points: Sequence[Point], sign: int) -> list[Point]:
    a, b = _plus(points[0], points[2]), _minus(points[0], points[2])
    c, d = _plus(points[1], points[3]), _minus(points[1], points[3])
    ahead = (_sub(b[0], d[1]), _add(b[1], d[0]))  # b + i d
    behind = (_add(b[0], d[1]), _sub(b[1], d[0]))
    odd = (ahead, behind) if sign > 0 else (behind, ahead)
    return [_plus(a, c), odd[0], _minus(a, c), odd[1]]


def _prime(points: Sequence[Point], sign: int) -> list[Point]:
    """An odd number of points: x_j and x_(r-j) go together, so do results k and r - k."""
    r = len(points)
    half = r // 2
    cosines, sines = roots(np.arange(r), r)
    sums = [_plus(points[j], points[r - j]) for j in range(1, half + 1)]
    gaps = [_minus(points[j], points[r - j]) for j in range(1, half + 1)]
    total = points[0]
    for s in sums:
        total = _plus(total, s)
    found: list[Point] = [total] * r
    for k in range(1, half + 1):
        even, odd = points[0], None
        for j in range(1, half + 1):
            place = j * k % r
            even = _plus(even, _scaled(sums[j - 1], float(cosines[place])))
            part = _scaled(gaps[j - 1], sign * float(sines[place]))
            odd = part if odd is None else _plus(odd, part)
        assert odd is not None
        found[k] = (_sub(even[0], odd[1]), _add(even[1], odd[0]))  # even + i odd
        found[r - k] = (_add(even[0], odd[1]), _sub(even[1], odd[0]))
    return found


def _turned(point: Point, exponent: int, n: int, sign: int) -> Point:
    """A point times exp(sign * 2 pi i exponent / n)."""
    eighth = 8 * (sign * exponent % n)
    re, im = point
    if eighth % n == 0:
        quarter = eighth // n
        if quarter == 0:
            return point
        if quarter == 2:
            return _neg(im), re
        if quarter == 4:
            return _neg(re), _neg(im)
        if quarter == 6:
            return im, _neg(re)
        scale = sqrt(0.5)
        total, gap = _scale(_add(re, im), scale), _scale(_sub(re, im), scale)
        if quarter == 1:
            return gap, total
        if quarter == 3:
            return _neg(total), gap
        if quarter == 5:
            return _neg(gap), _neg(total)
        return total, _neg(gap)
    cosine, sine = roots(np.array(sign * exponent), n)
    return times(point, const(float(cosine), re.dtype), const(float(sine), re.dtype))


def _plus(a: Point, b: Point) -> Point:
    return _add(a[0], b[0]), _add(a[1], b[1])


def _minus(a: Point, b: Point) -> Point:
    return _sub(a[0], b[0]), _sub(a[1], b[1])


def _scaled(a: Point, factor: float) -> Point:
    return _scale(a[0], factor), _scale(a[1], factor)


def _scale(x: UOp, factor: float) -> UOp:
    return _mul(x, const(factor, x.dtype))


def _add(a: UOp, b: UOp) -> UOp:
    return B.binary(O.ADD, a, b)


def _sub(a: UOp, b: UOp) -> UOp:
    return B.binary(O.SUB, a, b)


def _mul(a: UOp, b: UOp) -> UOp:
    return B.binary(O.MUL, a, b)


def _neg(x: UOp) -> UOp:
    return B.unary(O.NEG, x)
