"""Matmul and its kin on a GPU: a block computes one tile of the output.

A contraction ``C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]`` whose operands are plain memory
becomes one TILE node, which the renderer writes as a pipelined loop over shared memory, and stores
of its pieces with whatever follows the sum. The kinds: ``fma`` on float32, each thread an 8x8
or 4x4 piece; ``wgmma``, each warpgroup 64 rows on Hopper's tensor cores; ``mma``, each warp 64
rows of a quarter of the columns on those of any GPU since capability 8.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import TypeAlias

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, idiv, lt, mod, mul, num, terms_of
from svod.optimize.contraction import Contraction, find_contraction
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special, unflatten
from svod.optimize.graph import extent, new_range, replace_all, stride
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU
from svod.schedule.products import holds

THREADS = GPU.tile_threads
MIN_SIDE, MIN_DEPTH, MIN_WORK = 17, 32, 1 << 20  # below, other plans are as good
FEW_ROWS = GPU.tile_rows  # from which tensor cores are better in 16 bits
MANY, MIN_RESULTS = 8, 2048  # but for many small products, each of which fills a part of a tile
BAND = GPU.tile_band  # rows of tiles that run together
HALVES = {dt.bfloat16: "bf16", dt.float16: "f16"}
BYTES = {dt.int8: "s8", dt.uint8: "u8"}
FLOAT8 = {dt.float8_e4m3: "e4m3", dt.float8_e5m2: "e5m2"}
MOST_BYTES = 1 << 15  # products of bytes whose sum always fits 32 bits
FOUR = 4  # neighbours of what is turned
LINE = 128  # bytes of one row or column along k in shared memory
COPYING = 128  # threads of a block that only copy, where the copy engine does it
MAP_AXES = 5  # that the copy engine knows
MOST_BATCH = 65535  # blocks along the last axis of a grid
LEAST_STAGES, MOST_STAGES = 3, 4
FORMS = ((128, 128), (64, 256), (256, 64))  # of large tiles in float32
ALONE = GPU.lone_tile  # and of multiprocessors that may have one large tile, not two
SMALL_SPEED = GPU.small_tile  # of one of a quarter, where it leaves less of itself empty
THIN, THIN_STAGES = 64, 8  # rows or columns below which memory is what counts, and stages then


Axes: TypeAlias = tuple[tuple[int, int], ...]  # extents and strides, outermost first


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows, columns and depth of what a block has in shared memory at once."""

    kind: str
    rows: int
    columns: int
    depth: int
    stages: int = 2  # steps of k in shared memory at once

    @property
    def is_mma(self) -> bool:
        return self.kind.startswith("mma")

    @property
    def side(self) -> int:
        """Of the square of sums that a thread has on the ordinary units."""
        return isqrt(self.rows * self.columns // THREADS)


@dataclass(slots=True)
class Operand:
    """Memory of one factor: its own axes and those of k, and where a batch starts."""

    memory: UOp
    outer: Axes
    depth: Axes
    base: UOp
    wide: bool  # sixteen bytes at a time along the contiguous axis, or four that are turned
    itemsize: int = 2

    @property
    def along_depth(self) -> bool:
        return self.depth[-1][1] == 1

    @property
    def is_turned(self) -> bool:
        """Whether tensor cores cannot read it as it lies."""
        return self.itemsize != 2 and not self.along_depth


@dataclass(frozen=True, slots=True)
class TilePlan:
    """A product and how a block computes a tile of it."""

    product: Contraction
    kind: str
    shape: TileShape
    a: Operand
    b: Operand

    @property
    def down(self) -> int:
        return -(-self.product.sizes.m // self.shape.rows)

    @property
    def across(self) -> int:
        return -(-self.product.sizes.n // self.shape.columns)

    def maps(self) -> tuple[_Map, _Map] | None:
        """How the copy engine reads both operands, where it can."""
        if not self.kind.startswith("wgmma"):
            return None
        a, b = _map_of(self.a, self.shape.rows), _map_of(self.b, self.shape.columns)
        return None if a is None or b is None else (a, b)


def plan_tile(sink: UOp, machine: GpuMachine) -> TilePlan | str:
    """The tile of a kernel, or why it has none."""
    found = find_contraction(sink)
    if found is None:
        return "it is not one sum of products along the output's last axis"
    refusal = _size_refusal(found)
    if refusal:
        return refusal
    if found.sizes.m <= THIN < found.sizes.n and load_of(found.rows).dtype.itemsize == 2:
        # A tile has 128 rows and may have fewer columns: let it multiply little that is not there.
        found = found.turned()
    if not _are_plain(*found.operands):
        return "an operand is not memory that is read without a condition"
    a = contiguous_operand(found.rows, found.m, found.k)
    b = contiguous_operand(found.columns, found.n, found.k)
    if a is None or b is None:
        return "neighbours of an operand are not neighbours in memory"
    kind = kind_of(found, sink, machine)
    if kind is not None and kind != "fma" and not (_fits_parts(a) and _fits_parts(b)):
        kind = "fma" if kind.endswith("tf32") else None
    if kind is None:
        dtypes = " by ".join([load_of(f).dtype.name for f in found.operands])
        return f"no tile multiplies {dtypes} in {found.rows.dtype.name} here"
    if min(found.sizes.m, found.sizes.n) < MIN_SIDE and (kind == "fma" or a.itemsize != 2):
        return f"{found.sizes.m} rows by {found.sizes.n} columns are few"
    plan = TilePlan(found, kind, _shape_of(found, kind, (a, b), machine), a, b)
    if found.sizes.batch > MOST_BATCH and plan.maps() is None:
        return f"{found.sizes.batch} products are more than a grid has"
    if any(len(o.depth) > 1 and o.depth[-1][0] % plan.shape.depth for o in (a, b)):
        return "a step along the sum would not be one piece of memory"
    return plan


def _size_refusal(found: Contraction) -> str:
    """Why a product is too small for a tile; empty where it is not."""
    batch, rows, columns, depth = found.sizes
    if min(rows, columns) < FEW_ROWS or depth < MIN_DEPTH:
        return f"{rows} rows, {columns} columns and {depth} steps are few"
    work = rows * columns * depth
    if work < MIN_WORK and (work * batch < MANY * MIN_WORK or rows * columns < MIN_RESULTS):
        return f"{work} multiplications are few"
    return ""


def _shape_of(
    found: Contraction, kind: str, operands: tuple[Operand, Operand], machine: GpuMachine
) -> TileShape:
    batch, rows, columns, _ = found.sizes

    def tiles(tile_rows: int, tile_columns: int) -> int:
        return -(-rows // tile_rows) * -(-columns // tile_columns) * batch

    results, is_turned = rows * columns * batch, any(o.is_turned for o in operands)
    stages = THIN_STAGES if min(rows, columns) <= THIN else MOST_STAGES
    itemsize = operands[0].itemsize
    return choose_shape(kind, is_turned, itemsize, results, tiles, machine, stages)


def optimize_tile(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no plain contraction."""
    sink = split_depth(sink)
    plan = plan_tile(sink, machine)
    if isinstance(plan, str):
        return None
    (end,) = sink.src
    found, shape, a, b = plan.product, plan.shape, plan.a, plan.b
    count, tiles, maps = found.sizes.batch, plan.down * plan.across, plan.maps()
    number, which, rounds = special("g0", tiles), special("g2", count), ZERO
    if maps is not None:
        number, rounds = in_rounds(tiles * count, machine)
        number, which = mod(number, tiles), idiv(number, tiles)
    values = unflatten(which, found.batch)
    row, column = tile_order(number, plan.down, plan.across)
    starts = mul(row, shape.rows), mul(column, shape.columns)
    arg: tuple[object, ...] = (
        "tile", shape.kind, shape.rows, shape.columns, shape.depth, shape.stages,
        *found.sizes[1:], a.outer, a.depth, a.wide, b.outer, b.depth, b.wide,
    )  # fmt: skip
    sources = [*[replace_all(o.base, values) for o in (a, b)], *starts]
    threads = THREADS
    if maps is not None:
        described = [(m.offset, m.axes) for m in maps]
        arg = ("tile", f"tma.{plan.kind.partition('.')[2]}", *arg[2:], *described)
        sources.append(rounds)
        for found_map, start in zip(maps, starts, strict=True):
            sources += [replace_all(p, values) for p in found_map.corner(start)]
        threads += COPYING
    total = dt.int32 if found.reduction.dtype.kind in "iu" else dt.float32
    tile = make(O.BARRIER, total, (a.memory, b.memory, *sources), arg)
    applied += [
        Opt("TILE", found.m[-1].arg.id, shape.rows),
        Opt("TILE", found.n[-1].arg.id, shape.columns),
        Opt("TC" if plan.kind != "fma" else "STAGE", found.k[-1].arg.id, shape.depth),
    ]
    return flat_stores(end, found, tile, shape, starts, values, threads, rounds)


def flat_stores(
    end: UOp,
    found: Contraction,
    tile: UOp,
    shape: TileShape,
    starts: tuple[UOp, UOp],
    values: dict[UOp, UOp],
    threads: int = THREADS,
    rounds: UOp = ZERO,
) -> UOp:
    """The stores of a tile whose rows and columns are numbers of all of theirs, from ``starts``
    on; ``values`` are the places along other axes."""
    index, last = end.src[0].src[0], found.n[-1]
    rows, columns = (prod(map(extent, axes)) for axes in (found.m, found.n))
    lanes = store_lanes(index, last, shape)
    joins = lanes == 2 and joins_quads(index, last, shape)

    def locate(piece: Piece) -> tuple[dict[UOp, UOp], UOp]:
        place_m, place_n = add(starts[0], piece.m), add(starts[1], piece.n)
        gate = and_(lt(place_m, rows), lt(place_n, columns))
        places = unflatten(place_m, found.m) | unflatten(place_n, found.n) | values
        if lanes > 1:  # they do not leave the last axis
            places[last] = add(places[last], piece.lane)
        return places, gate

    return store_pieces(end, found.reduction, tile, shape, (lanes, joins), threads, locate, rounds)


def store_pieces(
    end: UOp,
    reduction: UOp,
    tile: UOp,
    shape: TileShape,
    widths: tuple[int, bool],
    threads: int,
    locate: Callable[[Piece], tuple[dict[UOp, UOp], UOp]],
    rounds: UOp,
) -> UOp:
    """The stores of all pieces of a tile: ``widths`` are the columns of a store, and whether four
    threads join theirs; ``locate`` says where a piece is and when that exists."""
    lanes, joins = widths
    ends = []
    for piece in output_pieces(shape, lanes, threads):
        places, gate = locate(piece)
        value = make(O.BARRIER, tile.dtype, (tile, piece.lane), ("piece", piece.number))
        if reduction.dtype is not tile.dtype:
            value = make(O.CAST, reduction.dtype, (value,))
        # The sum first: below it nothing moves with the axes any more.
        store = replace_all(end.src[0], {reduction: value, **places})
        if joins:
            store = make(O.STORE, dt.void, store.src, ("quad", *piece.quad))
        loops = [r for r in (rounds, piece.lane) if r.op == O.RANGE]
        ends.append(make(O.END, dt.void, (gated(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))


@dataclass(frozen=True, slots=True)
class _Map:
    """A matrix for the copy engine: the elements before it, and axes beside its own two."""

    offset: int
    axes: Axes  # sizes and strides
    places: tuple[UOp, ...]  # where a block is along them, but for those of rows or columns
    outer: Axes  # its rows or columns

    def corner(self, start: UOp) -> list[UOp]:
        """Where a tile begins: its first row or column, then the place along each further axis."""
        if len(self.outer) == 1:
            return [start, *self.places]
        inner = self.outer[-1][0]
        return [mod(start, inner), *self.places, idiv(start, inner)]


def _map_of(o: Operand, tile: int) -> _Map | None:
    """How the copy engine reads an operand in tiles of so many rows or columns, or None."""
    if not o.wide or o.is_turned or len(o.outer) > 2 or len(o.depth) > 1:
        return None
    further = o.outer[:-1]
    if further and o.outer[-1][0] % tile:
        return None  # a tile would not be one box
    terms, offset = terms_of(o.base)
    if len(terms) + len(further) > MAP_AXES - 2 or offset < 0:
        return None
    if any(step < 1 or place.vmin < 0 for place, step in terms.items()):
        return None
    axes = tuple([(int(place.vmax) + 1, step) for place, step in terms.items()])
    return _Map(offset, axes + further, tuple(terms), o.outer)


def in_rounds(tiles: int, machine: GpuMachine) -> tuple[UOp, UOp]:
    """The number of a block's tile, and the loop over its tiles: a block per multiprocessor."""
    blocks = min(tiles, machine.multiprocessors)
    block = special("g0", blocks)
    if tiles == blocks:
        return block, ZERO
    count = add(idiv(add(mul(block, -1), num(tiles - 1)), blocks), num(1))
    rounds = make(O.RANGE, dt.index, (count,), RangeArg(99, AxisKind.LOOP))
    return add(mul(rounds, blocks), block), rounds


def tile_order(number: UOp, down: int, across: int) -> tuple[UOp, UOp]:
    """Row and column of a block's tile: blocks that run together read few rows and columns."""
    band = BAND
    while down % band:
        band //= 2
    row = add(mul(idiv(number, band * across), band), mod(number, band))
    return row, idiv(mod(number, band * across), band)


def split_depth(sink: UOp) -> UOp:
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
        return split_depth(replace_all(sink, {old: reduced}))
    return sink


def _are_plain(*factors: UOp) -> bool:
    """Whether all are memory, perhaps converted."""
    loads = [load_of(f) for f in factors]
    return all(
        f.op == O.LOAD and len(f.src[0].src) == 2 and f.src[0].src[0].op == O.PARAM for f in loads
    )


def load_of(factor: UOp) -> UOp:
    """What is converted to a factor: once, or first to something that holds all its values."""
    if factor.op != O.CAST:
        return factor
    value = factor.src[0]
    while value.op == O.CAST and holds(value.dtype, value.src[0].dtype):
        value = value.src[0]
    return value


def kind_of(found: Contraction, sink: UOp, machine: GpuMachine) -> str | None:
    """How the products are made, or None."""
    left, right = (load_of(f).dtype for f in (found.rows, found.columns))
    total = found.rows.dtype
    if total is not found.columns.dtype:
        return None
    unit = "wgmma" if machine.has_wgmma else "mma" if machine.has_mma else None
    if left is right is total is dt.float32:
        return f"{unit}.tf32" if unit and machine.uses_tf32 else "fma"
    if unit is None:
        return None
    if left is right and left in HALVES and total is dt.float32:
        return f"{unit}.{HALVES[left]}"
    if left in BYTES and right in BYTES and _sums_bytes(total, found):
        if left is not right and not machine.mixes_bytes:
            unit = "mma"
        return f"{unit}.{_names(BYTES[left], BYTES[right])}"
    if left in FLOAT8 and right in FLOAT8 and total is dt.float32 and machine.has_float8:
        if not _is_rounded(found.reduction, sink):
            unit = "mma"
        return f"{unit}.{_names(FLOAT8[left], FLOAT8[right])}"
    return None


def _names(left: str, right: str) -> str:
    return left if left == right else f"{left}.{right}"


def _sums_bytes(total: DType, found: Contraction) -> bool:
    """Whether sums in 32 bits are right: narrower ones are the same once they are cut to fewer
    bits, wider ones while nothing overflows."""
    if total.kind not in "iu":
        return False
    is_short = found.sizes.k < MOST_BYTES
    return total.bits <= 32 or (total is dt.int64 and is_short)


def _is_rounded(value: UOp, sink: UOp) -> bool:
    """Whether a sum, scaled perhaps, is only used with 16 bits or fewer.

    Hopper sums 8-bit floats with 14 bits, 128 at a time: enough then, and not otherwise.
    """
    users = [n for n in sink.toposort() if value in n.src]
    return all(
        (n.op == O.CAST and n.dtype.kind == "f" and n.dtype.bits <= 16)
        or (n.op == O.MUL and _is_rounded(n, sink))
        for n in users
    )


def contiguous_operand(factor: UOp, own: Sequence[UOp], k: Sequence[UOp]) -> Operand | None:
    load = load_of(factor)
    index = load.src[0]
    outer, depth = _axes(index, own), _axes(index, k)
    if outer is None or depth is None or 1 not in (outer[-1][1], depth[-1][1]):
        return None
    base = replace_all(index.src[1], dict.fromkeys([*own, *k], ZERO))
    is_turned = depth[-1][1] != 1
    along = outer[-1] if is_turned else depth[-1]
    # Bytes that must be turned are read four at a time.
    width = 4 if is_turned and load.dtype.itemsize == 1 else 16 // load.dtype.itemsize
    terms, constant = terms_of(base)
    steps = [along[0], constant, *terms.values()]
    steps += [step for axis in (*outer, *depth) if axis is not along for step in axis[1:]]
    is_wide = all(s % width == 0 for s in steps)
    return Operand(index.src[0], outer, depth, base, is_wide, load.dtype.itemsize)


def _fits_parts(o: Operand) -> bool:
    """Whether sixteen bytes along rows or columns, four elements that are turned, stay within one
    axis, or go from one to the next in a way that panels know: of two axes, in 16 bits."""
    width = FOUR if o.is_turned else 16 // o.itemsize
    inner = o.outer[-1][0]
    if o.along_depth or len(o.outer) == 1 or inner % width == 0:
        return True
    return o.itemsize == 2 and len(o.outer) == 2 and inner >= width


def _axes(index: UOp, ranges: Sequence[UOp]) -> Axes | None:
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


def choose_shape(
    kind: str,
    is_turned: bool,
    itemsize: int,
    results: int,
    tiles: Callable[[int, int], int],
    machine: GpuMachine,
    most_stages: int = MOST_STAGES,
) -> TileShape:
    """The largest tile that leaves few multiprocessors idle in the last round; ``tiles`` says how
    many of some rows and columns there are."""
    processors = machine.multiprocessors
    if kind == "fma":
        rows, columns = min(FORMS, key=lambda sides: tiles(*sides))
        large, small = tiles(rows, columns), tiles(64, 64)
        # Alone on a processor a square tile is still faster than small ones, a long one is not.
        least = ALONE * processors if rows == columns else processors
        if large < least or small < SMALL_SPEED * 4 * large:
            rows = columns = 64
        return TileShape("fma", rows, columns, 16)
    best: tuple[float, int, int] = (0.0, 64, 2)
    widths = {256: 1.0, 128: 0.85, 64: 0.6}  # and how fast one is
    if kind.startswith("wgmma.e") or (is_turned and kind.startswith("mma")):
        del widths[256]  # sums beside sums, or fragments beside what is turned: too many registers
    if machine.tile_columns in widths:
        widths = {machine.tile_columns: 1.0}
    for width, speed in widths.items():
        stages = min(most_stages, (machine.most_shared_bytes - 1024) // ((128 + width) * LINE))
        if stages < LEAST_STAGES:
            continue
        rounds = -(-tiles(128, width) // processors)
        used = results / (rounds * processors * 128 * width)
        best = max(best, (used * speed, width, stages))
    return TileShape(kind, 128, best[1], LINE // itemsize, best[2])


def store_lanes(index: UOp, n: UOp, shape: TileShape) -> int:
    width = 4 if shape.kind == "fma" else 2
    return width if stride(index, n) == 1 and extent(n) % width == 0 else 1


def joins_quads(index: UOp, n: UOp, shape: TileShape) -> bool:
    """Whether four threads may exchange their pairs of columns, so that each stores eight."""
    columns = shape.columns // (4 if shape.is_mma else 1)
    if shape.kind == "fma" or index.src[0].dtype.itemsize != 2 or columns % 32 or extent(n) % 32:
        return False
    terms, offset = terms_of(index.src[1])
    return all(step % 8 == 0 for step in (offset, *[s for t, s in terms.items() if t is not n]))


@dataclass(slots=True)
class Piece:
    """Some neighbouring sums of a thread: where they are in the tile, and the first's number.

    ``quad`` is the number of a group of four pieces, each eight columns after the other, and which
    of them this is.
    """

    m: UOp
    n: UOp
    lane: UOp
    number: int
    quad: tuple[int, int] = (0, 0)


def output_pieces(shape: TileShape, lanes: int, threads: int = THREADS) -> Iterator[Piece]:
    thread = mod(special("l0", threads), THREADS)
    arg = RangeArg(100, AxisKind.LANE)
    lane = make(O.RANGE, dt.index, (num(lanes),), arg) if lanes > 1 else ZERO
    warp, inside = idiv(thread, 32), mod(thread, 32)
    if shape.is_mma:
        # A warp has 64 rows and a quarter of the columns, in pieces of 16 by 8.
        first_m = add(mul(mod(warp, 2), 64), idiv(inside, 4))
        first_n = add(mul(idiv(warp, 2), shape.columns // 4), mul(mod(inside, 4), 2))
        eights = shape.columns // 32
        for place in range(8 * eights):
            sixteen, half, eight = place // (2 * eights), place // eights % 2, place % eights
            for one in range(0, 2, lanes):
                m = add(first_m, num(16 * sixteen + 8 * half))
                n = add(first_n, num(8 * eight + one))
                number = 4 * (sixteen * eights + eight) + 2 * half + one
                yield Piece(m, n, lane, number, (place // 4, place % 4))
        return
    if shape.kind == "fma":
        side = shape.side
        across = shape.columns // (8 * side)  # warps beside each other
        first_m = add(mul(idiv(warp, across), 4 * side), mul(idiv(inside, 8), 4))
        first_n = add(mul(mod(warp, across), 8 * side), mul(mod(inside, 8), 4))
        for row in range(side):
            for column in range(0, side, lanes):
                m = add(first_m, num(row % 4 + row // 4 * 16))
                n = add(first_n, num(column % 4 + column // 4 * 32))
                yield Piece(m, n, lane, row * side + column)
        return
    # A warp has 16 rows, a thread two of them and two neighbours in every eight columns.
    first_m = add(mul(warp, 16), idiv(inside, 4))
    first_n = mul(mod(inside, 4), 2)
    for place in range(shape.columns // 4):
        quad, half, inner = place // 8, place // 4 % 2, place % 4
        eight = 4 * quad + inner
        for one in range(0, 2, lanes):
            m, n = add(first_m, num(8 * half)), add(first_n, num(8 * eight + one))
            yield Piece(m, n, lane, 4 * eight + 2 * half + one, (place // 4, inner))


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
