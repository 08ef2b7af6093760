"""One thread per vector of outputs, with plain loops for its reductions."""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, eq, idiv, mul, num
from svod.optimize.apart import steps_stay_apart
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_scatter import (
    by_parts,
    by_tallies,
    by_warps,
    count_parts,
    shared_out,
    takes_warps,
    unordered,
)
from svod.optimize.gpu_threads import gated_store, power_above, product, special, spread, unflatten
from svod.optimize.graph import extent, new_range, replace_all, stride, with_kind
from svod.optimize.opts import Opt
from svod.optimize.stacks import stacked_axes
from svod.schedule.costs_gpu import GPU

BLOCK = GPU.block  # threads of a block whose threads do not talk to each other
MAX_LANES = 8
UNROLL = GPU.unroll  # loads in flight from one thread inside a loop


def spread_outputs(sink: UOp, end: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp:
    """A store with its loops spread over threads."""
    store, *loops = end.src
    if store.arg == "ordered":
        store = unordered(store) or store
    tallies = by_tallies(sink, store, loops, machine, applied) if store.arg == "add" else None
    if tallies is not None:
        return tallies
    ordered = store.arg == "ordered"
    serial = [r for r in loops if ordered and not _is_free(store, r)]
    stacked = [] if ordered else [r for r in stacked_axes(sink) if r in loops]
    free = [r for r in loops if r not in serial and r not in stacked]
    store, side = _written_out(store, stacked)
    if not free:
        one = by_parts(store, serial, machine, applied)
        if one is None:
            one = gated_store(store, eq(special("l0", 32), ZERO))  # one thread of one warp
        return make(O.END, dt.void, (one, *serial, *side))
    if serial and takes_warps(store, serial, free):
        return by_warps(sink, store, serial, free, machine, applied)
    store = _unrolled(store)
    lanes = 1 if side or store.arg in ("add", "max") else output_lanes(store, free)
    kept, copies = (None, 1) if ordered else _register_tile(store, free, lanes, machine)
    tile = _ThreadTile(sink, free[-1], lanes, kept, copies)
    return _by_threads(store, free, serial, tile, side, machine, applied)


class _ThreadTile:
    """The results of one thread: lanes of the last axis, copies of another."""

    def __init__(self, sink: UOp, last: UOp, lanes: int, kept: UOp | None, copies: int) -> None:
        self.last, self.lanes, self.kept, self.copies = last, lanes, kept, copies
        self.lane = new_range(sink, lanes, AxisKind.LANE) if lanes > 1 else ZERO
        is_next = lanes > 1
        number = self.lane.arg.id + 1 if is_next else new_range(sink, 1, AxisKind.UPCAST).arg.id
        self.copy = make(O.RANGE, dt.index, (num(copies),), RangeArg(number, AxisKind.UPCAST))

    def axes(self, free: list[UOp], applied: list[Opt]) -> list[tuple[UOp, UOp]]:
        """The axes with how many tiles they have."""
        axes = [(r, r.src[0]) for r in free]
        if self.lanes > 1:
            axes[-1] = (self.last, idiv(self.last.src[0], self.lanes))
            applied.append(Opt("LANE", self.last.arg.id, self.lanes))
        if self.kept is not None:
            axes = [(r, idiv(n, self.copies)) if r is self.kept else (r, n) for r, n in axes]
            applied.append(Opt("UPCAST", self.kept.arg.id, self.copies))
        return axes

    def places(self, values: dict[UOp, UOp]) -> list[UOp]:
        """Numbers of tiles become places of results; the loops over those of one tile."""
        rest = []
        if self.lanes > 1:
            values[self.last] = add(mul(values[self.last], self.lanes), self.lane)
            rest.append(self.lane)
        if self.kept is not None:
            values[self.kept] = add(mul(values[self.kept], self.copies), self.copy)
            rest.insert(0, self.copy)
        return rest


def _by_threads(
    store: UOp,
    free: list[UOp],
    serial: list[UOp],
    tile: _ThreadTile,
    side: list[UOp],
    machine: GpuMachine,
    applied: list[Opt],
) -> UOp:
    """A tile of results for each thread."""
    axes = tile.axes(free, applied)
    total = product([size for _, size in axes])
    threads = min(machine.block, power_above(total.vmax))
    if serial:
        threads = max(threads, machine.warp)
    place, inside = spread(total, "g0", "l0", threads)
    applied.append(Opt("LOCAL", free[-1].arg.id, threads))
    values = unflatten(place, free, dict(axes))
    rest = tile.places(values)
    store = replace_all(store, values)
    if serial:
        parts = count_parts(store, serial, int(total.vmax))
        store = shared_out(store, serial, special("g1", parts), parts)
    store = gated_store(store, inside)
    return make(O.END, dt.void, (store, *serial, *rest, *side))


def _written_out(store: UOp, axes: list[UOp]) -> tuple[UOp, list[UOp]]:
    """Values side by side are copies of one thread; the last few that touch are one vector."""
    kinds = dict.fromkeys(axes, AxisKind.UPCAST)
    if axes and stride(store.src[0], axes[-1]) == 1 and extent(axes[-1]) in (2, 4):
        kinds[axes[-1]] = AxisKind.LANE
    mapping = {r: with_kind(r, kind) for r, kind in kinds.items()}
    return replace_all(store, mapping), list(mapping.values())


def _unrolled(store: UOp) -> UOp:
    """Short reduced axes are written out."""
    mapping: dict[UOp, UOp] = {}
    for node in store.toposort():
        copies = 1
        for r in node.src[1:] if node.op == O.REDUCE else ():
            if r.src[0].op == O.CONST and extent(r) <= UNROLL and copies * extent(r) <= 12:
                mapping[r] = with_kind(r, AxisKind.UNROLL)
                copies *= extent(r)
    return replace_all(store, mapping)


def _register_tile(
    store: UOp, free: list[UOp], lanes: int, machine: GpuMachine
) -> tuple[UOp | None, int]:
    """An axis of which a thread keeps some values, since something it reads does not move there."""
    found: tuple[float, UOp | None, int] = (0.0, None, 1)
    total = prod([extent(r) for r in free]) // lanes
    for r in free[:-1]:
        saved = saved_reads(store, r)
        for copies in (8, 4, 2):
            enough = total // copies >= machine.multiprocessors * BLOCK // 2
            if saved and r.src[0].op == O.CONST and extent(r) % copies == 0 and enough:
                found = max(found, (saved, r, copies), key=lambda f: (f[0], f[2]))
    return found[1:]


def saved_reads(root: UOp, r: UOp) -> float:
    """What is read in vain again for every step along r, in reductions that move with it."""
    saved = 0.0
    for node in root.toposort():
        if node.op != O.REDUCE or r not in node.ranges:
            continue
        loads = [n for n in node.src[0].toposort() if n.op == O.LOAD]
        inner = [n for n in loads if any(k in n.ranges for k in node.src[1:])]
        if len(inner) > 1:
            fixed = [n for n in inner if r not in n.ranges]
            saved += sum([2.0 if len(n.src[0].src) > 2 else 1.0 for n in fixed])
    return saved


def _is_free(store: UOp, r: UOp) -> bool:
    """Whether steps along r of an ordered store never meet in memory."""
    index = store.src[0]
    data = [n for n in index.toposort() if n.op == O.LOAD]
    if stride(index, r) not in (0, None) and not any(r in n.ranges for n in data):
        return True
    return steps_stay_apart(store, r)


def output_lanes(store: UOp, free: list[UOp]) -> int:
    """Elements one thread stores beside each other."""
    last = free[-1]
    if stride(store.src[0], last) != 1 or last.src[0].op != O.CONST:
        return 1
    return lanes_along(store, last)


def lanes_along(root: UOp, r: UOp) -> int:
    """Lanes along r: what 16 bytes hold of the smallest contiguous type, as far as r divides."""
    sizes = [n.dtype.itemsize for n in root.toposort() if n.op == O.INDEX and stride(n, r) == 1]
    apart = [n for n in root.toposort() if n.op == O.INDEX and stride(n, r) not in (0, 1)]
    if not sizes or len(apart) > len(sizes):
        return 1
    lanes = min(MAX_LANES, 16 // min(sizes))
    while lanes > 1 and (r.src[0].op != O.CONST or extent(r) % lanes):
        lanes //= 2
    return lanes
