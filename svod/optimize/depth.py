"""The depth of a contraction in parts: the sums wait in the output from one part to the next.

In: a kernel that is one contraction with something light after it. Out: the same with one more
loop, over parts of a reduced axis; a sum goes on from what the output holds, and what follows it
is done after the last part. Panels and strips of one part are short, so many of them fit in a
cache, and a packed operand is used for more of the other.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, eq, lt, mul, num, sub
from svod.optimize.graph import extent, replace_all


def depth_refusal(sink: UOp, axis: int, steps: int) -> str:
    """Why a reduced axis cannot be cut in parts of some steps; empty where it can."""
    if len(sink.src) != 1:
        return "the kernel has several stores"
    store = sink.src[0].src[0]
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
    if len(reductions) != 1 or reductions[0].arg != O.ADD or store.arg is not None:
        return "the kernel is not one sum"
    (node,) = reductions
    memory, *_, last = store.src[0].src[0], store.src[0].src[-1]
    if store.src[1].dtype is not node.dtype or memory.dtype is not node.dtype:
        return f"sums of {node.dtype!r} cannot wait in an output of {memory.dtype!r}"
    if memory.op != O.PARAM or last.dtype is dt.bool_:
        return "the output is scratch memory, or parts of it do not exist"
    found = [r for r in node.src[1:] if r.arg.id == axis]
    if not found or found[0].src[0].op != O.CONST:
        return "DEPTH takes a reduced axis of a fixed size"
    if extent(found[0]) <= steps:
        return f"the axis has {extent(found[0])} steps"
    outputs = frozenset(sink.src[0].src[1:])
    if not outputs <= node.ranges:
        return "some outputs share a sum"
    inside = set(node.toposort())
    for n in store.src[1].toposort():
        if n.op != O.LOAD:
            continue
        if n.src[0].src[0] is memory:
            return "the kernel reads its output"
        if n not in inside and outputs <= n.ranges:
            return "what is read for each output may lie where the sums wait"
    return ""


def cut_depth(sink: UOp, axis: int, steps: int) -> UOp:
    """The contraction over parts of a reduced axis; the last part may have fewer steps."""
    (end,) = sink.src
    target, value = end.src[0].src
    (node,) = [n for n in sink.toposort() if n.op == O.REDUCE]
    (k,) = [r for r in node.src[1:] if r.arg.id == axis]
    total = extent(k)
    parts = -(-total // steps)
    fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
    part = make(O.RANGE, dt.index, (num(parts),), RangeArg(fresh, AxisKind.REDUCE))
    size = num(steps)
    if total % steps:
        size = make(O.MIN, dt.index, (size, sub(num(total), mul(part, steps))))
    inner = make(O.RANGE, dt.index, (size,), RangeArg(axis, AxisKind.REDUCE))
    body = replace_all(node.src[0], {k: add(mul(part, steps), inner)})
    loops = [inner if r is k else r for r in node.src[1:]]
    sums = make(O.REDUCE, node.dtype, (body, *loops), node.arg)
    so_far = make(O.INDEX, target.dtype, (*target.src, lt(ZERO, part)))
    went_on = make(O.ADD, node.dtype, (make(O.LOAD, node.dtype, (so_far,)), sums))
    done = went_on
    if value is not node:
        is_last = eq(part, num(parts - 1))
        finished = replace_all(value, {node: went_on})
        done = make(O.WHERE, node.dtype, (is_last, finished, went_on))
    store = make(O.STORE, dt.void, (target, done))
    return make(O.SINK, dt.void, (make(O.END, dt.void, (store, part, *end.src[1:])),))


def parts_of(end: UOp) -> list[UOp]:
    """The loops of a store over parts of a sum: its memory is read from the second step on."""
    return [r for r in end.src[1:] if r.op == O.RANGE and r.arg.kind is AxisKind.REDUCE]
