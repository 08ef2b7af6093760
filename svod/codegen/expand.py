"""Unrolled copies: UPCAST and UNROLL axes disappear, one copy of the code per value."""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, make
from svod.ir.symbolic import num, rebuild


def expand(sink: UOp) -> UOp:
    """Every END copied per value of its UPCAST axes, every REDUCE given one value per UNROLL."""
    sink = _unroll_reductions(sink)
    done: dict[UOp, UOp] = {}
    copied: dict[UOp, list[UOp]] = {}
    for node in sink.toposort():
        parts = [p for s in node.src for p in copied.get(s, (done[s],))]
        new = node if tuple(parts) == node.src else rebuild(node, tuple(parts))
        done[node] = new
        if new.op == O.END:
            copied[node] = _end_copies(new)
    return done[sink]


def _end_copies(end: UOp) -> list[UOp]:
    copied = [r for r in end.src[1:] if r.op == O.RANGE and r.arg.kind is AxisKind.UPCAST]
    if not copied:
        return [end]
    loops = [r for r in end.src[1:] if r not in copied]
    return [make(O.END, dt.void, (store, *loops)) for store in _copies(end.src[0], copied)]


def _copies(value: UOp, ranges: list[UOp]) -> list[UOp]:
    if not ranges:
        return [value]
    # What changes with each range and none after it: it is made anew when that range steps.
    moving: list[list[UOp]] = [[] for _ in ranges]
    for node in value.toposort():
        levels = [i for i, r in enumerate(ranges) if r in node.ranges]
        if levels and node not in ranges:
            moving[levels[-1]].append(node)
    found = []
    done: dict[UOp, UOp] = {}  # as the ranges stand

    def step(level: int) -> None:
        if level == len(ranges):
            found.append(done.get(value, value))
            return
        for number in range(ranges[level].vmax + 1):
            done[ranges[level]] = num(number)
            for node in moving[level]:
                done[node] = rebuild(node, tuple([done.get(s, s) for s in node.src]))
            step(level + 1)

    step(0)
    return found


def _unroll_reductions(sink: UOp) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else rebuild(node, src)
        if new.op == O.REDUCE:
            ranges = [s for s in new.src if s.op == O.RANGE]
            copied = [r for r in ranges if r.arg.kind is AxisKind.UNROLL]
            if copied:
                values = [v for s in new.src if s.op != O.RANGE for v in _copies(s, copied)]
                rest = [r for r in ranges if r not in copied]
                new = make(O.REDUCE, new.dtype, (*values, *rest), new.arg)
        done[node] = new
    return done[sink]
