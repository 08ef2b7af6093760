"""Running sums and extremes along rows, by the threads of a block.

``result[i] = fold of f(j) over j <= i``, or over ``j >= i``, comes as a reduction over all j with a
choice by the two counters, n * n steps for n results. Here a thread folds vectors of neighbours,
threads of a warp tell each other what lies before them by shuffles, warps by shared memory, and
every f(j) is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, const, make
from svod.ir.reductions import identity
from svod.ir.symbolic import TRUE, ZERO, add, and_, idiv, lt, mod, mul, num
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_outputs import BLOCK, lanes_along, output_lanes
from svod.optimize.gpu_threads import (
    exchange,
    gated_store,
    power_above,
    product,
    shuffle,
    special,
    spread,
    unflatten,
)
from svod.optimize.graph import extent, new_range, replace_all, stride
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

LEAST, MOST_CHUNKS = 32, 8  # places of a row; vectors of one thread
CHUNKS = GPU.scan_vectors  # vectors that a thread should have


@dataclass(slots=True)
class _Scan:
    """The fold of ``value`` over ``source`` up to ``place``, or from it on where it is backward."""

    reduction: UOp
    value: UOp
    source: UOp
    place: UOp
    backward: bool

    def fold(self, a: UOp, b: UOp) -> UOp:
        return make(self.reduction.arg, self.value.dtype, (a, b))

    @property
    def unit(self) -> UOp:
        return const(identity(self.reduction.arg, self.value.dtype), self.value.dtype)

    def among(self, test: UOp, value: UOp) -> UOp:
        """The value where it counts."""
        return value if test is TRUE else make(O.WHERE, value.dtype, (test, value, self.unit))


def optimize_scan(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel with its scan shared by threads; None where it has none, or too long a one."""
    (end,) = sink.src
    found = _find(sink)
    if found is None:
        return None
    size = extent(found.place)
    lanes = min(lanes_along(found.value, found.source), output_lanes(end.src[0], [found.place]))
    vectors = size // lanes
    threads = max(power_above(-(-vectors // CHUNKS)), min(machine.warp, power_above(vectors)))
    threads = min(threads, machine.threads)
    chunks = -(-vectors // threads)
    if chunks > MOST_CHUNKS:
        return None
    outer = [r for r in end.src[1:] if r is not found.place]
    group = max(1, BLOCK // threads) if threads <= machine.warp else 1
    row, inside = spread(product([r.src[0] for r in outer]), "g0", "l1", group)
    values = unflatten(row, outer)
    found.value = replace_all(found.value, values)
    applied += [Opt("GROUP", found.source.arg.id, threads), Opt("LOCAL", 0, group)]
    thread = special("l0", threads)
    places = [add(num(c * threads), thread) for c in range(chunks)]
    lane = new_range(sink, lanes, AxisKind.LANE) if lanes > 1 else ZERO
    parts = [_vector(found, place, vectors, lane, lanes) for place in places]
    before = _offsets(found, [p[0 if found.backward else -1] for p in parts], thread, threads)
    ends = []
    for place, part, offset in zip(places, parts, before, strict=True):
        result = _chosen([found.fold(offset, one) for one in part], lane)
        mapping = {found.place: add(mul(place, lanes), lane), **values}
        store = replace_all(end.src[0], {found.reduction: result, **mapping})
        gate = and_(inside, lt(place, num(vectors)))
        loops = [lane] if lanes > 1 else []
        ends.append(make(O.END, dt.void, (gated_store(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))


def _find(sink: UOp) -> _Scan | None:
    """The only reduction of a kernel, where it is one up to a place in memory or from it on."""
    (end,) = sink.src
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
    if len(reductions) != 1 or len(reductions[0].src) != 2:
        return None
    (reduction,) = reductions
    choice, source = reduction.src
    if choice.op != O.WHERE or choice.src[0].op != O.LE or choice.src[2].op != O.CONST:
        return None
    first, second = [s.src[0] if s.op == O.CAST else s for s in choice.src[0].src]
    place = second if first is source else first
    if source not in (first, second) or place not in end.src[1:]:
        return None
    if any(r.src[0].op != O.CONST for r in (source, place)) or extent(source) != extent(place):
        return None
    value = choice.src[1]
    if place in value.ranges or choice.src[2].arg != identity(reduction.arg, value.dtype):
        return None
    if extent(place) < LEAST or stride(end.src[0].src[0], place) != 1:
        return None
    return _Scan(reduction, value, source, place, source is second)


def _vector(found: _Scan, place: UOp, vectors: int, lane: UOp, lanes: int) -> list[UOp]:
    """The folds of a thread's vector up to each of its lanes."""
    inside = lt(place, num(vectors))
    if inside is not TRUE:
        place = make(O.MIN, dt.index, (place, num(vectors - 1)))
    value = replace_all(found.value, {found.source: add(mul(place, lanes), lane)})
    value = found.among(inside, value)
    if lanes == 1:
        return [value]
    folds = []
    for k in range(lanes):
        counts = lt(num(k - 1), lane) if found.backward else lt(lane, num(k + 1))
        some = found.among(counts, value)
        folds.append(make(O.REDUCE, value.dtype, (some, lane), found.reduction.arg))
    return folds


def _offsets(found: _Scan, totals: list[UOp], thread: UOp, threads: int) -> list[UOp]:
    """What lies before each vector of a thread: of its warp, of the other warps, of the chunks."""
    warps = threads // 32
    running, offsets = found.unit, []
    for total in reversed(totals) if found.backward else totals:
        before, whole = _over_warp(found, total, thread, min(threads, 32))
        if warps > 1:
            each = [exchange(whole, "warp", i, warps, threads) for i in range(warps)]
            warp = idiv(thread, 32)
            for i, other in enumerate(each):
                is_before = lt(warp, num(i)) if found.backward else lt(num(i), warp)
                before = found.fold(found.among(is_before, other), before)
            whole = each[0]
            for other in each[1:]:
                whole = found.fold(whole, other)
        offsets.append(found.fold(running, before))
        running = found.fold(running, whole)
    return offsets[::-1] if found.backward else offsets


def _over_warp(found: _Scan, total: UOp, thread: UOp, threads: int) -> tuple[UOp, UOp]:
    """The fold over the threads before one, and over all that share a row in its warp."""
    before, distance = found.unit, 1
    while distance < threads:
        other = shuffle(total, distance)
        upper = mod(idiv(thread, distance), 2)
        counts = lt(upper, num(1)) if found.backward else lt(num(0), upper)
        before = found.fold(found.among(counts, other), before)
        total = found.fold(total, other)
        distance *= 2
    return before, total


def _chosen(values: list[UOp], lane: UOp) -> UOp:
    """One value per lane."""
    chosen = values[-1]
    for k in reversed(range(len(values) - 1)):
        chosen = make(O.WHERE, chosen.dtype, (lt(lane, num(k + 1)), values[k], chosen))
    return chosen
