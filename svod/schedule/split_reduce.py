"""Large reductions in two stages, so that every core has work and no sum is one long chain.

A reduction to few elements over many is rewritten as partial results over fixed pieces, stored,
and reduced again. The split depends on sizes only, so results do not change with the machine's
number of threads. On a CPU rows that one kernel comes back to stay whole, and sums down long
columns are split too (svod.schedule.down). On a GPU there are as many pieces as blocks run at once,
what is left of an axis that they do not divide goes with the last stage, and a product of two
matrices that has a few tiles and many steps is split too.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ReduceArg
from svod.ir.node import UOp, elements, is_symbolic, make
from svod.schedule.channels import stepped_axes
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.down import DOWN_PIECES, sum_down
from svod.schedule.products import (
    are_halves,
    moving_axes,
    stored_dtypes,
    tiled_product,
    unmoved,
)
from svod.schedule.storage import is_one_hot
from svod.schedule.whole_rows import whole_rows

SPLIT_FROM = CPU.split_from  # elements per result from which splitting pays
FEW_RESULTS = CPU.split_few_results
PIECES = CPU.split_pieces  # partial results wanted in all
BLOCKS = GPU.resident_blocks  # of 1024 threads that a GPU runs at once
KEPT = GPU.kept_row  # elements of a row that threads of one block keep in registers
LEAST_PIECE, LEAST_COLUMN = 4096, 1024  # elements of a piece of a row, and of a column
WARP, FEW_PIECES = 32, 4  # columns that a block sums; pieces below which short rows stay whole
TILE, FEW_TILES, TILES = 128, 32, 132  # side of a tile of a product, below how many, and wanted
FORMS = ((128, 128), (64, 256), (256, 64))  # of tiles in float32
LEAST_STEPS, MANY_STEPS = 512, 4096  # of a piece of a product of few tiles, and of more of them
THIN, THIN_TILES = 64, 66  # the short side of a product that reads one operand, and its tiles
STEP = 64  # of the sum in a tile
VECTOR = 8  # elements that a thread reads at once, at most
LONG = 16  # results that are better neighbours than the places of a window


def split_reductions(sink: UOp, order: list[UOp] | None = None, in_blocks: bool = False) -> UOp:
    """The graph with large reductions split; ``order`` is its toposort where that is known."""
    order = sink.toposort() if order is None else order
    reductions = [node for node in order if node.op == O.REDUCE_AXIS]
    cuts = {n: _product_cut(n) for n in reductions} if in_blocks else {}
    products = {n: cut for n, cut in cuts.items() if cut is not None}
    down = {} if in_blocks else {n: axis for n in reductions if (axis := sum_down(n)) >= 0}
    counts = {n: _count(n, in_blocks) for n in reductions}
    large = [n for n, wanted in counts.items() if wanted > 1]
    if not products and not down and not large:
        return sink
    whole = frozenset() if in_blocks else whole_rows(order, large)
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node.with_sources(src)
        if node in products:
            new = _split_product(new, *products[node])
        elif node in down:
            source, axis = new.src[0], down[node]
            new = _sums_of_pieces(new, axis, _as_two(source, axis, DOWN_PIECES))
        elif counts.get(node, 0) > 1 and node not in whole:
            new = _split(new, counts[node], in_blocks)
        done[node] = new
    return done[sink]


def _count(node: UOp, in_blocks: bool) -> int:
    """Pieces wanted of each result of a reduction: several where few results have many elements."""
    shape = node.src[0].shape
    total = elements(shape)
    if total < KEPT or is_symbolic(shape) or _picks(node):
        return 1
    results = max(1, prod(node.shape))
    each = total // results
    if in_blocks:
        return _blocks(node, results, each)
    return max(8, PIECES // results) if results <= FEW_RESULTS and each >= SPLIT_FROM else 1


def _picks(node: UOp) -> bool:
    """Whether a sum picks an element of an axis by its number: whole, it becomes a load."""
    value = node.src[0]
    while value.op == O.CAST:
        value = value.src[0]
    if node.arg.op != O.ADD or value.op != O.WHERE or not is_one_hot(value.src[0]):
        return False
    other = unmoved(value.src[2])
    is_zero = other.op == O.CONST and other.arg == 0
    first, second = map(moving_axes, value.src[0].src)
    counted = set(node.arg.axes)
    return is_zero and (first == counted) is not (second == counted)


def _blocks(node: UOp, results: int, each: int) -> int:
    """Pieces of each result on a GPU: a block for one of a row, or for one of a warp of columns."""
    if len(node.src[0].shape) - 1 in node.arg.axes:
        pieces = min(BLOCKS // results, each // LEAST_PIECE)
        is_worth = each >= SPLIT_FROM or (each > KEPT and pieces >= FEW_PIECES)
        return pieces if is_worth else 1
    wanted = BLOCKS * WARP // results
    return min(wanted, each // LEAST_COLUMN) if wanted >= FEW_PIECES else 1


def _split(node: UOp, wanted: int, in_blocks: bool) -> UOp:
    source = node.src[0]
    shape = source.shape
    axes = sorted(node.arg.axes)
    axis = max(axes, key=lambda a: (shape[a] >= PIECES, -a))
    pieces = _divisor(shape[axis], wanted) if in_blocks else _pieces(shape[axis], wanted)
    has_rest = in_blocks and 2 * pieces < wanted and len(axes) == 1
    if pieces < 2 and not has_rest:
        return node
    if node.dtype.kind == "f" and node.dtype.bits < 32 and node.arg.op in (O.ADD, O.MUL):
        # Partial results of small floats are kept wide, as one kernel would keep them.
        f32 = make(O.CAST, dt.float32, (source,))
        whole = _split(make(O.REDUCE_AXIS, dt.float32, (f32,), node.arg), wanted, in_blocks)
        return make(O.CAST, node.dtype, (whole,))
    if not has_rest:
        return _in_pieces(node, axis, pieces)
    size = shape[axis] // wanted // VECTOR * VECTOR
    first, rest = (
        make(O.REDUCE_AXIS, node.dtype, (_between(source, axis, start, stop),), node.arg)
        for start, stop in ((0, wanted * size), (wanted * size, shape[axis]))
    )
    return make(node.arg.op, node.dtype, (_in_pieces(first, axis, wanted), rest))


def _in_pieces(node: UOp, axis: int, pieces: int) -> UOp:
    """A reduction as one of pieces of an axis, which are stored, and one of their results."""
    source, axes = node.src[0], node.arg.axes
    shape = source.shape
    wide = (*shape[:axis], pieces, shape[axis] // pieces, *shape[axis + 1 :])
    moved = make(O.RESHAPE, source.dtype, (source,), wide)
    # The outer half of the split axis stays; everything else that was reduced goes first.
    inner = tuple([a if a < axis else a + 1 for a in axes if a != axis] + [axis + 1])
    partial = make(
        O.REDUCE_AXIS, node.dtype, (moved,), ReduceArg(node.arg.op, tuple(sorted(inner)))
    )
    stored = make(O.CONTIGUOUS, node.dtype, (partial,))
    last = make(O.REDUCE_AXIS, node.dtype, (stored,), ReduceArg(node.arg.op, (axis,)))
    return make(O.RESHAPE, node.dtype, (last,), node.shape)


def _between(node: UOp, axis: int, start: int, stop: int) -> UOp:
    """A part of an axis."""
    bounds = [(0, size) for size in node.shape]
    bounds[axis] = (start, stop)
    return make(O.SHRINK, node.dtype, (node,), tuple(bounds))


def _pieces(size: int, wanted: int) -> int:
    """The divisor of an axis nearest above what is wanted, within a factor of eight."""
    for pieces in range(wanted, min(size, 8 * wanted) + 1):
        if size % pieces == 0:
            return pieces
    for pieces in range(wanted, 1, -1):
        if size % pieces == 0:
            return pieces
    return 1


# -- products of matrices --------------------------------------------------------------------------


def _product_cut(node: UOp) -> tuple[int, int] | None:
    """The axis along which a product is split, and into how many; None where that does not pay."""
    product = tiled_product(node)
    if product is None:
        return None
    shape = node.src[0].shape
    both, rows, columns, steps = product.sizes
    is_narrow = are_halves(product)
    kept = [] if is_narrow else stepped_axes(node)
    if is_narrow:
        wanted = _narrow_pieces(rows, columns, both, steps)
    else:
        is_fast = any(f.itemsize == 1 for f in stored_dtypes(product))
        wanted = _wide_pieces(rows, columns, both, steps, bool(kept), is_fast)
    if wanted < 2:
        return None
    axes = [axis for axis in sorted(node.arg.axes) if axis not in kept]
    count = _divisor if is_narrow else _pieces
    cuts = [(axis, count(shape[axis], wanted)) for axis in axes]
    cuts = [(axis, pieces) for axis, pieces in cuts if 1 < pieces <= 2 * wanted]

    def left(cut: tuple[int, int]) -> int:
        """What a step of a tile could be made of, in powers of two."""
        sizes = [int(shape[a]) // (cut[1] if a == cut[0] else 1) for a in node.arg.axes]
        return min(STEP, prod([size & -size for size in sizes]))

    def worth(cut: tuple[int, int]) -> tuple[int, int, int]:
        """Half of what is wanted is enough; then outer axes, which leave long rows whole."""
        return min(2 * cut[1], wanted), left(cut), cut[1] if is_narrow else 0

    return max(cuts, key=worth, default=None)


def _narrow_pieces(rows: int, columns: int, both: int, steps: int) -> int:
    """Pieces of a 16-bit product: its tiles are twice as wide, and stay for as long as there are
    more of them. 0 where there are many."""
    tiles = -(-rows // TILE) * -(-columns // (2 * TILE)) * both
    is_thin = min(rows, columns) <= THIN
    if is_thin:  # the long side is the one that has 128 in a tile
        tiles = -(-max(rows, columns) // TILE) * both
    least = LEAST_STEPS if tiles <= FEW_TILES // 2 or is_thin else MANY_STEPS
    is_few = tiles <= (THIN_TILES if is_thin else FEW_TILES)
    return min(TILES // tiles, steps // least) if is_few else 0


def _wide_pieces(
    rows: int, columns: int, both: int, steps: int, has_windows: bool, is_fast: bool
) -> int:
    """Pieces of a product in 32 bits, so that each multiprocessor has two tiles at once; one of a
    product of bytes, which is over before more would pay. 0 where there are many tiles."""
    tiles = both * min([-(-rows // m) * -(-columns // n) for m, n in FORMS])
    if tiles > (FEW_TILES if is_fast else TILES):
        return 0
    if is_fast:
        wanted = -(-TILES // tiles)
    else:
        wanted = -(-2 * TILES // tiles) if has_windows else 2 * TILES // tiles
    return min(wanted, steps // LEAST_STEPS)


def _divisor(size: int, most: int) -> int:
    """The largest divisor of an axis up to ``most``."""
    return next(n for n in range(min(size, most), 0, -1) if size % n == 0)


def _split_product(node: UOp, axis: int, pieces: int) -> UOp:
    first, second = [_cut(s, axis, pieces) for s in node.src[0].src]
    return _sums_of_pieces(node, axis, make(O.MUL, first.dtype, (first, second)))


def _sums_of_pieces(node: UOp, axis: int, wide: UOp) -> UOp:
    """A reduction of a value whose axis is two now: pieces, and steps of a piece."""
    inner = tuple([a + 1 if a >= axis else a for a in node.arg.axes])
    op = node.arg.op
    partial = make(O.REDUCE_AXIS, node.dtype, (wide,), ReduceArg(op, tuple(sorted(inner))))
    rest = [a for a in range(len(partial.shape)) if a != axis]
    if wide.op == O.MUL:  # the places of a small window before what is better stored as neighbours
        rest.sort(key=lambda a: bool(partial.shape[a] >= LONG))
    moved = make(O.PERMUTE, node.dtype, (partial,), (axis, *rest))  # pieces are whole matrices
    stored = make(O.CONTIGUOUS, node.dtype, (moved,))
    last = make(O.REDUCE_AXIS, node.dtype, (stored,), ReduceArg(op, (0,)))
    if rest != sorted(rest):
        last = make(O.RESHAPE, node.dtype, (last,), last.shape[1:])
        last = make(O.PERMUTE, node.dtype, (last,), tuple([rest.index(a) for a in sorted(rest)]))
    return make(O.RESHAPE, node.dtype, (last,), node.shape)


def _cut(node: UOp, axis: int, pieces: int) -> UOp:
    """An axis of a factor as two; axes along which it repeats stay such."""
    shape = node.shape
    here = 1 if shape[axis] == 1 else pieces
    wide = (*shape[:axis], here, shape[axis] // here, *shape[axis + 1 :])
    if node.op == O.CAST:
        return make(O.CAST, node.dtype, (_cut(node.src[0], axis, pieces),))
    if node.op == O.EXPAND:
        return make(O.EXPAND, node.dtype, (_cut(node.src[0], axis, pieces),), wide)
    return make(O.RESHAPE, node.dtype, (node,), wide)


def _as_two(node: UOp, axis: int, pieces: int) -> UOp:
    """An axis of a value as two."""
    shape = node.shape
    wide = (*shape[:axis], pieces, shape[axis] // pieces, *shape[axis + 1 :])
    return make(O.RESHAPE, node.dtype, (node,), wide)
