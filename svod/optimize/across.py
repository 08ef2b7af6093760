"""Products whose lanes go along the rows of the output, across its memory.

In: a contraction whose row operand lies in packed panels (frozen weights: svod.runtime.freeze), or
could. Out: the plan that reads them as columns. What moves with the output's last axes is then
broadcast, one value for all lanes: places of an image need not fill vectors, its borders are copied
once (svod.optimize.images), and a tile is turned in registers when it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.contraction import (
    FMA_LATENCY,
    MIN_COLUMNS,
    MIN_DEPTH,
    MIN_ROWS,
    PACK_CYCLES,
    SCRATCH_LIMIT,
    Contraction,
    choose_contraction,
    find_contraction,
    joined_columns,
    panel_width,
)
from svod.optimize.graph import extent, stride
from svod.optimize.images import Image, find_image
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.windows import choose_window, find_window
from svod.schedule.costs_cpu import CPU

VECTORS = (1, 2)  # of a panel
# of 32 registers: the broadcast operand comes from memory
MAX_ACCUMULATORS = CPU.channel_accumulators
STEP_CYCLES = CPU.channel_step  # of a step along the depth, beside its multiply-adds
# of the cycles, that one more accumulator must be worth: code takes time too
CODE_SHARE = CPU.channel_code
FAR_BYTES = CPU.memory_bytes  # per cycle and core, of panels that come from memory
TURN_CYCLES = CPU.channel_turn  # to turn and store one vector of lanes over the places of a line


@dataclass(frozen=True, slots=True)
class Tile:
    """What is in registers at once, and what one vector of outputs then takes."""

    vectors: int
    lines: int  # along the second last axis of the output
    places: int  # along the last one
    cycles: float


def choose_across(sink: UOp, machine: Machine) -> list[Opt]:
    """The plan over rows that lie in panels; empty where they do not."""
    turned = _turned(sink, machine)
    if turned is None:
        return []
    joined = joined_columns(sink.src[0], turned)
    width = machine.lanes(max(4, turned.columns.dtype.itemsize))
    tile = panel_width(turned, joined)
    if not tile or tile % width or tile // width not in VECTORS:
        return []
    image = _image(turned)
    if image is None and not _is_plain(turned.rows):
        return []
    best = _best_tile(turned, (tile // width,), machine)
    column, (*outer, last) = joined[-1].arg.id, turned.m
    opts = [Opt("TILE", column, tile), Opt("STAGE", column, 1)]
    if image is not None:
        opts.append(Opt("IMAGE", image.axes[0].row.arg.id, _band(image, machine)))
    if best.places > 1:
        opts.append(Opt("UPCAST", last.arg.id, best.places))
    if best.lines > 1:
        opts.append(Opt("UPCAST", outer[-1].arg.id, best.lines))
    return opts


def panels_across(sink: UOp, machine: Machine) -> tuple[int, int]:
    """The argument that is best read as columns though it gives rows, and the width of its panels;
    (-1, 0) where lanes along the output's last axis are as good."""
    turned = _turned(sink, machine)
    if turned is None or len(turned.n) != 1 or turned.columns.src[0].src[0].op != O.PARAM:
        return -1, 0
    if not _is_plain(turned.rows) and _image(turned) is None:
        return -1, 0
    best = _best_tile(turned, VECTORS, machine)
    width = machine.lanes(turned.columns.dtype.itemsize)
    if extent(turned.n[0]) <= best.vectors * width or best.cycles >= _cycles_along(sink, machine):
        return -1, 0
    return turned.columns.src[0].src[0].arg.slot, best.vectors * width


def _turned(sink: UOp, machine: Machine) -> Contraction | None:
    """The contraction with rows as columns, where these are only read."""
    if not machine.vector_bytes or len(sink.src) != 1 or not sink.src[0].src[1:]:
        return None
    last = sink.src[0].src[-1]
    turned = _along_fixed(sink) if last.src[0].op != O.CONST else _other_way(sink)
    if turned is None or not turned.m or turned.reduction.src[0].op != O.MUL:
        return None
    if turned.m[-1] is not last or stride(sink.src[0].src[0].src[0], last) != 1:
        return None
    if not _is_plain(turned.columns) or turned.columns.dtype.itemsize < 4:
        return None
    if turned.sizes.m < MIN_ROWS or turned.sizes.n < MIN_COLUMNS:
        return None
    if turned.sizes.k < MIN_DEPTH:
        return None
    return turned


def _other_way(sink: UOp) -> Contraction | None:
    """The contraction with its rows as columns."""
    found = find_contraction(sink)
    if found is None or not found.m:
        return None
    turned = find_contraction(sink, found.m[-1].arg.id)
    return turned if turned is not None and turned.columns is found.rows else None


def _along_fixed(sink: UOp) -> Contraction | None:
    """The contraction whose columns are the last axis of a known size: the output's last one is as
    long as a call says."""
    for r in reversed(sink.src[0].src[1:]):
        if r.op == O.RANGE and r.src[0].op == O.CONST:
            found = find_contraction(sink, r.arg.id)
            return found if found is not None and r in found.n else None
    return None


