"""Functions of float32: the coefficients of the shared formulas, and the formulas of its own.

Coefficients are minimax fits made for the stated ranges, rounded to float32 one after the other
with the rest fitted again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from svod.codegen import elementary, trig_f32, wide_f32
from svod.codegen.elementary import LOG2E, Format
from svod.codegen.formula import (
    Term,
    absolute,
    as_float,
    at_most,
    fma,
    horner,
    signed_bits,
    where,
    with_sign,
)
from svod.ir import ops as O

# (log(1+f) - f + f**2/2) / f**3 for 1+f in [sqrt(1/2), sqrt(2)]
_LOG = (0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263,
        0.14201582968235016, -0.131596177816391, 0.1276218742132187,
        -0.07636363804340363)  # fmt: skip
# log2(1+f)/f - 1 for the same range
_LOG2 = (0.4426950514316559, -0.7213475108146667, 0.4808967113494873, -0.36068394780158997,
         0.2886117994785309, -0.23990830779075623, 0.2042141556739807, -0.18865551054477692,
         0.18683288991451263, -0.11552686989307404)  # fmt: skip
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


def _log_tail(f: Term) -> Term:
    z = f * f
    return fma(z, -0.5, (f * z) * horner(f, _LOG))


def _log2(exponent: Term, f: Term) -> Term:
    return exponent + fma(f, horner(f, _LOG2), f)


FORM = Format(
    mantissa=23,
    root_half=0x3F3504F3,
    ln2=(0.693147182464599609375, -1.90465429995776787854e-9),
    log_ln2=(0.693147122859954833984375, 5.7699990475432854e-08),
    half_pi=(1.57079637050628662109375, -4.37113900018624283e-8),
    exp_limits=(-104.0, -86.0, 88.72284),
    exp2_limits=(-151.0, -125.0, 128.0),
    expm1_floor=-20.0,
    sinh_limit=89.5,
    sinh_tiny=2.0**-12,
    exp=(1.0, 0.4999999403953552, 0.1666652113199234, 0.04166828840970993,
         0.008368703536689281, 0.0013818938750773668),
    exp2=(0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618504904210567,
          0.0013391025131568313, 0.0001532719616079703),
    sinh=(0.1666666716337204, 0.00833317544311285, 0.00019974024326074868),
    cosh=(0.5, 0.041666459292173386, 0.0013935453025624156),
    asin=(0.16666631400585175, 0.07502102106809616, 0.0442311055958271, 0.034019894897937775,
          0.006710710935294628, 0.047523483633995056),
    log_tail=_log_tail,
    log2=_log2,
)  # fmt: skip
_MAGIC = FORM.magic


def tanh(x: Term) -> Term:
    # An odd polynomial up to 0.55; beyond, 1 - 2 / (exp(2|x|) + 1). The low part of ln(2) is too
    # small to matter for exponents up to 26.
    a = absolute(x)
    bounded = at_most(9.1, a)
    shifted = fma(bounded, 2.0 * LOG2E, _MAGIC)
    r = fma(shifted - _MAGIC, -0.5 * FORM.ln2[0], bounded)
    y = fma(horner(r, _TANH_EXP), r, 1.0)
    y = as_float(signed_bits(y) + (signed_bits(shifted) << 23))
    large = 1.0 - 2.0 / (y + 1.0)
    z = x * x
    small = fma(a * z, horner(z, _TANH_SMALL), a)
    return with_sign(where(a >= 0.55, large, small), x)  # a NaN counts as small


def erf(x: Term) -> Term:
    # An odd polynomial up to 1; beyond, 1 - 2**q(|x|), whose error counts little in the difference.
    a = absolute(x)
    z = x * x
    small = fma(x, horner(z, _ERF_SMALL), x)
    q = horner(at_most(3.95, a), _ERF_LARGE)
    shifted = q + _MAGIC
    r = q - (shifted - _MAGIC)
    y = fma(horner(r, FORM.exp2), r, 1.0)
    large = 1.0 - as_float(signed_bits(y) + (signed_bits(shifted) << 23))
    return where(a >= 1.0, with_sign(large, x), small)  # a NaN counts as small


WITH_PARTS: dict[int, Callable[..., Term]] = {
    O.EXP: partial(elementary.exp_by_ldexp, FORM),
    O.EXP2: partial(elementary.exp2_by_ldexp, FORM),
    O.LOG: partial(elementary.log_by_parts, FORM),
    O.LOG2: partial(elementary.log2_by_parts, FORM),
}
FUNCTIONS: dict[int, Callable[..., Term]] = {
    O.RECIP: elementary.reciprocal,
    O.RSQRT: elementary.reciprocal_root,
    O.EXP: partial(elementary.exp, FORM),
    O.EXP2: partial(elementary.exp2, FORM),
    O.EXPM1: partial(elementary.expm1, FORM),
    O.LOG: partial(elementary.log, FORM),
    O.LOG2: partial(elementary.log2, FORM),
    O.LOG1P: partial(elementary.log1p, FORM),
    O.TANH: tanh,
    O.SINH: partial(elementary.sinh, FORM),
    O.COSH: partial(elementary.cosh, FORM),
    O.ERF: erf,
    O.SIN: trig_f32.sin,
    O.COS: trig_f32.cos,
    O.TAN: trig_f32.tan,
    O.ASIN: partial(elementary.asin, FORM),
    O.ACOS: partial(elementary.acos, FORM),
    O.ATAN: trig_f32.atan,
    O.ATAN2: trig_f32.atan2,
    O.ASINH: wide_f32.asinh,
    O.ACOSH: wide_f32.acosh,
    O.ATANH: wide_f32.atanh,
    O.POW: wide_f32.power,
    O.FMOD: wide_f32.remainder,
}
