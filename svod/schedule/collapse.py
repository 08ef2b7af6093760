"""Reductions that pick one element become loads: one-hot sums are indexed reads.

``sum over r of where(r == y, f(r), 0)`` is ``f(y)`` where y is a valid place, else 0, so an
embedding written with a one-hot costs what its output costs.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import TRUE, and_, rebuild
from svod.schedule.views import inside


def collapse_reduce(op: int, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """REDUCE of the value over the ranges, with picks turned into loads."""
    left = list(ranges)
    if op == O.ADD:
        for r in ranges:
            picked = _pick(value, r)
            if picked is not None:
                value = picked
                left.remove(r)
    if not left:
        return value
    return make(O.REDUCE, value.dtype, (value, *left), op)


def _pick(value: UOp, r: UOp) -> UOp | None:
    condition, chosen = _one_hot(value)
    if condition is None or chosen is None:
        return None
    place = _solve(condition, r)
    if place is None:
        return None
    valid = inside(place, place, r.src[0])
    result = _at(chosen, r, place, valid)
    if valid is TRUE:
        return result
    return make(O.WHERE, result.dtype, (valid, result, const(0, result.dtype)))


def _one_hot(value: UOp) -> tuple[UOp | None, UOp | None]:
    """(condition, x) when the value is x where the condition holds and 0 elsewhere."""
    if value.op == O.WHERE and value.src[2].op == O.CONST and value.src[2].arg == 0:
        return value.src[0], value.src[1]
    if value.op == O.CAST and value.src[0].dtype.kind == "b":
        return value.src[0], const(1, value.dtype)
    if value.op == O.CAST:  # zero stays zero: a table of small floats is summed in float32
        condition, chosen = _one_hot(value.src[0])
        return condition, None if chosen is None else make(O.CAST, value.dtype, (chosen,))
    if value.op == O.NEG:  # a sum of zeros has no sign
        condition, chosen = _one_hot(value.src[0])
        return condition, None if chosen is None else make(O.NEG, value.dtype, (chosen,))
    if value.op == O.MUL and value.dtype.kind != "f":
        # For floats 0 * inf and 0 * nan would be lost, so only integers may drop the product.
        for a, b in (value.src, value.src[::-1]):
            if a.op == O.CAST and a.src[0].dtype.kind == "b":
                return a.src[0], b
    return None, None


def _solve(condition: UOp, r: UOp) -> UOp | None:
    """The index y for which the condition says r == y, y not depending on r."""
    if condition.op != O.EQ:
        return None
    for a, b in (condition.src, condition.src[::-1]):
        inner = a.src[0] if a.op == O.CAST and _holds(a.dtype, r) else a
        if inner is r and r not in b.ranges and b.dtype.kind in "iux":
            if b.op == O.CAST and b.src[0].dtype is dt.index:
                return b.src[0]
            return b if b.dtype is dt.index else make(O.CAST, dt.index, (b,))
    return None


def _holds(dtype: dt.DType, r: UOp) -> bool:
    """Whether the counter does not wrap in this dtype: else several places may be equal."""
    return dtype.kind in "iu" and r.vmax <= dt.integer_limits(dtype)[1]


def _at(value: UOp, r: UOp, place: UOp, valid: UOp) -> UOp:
    """The value at r = place; loads are guarded by ``valid``."""
    done: dict[UOp, UOp] = {r: place}
    for node in value.toposort():
        if node in done:
            continue
        if r not in node.ranges:
            done[node] = node
            continue
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX:
            gate = and_(src[2], valid) if len(src) == 3 else valid
            src = src[:2] if gate is TRUE else (src[0], src[1], gate)
            done[node] = make(O.INDEX, node.dtype, src)
        else:
            done[node] = rebuild(node, src)
    return done[value]
