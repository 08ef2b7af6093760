"""Functions of float32 that are computed in float64 and rounded once at the end.

Powers and inverse hyperbolic functions lose several places when their parts are rounded to float32;
in float64 plain formulas with short polynomials are enough, and the exponent range leaves no
special cases for overflow and subnormal results. The remainder is exact.
"""

from __future__ import annotations

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
    rarely,
    sign_bit,
    signed_bits,
    square_root,
    truncate,
    unsigned_bits,
    where,
    with_sign,
)
from svod.dtype import types as dt

_MAGIC = 1.5 * 2.0**52  # added to a small float64, rounds it and leaves the integer in the low bits
_ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)
_ROOT_HALF_F32 = 0x3F3504F3
_TINY, _ONE, _INFINITE = 0x39800000, 0x3F800000, 0x7F800000  # bits of 2**-12, 1 and infinity
_NORMAL = 0x00800000  # of the smallest normal float32
_LN2, _LOG2E = 0.69314718055994530942, 1.44269504088896340736

# log((1+s)/(1-s)) / s for (1+s)/(1-s) in [sqrt(1/2), sqrt(2)], and in [0.66, 1.51]
_LOG = (2.0000000000084457, 0.6666666523558884, 0.4000038682994318, 0.2853492863640121,
        0.236185121358884)  # fmt: skip
_LOG_OF_QUOTIENT = (2.000000000042038, 0.6666666147968794, 0.4000102076375091, 0.285013675099729,
                    0.2416698931074121)  # fmt: skip
# log2((1+s)/(1-s)) / s for the first range
_LOG2 = (2.885390081790092, 0.9617966733064461, 0.5770835917253568, 0.41167234282357323,
         0.3407364615738645)  # fmt: skip
# (2**r - 1) / r for |r| <= 1/2
_EXP2 = (0.6931472031157344, 0.2402264788009813, 0.05550331853607097, 0.009618439844255184,
         0.0013399132690427164, 0.00015353154796321285)  # fmt: skip


def asinh(x: Term) -> Term:
    a = absolute(x)
    wide = cast(a, dt.float64)
    exponent, log = _split_log(wide + square_root(fma(wide, wide, 1.0)))
    y = cast(fma(exponent, _LN2, log), dt.float32)
    tiny = fma(a * a, a * (-1.0 / 6.0), a)
    y = rarely(_outside(a, _TINY, _INFINITE), where(a < 1.0, tiny, a), y)
    return with_sign(y, x)


def acosh(x: Term) -> Term:
    wide = cast(x, dt.float64)
    exponent, log = _split_log(wide + square_root(fma(wide, wide, -1.0)))
    y = cast(fma(exponent, _LN2, log), dt.float32)
    return rarely(_outside(x, _ONE, _INFINITE), where(x.equals(INFINITY), x, NAN), y)


def atanh(x: Term) -> Term:
    # (1 + a) / (1 - a) = 2**n * (1 + s) / (1 - s) with one division: the difference of the bits is
    # near enough to the logarithm to find n, and 2**n (1 - a) is exact.
    a = absolute(x)
    wide = cast(a, dt.float64)
    over, under = 1.0 + wide, 1.0 - wide
    bits = unsigned_bits(over) - unsigned_bits(under) + ((1023 << 52) + (1 << 51))
    under = under * as_float(bits & (0x7FF << 52))
    s = (over - under) / (over + under)
    log = s * horner(s * s, _LOG_OF_QUOTIENT)
    y = cast(fma(_upper_bits(bits), _LN2, log) * 0.5, dt.float32)
    tiny = fma(a * a, a * (1.0 / 3.0), a)
    beyond = where(a.equals(1.0), a.like(INFINITY), NAN)
    return with_sign(rarely(_outside(a, _TINY, _ONE), where(a < 1.0, tiny, beyond), y), x)


def _outside(a: Term, start: int, end: int) -> Term:
    """Whether a is not between two positive floats, given as bits; negative values are outside."""
    return unsigned_bits(a) - start >= end - start


def power(x: Term, y: Term) -> Term:
    """x**y as in C: 1 for y = 0 and for x = 1, whatever the other is."""
    a = absolute(x)
    wide_y = cast(y, dt.float64)
    size = _exp2(wide_y * _log2(a))
    infinite = ~(absolute(y) < INFINITY)
    unusual = infinite | _outside(a, _NORMAL, _INFINITE)
    signed = power_sign(x, y, rarely(unusual, _any_power(a, wide_y), size))
    return rarely(infinite | _outside(x, _NORMAL, _INFINITE), signed, size)


