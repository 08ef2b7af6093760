"""What follows from the parts of a node: bounds of integers, the shape, the open ranges.

Bounds are known when a node is made. Shapes and ranges are found when they are first asked for,
sources first and without recursion, and kept in the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ComplexOperand
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import DIGIT_BITS, RadixArg

if TYPE_CHECKING:
    from svod.ir.node import UOp

_SHAPELESS = ()  # type: tuple[int, ...]
_EMPTY: frozenset[Any] = frozenset()
INDEX_LIMIT = (1 << 62) - 1


def index_bounds(op: int, src: tuple[UOp, ...], arg: Any) -> tuple[int, int]:
    if op == O.CONST:
        return arg, arg
    if op == O.RANGE or op == O.SPECIAL:
        return 0, max(src[0].vmax - 1, 0)
    if op == O.DEFINE_VAR:
        return arg.lo, arg.hi
    if op == O.LANES:
        return 0, arg - 1
    if len(src) == 2:
        a, b = src
        a0, a1, b0, b1 = a.vmin, a.vmax, b.vmin, b.vmax
        if op == O.ADD:
            return a0 + b0, a1 + b1
        if op == O.MUL:
            corners = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
            return min(corners), max(corners)
        if op == O.IDIV and b0 > 0:
            corners = (a0 // b0, a0 // b1, a1 // b0, a1 // b1)
            return min(corners), max(corners)
        if op == O.MOD and b0 > 0:
            if a0 >= 0 and a1 < b0:
                return a0, a1
            return 0, b1 - 1
        if op == O.MAX:
            return max(a0, b0), max(a1, b1)
        if op == O.MIN:
            return min(a0, b0), min(a1, b1)
        if op == O.SUB:
            return a0 - b1, a1 - b0
    if op == O.WHERE:
        return min(src[1].vmin, src[2].vmin), max(src[1].vmax, src[2].vmax)
    if op == O.BIND or op == O.BROADCAST or op == O.AFTER or op == O.GEP:
        return src[0].vmin, src[0].vmax
    if op == O.CAST and src[0].vmin is not None:
        return max(src[0].vmin, -INDEX_LIMIT), min(src[0].vmax, INDEX_LIMIT)
    return -INDEX_LIMIT, INDEX_LIMIT


def integer_bounds(op: int, dtype: DType, src: tuple[UOp, ...], arg: Any) -> tuple[int, int]:
    if op == O.CONST:
        return int(arg), int(arg)
    lo, hi = dt.integer_limits(dtype)
    if op in O.COMPARE and src[0].dtype.kind == "c":
        raise ComplexOperand(f"{O.NAMES[op]} takes real numbers, not {src[0].dtype.name}")
    if op == O.CAST and src[0].vmin is not None and lo <= src[0].vmin and src[0].vmax <= hi:
        return src[0].vmin, src[0].vmax
    if op == O.IOTA:
        return 0, max((arg if type(arg) is int else arg.vmax) - 1, 0)
    if op == O.DEFINE_VAR:
        return arg.lo, arg.hi
    if op in O.MOVEMENT and op != O.PAD and src[0].vmin is not None:
        return src[0].vmin, src[0].vmax
    return lo, hi


# -- shapes ------------------------------------------------------------------------------------


def fill_shapes(root: UOp) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node._shape is not None:
            stack.pop()
            continue
        waiting = [s for s in node.src if s._shape is None]
        if waiting:
            stack.extend(waiting)
            continue
        node._shape = _shape_of(node)
        stack.pop()


def _shape_of(node: UOp) -> tuple[int, ...]:
    op, src, arg = node.op, node.src, node.arg
    if op in O.ALU:
        for s in src:
            if s._shape:
                return s._shape  # type: ignore[no-any-return]
        return _SHAPELESS
    if op in (
        O.CAST,
        O.BITCAST,
        O.CONTIGUOUS,
        O.COPY,
        O.SHARD,
        O.ASSIGN,
        O.FLIP,
        O.AFTER,
        O.SCATTER,
        O.BIND,
    ):
        return src[0]._shape  # type: ignore[no-any-return]
    if op == O.RESHAPE or op == O.EXPAND:
        return arg  # type: ignore[no-any-return]
    if op == O.SORT:
        return (*src[0]._shape[:-1], arg.kept)
    if op == O.RADIX:
        return _radix_shape(src[0]._shape, arg)
    if op == O.PERMUTE:
        inner = src[0]._shape
        return tuple([inner[a] for a in arg])
    if op == O.PAD:
        return tuple([n + a + b for n, (a, b) in zip(src[0]._shape, arg, strict=True)])
    if op == O.SHRINK:
        return tuple([b - a for a, b in arg])
    if op == O.REDUCE_AXIS:
        return tuple([1 if i in arg.axes else n for i, n in enumerate(src[0]._shape)])
    if op == O.BUFFER or op == O.BUFFER_VIEW:
        return (arg.size,)
    if op == O.PARAM or op == O.CUSTOM_FUNCTION:
        return arg.shape  # type: ignore[no-any-return]
    if op == O.IOTA:
        return (arg,)
    if op == O.COMPLEX:
        return src[0]._shape[:-1]  # type: ignore[no-any-return]
    if op == O.CAT:
        first = src[0]._shape
        total = sum([s._shape[arg] for s in src])
        return (*first[:arg], total, *first[arg + 1 :])
    if op == O.GATHER:
        return src[1]._shape + src[0]._shape[len(src) - 1 :]  # type: ignore[no-any-return]
    if op == O.SCAN:
        own = src[1]._shape
        return own if arg.is_last else (arg.length, *own)
    if op == O.MSELECT or op == O.MSTACK:
        return src[0]._shape  # type: ignore[no-any-return]
    return _SHAPELESS


def _radix_shape(shape: tuple[int, ...], arg: RadixArg) -> tuple[int, ...]:
    if arg.step == "count":
        return (*shape[:-1], 1 << DIGIT_BITS, -(-shape[-1] // arg.block))
    return (*shape[:-1], shape[-1] + 1) if arg.step == "start" else shape


# -- open ranges -------------------------------------------------------------------------------


def fill_ranges(root: UOp) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node._ranges is not None:
            stack.pop()
            continue
        waiting = [s for s in node.src if s._ranges is None]
        if waiting:
            stack.extend(waiting)
            continue
        node._ranges = _ranges_of(node)
        stack.pop()


def _ranges_of(node: UOp) -> frozenset[UOp]:
    op, src = node.op, node.src
    if op == O.RANGE:
        own: frozenset[UOp] = frozenset((node,))
        return own.union(src[0]._ranges)
    if not src:
        return _EMPTY
    if op == O.REDUCE or op == O.END:
        inner: frozenset[UOp] = src[0]._ranges
        for s in src[1:]:
            inner = inner | s._ranges
        closed = [s for s in src if s.op == O.RANGE]
        return inner.difference(closed)
    first: frozenset[UOp] = src[0]._ranges
    if len(src) == 1:
        return first
    for s in src[1:]:
        more = s._ranges
        if more is not first and not more <= first:
            first = first | more
    return first
