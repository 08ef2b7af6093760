"""Matmul, convolution and their kin: a register tile over a staged panel.

A contraction is ``C[m, n] = sum over k of P[m, k] * Q[k, n]``, each of m, n, k one or more axes.
The plan: n is cut into panels of a few vectors; what Q gives for a panel, whatever it costs to
compute (strides, borders, casts), is packed once into scratch memory in the order the inner loop
reads it; then tiles of rows run over the panel with all sums in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, idiv, lt, mod, mul, num
from svod.optimize.graph import extent, replace_all, stride
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, replace_by_pieces, split

MAX_ACCUMULATORS = 24  # of 32 registers: the rest holds operands
MIN_ROWS, MIN_COLUMNS, MIN_DEPTH = 8, 8, 8
SCRATCH_LIMIT = 1 << 21  # bytes; panels live on the stack of the thread that runs the kernel


@dataclass(slots=True)
class Contraction:
    """The parts of a kernel that is one contraction with something after it."""

    reduction: UOp
    rows: UOp  # P: moves with m
    columns: UOp  # Q: moves with n
    m: list[UOp]
    n: list[UOp]
    k: list[UOp]


def find_contraction(sink: UOp) -> Contraction | None:
    """The contraction of a kernel, if that is what it is."""
    if len(sink.src) != 1:
        return None
    end = sink.src[0]
    outputs = list(end.src[1:])
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
    if len(reductions) != 1 or not outputs or end.src[0].arg == "ordered":
        return None
    node = reductions[0]
    value = node.src[0]
    if node.arg != O.ADD or value.op != O.MUL:
        return None
    if any(r.src[0].op != O.CONST for r in (*outputs, *node.src[1:])):
        return None
    last = outputs[-1]
    for rows, columns in (value.src, value.src[::-1]):
        if last in columns.ranges and last not in rows.ranges:
            m = [r for r in outputs if r in rows.ranges and r not in columns.ranges]
            n = [r for r in outputs if r in columns.ranges and r not in rows.ranges]
            return Contraction(node, rows, columns, m, n, list(node.src[1:]))
    return None


def optimize_contraction(sink: UOp, machine: Machine, applied: list[Opt]) -> UOp | None:
    """The staged plan; None where a plainer one is better."""
    found = find_contraction(sink)
    if found is None or stride(sink.src[0].src[0].src[0], sink.src[0].src[-1]) != 1:
        return None
    if prod(map(extent, found.m)) < MIN_ROWS or prod(map(extent, found.n)) < MIN_COLUMNS:
        return None
    depth = prod(map(extent, found.k))
    if depth < MIN_DEPTH or not _needs_panel(found, machine):
        return None
    end = sink.src[0]
    itemsize = max(4, found.columns.dtype.itemsize)
    width = machine.lanes(itemsize)
    joined = _joined_columns(end, found)
    inner = extent(joined[-1])
    total = prod(map(extent, joined))
    tile, rows = _tile(total, inner if len(joined) > 1 else 0, _row_count(found), width)
    lanes = -(-tile // width) * width
    if depth * lanes * itemsize > SCRATCH_LIMIT:
        return None
    sink = _cut_columns(sink, joined, total, tile, lanes, width)
    sink = _stage_panel(sink, found.k, tile, lanes, inner if len(joined) > 1 else 0)
    applied.append(Opt("TILE", joined[-1].arg.id, tile))
    applied.append(Opt("STAGE", joined[-1].arg.id, depth))
    sink = _panels_outside(sink, found)
    row = max(found.m, key=extent)
    sink = split(sink, row, min(rows, extent(row)), AxisKind.UPCAST)
    applied.append(Opt("UPCAST", row.arg.id, rows))
    return sink


def _panels_outside(sink: UOp, found: Contraction) -> UOp:
    """Rows inside panels: a panel is packed once and read by all rows."""
    (end,) = sink.src
    loops = end.src[1:]
    rows = [r for r in loops if r in found.m]
    lanes = [r for r in loops if r.arg.kind in (AxisKind.LANE, AxisKind.UPCAST)]
    rest = [r for r in loops if r not in rows and r not in lanes]
    return make(O.SINK, dt.void, (make(O.END, dt.void, (end.src[0], *rest, *rows, *lanes)),))


def _row_count(found: Contraction) -> int:
    return extent(max(found.m, key=extent))


def _needs_panel(found: Contraction, machine: Machine) -> bool:
    """Whether reading Q in place, again for every tile of rows, costs more than packing it."""
    columns = found.columns
    if columns.op != O.LOAD or len(columns.src[0].src) == 3:
        return True
    if stride(columns.src[0], found.n[-1]) != 1:
        return True
    size = prod([extent(r) for r in columns.ranges]) * columns.dtype.itemsize
    return size > machine.l2_bytes


def _joined_columns(end: UOp, found: Contraction) -> list[UOp]:
    """The column axes that are one axis in the output's memory, outermost first."""
    outputs = list(end.src[1:])
    place = end.src[0].src[0]
    joined = [outputs[-1]]
    step = extent(outputs[-1])
    for r in reversed(outputs[:-1]):
        if r not in found.n or stride(place, r) != step:
            break
        joined.insert(0, r)
        step *= extent(r)
    return joined


