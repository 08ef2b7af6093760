"""Packing an operand once and for all: for which kernels, and in panels of which width.

In: a kernel as rangeify made it. Out: the argument that its inner loops would best read in panels,
or whether they do so already. Staging decides whether packing pays within one run; here it is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.across import choose_across, panels_across
from svod.optimize.actions import merge_adjacent
from svod.optimize.contraction import (
    DOT_LATENCY,
    FMA_LATENCY,
    MIN_COLUMNS,
    MIN_DEPTH,
    MIN_ROWS,
    choose_contraction,
    choose_dot,
    find_contraction,
    group_depth,
    row_count,
    stage_columns,
    tile_of,
)
from svod.optimize.dots import narrow
from svod.optimize.graph import extent, stride
from svod.optimize.machine import Machine
from svod.optimize.outside import members, one_member


@dataclass(frozen=True, slots=True)
class Panels:
    """The argument that is best read in panels, their columns, and the neighbours along the depth
    that lie side by side: the parts of a word that DOT reads."""

    slot: int
    tile: int
    parts: int = 1


def panel_columns(sink: UOp, machine: Machine) -> list[Panels]:
    """The arguments that a contraction would best read in panels, best first."""
    for one in _inside(merge_adjacent(sink)):
        slot, tile = panels_across(one, machine)
        across = Panels(slot, tile) if tile else None
        if wanted := [p for p in (_panels_along(one, machine), across) if p is not None]:
            return wanted
    return []


def _inside(sink: UOp) -> list[UOp]:
    """The kernel inside loops of a run-time size, as its opts are chosen."""
    return [reduce(one_member, outer, sink) for outer in members(sink)]


def _panels_along(sink: UOp, machine: Machine) -> Panels | None:
    """The operand that moves with the output's last axis; None where it is not only read."""
    found = find_contraction(sink)
    if found is None or not machine.vector_bytes:
        return None
    dot, last = choose_dot(found, machine), sink.src[0].src[-1]
    columns = found.columns if dot is None else narrow(found.columns)
    if columns.op != O.LOAD or len(columns.src[0].src) == 3 or found.n != (last,):
        return None
    if stride(sink.src[0].src[0].src[0], last) != 1 or columns.src[0].src[0].op != O.PARAM:
        return None
    if found.sizes.m < MIN_ROWS or extent(last) < MIN_COLUMNS:
        return None
    if found.sizes.k < MIN_DEPTH or (dot is None and columns.dtype.itemsize < 4):
        return None
    parts = 1 if dot is None else dot.amount
    if found.sizes.k % parts:
        return None  # the last word is filled with zeros
    width = machine.lanes(columns.dtype.itemsize * parts)
    latency = FMA_LATENCY if dot is None else DOT_LATENCY
    vectors, _ = tile_of(extent(last), row_count(found), machine, width, latency=latency)
    return Panels(columns.src[0].src[0].arg.slot, vectors * width, parts)


def reads_panels(sink: UOp, machine: Machine) -> bool:
    """Whether a kernel is a contraction that reads packed memory in place."""
    return any(_reads_panels(one, machine) for one in _inside(merge_adjacent(sink)))


def _reads_panels(sink: UOp, machine: Machine) -> bool:
    opts = choose_across(sink, machine) or choose_contraction(sink, machine)
    if opts and opts[0].name == "DOT":
        grouped = group_depth(sink, opts[0].axis, opts[0].amount, machine)
        if grouped is None:
            return False
        sink, opts = grouped, opts[1:]
    if [opt.name for opt in opts[:2]] != ["TILE", "STAGE"]:
        return False
    axis, tile, block = opts[0].axis, opts[0].amount, opts[1].amount
    staged = stage_columns(sink, axis, tile, block, machine)
    return staged is not None and not any(
        n.op == O.DEFINE_LOCAL and n.arg.id == 0 for n in staged.toposort()
    )  # others hold sums of columns that flipped signs need
