"""Functions of float32 as formulas over basic ops.

Each is one straight line of vector code: a range reduction, a polynomial, and selects for the
special values. The comment above a formula gives its largest error in units of the last place,
measured on machine code, and the reason for its shape. Coefficients are minimax fits made for
these ranges, rounded to float32 one after the other with the rest fitted again.
"""

from __future__ import annotations

from collections.abc import Callable

from svod.codegen import trig_f32, wide_f32
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
    greater_integer,
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
_ROOT_HALF = 0x3F3504F3  # bits of sqrt(1/2)
_LOG2E = 1.44269504088896340736
_LOG2E_HIGH, _LOG2E_LOW = 1.44269502162933349609375, 1.92596299112661746887e-8

# (exp(r) - 1) / r for |r| <= ln(2)/2
_EXP = (1.0, 0.4999999403953552, 0.1666652113199234, 0.04166828840970993, 0.008368703536689281,
        0.0013818938750773668)  # fmt: skip
# (2**r - 1) / r for |r| <= 1/2
_EXP2 = (0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618504904210567,
         0.0013391025131568313, 0.0001532719616079703)  # fmt: skip
# (log(1+f) - f + f**2/2) / f**3 for 1+f in [sqrt(1/2), sqrt(2)]
_LOG = (0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263,
        0.14201582968235016, -0.131596177816391, 0.1276218742132187,
        -0.07636363804340363)  # fmt: skip
# (sinh(r)/r - 1) / z and (cosh(r) - 1 - z/2) / z**2 with z = r**2, for |r| <= ln(2)/2
_SINH = (0.1666666716337204, 0.00833317544311285, 0.00019974024326074868)
_COSH = (0.041666459292173386, 0.0013935453025624156)
# (tanh(x)/x - 1) / z with z = x**2, for |x| <= 0.55; (exp(2*r) - 1) / r for |r| <= ln(2)/4
_TANH_SMALL = (-0.333329439163208, 0.13320662081241608, -0.05266781523823738,
               0.016430053859949112)  # fmt: skip
_TANH_EXP = (2.0, 1.999999761581421, 1.3333216905593872, 0.6666926145553589, 0.267798513174057,
             0.08844120800495148)  # fmt: skip
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
    y = _scale(fma(horner(r, _EXP), r, 1.0), shifted, bounded < -86.0)
    return where(x < 88.72284, y, x * INFINITY)


def exp2(x: Term) -> Term:
    bounded = at_least(-151.0, x)
    shifted = bounded + _MAGIC
    r = bounded - (shifted - _MAGIC)
    y = _scale(fma(horner(r, _EXP2), r, 1.0), shifted, bounded < -125.0)
    return where(x < 128.0, y, x * INFINITY)


def expm1(x: Term) -> Term:
    # With s = 2**n: s*exp(r) - 1 = s*(exp(r) - 1) + (s - 1). Halves keep s finite for n = 128.
    bounded = at_least(-20.0, x)
    shifted = fma(bounded, _LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, bounded))
    p = fma(horner(r, _EXP[1:]), r * r, r)
    half = as_float((signed_bits(shifted) << 23) + (126 << 23))
    y = fma(half, p, half - 0.5)
    return _keep_sign(x, where(x < 88.72284, y + y, x * INFINITY))


def log(x: Term) -> Term:
    return _outside_logarithm(x, _logarithm(*_split(x)))


def log2(x: Term) -> Term:
    exponent, f = _split(x)
    z = f * f
    y = fma(z, -0.5, (f * z) * horner(f, _LOG))
    y = fma(f, _LOG2E_HIGH, fma(y, _LOG2E, f * _LOG2E_LOW))
    return _outside_logarithm(x, exponent + y)


def log1p(x: Term) -> Term:
    # 1 + x only chooses the exponent; f = 2**-n * (1 + x) - 1 is rounded once.
    huge = x > 2.0**100
    scaled = where(huge, x * 2.0**-64, x)
    bits = signed_bits(scaled + 1.0) - _ROOT_HALF
    scale = as_float((127 << 23) - (bits & -(1 << 23)))
    f = fma(scaled, scale, scale - 1.0)
    exponent = cast(bits >> 23, dt.float32)
    exponent = where(huge, exponent + 64.0, exponent)
    y = _logarithm(exponent, f)
    y = where(x > -1.0, y, where(x.equals(-1.0), x.like(-INFINITY), NAN))
    return _keep_sign(x, where(x.equals(INFINITY), x, y))


def sinh(x: Term) -> Term:
    a = absolute(x)
    plus, minus, sine, excess = _hyperbolic(a)
    y = minus + fma(minus, excess, plus * sine)
    y = where(a < 89.5, y + y, a * INFINITY)
    return where(a < 2.0**-12, x, with_sign(y, x))


