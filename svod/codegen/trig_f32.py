"""Sine, cosine, tangent and arc tangent of float32.

Angles below 2**17 are reduced by pi/2 in three parts. Beyond, float64 arithmetic is right for every
finite float32, at the cost of a few selects; vectors without such an angle branch over it. The
polynomials run in float32, except for the tangent, whose quotient is taken in float64.
"""

from __future__ import annotations

import math

from svod.codegen.formula import (
    Term,
    absolute,
    as_float,
    cast,
    fma,
    horner,
    rarely,
    sign_bit,
    signed_bits,
    unsigned_bits,
    where,
    with_sign,
)
from svod.dtype import types as dt

# (sin(r)/r - 1) / z and (cos(r) - 1 + z/2) / z**2 with z = r**2
_SIN = (-0.1666666716337204, 0.008333355188369751, -0.00019842687470372766,
        2.728541630858672e-06)  # fmt: skip
_COS = (0.0416666679084301, -0.0013888938119634986, 2.4806440706015565e-05,
        -2.7469846486383176e-07)  # fmt: skip
# tan(r)/r as a quotient of polynomials in z
_TAN_OVER = (1.000000000259056, -0.11151254194813687, 0.0010856518823479024)
_TAN_UNDER = (1.0, -0.4448458636121124, 0.016034189358211492)
# (atan(t)/t - 1) / t**2 for |t| <= 1
_ATAN = (-0.33333298563957214, 0.1999853104352951, -0.14264051616191864, 0.10951174795627594,
         -0.08400475233793259, 0.05790654569864273, -0.031127002090215683, 0.010887361131608486,
         -0.0017875476041808724)  # fmt: skip
_HALF_PI, _HALF_PI_LOW = 1.57079637050628662109375, -4.37113900018624283e-8


def sin(x: Term) -> Term:
    return _turned(absolute(x), 0, signed_bits(x))


def cos(x: Term) -> Term:
    return _turned(absolute(x), 1, None)


def _turned(a: Term, turn: int, sign: Term | None) -> Term:
    """sin(a + turn * pi/2) for a >= 0, with the other sign where the bits ``sign`` have one."""
    quadrant, r = _reduce(a)
    far = _sine_or_cosine(quadrant, cast(r, dt.float32), turn, sign)
    return rarely(a >= _FAR, far, _sine_or_cosine(*_reduce_small(a), turn, sign))


def tan(x: Term) -> Term:
    a = absolute(x)
    y = rarely(a >= _FAR, _tangent(*_reduce(a)), _tangent(*_reduce_small_wide(a)))
    return as_float(unsigned_bits(y) ^ sign_bit(x))


def _tangent(quadrant: Term, r: Term) -> Term:
    z = r * r
    over, under = r * horner(z, _TAN_OVER), horner(z, _TAN_UNDER)
    even = (quadrant & 1).equals(0)
    return cast(where(even, over, -under) / where(even, under, over), dt.float32)


def atan(x: Term) -> Term:
    a = absolute(x)
    large = a > 1.0
    t = where(large, 1.0 / a, a)
    y = _arc(t)
    return with_sign(where(large, _HALF_PI - (y - _HALF_PI_LOW), y), x)


def atan2(y: Term, x: Term) -> Term:
    # The angle of the point (x, y) from the quotient that is at most 1, turned into its octant.
    a, b = absolute(x), absolute(y)
    steep = b > a
    over, under = where(steep, a, b), where(steep, b, a)
    t = over / under
    t = where(over.equals(under), where(over.equals(0.0), over, 1.0), t)
    angle = _arc(t)
    angle = where(steep, _HALF_PI - (angle - _HALF_PI_LOW), angle)
    behind = signed_bits(x) < 0  # -0 too
    angle = where(behind, 2.0 * _HALF_PI - (angle - 2.0 * _HALF_PI_LOW), angle)
    return with_sign(angle, y)


def _arc(t: Term) -> Term:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, horner(z, _ATAN), t)


def _sine_or_cosine(quadrant: Term, r: Term, turn: int, sign: Term | None) -> Term:
    z = r * r
    sine = fma(r * z, horner(z, _SIN), r)
    cosine = fma(z * z, horner(z, _COS), fma(z, -0.5, 1.0))
    y = where((quadrant & 1).equals(turn), sine, cosine)
    flips = ((quadrant + 1) if turn else quadrant) << 30
    flips = flips if sign is None else flips ^ sign
    return as_float(signed_bits(y) ^ (flips & -(1 << 31)))


# -- reduction of angles -----------------------------------------------------------------------

_FAR = 2.0**17
_MAGIC = 1.5 * 2.0**23
_PARTS = (1.57079637050628662109375, -4.371138828673793e-08, -1.7151245100058819e-15)  # of pi/2


def _reduce_small(a: Term) -> tuple[Term, Term]:
    """0 <= a < 2**17 as quadrant * pi/2 + r: the quadrant in the low bits of an int32, and r.

    The first step is exact: it leaves a multiple of 2**-24 below 1.
    """
    shifted = fma(a, 2.0 / math.pi, _MAGIC)
    r, n = a, shifted - _MAGIC
    for part in _PARTS:
        r = fma(n, -part, r)
    return signed_bits(shifted), r


def _reduce_small_wide(a: Term) -> tuple[Term, Term]:
    """The same in float64."""
    x = cast(a, dt.float64)
    shifted = fma(x, 2.0 / math.pi, _MAGIC_F64)
    n = shifted - _MAGIC_F64
    r = fma(n, -_LOW_F64, fma(n, -math.pi / 2, x))
    return signed_bits(shifted), r


_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0
_TWO_OVER_PI_BITS = 320
_MAGIC_F64 = 1.5 * 2.0**52
_LOW_F64 = 6.123233995736766e-17  # of pi/2


def _two_over_pi(start: int | None) -> tuple[float, float]:
    """2/pi as the sum of two float64, without the bits that only add full turns to x * 2/pi.

    For |x| >= 2**start every float32 is a multiple of 2**(start - 23), so what 2/pi has above
    2**(25 - start) contributes multiples of 4 quadrants.
    """
    value, one = _TWO_OVER_PI, 1 << _TWO_OVER_PI_BITS
    if start is not None:
        period = 1 << (_TWO_OVER_PI_BITS + 25 - start)
        value %= period
        value -= period if 2 * value > period else 0
    high = value / one
    return high, (value - int(math.ldexp(high, _TWO_OVER_PI_BITS))) / one


_STARTS = (None, 50, 76, 102)
_CHUNKS = tuple([_two_over_pi(start) for start in _STARTS])


def _reduce(a: Term) -> tuple[Term, Term]:
    """a >= 0 as quadrant * pi/2 + r: the quadrant modulo 4, and r in float64, |r| < 0.99.

    Exact enough for every float32: the product with 2/pi keeps 106 bits below the full turns, so r
    has an error of at most 2**-55, and no float32 is nearer than 2**-30 to a multiple of pi/2.
    """
    x = cast(a, dt.float64)
    high, low = x.like(_CHUNKS[0][0]), x.like(_CHUNKS[0][1])
    for start, chunk in zip(_STARTS[1:], _CHUNKS[1:], strict=True):
        assert start is not None
        beyond = a >= 2.0**start
        high, low = where(beyond, chunk[0], high), where(beyond, chunk[1], low)
    product = x * high
    error = fma(x, high, -product)
    shifted = product + _MAGIC_F64
    whole = shifted - _MAGIC_F64
    fraction = (product - whole) + fma(x, low, error)
    return cast(signed_bits(shifted), dt.int32), fraction * (math.pi / 2)
