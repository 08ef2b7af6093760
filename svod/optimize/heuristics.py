"""The loop choices made without search: lanes, register tile, unrolling, threads.

In: a kernel as rangeify made it. Out: the same kernel with axes of every kind, and the opts that
make it so. Choices come from shapes, strides, dtypes and the machine.
"""

from __future__ import annotations

from math import prod

from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, depth_first
from svod.optimize.across import choose_across
from svod.optimize.actions import MAX_COPIES, Nest, merge_adjacent
from svod.optimize.apart import steps_stay_apart
from svod.optimize.band_choice import choose_bands
from svod.optimize.block_sums import choose_block_sums
from svod.optimize.columns import choose_sweep
from svod.optimize.contraction import choose_contraction
from svod.optimize.graph import evaluations, extent, stride
from svod.optimize.lane_steps import MAX_STEP, MIN_RUN
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.outside import members
from svod.optimize.rows import keep_rows
from svod.optimize.stacks import stacked_axes
from svod.optimize.windows import choose_window
from svod.schedule.costs_cpu import CPU

LANE_FACTORS = (16, 8, 4, 2, 1)
CROSSED = CPU.crossed_block  # elements, and lanes: the block that is transposed in registers
# along a row that is read across, where rows do not stay in cache
CROSSED_BLOCKS = CPU.crossed_blocks
# element operations below which one core does it: about ten microseconds
THREAD_WORK = CPU.thread_work
# an outer loop is split rather than an inner one for this much more work
EVEN_ENOUGH = CPU.even_enough
MAYBE_SHORT = 1.5  # times the work, where a loop may have too few steps to be shared
PACK_WORK = CPU.pack  # of one element, in multiply-adds
FINISH_BYTES = CPU.finish_bytes  # of sums that wait in scratch memory
UNROLL_LIMIT = CPU.unroll
# full tiles, from which a rest costs less than tiles with too few sums for two multipliers
FULL_TILES = CPU.full_tiles
MAX_ACCUMULATORS = CPU.accumulators  # of 32 registers: the rest holds operands
ONE_STREAM = CPU.stream_steps  # steps of a sum from which one row at a time keeps memory busy
LONG_SUM = 1 << 15  # steps of a sum from which its parts are at least so many on every machine:
LEAST_PARTS = 16  # rounding grows with the length of the parts
TILE_REUSE = CPU.tile_reuse  # multiply-adds that a register tile makes of one operand, at most
# operations per element beyond which one vector register per value is enough
HEAVY_BODY = CPU.heavy_body


def optimize(sink: UOp, machine: Machine) -> tuple[UOp, tuple[Opt, ...]]:
    """Choose and apply opts."""
    merged = merge_adjacent(sink)
    nest = Nest(merged, machine)
    if machine.vector_bytes and len(sink.src) == 1:
        nest = _contracted(merged, machine) or nest
        if not nest.opts:
            choose_plain(nest)
    choose_threads(nest)
    return nest.finished(), tuple(nest.opts)


def _contracted(sink: UOp, machine: Machine) -> Nest | None:
    """A contraction with packed operands, or one of another one, perhaps with loops of a run-time
    size around it; None for other kernels."""
    for outer in members(sink):
        nest = Nest(sink, machine)
        nest.apply(*[Opt("OUTER", r.arg.id) for r in outer])
        if staged := _staged(nest.sink, machine):
            nest.apply(*staged)
            return nest
        if choose_bands(nest):
            return nest
    return None


def _staged(sink: UOp, machine: Machine) -> list[Opt]:
    """The plan of a contraction whose operands are packed; empty for other kernels."""
    for choose in (choose_block_sums, choose_across, choose_window, choose_contraction):
        if opts := choose(sink, machine):
            return opts
    return []


