"""Elementwise functions of two or three tensors: the graphs behind the operators.

Operands are promoted to one dtype and broadcast. Python numbers are weak: they take the dtype
of the tensor they meet. On bool, ``+`` and ``*`` are "or" and "and", as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ComplexOperand, DTypeError
from svod.dtype import types as dt
from svod.dtype.promotion import result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core.tensor_core import (
    Scalar,
    common_device,
    float_node,
    pair,
    scalar_node,
    tensor_of,
    wrap,
)

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_NUMBERS = (int, float, complex)
ON_BOOL = {O.ADD: O.OR, O.MUL: O.AND, O.MAX: O.OR, O.MIN: O.AND}


def arithmetic(op: int, a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """One of ADD, SUB, MUL, MAX, MIN."""
    x, y, device = pair(a, b)
    if x.dtype is dt.bool_:
        if op == O.SUB:
            raise DTypeError("bool tensors cannot be subtracted: use ^ or logical_xor")
        op = ON_BOOL[op]
    return wrap(B.binary(op, y, x) if swap else B.binary(op, x, y), device)


def bitwise(op: int, a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """One of AND, OR, XOR, SHL, SHR, on integers or bools."""
    x, y, device = pair(a, b)
    if x.dtype.kind == "f" or (x.dtype.kind == "b" and op in (O.SHL, O.SHR)):
        raise DTypeError(f"{O.NAMES[op].lower()} takes integers, not {x.dtype.name}")
    return wrap(B.binary(op, y, x) if swap else B.binary(op, x, y), device)


def compare(op: int, a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """One of LT, LE, EQ, NE."""
    if isinstance(b, int) and a.dtype.kind in "iu":
        low, high = dt.integer_limits(a.dtype)
        if not low <= b <= high:  # the constant would wrap: every element is on one side of it
            b = float("inf") if b > 0 else float("-inf")
    if isinstance(b, (int, float)) and a.dtype.kind == "f" and a.dtype.bits == 8:
        a = a.cast(dt.float32)  # which holds the number; float8_e4m3 has no infinity
    x, y, device = pair(a, b)
    return wrap(B.binary(op, y, x) if swap else B.binary(op, x, y), device)


def divide(a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """Float division; integers become float32 first."""
    x, y, device = pair(a, b)
    x, y = float_node(x), float_node(y)
    try:
        return wrap(B.binary(O.DIV, y, x) if swap else B.binary(O.DIV, x, y), device)
    except ComplexOperand:
        left, right = wrap(x, device), wrap(y, device)
        return right / left if swap else left / right


def _float_modulo(x: UOp, y: UOp) -> UOp:
    """Remainder with the sign of the divisor, also when it is zero."""
    rest = B.binary(O.FMOD, x, y)
    zero = const(0.0, x.dtype)
    below = B.binary(O.LT, y, zero)
    up = B.binary(O.ADD, rest, zero)  # -0 becomes 0
    down = B.unary(O.NEG, B.binary(O.ADD, B.unary(O.NEG, rest), zero))
    differ = B.binary(O.XOR, B.binary(O.LT, rest, zero), below)
    wrong = B.binary(O.AND, B.binary(O.NE, rest, zero), differ)
    return B.where(wrong, B.binary(O.ADD, rest, y), B.where(below, down, up))


def _float_floor_divide(x: UOp, y: UOp) -> UOp:
    """The quotient that fits the remainder: 1.0 // 0.1 is 9, though 1.0 / 0.1 rounds to 10.

    As the array API says: an infinity divided by a number stays one, a number divided by an
    infinity is zero, and a zero has the sign of the quotient.
    """
    zero, one = const(0.0, x.dtype), const(1.0, x.dtype)
    rest = B.binary(O.FMOD, x, y)
    exact = B.binary(O.DIV, B.binary(O.SUB, x, rest), y)
    differ = B.binary(O.XOR, B.binary(O.LT, rest, zero), B.binary(O.LT, y, zero))
    below = B.binary(O.AND, B.binary(O.NE, rest, zero), differ)
    exact = B.where(below, B.binary(O.SUB, exact, one), exact)
    down = B.unary(O.FLOOR, exact)
    high = B.binary(O.LT, const(0.5, x.dtype), B.binary(O.SUB, exact, down))
    near = B.where(high, B.binary(O.ADD, down, one), down)
    quotient = B.binary(O.DIV, x, y)
    near = B.where(B.binary(O.EQ, near, zero), B.binary(O.MUL, quotient, zero), near)
    infinity = const(float("inf"), x.dtype)
    infinite = [B.binary(O.EQ, B.unary(O.ABS, node), infinity) for node in (x, y)]
    plain = B.binary(O.OR, B.binary(O.OR, *infinite), B.binary(O.EQ, y, zero))
    return B.where(plain, quotient, near)


def floor_divide(a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """Division rounded toward minus infinity; an integer divided by zero gives 0."""
    x, y, device = pair(a, b)
    if swap:
        x, y = y, x
    if x.dtype.kind == "f":
        return wrap(_float_floor_divide(x, y), device)
    if x.dtype.kind == "b":
        raise DTypeError("floor division takes numbers, not bool")
    return wrap(B.binary(O.IDIV, x, y), device)


def modulo(a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """Remainder with the sign of the divisor; an integer modulo zero gives 0."""
    x, y, device = pair(a, b)
    if swap:
        x, y = y, x
    if x.dtype.kind == "f":
        return wrap(_float_modulo(x, y), device)
    if x.dtype.kind == "b":
        raise DTypeError("the remainder takes numbers, not bool")
    return wrap(B.binary(O.MOD, x, y), device)


def power(a: Tensor, b: Any, swap: bool = False) -> Tensor:
    """a to the power of b; small whole exponents are products."""
    if not swap and isinstance(b, (int, float)) and not isinstance(b, bool):
        if type(b) is int and b < 0 and a.dtype.kind in "biu":
            raise DTypeError(
                f"{a.dtype.name} to the power of {b} is no integer: cast to a float dtype first"
            )
        known = _constant_power(a, b)
        if known is not None:
            return known
    x, y, device = pair(a, b)
    if swap:
        x, y = y, x
    if x.dtype.kind == "b":
        raise DTypeError("powers take numbers, not bool")
    try:
        return wrap(B.binary(O.POW, x, y), device)
    except ComplexOperand:
        return wrap(x, device) ** wrap(y, device)


def _constant_power(a: Tensor, exponent: Scalar) -> Tensor | None:
    x = a.uop
    x = B.cast(x, result_type(x.dtype, exponent))
    if exponent == 1:
        return wrap(x, a._device)
    if exponent == 2:
        return wrap(B.binary(O.MUL, x, x), a._device)
    if exponent == 3:
        return wrap(B.binary(O.MUL, B.binary(O.MUL, x, x), x), a._device)
    if x.dtype.kind == "f" and exponent == -1:
        return wrap(B.unary(O.RECIP, x), a._device)
    if x.dtype.kind == "f" and exponent == -2:
        return wrap(B.unary(O.RECIP, B.binary(O.MUL, x, x)), a._device)
    return None


def truth(x: UOp) -> UOp:
    """Whether an element is not zero."""
    if x.dtype is dt.bool_:
        return x
    return B.binary(O.NE, x, const(0, x.dtype))


def select(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the condition holds, else b; a and b may be numbers."""
    test = tensor_of(condition)
    device = test._device
    values = []
    for value in (a, b):
        is_number = isinstance(value, _NUMBERS)
        values.append(value if is_number else tensor_of(value, test))
        if not is_number:
            device = common_device(device, values[-1]._device)
    dtype: DType = result_type(*[v if isinstance(v, _NUMBERS) else v.dtype for v in values])
    x, y = [
        scalar_node(v, dtype) if isinstance(v, _NUMBERS) else B.cast(v.uop, dtype) for v in values
    ]
    return wrap(B.where(truth(test.uop), x, y), device)


def widened(t: Tensor) -> Tensor:
    """The tensor in float32 where it is narrower: what several steps are computed in."""
    dtype = t.uop.dtype
    return t.cast(dt.float32) if dtype.kind == "f" and dtype.bits < 32 else t


def rounded(found: Tensor, like: Tensor) -> Tensor:
    """A result of `widened` back in the dtype of the argument: rounded once."""
    dtype = like.uop.dtype
    return found.cast(dtype) if dtype.kind == "f" and dtype.bits < 32 else found
