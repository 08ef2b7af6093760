"""Formulas over nodes that read like algebra.

``Term`` wraps a node so that ``a * b + 1.0`` builds MUL, ADD and CONST nodes of the operands'
dtype, scalar or vector alike. Only ops that every renderer has are made here, so whatever is
written with this module is a graph of basic ops. Constants of float32 are rounded to float32
when they enter a formula: every renderer prints the same bits.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, const, make

IN_RANGE = "inrange"  # arg of SHL and SHR whose amounts are known to be below the width
TRUNCATE = "trunc"  # arg of IDIV and MOD: toward zero, the divisor is known to be harmless
SATURATE = "saturate"  # arg of CAST from float to integer: clamps, NaN gives 0
RARE = "rare"  # arg of WHERE: its condition holds seldom, so its first value may be branched over

_REGISTER = 512  # bits of the widest register that LDEXP and the like take
INFINITY = float("inf")
NAN = float("nan")

_SIGNED = {8: dt.int8, 16: dt.int16, 32: dt.int32, 64: dt.int64}
_UNSIGNED = {8: dt.uint8, 16: dt.uint16, 32: dt.uint32, 64: dt.uint64}
_FLOAT = {32: dt.float32, 64: dt.float64}


class Term:
    """A node with arithmetic. Plain numbers beside it become constants of its dtype."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __add__(self, other: Operand) -> Term:
        return _binary(O.ADD, self, other)

    def __radd__(self, other: Operand) -> Term:
        return _binary(O.ADD, self.like(other), self)

    def __sub__(self, other: Operand) -> Term:
        return _binary(O.SUB, self, other)

    def __rsub__(self, other: Operand) -> Term:
        return _binary(O.SUB, self.like(other), self)

    def __mul__(self, other: Operand) -> Term:
        return _binary(O.MUL, self, other)

    def __rmul__(self, other: Operand) -> Term:
        return _binary(O.MUL, self.like(other), self)

    def __truediv__(self, other: Operand) -> Term:
        return _binary(O.DIV, self, other)

    def __rtruediv__(self, other: Operand) -> Term:
        return _binary(O.DIV, self.like(other), self)

    def __and__(self, other: Operand) -> Term:
        return _binary(O.AND, self, other)

    def __or__(self, other: Operand) -> Term:
        return _binary(O.OR, self, other)

    def __xor__(self, other: Operand) -> Term:
        return _binary(O.XOR, self, other)

    def __lshift__(self, other: Operand) -> Term:
        return _shift(O.SHL, self, other)

    def __rshift__(self, other: Operand) -> Term:
        return _shift(O.SHR, self, other)

    def __neg__(self) -> Term:
        return _unary(O.NEG, self)

    def __invert__(self) -> Term:
        return _unary(O.NOT, self)

    def __lt__(self, other: Operand) -> Term:
        return _compare(O.LT, self, self.like(other))

    def __le__(self, other: Operand) -> Term:
        return _compare(O.LE, self, self.like(other))

    def __gt__(self, other: Operand) -> Term:
        return _compare(O.LT, self.like(other), self)

    def __ge__(self, other: Operand) -> Term:
        return _compare(O.LE, self.like(other), self)

    def equals(self, other: Operand) -> Term:
        return _compare(O.EQ, self, self.like(other))

    def differs(self, other: Operand) -> Term:
        return _compare(O.NE, self, self.like(other))

    def like(self, value: Operand) -> Term:
        """The value as a term of this term's dtype."""
        if isinstance(value, Term):
            return value
        if self.node.dtype.scalar is dt.float32:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return Term(const(value, self.node.dtype))


Operand = Term | float | int


def _unary(op: int, x: Term) -> Term:
    return Term(make(op, x.node.dtype, (x.node,)))


def _binary(op: int, x: Term, y: Operand) -> Term:
    return Term(make(op, x.node.dtype, (x.node, x.like(y).node)))


def _compare(op: int, x: Term, y: Term) -> Term:
    return Term(make(op, dt.bool_.vec(x.node.dtype.lanes), (x.node, y.node)))


def _shift(op: int, x: Term, amount: Operand) -> Term:
    # A constant amount is in range by sight; others carry the promise in their arg.
    arg = IN_RANGE if isinstance(amount, Term) else None
    return Term(make(op, x.node.dtype, (x.node, x.like(amount).node), arg))


# -- one node each -----------------------------------------------------------------------------


def fma(x: Term, y: Operand, z: Operand) -> Term:
    """x*y + z with one rounding."""
    return Term(make(O.FMA, x.node.dtype, (x.node, x.like(y).node, x.like(z).node)))