class _Shape:
    """What a kernel looks like to the chooser."""

    def __init__(self, sink: UOp) -> None:
        self.end = sink.src[0]
        self.outputs = [r for r in self.end.src[1:] if r.arg.kind is AxisKind.LOOP]
        self.copied = [r for r in self.end.src[1:] if r.arg.kind is AxisKind.UPCAST]
        self.nodes = list(depth_first(sink))
        self.reductions = [n for n in self.nodes if n.op == O.REDUCE]
        self.indices = [n for n in self.nodes if n.op == O.INDEX]
        self.store = self.end.src[0]
        self.ordered = self.store.arg == "ordered"
        self.keeps_rows = any(n.op == O.DEFINE_LOCAL for n in self.nodes)
        # How often a sum reads an operand, at least: again for every tile of outputs that it does
        # not move with.
        self.reads: dict[UOp, float] = {}
        for node in self.reductions:
            count = evaluations(node.src[0]) / TILE_REUSE
            for n in node.src[0].toposort():
                if n.op == O.INDEX:
                    self.reads[n] = max(count, self.reads.get(n, 0.0))
        self.values = [n for n in self.nodes if n.op in O.ELEMENTWISE and n.dtype.kind != "x"]
        sizes = [_compute_size(n) for n in self.values if n.op not in O.COMPARE]
        sizes += [_compute_size(n) for n in self.nodes if n.op == O.LOAD]
        sizes.append(_compute_size(self.store.src[1]))
        self.itemsize = max(sizes)
        # Axes whose values share one scratch memory: copies side by side would overwrite it.
        inner = [n for n in self.nodes if n.op == O.END and n is not self.end]
        self.kept = frozenset().union(*[n.ranges for n in inner])

    def store_gap(self, lane: UOp, width: int) -> float:
        """What a store that jumps from lane to lane costs: less where copies lie between lanes."""
        index = self.store.src[0]
        between = 1
        for r in sorted(self.copied, key=lambda r: stride(index, r) or 0):
            if stride(index, r) == between:
                between *= extent(r)
        step = stride(index, lane) or 0
        if step == between and step <= MAX_STEP:
            return 1.0 / width
        return 1.5 if between >= MIN_RUN else 3.0

    def conflict(self, a: UOp, b: UOp) -> bool:
        return any(a in n.ranges and b in n.ranges for n in self.nodes)


def _compute_size(node: UOp) -> int:
    """Bytes of a value in registers: small floats are computed as f32."""
    if node.dtype.kind == "f":
        return max(4, node.dtype.itemsize)
    return node.dtype.itemsize


def _reduce_lane(shape: _Shape, node: UOp) -> UOp | None:
    """The reduced axis along which most of the loads are contiguous."""
    best, best_score = None, 0.0
    for r in node.src[1:]:
        score = 0.0
        for index in shape.indices:
            if r in index.ranges and index is not shape.store.src[0]:
                score += 1.0 if stride(index, r) == 1 else -1.0
        if score > best_score and extent(r) >= 4:
            best, best_score = r, score
    return best


