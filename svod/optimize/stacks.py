"""Axes along which a kernel puts values side by side that have nothing to do with the axis.

Rangeify leaves a choice by the loop counter there. Written out, an axis chooses nothing any more,
and what its values have in common is computed once for all of them.
"""

from __future__ import annotations

from math import prod

from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp
from svod.optimize.graph import extent
from svod.schedule.views import MAX_STACKED


def stacked_axes(sink: UOp) -> list[UOp]:
    """Output axes that choose among values which do not move with them; none beside sums."""
    nodes = sink.toposort()
    if any(n.op in (O.REDUCE, O.DEFINE_LOCAL) for n in nodes):
        return []
    if any(end.src[0].arg == "ordered" for end in sink.src):
        return []
    outputs = {r for end in sink.src for r in end.src[1:] if r.arg.kind is AxisKind.LOOP}
    found: list[UOp] = []
    for node in nodes:
        r = _chosen_by(node)
        if r in outputs and r not in found and _is_choice(node, r):
            found.append(r)
    axes: list[UOp] = []
    for r in sorted(found, key=lambda r: r.arg.id):
        if prod([extent(a) for a in axes]) * extent(r) <= MAX_STACKED:
            axes.append(r)
    return axes


def _chosen_by(node: UOp) -> UOp | None:
    """The counter a choice is made by."""
    if node.op != O.WHERE or node.src[0].op != O.LT:
        return None
    counter = node.src[0].src[0]
    return counter if counter.op == O.RANGE else None


def _is_choice(node: UOp, r: UOp) -> bool:
    """Whether a chain of choices by r ends in values that do not move with it."""
    while _chosen_by(node) is r:
        if r in node.src[1].ranges:
            return False
        node = node.src[2]
    return r not in node.ranges
