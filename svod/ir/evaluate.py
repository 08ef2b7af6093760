"""The NumPy meaning of the tensor graph: what every op computes, run node by node.

In: a root and arrays for its leaves. Out: the array of the root. Slow and plain on purpose: other
devices are tested against it, and constants are folded with ``apply_alu``.
16 and 8-bit floats compute in float32 and round after each op. float32 functions (EXP, SIN, …)
compute in float64 and round, so they are right to the last bit but for rare near-ties.
Integers wrap. Every input has a defined result and no NumPy warning escapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from svod.base.errors import GraphError
from svod.dtype.casts import cast_array, pack_const
from svod.dtype.convert import from_numpy, to_numpy
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import DIGIT_BITS
from svod.ir.node import UOp, toposort
from svod.ir.reductions import identity

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Any]


def evaluate(root: UOp, leaves: Mapping[UOp, npt.ArrayLike]) -> Array:
    """The value of the root, as a new array.

    ``leaves`` gives the values of BUFFERs, PARAMs, variables or any other node, in the node's
    shape and dtype. A BIND that is not among them has the value it binds, and so has its
    variable. The value of an ASSIGN is what it assigns; nothing is written.
    """
    order = _needed(root, leaves)
    uses = dict.fromkeys(order, 0)
    for node in order:
        for source in _operands(node, leaves):
            uses[source] += 1
    values: dict[UOp, Array] = {}
    bound = {n.src[0]: n.src[1] for n in order if n.op == O.BIND}
    for node in order:
        operands = _operands(node, leaves)
        if node in leaves:
            value = _leaf(node, leaves[node])
        elif node.op == O.DEFINE_VAR and node in bound and bound[node].op == O.CONST:
            value = np.array(bound[node].arg, np.int64)
        else:
            value = _compute(node, [values[s] for s in operands])
            if value.shape != node.shape:
                raise GraphError(
                    f"{node!r} computed an array of shape {value.shape}; its sources do not fit"
                )
        values[node] = value
        for source in operands:
            uses[source] -= 1
            if not uses[source]:
                values.pop(source, None)
    return np.array(values[root])


def takes_dtype(op: int, dtype: DType) -> bool:
    """Whether the ALU op exists for operands of this dtype."""
    kind = dtype.kind
    if op in FLOAT_ONLY:
        return kind == "f"
    if op in INTEGER_ONLY:
        return kind in "uix"
    if op in BITWISE:
        return kind in "buix"
    if op in NUMBERS_ONLY:
        return kind in "uixf"
    return kind in "buixf"  # MUL MAX MIN LT LE EQ NE WHERE; MUL of bools is AND


INTEGER_ONLY: Final = frozenset({O.IDIV, O.MOD, O.SHL, O.SHR})
BITWISE: Final = frozenset({O.AND, O.OR, O.XOR, O.NOT})
NUMBERS_ONLY: Final = frozenset({O.NEG, O.ABS, O.ADD, O.SUB, O.POW, O.FMA})  # not bool
FLOAT_ONLY: Final = (O.UNARY - {O.NEG, O.ABS, O.NOT}) | {O.DIV, O.ATAN2, O.FMOD}


def apply_alu(op: int, dtype: DType, args: list[Array]) -> Array:
    """The op on operands of equal shapes (rank-0 ones broadcast); ``dtype`` is the result's."""
    count = 1 if op in O.UNARY else 2 if op in O.BINARY_OPS else 3 if op in O.TERNARY else 0
    if len(args) != count or not count:
        raise GraphError(f"{O.NAMES.get(op, op)} with {len(args)} operands is no ALU operation")
    if op == O.WHERE:
        return np.where(args[0], args[1], args[2])
    operand = from_numpy(args[0].dtype)
    if not takes_dtype(op, operand):
        raise GraphError(f"{O.NAMES[op]} does not take {operand.name}")
    with np.errstate(all="ignore"):
        if operand.kind == "f":
            return _apply_float(op, operand, args)
        result = np.asarray(_INTEGER[op](*args))
    if op in O.COMPARE:
        return result
    return result.astype(to_numpy(dtype), copy=False)


def _apply_float(op: int, operand: DType, args: list[Array]) -> Array:
    small = operand.bits < 32
    if small:
        args = [a.astype(np.float32) for a in args]
    if op in _FUNCTIONS and args[0].dtype == np.float32:
        result = _FUNCTIONS[op](*[a.astype(np.float64) for a in args])
        result = np.asarray(result).astype(np.float32)
    else:
        table = _FUNCTIONS if op in _FUNCTIONS else _FLOAT
        result = np.asarray(table[op](*args))
    return cast_array(result, operand) if small and op not in O.COMPARE else result


