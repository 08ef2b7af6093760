"""From vectors to what a machine has: accumulators, sized indices, functions as arithmetic.

In: an expanded, vectorised kernel. Out: the same with ACC accumulators, no ``index`` dtype
(64-bit scalars; 32-bit vectors where the bounds allow) and only basic operations.
"""

from __future__ import annotations

from svod.codegen.decompose import decompose
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from svod.ir.reductions import identity
from svod.optimize.depth import parts_of

INT32_LIMIT = (1 << 31) - 1


def lower(sink: UOp, has_parts: bool = False, has_fma: bool = True) -> UOp:
    """Accumulators, then indices and decompositions."""
    return _to_machine(_accumulators(sink, has_fma), has_parts)


# -- accumulators ------------------------------------------------------------------------------


def _accumulators(sink: UOp, has_fma: bool) -> UOp:
    done: dict[UOp, UOp] = {}
    waiting = {end.src[0].src[0].src[0] for end in sink.src if parts_of(end)}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op == O.REDUCE:
            done[node] = _accumulate(node, src, has_fma)
        elif waiting and _goes_on(node, waiting):
            inner = node.src[1]
            done[node] = _accumulate(inner, tuple([done[s] for s in inner.src]), has_fma, src[0])
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _goes_on(node: UOp, waiting: set[UOp]) -> bool:
    """Whether a sum is added to what the output holds of it: then it starts from there."""
    if node.op != O.ADD or node.src[1].op != O.REDUCE or node.src[1].arg != O.ADD:
        return False
    loads = [n for n in node.src[0].toposort() if n.op == O.LOAD]
    return bool(loads) and all(n.src[0].src[0] in waiting for n in loads)


def _accumulate(node: UOp, src: tuple[UOp, ...], has_fma: bool, start: UOp | None = None) -> UOp:
    values = [s for s in src if s.op != O.RANGE]
    loops = [s for s in src if s.op == O.RANGE]
    op, dtype = node.arg, node.dtype
    if not loops:
        total = values[0] if start is None else step(op, start, values[0], has_fma)
        for value in values[1:]:
            total = step(op, total, value, has_fma)
        return total
    if start is None:
        start = const(identity(op, dtype.scalar), dtype)
    # The number keeps accumulators of different reductions apart.
    total = acc = make(O.ACC, dtype, (start, *loops), (op, tuple([v.sn for v in values])))
    for value in values:
        total = step(op, total, value, has_fma)
    return make(O.REDUCE, dtype, (acc, total, *loops), op)


def step(op: int, total: UOp, value: UOp, has_fma: bool = True) -> UOp:
    """One more value folded in; a sum of float products is fused where that is one instruction."""
    if op == O.ADD and value.op == O.DOT:
        return make(O.DOT, value.dtype, (*value.src, total), value.arg)
    is_product = value.op == O.MUL and value.dtype.scalar in (dt.float32, dt.float64)
    if op == O.ADD and is_product and has_fma:
        return make(O.FMA, value.dtype, (*value.src, total))
    if op in (O.MAX, O.MIN):  # the first operand is looked at for NaN: not what the loop carries
        return make(op, total.dtype, (value, total))
    return make(op, total.dtype, (total, value))


# -- machine types -----------------------------------------------------------------------------


def _to_machine(sink: UOp, has_parts: bool) -> UOp:
    order = sink.toposort()
    wide = any(
        n.dtype.kind == "x"
        and n.dtype.lanes > 1
        and (n.vmin < -INT32_LIMIT or n.vmax > INT32_LIMIT)
        for n in order
    )
    vector_scalar = dt.int64 if wide else dt.int32
    done: dict[UOp, UOp] = {}
    for node in order:
        done[node] = _machine_form(node, done, vector_scalar, has_parts)
    return done[sink]


def _sized(dtype: DType, vector_scalar: DType) -> DType:
    if dtype.kind != "x":
        return dtype
    return dt.int64 if dtype.lanes == 1 else vector_scalar.vec(dtype.lanes)


def _machine_form(node: UOp, done: dict[UOp, UOp], vector_scalar: DType, has_parts: bool) -> UOp:
    op = node.op
    dtype = _sized(node.dtype, vector_scalar)
    if op == O.CONST:
        return node if dtype is node.dtype else const(node.arg, dtype)
    src = tuple([done[s] for s in node.src])
    if op == O.BROADCAST and src[0].dtype is not dtype.scalar:
        src = (_cast(src[0], dtype.scalar),)
    if op == O.CAST:
        if src[0].dtype is dtype:
            return src[0]
        return _cast(src[0], dtype)
    if node.dtype.kind == "x" and op in (O.IDIV, O.MOD) and node.src[0].vmin >= 0:
        return make(op, dtype, src, "nonneg")
    if op in O.ALU:
        if op in O.COMPARE or op == O.WHERE or op in (O.ADD, O.MUL, O.SUB, O.MAX, O.MIN):
            src = _same_width(src, node)
        return decomposed(op, dtype, src, node.arg, has_parts)
    if op == O.BITCAST and dtype is src[0].dtype:
        return src[0]
    if op == O.LANE_REDUCE:
        return _lane_reduce(node, src[0])
    if op == O.ACC:
        return make(O.ACC, dtype, src, node.arg)
    if dtype is node.dtype and src == node.src:
        return node
    return make(op, dtype, src, node.arg)


def _same_width(src: tuple[UOp, ...], node: UOp) -> tuple[UOp, ...]:
    values = src[1:] if node.op == O.WHERE else src
    kinds = {s.dtype for s in values}
    if len(kinds) == 1:
        return src
    target = max(kinds, key=lambda d: d.bits)
    fixed = tuple([_cast(s, target) for s in values])
    return (src[0], *fixed) if node.op == O.WHERE else fixed


def _cast(value: UOp, dtype: DType) -> UOp:
    if value.dtype is dtype:
        return value
    if value.op == O.CONST and dtype.kind in "iu" and value.dtype.kind in "iu":
        lo, hi = dt.integer_limits(dtype.scalar)
        if lo <= value.arg <= hi:
            return const(value.arg, dtype)
    return decomposed(O.CAST, dtype, (value,), None)


def decomposed(
    op: int, dtype: DType, src: tuple[UOp, ...], arg: object, has_parts: bool = False
) -> UOp:
    """The operation in basic ones."""
    found = decompose(op, dtype, src, arg, has_parts)
    return make(op, dtype, src, arg) if found is None else found


def _lane_reduce(node: UOp, value: UOp) -> UOp:
    """Fold a vector in halves, in a fixed order: lanes i and i + n/2 first."""
    op = node.arg
    lanes = value.dtype.lanes
    while lanes > 1:
        half = lanes // 2
        if lanes % 2:
            break
        dtype = value.dtype.scalar.vec(half)
        low = make(O.SHUFFLE, dtype, (value,), tuple(range(half)))
        high = make(O.SHUFFLE, dtype, (value,), tuple(range(half, lanes)))
        if half == 1:
            low = make(O.GEP, value.dtype.scalar, (value,), 0)
            high = make(O.GEP, value.dtype.scalar, (value,), 1)
        value = decomposed(op, low.dtype, (low, high), None)
        lanes = half
    total = value
    if lanes > 1:
        parts = [make(O.GEP, value.dtype.scalar, (value,), i) for i in range(lanes)]
        total = parts[0]
        for part in parts[1:]:
            total = decomposed(op, total.dtype, (total, part), None)
    return total
