"""Floats that hardware only stores: float16, bfloat16 and the two float8 types.

Arithmetic on them is float32 arithmetic, rounded back after every op. For add, subtract, multiply,
divide and square root that is the correctly rounded result, because float32 has more than twice
their bits. Conversions round to nearest even on the bits and agree with NumPy and ml_dtypes:
overflow is infinity, or NaN for e4m3 which has no infinity; NaN stays NaN with its sign.
"""

from __future__ import annotations

from svod.codegen.formula import (
    NAN,
    Term,
    absolute,
    as_float,
    bitcast,
    cast,
    lesser_integer,
    unsigned_bits,
    where,
)
from svod.dtype import types as dt
from svod.dtype.types import DType

NARROW = frozenset({dt.float16, dt.bfloat16, dt.float8_e4m3, dt.float8_e5m2})


def widen(x: Term) -> Term:
    """The same value as float32."""
    scalar = x.dtype.scalar
    if scalar is dt.float16:
        return cast(x, dt.float32)
    if scalar is dt.bfloat16:
        return as_float(cast(bitcast(x, dt.uint16), dt.uint32) << 16)
    code = cast(bitcast(x, dt.uint8), dt.uint16)
    if scalar is dt.float8_e5m2:  # the upper half of a float16
        return cast(bitcast(code << 8, dt.float16), dt.float32)
    # e4m3 has an exponent of 4 bits with bias 7: read as a float16 it is 2**-8 of its value.
    half = ((code & 0x80) << 8) | ((code & 0x7F) << 7)
    value = cast(bitcast(half, dt.float16), dt.float32) * 256.0
    return where((code & 0x7F).equals(0x7F), NAN, value)


def narrow(x: Term, scalar: DType) -> Term:
    """A float32 rounded to a narrow type."""
    if scalar is dt.float16:
        return cast(x, dt.float16)
    if scalar is dt.bfloat16:
        return _to_bfloat16(x)
    if scalar is dt.float8_e4m3:
        code = _round_code(x, mantissa=3, bias=7, overflow=0x7F)
        return bitcast(cast(code, dt.uint8), scalar)
    code = _round_code(x, mantissa=2, bias=15, overflow=0x7C)
    code = where(x.differs(x), (code & 0x80) | 0x7E, code)
    return bitcast(cast(code, dt.uint8), scalar)


def narrow_double(x: Term, scalar: DType) -> Term:
    """A float64 rounded to a narrow type; through float32, which ml_dtypes does too."""
    if scalar is not dt.float16:
        return narrow(cast(x, dt.float32), scalar)
    # Float16 is rounded once: float32 keeps a sticky last bit ("round to odd").
    near = cast(x, dt.float32)
    back = cast(near, dt.float64)
    bits = unsigned_bits(near)
    toward_zero = where(absolute(back) > absolute(x), bits - 1, bits)
    odd = where(back.differs(x), toward_zero | 1, toward_zero)
    return cast(as_float(odd), dt.float16)


def is_nonzero(x: Term) -> Term:
    """Whether a narrow float is neither 0 nor -0."""
    bits = unsigned_bits(x)
    return (bits & ((1 << (x.dtype.bits - 1)) - 1)).differs(0)


def negate(x: Term) -> Term:
    return bitcast(unsigned_bits(x) ^ (1 << (x.dtype.bits - 1)), x.dtype.scalar)


def magnitude(x: Term) -> Term:
    return bitcast(unsigned_bits(x) & ((1 << (x.dtype.bits - 1)) - 1), x.dtype.scalar)


def from_condition(x: Term, scalar: DType) -> Term:
    """1 for true, 0 for false, chosen among the bits of the narrow type."""
    one = {dt.float16: 0x3C00, dt.bfloat16: 0x3F80, dt.float8_e4m3: 0x38, dt.float8_e5m2: 0x3C}
    bits = dt.uint16 if scalar.bits == 16 else dt.uint8
    return bitcast(cast(x, bits) * one[scalar], scalar)


def _to_bfloat16(x: Term) -> Term:
    bits = unsigned_bits(x)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    quiet = ((bits >> 16) & 0x8000) | 0x7FC0
    return bitcast(cast(where(x.differs(x), quiet, rounded), dt.uint16), dt.bfloat16)


def _round_code(x: Term, mantissa: int, bias: int, overflow: int) -> Term:
    """Sign and magnitude code of a float8 type, in the low 8 bits of a uint32."""
    bits = unsigned_bits(x)
    size = bits & 0x7FFFFFFF
    drop = 23 - mantissa
    half = (1 << (drop - 1)) - 1
    normal = ((size + (((size >> drop) & 1) + half)) >> drop) - ((127 - bias) << mantissa)
    # Below the smallest normal value the float adder rounds: the last place of ``unit * 2**23`` is
    # one unit of the subnormal codes.
    anchor = 2.0 ** (1 - bias - mantissa + 23)
    anchor_bits = (127 + 1 - bias - mantissa + 23) << 23
    subnormal = unsigned_bits(as_float(size) + anchor) - anchor_bits
    code = where(size < ((127 + 1 - bias) << 23), subnormal, normal)
    return lesser_integer(code, overflow) | ((bits >> 24) & 0x80)
