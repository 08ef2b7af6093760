"""Reductions that threads share, along rows or down columns.

In ``rows`` a block, or some threads of a warp, shares each reduction; what does not depend on the
reductions is spread over the same threads, so a row that fits their registers is read once. In
``columns`` vectors of outputs lie beside each other, the reduction is cut into groups along l1.
Short reductions are written out in every thread. Where few long rows need short reductions only,
several blocks do a row, and each of them the reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, const, depth_first, make
from svod.ir.reductions import identity
from svod.ir.symbolic import ONE, TRUE, ZERO, add, and_, eq, idiv, lt, mul, num, sub
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_outputs import BLOCK, UNROLL, lanes_along, output_lanes, saved_reads
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
from svod.optimize.graph import extent, new_range, replace_all, stride, with_kind
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

_Fold: TypeAlias = Callable[[int, UOp], UOp]  # over threads: an op and what each of them has

KEPT_VECTORS = GPU.row_vectors  # vectors of a row that one thread keeps in registers
KEPT_ROWS = GPU.row_outputs  # outputs of one thread that read the same long row
KEPT_SUMS = GPU.row_sums  # registers of such outputs, a vector each
FAR_BYTES = GPU.far_row  # of such rows, which then do not stay in the closest cache
MIN_ROW = GPU.shared_row  # elements of a reduction that several threads share
PART_VECTORS = GPU.part_vectors  # vectors of a row that one thread of several blocks writes
FULL_THREADS = GPU.full_threads  # of one multiprocessor


@dataclass(slots=True)
class _Kernel:
    """A kernel with reductions that depend on outputs alone."""

    sink: UOp
    outer: list[UOp]  # output axes the reductions depend on
    inner: list[UOp]  # the others
    reductions: list[UOp]  # that threads share

    @property
    def rows(self) -> UOp:
        return product([r.src[0] for r in self.outer])

    @property
    def depth(self) -> int:
        return max([_steps(n) for n in self.reductions], default=0)


def shared_reduction(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel with its reductions shared by threads; None where a thread does one alone."""
    found = _find(sink)
    if found is None:
        return None
    rows, parts = found.rows.vmax, _parts(found, machine)
    if parts > 1:
        return _rows(found, machine, applied, parts)
    if found.depth < MIN_ROW:
        return None
    if all(_runs_along(n) for n in found.reductions) or rows * 4 <= machine.multiprocessors:
        return _rows(found, machine, applied)
    if rows >= machine.multiprocessors * FULL_THREADS or found.inner:
        return None
    return _columns(found, machine, applied)


def _find(sink: UOp) -> _Kernel | None:
    """The reductions of a kernel that depend on outputs alone, short ones written out."""
    outputs = set(sink.src[0].src[1:])
    every = [n for n in depth_first(sink) if n.op == O.REDUCE and n.ranges <= outputs]
    if not every:
        return None
    short = {r for n in every if _is_short(n) for r in n.src[1:]}
    short -= {r for n in every if not _is_short(n) for r in n.src[1:]}
    sink = replace_all(sink, {r: with_kind(r, AxisKind.UNROLL) for r in short})
    every = [n for n in depth_first(sink) if n.op == O.REDUCE and n.ranges <= outputs]
    shared = [n for n in every if not _is_written_out(n)]
    used = frozenset[UOp]().union(*[n.ranges for n in shared or every])
    loops = sink.src[0].src[1:]
    outer = [r for r in loops if r in used]
    inner = [r for r in loops if r not in used]
    return _Kernel(sink, outer, inner, shared)


def _steps(node: UOp) -> int:
    return prod([extent(r) for r in node.src[1:]])


def _is_short(node: UOp) -> bool:
    """Whether every thread may as well do a reduction itself, all its loads at once."""
    is_fixed = all(r.src[0].op == O.CONST for r in node.src[1:])
    is_plain = all(n.op != O.REDUCE for n in node.src[0].toposort())
    return is_fixed and is_plain and _steps(node) < MIN_ROW


