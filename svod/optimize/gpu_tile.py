"""Matmul and its kin on a GPU: a block computes one tile of the output.

A contraction ``C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]`` whose operands are plain memory
becomes one TILE node, which the renderer writes as a pipelined loop over shared memory, and stores
of its pieces with whatever follows the sum. Two kinds: ``fma`` on float32, each thread an 8x8
or 4x4 piece; ``wgmma`` on bfloat16 and float16, each warpgroup 64 rows on the tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, idiv, lt, mod, mul, num, terms_of
from svod.optimize.contraction import find_contraction
from svod.optimize.graph import extent, new_range, replace_all, stride
from svod.optimize.opts import Opt

THREADS = 256
MIN_SIDE, MIN_DEPTH, MIN_WORK = 17, 32, 1 << 20  # below, other plans are as good
BAND = 8  # rows of tiles that run together
HALVES = {dt.bfloat16: "bf16", dt.float16: "f16"}


Axes: TypeAlias = tuple[tuple[int, int], ...]  # extents and strides, outermost first


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows, columns and depth of what a block has in shared memory at once."""

    kind: str
    rows: int
    columns: int
    depth: int


@dataclass(slots=True)
class _Operand:
    """Memory of one factor: its own axes and those of k, and where a batch starts."""

    memory: UOp
    outer: Axes
    depth: Axes
    base: UOp
    wide: bool  # sixteen bytes at a time along the contiguous axis


def special(name: str, size: int) -> UOp:
    return ZERO if size == 1 else make(O.SPECIAL, dt.index, (num(size),), name)


def optimize_tile(
    sink: UOp, multiprocessors: int, has_wgmma: bool, applied: list[Opt]
) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no plain contraction."""
    sink = _split_depth(sink)
    found = find_contraction(sink)
    if found is None or not found.m:
        return None
    rows, columns, depth = (prod(map(extent, axes)) for axes in (found.m, found.n, found.k))
    if min(rows, columns) < MIN_SIDE or depth < MIN_DEPTH or rows * columns * depth < MIN_WORK:
        return None
    kind = _kind(found.rows, found.columns, has_wgmma)
    if kind is None:
        return None
    a = contiguous_operand(found.rows, found.m, found.k)
    b = contiguous_operand(found.columns, found.n, found.k)
    if a is None or b is None:
        return None
    (end,) = sink.src
    batch = [r for r in end.src[1:] if r not in (*found.m, *found.n)]
    count = prod(map(extent, batch))
    shape = _shape(kind, rows, columns, count, multiprocessors)
    across, down = -(-columns // shape.columns), -(-rows // shape.rows)
    if count > 65535:
        return None
    if any(len(o.depth) > 1 and o.depth[-1][0] % shape.depth for o in (a, b)):
        return None  # a step along k would not be one piece
    values = unflatten(special("g2", count), batch)
    row, column = _tile_order(down, across)
    m_start, n_start = mul(row, shape.rows), mul(column, shape.columns)
    arg = (
        "tile", shape.kind, shape.rows, shape.columns, shape.depth, rows, columns, depth,
        a.outer, a.depth, a.wide, b.outer, b.depth, b.wide,
    )  # fmt: skip
    bases = [replace_all(o.base, values) for o in (a, b)]
    tile = make(O.BARRIER, dt.float32, (a.memory, b.memory, *bases, m_start, n_start), arg)
    applied += [
        Opt("TILE", found.m[-1].arg.id, shape.rows),
        Opt("TILE", found.n[-1].arg.id, shape.columns),
        Opt("TC" if kind != "fma" else "STAGE", found.k[-1].arg.id, shape.depth),
    ]
    ends = []
    lanes = store_lanes(end.src[0].src[0], found.n[-1], shape)
    for piece in output_pieces(shape, lanes):
        place_m, place_n = add(m_start, piece.m), add(n_start, piece.n)
        gate = and_(lt(place_m, rows), lt(place_n, columns))
        if lanes > 1:
            place_n = add(place_n, piece.lane)
        value = make(O.BARRIER, dt.float32, (tile, piece.lane), ("piece", piece.number))
        # The sum first: below it nothing moves with the axes any more.
        places = unflatten(place_m, found.m) | unflatten(place_n, found.n) | values
        store = replace_all(end.src[0], {found.reduction: value, **places})
        loops = [piece.lane] if lanes > 1 else []
        ends.append(make(O.END, dt.void, (gated(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))


def _tile_order(down: int, across: int) -> tuple[UOp, UOp]:
    """Row and column of a block's tile: blocks that run together read few rows and columns."""
    number = special("g0", down * across)
    band = BAND
    while down % band:
        band //= 2
    row = add(mul(idiv(number, band * across), band), mod(number, band))
    return row, idiv(mod(number, band * across), band)


