"""Matmul, convolution and their kin: a register tile over a staged panel.

A contraction is ``C[m, n] = sum over k of P[m, k] * Q[k, n]``, each of m, n, k one or more axes.
The plan: n is cut into panels of a few vectors; what Q gives for a panel, whatever it costs to
compute (strides, borders, casts), is packed once into scratch memory in the order the inner loop
reads it; then tiles of rows run over the panel with all sums in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, ge, idiv, lt, mod, mul, num, sub, terms_of
from svod.optimize.depth import depth_refusal
from svod.optimize.dots import PARTS, find_dot, group, guarded, is_offset, narrow
from svod.optimize.graph import elements_of, extent, replace_all, stride
from svod.optimize.lane_steps import MAX_STEP
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, replace_by_pieces, split
from svod.schedule.cache import Cache
from svod.schedule.costs_cpu import CPU
from svod.schedule.products import Product, product_from

# of 32 registers, half of it of 16: the rest holds operands
MAX_ACCUMULATORS = CPU.panel_accumulators
PANEL_BYTES = CPU.panel_bytes  # per cycle from the second cache, kept up while computing
FMA_LATENCY = CPU.fma_latency  # cycles; chains in flight at one multiply-add per cycle
# 6 for pairs of bfloat16; a few more chains hide what else delays one
DOT_LATENCY = CPU.dot_latency
CHAIN_SLACK = CPU.chain_slack
MAX_VECTORS = CPU.panel_vectors  # of a panel: with more, the register allocator starts to spill
MAX_LINE_VECTORS = CPU.line_vectors  # of a panel of whole lines
PACK_CYCLES = CPU.pack_cycles  # for one vector of a panel
MIN_ROWS, MIN_COLUMNS, MIN_DEPTH = 8, 8, 8
# rows from which packing a transposed operand is cheaper than dot products
ACROSS_ROWS = CPU.transposed_rows
FEW_ROWS, LONG_DEPTH = 24, 512  # few rows are enough where dot products are short
WINDOW = 7  # steps of a window that are packed side by side
TURNED = 16  # steps along a line that are packed side by side where it goes across the panel
STRIP_LIMIT = CPU.strip_bytes  # bytes of packed rows, beside the panels
STRIP_PANELS = CPU.strip_panels  # of a block, from which packing rows that are only read pays
PART_STEPS = CPU.part_steps  # of a part of the depth: rows of a tile stay in the first cache
ROW_PACKING = CPU.row_packing  # times the cost of a panel's element is that of a strip's
LIGHT = CPU.light_epilogue  # operations after the sum, which every part of the depth makes
SCRATCH_LIMIT = 1 << 21  # bytes; panels live on the stack of the thread that runs the kernel
BLOCK_LIMIT = SCRATCH_LIMIT - (1 << 17)  # of panels, beside strips of rows


IN_PLACE = "the columns are read in place: they lie as the inner loop reads them, and stay in cache"

Contraction: TypeAlias = Product[UOp]  # of a kernel, whose axes are loops
_known: Cache[tuple[UOp, int | None], Contraction | bool] = Cache("contractions", lambda: 1024)


def find_contraction(sink: UOp, axis: int | None = None) -> Contraction | None:
    """The contraction of a kernel, if that is what it is; its columns go along the last output
    axis, or along the one that is named."""
    known = _known.get((sink, axis))
    if known is None:
        known = _known.insert((sink, axis), _find_contraction(sink, axis) or False)
    return known if isinstance(known, Product) else None


def _find_contraction(sink: UOp, axis: int | None) -> Contraction | None:
    if len(sink.src) != 1:
        return None
    end = sink.src[0]
    outputs = list(end.src[1:])
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE and not is_offset(n)]
    if len(reductions) != 1 or not outputs or end.src[0].arg == "ordered":
        return None
    node = reductions[0]
    value = node.src[0]
    if node.arg != O.ADD or value.op not in (O.MUL, O.DOT):
        return None
    if not all(map(_is_fixed, node.src[1:])):
        return None
    varying = [r for r in outputs if r.src[0].op != O.CONST]
    last = outputs[-1]
    if axis is not None:
        last = next((r for r in outputs if r.arg.id == axis), last)
    for rows, columns in (value.src, value.src[::-1]):
        if last in columns.ranges and last not in rows.ranges:
            found = product_from(
                node, (rows, columns), outputs, node.src[1:], lambda f, r: r in f.ranges, extent
            )
            # of run-time sizes, rows alone may be as many as a call has
            return found if not varying or varying == list(found.m) else None
    return None


def _is_fixed(r: UOp) -> bool:
    """Whether a size is known, if only in each step of other loops."""
    return not any(n.op == O.DEFINE_VAR for n in r.src[0].toposort())


def choose_contraction(sink: UOp, machine: Machine) -> list[Opt]:
    """The staged plan; empty where a plainer one is better."""
    planned = plan_contraction(sink, machine)
    return [] if isinstance(planned, str) else planned


def plan_contraction(sink: UOp, machine: Machine) -> list[Opt] | str:
    """The staged plan, or why a plainer one is better."""
    found = find_contraction(sink)
    if found is None:
        return "it is not one sum of products along the output's last axis"
    if stride(sink.src[0].src[0].src[0], sink.src[0].src[-1]) != 1:
        return "neighbours of the output are not neighbours in memory"
    _, rows, columns, depth = found.sizes
    if rows < MIN_ROWS or columns < MIN_COLUMNS or depth < MIN_DEPTH:
        return f"{rows} rows, {columns} columns and {depth} steps are few"
    opts: list[Opt] = []
    grouped = choose_dot(found, machine)
    if grouped is not None:
        opts.append(grouped)
        sink = group_depth(sink, grouped.axis, grouped.amount, machine) or sink
        found = find_contraction(sink)
        assert found is not None
    else:
        found = _turned(sink, found) or found
        if not _needs_panel(found, machine):
            return IN_PLACE
    depth = found.sizes.k
    itemsize = max(4, found.columns.dtype.itemsize)
    width = machine.lanes(itemsize)
    joined = joined_columns(sink.src[0], found)
    total = prod(map(extent, joined))
    packed = panel_width(found, joined)
    if packed % width or packed > MAX_VECTORS * width:
        packed = 0
    cut = None if packed else _choose_depth(sink, found, total, machine)
    limit, cores = machine.l2_bytes, machine.cores
    if cut is not None:
        opts.append(cut)
        depth = _part_depth(found.k, cut)
        limit = BLOCK_LIMIT
        if not reads_along(found.rows, found.k) and total < ROW_PACKING * row_count(found):
            cores = 1  # they share the rows: each packs all columns, which costs less
    line = extent(joined[-1]) if len(joined) > 1 else 0
    latency = DOT_LATENCY if grouped is not None else FMA_LATENCY
    count, given = extent(_row_axis(sink, found)), packed // width
    vectors, rows = tile_of(total, count, machine, width, given, line, latency)
    if not packed and not line:
        wanted = [vectors, *range(MAX_VECTORS, 0, -1)]
        if machine.multipliers > 1:
            wanted = _by_share(total, count, machine, width, latency)
        given = _blocked_vectors(total, wanted, width, depth * itemsize, limit, cores)
        vectors, rows = tile_of(total, count, machine, width, given, 0, latency)
    tile = vectors * width
    if not packed and depth * tile * itemsize > SCRATCH_LIMIT:
        return f"a panel of {depth} steps does not fit scratch memory, and they cannot be cut"
    block = _block(-(-total // tile), depth * tile * itemsize, limit, cores)
    row = _row_axis(sink, found)
    column = joined[-1].arg.id
    few = block < STRIP_PANELS and found.rows.op == O.LOAD
    is_read = few or reads_along(found.rows, found.k)
    fits = rows * depth * found.rows.dtype.itemsize <= STRIP_LIMIT
    keep = "STRIP" if fits and not is_read else "UPCAST"
    return [
        *opts,
        Opt("TILE", column, tile),
        Opt("STAGE", column, block),
        Opt(keep, row.arg.id, min(rows, extent(row))),
    ]


def _turned(sink: UOp, found: Contraction) -> Contraction | None:
    """The same with rows as columns, where both operands then lie as the inner loop reads them.

    The output lies across the lanes then: its tiles are transposed in registers.
    """
    if not found.m or not any(_lies_along(found.columns, k) for k in found.k):
        return None
    if found.rows.op != O.LOAD or not _lies_along(found.rows, found.m[-1]):
        return None
    if len(found.rows.src[0].src) == 3 or len(found.columns.src[0].src) == 3:
        return None
    return find_contraction(sink, found.m[-1].arg.id)


def _row_axis(sink: UOp, found: Contraction) -> UOp:
    """The axis of the rows in a tile: the one that the output lies along, or the longest."""
    last = sink.src[0].src[-1]
    return last if last in found.m else max(found.m, key=extent)


def reads_along(rows: UOp, depth: Sequence[UOp]) -> bool:
    """Whether the row operand is only read, from memory that lies along the depth."""
    if rows.op != O.LOAD or len(rows.src[0].src) == 3:
        return False
    index = rows.src[0]
    return any(stride(index, k) == elements_of(index) for k in depth)


def choose_dot(found: Contraction, machine: Machine) -> Opt | None:
    """Words along the reduced axis that fills them best; None where half would stay empty."""
    product = found.reduction.src[0]
    dot = find_dot(product, found.reduction.dtype, found.rows, machine)
    if dot is None:
        return None
    parts = PARTS[dot.kind]

    def fill(r: UOp) -> float:
        return extent(r) / (-(-extent(r) // parts) * parts)

    def is_word(r: UOp) -> bool:
        """Whether the steps of an axis lie in memory as one word, as packing leaves them."""
        return extent(r) == parts and _lies_along(narrow(found.columns), r)

    axis = max(found.k, key=lambda r: (fill(r), is_word(r), extent(r)))
    return Opt("DOT", axis.arg.id, parts) if fill(axis) > 0.5 else None


def group_depth(sink: UOp, axis: int, parts: int, machine: Machine) -> UOp | None:
    """The contraction over words of ``parts`` narrow values; None where that does not fit."""
    found = find_contraction(sink)
    if found is None or not found.m:
        return None
    dot = find_dot(found.reduction.src[0], found.reduction.dtype, found.rows, machine)
    if dot is None or PARTS[dot.kind] != parts:
        return None
    return group(sink, found.reduction, found.rows, axis, machine)


def stage_columns(sink: UOp, axis: int, tile: int, block: int, machine: Machine) -> UOp | None:
    """Columns in panels of ``tile``, packed ``block`` at a time; None where that does not fit."""
    found = find_contraction(sink, axis)
    if found is None or not found.m or found.n[-1].arg.id != axis:
        return None
    width = machine.lanes(max(4, found.columns.dtype.itemsize))
    joined = joined_columns(sink.src[0], found)
    total = prod(map(extent, joined))
    depth = found.sizes.k
    panels = -(-total // tile)
    itemsize = max(4, found.columns.dtype.itemsize)
    if tile % width or panels % block:
        return None
    is_dot = found.reduction.src[0].op == O.DOT
    cut = _Columns(sink, joined, total, tile, width, block, exact=is_dot)
    sink = cut.apply(sink)
    is_plain = found.columns.op == O.LOAD and len(found.columns.src[0].src) == 2
    if is_plain and cut.is_packed(_column_operand(sink), found.k):
        sink = cut.read_in_place(sink)
    elif depth * tile * itemsize > SCRATCH_LIMIT:
        return None
    else:
        sink = cut.stage(sink, found.columns, found.k)
    sink = cut.stage_offsets(sink)
    return _panels_outside(sink, found, cut.panel)


def panel_width(found: Contraction, joined: list[UOp]) -> int:
    """Columns of the panels that the column operand lies in; 0 for none."""
    if len(joined) == 1:
        return packed_width(found.columns, joined[0])
    if len(joined) != 2 or found.columns.op != O.LOAD or len(found.columns.src[0].src) == 3:
        return 0
    steps = [stride(found.columns.src[0], r) for r in joined]
    size, parts = extent(joined[-1]), elements_of(found.columns.src[0])
    return size if steps == [found.sizes.k * size * parts, parts] else 0


def packed_width(columns: UOp, last: UOp) -> int:
    """Columns of the panels an operand lies in, in memory of its own order; 0 for none."""
    if columns.op != O.LOAD or len(columns.src[0].src) == 3:
        return 0
    terms, _ = terms_of(columns.src[0].src[1])
    parts = elements_of(columns.src[0])
    for term, factor in terms.items():
        if factor != parts or term.op != O.MOD:
            continue
        if term.src[0] is last and term.src[1].op == O.CONST:
            return term.src[1].arg  # type: ignore[no-any-return]
    return 0


def _panels_outside(sink: UOp, found: Contraction, panel: UOp) -> UOp:
    """Blocks, rows, panels: a block is packed once, and a strip of rows stays close while it
    meets every panel of the block."""
    (end,) = sink.src
    loops = end.src[1:]
    rows = [r for r in loops if r in found.m]
    lanes = [r for r in loops if r.arg.kind in (AxisKind.LANE, AxisKind.UPCAST)]
    rest = [r for r in loops if r not in rows and r not in lanes and r is not panel]
    rest.sort(key=lambda r: r.arg.kind)  # blocks, then parts of the depth
    inner = [panel] if panel.op == O.RANGE else []
    order = (*rest, *rows, *inner, *lanes)
    return make(O.SINK, dt.void, (make(O.END, dt.void, (end.src[0], *order)),))


def _block(panels: int, panel_bytes: int, limit: int, cores: int) -> int:
    """Panels packed together: what fits in some bytes, in equal blocks, some for each core."""
    most = max(1, limit // panel_bytes)
    if panels >= cores:
        most = min(most, panels // cores)
    counts = [n for n in range(min(most, panels), 0, -1) if panels % n == 0]
    shared = [n for n in counts if panels // n % cores == 0]
    return (shared or counts)[0]


def _choose_depth(sink: UOp, found: Contraction, total: int, machine: Machine) -> Opt | None:
    """Parts of the depth, where without them too few columns are packed together: rows that are
    packed, or lie across the depth, would be read again for each few columns."""
    depth = found.sizes.k
    itemsize = max(4, found.columns.dtype.itemsize)
    columns = machine.l2_bytes // (depth * itemsize)
    enough = total if not reads_along(found.rows, found.k) else 4 * machine.lanes(itemsize)
    if columns >= min(enough, total) or depth < 2 * PART_STEPS:
        return None
    cuts = []
    for k in found.k:
        steps = max(1, PART_STEPS * extent(k) // depth)
        parts = -(-extent(k) // steps)
        even = -(-extent(k) // parts)
        steps = even if even < TURNED else -(-even // TURNED) * TURNED
        if steps < extent(k):
            cuts.append(Opt("DEPTH", k.arg.id, steps))
    best = min(cuts, key=lambda cut: _part_depth(found.k, cut), default=None)
    if best is None:
        return None
    after = set(sink.toposort()) - set(found.reduction.toposort())
    is_light = sum([1 for n in after if n.op in O.ALU]) <= LIGHT
    return best if is_light and not depth_refusal(sink, best.axis, best.amount) else None


def _part_depth(depth: Sequence[UOp], cut: Opt) -> int:
    return prod([cut.amount if k.arg.id == cut.axis else extent(k) for k in depth])


def _blocked_vectors(
    total: int, wanted: Sequence[int], width: int, column_bytes: int, limit: int, cores: int
) -> int:
    """Vectors of a panel; others than wanted most where those leave a number of panels that cannot
    be cut in blocks."""
    for count in wanted:
        tile = count * width
        panels = -(-total // tile)
        if total / (panels * tile) < 0.95:
            continue
        fits = limit // (column_bytes * tile)
        block = _block(panels, column_bytes * tile, limit, cores)
        if block > 1 or min(fits, panels // 2) < 2:
            return count
    return wanted[0]


def row_count(found: Contraction) -> int:
    return extent(max(found.m, key=extent))


def _needs_panel(found: Contraction, machine: Machine) -> bool:
    """Whether reading Q in place, again for every tile of rows, costs more than packing it."""
    columns = found.columns
    if columns.op != O.LOAD or len(columns.src[0].src) == 3:
        return True
    if stride(columns.src[0], found.n[-1]) != 1:
        # Packing then goes across memory, element by element: few rows do not repay it where
        # both operands lie along the depth and can be multiplied there.
        along = any(_lies_along(columns, k) and _lies_along(found.rows, k) for k in found.k)
        rows, depth = found.sizes.m, found.sizes.k
        large = rows * depth * found.rows.dtype.itemsize >= 2 * machine.l2_bytes
        few = rows >= FEW_ROWS and (depth < LONG_DEPTH or large)
        return not along or rows >= ACROSS_ROWS or few
    size = prod([extent(r) for r in columns.ranges]) * columns.dtype.itemsize
    return size > machine.l2_bytes


def _lies_along(operand: UOp, k: UOp) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    return operand.op == O.LOAD and stride(operand.src[0], k) == 1


def joined_columns(end: UOp, found: Contraction) -> list[UOp]:
    """The column axes that are one axis in the output's memory, outermost first."""
    place = end.src[0].src[0]
    *outer, last = found.n
    joined = [last]
    step = extent(last) * (stride(place, last) or 0)
    for r in reversed(outer):
        if not step or stride(place, r) != step:
            break
        joined.insert(0, r)
        step *= extent(r)
    return joined


