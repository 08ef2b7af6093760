"""Sine, cosine, tangent and arc tangent of float64.

Angles below 2**17 are reduced by pi/2 in three parts. Beyond, integer arithmetic takes as many bits
of 2/pi as the argument's exponent asks for, so the results are right for every finite float64;
vectors without such an angle branch over it. Reduced angles are pairs of floats, the second one
carrying what the first one lost by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from svod.codegen.formula import (
    INFINITY,
    Term,
    absolute,
    as_float,
    cast,
    fma,
    greater_integer,
    horner,
    rarely,
    sign_bit,
    signed_bits,
    unsigned_bits,
    where,
    with_sign,
)
from svod.dtype import types as dt

# (sin(r)/r - 1) / z and (cos(r) - 1 + z/2) / z**2 with z = r**2, for |r| <= pi/4
_SIN = (-0.16666666666666666, 0.008333333333333321, -0.00019841269841253893,
        2.755731921358904e-06, -2.505210475666875e-08, 1.605834706279643e-10,
        -7.577734717849798e-13)  # fmt: skip
_COS = (0.04166666666666659, -0.001388888888887209, 2.4801587288234505e-05,
        -2.7557313997320695e-07, 2.087567563781569e-09, -1.1357208713093587e-11)  # fmt: skip
# (atan(t)/t - 1) / t**2 for |t| <= tan(pi/8)
_ATAN = (-0.3333333333333319, 0.1999999999995282, -0.14285714280121303, 0.11111110779798117,
         -0.09090897655061235, 0.07692058429989304, -0.06663084165055416, 0.058477471330178055,
         -0.050386737647294955, 0.03804874262187119, -0.01789008935688979)  # fmt: skip
_HALF_PI, _HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
_TAN_EIGHTH = 0.41421356237309503  # tan(pi/8)


def sin(x: Term) -> Term:
    y = _of_angle(absolute(x), partial(_sine_or_cosine, 0))
    return as_float(unsigned_bits(y) ^ sign_bit(x))


def cos(x: Term) -> Term:
    return _of_angle(absolute(x), partial(_sine_or_cosine, 1))


def tan(x: Term) -> Term:
    y = _of_angle(absolute(x), _tangent)
    return as_float(unsigned_bits(y) ^ sign_bit(x))


def _tangent(quadrant: Term, high: Term, low: Term) -> Term:
    # The quotient of sine and cosine, each a value and its correction.
    sine, cosine = _parts(high, low)
    odd = (quadrant & 1).differs(0)
    over, over_low = [where(odd, -c, s) for s, c in zip(sine, cosine, strict=True)]
    under, under_low = [where(odd, s, c) for s, c in zip(sine, cosine, strict=True)]
    inverse = 1.0 / (under + under_low)
    y = (over + over_low) * inverse
    rest = fma(-y, under, over) + fma(-y, under_low, over_low)
    return where(y.equals(0.0), y, fma(rest, inverse, y))


def atan(x: Term) -> Term:
    a = absolute(x)
    return with_sign(_angle(a, a.like(1.0)), x)


def atan2(y: Term, x: Term) -> Term:
    a, b = absolute(x), absolute(y)
    # Only the direction counts: neither the sum nor a product of the two may leave the range.
    larger = where(a > b, a, b)
    unit = where(
        larger > 2.0**900, a.like(2.0**-100), where(larger < 2.0**-900, 2.0**100, a.like(1.0))
    )
    angle = _angle(b * unit, a * unit)
    angle = where(b.equals(0.0), where(a.equals(a), 0.0, a), angle)
    diagonal = a.equals(INFINITY) & b.equals(INFINITY)
    angle = where(diagonal, 0.5 * _HALF_PI, angle)
    behind = signed_bits(x) < 0  # -0 too
    angle = where(behind, 2.0 * _HALF_PI - (angle - 2.0 * _HALF_PI_LOW), angle)
    return with_sign(angle, y)


def _angle(b: Term, a: Term) -> Term:
    """The angle of the point (a, b) in the first quadrant, from the eighth turn nearest to it."""
    low, high = b <= a * _TAN_EIGHTH, b * _TAN_EIGHTH > a
    over = where(low, b, where(high, -a, b - a))
    under = where(low, a, where(high, b, a + b))
    base = where(low, a.like(0.0), where(high, a.like(_HALF_PI), 0.5 * _HALF_PI))
    rest = where(low, a.like(0.0), where(high, a.like(_HALF_PI_LOW), 0.5 * _HALF_PI_LOW))
    t = over / under
    z = t * t
    return base + (t + fma(t * z, horner(z, _ATAN), rest))


def _sine_or_cosine(turn: int, quadrant: Term, high: Term, low: Term) -> Term:
    """sin(r + (quadrant + turn) * pi/2) for the pair r."""
    sine, cosine = _parts(high, low)
    y = where((quadrant & 1).equals(turn), sine[0] + sine[1], cosine[0] + cosine[1])
    return as_float(signed_bits(y) ^ (((quadrant + turn if turn else quadrant) & 2) << 62))


def _parts(high: Term, low: Term) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
    """Sine and cosine of the pair r, each a value and a correction."""
    z = high * high
    half = z * 0.5
    sine_low = fma(high * z, horner(z, _SIN), fma(low, -half, low))
    flat = 1.0 - half
    cosine_low = fma(z * z, horner(z, _COS), fma(-high, low, (1.0 - flat) - half))
    return (high, sine_low), (flat, cosine_low)


# -- reduction of angles -----------------------------------------------------------------------

_FAR = 2.0**17
_MAGIC = 1.5 * 2.0**52
_SECOND_PART, _THIRD_PART = 6.123233995707727e-17, 2.9038559739793605e-28  # of pi/2; 36 and 53 bits


def _of_angle(a: Term, function: Callable[[Term, Term, Term], Term]) -> Term:
    """A function of the quadrant and the reduced angle of a >= 0."""
    return rarely(a >= _FAR, function(*_reduce(a)), function(*_reduce_small(a)))


def _reduce_small(a: Term) -> tuple[Term, Term, Term]:
    """0 <= a < 2**17 as quadrant * pi/2 + r: the quadrant in the low bits, and the pair r.

    The first step is exact: it leaves a multiple of 2**-53 below 1. So is the second product, and
    the difference of the two where they nearly cancel.
    """
    shifted = fma(a, 2.0 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    rest = fma(n, -_HALF_PI, a)
    second = n * _SECOND_PART
    high = rest - second
    low = fma(n, -_THIRD_PART, (rest - high) - second)
    return signed_bits(shifted), high, low


_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea"
    "09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b"
    "1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f7"
    "8a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
_WORDS = tuple([(_TWO_OVER_PI >> (1280 - 64 * i)) & ((1 << 64) - 1) for i in range(20)])


def _reduce(a: Term) -> tuple[Term, Term, Term]:
    """a >= 0 as quadrant * pi/2 + r: the quadrant modulo 4 (int64), and the pair r.

    a is an integer of 53 bits times a power of two. The bits of 2/pi that only add full turns to
    the product are skipped: 192 bits follow, of which the product keeps 128. So r has an absolute
    error below 2**-120, and no float64 is nearer than 2**-62 to a multiple of pi/2.
    """
    bits = unsigned_bits(a)
    skip = greater_integer(signed_bits(bits >> 52) - 1013, 0)  # of 64 zeros and the bits of 2/pi
    window = _window(unsigned_bits(skip))
    top, bottom = _product((bits & ((1 << 52) - 1)) | (1 << 52), window)
    quadrant = signed_bits((top + (1 << 61)) >> 62)
    # The fraction of a quadrant as a signed number: its first 53 bits are exact in a float.
    upper, lower = (top << 2) | (bottom >> 62), bottom << 2
    lower = signed_bits(((upper << 53) | (lower >> 11)) >> 1)
    first = cast(signed_bits(upper) & -(1 << 11), dt.float64) * 2.0**-64
    second = cast(lower, dt.float64) * 2.0**-116
    fraction = first + second
    high = fraction * _HALF_PI
    low = fma(fraction, _HALF_PI, -high) + fma(
        fraction, _HALF_PI_LOW, ((first - fraction) + second) * _HALF_PI
    )
    small = a < 0.5
    high = where(small, a, where(a < INFINITY, high, a - a))
    return where(small, 0, quadrant), high, where(small, 0.0, low)


def _window(skip: Term) -> tuple[Term, Term, Term]:
    """192 bits of the word list from bit ``skip`` on."""
    words = [skip.like(word) for word in _WORDS]
    for step in (8, 4, 2, 1):
        chosen = (skip & (64 * step)).differs(0)
        count = step + 3
        words = [where(chosen, words[i + step], words[i]) for i in range(count)] + words[count:]
    last = skip >= 1024
    words = [where(last, _WORDS[16 + i], words[i]) for i in range(4)]
    shift = skip & 63
    first, second, third = [
        (words[i] << shift) | ((words[i + 1] >> 1) >> (shift ^ 63)) for i in range(3)
    ]
    return first, second, third


def _product(m: Term, window: tuple[Term, Term, Term]) -> tuple[Term, Term]:
    """The first 128 of the last 192 bits of m times the window, the last few bits uncertain."""
    first, second, third = window
    middle = m * second
    bottom = middle + _high_product(m, third)
    carry = cast(bottom < middle, dt.uint64)
    return m * first + _high_product(m, second) + carry, bottom


def _high_product(x: Term, y: Term) -> Term:
    """The upper 64 bits of the product of two unsigned integers."""
    mask = (1 << 32) - 1
    x_low, x_high, y_low, y_high = x & mask, x >> 32, y & mask, y >> 32
    cross = x_high * y_low + ((x_low * y_low) >> 32)
    other = x_low * y_high + (cross & mask)
    return x_high * y_high + (cross >> 32) + (other >> 32)