def _any_power(a: Term, y: Term) -> Term:
    """a**y where a may be 0, subnormal, infinite or NaN, and y anything."""
    wide = cast(a, dt.float64)
    exponent, log = _split_log(wide)
    log2 = where(a < INFINITY, fma(log, _LOG2E, exponent), wide)  # a NaN passes on
    log2 = where(a.equals(0.0), -INFINITY, log2)
    product = where(a.equals(1.0), 0.0, y * log2)
    return where(product.equals(product), _exp2(product), a.like(NAN))


def _log2(a: Term) -> Term:
    """log2(a) in float64 for a normal a, to about 2**-37 of its size."""
    bits = signed_bits(a) - _ROOT_HALF_F32
    f = cast(as_float((bits & ((1 << 23) - 1)) + _ROOT_HALF_F32) - 1.0, dt.float64)
    s = f / (f + 2.0)
    return fma(s, horner(s * s, _LOG2), cast(bits >> 23, dt.float64))


def _exp2(x: Term) -> Term:
    """2**x of float64, as float32."""
    bounded = at_least(-200.0, at_most(200.0, x))
    shifted = bounded + _MAGIC
    r = bounded - (shifted - _MAGIC)
    size = fma(horner(r, _EXP2), r, 1.0)
    return cast(as_float(signed_bits(size) + (signed_bits(shifted) << 52)), dt.float32)


def remainder(x: Term, y: Term) -> Term:
    """x - y * trunc(x / y), exactly."""
    a, b = absolute(x), absolute(y)
    unusual, rest = short_remainder(a, b, 2.0**23)
    return with_sign(rarely(unusual, _long_remainder(a, b), rest), x)


def short_remainder(a: Term, b: Term, limit: float) -> tuple[Term, Term]:
    """Where a rest takes more than one step, and the rest elsewhere.

    A quotient below ``limit``, of as many bits as a mantissa, is at most one too large once it is
    rounded and cut. Its multiple of b leaves a multiple of b's last place, smaller than b: exact.
    """
    quotient = a / b
    rest = fma(-truncate(quotient), b, a)
    rest = where(rest < 0.0, rest + b, rest)
    return ~((quotient < limit) & (b < INFINITY)), rest


def _long_remainder(a: Term, b: Term) -> Term:
    """The remainder of what is not negative, in float64.

    Multiples of b * 2**shift are taken away for falling shifts: every partial quotient has at
    most 28 bits, and every rest has few enough bits to be exact. A quotient that rounding made
    one too large leaves a small negative rest, which the following steps take back.
    """
    rest, size = cast(a, dt.float64), cast(b, dt.float64)
    inverse = 1.0 / size
    for shift in range(252, -1, -28):
        count = truncate(rest * (inverse * 2.0**-shift))
        rest = fma(-count, size * 2.0**shift, rest)
    rest = where(rest < 0.0, rest + size, rest)
    rest = where(rest >= size, rest - size, rest)
    return where(b.equals(INFINITY) & (a < INFINITY), a, cast(rest, dt.float32))


def _split_log(x: Term) -> tuple[Term, Term]:
    """Exponent n and log(m) of x = 2**n * m > 0, a normal float64, with m near 1."""
    bits = unsigned_bits(x) + ((1023 << 52) - _ROOT_HALF)
    m = as_float((bits & ((1 << 52) - 1)) + _ROOT_HALF)
    s = (m - 1.0) / (m + 1.0)
    return _upper_bits(bits), s * horner(s * s, _LOG)


def _upper_bits(bits: Term) -> Term:
    """The biased exponent that the upper bits hold, as a float without the bias."""
    # The integer enters the low bits of 2**52, whose last place is 1.
    return as_float((bits >> 52) | (1075 << 52)) - (2.0**52 + 1023.0)


def power_sign(x: Term, y: Term, size: Term) -> Term:
    """The power from the power of |x|: signs, domain and the cases that are always 1."""
    whole = truncate(y).equals(y)
    half = y * 0.5
    odd = whole & truncate(half).differs(half)
    sign = where(odd, sign_bit(x), 0)
    result = as_float(unsigned_bits(size) | sign)
    outside = (x < 0.0) & (x > -INFINITY) & ~whole
    result = where(outside, NAN, result)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, result)