def tile_of(
    total: int,
    rows: int,
    machine: Machine,
    width: int,
    given: int = 0,
    line: int = 0,
    latency: int = FMA_LATENCY,
) -> tuple[int, int]:
    """Vectors of a panel, where they are not given, and rows of a tile: the pair that wastes
    least. Columns may lie in lines; panels that cut through lines are packed piece by piece."""
    best = max(_tiles(total, rows, machine, width, given, line, latency))
    return best[2], best[1]


def _by_share(total: int, rows: int, machine: Machine, width: int, latency: int) -> list[int]:
    """Vectors of a panel, those with the best tile first."""
    found = sorted(_tiles(total, rows, machine, width, 0, 0, latency), reverse=True)
    return list(dict.fromkeys([vectors for _, _, vectors in found]))


def _tiles(
    total: int, rows: int, machine: Machine, width: int, given: int, line: int, latency: int
) -> list[tuple[float, int, int]]:
    """Tiles: the share of the multipliers they keep busy, rows, and vectors of a panel."""
    candidates = []
    accumulators = MAX_ACCUMULATORS if machine.registers >= 32 else MAX_ACCUMULATORS // 2
    for vectors in [given] if given else range(1, MAX_LINE_VECTORS + 1):
        even = bool(line) and total % (vectors * width) == 0
        even = even and (line % (vectors * width) == 0 or (vectors * width) % line == 0)
        if vectors > MAX_VECTORS and not even:
            continue
        packing = PACK_CYCLES * (1 if even or not line else 2)
        panels = -(-total // (vectors * width))
        used = total / (panels * vectors * width)
        for copies in range(min(accumulators // vectors, 8), 0, -1):
            tiles = -(-rows // copies)
            fill = rows / (tiles * copies)
            # Cycles of one step along k: multiply-adds, against reading the panel from the
            # second cache, loads into registers, and the latency of too few chains.
            work: float = vectors * copies
            reads = vectors * machine.vector_bytes / PANEL_BYTES
            if machine.multipliers == 1:
                cycles = max(work, reads, vectors + copies / 2, latency)
            elif work + vectors < machine.registers:  # one more for the row that is multiplied
                # Two loads in a cycle, of which rows take one each.
                work /= machine.multipliers
                cycles = max(work, reads, (vectors + copies) / 2, latency + CHAIN_SLACK)
            else:
                continue
            # The rest is one more piece of code.
            exact = 1.0 if rows % copies == 0 else 0.98 if machine.multipliers == 1 else 0.99
            packed = rows / (rows + packing) if line else 1.0
            share = used * fill * exact * packed * work / cycles
            candidates.append((round(share, 2), copies, vectors))  # larger tiles where it is close
    return candidates


def _loop(number: int, size: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
    return ZERO if size == 1 else make(O.RANGE, dt.index, (num(size),), RangeArg(number, kind))


class _Columns:
    """The columns of a contraction as blocks of panels of lanes, and how a panel is packed."""

    def __init__(
        self,
        sink: UOp,
        joined: list[UOp],
        total: int,
        tile: int,
        width: int,
        block: int,
        *,
        exact: bool,  # one lane axis is one register: instructions that are calls are not split
    ) -> None:
        fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
        self.joined, self.total, self.tile, self.width = joined, total, tile, width
        self.row = extent(joined[-1])  # columns that lie next to each other in the operand
        panels = -(-total // tile)
        self.outer, self.panel = _loop(fresh, panels // block), _loop(fresh + 1, block)
        vectors = tile // width
        # The code generator splits wide vectors of these sizes exactly.
        if vectors == 1 or (vectors in (2, 4) and not exact):
            self.lanes = [_loop(fresh + 2, tile, AxisKind.LANE)]
            self.position = self.lanes[0]
        else:
            part = _loop(fresh + 2, vectors, AxisKind.UPCAST)
            lane = _loop(fresh + 3, width, AxisKind.LANE)
            self.lanes = [part, lane]
            self.position = add(mul(part, width), lane)
        self.fresh = fresh + 4
        self.start = mul(add(mul(self.outer, block), self.panel), tile)

    def apply(self, sink: UOp) -> UOp:
        """The kernel over panels and lanes; columns past the end are masked."""
        place = add(self.start, self.position)
        gate = TRUE if self.total % self.tile == 0 else lt(place, self.total)
        values: dict[UOp, UOp] = {}
        step = 1
        for r in reversed(self.joined):
            values[r] = idiv(place, step)
            if r is not self.joined[0]:
                values[r] = mod(values[r], extent(r))
            step *= extent(r)
        loops = [r for r in (self.outer, self.panel) if r is not ZERO] + self.lanes
        return replace_by_pieces(sink, self.joined, values, loops, gate)

    def is_packed(self, operand: UOp, depth: Sequence[UOp]) -> bool:
        """Whether memory holds the operand as packing would: panels, then depth, then lanes."""
        if operand.op != O.LOAD:
            return False
        memory, place = operand.src[0].src[:2]
        wanted = add(mul(idiv(self.start, self.tile), _size(depth) * self.tile), self.position)
        wanted = add(wanted, mul(_flat(depth, {}), self.tile))
        parts = elements_of(operand.src[0])
        is_whole = memory.op == O.PARAM and prod(memory.arg.shape) >= (
            -(-self.total // self.tile) * self.tile * _size(depth) * parts
        )
        return is_whole and terms_of(place) == terms_of(mul(wanted, parts))

    def read_in_place(self, sink: UOp) -> UOp:
        """Every column of a panel can be read: what is past the end is only not stored."""
        operand = _column_operand(sink)
        index = operand.src[0]
        plain = make(O.LOAD, operand.dtype, (make(O.INDEX, index.dtype, index.src[:2]),))
        return replace_all(sink, {operand: plain})

    def stage(self, sink: UOp, operand: UOp, depth: Sequence[UOp]) -> UOp:
        """Pack what the operand gives for a block, and read that instead."""
        axes = [self.panel, *depth] if self.panel.op == O.RANGE else depth
        mapping: dict[UOp, UOp] = {}
        for r in axes:
            mapping[r] = make(O.RANGE, dt.index, r.src, RangeArg(self.fresh, AxisKind.LOOP))
            self.fresh += 1
        loops = list(mapping.values())
        start = replace_all(self.start, {self.panel: mapping.get(self.panel, ZERO)})
        loads = [n.src[0] for n in operand.toposort() if n.op == O.LOAD]
        is_across = any(abs(stride(i, self.joined[-1]) or 0) > MAX_STEP for i in loads)
        position, gate, columns, more = self._pack_place(start, is_across)
        self.fresh += 2
        value = replace_all(operand, {**mapping, **columns})
        if gate is not TRUE:
            value = guarded(value, gate)
        memory = make(O.DEFINE_LOCAL, operand.dtype, (), LocalArg(_size(axes) * self.tile, 0))
        target = add(mul(_flat(axes, mapping), self.tile), position)
        index = (memory, target) if gate is TRUE else (memory, target, gate)
        store = make(O.STORE, dt.void, (make(O.INDEX, memory.dtype, index), value))
        # Lines outside the depth: what says which lanes exist is then computed once per line.
        ahead = 1 if self.panel.op == O.RANGE else 0
        order = (*loops[:ahead], *more[:-1], *loops[ahead:], more[-1])
        end = make(O.END, dt.void, (store, *order))
        packed = make(O.AFTER, memory.dtype, (memory, *_side_by_side(end, loops[ahead:])))
        read = add(mul(_flat(axes, {}), self.tile), self.position)
        load = make(O.LOAD, memory.dtype, (make(O.INDEX, memory.dtype, (packed, read)),))
        return replace_all(sink, {_column_operand(sink): load})

    def stage_offsets(self, sink: UOp) -> UOp:
        """Sums that depend on the columns alone: kept beside the panels they are made from."""
        for number, node in enumerate(
            [n for n in sink.toposort() if n.op == O.REDUCE and is_offset(n)]
        ):
            mapping: dict[UOp, UOp] = {}
            for r in [self.panel, *self.lanes, *node.src[1:]]:
                if r.op == O.RANGE:
                    kind = AxisKind.LOOP if r.arg.kind is AxisKind.UPCAST else r.arg.kind
                    mapping[r] = make(O.RANGE, dt.index, r.src, RangeArg(self.fresh, kind))
                    self.fresh += 1
            size = (extent(self.panel) if self.panel.op == O.RANGE else 1) * self.tile
            memory = make(O.DEFINE_LOCAL, node.dtype, (), LocalArg(size, 1 + number))
            place = add(mul(self.panel, self.tile), self.position)
            target = make(O.INDEX, node.dtype, (memory, replace_all(place, mapping)))
            store = make(O.STORE, dt.void, (target, replace_all(node, mapping)))
            loops = [mapping[r] for r in (self.panel, *self.lanes) if r in mapping]
            kept = make(O.AFTER, node.dtype, (memory, make(O.END, dt.void, (store, *loops))))
            load = make(O.LOAD, node.dtype, (make(O.INDEX, node.dtype, (kept, place)),))
            sink = replace_all(sink, {node: load})
        return sink

    def _pack_place(
        self, start: UOp, is_across: bool
    ) -> tuple[UOp, UOp, dict[UOp, UOp], list[UOp]]:
        """Position in the panel, when it exists, the columns there, and the loops over it.

        Columns lie in rows of the operand; a panel covers pieces of some of them. Lanes go along
        a row, so that they are neighbours in memory: over whole rows where these are short, over
        the panel where it is shorter.
        """
        if len(self.joined) == 1:
            width = self.width if is_across else self.tile  # transposed in registers: vectors
            part = _loop(self.fresh, self.tile // width)
            lane = _loop(self.fresh + 1, width, AxisKind.LANE)
            cell = add(mul(part, width), lane)
            place = add(start, cell)
            gate = TRUE if self.total % self.tile == 0 else lt(place, self.total)
            return cell, gate, {self.joined[0]: place}, [r for r in (part, lane) if r is not ZERO]
        row = self.row
        first, offset = idiv(start, row), mod(start, row)
        aligned = self.tile % row == 0 or row % self.tile == 0
        if row >= self.tile:
            line = _loop(self.fresh, 1 if aligned else 2)
            cell = _loop(self.fresh + 1, self.tile, AxisKind.LANE)
            column = sub(add(offset, cell), mul(line, row))
            position = cell
            gate = TRUE if aligned else and_(ge(column, 0), lt(column, row))
        else:
            lines = self.tile // row if aligned else (self.tile - 2) // row + 2
            line = _loop(self.fresh, lines)
            span = 1 << (row - 1).bit_length()
            cell = _loop(self.fresh + 1, span, AxisKind.LANE)
            column = cell
            position = sub(add(mul(line, row), cell), offset)
            gate = lt(cell, row)
            if not aligned:
                gate = and_(gate, and_(ge(position, 0), lt(position, self.tile)))
        lines_before = add(first, line)
        if self.total % self.tile:
            gate = and_(gate, lt(lines_before, self.total // row))
        columns: dict[UOp, UOp] = {self.joined[-1]: column}
        for r in reversed(self.joined[1:-1]):
            columns[r] = mod(lines_before, extent(r))
            lines_before = idiv(lines_before, extent(r))
        columns[self.joined[0]] = lines_before
        return position, gate, columns, [r for r in (line, cell) if r is not ZERO]


def _side_by_side(end: UOp, depth: list[UOp]) -> tuple[UOp, ...]:
    """Packing with copies along an axis of the depth, which share what they read.

    Steps of a window are read together and their borders found once; lines along the depth are
    read whole and transposed in registers.
    """
    lane = end.src[-1]
    loads = [n.src[0] for n in end.src[0].src[1].toposort() if n.op == O.LOAD and lane in n.ranges]
    for r in reversed(depth):
        for index in loads:
            if r.op != O.RANGE or stride(index, r) != elements_of(index):
                continue
            far = abs(stride(index, lane) or 0) > MAX_STEP
            if far or extent(r) <= WINDOW:
                sink = make(O.SINK, dt.void, (end,))
                return split(sink, r, min(extent(r), TURNED), AxisKind.UPCAST).src
    return (end,)


def _column_operand(sink: UOp) -> UOp:
    """The operand that moves with the lanes."""
    (node,) = [n for n in sink.toposort() if n.op == O.REDUCE and not is_offset(n)]
    for s in node.src[0].src:
        if any(r.arg.kind is AxisKind.LANE for r in s.ranges):
            return s
    raise AssertionError("a contraction without columns")


def _size(ranges: Sequence[UOp]) -> int:
    return prod([extent(r) for r in ranges])


def _flat(ranges: Sequence[UOp], mapping: dict[UOp, UOp]) -> UOp:
    total = ZERO
    for r in ranges:
        total = add(mul(total, extent(r)), mapping.get(r, r))
    return total