def _erf(x: Array) -> Array:
    values = map(math.erf, x.ravel().tolist())
    return np.fromiter(values, np.float64, x.size).reshape(x.shape)


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float32:
        return _fma_float32(a, b, c)
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    columns = [np.broadcast_to(x, shape).ravel().tolist() for x in (a, b, c)]
    values = map(_fma_float64, *columns)
    return np.fromiter(values, np.float64, len(columns[0])).reshape(shape)


def _fma_float32(a: Array, b: Array, c: Array) -> Array:
    """One rounding: the exact sum is rounded to odd in float64, then to float32."""
    product = np.asarray(a.astype(np.float64) * b.astype(np.float64))  # exact: 48 bits
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    # The error of the sum, exactly (Knuth's two-sum).
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.asarray(np.where(inexact, bits + step, bits)).view(np.float64)
    return odd.astype(np.float32)


def _fma_float64(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a == 0 or b == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _floor_divide(a: Array, b: Array) -> Array:
    # Dividing by 1 instead of 0 and -1 keeps the hardware from trapping on any platform.
    safe = np.where((b == 0) | _is_minus_one(b), np.ones_like(b), b)
    quotient = np.where(_is_minus_one(b), np.negative(a), np.floor_divide(a, safe))
    return np.where(b == 0, np.zeros_like(quotient), quotient)


def _floor_modulo(a: Array, b: Array) -> Array:
    return np.remainder(a, np.where((b == 0) | _is_minus_one(b), np.ones_like(b), b))


def _is_minus_one(b: Array) -> Array:
    return b == -1 if b.dtype.kind == "i" else np.zeros(b.shape, np.bool_)


def _past_width(a: Array, b: Array) -> Array:
    """Shift amounts count as unsigned, so a negative one is past the width too."""
    width = 8 * a.dtype.itemsize
    past: Array = (b >= width) | (b < 0) if b.dtype.kind == "i" else np.asarray(b >= width)
    return past


def _shift_left(a: Array, b: Array) -> Array:
    past = _past_width(a, b)
    shifted = np.left_shift(a, np.where(past, np.zeros_like(b), b))
    return np.where(past, np.zeros_like(shifted), shifted)


def _shift_right(a: Array, b: Array) -> Array:
    past = _past_width(a, b)
    last = b.dtype.type(8 * a.dtype.itemsize - 1)
    shifted = np.right_shift(a, np.where(past, last, b))
    return shifted if a.dtype.kind == "i" else np.where(past, np.zeros_like(shifted), shifted)


def _integer_power(a: Array, b: Array) -> Array:
    """Repeated squaring; a negative exponent gives the truncated true value, 0 for base 0."""
    base, exponent = (np.array(x) for x in np.broadcast_arrays(a, b))
    result = np.ones_like(base)
    negative = exponent < 0
    left = np.where(negative, np.zeros_like(exponent), exponent)
    while np.any(left):
        result = np.where(left & 1 == 1, result * base, result)
        base = base * base
        left = left >> 1
    if not np.any(negative):
        return result
    base = np.broadcast_to(a, result.shape)
    sign = np.where(exponent & 1 == 1, base, base * base)  # of base 1 or -1
    unit = np.where((base == 1) | (base == -1), sign, np.zeros_like(base))
    return np.where(negative, unit, result)


_COMPARE: Final[dict[int, Function]] = {
    O.LT: np.less,
    O.LE: np.less_equal,
    O.EQ: np.equal,
    O.NE: np.not_equal,
}
_INTEGER: Final[dict[int, Function]] = {
    **_COMPARE,
    O.NEG: np.negative,
    O.ABS: np.abs,
    O.NOT: np.invert,
    O.ADD: np.add,
    O.SUB: np.subtract,
    O.MUL: np.multiply,
    O.IDIV: _floor_divide,
    O.MOD: _floor_modulo,
    O.MAX: np.maximum,
    O.MIN: np.minimum,
    O.POW: _integer_power,
    O.AND: np.bitwise_and,
    O.OR: np.bitwise_or,
    O.XOR: np.bitwise_xor,
    O.SHL: _shift_left,
    O.SHR: _shift_right,
    O.FMA: lambda a, b, c: a * b + c,
}
# One rounding, or none, in the dtype itself.
_FLOAT: Final[dict[int, Function]] = {
    **_COMPARE,
    O.NEG: np.negative,
    O.ABS: np.abs,
    O.RECIP: np.reciprocal,
    O.SQRT: np.sqrt,
    O.TRUNC: np.trunc,
    O.FLOOR: np.floor,
    O.CEIL: np.ceil,
    O.ROUND: np.rint,
    O.ADD: np.add,
    O.SUB: np.subtract,
    O.MUL: np.multiply,
    O.DIV: np.divide,
    O.MAX: np.maximum,
    O.MIN: np.minimum,
    O.FMOD: np.fmod,
    O.FMA: _fma,
}
# Computed in float64 for float32 operands.
_FUNCTIONS: Final[dict[int, Function]] = {
    O.EXP: np.exp,
    O.EXP2: np.exp2,
    O.LOG: np.log,
    O.LOG2: np.log2,
    O.SIN: np.sin,
    O.COS: np.cos,
    O.TAN: np.tan,
    O.TANH: np.tanh,
    O.ERF: _erf,
    O.RSQRT: lambda x: 1.0 / np.sqrt(x),
    O.EXPM1: np.expm1,
    O.LOG1P: np.log1p,
    O.ASIN: np.arcsin,
    O.ACOS: np.arccos,
    O.ATAN: np.arctan,
    O.SINH: np.sinh,
    O.COSH: np.cosh,
    O.ASINH: np.arcsinh,
    O.ACOSH: np.arccosh,
    O.ATANH: np.arctanh,
    O.POW: np.power,
    O.ATAN2: np.arctan2,
}


def _needed(root: UOp, leaves: Mapping[UOp, npt.ArrayLike]) -> list[UOp]:
    seen = {root}
    found = [root]
    for node in found:  # grows while it is read
        for source in _operands(node, leaves):
            if source not in seen:
                seen.add(source)
                found.append(source)
    return [node for node in toposort((root,)) if node in seen]


def _operands(node: UOp, leaves: Mapping[UOp, npt.ArrayLike]) -> tuple[UOp, ...]:
    """The sources whose values are needed."""
    if node in leaves:
        return ()
    if node.op in _FIRST_SOURCE:
        return node.src[:1]
    if node.op in _SECOND_SOURCE:
        return node.src[1:2]
    return node.src


_FIRST_SOURCE: Final = frozenset({O.CONTIGUOUS, O.COPY, O.SHARD, O.AFTER})
_SECOND_SOURCE: Final = frozenset({O.BIND, O.ASSIGN})


def _leaf(node: UOp, value: npt.ArrayLike) -> Array:
    array = np.asarray(value)
    if node.dtype.kind == "x" and array.dtype.kind in "iu":
        array = array.astype(np.int64)
    expected = to_numpy(node.dtype)
    if array.dtype != expected or array.shape != node.shape:
        raise GraphError(
            f"the value given for {node!r} is {array.dtype}{list(array.shape)}, "
            f"not {expected}{list(node.shape)}"
        )
    return array


def _compute(node: UOp, args: list[Array]) -> Array:
    op, dtype, arg = node.op, node.dtype, node.arg
    if op in O.ALU:
        return apply_alu(op, dtype, args)
    if op in _FIRST_SOURCE or op in _SECOND_SOURCE:
        return args[0] if op != O.ASSIGN else np.broadcast_to(args[0], node.shape)
    if op in O.MOVEMENT:
        return _move(op, arg, args[0])
    compute = _COMPUTE.get(op)
    if compute is not None:
        return compute(node, args)
    raise GraphError(f"{node!r} has no value of its own; give one for it in leaves")


def _move(op: int, arg: Any, x: Array) -> Array:
    if op == O.RESHAPE:
        return x.reshape(arg)
    if op == O.PERMUTE:
        return x.transpose(arg)
    if op == O.EXPAND:
        return np.broadcast_to(x, arg)
    if op == O.SHRINK:
        return x[tuple(slice(start, stop) for start, stop in arg)]
    if op == O.FLIP:
        return np.flip(x, arg)
    extents = [n + before + after for n, (before, after) in zip(x.shape, arg, strict=True)]
    padded = np.zeros(extents, x.dtype)
    inside = tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, arg, strict=True))
    padded[inside] = x
    return padded