def _tile(total: int, inner: int, rows: int, width: int) -> tuple[int, int]:
    """Columns of a panel and rows of a tile: the pair that wastes least of the registers."""
    candidates = []
    for vectors in range(1, 8):
        lanes = vectors * width
        if inner:
            if inner > lanes:
                parts = [d for d in range(1, inner + 1) if inner % d == 0 and inner // d <= lanes]
                columns = inner // parts[0]
            else:
                columns = lanes // inner * inner
        else:
            columns = min(lanes, total)
        columns = min(columns, total)
        if columns < 1 or -(-columns // width) != vectors:
            continue
        panels = -(-total // columns)
        used = total / (panels * lanes)
        limit = min(MAX_ACCUMULATORS // vectors, 8)
        for copies in range(limit, 0, -1):
            tiles = -(-rows // copies)
            fill = rows / (tiles * copies)
            # Loads per multiply-add: columns are vector loads, rows are broadcasts.
            traffic = 1.0 / copies + 0.5 / vectors
            chains = min(1.0, vectors * copies / 8)
            exact = 1.0 if rows % copies == 0 else 0.97
            candidates.append((used * fill * chains * exact / (1.0 + 0.25 * traffic), columns, copies))
    best = max(candidates)
    return best[1], best[2]


def _cut_columns(
    sink: UOp, joined: list[UOp], total: int, tile: int, lanes: int, width: int
) -> UOp:
    """One range over the joined axes, cut into panels and lanes; edges are masked."""
    fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
    panels = -(-total // tile)
    outer = (
        ZERO
        if panels == 1
        else make(O.RANGE, dt.index, (num(panels),), RangeArg(fresh, AxisKind.LOOP))
    )
    vectors = lanes // width
    lane = make(O.RANGE, dt.index, (num(width),), RangeArg(fresh + 1, AxisKind.LANE))
    ranges = [lane]
    inner = lane
    if vectors > 1:
        part = make(O.RANGE, dt.index, (num(vectors),), RangeArg(fresh + 2, AxisKind.UPCAST))
        inner = add(mul(part, width), lane)
        ranges.insert(0, part)
    if vectors in (1, 2, 4, 8):  # the code generator splits wide vectors of these sizes exactly
        lane = make(O.RANGE, dt.index, (num(lanes),), RangeArg(fresh + 1, AxisKind.LANE))
        inner, ranges = lane, [lane]
    place = add(mul(outer, tile), inner)
    gate = TRUE
    if lanes != tile:
        gate = lt(inner, tile)
    if panels * tile != total:
        gate = and_(gate, lt(place, total))
    loops = ranges if outer is ZERO else [outer, *ranges]
    values: dict[UOp, UOp] = {}
    step = 1
    for r in reversed(joined):
        values[r] = mod(idiv(place, step), extent(r)) if r is not joined[0] else idiv(place, step)
        step *= extent(r)
    return replace_by_pieces(sink, joined, values, loops, gate)


def _stage_panel(sink: UOp, depth: list[UOp], tile: int, lanes: int, inner: int) -> UOp:
    """Pack what the column operand gives for a panel, and read the panel instead."""
    found = find_columns(sink, depth)
    operand = found
    used = operand.ranges
    order = sink.toposort()
    fresh = 1 + max([n.arg.id for n in order if n.op == O.RANGE])
    lane = [r for r in used if r.arg.kind in (AxisKind.LANE, AxisKind.UPCAST)]
    position = _column_position(sink)
    # Where it is packed: loops of its own over the depth and the panel.
    mapping: dict[UOp, UOp] = {}
    loops: list[UOp] = []
    for r in depth:
        copy = make(O.RANGE, dt.index, r.src, RangeArg(fresh, AxisKind.LOOP))
        fresh += 1
        mapping[r] = copy
        loops.append(copy)
    row = inner if inner and inner < tile else tile
    count = tile // row if inner else 1
    where: UOp = ZERO
    if count > 1:
        line = make(O.RANGE, dt.index, (num(count),), RangeArg(fresh, AxisKind.LOOP))
        fresh += 1
        loops.append(line)
        where = mul(line, row)
    span = 1 << (row - 1).bit_length()
    cell = make(O.RANGE, dt.index, (num(span),), RangeArg(fresh, AxisKind.LANE))
    loops.append(cell)
    where = add(where, cell)
    gate = TRUE if span == row else lt(cell, row)
    value = _repositioned(operand, position, lane, where, mapping, gate)
    memory = make(O.DEFINE_LOCAL, operand.dtype, (), LocalArg(_size(depth) * lanes, 0))
    target = add(mul(_flat(depth, mapping), lanes), where)
    index = (memory, target) if gate is TRUE else (memory, target, gate)
    store = make(O.STORE, dt.void, (make(O.INDEX, memory.dtype, index), value))
    packed = make(O.AFTER, memory.dtype, (memory, make(O.END, dt.void, (store, *loops))))
    read = add(mul(_flat(depth, {}), lanes), position)
    load = make(O.LOAD, memory.dtype, (make(O.INDEX, memory.dtype, (packed, read)),))
    return replace_all(sink, {operand: load})


def find_columns(sink: UOp, depth: list[UOp]) -> UOp:
    """The operand that moves with the lanes."""
    (node,) = [n for n in sink.toposort() if n.op == O.REDUCE]
    for s in node.src[0].src:
        if any(r.arg.kind is AxisKind.LANE for r in s.ranges):
            return s
    raise AssertionError("a contraction without columns")


def _column_position(sink: UOp) -> UOp:
    """The place within a panel, from the lane axes of the kernel."""
    ranges = sink.src[0].src[1:]
    lane = [r for r in ranges if r.arg.kind is AxisKind.LANE][0]
    part = [r for r in ranges if r.arg.kind is AxisKind.UPCAST]
    return add(mul(part[0], extent(lane)), lane) if part else lane


def _repositioned(
    operand: UOp,
    position: UOp,
    lanes: list[UOp],
    where: UOp,
    mapping: dict[UOp, UOp],
    gate: UOp,
) -> UOp:
    """The operand at another place of the panel, with loops of its own."""
    parts = sorted(lanes, key=lambda r: r.arg.kind)
    replaced = dict(mapping)
    if len(parts) == 2:  # vector number and lane within it
        width = extent(parts[1])
        replaced[parts[0]] = idiv(where, width)
        replaced[parts[1]] = mod(where, width)
    else:
        replaced[parts[0]] = where
    value = replace_all(operand, replaced)
    if gate is TRUE:
        return value
    done: dict[UOp, UOp] = {}
    for node in value.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX and any(r.arg.kind is AxisKind.LANE for r in node.ranges):
            test = and_(src[2], gate) if len(src) == 3 else gate
            done[node] = make(O.INDEX, node.dtype, (src[0], src[1], test))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[value]


def _size(ranges: list[UOp]) -> int:
    return prod([extent(r) for r in ranges])


def _flat(ranges: list[UOp], mapping: dict[UOp, UOp]) -> UOp:
    total = ZERO
    for r in ranges:
        total = add(mul(total, extent(r)), mapping.get(r, r))
    return total
