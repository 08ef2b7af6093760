"""Loop choices for GPUs: which axes are blocks, which are threads, which are vectors.

In: a kernel as rangeify made it. Out: the same kernel with SPECIAL indices in place of parallel
loops, and the opts that say what was done. Three plans:

* ``outputs``: a thread computes one vector of outputs, with plain loops for its reductions;
* ``rows``: a block, or some threads of a warp, shares each reduction; what does not depend on the
  reductions is spread over the same threads, so a row that fits their registers is read once;
* ``columns``: vectors of outputs beside each other, the reduction cut into groups along l1.

Threads past the end of an axis work on its last element and do not store, so loads need no gates.
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
from svod.ir.symbolic import (
    ONE,
    TRUE,
    ZERO,
    add,
    and_,
    divide,
    eq,
    idiv,
    lt,
    modulo,
    mul,
    num,
    sub,
)
from svod.optimize.actions import merge_adjacent
from svod.optimize.gpu_attention import optimize_attention
from svod.optimize.gpu_boxes import optimize_boxes
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_scatter import by_parts, count_parts, shared_out
from svod.optimize.gpu_tile import optimize_tile
from svod.optimize.graph import extent, new_range, renumber, replace_all, stride, with_kind
from svod.optimize.opts import Opt
from svod.optimize.stacks import stacked_axes


# Arguments of a BARRIER, which is a value of another thread. A shuffle takes it from the thread of
# the same warp whose number differs in one bit. An exchange goes through shared memory: "warp" is
# what warp ``slot`` has, the same in all its threads; "group" what the thread with the same l0 and
# with l1 = ``slot`` has. ``parts`` is how many slots there are, ``width`` the threads along l0.
def shuffle(value: UOp, offset: int) -> UOp:
    return make(O.BARRIER, value.dtype, (value,), ("shuffle", offset))


def exchange(value: UOp, kind: str, slot: int, parts: int, width: int) -> UOp:
    return make(O.BARRIER, value.dtype, (value,), (kind, slot, parts, width))


_Fold: TypeAlias = Callable[[int, UOp], UOp]  # over threads: an op and what each of them has

BLOCK = 256  # threads of a block whose threads do not talk to each other
MAX_LANES = 8
KEPT_VECTORS = 8  # vectors of a row that one thread keeps in registers
KEPT_ROWS = 16  # outputs of one thread that read the same long row
UNROLL = 4  # loads in flight from one thread inside a loop
MIN_ROW = 16  # elements of a reduction that several threads share
FULL_THREADS = 2048  # of one multiprocessor


def optimize_gpu(sink: UOp, machine: GpuMachine) -> tuple[UOp, tuple[Opt, ...]]:
    """Choose and apply a plan."""
    sink = merge_adjacent(sink)
    applied: list[Opt] = []
    if len(sink.src) == 1 and sink.src[0].src[0].arg != "ordered":
        planned = optimize_attention(sink, machine.has_wgmma, applied)
        if planned is None:
            planned = optimize_boxes(sink, machine, applied)
        if planned is None:
            planned = optimize_tile(sink, machine, applied)
        if planned is None:
            planned = _shared_reduction(sink, machine, applied)
        if planned is not None:
            return renumber(planned), tuple(applied)
    ends = [_outputs(sink, end, machine, applied) for end in sink.src]
    return renumber(make(O.SINK, dt.void, tuple(ends))), tuple(applied)


def special(name: str, size: UOp | int) -> UOp:
    """A hardware index below ``size``; the constant 0 where there is only one value."""
    size = num(size) if isinstance(size, int) else size
    return ZERO if size is ONE else make(O.SPECIAL, dt.index, (size,), name)


# -- one thread per vector of outputs -------------------------------------------------------------


def _outputs(sink: UOp, end: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp:
    """A store with its loops spread over threads."""
    store, *loops = end.src
    ordered = store.arg == "ordered"
    serial = [r for r in loops if ordered and not _is_free(store, r)]
    stacked = [] if ordered else [r for r in stacked_axes(sink) if r in loops]
    free = [r for r in loops if r not in serial and r not in stacked]
    store, side = _written_out(store, stacked)
    if not free:
        one = by_parts(store, serial, machine, applied)
        if one is None:
            one = _gated(store, eq(special("l0", 32), ZERO))  # one thread of one warp
        return make(O.END, dt.void, (one, *serial, *side))
    store = _unrolled(store)
    lanes = 1 if side else _output_lanes(store, free)
    lane = new_range(sink, lanes, AxisKind.LANE) if lanes > 1 else ZERO
    axes = [(r, r.src[0]) for r in free]
    if lanes > 1:
        axes[-1] = (free[-1], idiv(free[-1].src[0], lanes))
        applied.append(Opt("LANE", free[-1].arg.id, lanes))
    kept, copies = (None, 1) if ordered else _register_tile(store, free, lanes, machine)
    number = lane.arg.id + 1 if lanes > 1 else new_range(sink, 1, AxisKind.UPCAST).arg.id
    copy = make(O.RANGE, dt.index, (num(copies),), RangeArg(number, AxisKind.UPCAST))
    if kept is not None:
        axes = [(r, idiv(size, copies)) if r is kept else (r, size) for r, size in axes]
        applied.append(Opt("UPCAST", kept.arg.id, copies))
    total = _product([size for _, size in axes])
    threads = min(machine.block, _power_above(total.vmax))
    if serial:
        threads = max(threads, machine.warp)
    place, inside = _spread(total, "g0", "l0", threads)
    applied.append(Opt("LOCAL", free[-1].arg.id, threads))
    values = _unflatten(place, axes)
    if lanes > 1:
        values[free[-1]] = add(mul(values[free[-1]], lanes), lane)
    rest = [lane] if lanes > 1 else []
    if kept is not None:
        values[kept] = add(mul(values[kept], copies), copy)
        rest.insert(0, copy)
    store = replace_all(store, values)
    if serial:
        parts = count_parts(store, serial, int(total.vmax))
        store = shared_out(store, serial, special("g1", parts), parts)
    store = _gated(store, inside)
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
        saved = _saved(store, r)
        for copies in (8, 4, 2):
            enough = total // copies >= machine.multiprocessors * BLOCK // 2
            if saved and r.src[0].op == O.CONST and extent(r) % copies == 0 and enough:
                found = max(found, (saved, r, copies), key=lambda f: (f[0], f[2]))
    return found[1:]


def _saved(root: UOp, r: UOp) -> float:
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
    if stride(index, r) in (0, None):
        return False
    data = [n for n in index.toposort() if n.op == O.LOAD]
    return not any(r in n.ranges for n in data)


def _output_lanes(store: UOp, free: list[UOp]) -> int:
    """Elements one thread stores beside each other."""
    last = free[-1]
    if stride(store.src[0], last) != 1 or last.src[0].op != O.CONST:
        return 1
    return _lanes(store, last)


def _lanes(root: UOp, r: UOp) -> int:
    """Lanes along r: what 16 bytes hold of the smallest contiguous type, as far as r divides."""
    sizes = [n.dtype.itemsize for n in root.toposort() if n.op == O.INDEX and stride(n, r) == 1]
    apart = [n for n in root.toposort() if n.op == O.INDEX and stride(n, r) not in (0, 1)]
    if not sizes or len(apart) > len(sizes):
        return 1
    lanes = min(MAX_LANES, 16 // min(sizes))
    while lanes > 1 and (r.src[0].op != O.CONST or extent(r) % lanes):
        lanes //= 2
    return lanes


# -- reductions that threads share ----------------------------------------------------------------


@dataclass(slots=True)
class _Kernel:
    """A kernel with reductions that depend on outputs alone."""

    sink: UOp
    outer: list[UOp]  # output axes the reductions depend on
    inner: list[UOp]  # the others
    reductions: list[UOp]

    @property
    def rows(self) -> UOp:
        return _product([r.src[0] for r in self.outer])

    @property
    def depth(self) -> int:
        return max([prod([extent(r) for r in n.src[1:]]) for n in self.reductions])


def _shared_reduction(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    found = _find(sink)
    if found is None:
        return None
    rows, depth = found.rows.vmax, found.depth
    if depth < MIN_ROW:
        return None
    if all(_runs_along(n) for n in found.reductions) or rows * 4 <= machine.multiprocessors:
        return _rows(found, machine, applied)
    if rows >= machine.multiprocessors * FULL_THREADS or found.inner:
        return None
    return _columns(found, machine, applied)


def _find(sink: UOp) -> _Kernel | None:
    (end,) = sink.src
    outputs = list(end.src[1:])
    shared = [n for n in depth_first(sink) if n.op == O.REDUCE and n.ranges <= set(outputs)]
    if not shared:
        return None
    used = frozenset[UOp]().union(*[n.ranges for n in shared])
    outer = [r for r in outputs if r in used]
    inner = [r for r in outputs if r not in used]
    return _Kernel(sink, outer, inner, shared)


def _runs_along(node: UOp) -> bool:
    """Whether most of what a reduction reads lies along its last axis, and for a while."""
    last = node.src[-1]
    if extent(last) < MIN_ROW:
        return False
    indices = [n for n in node.src[0].toposort() if n.op == O.INDEX and last in n.ranges]
    along = [n for n in indices if stride(n, last) == 1]
    return 2 * len(along) > len(indices)


def _rows(found: _Kernel, machine: GpuMachine, applied: list[Opt]) -> UOp:
    """A block, or a part of a warp, per value of the outer axes."""
    (end,) = found.sink.src
    widths = [_lanes(n, n.src[-1]) for n in found.reductions]
    if found.inner:
        widths.append(_output_lanes(end.src[0], found.inner))
    lanes = min(widths)
    vectors = found.depth // lanes
    kept = _kept_axis(found, machine)
    outer = [r for r in found.outer if r is not kept]
    total = _product([r.src[0] for r in outer])
    threads = _row_threads(vectors, total.vmax, machine)
    group = max(1, BLOCK // threads) if threads <= machine.warp else 1
    row, inside = _spread(total, "g0", "l1", group)
    applied.append(Opt("GROUP", found.reductions[-1].src[-1].arg.id, threads))
    applied.append(Opt("LOCAL", 0, group))
    values = _unflatten(row, [(r, r.src[0]) for r in outer])
    store = replace_all(end.src[0], values)
    thread = special("l0", threads)
    loops: list[UOp] = []
    if kept is not None:
        loops = [with_kind(kept, AxisKind.UPCAST)]
        store = replace_all(store, {kept: loops[0]})
        applied.append(Opt("UPCAST", kept.arg.id, extent(kept)))
    if found.inner:
        walk = _Walk(found.sink, found.inner, thread, threads, lanes, AxisKind.UPCAST)
        store = replace_all(store, walk.values)
        inside = and_(inside, walk.inside)
        loops += walk.ranges
    else:
        inside = and_(inside, eq(thread, ZERO))
    end = make(O.END, dt.void, (_gated(store, inside), *loops))
    end = _shared(end, thread, threads, lanes, lambda op, v: _over_threads(op, v, threads))
    return make(O.SINK, dt.void, (end,))


def _kept_axis(found: _Kernel, machine: GpuMachine) -> UOp | None:
    """A short axis whose values every thread computes together: a matrix of few rows."""
    (end,) = found.sink.src
    for r in found.outer[:-1]:
        if r.src[0].op != O.CONST or extent(r) > KEPT_ROWS or found.inner:
            continue
        if _saved(end, r) and found.rows.vmax // extent(r) >= machine.multiprocessors * 4:
            return r
    return None


def _row_threads(vectors: int, rows: int, machine: GpuMachine) -> int:
    """Threads that share a row: four vectors each, or more threads where rows are few."""
    most = min(machine.threads, _power_above(vectors))
    busy = machine.multiprocessors * FULL_THREADS // max(rows, 1)
    wanted = max(vectors // machine.row_vectors, busy, 1)
    return min(most, _power_above(wanted))


def _columns(found: _Kernel, machine: GpuMachine, applied: list[Opt]) -> UOp:
    """Outputs along l0, parts of the reduction along l1."""
    (end,) = found.sink.src
    kept = _kept_axis(found, machine)
    outer = [r for r in found.outer if r is not kept]
    copies = 1 if kept is None else extent(kept)
    lanes = _output_lanes(end.src[0], outer)
    width = machine.warp
    rows = found.rows.vmax // copies
    while lanes > 1 and rows // (lanes * width) < 2 * machine.multiprocessors:
        lanes //= 2
    groups = min(machine.threads // width, _power_above(found.depth) // UNROLL)
    # Every reduction has an array of its own in shared memory.
    each = sum([max(4, n.dtype.itemsize) for n in found.reductions]) * width * copies
    while each * groups * lanes > machine.shared_bytes:
        lanes, groups = (lanes // 2, groups) if lanes > 1 else (lanes, groups // 2)
    axes = [(r, r.src[0]) for r in outer]
    last = outer[-1]
    lane = new_range(found.sink, lanes, AxisKind.LANE) if lanes > 1 else ZERO
    if lanes > 1:
        axes[-1] = (last, idiv(last.src[0], lanes))
    total = _product([size for _, size in axes])
    place, inside = _spread(total, "g0", "l0", width)
    values = _unflatten(place, axes)
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
    store = _gated(replace_all(end.src[0], values), gate)
    end = make(O.END, dt.void, (store, *loops))
    end = _shared(end, thread, groups, 1, lambda op, v: _over_groups(op, v, groups, width))
    return make(O.SINK, dt.void, (end,))


def _shared(end: UOp, thread: UOp, threads: int, lanes: int, fold: _Fold) -> UOp:
    """Every reduction that depends on outputs alone, shared by the threads, innermost first."""
    open_ = {r for r in end.src[1:] if r.op == O.RANGE}
    done: set[UOp] = set()
    while True:
        waiting = [
            n for n in depth_first(end) if n.op == O.REDUCE and n not in done and n.ranges <= open_
        ]
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
        total = _product([size for _, size in sizes])
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
        self.values = _unflatten(place, sizes)
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


# -- helpers --------------------------------------------------------------------------------------


def _spread(total: UOp, grid: str, block: str, threads: int) -> tuple[UOp, UOp]:
    """A number below ``total`` for each thread, and whether the thread is the first to have it."""
    blocks = idiv(add(total, num(threads - 1)), threads)
    place = add(mul(special(grid, blocks), threads), special(block, threads))
    if total.op == O.CONST and total.arg % threads == 0:
        return place, TRUE
    inside = lt(place, total)
    if inside is TRUE:
        return place, TRUE
    return make(O.MIN, dt.index, (place, sub(total, ONE))), inside


def _unflatten(place: UOp, axes: list[tuple[UOp, UOp]]) -> dict[UOp, UOp]:
    """The values of axes whose row-major number is ``place``."""
    values: dict[UOp, UOp] = {}
    for number, (r, size) in enumerate(reversed(axes)):
        is_first = number == len(axes) - 1
        values[r] = place if is_first else modulo(place, size)
        if not is_first:
            place = divide(place, size)
    return values


def _product(sizes: list[UOp]) -> UOp:
    total = ONE
    for size in sizes:
        total = mul(total, size)
    return total


def _gated(store: UOp, gate: UOp) -> UOp:
    """The store where the gate is open."""
    if gate is TRUE:
        return store
    index, value = store.src
    test = and_(index.src[2], gate) if len(index.src) > 2 else gate
    place = make(O.INDEX, index.dtype, (index.src[0], index.src[1], test), index.arg)
    return make(O.STORE, dt.void, (place, value), store.arg)


def _power_above(value: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, int(value) - 1).bit_length()