def _constant(node: UOp, args: list[Array]) -> Array:
    return np.array(pack_const(node.arg, node.dtype)).astype(to_numpy(node.dtype))


def _bitcast(node: UOp, args: list[Array]) -> Array:
    target = to_numpy(node.dtype)
    if target.itemsize != args[0].dtype.itemsize or target.kind == "b":
        raise GraphError(f"{node!r} of a {args[0].dtype}: the widths differ, or it makes a bool")
    return args[0].view(target)


def _reduce(node: UOp, args: list[Array]) -> Array:
    op, dtype = node.arg.op, node.dtype
    small = dtype.kind == "f" and dtype.bits < 32
    values = args[0].astype(np.float32) if small else args[0]
    start = values.dtype.type(identity(op, dtype))
    axes = tuple(node.arg.axes)
    with np.errstate(all="ignore"):
        result = _FOLD[op].reduce(
            values, axis=axes, dtype=values.dtype, keepdims=True, initial=start
        )
    return cast_array(np.asarray(result), dtype)


_FOLD: Final[dict[int, np.ufunc]] = {
    O.ADD: np.add,
    O.MUL: np.multiply,
    O.MAX: np.maximum,
    O.MIN: np.minimum,
    O.AND: np.bitwise_and,
    O.OR: np.bitwise_or,
    O.XOR: np.bitwise_xor,
}


