"""Exponential, logarithmic and hyperbolic functions, and arc sine, for both float formats.

A formula is one straight line of vector code: a range reduction, a polynomial, and selects for
the special values. It is written once; a ``Format`` holds what differs between float32 and
float64: widths, limits and coefficients. The largest error of every function is in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from svod.codegen.formula import (
    INFINITY,
    NAN,
    Term,
    absolute,
    as_float,
    at_least,
    at_most,
    cast,
    exponent_of,
    fma,
    greater_integer,
    horner,
    ldexp,
    rarely,
    sign_bit,
    signed_bits,
    significand,
    square_root,
    unsigned_bits,
    where,
    with_sign,
)
from svod.dtype import types as dt

LOG2E = 1.44269504088896340736
Coefficients = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """A float format and the polynomials fitted for it; z stands for the square of the argument."""

    mantissa: int  # stored bits
    root_half: int  # bits of sqrt(1/2)
    ln2: tuple[float, float]  # rounded, and what the rounding left
    log_ln2: tuple[float, float]  # rounded down, and what the rounding left
    half_pi: tuple[float, float]
    exp_limits: tuple[float, float, float]  # of x: result 0 below, maybe subnormal below, infinite
    exp2_limits: tuple[float, float, float]
    expm1_floor: float  # below it the result is -1
    sinh_limit: float  # from it on infinite
    sinh_tiny: float  # below it sinh(x) is x
    exp: Coefficients  # (exp(r) - 1) / r for |r| <= ln(2)/2
    exp2: Coefficients  # (2**r - 1) / r for |r| <= 1/2
    sinh: Coefficients  # (sinh(r)/r - 1) / z for |r| <= ln(2)/2
    cosh: Coefficients  # (cosh(r) - 1) / z for |r| <= ln(2)/2
    asin: Coefficients  # (asin(t)/t - 1) / z for |t| <= 0.5625
    log_tail: Callable[[Term], Term]  # log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]
    log2: Callable[[Term, Term], Term]  # log2(2**exponent * (1 + f)) of exponent and f

    @property
    def bias(self) -> int:
        return 127 if self.mantissa == 23 else 1023

    @property
    def magic(self) -> float:
        """Added to a small float, rounds it and leaves the integer in the low bits."""
        return 1.5 * 2.0**self.mantissa


def reciprocal(x: Term) -> Term:
    return 1.0 / x


def reciprocal_root(x: Term) -> Term:
    return 1.0 / square_root(x)


def exp(form: Format, x: Term) -> Term:
    zero, tiny, infinite = form.exp_limits
    bounded = at_least(zero, x)
    shifted, r = reduce_exponent(form, bounded)
    y = scale(form, fma(horner(r, form.exp), r, 1.0), shifted, bounded < tiny)
    return where(x < infinite, y, x + INFINITY)  # a NaN passes on


def exp_by_ldexp(form: Format, x: Term) -> Term:
    """The same bits where LDEXP is one instruction: it rounds, and it overflows by itself."""
    shifted, r = reduce_exponent(form, _within(form.exp_limits, x))
    return ldexp(fma(horner(r, form.exp), r, 1.0), shifted - form.magic)


def exp2(form: Format, x: Term) -> Term:
    zero, tiny, infinite = form.exp2_limits
    bounded = at_least(zero, x)
    shifted = bounded + form.magic
    r = bounded - (shifted - form.magic)
    y = scale(form, fma(horner(r, form.exp2), r, 1.0), shifted, bounded < tiny)
    return where(x < infinite, y, x + INFINITY)


def exp2_by_ldexp(form: Format, x: Term) -> Term:
    bounded = _within(form.exp2_limits, x)
    n = (bounded + form.magic) - form.magic
    r = bounded - n
    return ldexp(fma(horner(r, form.exp2), r, 1.0), n)


def _within(limits: tuple[float, float, float], x: Term) -> Term:
    """x, or what has the same power where that is 0 or infinite; a NaN passes on."""
    return at_most(limits[2] + 1.0, at_least(limits[0], x))


def expm1(form: Format, x: Term) -> Term:
    # With s = 2**n: s*exp(r) - 1 = s*(exp(r) - 1) + (s - 1). Halves keep s finite at the top.
    bounded = at_least(form.expm1_floor, x)
    shifted, r = reduce_exponent(form, bounded)
    p = fma(horner(r, form.exp[1:]), r * r, r)
    half = power_of_two(form, shifted, -1)
    y = fma(half, p, half - 0.5)
    return keep_sign(x, where(x < form.exp_limits[2], y + y, x * INFINITY))


def log(form: Format, x: Term) -> Term:
    exponent, f = split(form, x)
    return outside_logarithm(x, join(form, exponent, f, form.log_tail(f)))


def log_by_parts(form: Format, x: Term) -> Term:
    """The same bits where a float is split by instructions, which know the special values."""
    exponent, f = split_by_parts(form, x)
    return join(form, exponent, f, form.log_tail(f))


def log2(form: Format, x: Term) -> Term:
    exponent, f = split(form, x)
    return outside_logarithm(x, form.log2(exponent, f))


def log2_by_parts(form: Format, x: Term) -> Term:
    exponent, f = split_by_parts(form, x)
    return form.log2(exponent, f)


def log1p(form: Format, x: Term) -> Term:
    # 1 + x only chooses the exponent; f = 2**-n * (1 + x) - 1 is rounded once.
    limit = 2.0 ** (form.bias - 27)
    huge = x > limit
    y = _log_of_one_and(form, where(huge, x * 2.0**-64, x), where(huge, x.like(64.0), 0.0))
    y = where(x > -1.0, y, where(x.equals(-1.0), x.like(-INFINITY), NAN))
    unusual = where(x.equals(INFINITY), x, y)
    usual = _log_of_one_and(form, x, None)
    return keep_sign(x, rarely(~((x > -1.0) & (x <= limit)), unusual, usual))


def _log_of_one_and(form: Format, x: Term, more: Term | None) -> Term:
    """log(1 + x), and ``more`` added to the exponent."""
    bits = signed_bits(x + 1.0) - form.root_half
    factor = as_float((form.bias << form.mantissa) - (bits & -(1 << form.mantissa)))
    f = fma(x, factor, factor - 1.0)
    exponent = whole(form, bits)
    exponent = exponent if more is None else exponent + more
    return join(form, exponent, f, form.log_tail(f))


def sinh(form: Format, x: Term) -> Term:
    a = absolute(x)
    up, down, sine, excess = _hyperbolic(form, a)
    minus = up - down
    y = minus + fma(up + down, sine, minus * excess)
    y = where(a < form.sinh_limit, y + y, a * INFINITY)
    return where(a < form.sinh_tiny, x, with_sign(y, x))


def cosh(form: Format, x: Term) -> Term:
    a = absolute(x)
    up, down, sine, excess = _hyperbolic(form, a)
    y = up + fma(up - down, sine, fma(up + down, excess, down))
    return where(a < form.sinh_limit, y + y, a * INFINITY)


def _hyperbolic(form: Format, a: Term) -> tuple[Term, Term, Term, Term]:
    """Parts of sinh(a) and cosh(a), a = n*ln(2) + r >= 0: up, down, sinh(r) and cosh(r) - 1.

    With up and down = 2**n / 4 and 2**-n / 4, sinh(a) = 2 * ((up - down)*cosh(r) + (up + down)*
    sinh(r)), and cosh(a) with the signs swapped. The largest summand is exact, so only the smaller
    ones carry an error, and nothing overflows early.
    """
    shifted, r = reduce_exponent(form, a)
    exponent = signed_bits(shifted) << form.mantissa
    quarter = (form.bias - 2) << form.mantissa
    up = as_float(exponent + quarter)
    down = as_float(greater_integer(quarter - exponent, 0))
    z = r * r
    return up, down, fma(r * z, horner(z, form.sinh), r), horner(z, form.cosh) * z


def asin(form: Format, x: Term) -> Term:
    # Beyond 0.5625, pi/2 - 2*asin(sqrt((1 - a) / 2)): there the doubled error is harmless.
    a = absolute(x)
    large = a > 0.5625
    z = where(large, fma(a, -0.5, 0.5), x * x)
    t = where(large, square_root(z), a)
    y = fma(t * z, horner(z, form.asin), t)
    high, low = form.half_pi
    y = where(large, fma(y, -2.0, low) + high, y)
    return where(a <= 1.0, with_sign(y, x), NAN)


def acos(form: Format, x: Term) -> Term:
    # Beyond 1/2 the root form again, for negative x from the other side of pi.
    a = absolute(x)
    large = a > 0.5
    z = where(large, fma(a, -0.5, 0.5), x * x)
    t = where(large, square_root(z), x)
    y = fma(t * z, horner(z, form.asin), t)
    high, low = form.half_pi
    beside = where(x < 0.0, 2.0 * high - fma(y, 2.0, -2.0 * low), y + y)
    y = where(large, beside, high - (y - low))
    return where(a <= 1.0, y, NAN)


# -- parts -------------------------------------------------------------------------------------


def reduce_exponent(form: Format, x: Term) -> tuple[Term, Term]:
    """x = n*ln(2) + r: n in the low bits of a float, and r."""
    shifted = fma(x, LOG2E, form.magic)
    n = shifted - form.magic
    return shifted, fma(n, -form.ln2[1], fma(n, -form.ln2[0], x))


def power_of_two(form: Format, shifted: Term, offset: int) -> Term:
    """2**(n + offset) with n in the low bits of a float; the result must be normal."""
    return as_float(
        (signed_bits(shifted) << form.mantissa) + ((form.bias + offset) << form.mantissa)
    )


def scale(form: Format, y: Term, shifted: Term, tiny: Term) -> Term:
    """y * 2**n, with n in the low bits of ``shifted``; y in [1/2, 2].

    The exponent is added to the bits. Where the result may be subnormal (``tiny``) it is made
    2**64 times too large first, so that the last step is a multiplication that rounds.
    """
    exponent = signed_bits(shifted) << form.mantissa
    exponent = where(tiny, exponent + (64 << form.mantissa), exponent)
    scaled = as_float(signed_bits(y) + exponent)
    return where(tiny, scaled * 2.0**-64, scaled)


def split(form: Format, x: Term) -> tuple[Term, Term]:
    """x > 0 as 2**exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]."""
    mantissa, root = form.mantissa, form.root_half
    subnormal = x < 2.0 ** (1 - form.bias)
    bits = signed_bits(where(subnormal, x * 2.0**mantissa, x))
    bits = bits - where(subnormal, bits.like(root + (mantissa << mantissa)), root)
    return whole(form, bits), as_float((bits & ((1 << mantissa) - 1)) + root) - 1.0


def split_normal(form: Format, x: Term) -> tuple[Term, Term]:
    """The same where x is not subnormal."""
    bits = signed_bits(x) - form.root_half
    return whole(form, bits), as_float((bits & ((1 << form.mantissa) - 1)) + form.root_half) - 1.0


def split_by_parts(form: Format, x: Term) -> tuple[Term, Term]:
    """The same, and of 0, infinity and what is negative, parts with the right logarithm."""
    exponent, rest = exponent_of(x), significand(x)
    one = 1 << form.mantissa
    bits = signed_bits(rest)
    large = rest >= as_float(bits.like(form.root_half + one))
    rest = as_float(where(large, bits - one, bits))
    return where(large, exponent + 1.0, exponent), rest - 1.0


def whole(form: Format, bits: Term) -> Term:
    """The upper bits, from the exponent's place on, as a signed whole float."""
    if form.mantissa == 23:
        return cast(bits >> 23, dt.float32)
    # Not every machine converts or shifts signed 64-bit integers: made positive, this one
    # enters the low bits of 2**52.
    positive = unsigned_bits(bits) + (1100 << 52)
    return as_float((positive >> 52) | (1075 << 52)) - (2.0**52 + 1100.0)


def join(form: Format, exponent: Term, f: Term, tail: Term) -> Term:
    """log(2**exponent * (1 + f)) from ``tail`` = log(1 + f) - f; infinite exponents pass on."""
    high, low = form.log_ln2
    return fma(exponent, high, f + fma(exponent, low, tail))


def outside_logarithm(x: Term, y: Term) -> Term:
    """The logarithm y of x, put right for x that is zero, negative, infinite or NaN."""
    y = where(x > 0.0, y, where(x.equals(0.0), x.like(-INFINITY), NAN))
    return where(x.equals(INFINITY), x, y)


def keep_sign(x: Term, y: Term) -> Term:
    """y, known to have the sign of x, put right for x = -0."""
    return as_float(unsigned_bits(y) | sign_bit(x))
