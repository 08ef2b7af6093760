"""Convolutions of float32 on the ordinary units of a GPU, from windows where they are.

A block computes a tile as in `gpu_tile`. What differs is where its threads find the numbers: a
place along an axis of the image is a sum of an output's place and a tap's, and outside of the image
there are zeros. One loop of the sum, the channels, goes in steps of a tile's depth; for the others,
the taps, addresses move and the tests whether a place exists are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, mul, terms_of
from svod.optimize.contraction import Contraction, find_contraction
from svod.optimize.gpu_boxes import bounds_of
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special, unflatten
from svod.optimize.gpu_tile import (
    MIN_SIDE,
    MOST_BATCH,
    Axes,
    choose_shape,
    flat_stores,
    kind_of,
    load_of,
    tile_order,
)
from svod.optimize.graph import extent, replace_all
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

MIN_WORK = GPU.window_tile_work
STEP = 16  # of the channels
WIDE = 4  # elements of sixteen bytes
# elements between neighbours of a row, of which a part is then read in vain
MOST_APART = GPU.window_apart
LEAST_ROW = GPU.window_row  # of such neighbours

# What must hold of a row or column: the number of its own axis, or -1; what is added per step of
# each loop; the least sum and how many there are from it on.
Gate = tuple[int, tuple[int, ...], int, int]


@dataclass(frozen=True, slots=True)
class _Windows:
    """One operand: its own axes, elements per step of each loop of the sum, and its tests."""

    memory: UOp
    base: UOp
    outer: Axes
    loops: tuple[int, ...]
    gates: tuple[Gate, ...]
    moves: tuple[UOp, ...]  # what is added to each test by the place along other axes
    wide: bool

    def described(self) -> tuple[object, ...]:
        return self.outer, self.loops, self.gates, self.wide


def optimize_windows(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no such product."""
    found = find_contraction(sink)
    kind = kind_of(found, sink, machine) if found is not None and found.m else None
    if found is None or kind is None or load_of(found.rows).dtype is not dt.float32:
        return None
    _, rows, columns, depth = found.sizes
    (end,) = sink.src
    batch = [r for r in end.src[1:] if r not in (*found.m, *found.n)]
    count = prod(map(extent, batch))
    if min(rows, columns) < MIN_SIDE or rows * columns * depth * count < MIN_WORK:
        return None
    order = _order(found)
    if order is None or count > MOST_BATCH:
        return None
    operands = [_operand(f, own, order) for f, own in _sides(found)]
    a, b = operands
    if a is None or b is None:
        return None
    if kind != "fma" and not a.loops[-1] == b.loops[-1] == 1:
        return None  # tensor cores are for it, with channels last

    def tiles(tile_rows: int, tile_columns: int) -> int:
        return -(-rows // tile_rows) * -(-columns // tile_columns) * count

    shape = choose_shape("fma", False, 4, rows * columns * count, tiles, machine)
    down, across = -(-rows // shape.rows), -(-columns // shape.columns)
    number, which = special("g0", down * across), special("g2", count)
    values = unflatten(which, batch)
    row, column = tile_order(number, down, across)
    starts = mul(row, shape.rows), mul(column, shape.columns)
    arg = (
        "tile", "windows", shape.rows, shape.columns, STEP, rows, columns,
        tuple(map(extent, order)), a.described(), b.described(),
    )  # fmt: skip
    bases = [replace_all(o.base, values) for o in (a, b)]
    moves = [replace_all(m, values) for m in (*a.moves, *b.moves)]
    tile = make(O.BARRIER, dt.float32, (a.memory, b.memory, *bases, *starts, *moves), arg)
    applied += [
        Opt("TILE", found.m[-1].arg.id, shape.rows),
        Opt("TILE", found.n[-1].arg.id, shape.columns),
        Opt("STAGE", order[-1].arg.id, STEP),
    ]
    return flat_stores(end, found, tile, shape, starts, values)


def _sides(
    found: Contraction,
) -> tuple[tuple[UOp, tuple[UOp, ...]], tuple[UOp, tuple[UOp, ...]]]:
    return (found.rows, found.m), (found.columns, found.n)


def _order(found: Contraction) -> list[UOp] | None:
    """The loops of the sum, the one that goes in steps last; None where no loop can."""
    tied: set[UOp] = set()
    loads = [load_of(f) for f, _ in _sides(found)]
    for load in loads:
        if load.op != O.LOAD or load.src[0].src[0].op != O.PARAM:
            return None
        if len(load.src[0].src) > 2:
            bounds = bounds_of(load.src[0].src[2])
            if bounds is None:
                return None
            tied.update([r for group in bounds for r, _ in group])
    steps = [terms_of(load.src[0].src[1])[0] for load in loads]
    free = [r for r in found.k if r not in tied and extent(r) % STEP == 0]
    if not free:
        return None
    best = max(free, key=lambda r: (any(t.get(r) == 1 for t in steps), extent(r)))
    return [*[r for r in found.k if r is not best], best]


def _operand(factor: UOp, own: Sequence[UOp], order: list[UOp]) -> _Windows | None:
    """What a thread must know of one factor; None where neighbours are nowhere near."""
    index = load_of(factor).src[0]
    terms, constant = terms_of(index.src[1])
    if any(r.op != O.RANGE for r in terms) or any(terms.get(r, 0) < 0 for r in (*own, *order)):
        return None
    outer = tuple([(extent(r), terms.get(r, 0)) for r in own])
    loops = tuple([terms.get(r, 0) for r in order])
    size, step = outer[-1]
    if loops[-1] != 1 and not (0 < step <= MOST_APART and size >= LEAST_ROW):
        return None
    tests = _gates(index, own, order)
    if tests is None:
        return None
    gates, moves = tests
    base = replace_all(index.src[1], dict.fromkeys([*own, *order], ZERO))
    rest = [step for r, step in terms.items() if r is not order[-1]]
    wide = loops[-1] == 1 and all(step % WIDE == 0 for step in (constant, *rest))
    return _Windows(index.src[0], base, outer, loops, gates, moves, wide)


def _gates(
    index: UOp, own: Sequence[UOp], order: list[UOp]
) -> tuple[tuple[Gate, ...], tuple[UOp, ...]] | None:
    """The tests of an access, and what other axes add to their sums."""
    bounds = bounds_of(index.src[2]) if len(index.src) > 2 else {}
    found, moves = [], []
    for group, (low, high) in (bounds or {}).items():
        factors = dict(group)
        mine = [r for r in own if r in factors]
        if len(mine) > 1:
            return None
        move = ZERO
        for r, factor in group:
            if r not in (*own, *order):
                move = add(move, mul(r, factor))
        moves.append(move)
        first = 0 if low is None else low
        most = sum([(extent(r) - 1) * factor for r, factor in group]) + 1
        last = most if high is None else high
        place = own.index(mine[0]) if mine else -1
        by_own = factors[mine[0]] if mine else 0
        by_loops = tuple([factors.get(r, 0) for r in order])
        found.append((place, (by_own, *by_loops), first, last - first))
    return tuple(found), tuple(moves)
