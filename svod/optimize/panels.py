"""Packing an operand once and for all: for which kernels, and in panels of which width.

In: a kernel as rangeify made it. Out: the argument that its inner loops would best read in panels,
or whether they do so already. Staging decides whether packing pays within one run; here it is free.
"""

from __future__ import annotations

from functools import reduce

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.across import choose_across, panels_across
from svod.optimize.actions import merge_adjacent
from svod.optimize.contraction import (
    MIN_COLUMNS,
    MIN_DEPTH,
    MIN_ROWS,
    choose_contraction,
    find_contraction,
    row_count,
    stage_columns,
    tile_of,
)
from svod.optimize.graph import extent, stride
from svod.optimize.machine import Machine
from svod.optimize.outside import members, one_member


def panel_columns(sink: UOp, machine: Machine) -> list[tuple[int, int]]:
    """The arguments that a contraction would best read in panels, and how wide, best first."""
    for one in _inside(merge_adjacent(sink)):
        found = (_panels_along(one, machine), panels_across(one, machine))
        if wanted := [(slot, tile) for slot, tile in found if tile]:
            return wanted
    return []


def _inside(sink: UOp) -> list[UOp]:
    """The kernel inside loops of a run-time size, as its opts are chosen."""
    return [reduce(one_member, outer, sink) for outer in members(sink)]


def _panels_along(sink: UOp, machine: Machine) -> tuple[int, int]:
    """The operand that moves with the output's last axis; (-1, 0) where it is not only read."""
    found = find_contraction(sink)
    if found is None or not machine.vector_bytes:
        return -1, 0
    columns, last = found.columns, sink.src[0].src[-1]
    if columns.op != O.LOAD or len(columns.src[0].src) == 3 or found.n != (last,):
        return -1, 0
    if stride(sink.src[0].src[0].src[0], last) != 1 or columns.src[0].src[0].op != O.PARAM:
        return -1, 0
    if found.sizes.m < MIN_ROWS or extent(last) < MIN_COLUMNS:
        return -1, 0
    if found.sizes.k < MIN_DEPTH or columns.dtype.itemsize < 4:
        return -1, 0
    width = machine.lanes(columns.dtype.itemsize)
    vectors, _ = tile_of(extent(last), row_count(found), machine, width)
    return columns.src[0].src[0].arg.slot, vectors * width


def reads_panels(sink: UOp, machine: Machine) -> bool:
    """Whether a kernel is a contraction that reads packed memory in place."""
    return any(_reads_panels(one, machine) for one in _inside(merge_adjacent(sink)))


def _reads_panels(sink: UOp, machine: Machine) -> bool:
    opts = choose_across(sink, machine) or choose_contraction(sink, machine)
    if [opt.name for opt in opts[:2]] != ["TILE", "STAGE"]:
        return False
    axis, tile, block = opts[0].axis, opts[0].amount, opts[1].amount
    staged = stage_columns(sink, axis, tile, block, machine)
    return staged is not None and not any(n.op == O.DEFINE_LOCAL for n in staged.toposort())