def _lane_cost(shape: _Shape, machine: Machine, lane: UOp | None) -> tuple[float, dict[UOp, UOp]]:
    """Estimated work with this output axis in lanes, and the lanes of the reductions then."""
    width = machine.lanes(shape.itemsize)
    own: dict[UOp, UOp] = {}
    chosen = [lane] if lane is not None else []
    for node in shape.reductions:  # inner ones come first in creation order
        if lane is not None and lane in node.src[0].ranges:
            continue
        r = _reduce_lane(shape, node)
        if r is not None and not any(c is not r and shape.conflict(c, r) for c in chosen):
            own[node] = r
            if r not in chosen:
                chosen.append(r)
    # Lanes of a reduction are added up in the end, by halves.
    total = sum([float(evaluations(node)) for node in own]) * width.bit_length()
    for node in shape.nodes:
        if node.op == O.INDEX or node.op in O.ELEMENTWISE:
            used = [r for r in chosen if r in node.ranges]
            count = max(float(evaluations(node)), shape.reads.get(node, 0.0))
            if not used:
                total += count
            elif node.op != O.INDEX or stride(node, used[0]) == 1:
                size = extent(used[0])
                total += count * (-(-size // width)) / size
            else:
                gap = 1.5
                if node is shape.store.src[0]:
                    gap = shape.store_gap(used[0], width)
                total += count * gap
    return total, own


def _lane_candidates(shape: _Shape) -> list[UOp | None]:
    candidates: list[UOp | None] = [None]
    if shape.keeps_rows:  # lanes of another axis would meet in the memory of the row
        return [None, *[r for r in shape.outputs[-1:] if extent(r) > 1]]
    for r in shape.outputs:
        if extent(r) == 1:  # a run-time size of one element at most
            continue
        if shape.ordered:
            # Elements of one lane must never meet in memory.
            if stride(shape.store.src[0], r) != 1:
                continue
            others = [t for t in shape.store.src[0].src[1].toposort() if t.op == O.LOAD]
            if any(r in t.ranges for t in others):
                continue
        candidates.append(r)
    return candidates


def choose_plain(nest: Nest) -> None:
    """Lanes, a register tile and unrolling, with every operand read in place."""
    if keep_rows(nest.sink) is not nest.sink:
        nest.apply(Opt("KEEP", nest.sink.src[0].src[-1].arg.id))
    machine, shape = nest.machine, _Shape(nest.sink)
    if stacked := stacked_axes(nest.sink):
        copies = [Opt("UPCAST", r.arg.id, extent(r)) for r in stacked]
        nest.apply(*[opt for opt in copies if not nest.refusal(opt)])
        shape = _Shape(nest.sink)
    best: tuple[float, UOp | None, dict[UOp, UOp]] | None = None
    for candidate in _lane_candidates(shape):
        cost, own = _lane_cost(shape, machine, candidate)
        # Later axes win ties: they are the contiguous ones.
        if best is None or cost <= best[0]:
            best = (cost, candidate, own)
    assert best is not None
    _, lane, own = best
    if lane is not None:
        sweep = choose_sweep(nest.sink, lane, shape.itemsize, machine)
        if sweep:
            nest.apply(*sweep)
            return
    width = machine.lanes(shape.itemsize)
    tile = _register_tile(shape, machine, lane, own)
    if lane is None and own and _finish(nest, shape, own, tile):
        return
    if lane is not None and (deep := _crossed_depth(shape, tile, lane)) is not None:
        tile.lanes = _lane_width(extent(lane), min(CROSSED, width), 1)
        nest.apply(Opt("UNROLL", deep.arg.id, CROSSED))
    nest.apply(*_unrolls(shape, own, tile))
    nest.apply(*[Opt("UPCAST", r.arg.id, factor) for r, factor in tile.upcasts])
    for r in dict.fromkeys(own.values()):
        most = 1 if tile.upcasts else _reduce_vectors([n for n in own if own[n] is r])
        if extent(r) >= LONG_SUM:
            most = max(most, LEAST_PARTS // width)
        nest.apply(Opt("LANE", r.arg.id, _lane_width(extent(r), width, most)))
    if lane is not None:
        if not tile.upcasts and (crossed := _crossed(shape, machine, lane)):
            nest.apply(*crossed)
            return
        lanes = tile.lanes or _lane_width(extent(lane), width, _vectors(shape, lane, machine))
        nest.apply(Opt("LANE", lane.arg.id, lanes))
        if tile.parts > 1:
            nest.apply(Opt("UPCAST", lane.arg.id, tile.parts))
        if tile.upcasts:
            nest.apply(*lane_first(nest.main()))
    elif tile.upcasts:
        nest.apply(*larger_first(nest.main()))


def _finish(nest: Nest, shape: _Shape, own: dict[UOp, UOp], tile: _Tile) -> bool:
    """Sums along the depth leave one element at a time: heavy work on it goes to a pass."""
    if len(shape.reductions) != 1 or not shape.outputs or len(nest.sink.src) != 1:
        return False
    (total,) = shape.reductions
    if total not in own or _loads_below(total) < 2:
        return False
    after = set(shape.store.toposort()) - set(total.toposort())
    column = shape.outputs[-1]
    width = nest.machine.lanes(shape.itemsize)
    if not any(n.op in O.HEAVY for n in after) or stride(shape.store.src[0], column) != 1:
        return False
    rows = prod([extent(r) for r in shape.outputs[:-1] if r in total.ranges])
    opt = Opt("FINISH", column.arg.id, width)
    if rows * width * total.dtype.itemsize > FINISH_BYTES or nest.refusal(opt):
        return False
    nest.apply(opt)
    sums = nest.parts[0].sink.src[0]
    node = next(n for n in sums.toposort() if n.op == O.REDUCE)
    if tile.upcasts:
        for r in sums.src[1:][-2:]:
            if extent(r) > 1:
                nest.apply(Opt("UPCAST", r.arg.id, _tile_rows(extent(r), 4)))
    lane = node.src[1 + total.src[1:].index(own[total])]
    most = 1 if tile.upcasts else _reduce_vectors([node])
    nest.apply(Opt("LANE", lane.arg.id, _lane_width(extent(lane), width, most)))
    last = nest.parts[-1].sink.src[0].src[-1]
    nest.apply(Opt("LANE", last.arg.id, width))
    return True


def _crossed(shape: _Shape, machine: Machine, lane: UOp) -> list[Opt]:
    """Copies along an axis of contiguous loads that jump from lane to lane.

    The code generator reads whole rows for them and transposes the block in registers.
    """
    if shape.reductions or shape.ordered or len(shape.values) > HEAVY_BODY:
        return []
    for index in shape.indices:
        if index is shape.store.src[0] or abs(stride(index, lane) or 0) <= MAX_STEP:
            continue
        for r in shape.outputs:
            if r is lane or stride(index, r) != 1 or extent(r) < MIN_RUN:
                continue
            lanes = min(CROSSED, machine.lanes(shape.itemsize))
            opts = [Opt("UPCAST", r.arg.id, min(lanes, extent(r)))]
            large = evaluations(index) * index.dtype.itemsize > machine.stream_bytes // 2
            if large and extent(r) > 2 * lanes * CROSSED_BLOCKS and r.src[0].op == O.CONST:
                opts.append(Opt("BLOCK", r.arg.id, CROSSED_BLOCKS))
            return [*opts, Opt("LANE", lane.arg.id, _lane_width(extent(lane), lanes, 1))]
    return []


def _crossed_depth(shape: _Shape, tile: _Tile, lane: UOp) -> UOp | None:
    """A reduced axis of contiguous loads that jump from lane to lane: see `_crossed`."""
    if len(shape.reductions) != 1 or len(shape.values) > 8:
        return None
    copies = prod([factor for _, factor in tile.upcasts])
    for index in shape.indices:
        if index is shape.store.src[0] or abs(stride(index, lane) or 0) <= MAX_STEP:
            continue
        for r in shape.reductions[0].src[1:]:
            is_long = r.src[0].op == O.CONST and extent(r) >= 2 * CROSSED
            if is_long and stride(index, r) == 1 and copies * CROSSED <= MAX_COPIES:
                return r
    return None


def _reduce_vectors(reductions: list[UOp]) -> int:
    """Accumulators per sum: enough to hide latency, fewer where the body needs registers."""
    nodes = {n for r in reductions for n in r.src[0].toposort()}
    heavy = sum([1 for n in nodes if n.op in O.HEAVY])
    return 1 if heavy > 1 else 2 if heavy else 4


def _vectors(shape: _Shape, lane: UOp, machine: Machine) -> int:
    """Registers per value: more when the body is short, many for sums down columns."""
    body = len(shape.values)
    if len(shape.reductions) == 1 and body < 8 and lane in shape.reductions[0].ranges:
        # Each step reads one row of the lanes: long rows are what memory is good at.
        most = 16 if machine.registers >= 32 else 8
        while most > 2 and extent(lane) < most * machine.lanes(shape.itemsize) * machine.cores:
            most //= 2
        return most
    heavy = sum([1 for n in shape.values if n.op in O.UNARY and O.EXP <= n.op <= O.ATANH])
    return 1 if body + 20 * heavy > HEAVY_BODY else 2


def _lane_width(size: int, width: int, most: int) -> int:
    """Lanes for an axis: a few registers wide when that leaves no rest, never past the axis."""
    if size < width:
        return 1 << (size - 1).bit_length() if size & (size - 1) else size
    for factor in LANE_FACTORS:
        if factor > most or size < factor * width:
            continue
        if size % (factor * width) == 0 or size >= 4 * factor * width:
            return factor * width
    return width


class _Tile:
    __slots__ = ("lanes", "parts", "upcasts")

    def __init__(self) -> None:
        self.upcasts: list[tuple[UOp, int]] = []
        self.lanes = 0
        self.parts = 1  # copies of the lanes side by side


def _register_tile(shape: _Shape, machine: Machine, lane: UOp | None, own: dict[UOp, UOp]) -> _Tile:
    """Output axes kept in registers around a reduction whose operands they share."""
    tile = _Tile()
    heavy = [n for n in shape.reductions if _loads_below(n) >= 2]
    if len(heavy) != 1 or shape.ordered or shape.keeps_rows:
        return tile
    node = heavy[0]
    loads = [n for n in node.src[0].toposort() if n.op == O.LOAD]
    free = [r for r in shape.outputs if r is not lane and r in node.ranges and extent(r) > 1]
    # An axis is worth a tile when some operand does not move with it.
    free = [r for r in free if any(r not in load.ranges for load in loads)]
    free = [r for r in free if r not in shape.kept]
    width = machine.lanes(shape.itemsize)
    budget = MAX_ACCUMULATORS if machine.registers >= 32 else 12
    if lane is not None and lane in node.ranges:
        if not free:
            return tile
        vectors = _tile_vectors(extent(lane), width)
        if machine.registers < 32:  # more leave too few rows, or none of the registers for them
            vectors = min(vectors, 2)
        # The code generator takes vectors of 2 and of 4 registers apart, no others.
        tile.parts = vectors if vectors == 3 else 1
        tile.lanes = vectors // tile.parts * width if extent(lane) >= width else 0
        if not tile.lanes:
            vectors = 1
        rows = budget // vectors
    elif node in own:
        rows = 16
        if len(free) == 1 and _is_one_stream(loads, free[0], own[node], machine):
            return tile
    else:
        return tile
    free.sort(key=lambda r: -_reuse(r, loads, lane, own.get(node)))
    for position, r in enumerate(free[:2]):
        limit = min(rows, 8)
        if position == 0 and len(free) > 1 and node in own:
            limit = 4
        is_full = machine.multipliers > 1 and extent(r) >= FULL_TILES * limit
        factor = limit if is_full else _tile_rows(extent(r), limit)
        if factor > 1:
            tile.upcasts.append((r, factor))
            rows //= factor
        if rows < 2:
            break
    return tile


def _is_one_stream(loads: list[UOp], row: UOp, depth: UOp, machine: Machine) -> bool:
    """A matrix times a vector: memory is fastest when rows are read one after the other."""
    kept = [n for n in loads if row not in n.ranges]
    size = sum([evaluations(n) * n.dtype.itemsize for n in kept])
    return size <= machine.l1_bytes // 2 and extent(depth) >= ONE_STREAM


def _loads_below(node: UOp) -> int:
    return len({n for n in node.src[0].toposort() if n.op == O.LOAD})


def _reuse(r: UOp, loads: list[UOp], lane: UOp | None, own: UOp | None) -> float:
    """Loads saved by keeping copies along r: vector loads count most."""
    score = 0.0
    for load in loads:
        if r not in load.ranges:
            moving = (lane is not None and lane in load.ranges) or (own in load.ranges)
            score += 2.0 if moving else 1.0
    return score


def _tile_vectors(size: int, width: int) -> int:
    """Registers along the lane axis of a tile."""
    for factor in (4, 3, 2):
        if size % (factor * width) == 0:
            return factor
    for factor in (4, 2):
        if size >= 3 * factor * width:
            return factor
    return 1


def _tile_rows(size: int, limit: int) -> int:
    """Copies along an axis: a divisor when a good one exists, else the limit with a rest."""
    if size <= limit:
        return size
    for factor in range(limit, limit // 2, -1):
        if size % factor == 0:
            return factor
    return limit


def _unrolls(shape: _Shape, own: dict[UOp, UOp], tile: _Tile) -> list[Opt]:
    """Short reduced axes are written out."""
    found: list[Opt] = []
    done: set[UOp] = set(own.values())
    copies = 1
    for _, factor in tile.upcasts:
        copies *= factor
    for node in shape.reductions:
        for r in node.src[1:]:
            if r in done:
                continue
            if extent(r) <= UNROLL_LIMIT and copies * extent(r) <= 32:
                found.append(Opt("UNROLL", r.arg.id, extent(r)))
                done.add(r)
                copies *= extent(r)
    return found


def lane_first(main: UOp) -> list[Opt]:
    """Walk a panel of the lane axis down before going to the next: the panel stays in cache."""
    loops = list(main.src[1:])
    lanes = [i for i, r in enumerate(loops) if r.arg.kind is AxisKind.LANE]
    upcasts = [i for i, r in enumerate(loops) if r.arg.kind is AxisKind.UPCAST]
    if not lanes or lanes[0] == 0 or not upcasts or upcasts[0] == 0:
        return []
    outer, target = lanes[0] - 1, upcasts[0] - 1
    if target >= outer or any(loops[i].arg.kind is not AxisKind.LOOP for i in (outer, target)):
        return []
    return [Opt("MOVE", outer, target)]


def larger_first(main: UOp) -> list[Opt]:
    """The loop over the larger operand outside: it is read once, the smaller one stays in cache."""
    loops = list(main.src[1:])
    loads = [n for n in main.toposort() if n.op == O.LOAD]
    if not loads:
        return []
    largest = max(loads, key=evaluations)
    plain = [i for i, r in enumerate(loops) if r.arg.kind is AxisKind.LOOP]
    own = [i for i in plain if loops[i] in largest.ranges]
    others = [i for i in plain if loops[i] not in largest.ranges]
    if not own or not others or own[0] < others[0]:
        return []
    return [Opt("MOVE", own[0], others[0])]


def choose_threads(nest: Nest) -> None:
    """The outermost loop with enough steps, shared by as many stores as can be."""
    sink, cores = nest.sink, nest.machine.cores
    if cores < 2:
        return
    nodes = sink.toposort()
    work = sum([evaluations(n) for n in nodes if n.op == O.INDEX or n.op in O.ELEMENTWISE])
    if work < THREAD_WORK:
        return
    loops = list(nest.main().src[1:])
    shared = [r for r in loops if r.arg.kind is AxisKind.LOOP and extent(r) >= cores]
    for end in sink.src:
        if end.src[0].arg == "ordered":
            shared = [r for r in shared if steps_stay_apart(end.src[0], r)]
    shared.sort(key=lambda r: (-sum([r in e.src[1:] for e in sink.src]), _run_time_extent(r)))
    if not shared:
        return
    works = {n: _work_of(n) for n in nodes if n.op == O.END}
    times = {r: _threaded_work(sink, r, cores, works) for r in shared}
    least = min(times.values()) * EVEN_ENOUGH
    best = next(r for r in shared if times[r] <= least)
    nest.apply(Opt("THREAD", loops.index(best), cores))


def _run_time_extent(r: UOp) -> int:
    """Loops of a run-time size come last, the longest of them first: batches are often of one."""
    return 0 if r.src[0].op == O.CONST else -extent(r) + (1 << 62)


def _threaded_work(sink: UOp, r: UOp, cores: int, works: dict[UOp, float]) -> float:
    """Work of the busiest core with a loop split: parts of it, stores without that loop, which
    one core does, and packing that every core repeats."""
    part = -(-extent(r) // cores)
    last = max(extent(r) - part * (cores - 1), 0)
    split = sum([works[e] for e in sink.src if r in e.src[1:]]) / extent(r)
    apart = sum([works[e] for e in sink.src if r not in e.src[1:]])
    again = sum([work for n, work in works.items() if n not in sink.src and r not in n.ranges])
    work = max(split * part, split * last + apart)
    return (work if r.src[0].op == O.CONST else work * MAYBE_SHORT) + PACK_WORK * again


def _work_of(end: UOp) -> float:
    """The operation that a store and all it needs make most often."""
    return float(max([evaluations(n) for n in end.toposort() if n.op != O.END], default=1))
