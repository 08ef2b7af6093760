"""Functions of float64: the coefficients of the shared formulas, and the formulas of its own.

Coefficients are minimax fits made for the stated ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from svod.codegen import elementary, power_f64, trig_f64
from svod.codegen.elementary import Format, power_of_two, reduce_exponent
from svod.codegen.formula import (
    NAN,
    Term,
    absolute,
    as_float,
    at_most,
    fma,
    horner,
    signed_bits,
    square_root,
    where,
    with_sign,
)
from svod.ir import ops as O

# (log((1+s)/(1-s))/s - 2) / s**2 for (1+s)/(1-s) in [sqrt(1/2), sqrt(2)]
_LOG = (0.6666666666666735, 0.399999999994128, 0.28571428742887994, 0.22222198513817099,
        0.18183567808573028, 0.15313951745177418, 0.14797031486437254)  # fmt: skip
# erf(x)/x - 1 in x**2 for |x| <= 1, and log2(1 - erf(1 + t)) for 0 <= t <= 4.95
_ERF_SMALL = (0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.026866170645072896,
              0.005223977624780868, -0.0008548326978742253, 0.00012055331036900327,
              -1.4925593506883351e-05, 1.6460972816568099e-06, -1.6350025214606992e-07,
              1.465787976986873e-08, -1.1365665623817397e-09, 5.945261096971463e-11)  # fmt: skip
_ERF_LARGE = (-2.6684166967815997, -3.807225345853608, -1.2163466576859252, -0.05995999004461548,
              0.014475750181660044, -0.0028535107713191466, 0.00034238661568647367,
              3.790212980702867e-05, -3.916133327006046e-05, 1.3826238617987131e-05,
              -2.9244320511290266e-06, 1.6020079584999493e-07, 1.7449574089892207e-07,
              -9.379645224107534e-08, 2.927305331006029e-08, -6.4937514840136936e-09,
              1.042381267673849e-09, -1.1587277909056243e-10, 7.99228444413775e-12,
              -2.573785464580087e-13)  # fmt: skip


def _log_tail(f: Term) -> Term:
    # With s = f/(2+f): log(1+f) = f - f**2/2 + s*(f**2/2 + s**2*p(s**2)).
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return fma(s, fma(horner(z, _LOG), z, half_square), -half_square)


def _log2(exponent: Term, f: Term) -> Term:
    high, low = 1.4426950408889634, 2.0355273740931033e-17
    return exponent + fma(f, high, fma(_log_tail(f), high, f * low))


FORM = Format(
    mantissa=52,
    root_half=0x3FE6A09E667F3BCD,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    log_ln2=(0.6931471805599453, 2.3190468138462996e-17),
    half_pi=(1.5707963267948966, 6.123233995736766e-17),
    exp_limits=(-746.0, -707.0, 709.7827128933841),
    exp2_limits=(-1076.0, -1021.0, 1024.0),
    expm1_floor=-40.0,
    sinh_limit=710.5,
    sinh_tiny=2.0**-28,
    exp=(1.0, 0.5, 0.16666666666666682, 0.04166666666666609, 0.008333333333316918,
         0.0013888888889117274, 0.00019841269896680625, 2.4801586924585263e-05,
         2.7557234559037102e-06, 2.7557582811330865e-07, 2.5112144424093756e-08,
         2.0826531706069122e-09),
    exp2=(0.6931471805599453, 0.24022650695910072, 0.0555041086648217, 0.009618129107628484,
          0.0013333558146389995, 0.00015403530393362578, 1.5252733856659455e-05,
          1.3215486816181128e-06, 1.0178051031429582e-07, 7.054894306396163e-09,
          4.4567010438249957e-10, 2.5733695528197904e-11),
    sinh=(0.16666666666666677, 0.008333333333321586, 0.0001984126988626514,
          2.75572440461639e-06, 2.5109101527694547e-08),
    cosh=(0.5, 0.041666666666666685, 0.0013888888888873511, 2.480158734871883e-05,
          2.755725224818174e-07, 2.0921634505714195e-09),
    asin=(0.16666666666666322, 0.07500000000097534, 0.04464285704670884, 0.030381949227529997,
          0.022372018327904353, 0.017355437381368546, 0.013930365797383146,
          0.011863082531671381, 0.0077659908858648255, 0.0174793036716871,
          -0.021647505898711353, 0.06855659364778606, -0.07669117499858008,
          0.05979074097362966),
    log_tail=_log_tail,
    log2=_log2,
)  # fmt: skip


def tanh(x: Term) -> Term:
    # e/(e + 2) with e = exp(2|x|) - 1; the rounding errors of the sum and the quotient are made up.
    doubled = at_most(44.0, absolute(x) * 2.0)
    shifted, r = reduce_exponent(FORM, doubled)
    p = fma(horner(r, FORM.exp[1:]), r * r, r)
    power = power_of_two(FORM, shifted, 0)
    e = fma(power, p, power - 1.0)
    under = e + 2.0
    lost = e - (under - 2.0)
    inverse = 1.0 / under
    y = e * inverse
    rest = fma(y, -lost, fma(-y, under, e))
    return with_sign(fma(rest, inverse, y), x)


def erf(x: Term) -> Term:
    # An odd polynomial up to 1; beyond, 1 - 2**q(|x|), whose error counts little in the difference.
    a = absolute(x)
    small = fma(x, horner(x * x, _ERF_SMALL), x)
    q = horner(at_most(5.95, a) - 1.0, _ERF_LARGE)
    shifted = q + FORM.magic
    r = q - (shifted - FORM.magic)
    y = fma(horner(r, FORM.exp2), r, 1.0)
    large = 1.0 - as_float(signed_bits(y) + (signed_bits(shifted) << 52))
    return where(a >= 1.0, with_sign(large, x), small)  # a NaN counts as small


def asinh(x: Term) -> Term:
    # log1p(a + a**2/(1 + sqrt(1 + a**2))); for huge a, log(a) + log(2).
    a = absolute(x)
    huge = a > 2.0**500
    square = a * a
    t = where(huge, a, a + square / (1.0 + square_root(square + 1.0)))
    y = elementary.log1p(FORM, t)
    return with_sign(where(huge, y + FORM.ln2[0], y), x)


def acosh(x: Term) -> Term:
    # log1p(t + sqrt(t*(t + 2))) with t = x - 1, which is exact near 1.
    huge = x > 2.0**500
    t = x - 1.0
    root = square_root(fma(t, t, t + t))
    total = t + root
    lost = t - (total - root)
    y = elementary.log1p(FORM, where(huge, x, total)) + where(huge, 0.0, lost / (total + 1.0))
    return where(x < 1.0, NAN, where(huge, y + FORM.ln2[0], y))


def atanh(x: Term) -> Term:
    # log1p(2a/(1 - a)) / 2; what the quotient lost by rounding is made up.
    a = absolute(x)
    doubled, under = a + a, 1.0 - a
    under_low = (1.0 - under) - a
    quotient = doubled / under
    rest = fma(-quotient, under_low, fma(-quotient, under, doubled))
    rest = where(a < 1.0, rest / (a + 1.0), 0.0)
    y = 0.5 * (elementary.log1p(FORM, quotient) + rest)
    return with_sign(where(a > 1.0, NAN, y), x)


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
    O.SIN: trig_f64.sin,
    O.COS: trig_f64.cos,
    O.TAN: trig_f64.tan,
    O.ASIN: partial(elementary.asin, FORM),
    O.ACOS: partial(elementary.acos, FORM),
    O.ATAN: trig_f64.atan,
    O.ATAN2: trig_f64.atan2,
    O.ASINH: asinh,
    O.ACOSH: acosh,
    O.ATANH: atanh,
    O.POW: partial(power_f64.power, FORM),
    O.FMOD: power_f64.remainder,
}
