"""Integer ops with defined results everywhere: division, remainder, shifts, powers.

LLVM's division traps or is undefined for a zero divisor and for the smallest value over -1, and
its shifts are undefined past the width. Here division rounds toward minus infinity, by zero gives
0 and wraps; a shift past the width (a negative amount counts as one) leaves 0, or -1 for a
negative value shifted right. What the bounds of the operands prove harmless stays one node.
"""

from __future__ import annotations

from svod.codegen.formula import (
    TRUNCATE,
    Term,
    bitcast,
    cast,
    divide_toward_zero,
    floor,
    lesser_integer,
    signed_bits,
    unsigned_bits,
    where,
)
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, make

# Adding one of these to a whole float leaves its integer value in the low bits of the float.
_WHOLE_F32 = 1.5 * 2.0**23
_WHOLE_F64 = 1.5 * 2.0**52


def floor_divide(x: UOp, y: UOp) -> UOp:
    """Quotient toward minus infinity; by zero 0."""
    a, b = Term(x), Term(y)
    divisor = _constant(y)
    if x.dtype.kind == "b":
        return (a & b).node
    if _is_plain(x, y):
        return make(O.IDIV, x.dtype, (x, y), TRUNCATE)
    if divisor is not None:
        return _floor_divide_by(a, b, divisor).node
    return where(b.equals(0), 0, _quotient(a, b)).node


def floor_remainder(x: UOp, y: UOp) -> UOp:
    """Remainder with the sign of the divisor; by zero 0."""
    a, b = Term(x), Term(y)
    divisor = _constant(y)
    if x.dtype.kind == "b":
        return (a & ~a).node
    if _is_plain(x, y):
        return make(O.MOD, x.dtype, (x, y), TRUNCATE)
    if divisor is not None:
        if divisor > 0 and not divisor & (divisor - 1):
            return (a & (divisor - 1)).node
        return (a - _floor_divide_by(a, b, divisor) * b).node if divisor else a.like(0).node
    return where(b.equals(0), 0, a - _quotient(a, b) * b).node


def shift_left(x: UOp, amount: UOp) -> UOp | None:
    """Bits past the top are lost; past the width 0."""
    bits = x.dtype.bits
    if amount.vmin >= 0 and amount.vmax < bits:
        return None
    a, n = Term(x), Term(amount)
    return where(unsigned_bits(n) < bits, a << (n & (bits - 1)), 0).node


def shift_right(x: UOp, amount: UOp) -> UOp | None:
    """Copies of the sign come in from the top; zeros for unsigned."""
    bits = x.dtype.bits
    if amount.vmin >= 0 and amount.vmax < bits:
        return None
    a, n = Term(x), Term(amount)
    if not x.dtype.is_signed:
        return where(n < bits, a >> (n & (bits - 1)), 0).node
    return (a >> bitcast(lesser_integer(unsigned_bits(n), bits - 1), amount.dtype.scalar)).node


def power(x: UOp, exponent: UOp) -> UOp:
    """x**exponent by repeated squaring, wrapping.

    A negative exponent gives what the fraction truncates to: 0, or a power of 1 or -1.
    """
    base, n = Term(x), Term(exponent)
    unit, whole = Term(x), Term(exponent)
    steps = min(exponent.dtype.bits, max(int(exponent.vmax), 1).bit_length())
    known = _constant(exponent)
    result = base.like(1)
    for step in range(steps):
        if known is None:
            result = where((n & (1 << step)).differs(0), result * base, result)
        elif known >> step & 1:
            result = result * base
        base = base * base
    if exponent.vmin >= 0:
        return result.node
    odd = (whole & 1).differs(0)
    one, none = unit.like(1), unit.like(0)
    below = where((unit - 1).differs(0), none, one)
    below = where((unit + 1).differs(0), below, where(odd, -one, one))
    return where(n < 0, below, result).node


def _is_plain(x: UOp, y: UOp) -> bool:
    """Whether truncating division is right and has an instruction, or a known divisor."""
    if x.vmin < 0 or y.vmin <= 0:
        return False
    return y.op == O.CONST or not _has_exact_floats(x.dtype)


def _has_exact_floats(dtype: DType) -> bool:
    """Whether a float quotient is exact; vectors have no integer division."""
    return dtype.lanes > 1 and dtype.bits <= 32


def _constant(node: UOp) -> int | None:
    """The value of an integer constant."""
    return int(node.arg) if node.op == O.CONST else None


def _floor_divide_by(a: Term, b: Term, divisor: int) -> Term:
    """Division by a known divisor: LLVM makes a multiplication of it."""
    if divisor == 0:
        return a.like(0)
    if divisor == -1:
        return -a
    if divisor > 0 and not divisor & (divisor - 1):
        return a >> (divisor.bit_length() - 1)
    quotient = divide_toward_zero(a, b)
    rest = a - quotient * b
    wrong = rest < 0 if divisor > 0 else rest > 0
    return where(wrong, quotient - 1, quotient)


def _quotient(a: Term, b: Term) -> Term:
    """Floor quotient; any value where b is 0."""
    if _has_exact_floats(a.dtype):
        return _quotient_by_floats(a, b)
    if not a.dtype.is_signed:
        return divide_toward_zero(a, where(b.equals(0), 1, b))
    # -1 is divided by 1 and negated, so that the smallest value wraps instead of trapping.
    harmless = where(b.equals(0), 1, where(b.equals(-1), 1, b))
    quotient = divide_toward_zero(a, harmless)
    rest = a - quotient * harmless
    rounded = where(rest.differs(0) & ((rest ^ harmless) < 0), quotient - 1, quotient)
    return where(b.equals(-1), -a, rounded)


def _quotient_by_floats(a: Term, b: Term) -> Term:
    """The float quotient is exact once floored.

    A quotient that is not whole is at least 1/|b| away from a whole number, and the rounding error
    of the division is below |a/b| * 2**-24 (2**-53), which is less than 1/|b| for operands of up
    to 16 (32) bits.
    """
    wide, magic = (dt.float32, _WHOLE_F32) if a.dtype.bits <= 16 else (dt.float64, _WHOLE_F64)
    quotient = floor(cast(a, wide) / cast(b, wide))
    return cast(signed_bits(quotient + magic), a.dtype.scalar)
