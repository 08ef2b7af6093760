"""Powers and remainders of float64.

A power needs the logarithm to more places than a float64 has, because the exponent multiplies its
error: the logarithm is a pair of floats, the second one carrying what the first one lost. The
remainder is exact.
"""

from __future__ import annotations

from svod.codegen.elementary import Format, scale, split, split_normal
from svod.codegen.formula import (
    INFINITY,
    NAN,
    Term,
    absolute,
    as_float,
    at_least,
    at_most,
    fma,
    greater_integer,
    horner,
    rarely,
    round_even,
    signed_bits,
    unsigned_bits,
    where,
    with_sign,
)
from svod.codegen.wide_f32 import power_sign, short_remainder

_NORMAL, _FINITE = 1 << 52, 0x7FE << 52  # bits of the smallest normal float64; how many follow
# log2((1+s)/(1-s))/s = c1 + c3*s**2 + s**4*p(s**2)
_C1, _C1_LOW = 2.8853900817779268, 4.0710547481862066e-17
_C3, _C3_LOW = 0.9617966939259756, 5.0577616648125907e-17
_LOG2 = (0.5770780163555851, 0.4121985831113726, 0.32059889790734986, 0.262308199231403,
         0.22195223590134233, 0.1924025109775167, 0.16842956930518654,
         0.1729854013707915)  # fmt: skip


def power(form: Format, x: Term, y: Term) -> Term:
    """x**y as in C: 1 for y = 0 and for x = 1, whatever the other is."""
    a = absolute(x)
    log, log_low = _log2_pair(*split_normal(form, a))
    product = y * log
    low = fma(y, log_low, fma(y, log, -product))
    shifted = product + form.magic
    r = (product - (shifted - form.magic)) + low
    size = fma(horner(r, form.exp2), r, 1.0)
    size = as_float(signed_bits(size) + (signed_bits(shifted) << form.mantissa))
    far = ~(absolute(product) < 1020.0)  # or NaN
    unusual = far | (unsigned_bits(a) - _NORMAL >= _FINITE)
    signed = power_sign(x, y, rarely(unusual, _any_power(form, a, y), size))
    return rarely(far | (unsigned_bits(x) - _NORMAL >= _FINITE), signed, size)


def _any_power(form: Format, a: Term, y: Term) -> Term:
    """a**y where a may be 0, subnormal, infinite or NaN, and the result anything."""
    log, log_low = _log2_pair(*split(form, a))
    log = where(a < INFINITY, log, a)  # a NaN passes on
    log = where(a.equals(0.0), -INFINITY, log)
    product = y * log
    low = fma(y, log_low, fma(y, log, -product))
    low = where(absolute(product) < 1080.0, low, 0.0)
    product = where(a.equals(1.0), 0.0, product)
    bounded = at_least(-1080.0, at_most(1024.25, product))
    shifted = bounded + form.magic
    r = (bounded - (shifted - form.magic)) + low
    size = scale(form, fma(horner(r, form.exp2), r, 1.0), shifted, bounded < -1000.0)
    # At 1024 the low part decides: the largest float to the power 1 is just below.
    size = where((product >= 1024.0) & (r >= 0.0), INFINITY, size)
    return where(product.equals(product), size, NAN)


def _log2_pair(exponent: Term, f: Term) -> tuple[Term, Term]:
    """log2(2**exponent * (1 + f)) as a pair, to about 2**-66 of its size."""
    inverse = 1.0 / (f + 2.0)
    s = f * inverse
    s_low = fma(-s, f, fma(s, -2.0, f)) * inverse
    z = s * s
    z_low = fma(s + s, s_low, fma(s, s, -z))
    tail = z * horner(z, _LOG2)
    inner = tail + _C3
    inner_low = (tail - (inner - _C3)) + _C3_LOW
    middle = inner * z
    middle_low = fma(inner_low, z, fma(inner, z_low, fma(inner, z, -middle)))
    outer = middle + _C1
    outer_low = (middle - (outer - _C1)) + (middle_low + _C1_LOW)
    log = outer * s
    log_low = fma(outer_low, s, fma(outer, s_low, fma(outer, s, -log)))
    total = exponent + log
    return total, (log - (total - exponent)) + log_low


def remainder(x: Term, y: Term) -> Term:
    """x - y * trunc(x / y), exactly."""
    a, b = absolute(x), absolute(y)
    unusual, rest = short_remainder(a, b, 2.0**52)
    return with_sign(rarely(unusual, _long_remainder(a, b), rest), x)


def _long_remainder(a: Term, b: Term) -> Term:
    """The remainder of what is not negative.

    With integers m and n of 53 bits, a = m * 2**i and b = n * 2**j: the result is m * 2**(i-j)
    modulo n, times 2**j. The power of two modulo n comes from repeated squaring; residues lie
    between -n/2 and n/2, which keeps every intermediate sum exact.
    """
    m, i = _integer(a)
    n, j = _integer(b)
    inverse = 1.0 / n
    gap = greater_integer(i - j, 0)
    # 2**(gap >> 6) is at most 2**32; the last six bits of the gap follow by squaring.
    residue = as_float(((gap >> 6) + 1023) << 52)
    for bit in reversed(range(6)):
        square = _multiply(residue, residue, n, inverse)
        square = where((gap & (1 << bit)).differs(0), square + square, square)
        residue = _symmetric(square, n, inverse)
    rest = _multiply(_symmetric(m, n, inverse), residue, n, inverse)
    rest = where(rest < 0.0, rest + n, rest)
    rest = where(rest >= n, rest - n, rest)
    half = j >> 1
    rest = rest * as_float((half + 1023) << 52) * as_float((j - half + 1023) << 52)
    result = where((a < INFINITY) & (b > 0.0), rest, NAN)
    return where(a < b, a, result)


def _integer(a: Term) -> tuple[Term, Term]:
    """a > 0 as a whole float in [2**52, 2**53) and the int64 exponent of its unit."""
    subnormal = a < 2.0**-1022
    bits = signed_bits(where(subnormal, a * 2.0**54, a))
    exponent = (bits >> 52) - where(subnormal, bits.like(1075 + 54), 1075)
    return as_float((bits & ((1 << 52) - 1)) | (1075 << 52)), exponent


def _symmetric(x: Term, n: Term, inverse: Term) -> Term:
    """x modulo n between -n/2 and n/2, for |x| up to 2n."""
    return fma(-round_even(x * inverse), n, x)


def _multiply(x: Term, y: Term, n: Term, inverse: Term) -> Term:
    """x*y modulo n between -n and n, for x and y between -n/2 and n/2."""
    product = x * y
    lost = fma(x, y, -product)
    return fma(-round_even(product * inverse), n, product) + lost
