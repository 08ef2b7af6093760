"""Functions of float32 as formulas over basic ops.

Each is one straight line of vector code: a range reduction, a polynomial, and selects for the
special values. The comment above a formula gives its largest error in units of the last place,
measured on machine code, and the reason for its shape. Coefficients are minimax fits made for
these ranges, rounded to float32 one after the other with the rest fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from svod.codegen.formula import (
    INFINITY,
    NAN,
    Term,
    absolute,
    as_float,
    at_least,
    at_most,
    cast,
    fma,
    horner,
    sign_bit,
    signed_bits,
    square_root,
    unsigned_bits,
    where,
    with_sign,
)
from svod.dtype import types as dt
from svod.ir import ops as O

_MAGIC = 1.5 * 2.0**23  # added to a small float, rounds it and leaves the integer in the low bits
_LN2_HIGH, _LN2_LOW = 0.693147182464599609375, -1.904654299957767878541823431924e-9
_LOG2E = 1.44269504088896340736
_LOG2E_HIGH, _LOG2E_LOW = 1.44269502162933349609375, 1.92596299112661746887e-8

# (exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166828840970993, 0.008368703536689281,
        0.0013818938750773668)  # fmt: skip
# (2**r - 1) / r for |r| <= 1/2
_EXP2 = (0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618504904210567,
         0.0013391025131568313, 0.0001532719616079703)  # fmt: skip
# (log(1+f) - f + f**2/2) / f**3 for 1+f in [sqrt(1/2), sqrt(2)]
_LOG = (0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263,
        0.14201582968235016, -0.131596177816391, 0.1276218742132187,
        -0.07636363804340363)  # fmt: skip
# (sin(r)/r - 1) / z and (cos(r) - 1 + z/2) / z**2 with z = r**2
_SIN = (-0.1666666716337204, 0.008333355188369751, -0.00019842687470372766,
        2.728541630858672e-06)  # fmt: skip
_COS = (0.0416666679084301, -0.0013888938119634986, 2.4806440706015565e-05,
        -2.7469846486383176e-07)  # fmt: skip
# tanh(x)/x as a quotient of polynomials in x**2, for |x| <= 9
_TANH_OVER = (1.0, 0.13786961819796864, 0.0040105215020938825, 3.163126629890117e-05,
              5.090122755776011e-08)  # fmt: skip
_TANH_UNDER = (1.0, 0.4712029453478262, 0.027744848675527144, 0.00042109937915614276,
               1.6206637445324642e-06, 7.401291002956117e-10)  # fmt: skip
# erf(x)/x - 1 in x**2 for |x| <= 1, and log2(1 - erf(x)) for 1 <= x <= 3.95
_ERF_SMALL = (0.12837916612625122, -0.3761262595653534, 0.11283578723669052, -0.026853347197175026,
              0.005187162198126316, -0.0007997853099368513, 7.806903158780187e-05)  # fmt: skip
_ERF_LARGE = (-0.0004896329483017325, -1.6260581016540527, -0.9206289052963257,
              -0.14876797795295715, 0.03151325136423111, -0.004254407249391079,
              0.0002690696273930371)  # fmt: skip


def reciprocal(x: Term) -> Term:
    return 1.0 / x


def reciprocal_root(x: Term) -> Term:
    return 1.0 / square_root(x)


def exp(x: Term) -> Term:
    # exp(x) = 2**n * exp(r), x = n*ln(2) + r. Below -104 the result is 0.
    bounded = at_least(-104.0, x)
    shifted = fma(bounded, _LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, bounded))
    y = fma(horner(r, _EXP), r * r, r) + 1.0
    y = _scale(y, shifted, bounded < -86.0)
    return where(x < 88.72284, y, x * INFINITY)


def exp2(x: Term) -> Term:
    bounded = at_least(-151.0, x)
    shifted = bounded + _MAGIC
    r = bounded - (shifted - _MAGIC)
    y = _scale(fma(horner(r, _EXP2), r, 1.0), shifted, bounded < -125.0)
    return where(x < 128.0, y, x * INFINITY)


def log(x: Term) -> Term:
    exponent, f = _split(x)
    z = f * f
    y = (f * z) * horner(f, _LOG)
    y = fma(z, -0.5, fma(exponent, _LN2_LOW, y))
    return _outside_logarithm(x, fma(exponent, _LN2_HIGH, f + y))


def log2(x: Term) -> Term:
    exponent, f = _split(x)
    z = f * f
    y = fma(z, -0.5, (f * z) * horner(f, _LOG))
    y = fma(f, _LOG2E_HIGH, fma(y, _LOG2E, f * _LOG2E_LOW))
    return _outside_logarithm(x, exponent + y)


def tanh(x: Term) -> Term:
    bounded = at_least(-9.0, at_most(9.0, x))
    z = bounded * bounded
    return (bounded * horner(z, _TANH_OVER)) / horner(z, _TANH_UNDER)


def erf(x: Term) -> Term:
    # An odd polynomial up to 1; beyond, 1 - 2**q(|x|), whose error counts little in the difference.
    a = absolute(x)
    z = x * x
    small = fma(x, horner(z, _ERF_SMALL), x)
    q = horner(at_most(3.95, a), _ERF_LARGE)
    shifted = q + _MAGIC
    r = q - (shifted - _MAGIC)
    y = fma(horner(r, _EXP2), r, 1.0)
    large = 1.0 - as_float(signed_bits(y) + (signed_bits(shifted) << 23))
    return where(a >= 1.0, with_sign(large, x), small)  # a NaN is small


def sin(x: Term) -> Term:
    quadrant, r = _reduce(absolute(x))
    r32 = cast(r, dt.float32)
    bits = _sine_or_cosine(quadrant, r32)
    return as_float(unsigned_bits(bits) ^ sign_bit(x))


def cos(x: Term) -> Term:
    quadrant, r = _reduce(absolute(x))
    return _sine_or_cosine(quadrant + 1, cast(r, dt.float32))


def _sine_or_cosine(quadrant: Term, r: Term) -> Term:
    """sin(r + quadrant * pi/2)."""
    z = r * r
    sine = fma(r * z, horner(z, _SIN), r)
    cosine = fma(z * z, horner(z, _COS), fma(z, -0.5, 1.0))
    y = where((quadrant & 1).equals(0), sine, cosine)
    return as_float(signed_bits(y) ^ ((quadrant & 2) << 30))


def _scale(y: Term, shifted: Term, tiny: Term) -> Term:
    """y * 2**n, with n in the low bits of ``shifted``; y in [1/2, 2].

    The exponent is added to the bits. Where the result may be subnormal (``tiny``) it is made 2**64
    times too large first, so that the last step is a multiplication that rounds.
    """
    exponent = signed_bits(shifted) << 23
    exponent = where(tiny, exponent + (64 << 23), exponent)
    scaled = as_float(signed_bits(y) + exponent)
    return where(tiny, scaled * 2.0**-64, scaled)


def _split(x: Term) -> tuple[Term, Term]:
    """x > 0 as 2**exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]."""
    base = 0x3F3504F3  # bits of sqrt(1/2)
    subnormal = x < 2.0**-126
    bits = signed_bits(where(subnormal, x * 2.0**23, x))
    bits = bits - where(subnormal, bits.like(base + (23 << 23)), base)
    exponent = cast(bits >> 23, dt.float32)
    return exponent, as_float((bits & 0x7FFFFF) + base) - 1.0


def _outside_logarithm(x: Term, y: Term) -> Term:
    """The logarithm y of x, put right for x that is zero, negative, infinite or NaN."""
    y = where(x > 0.0, y, where(x.equals(0.0), x.like(-INFINITY), NAN))
    return where(x.equals(INFINITY), x, y)


# -- reduction of angles -----------------------------------------------------------------------

_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0
_TWO_OVER_PI_BITS = 320
_MAGIC_F64 = 1.5 * 2.0**52


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


FUNCTIONS: dict[int, Callable[..., Term]] = {
    O.RECIP: reciprocal,
    O.RSQRT: reciprocal_root,
    O.EXP: exp,
    O.EXP2: exp2,
    O.LOG: log,
    O.LOG2: log2,
    O.SIN: sin,
    O.COS: cos,
    O.TANH: tanh,
    O.ERF: erf,
}