def _iota(node: UOp, args: list[Array]) -> Array:
    return cast_array(np.arange(node.arg, dtype=np.int64), node.dtype)


def _view(node: UOp, args: list[Array]) -> Array:
    elements = np.ascontiguousarray(args[0]).view(to_numpy(node.dtype))
    return elements[node.arg.offset : node.arg.offset + node.arg.size]


def _concatenate(node: UOp, args: list[Array]) -> Array:
    return np.concatenate(args, axis=node.arg)


def _places(extents: tuple[int, ...], indices: list[Array]) -> tuple[Array, Array]:
    """Row-major place of every index tuple among the leading axes, and whether it is inside."""
    inside = np.ones(indices[0].shape, np.bool_)
    place = np.zeros(indices[0].shape, np.int64)
    for extent, index in zip(extents, indices, strict=True):
        inside &= (index >= 0) & (index < extent)
    for extent, index in zip(extents, indices, strict=True):
        place = place * extent + np.where(inside, index, np.zeros_like(index)).astype(np.int64)
    return place, inside


def _gather(node: UOp, args: list[Array]) -> Array:
    x, indices = args[0], args[1:]
    count = len(indices)
    place, inside = _places(x.shape[:count], indices)
    result = np.zeros(node.shape, x.dtype)
    if inside.any():
        rows = x.reshape((math.prod(x.shape[:count]), *x.shape[count:]))
        result[inside] = rows[place[inside]]
    return result


def _scatter(node: UOp, args: list[Array]) -> Array:
    x, values, indices = args[0], args[1], args[2:]
    count = len(indices)
    place, inside = _places(x.shape[:count], indices)
    rest = x.shape[count:]
    target = np.array(x).reshape((math.prod(x.shape[:count]), *rest))
    chosen = np.broadcast_to(values, place.shape + rest)[inside]
    where = place[inside]
    if node.arg != "set":
        with np.errstate(all="ignore"):
            (np.add if node.arg == "add" else np.maximum).at(target, where, chosen)
        return target.reshape(x.shape)
    # The last of equal places wins, whatever order NumPy would write in.
    unique, last = np.unique(where[::-1], return_index=True)
    target[unique] = chosen[::-1][last]
    return target.reshape(x.shape)


def _as_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _sort(node: UOp, args: list[Array]) -> Array:
    found = np.sort(args[0], axis=-1)[..., : node.arg.kept]
    if node.arg.shown == 64:
        return found
    return (found & np.uint64((1 << node.arg.shown) - 1)).astype(np.int64)


def _radix(node: UOp, args: list[Array]) -> Array:
    x, (step, low, block) = args[0], node.arg
    if step == "start":
        sums = np.zeros(node.shape, np.uint32)
        np.cumsum(x, axis=-1, dtype=np.uint32, out=sums[..., 1:])
        return sums
    digits = (x >> np.uint64(low)) & np.uint64((1 << DIGIT_BITS) - 1)
    if step == "deal":
        dealt = np.take_along_axis(x, np.argsort(digits, axis=-1, kind="stable"), -1)
        return (dealt >> np.uint64(DIGIT_BITS)) | (dealt << np.uint64(64 - DIGIT_BITS))
    counts = np.zeros(node.shape, np.uint32)
    blocks = np.broadcast_to(np.arange(x.shape[-1]) // block, x.shape)
    rows = counts.reshape(-1, *counts.shape[-2:])
    for row, digit, where in zip(rows, *map(_as_rows, (digits, blocks)), strict=True):
        np.add.at(row, (digit.astype(np.int64), where), 1)
    return counts


_COMPUTE: Final[dict[int, Callable[[UOp, list[Array]], Array]]] = {
    O.CONST: _constant,
    O.CAST: lambda node, args: cast_array(args[0], node.dtype),
    O.BITCAST: _bitcast,
    O.REDUCE_AXIS: _reduce,
    O.IOTA: _iota,
    O.BUFFER_VIEW: _view,
    O.CAT: _concatenate,
    O.GATHER: _gather,
    O.SCATTER: _scatter,
    O.SORT: _sort,
    O.RADIX: _radix,
}
