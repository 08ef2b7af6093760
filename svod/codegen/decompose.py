"""Lowering of the ops that hardware does not have to the basic ones.

``decompose`` takes the parts of one elementwise node and gives a graph of basic ops with the same
value, or None when the node is basic for its dtypes and the renderer prints it as it is. It may
be asked again about the nodes it made: they are basic.

Basic are: constants; float32 and float64 arithmetic with exact fused multiply-add, square root,
roundings, minimum and maximum (NaN wins); comparisons; integer arithmetic that cannot trap
(``arg`` of the node says so for division and shifts); selection; bit casts; the conversions that
LLVM has an instruction for. Everything works on scalars and vectors alike.
"""

from __future__ import annotations

from typing import Any

from svod.codegen import math_bits, math_f32, math_f64, narrow
from svod.codegen.formula import (
    IN_RANGE,
    INFINITY,
    SATURATE,
    TRUNCATE,
    Term,
    cast,
    square_root,
    where,
)
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, const, make


def decompose(
    op: int, dtype: DType, src: tuple[UOp, ...], arg: Any, has_parts: bool = False
) -> UOp | None:
    """A graph of basic ops for this node, or None when the node itself is basic.

    ``has_parts`` makes LDEXP, EXPONENT and SIGNIFICAND basic for whole registers.
    """
    if op == O.CAST:
        return _decompose_cast(dtype, src[0], arg)
    if op not in O.ALU or op == O.WHERE:
        return None
    operand = src[0].dtype.scalar
    if operand in narrow.NARROW:
        return _in_float32(op, dtype, src, arg, has_parts)
    if operand.is_float:
        return _decompose_float(op, src, has_parts)
    return _decompose_integer(op, src, arg)


def _decompose_float(op: int, src: tuple[UOp, ...], has_parts: bool) -> UOp | None:
    single = src[0].dtype.scalar is dt.float32
    builder = (math_f32.FUNCTIONS if single else math_f64.FUNCTIONS).get(op)
    if has_parts and _fills_registers(src[0].dtype):
        builder = (math_f32.WITH_PARTS if single else math_f64.WITH_PARTS).get(op, builder)
    if builder is None:
        return None
    terms = [Term(s) for s in src]
    if op == O.POW and src[1].op == O.CONST:
        short = _short_power(terms[0], src[1].arg)
        if short is not None:
            return short.node
    return builder(*terms).node


def _fills_registers(dtype: DType) -> bool:
    """Whether a vector is one or several whole registers, the smallest of 128 bits."""
    bits = dtype.lanes * dtype.bits
    return bits >= 128 and not bits & (bits - 1)


def _short_power(x: Term, exponent: float) -> Term | None:
    """Powers that a few exact steps give, with the special values of the general one."""
    if exponent == 0.0:
        return x.like(1.0)
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if exponent == -1.0:
        return 1.0 / x
    if exponent == 0.5:  # -0 gives 0 and minus infinity gives infinity, unlike the root
        return where(x.equals(-INFINITY), INFINITY, square_root(x + 0.0))
    return None


def _decompose_integer(op: int, src: tuple[UOp, ...], arg: Any) -> UOp | None:
    if arg in (TRUNCATE, IN_RANGE):
        return None
    if op == O.IDIV:
        return math_bits.floor_divide(*src)
    if op == O.MOD:
        return math_bits.floor_remainder(*src)
    if op == O.SHL:
        return math_bits.shift_left(*src)
    if op == O.SHR:
        return math_bits.shift_right(*src)
    if op == O.POW:
        return math_bits.power(*src)
    if op == O.FMA:
        return (Term(src[0]) * Term(src[1]) + Term(src[2])).node
    if op in (O.TRUNC, O.FLOOR, O.CEIL, O.ROUND):
        return src[0]
    if src[0].dtype.kind == "b" and op in (O.MAX, O.MIN):
        a, b = Term(src[0]), Term(src[1])
        return (a | b if op == O.MAX else a & b).node
    return None


def _in_float32(op: int, dtype: DType, src: tuple[UOp, ...], arg: Any, has_parts: bool) -> UOp:
    """Arithmetic on narrow floats: widen, compute, round back."""
    if op == O.NEG:
        return narrow.negate(Term(src[0])).node
    if op == O.ABS:
        return narrow.magnitude(Term(src[0])).node
    wide = tuple([narrow.widen(Term(s)).node for s in src])
    result_dtype = dt.float32.vec(dtype.lanes) if dtype.is_float else dtype
    result = decompose(op, result_dtype, wide, arg, has_parts)
    if result is None:
        result = make(op, result_dtype, wide, arg)
    return narrow.narrow(Term(result), dtype.scalar).node if dtype.is_float else result


def _decompose_cast(dtype: DType, x: UOp, arg: Any) -> UOp | None:
    source, target, value = x.dtype.scalar, dtype.scalar, Term(x)
    if source is target:
        return x
    if target.kind == "b":
        return (narrow.is_nonzero(value) if source in narrow.NARROW else value.differs(0)).node
    if source.kind == "b":
        return _from_condition(value, target)
    if not source.is_float:
        if target in narrow.NARROW:
            return narrow.narrow(cast(value, dt.float32), target).node
        return None
    if not target.is_float and source in (dt.float32, dt.float64):
        return None if arg == SATURATE else cast(value, target).node
    if source is dt.float64 and target in narrow.NARROW:
        return narrow.narrow_double(value, target).node
    if {source, target} in ({dt.float32, dt.float64}, {dt.float32, dt.float16}):
        return None
    wide = narrow.widen(value) if source in narrow.NARROW else value
    return (narrow.narrow(wide, target) if target in narrow.NARROW else cast(wide, target)).node


def _from_condition(value: Term, target: DType) -> UOp | None:
    if not target.is_float:
        return None
    if target in narrow.NARROW:
        return narrow.from_condition(value, target).node
    one = Term(const(1.0, target.vec(value.dtype.lanes)))
    return where(value, one, 0.0).node