def cosh(x: Term) -> Term:
    a = absolute(x)
    plus, minus, sine, excess = _hyperbolic(a)
    y = plus + fma(plus, excess, minus * sine)
    return where(a < 89.5, y + y, a * INFINITY)


def tanh(x: Term) -> Term:
    # An odd polynomial up to 0.55; beyond, 1 - 2 / (exp(2|x|) + 1). The low part of ln(2) is too
    # small to matter for exponents up to 26.
    a = absolute(x)
    bounded = at_most(9.1, a)
    shifted = fma(bounded, 2.0 * _LOG2E, _MAGIC)
    r = fma(shifted - _MAGIC, -0.5 * _LN2_HIGH, bounded)
    y = fma(horner(r, _TANH_EXP), r, 1.0)
    y = as_float(signed_bits(y) + (signed_bits(shifted) << 23))
    large = 1.0 - 2.0 / (y + 1.0)
    z = x * x
    small = fma(x * z, horner(z, _TANH_SMALL), x)
    return where(a >= 0.55, with_sign(large, x), small)  # a NaN counts as small


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
    return where(a >= 1.0, with_sign(large, x), small)  # a NaN counts as small


def _scale(y: Term, shifted: Term, tiny: Term) -> Term:
    """y * 2**n, with n in the low bits of ``shifted``; y in [1/2, 2].

    The exponent is added to the bits. Where the result may be subnormal (``tiny``) it is made 2**64
    times too large first, so that the last step is a multiplication that rounds.
    """
    exponent = signed_bits(shifted) << 23
    exponent = where(tiny, exponent + (64 << 23), exponent)
    scaled = as_float(signed_bits(y) + exponent)
    return where(tiny, scaled * 2.0**-64, scaled)


def _hyperbolic(a: Term) -> tuple[Term, Term, Term, Term]:
    """Parts of sinh(a) and cosh(a), a = n*ln(2) + r >= 0: plus, minus, sinh(r) and cosh(r) - 1.

    With plus and minus = (2**n +- 2**-n) / 4, sinh(a) = 2 * (minus*cosh(r) + plus*sinh(r)) and
    cosh(a) = 2 * (plus*cosh(r) + minus*sinh(r)): plus and minus are nearly exact, so only the
    smaller summands carry an error, and nothing overflows early.
    """
    shifted = fma(a, _LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, a))
    exponent = signed_bits(shifted) << 23
    up = as_float((125 << 23) + exponent)
    down = as_float(greater_integer((125 << 23) - exponent, 0))
    z = r * r
    sine = fma(r * z, horner(z, _SINH), r)
    excess = fma(horner(z, _COSH), z, 0.5) * z
    return up + down, up - down, sine, excess


def _split(x: Term) -> tuple[Term, Term]:
    """x > 0 as 2**exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]."""
    subnormal = x < 2.0**-126
    bits = signed_bits(where(subnormal, x * 2.0**23, x))
    bits = bits - where(subnormal, bits.like(_ROOT_HALF + (23 << 23)), _ROOT_HALF)
    exponent = cast(bits >> 23, dt.float32)
    return exponent, as_float((bits & 0x7FFFFF) + _ROOT_HALF) - 1.0


def _logarithm(exponent: Term, f: Term) -> Term:
    """log(2**exponent * (1 + f))."""
    z = f * f
    y = (f * z) * horner(f, _LOG)
    y = fma(z, -0.5, fma(exponent, _LN2_LOW, y))
    return fma(exponent, _LN2_HIGH, f + y)


def _outside_logarithm(x: Term, y: Term) -> Term:
    """The logarithm y of x, put right for x that is zero, negative, infinite or NaN."""
    y = where(x > 0.0, y, where(x.equals(0.0), x.like(-INFINITY), NAN))
    return where(x.equals(INFINITY), x, y)


def _keep_sign(x: Term, y: Term) -> Term:
    """y, known to have the sign of x, put right for x = -0."""
    return as_float(unsigned_bits(y) | sign_bit(x))


FUNCTIONS: dict[int, Callable[..., Term]] = {
    O.RECIP: reciprocal,
    O.RSQRT: reciprocal_root,
    O.EXP: exp,
    O.EXP2: exp2,
    O.EXPM1: expm1,
    O.LOG: log,
    O.LOG2: log2,
    O.LOG1P: log1p,
    O.TANH: tanh,
    O.SINH: sinh,
    O.COSH: cosh,
    O.ERF: erf,
    O.SIN: trig_f32.sin,
    O.COS: trig_f32.cos,
    O.TAN: trig_f32.tan,
    O.ASIN: trig_f32.asin,
    O.ACOS: trig_f32.acos,
    O.ATAN: trig_f32.atan,
    O.ATAN2: trig_f32.atan2,
    O.ASINH: wide_f32.asinh,
    O.ACOSH: wide_f32.acosh,
    O.ATANH: wide_f32.atanh,
    O.POW: wide_f32.power,
    O.FMOD: wide_f32.remainder,
}
