"""Algebra on values: rules that hold for every input, bit for bit.

Floats are strict: nothing is reassociated, x*0 stays, and zeros keep their sign. Integers wrap,
so their sums may be regrouped. A NaN stays a NaN, but its payload may change. The rules work on
scalars, vectors and tensors; a result that is a fresh constant replaces only a node of shape ().
Index arithmetic needs none of this: ``svod.ir.symbolic`` builds it in normal form.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import frexp
from typing import Any

from svod.dtype import types as dt
from svod.dtype.casts import pack_const
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from svod.ir.patterns import Rule, ordered, rule
from svod.ir.rewrite import compile_rules

# isort: off
from svod.ir.ops import (
    ABS, ADD, AND, BITCAST, CAST, CEIL, CONST, DIV, EQ, FLOOR, FMA, IDIV, LE, LT, MAX, MIN, MOD,
    MUL, NE, NEG, NOT, OR, ROUND, SHL, SHR, SUB, TRUNC, WHERE, XOR,
)  # fmt: skip
# isort: on

_SWAPPED = ordered(frozenset({ADD, MUL, AND, OR, XOR, EQ, NE}))
_WHOLE_NUMBERS = frozenset({TRUNC, FLOOR, CEIL, ROUND})


# -- what the rules below ask and compute --------------------------------------------------------


def constant(root: UOp, value: Any) -> UOp | None:
    """A constant in place of the root; None where that would lose a shape."""
    return None if root.shape else const(value, root.dtype)


_PLAIN: dict[int, Callable[..., Any]] = {
    ADD: operator.add, SUB: operator.sub, MUL: operator.mul, NEG: operator.neg, MAX: max, MIN: min,
    AND: operator.and_, OR: operator.or_, XOR: operator.xor, LT: operator.lt, LE: operator.le,
    EQ: operator.eq, NE: operator.ne,
}  # fmt: skip


def fold(root: UOp) -> UOp:
    """The value of an operation on constants."""
    plain = _PLAIN.get(root.op)
    if plain is not None and root.src[0].dtype.kind != "f":  # Python's integers, wrapped
        return const(pack_const(plain(*[s.arg for s in root.src]), root.dtype), root.dtype)
    import numpy as np

    from svod.dtype.convert import to_numpy
    from svod.ir.evaluate import apply_alu

    values = [np.array(s.arg).astype(to_numpy(s.dtype)) for s in root.src]
    result = apply_alu(root.op, root.dtype, values)
    return const(float(result) if root.dtype.kind == "f" else int(result), root.dtype)


def cast_constant(root: UOp, c: UOp) -> UOp:
    return const(pack_const(c.arg, root.dtype), root.dtype)


def is_ones(c: UOp) -> bool:
    """All bits set; True for bool."""
    if c.dtype.kind == "b":
        return c.arg is True
    return bool(c.arg == (-1 if c.dtype.is_signed else (1 << c.dtype.bits) - 1))


def ones(root: UOp) -> UOp | None:
    kind = root.dtype.kind
    value = True if kind == "b" else -1 if root.dtype.is_signed else (1 << root.dtype.bits) - 1
    return constant(root, value)


def is_not_constant(x: UOp) -> bool:
    return x.op != CONST


def is_not_index(x: UOp) -> bool:
    return x.dtype.kind != "x"  # index comparisons keep the forms that symbolic makes


# float dtype: bits of the mantissa with the hidden one, exponent of the smallest normal number
_FLOATS = {
    dt.float8_e4m3: (4, -6),
    dt.float8_e5m2: (3, -14),
    dt.float16: (11, -14),
    dt.bfloat16: (8, -126),
    dt.float32: (24, -126),
    dt.float64: (53, -1022),
}


def divide_by_power(root: UOp, x: UOp, c: UOp) -> UOp | None:
    """x / 2^k is x * 2^-k: both round the same exact quotient once."""
    mantissa, exponent = frexp(c.arg)  # c is mantissa * 2^exponent
    if abs(mantissa) != 0.5:
        return None
    lowest = _FLOATS[root.dtype.scalar][1]
    # the reciprocal must be a normal number of the dtype, for devices that flush others
    if not lowest <= 1 - exponent <= -lowest:
        return None
    return make(MUL, root.dtype, (x, const(1.0 / c.arg, c.dtype)))


def is_exact(source: DType, target: DType) -> bool:
    """Every value of ``source`` is a value of ``target``."""
    a, b = source.scalar, target.scalar
    if a is b or a.kind == "b":
        return True
    if b.kind == "b":
        return False
    if a.kind == "f":
        if b.kind != "f":
            return False
        (p, low), (q, high) = _FLOATS[a], _FLOATS[b]
        # with as many exponents below, the larger format also has those above
        return p <= q and low - p >= high - q and low >= high
    magnitude = a.bits - a.is_signed
    if b.kind == "f":
        return b.bits > 8 and magnitude <= _FLOATS[b][0]
    return magnitude <= b.bits - b.is_signed and (b.is_signed or not a.is_signed)


def cast_once(root: UOp, x: UOp) -> UOp | None:
    """One CAST where the first loses nothing, or only bits the second would drop as well."""
    first, middle, last = x.dtype, root.src[0].dtype, root.dtype
    if not _is_one_cast(first, middle, last):
        return None
    return x if first is last else make(CAST, last, (x,))


def _is_one_cast(first: DType, middle: DType, last: DType) -> bool:
    if is_exact(first, middle):
        # Between integers and floats the two ways differ for values the last dtype cannot hold:
        # integers wrap, floats saturate.
        return (first.kind == "f") == (middle.kind == "f") or is_exact(first, last)
    integers = first.kind != "f" and middle.is_int and last.is_int
    return integers and last.bits <= middle.bits  # keeping low bits twice


def bitcast_once(root: UOp, x: UOp) -> UOp:
    return make(BITCAST, root.dtype, (x,))


def rounded(root: UOp) -> UOp:
    return root.src[0]


def swapped(root: UOp, c: UOp, x: UOp) -> UOp:
    return make(root.op, root.dtype, (x, c))


def _same_shape(root: UOp, x: UOp) -> UOp | None:
    return x if x.shape == root.shape else None


# Bounds are those of the dtype unless a node is known to stay inside smaller ones.


def less_by_bounds(root: UOp, x: UOp, y: UOp) -> UOp | None:
    if x.vmax < y.vmin:
        return constant(root, True)
    return constant(root, False) if x.vmin >= y.vmax else None


def at_most_by_bounds(root: UOp, x: UOp, y: UOp) -> UOp | None:
    if x.vmax <= y.vmin:
        return constant(root, True)
    return constant(root, False) if x.vmin > y.vmax else None


def equal_by_bounds(root: UOp, x: UOp, y: UOp) -> UOp | None:
    apart = x.vmax < y.vmin or y.vmax < x.vmin
    return constant(root, root.op == NE) if apart else None


def larger_by_bounds(root: UOp, x: UOp, y: UOp) -> UOp | None:
    if x.vmin >= y.vmax:
        return _same_shape(root, x)
    return _same_shape(root, y) if y.vmin >= x.vmax else None


def smaller_by_bounds(root: UOp, x: UOp, y: UOp) -> UOp | None:
    if x.vmax <= y.vmin:
        return _same_shape(root, x)
    return _same_shape(root, y) if y.vmax <= x.vmin else None


def is_below(x: UOp, c: UOp) -> bool:
    return bool(x.vmin >= 0 and x.vmax < c.arg)


def has_own_dtype(root: UOp, x: UOp) -> bool:
    return x.dtype is root.dtype


def is_signed(x: UOp) -> bool:
    return x.dtype.kind != "u"


def is_unsigned(x: UOp) -> bool:
    return x.dtype.kind == "u"


# -- the rules -----------------------------------------------------------------------------------

VALUE_RULES: tuple[Rule, ...] = (
    # constants
    rule("fold_unary", (O.UNARY, "#a"), fold),
    rule("fold_binary", (O.BINARY_OPS, "#a", "#b"), fold),
    rule("fold_fma", (FMA, "#a", "#b", "#c"), fold),
    rule("constant_right", (_SWAPPED, "#c", "x"), swapped, is_not_constant),
    # addition: only -0.0 is neutral for both zeros
    rule("add_zero", (ADD, "x", -0.0), "x"),
    rule("add_neg", (ADD, "x", (NEG, "y")), (SUB, "x", "y")),
    rule("add_add", (ADD, (ADD, "x:int", "#a"), "#b"), (ADD, "x", (ADD, "#a", "#b"))),
    rule("sub_zero", (SUB, "x", 0), "x"),
    rule("zero_sub", (SUB, -0.0, "x"), (NEG, "x")),
    rule("sub_self", (SUB, "x:int", "x"), 0),
    rule("sub_neg", (SUB, "x", (NEG, "y")), (ADD, "x", "y")),
    rule("sub_constant", (SUB, "x:int", "#c"), (ADD, "x", (NEG, "#c"))),
    rule("add_sub", (ADD, (SUB, "x:int", "y"), "y"), "x"),
    rule("sub_add", (SUB, (ADD, "x:int", "y"), "y"), "x"),
    rule("neg_neg", (NEG, (NEG, "x")), "x"),
    rule("neg_sub", (NEG, (SUB, "x:int", "y")), (SUB, "y", "x")),
    # multiplication and division
    rule("mul_one", (MUL, "x", 1), "x"),
    rule("mul_zero", (MUL, "x:whole", 0), 0),
    rule("mul_minus_one", (MUL, "x:int", -1), (NEG, "x")),
    rule("mul_neg_neg", (MUL, (NEG, "x"), (NEG, "y")), (MUL, "x", "y")),
    rule("mul_mul", (MUL, (MUL, "x:int", "#a"), "#b"), (MUL, "x", (MUL, "#a", "#b"))),
    rule("mul_self_bool", (MUL, "x:bool", "x"), "x"),
    rule("div_one", (DIV, "x", 1), "x"),
    rule("div_minus_one", (DIV, "x", -1), (NEG, "x")),
    rule("div_neg_neg", (DIV, (NEG, "x"), (NEG, "y")), (DIV, "x", "y")),
    rule("div_power_of_two", (DIV, "x", "#c"), divide_by_power),
    rule("fma_one", (FMA, "x", 1, "y"), (ADD, "x", "y")),
    rule("one_fma", (FMA, 1, "x", "y"), (ADD, "x", "y")),
    rule("fma_zero", (FMA, "x", "y", -0.0), (MUL, "x", "y")),
    rule("idiv_one", (IDIV, "x", 1), "x"),
    rule("zero_idiv", (IDIV, 0, "x"), 0),
    rule("idiv_below", (IDIV, "x", "#c"), 0, is_below),
    rule("mod_one", (MOD, "x", 1), 0),
    rule("zero_mod", (MOD, 0, "x"), 0),
    rule("mod_self", (MOD, "x", "x"), 0),
    rule("mod_below", (MOD, "x", "#c"), "x", is_below),
    rule("mod_mod", (MOD, (MOD, "x", "y"), "y"), (MOD, "x", "y")),
    rule("shl_zero", (SHL, "x", 0), "x"),
    rule("shr_zero", (SHR, "x", 0), "x"),
    # magnitude, rounding, maximum
    rule("abs_neg", (ABS, (NEG, "x")), (ABS, "x"), is_signed),
    rule("abs_abs", (ABS, (ABS, "x")), (ABS, "x")),
    rule("abs_unsigned", (ABS, "x"), "x", is_unsigned),
    rule("round_round", (_WHOLE_NUMBERS, (_WHOLE_NUMBERS, "x")), rounded),
    rule("max_self", (MAX, "x", "x"), "x"),
    rule("min_self", (MIN, "x", "x"), "x"),
    rule("max_max", (MAX, (MAX, "x:whole", "y"), "y"), (MAX, "x", "y")),
    rule("min_min", (MIN, (MIN, "x:whole", "y"), "y"), (MIN, "x", "y")),
    rule("max_bounds", (~MAX, "x:whole", "y"), larger_by_bounds),
    rule("min_bounds", (~MIN, "x:whole", "y"), smaller_by_bounds),
    # comparisons: a NaN is not equal to itself
    rule("lt_self", (LT, "x", "x"), False),
    rule("le_self", (LE, "x:whole", "x"), True),
    rule("eq_self", (EQ, "x:whole", "x"), True),
    rule("ne_self", (NE, "x:whole", "x"), False),
    rule("lt_bounds", (LT, "x:whole", "y"), less_by_bounds),
    rule("le_bounds", (LE, "x:whole", "y"), at_most_by_bounds),
    rule("eq_bounds", (ordered(frozenset({EQ, NE})), "x:whole", "y"), equal_by_bounds),
    rule("eq_true", (EQ, "x", True), "x"),
    rule("eq_false", (EQ, "x", False), (NOT, "x")),
    rule("ne_true", (NE, "x", True), (NOT, "x")),
    rule("ne_false", (NE, "x", False), "x"),
    rule("lt_true", (LT, "x", True), (NOT, "x")),
    rule("false_lt", (LT, False, "x"), "x"),
    rule("le_false", (LE, "x", False), (NOT, "x")),
    rule("true_le", (LE, True, "x"), "x"),
    rule("cast_ne_zero", (NE, (CAST, "x:bool"), 0), "x"),
    rule("cast_eq_zero", (EQ, (CAST, "x:bool"), 0), (NOT, "x")),
    rule("cast_eq_one", (EQ, (CAST, "x:bool"), 1), "x"),
    rule("cast_ne_one", (NE, (CAST, "x:bool"), 1), (NOT, "x")),
    # bits; bool is one bit
    rule("not_not", (NOT, (NOT, "x")), "x"),
    rule("not_eq", (NOT, (EQ, "x", "y")), (NE, "x", "y"), is_not_index),
    rule("not_ne", (NOT, (NE, "x", "y")), (EQ, "x", "y")),
    rule("not_lt", (NOT, (LT, "x:whole", "y")), (LE, "y", "x"), is_not_index),
    rule("not_le", (NOT, (LE, "x:whole", "y")), (LT, "y", "x")),
    rule("and_self", (AND, "x", "x"), "x"),
    rule("or_self", (OR, "x", "x"), "x"),
    rule("xor_self", (XOR, "x", "x"), 0),
    rule("and_zero", (AND, "x", 0), 0),
    rule("and_ones", (AND, "x", "#c"), "x", is_ones),
    rule("or_zero", (OR, "x", 0), "x"),
    rule("or_ones", (OR, "x", "#c"), "#c", is_ones),
    rule("xor_zero", (XOR, "x", 0), "x"),
    rule("xor_ones", (XOR, "x", "#c"), (NOT, "x"), is_ones),
    rule("and_not", (AND, "x", (NOT, "x")), 0),
    rule("or_not", (OR, "x", (NOT, "x")), ones),
    rule("and_and", (AND, "x", (AND, "x", "y")), (AND, "x", "y")),
    rule("or_or", (OR, "x", (OR, "x", "y")), (OR, "x", "y")),
    rule("and_or", (AND, "x", (OR, "x", "y")), "x"),
    rule("or_and", (OR, "x", (AND, "x", "y")), "x"),
    rule("and_constants", (AND, (AND, "x", "#a"), "#b"), (AND, "x", (AND, "#a", "#b"))),
    rule("or_constants", (OR, (OR, "x", "#a"), "#b"), (OR, "x", (OR, "#a", "#b"))),
    rule("xor_constants", (XOR, (XOR, "x", "#a"), "#b"), (XOR, "x", (XOR, "#a", "#b"))),
    # choice
    rule("where_true", (WHERE, True, "a", "b"), "a"),
    rule("where_false", (WHERE, False, "a", "b"), "b"),
    rule("where_same", (WHERE, "c", "a", "a"), "a"),
    rule("where_not", (WHERE, (NOT, "c"), "a", "b"), (WHERE, "c", "b", "a")),
    rule("where_is_condition", (WHERE, "c", True, False), "c"),
    rule("where_is_not", (WHERE, "c", False, True), (NOT, "c")),
    rule("where_and", (WHERE, "c", "a", False), (AND, "c", "a"), lambda a: a.dtype.kind == "b"),
    rule("where_or", (WHERE, "c", True, "b"), (OR, "c", "b")),
    rule("where_then", (WHERE, "c", (WHERE, "c", "a", "b"), "d"), (WHERE, "c", "a", "d")),
    rule("where_else", (WHERE, "c", "a", (WHERE, "c", "b", "d")), (WHERE, "c", "a", "d")),
    # conversions
    rule("cast_constant", (CAST, "#c"), cast_constant),
    rule("cast_same", (CAST, "x"), "x", has_own_dtype),
    rule("cast_cast", (CAST, (CAST, "x")), cast_once),
    rule("bitcast_same", (BITCAST, "x"), "x", has_own_dtype),
    rule("bitcast_bitcast", (BITCAST, (BITCAST, "x")), bitcast_once),
)

VALUES = compile_rules(VALUE_RULES, "values")