def _is_written_out(node: UOp) -> bool:
    return all(r.arg.kind is AxisKind.UNROLL for r in node.src[1:])


def _parts(found: _Kernel, machine: GpuMachine) -> int:
    """Blocks that write a row together: rows are few, and no reduction is as long as a part."""
    if not found.inner or any(r.src[0].op != O.CONST for r in found.inner):
        return 1
    (end,) = found.sink.src
    vectors = prod(map(extent, found.inner)) // output_lanes(end.src[0], found.inner)
    rows = max(1, int(found.rows.vmax))
    wanted = machine.multiprocessors * FULL_THREADS // machine.block // rows
    return min(wanted, -(-vectors // max(found.depth, machine.block * PART_VECTORS)))


def _runs_along(node: UOp) -> bool:
    """Whether most of what a reduction reads lies along its last axis, and for a while."""
    last = node.src[-1]
    if extent(last) < MIN_ROW:
        return False
    indices = [n for n in node.src[0].toposort() if n.op == O.INDEX and last in n.ranges]
    along = [n for n in indices if stride(n, last) == 1]
    return 2 * len(along) > len(indices)


def _rows(found: _Kernel, machine: GpuMachine, applied: list[Opt], parts: int = 1) -> UOp:
    """A block, or a part of a warp, per value of the outer axes; or blocks for parts of a row."""
    (end,) = found.sink.src
    lanes = min([lanes_along(n, n.src[-1]) for n in found.reductions], default=1)
    wide = output_lanes(end.src[0], found.inner) if found.inner else lanes
    if parts == 1:  # what is read for reductions is what is read for outputs
        lanes = wide = min(lanes, wide)
    kept = _kept_axis(found, machine)
    outer = [r for r in found.outer if r is not kept]
    copies = 1 if kept is None else _copies(found, kept, outer[-1], lanes, machine)
    sizes = {outer[-1]: idiv(outer[-1].src[0], copies)} if copies > 1 else {}
    total = product([sizes.get(r, r.src[0]) for r in outer])
    vectors = found.depth // lanes // copies
    threads = _row_threads(vectors, total.vmax * parts * copies, machine)
    if parts > 1:
        threads = max(threads, machine.block)
    group = max(1, BLOCK // threads) if threads <= machine.warp else 1
    row, inside = spread(total, "g0", "l1", group)
    if found.reductions:
        applied.append(Opt("GROUP", found.reductions[-1].src[-1].arg.id, threads))
    applied.append(Opt("LOCAL", 0, group))
    values = unflatten(row, outer, sizes)
    loops: list[UOp] = []
    if copies > 1:
        loops.append(new_range(found.sink, copies, AxisKind.UPCAST))
        values[outer[-1]] = add(mul(values[outer[-1]], copies), loops[0])
        applied.append(Opt("UPCAST", outer[-1].arg.id, copies))
    store = replace_all(end.src[0], values)
    thread = special("l0", threads)
    if kept is not None:
        loops.insert(0, with_kind(kept, AxisKind.UPCAST))
        store = replace_all(store, {kept: loops[0]})
        applied.append(Opt("UPCAST", kept.arg.id, extent(kept)))
    if found.inner:
        place = add(mul(special("g1", parts), threads), thread)
        walk = _Walk(found.sink, found.inner, place, threads * parts, wide, AxisKind.UPCAST)
        store = replace_all(store, walk.values)
        inside = and_(inside, walk.inside)
        loops += walk.ranges
    else:
        inside = and_(inside, eq(thread, ZERO))
    end = make(O.END, dt.void, (gated_store(store, inside), *loops))
    end = _shared(end, thread, threads, lanes, lambda op, v: _over_threads(op, v, threads))
    return make(O.SINK, dt.void, (end,))


def _kept_axis(found: _Kernel, machine: GpuMachine) -> UOp | None:
    """A short axis whose values every thread computes together: a matrix of few rows."""
    (end,) = found.sink.src
    for r in found.outer[:-1]:
        if r.src[0].op != O.CONST or extent(r) > KEPT_ROWS or found.inner:
            continue
        if saved_reads(end, r) and found.rows.vmax // extent(r) >= machine.multiprocessors * 4:
            return r
    return None


def _copies(found: _Kernel, kept: UOp, column: UOp, lanes: int, machine: GpuMachine) -> int:
    """Neighbouring columns of a product that a thread does together, so that it reads the kept rows
    once for them: as many as its registers hold."""
    (end,) = found.sink.src
    if column.src[0].op != O.CONST or not saved_reads(end, column):
        return 1
    if extent(kept) * found.depth * 16 // lanes < FAR_BYTES:
        return 1
    for copies in (4, 2):
        blocks = found.rows.vmax // extent(kept) // copies
        fits = extent(kept) * copies * lanes <= KEPT_SUMS
        if fits and extent(column) % copies == 0 and blocks >= machine.multiprocessors * 4:
            return copies
    return 1


def _row_threads(vectors: int, rows: int, machine: GpuMachine) -> int:
    """Threads that share a row: four vectors each, or more threads where rows are few."""
    most = min(machine.threads, power_above(vectors))
    busy = machine.multiprocessors * FULL_THREADS // max(rows, 1)
    wanted = max(vectors // machine.row_vectors, busy, 1)
    return min(most, power_above(wanted))


def _columns(found: _Kernel, machine: GpuMachine, applied: list[Opt]) -> UOp:
    """Outputs along l0, parts of the reduction along l1."""
    (end,) = found.sink.src
    kept = _kept_axis(found, machine)
    outer = [r for r in found.outer if r is not kept]
    copies = 1 if kept is None else extent(kept)
    lanes = output_lanes(end.src[0], outer)
    width = machine.warp
    rows = found.rows.vmax // copies
    while lanes > 1 and rows // (lanes * width) < 2 * machine.multiprocessors:
        lanes //= 2
    groups = min(machine.threads // width, power_above(found.depth) // UNROLL)
    # Every reduction has an array of its own in shared memory.
    each = sum([max(4, n.dtype.itemsize) for n in found.reductions]) * width * copies
    while each * groups * lanes > machine.shared_bytes:
        lanes, groups = (lanes // 2, groups) if lanes > 1 else (lanes, groups // 2)
    axes = [(r, r.src[0]) for r in outer]
    last = outer[-1]
    lane = new_range(found.sink, lanes, AxisKind.LANE) if lanes > 1 else ZERO
    if lanes > 1:
        axes[-1] = (last, idiv(last.src[0], lanes))
    total = product([size for _, size in axes])
    place, inside = spread(total, "g0", "l0", width)
    values = unflatten(place, outer, dict(axes))
    if lanes > 1:
        values[last] = add(mul(values[last], lanes), lane)
    applied += [Opt("LOCAL", last.arg.id, width), Opt("GROUPTOP", 0, groups)]
    thread = special("l1", groups)
    gate = and_(inside, eq(thread, ZERO))
    loops = [lane] if lanes > 1 else []
    if kept is not None:
        values[kept] = with_kind(kept, AxisKind.UPCAST)
        loops.insert(0, values[kept])
        applied.append(Opt("UPCAST", kept.arg.id, copies))
    store = gated_store(replace_all(end.src[0], values), gate)
    end = make(O.END, dt.void, (store, *loops))
    end = _shared(end, thread, groups, 1, lambda op, v: _over_groups(op, v, groups, width))
    return make(O.SINK, dt.void, (end,))


def _shared(end: UOp, thread: UOp, threads: int, lanes: int, fold: _Fold) -> UOp:
    """Every reduction that depends on outputs alone, shared by the threads, innermost first."""
    open_ = {r for r in end.src[1:] if r.op == O.RANGE}
    done: set[UOp] = set()
    while True:
        every = [n for n in depth_first(end) if n.op == O.REDUCE and n.ranges <= open_]
        waiting = [n for n in every if n not in done and not _is_written_out(n)]
        if not waiting:
            return end
        node = waiting[0]
        walk = _Walk(end, list(node.src[1:]), thread, threads, lanes, AxisKind.UNROLL)
        part = _partial(node, walk)
        done.update([n for n in part.toposort() if n.op == O.REDUCE])  # what is inside stays
        end = replace_all(end, {node: fold(node.arg, part)})


class _Walk:
    """Axes walked by ``threads`` threads in steps of vectors: where a thread is, and its loops."""

    def __init__(
        self, near: UOp, axes: list[UOp], thread: UOp, threads: int, lanes: int, copies: AxisKind
    ) -> None:
        number = max([-1, *[n.arg.id for n in near.toposort() if n.op == O.RANGE]])
        self.ranges: list[UOp] = []

        def fresh(size: UOp, kind: AxisKind) -> UOp:
            nonlocal number
            if size is ONE:
                return ZERO
            number += 1
            made = make(O.RANGE, dt.index, (size,), RangeArg(number, kind))
            self.ranges.append(made)
            return made

        if axes[-1].src[0].op != O.CONST or extent(axes[-1]) % lanes:
            lanes = 1
        sizes = [(r, r.src[0]) for r in axes]
        sizes[-1] = (axes[-1], idiv(axes[-1].src[0], lanes))
        total = product([size for _, size in sizes])
        steps = idiv(add(total, num(threads - 1)), threads)
        loop = AxisKind.REDUCE if copies is AxisKind.UNROLL else AxisKind.LOOP
        if steps.op == O.CONST and steps.arg <= KEPT_VECTORS:
            step = fresh(steps, copies)
        else:
            unrolled = UNROLL if steps.vmax >= 2 * UNROLL else 1
            outer = fresh(idiv(add(steps, num(unrolled - 1)), unrolled), loop)
            step = add(mul(outer, unrolled), fresh(num(unrolled), copies))
        place = add(mul(step, threads), thread)
        self.inside = lt(place, total)
        if self.inside is not TRUE:
            place = make(O.MIN, dt.index, (place, sub(total, ONE)))
        self.values = unflatten(place, axes, dict(sizes))
        if lanes > 1:
            lane = fresh(num(lanes), AxisKind.LANE)
            self.values[axes[-1]] = add(mul(self.values[axes[-1]], lanes), lane)


def _partial(node: UOp, walk: _Walk) -> UOp:
    """What one thread has of a reduction."""
    value = replace_all(node.src[0], walk.values)
    if walk.inside is not TRUE:
        unit = const(identity(node.arg, value.dtype), value.dtype)
        value = make(O.WHERE, value.dtype, (walk.inside, value, unit))
    if not walk.ranges:
        return value
    return make(O.REDUCE, node.dtype, (value, *walk.ranges), node.arg)


def _over_threads(op: int, value: UOp, threads: int) -> UOp:
    """Folded over l0: by shuffles within a warp, then over the warps in order."""
    offset = min(threads, 32) // 2
    while offset:
        other = shuffle(value, offset)
        value = make(op, value.dtype, (value, other))
        offset //= 2
    warps = threads // 32
    if warps < 2:
        return value
    return _tree(op, [exchange(value, "warp", i, warps, threads) for i in range(warps)])


def _over_groups(op: int, value: UOp, groups: int, width: int) -> UOp:
    """Folded over l1."""
    if groups < 2:
        return value
    return _tree(op, [exchange(value, "group", i, groups, width) for i in range(groups)])


def _tree(op: int, parts: list[UOp]) -> UOp:
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        folded = [make(op, a.dtype, (a, b)) for a, b in pairs]
        parts = folded + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]
