"""Matmul and its kin on a GPU: a block computes one tile of the output.

A contraction ``C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]`` whose operands are plain memory
becomes one TILE node, which the renderer writes as a pipelined loop over shared memory, and stores
of its pieces with whatever follows the sum. Two kinds: ``fma`` on float32, each thread an 8x8
piece; ``wgmma`` on bfloat16 and float16, each warpgroup 64 rows on the tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, idiv, lt, mod, mul, num
from svod.optimize.contraction import find_contraction
from svod.optimize.graph import extent, replace_all, stride
from svod.optimize.opts import Opt

THREADS = 256
MIN_SIDE, MIN_DEPTH, MIN_WORK = 48, 32, 1 << 20  # below, other plans are as good
HALVES = {dt.bfloat16: "bf16", dt.float16: "f16"}


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows, columns and depth of what a block has in shared memory at once."""

    kind: str
    rows: int
    columns: int
    depth: int


@dataclass(slots=True)
class _Operand:
    """Memory of one factor: strides of its own axis and of k, and where a batch starts."""

    memory: UOp
    outer: int
    depth: int
    base: UOp
    wide: bool  # sixteen bytes at a time along the contiguous axis


def special(name: str, size: int) -> UOp:
    return ZERO if size == 1 else make(O.SPECIAL, dt.index, (num(size),), name)


def optimize_tile(
    sink: UOp, multiprocessors: int, has_wgmma: bool, applied: list[Opt]
) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no plain contraction."""
    found = find_contraction(sink)
    if found is None or len(found.m) != 1 or len(found.n) != 1 or len(found.k) != 1:
        return None
    (m,), (n,), (k,) = found.m, found.n, found.k
    rows, columns, depth = extent(m), extent(n), extent(k)
    if min(rows, columns) < MIN_SIDE or depth < MIN_DEPTH or rows * columns * depth < MIN_WORK:
        return None
    kind = _kind(found.rows, found.columns, has_wgmma)
    if kind is None:
        return None
    a = _operand(found.rows, m, k, kind)
    b = _operand(found.columns, n, k, kind)
    if a is None or b is None:
        return None
    (end,) = sink.src
    batch = [r for r in end.src[1:] if r not in (m, n)]
    if any(r.src[0].op != O.CONST for r in batch):
        return None
    count = 1
    for r in batch:
        count *= extent(r)
    shape = _shape(kind, rows, columns, count, multiprocessors)
    across, down = -(-columns // shape.columns), -(-rows // shape.rows)
    if down > 65535 or count > 65535:
        return None
    values = _batch_values(batch, count)
    m_start = mul(special("g1", down), shape.rows)
    n_start = mul(special("g0", across), shape.columns)
    arg = (
        "tile", shape.kind, shape.rows, shape.columns, shape.depth, rows, columns, depth,
        a.outer, a.depth, a.wide, b.outer, b.depth, b.wide,
    )  # fmt: skip
    bases = [replace_all(o.base, values) for o in (a, b)]
    tile = make(O.BARRIER, dt.float32, (a.memory, b.memory, *bases, m_start, n_start), arg)
    applied += [Opt("TILE", m.arg.id, shape.rows), Opt("TILE", n.arg.id, shape.columns)]
    applied.append(Opt("TC" if kind != "fma" else "STAGE", k.arg.id, shape.depth))
    ends = []
    lanes = _store_lanes(end.src[0].src[0], n, columns, shape)
    for piece in _pieces(shape, lanes):
        place_m, place_n = add(m_start, piece.m), add(n_start, piece.n)
        if lanes > 1:
            place_n = add(place_n, piece.lane)
        gate = and_(lt(place_m, rows), lt(add(n_start, piece.n), columns))
        value = make(O.BARRIER, dt.float32, (tile, piece.lane), ("piece", piece.number))
        # The sum first: below it nothing moves with the axes any more.
        store = replace_all(end.src[0], {found.reduction: value, m: place_m, n: place_n, **values})
        loops = [piece.lane] if lanes > 1 else []
        ends.append(make(O.END, dt.void, (_gated(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))


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


def _operand(factor: UOp, own: UOp, k: UOp, kind: str) -> _Operand | None:
    load = factor.src[0] if factor.op == O.CAST else factor
    index = load.src[0]
    outer, depth = stride(index, own), stride(index, k)
    if outer is None or depth is None or 1 not in (outer, depth) or min(outer, depth) < 1:
        return None
    base = replace_all(index.src[1], {own: ZERO, k: ZERO})
    width = 16 // load.dtype.itemsize
    along, other = (k, outer) if depth == 1 else (own, depth)
    steps = [stride(index, r) for r in index.ranges if r not in (own, k)]
    wide = extent(along) % width == 0 and other % width == 0
    wide = wide and all(s is not None and s % width == 0 for s in steps)
    return _Operand(index.src[0], outer, depth, base, wide)


def _shape(kind: str, rows: int, columns: int, batch: int, multiprocessors: int) -> TileShape:
    """The largest tile that leaves few multiprocessors idle in the last round."""
    if kind == "fma":
        return TileShape("fma", 128, 128, 8)
    best: tuple[float, int] = (0.0, 64)
    for width, speed in ((256, 1.0), (128, 0.85), (64, 0.6)):
        blocks = -(-rows // 128) * -(-columns // width) * batch
        rounds = -(-blocks // multiprocessors)
        used = rows * columns * batch / (rounds * multiprocessors * 128 * width)
        best = max(best, (used * speed, width))
    return TileShape(kind, 128, best[1], 64)


def _batch_values(batch: list[UOp], count: int) -> dict[UOp, UOp]:
    place = special("g2", count)
    values: dict[UOp, UOp] = {}
    for r in reversed(batch):
        values[r] = mod(place, extent(r))
        place = idiv(place, extent(r))
    return values


def _store_lanes(index: UOp, n: UOp, columns: int, shape: TileShape) -> int:
    width = 4 if shape.kind == "fma" else 2
    return width if stride(index, n) == 1 and columns % width == 0 else 1


@dataclass(slots=True)
class _Piece:
    """Some neighbouring sums of a thread: where they are in the tile, and the first's number."""

    m: UOp
    n: UOp
    lane: UOp
    number: int


def _pieces(shape: TileShape, lanes: int) -> Iterator[_Piece]:
    thread = special("l0", THREADS)
    arg = RangeArg(100, AxisKind.LANE)
    lane = make(O.RANGE, dt.index, (num(lanes),), arg) if lanes > 1 else ZERO
    warp, inside = idiv(thread, 32), mod(thread, 32)
    if shape.kind == "fma":
        first_m = add(mul(idiv(warp, 2), 32), mul(idiv(inside, 8), 4))
        first_n = add(mul(mod(warp, 2), 64), mul(mod(inside, 8), 4))
        for row in range(8):
            for column in range(0, 8, lanes):
                m = add(first_m, num(row % 4 + row // 4 * 16))
                n = add(first_n, num(column % 4 + column // 4 * 32))
                yield _Piece(m, n, lane, row * 8 + column)
        return
    # A warp has 16 rows, a thread two of them and two neighbours in every eight columns.
    first_m = add(mul(warp, 16), idiv(inside, 4))
    first_n = mul(mod(inside, 4), 2)
    for eight in range(shape.columns // 8):
        for half in range(2):
            for one in range(0, 2, lanes):
                m, n = add(first_m, num(8 * half)), add(first_n, num(8 * eight + one))
                yield _Piece(m, n, lane, 4 * eight + 2 * half + one)


def _gated(store: UOp, gate: UOp) -> UOp:
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