def _split_depth(sink: UOp) -> UOp:
    """A reduced axis that was made of two becomes two again, so that all strides are constant."""
    for node in sink.toposort():
        if node.op not in (O.IDIV, O.MOD) or node.src[1].op != O.CONST:
            continue
        r, part = node.src[0], node.src[1].arg
        if r.op != O.RANGE or r.arg.kind is not AxisKind.REDUCE or r.src[0].op != O.CONST:
            continue
        reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
        if extent(r) % part or len(reductions) != 1:
            continue
        (old,) = reductions
        inner = new_range(sink, part, AxisKind.REDUCE)
        size = num(extent(r) // part)
        outer = make(O.RANGE, dt.index, (size,), inner.arg._replace(id=inner.arg.id + 1))
        value = replace_all(old.src[0], {r: add(mul(outer, part), inner)})
        ranges = [s for o in old.src[1:] for s in ((outer, inner) if o is r else (o,))]
        reduced = make(O.REDUCE, old.dtype, (value, *ranges), old.arg)
        return _split_depth(replace_all(sink, {old: reduced}))
    return sink


def _kind(rows: UOp, columns: UOp, has_wgmma: bool) -> str | None:
    """How the products are made, or None."""
    factors = [f.src[0] if f.op == O.CAST else f for f in (rows, columns)]
    if any(f.op != O.LOAD or len(f.src[0].src) != 2 for f in factors):
        return None
    if any(f.src[0].src[0].op != O.PARAM for f in factors):
        return None
    kinds = {f.dtype for f in factors}
    if kinds == {dt.float32} and rows.op == columns.op == O.LOAD:
        return "fma"
    if len(kinds) == 1 and rows.dtype is columns.dtype is dt.float32 and has_wgmma:
        return HALVES.get(kinds.pop())
    return None


def contiguous_operand(factor: UOp, own: list[UOp], k: list[UOp]) -> _Operand | None:
    load = factor.src[0] if factor.op == O.CAST else factor
    index = load.src[0]
    outer, depth = _axes(index, own), _axes(index, k)
    if outer is None or depth is None or 1 not in (outer[-1][1], depth[-1][1]):
        return None
    base = replace_all(index.src[1], dict.fromkeys([*own, *k], ZERO))
    width = 16 // load.dtype.itemsize
    along = depth[-1] if depth[-1][1] == 1 else outer[-1]
    terms, constant = terms_of(base)
    steps = [along[0], constant, *terms.values()]
    steps += [step for axis in (*outer, *depth) if axis is not along for step in axis[1:]]
    return _Operand(index.src[0], outer, depth, base, all(s % width == 0 for s in steps))


def _axes(index: UOp, ranges: list[UOp]) -> Axes | None:
    """Extents and strides, with axes joined that memory holds next to each other."""
    found: list[tuple[int, int]] = []
    for r in ranges:
        step = stride(index, r)
        if step is None or step < 1:
            return None
        if found and found[-1][1] == extent(r) * step:
            found[-1] = (found[-1][0] * extent(r), step)
        else:
            found.append((extent(r), step))
    return tuple(found)


def _shape(kind: str, rows: int, columns: int, batch: int, multiprocessors: int) -> TileShape:
    """The largest tile that leaves few multiprocessors idle in the last round."""
    if kind == "fma":
        large = -(-rows // 128) * -(-columns // 128) * batch
        side = 128 if large >= multiprocessors else 64
        return TileShape("fma", side, side, 16)
    best: tuple[float, int] = (0.0, 64)
    for width, speed in ((256, 1.0), (128, 0.85), (64, 0.6)):
        blocks = -(-rows // 128) * -(-columns // width) * batch
        rounds = -(-blocks // multiprocessors)
        used = rows * columns * batch / (rounds * multiprocessors * 128 * width)
        best = max(best, (used * speed, width))
    return TileShape(kind, 128, best[1], 64)


def unflatten(place: UOp, axes: list[UOp]) -> dict[UOp, UOp]:
    """The values of axes whose row-major number is ``place``."""
    values: dict[UOp, UOp] = {}
    for r in reversed(axes):
        values[r] = place if r is axes[0] else mod(place, extent(r))
        place = idiv(place, extent(r))
    return values


def store_lanes(index: UOp, n: UOp, shape: TileShape) -> int:
    width = 4 if shape.kind == "fma" else 2
    return width if stride(index, n) == 1 and extent(n) % width == 0 else 1


@dataclass(slots=True)
class _Piece:
    """Some neighbouring sums of a thread: where they are in the tile, and the first's number."""

    m: UOp
    n: UOp
    lane: UOp
    number: int


def output_pieces(shape: TileShape, lanes: int) -> Iterator[_Piece]:
    thread = special("l0", THREADS)
    arg = RangeArg(100, AxisKind.LANE)
    lane = make(O.RANGE, dt.index, (num(lanes),), arg) if lanes > 1 else ZERO
    warp, inside = idiv(thread, 32), mod(thread, 32)
    if shape.kind == "fma":
        side = shape.rows // 16  # of a thread's sums
        first_m = add(mul(idiv(warp, 2), shape.rows // 4), mul(idiv(inside, 8), 4))
        first_n = add(mul(mod(warp, 2), shape.columns // 2), mul(mod(inside, 8), 4))
        for row in range(side):
            for column in range(0, side, lanes):
                m = add(first_m, num(row % 4 + row // 4 * 16))
                n = add(first_n, num(column % 4 + column // 4 * 32))
                yield _Piece(m, n, lane, row * side + column)
        return
    # A warp has 16 rows, a thread two of them and two neighbours in every eight columns.
    first_m = add(mul(warp, 16), idiv(inside, 4))
    first_n = mul(mod(inside, 4), 2)
    for eight in range(shape.columns // 8):
        for half in range(2):
            for one in range(0, 2, lanes):
                m, n = add(first_m, num(8 * half)), add(first_n, num(8 * eight + one))
                yield _Piece(m, n, lane, 4 * eight + 2 * half + one)


def gated(store: UOp, gate: UOp) -> UOp:
    """The store, and what it reads, where the gate is open."""
    if gate is TRUE:
        return store
    done: dict[UOp, UOp] = {}
    for node in store.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX:
            test = and_(src[2], gate) if len(src) > 2 else gate
            done[node] = make(O.INDEX, node.dtype, (src[0], src[1], test), node.arg)
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[store]


def is_tile(node: UOp) -> bool:
    return node.op == O.BARRIER and node.arg[0] == "tile"