def ldexp(x: Term, n: Term) -> Term:
    """x * 2**n with one rounding; n is a whole float. Only for machines that have it."""
    return _by_registers(O.LDEXP, x, n)


def exponent_of(x: Term) -> Term:
    """The exponent as a whole float. Only for machines that have it."""
    return _by_registers(O.EXPONENT, x)


def significand(x: Term) -> Term:
    """x without its exponent, in [1, 2). Only for machines that have it."""
    return _by_registers(O.SIGNIFICAND, x)


def _by_registers(op: int, *terms: Term) -> Term:
    dtype = terms[0].dtype
    if dtype.lanes * dtype.bits <= _REGISTER:
        return Term(make(op, dtype, tuple([t.node for t in terms])))
    half = dtype.lanes // 2
    parts = []
    for start in (0, half):
        places = tuple(range(start, start + half))
        pieces = [make(O.SHUFFLE, dtype.scalar.vec(half), (t.node,), places) for t in terms]
        parts.append(_by_registers(op, *[Term(p) for p in pieces]).node)
    return Term(make(O.SHUFFLE, dtype, tuple(parts), tuple(range(dtype.lanes))))


def where(condition: Term, x: Operand, y: Operand) -> Term:
    """x where the condition holds, else y; one of the two must be a term."""
    known = x if isinstance(x, Term) else y
    assert isinstance(known, Term)
    x, y = known.like(x), known.like(y)
    return Term(make(O.WHERE, x.node.dtype, (condition.node, x.node, y.node)))


def rarely(condition: Term, x: Term, y: Term) -> Term:
    """x where the condition holds, else y. x is computed only if it holds in some lane."""
    return Term(make(O.WHERE, x.node.dtype, (condition.node, x.node, y.node), RARE))


def absolute(x: Term) -> Term:
    return _unary(O.ABS, x)


def square_root(x: Term) -> Term:
    return _unary(O.SQRT, x)


def truncate(x: Term) -> Term:
    return _unary(O.TRUNC, x)


def floor(x: Term) -> Term:
    return _unary(O.FLOOR, x)


def round_even(x: Term) -> Term:
    return _unary(O.ROUND, x)


def divide_toward_zero(x: Term, y: Term) -> Term:
    """Integer division whose divisor is known to be neither 0 nor, for the smallest x, -1."""
    return Term(make(O.IDIV, x.node.dtype, (x.node, y.node), TRUNCATE))


def lesser_integer(x: Term, y: Operand) -> Term:
    return _binary(O.MIN, x, y)


def greater_integer(x: Term, y: Operand) -> Term:
    return _binary(O.MAX, x, y)


def cast(x: Term, scalar: DType) -> Term:
    """A conversion that every renderer has; float to integer saturates."""
    if x.node.dtype.scalar is scalar:
        return x
    arg = SATURATE if x.node.dtype.is_float and scalar.is_int else None
    return Term(make(O.CAST, scalar.vec(x.node.dtype.lanes), (x.node,), arg))


def bitcast(x: Term, scalar: DType) -> Term:
    """The same bits as another type of the same width."""
    if x.node.dtype.scalar is scalar:
        return x
    return Term(make(O.BITCAST, scalar.vec(x.node.dtype.lanes), (x.node,)))


# -- short idioms ------------------------------------------------------------------------------


def signed_bits(x: Term) -> Term:
    """The bits as a signed integer of the same width."""
    return bitcast(x, _SIGNED[x.dtype.bits])


def unsigned_bits(x: Term) -> Term:
    """The bits as an unsigned integer of the same width."""
    return bitcast(x, _UNSIGNED[x.dtype.bits])


def as_float(x: Term) -> Term:
    """The float32 or float64 with these bits."""
    return bitcast(x, _FLOAT[x.dtype.bits])


def at_most(limit: Operand, x: Term) -> Term:
    """min(limit, x), with a NaN x passed on. The operand order makes it one instruction."""
    limit = x.like(limit)
    return where(limit < x, limit, x)


def at_least(limit: Operand, x: Term) -> Term:
    """max(limit, x), with a NaN x passed on. The operand order makes it one instruction."""
    limit = x.like(limit)
    return where(limit > x, limit, x)


def horner(x: Term, coefficients: Sequence[float]) -> Term:
    """The polynomial with these coefficients, constant term first."""
    total = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def sign_bit(x: Term) -> Term:
    """Only the sign bit of a float, as unsigned bits."""
    return unsigned_bits(x) & (1 << (x.dtype.bits - 1))


def with_sign(magnitude: Term, sign: Term) -> Term:
    """A non-negative magnitude with the sign bit of another float."""
    return as_float(unsigned_bits(magnitude) | sign_bit(sign))


def is_nan(x: Term) -> Term:
    return x.differs(x)
