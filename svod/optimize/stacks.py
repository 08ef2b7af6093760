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

MAX_STACKED = 64  # values that one kernel stores side by side


def stacked_axes(sink: UOp) -> list[UOp]:
    """Output axes that choose among values which do not move with them.

    Stores that must happen one after the other stay a loop.
    """
    if any(end.src[0].arg == "ordered" for end in sink.src):
        return []
    outputs = {r for end in sink.src for r in end.src[1:]}
    found: dict[UOp, int] = {}
    for node in sink.toposort():
        if node.op != O.WHERE or node.src[0].op != O.LT:
            continue
        r = node.src[0].src[0]
        if r in outputs and r.arg.kind is AxisKind.LOOP and r not in node.src[1].ranges:
            found[r] = extent(r)
    axes = sorted(found, key=lambda r: r.arg.id)
    return axes if prod(found.values()) <= MAX_STACKED else []