def _image(turned: Contraction) -> Image | None:
    """The image that the rows are copied from, if only line by line; None where they are read in
    place, or cannot be copied."""
    if _is_plain(turned.rows):
        return None
    image = find_image(turned.rows, turned.m, turned.k)
    return image if image is not None and image.nbytes(1) <= SCRATCH_LIMIT else None


def _band(image: Image, machine: Machine) -> int:
    """Lines of the output whose image is copied at a time: all of them where that stays in the
    second cache beside a panel, else fewer, the same number of bands for each core."""
    total = extent(image.axes[0].row)
    limit = min(SCRATCH_LIMIT, machine.l2_bytes // 2)
    counts = [n for n in range(total, 0, -1) if total % n == 0]
    fitting = [n for n in counts if image.nbytes(n) <= limit] or [1]
    if fitting[0] == total:
        return total
    shared = [n for n in fitting if total // n % machine.cores == 0]
    return (shared or fitting)[0]


def _is_plain(operand: UOp) -> bool:
    """Whether an operand is only read, all of it."""
    return operand.op == O.LOAD and len(operand.src[0].src) == 2


def _best_tile(found: Contraction, vectors: tuple[int, ...], machine: Machine) -> Tile:
    """The tile that takes the fewest cycles; a larger one must be worth its code."""
    width = machine.lanes(max(4, found.columns.dtype.itemsize))
    most = MAX_ACCUMULATORS if machine.registers >= 32 else MAX_ACCUMULATORS // 2 - 2
    second, last = sizes = _steps(found, machine)
    tiles = [
        Tile(count, lines, places, _tile_cycles(found, count, (lines, places), sizes, machine))
        for count in vectors
        for places in range(1, min(most // count, last, width) + 1)
        for lines in range(1, min(most // (count * places), second) + 1)
        if count * _side_by_side(last, places) * _side_by_side(second, lines) <= most
    ]
    return min(tiles, key=lambda t: t.cycles * (1 + CODE_SHARE * t.vectors * t.lines * t.places))


def _steps(found: Contraction, machine: Machine) -> tuple[int, int]:
    """Steps of the last two axes of the rows; of the lines of an image, those of a band."""
    sizes = {r: extent(r) for r in found.m}
    if image := _image(found):
        sizes[image.axes[0].row] = _band(image, machine)
    *outer, last = sizes.values()
    return (outer[-1] if outer else 1), last


def _tile_cycles(
    found: Contraction, count: int, tile: tuple[int, int], sizes: tuple[int, int], machine: Machine
) -> float:
    """Cycles of one vector of outputs, of all pieces together; the first one of a panel waits for
    memory, where all panels do not stay in cache."""
    columns, depth = found.sizes.n, found.sizes.k
    itemsize = max(4, found.columns.dtype.itemsize)
    width = machine.lanes(itemsize)
    (second, last), (lines, places) = sizes, tile
    total = 0.0
    if columns * depth * itemsize > machine.l2_bytes:
        fetch = count * machine.vector_bytes / FAR_BYTES
        total = depth * max(0.0, fetch - count * places * lines)
    for along, times in _pieces(last, places):
        for down, again in _pieces(second, lines):
            step = max(count * along * down + STEP_CYCLES, FMA_LATENCY)
            total += times * again * (depth * step + count * down * TURN_CYCLES)
    panels = -(-columns // (count * width))
    return total * panels * width / (columns * last * second)


def _pieces(size: int, step: int) -> list[tuple[int, int]]:
    """An axis in steps: the sizes of its pieces, and how many there are of each."""
    whole, rest = divmod(size, step)
    return [(step, whole)] + ([(rest, 1)] if rest else [])


def _side_by_side(size: int, step: int) -> int:
    """Steps of an axis in registers at once: one whole piece and a rest have no loop between."""
    return size if size < 2 * step else step


def _cycles_along(sink: UOp, machine: Machine) -> float:
    """Of one vector of outputs with lanes along the output's last axis."""
    found = find_contraction(sink)
    if found is None:
        return inf  # the axis has a run-time size
    opts = choose_window(sink, machine)
    columns = prod(map(extent, joined_columns(sink.src[0], found)))
    positions, packing = columns, 2 * PACK_CYCLES
    if opts:
        window = find_window(sink)
        assert window is not None
        positions, packing = window.positions(), 0
    else:
        opts = choose_contraction(sink, machine)
    amounts = {opt.name: opt.amount for opt in opts}
    width = machine.lanes(max(4, found.columns.dtype.itemsize))
    tile = amounts.get("TILE", width)
    rows = found.sizes.m
    copies = amounts.get("UPCAST", amounts.get("STRIP", 1))
    work = copies * tile // width
    depth = found.sizes.k
    padded = -(-positions // tile) * tile / columns * (-(-rows // copies) * copies / rows)
    if not opts or _is_plain(found.columns):
        packing //= 2
    return depth * (padded * (work + STEP_CYCLES) / work + packing / rows)
