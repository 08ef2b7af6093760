"""Loops of a run-time size that go around a kernel: inside them every size is known.

In: a kernel over a batch whose size comes with each call. Out: the kernel of one member of the
batch, for which all plans of fixed sizes hold, and later the loop around what became of it. The
loop's counter is a variable meanwhile.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make, variable
from svod.optimize.graph import extent, replace_all

_NAME = "outside_{}"


def run_time_axes(sink: UOp) -> list[UOp]:
    """The output axes of a run-time size, outermost first."""
    if len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return []
    return [r for r in sink.src[0].src[1:] if r.op == O.RANGE and r.src[0].op != O.CONST]


def one_member(sink: UOp, r: UOp) -> UOp:
    """The kernel for one step of a loop."""
    (end,) = sink.src
    counter = variable(_NAME.format(r.arg.id), 0, extent(r) - 1)
    loops = [s for s in end.src[1:] if s is not r]
    store = replace_all(end.src[0], {r: counter})
    return make(O.SINK, dt.void, (make(O.END, dt.void, (store, *loops)),))


def around(sink: UOp, loops: list[UOp]) -> UOp:
    """The kernel with loops around all of its stores again."""
    if not loops:
        return sink
    counters = {variable(_NAME.format(r.arg.id), 0, extent(r) - 1): r for r in loops}
    fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE], default=-1)
    named = {}
    for number, r in enumerate(loops):
        arg = r.arg._replace(id=fresh + number)
        named[r] = make(O.RANGE, dt.index, r.src, arg)
    mapping = {counter: named[r] for counter, r in counters.items()}
    ends = []
    for end in sink.src:
        store, *inner = replace_all(end, mapping).src
        ends.append(make(O.END, dt.void, (store, *named.values(), *inner)))
    return make(O.SINK, dt.void, tuple(ends))


def members(sink: UOp) -> list[list[UOp]]:
    """Which loops may go around a kernel, most of them first: all of a run-time size, or all but
    the last, whose steps are then rows of a product."""
    found = run_time_axes(sink)
    choices = [found, found[:-1], []]
    return [c for i, c in enumerate(choices) if c not in choices[:i]]
