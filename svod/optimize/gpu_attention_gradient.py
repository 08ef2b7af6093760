"""The gradient of attention on a GPU, by blocks that never store the scores.

Two kinds of kernels are recognised in their loop form. One has a number per row: the logarithm of
the sum of the exponentials of its scores. The other is a product whose left factor is made again
from those: weights exp(scores - logarithm), or what scores receive, weights * (product - own),
with one more number per query. Rows of a block are queries, or keys, with all axes of the scores
exchanged; the other ones go by, and each block has its rows for itself, so that nothing is added up
in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import add, and_, idiv, lt, mod, mul, num, sub, terms_of
from svod.optimize.attention_scores import (
    Added,
    Kept,
    Memory,
    Step,
    described,
    half_load,
    is_reduction,
    memory_of,
    plain,
    steps_of,
    walk_scores,
)
from svod.optimize.gpu_attention import MAX_SIDE, MIN_ROWS, ROWS, folded_scores, keys_of, side_of
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special, unflatten
from svod.optimize.gpu_tile import (
    HALVES,
    Operand,
    TileShape,
    contiguous_operand,
    gated,
    output_pieces,
    store_lanes,
)
from svod.optimize.graph import extent, replace_all
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

# elements of a query or value: registers hold no more beside two products
MAX_WIDTH = GPU.attention_width


def span_of(widths: tuple[int, ...]) -> int:
    """How many go by at a time, given the elements of a result and of each first product: what
    registers hold, and of small heads so many that a multiprocessor has two blocks."""
    return 128 if len(widths) == 2 and max(widths) > 64 else 64


def optimize_gradient(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is none of these."""
    if not machine.has_wgmma or len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return None
    value = sink.src[0].src[0].src[1]
    if value.op == O.ADD and value.src[1].op == O.LOG:
        return _logarithms(sink, applied)
    return _products(sink, applied)


# -- a number per row -----------------------------------------------------------------------------


def _logarithms(sink: UOp, applied: list[Opt]) -> UOp | None:
    (end,) = sink.src
    store, outputs = end.src[0], end.src[1:]
    value = store.src[1]
    folded = _folded(value)
    found = None if folded is None else walk_scores(folded[0])
    if folded is None or found is None:
        return None
    _, is_guarded, keys = folded
    product, parts = found
    depth, pair = product.src[1], _ordered(product, keys)
    if pair is None or any(r.src[0].op != O.CONST for r in (*outputs, keys, depth)):
        return None
    rows = [r for r in outputs if r in pair[0].ranges and r not in pair[1].ranges]
    for row in sorted(rows, key=extent, reverse=True):
        steps = steps_of(parts, row, row, keys)
        if steps is not None:
            break
    else:
        return None
    first = contiguous_operand(pair[0], [row], [depth])
    second = contiguous_operand(pair[1], [keys], [depth])
    kind, places = _kind(*pair), _blocks(outputs, [row], extent(row), True)
    if first is None or second is None or kind is None or places is None:
        return None
    sizes = extent(row), extent(keys), extent(depth)
    if min(sizes[:2]) < MIN_ROWS or not 16 <= sizes[2] <= MAX_SIDE:
        return None
    values, start = places
    memories = [s.memory for s in steps if isinstance(s, Added | Kept)]
    arg = (
        "tile", "attention_logarithms", kind, *sizes, tuple(map(described, steps)), is_guarded,
        *[(o.outer, o.depth, o.wide) for o in (first, second)],
    )  # fmt: skip
    tile = _tile(arg, [first, second, *memories], values, start)
    applied += [Opt("TILE", row.arg.id, ROWS), Opt("TC", keys.arg.id, keys_of(64, sizes[2]))]
    thread = special("l0", 256)
    inside = mod(thread, 32)
    ends = []
    for half in range(2):
        down = add(add(mul(idiv(thread, 32), 16), idiv(inside, 4)), num(8 * half))
        here = add(start, down)
        # Four threads have the same row.
        gate = and_(lt(here, extent(row)), lt(mod(inside, 4), 1))
        part = make(O.BARRIER, dt.float32, (tile, num(0)), ("piece", half))
        stored = replace_all(store, {value: part, row: here, **values})
        ends.append(make(O.END, dt.void, (gated(stored, gate),)))
    return make(O.SINK, dt.void, tuple(ends))


def _folded(value: UOp) -> tuple[UOp, bool, UOp] | None:
    """The scores of a row, whether one of minus infinities is guarded, and their loop, where the
    value is the row's maximum plus the logarithm of the sum of its exponentials."""
    total = value.src[1].src[0]
    sums = [n for n in (total, *total.src) if is_reduction(n, O.ADD)]
    if value.dtype is not dt.float32 or len(sums) != 1 or sums[0].src[0].op != O.EXP:
        return None
    grown, keys = sums[0].src
    if grown.src[0].op != O.SUB or value.src[0] is not grown.src[0].src[1]:
        return None
    found = folded_scores(grown, total, keys)
    return None if found is None else (*found, keys)


# -- products with weights that are made again ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights, or what scores receive, in their loops."""

    scores: UOp
    logarithm: UOp  # per query
    product: UOp | None = None  # what is multiplied by weights is this
    own: UOp | None = None  # less that, per query


def _weights(node: UOp) -> _Weights | None:
    product = own = None
    node = plain(node)
    if node.op == O.MUL and {s.op for s in node.src} == {O.EXP, O.SUB}:
        node, apart = node.src if node.src[0].op == O.EXP else node.src[::-1]
        product, own = apart.src
        if not is_reduction(product, O.ADD) or product.src[0].op != O.MUL:
            return None
    if node.op != O.EXP or node.src[0].op != O.SUB:
        return None
    scores, logarithm = node.src[0].src
    return _Weights(scores, logarithm, product, own)


def _products(sink: UOp, applied: list[Opt]) -> UOp | None:
    (end,) = sink.src
    reduction = _outermost(end.src[0])
    if reduction is None or not is_reduction(reduction, O.ADD) or reduction.src[0].op != O.MUL:
        return None
    for factor, value in (reduction.src[0].src, reduction.src[0].src[::-1]):
        load = half_load(value)
        is_wide = factor.op == O.CAST and factor.dtype is dt.float32
        if load is None or not is_wide or factor.src[0].dtype is not load.dtype:
            continue
        weights = _weights(factor)
        if weights is not None:
            return _with_weights(end, reduction, weights, value, applied)
    return None


def _outermost(store: UOp) -> UOp | None:
    """The one reduction that is not inside another."""
    inner: set[UOp] = set()
    found = []
    for node in reversed(store.toposort()):
        if node.op == O.REDUCE and node not in inner:
            found.append(node)
            inner.update(n for n in node.toposort() if n.op == O.REDUCE)
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class _Parts:
    """A product with such weights: its loops, its memory, and how scores become weights."""

    row: UOp
    column: UOp  # over the elements of a result
    across: UOp  # what goes by
    widths: tuple[int, ...]  # of a result, then the depth of each first product
    kind: str
    operands: list[Operand]  # rows and what goes by, per first product; then a value of its own
    steps: tuple[Step, ...]
    numbers: list[Memory]  # per query
    is_turned: bool  # rows are keys


def _parts(
    outputs: tuple[UOp, ...], reduction: UOp, weights: _Weights, value: UOp
) -> _Parts | None:
    across = reduction.src[1]
    found = walk_scores(weights.scores)
    if found is None:
        return None
    products = [found[0], *([] if weights.product is None else [weights.product])]
    pairs = [pair for p in products if (pair := _ordered(p, across)) is not None]
    depths = [p.src[1] for p in products]
    if len(pairs) < len(products) or any(r.src[0].op != O.CONST for r in (across, *depths)):
        return None
    inner = frozenset[UOp]().union(*[p.ranges for p in products])
    columns = [r for r in outputs if r in value.ranges and r not in inner]
    passing = frozenset[UOp]().union(value.ranges, *[second.ranges for _, second in pairs])
    rows = [r for r in outputs if r in pairs[0][0].ranges and r not in passing]
    if len(columns) != 1:
        return None
    for row in sorted(rows, key=extent, reverse=True):
        sides = _sides(weights, found[1], row, columns[0], across)
        if sides is not None:
            break
    else:
        return None
    operands = _operands(pairs, depths, value, row, columns[0], across)
    kind = _kind(value, *[f for pair in pairs for f in pair])
    if operands is None or kind is None:
        return None
    widths = (extent(columns[0]), *map(extent, depths))
    return _Parts(row, columns[0], across, widths, kind, operands, *sides)


def _operands(
    pairs: list[tuple[UOp, UOp]],
    depths: list[UOp],
    value: UOp,
    row: UOp,
    column: UOp,
    across: UOp,
) -> list[Operand] | None:
    """The memory of all factors; None where a block cannot read one. What goes by is read once: of
    two products, the last factor must be the first one's too."""
    found = []
    for (first, second), depth in zip(pairs, depths, strict=True):
        found.append(contiguous_operand(first, [row], [depth]))
        found.append(contiguous_operand(second, [across], [depth]))
    found.append(contiguous_operand(value, [column], [across]))
    known = [o for o in found if o is not None]
    if len(known) < len(found) or len(pairs) == 1:
        return known if len(known) == len(found) else None
    shared, last = known[1], known.pop()
    is_same = last.memory is shared.memory and last.base is shared.base
    return known if is_same and (last.outer, last.depth) == (shared.depth, shared.outer) else None


def _with_weights(
    end: UOp, reduction: UOp, weights: _Weights, value: UOp, applied: list[Opt]
) -> UOp | None:
    outputs = end.src[1:]
    if any(r.src[0].op != O.CONST for r in outputs):
        return None
    found = _parts(outputs, reduction, weights, value)
    if found is None:
        return None
    row, column, widths, counts = found.row, found.column, found.widths, _counts(found)
    if min(counts) < MIN_ROWS or min(widths) < 16 or max(widths) > MAX_WIDTH:
        return None
    places = _blocks(outputs, [row, column], counts[0], not found.is_turned)
    if places is None:
        return None
    values, start = places
    tile = _gradient_tile(found, values, start)
    span = span_of(widths)
    applied += [Opt("TILE", row.arg.id, ROWS), Opt("TC", found.across.arg.id, span)]
    shape = TileShape(f"wgmma.{found.kind}", ROWS, side_of(widths[0]), span)
    lanes = store_lanes(end.src[0].src[0], column, shape)
    ends = []
    for piece in output_pieces(shape, lanes):
        here, along = add(start, piece.m), piece.n
        gate = and_(lt(here, counts[0]), lt(along, widths[0]))
        if lanes > 1:
            along = add(along, piece.lane)
        part = make(O.BARRIER, dt.float32, (tile, piece.lane), ("piece", piece.number))
        store = replace_all(end.src[0], {reduction: part, row: here, column: along, **values})
        loops = [piece.lane] if lanes > 1 else []
        ends.append(make(O.END, dt.void, (gated(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))


def _counts(found: _Parts) -> tuple[int, int]:
    return extent(found.row), extent(found.across)


def _gradient_tile(found: _Parts, values: dict[UOp, UOp], start: UOp) -> UOp:
    counts = _counts(found)
    memories = [*found.numbers, *[s.memory for s in found.steps if isinstance(s, Added | Kept)]]
    arg = (
        "tile", "attention_gradient", found.kind, *counts, found.widths,
        tuple(map(described, found.steps)), found.is_turned,
        tuple([(m.row, m.column, _is_even(m, counts[1])) for m in found.numbers]),
        *[(o.outer, o.depth, o.wide) for o in found.operands],
    )  # fmt: skip
    return _tile(arg, [*found.operands, *memories], values, start)


def _sides(
    weights: _Weights, parts: list[tuple[UOp, UOp]], row: UOp, column: UOp, across: UOp
) -> tuple[tuple[Step, ...], list[Memory], bool] | None:
    """The steps, the numbers per query, and whether rows are keys, if this is the rows' loop."""
    is_turned = across in weights.logarithm.ranges
    query, key = (across, row) if is_turned else (row, across)
    steps = steps_of(parts, query, column, key)
    numbers = []
    for node in (weights.logarithm, weights.own):
        if node is None:
            continue
        memory = memory_of(node, row, across) if node.dtype is dt.float32 else None
        if memory is None or (memory.row if is_turned else memory.column):
            return None
        if column in memory.base.ranges:
            return None
        numbers.append(memory)
    if steps is None:
        return None
    return tuple([_exchanged(s) for s in steps]) if is_turned else steps, numbers, is_turned


def _is_even(memory: Memory, across: int) -> bool:
    """Whether numbers of columns can be read two by two."""
    terms, offset = terms_of(memory.base)
    return memory.column == 1 and all(n % 2 == 0 for n in (offset, across, *terms.values()))


def _exchanged(step: Step) -> Step:
    """The same where rows are keys and columns queries."""
    if isinstance(step, Added | Kept):
        memory = step.memory
        return step._replace(memory=memory._replace(row=memory.column, column=memory.row))
    return step


def _ordered(product: UOp, across: UOp) -> tuple[UOp, UOp] | None:
    """The factors of a product: the one of rows, then the one that goes by."""
    for first, second in (product.src[0].src, product.src[0].src[::-1]):
        if half_load(first) is None or half_load(second) is None:
            return None
        if across not in first.ranges and across in second.ranges:
            return first, second
    return None


def _kind(*factors: UOp) -> str | None:
    kinds = {f.src[0].dtype for f in factors}
    return HALVES[kinds.pop()] if len(kinds) == 1 else None


def _blocks(
    outputs: tuple[UOp, ...], own: list[UOp], rows: int, is_reversed: bool
) -> tuple[dict[UOp, UOp], UOp] | None:
    """Where a block is along the other loops, and its first row; long rows of a triangle come
    first."""
    batch = [r for r in outputs if r not in own]
    count = prod(map(extent, batch))
    if count > 65535:
        return None
    down = -(-rows // ROWS)
    number = special("g0", down)
    start = mul(sub(num(down - 1), number) if is_reversed else number, ROWS)
    return unflatten(special("g1", count), batch), start


def _tile(
    arg: tuple[object, ...], memories: list[Operand | Memory], values: dict[UOp, UOp], start: UOp
) -> UOp:
    """The node: all memory, then where each begins for this block, then its first row."""
    sources = [m.source if isinstance(m, Memory) else m.memory for m in memories]
    bases = [replace_all(m.base, values) for m in memories]
    return make(O.BARRIER, dt.float32, (*sources, *bases, start), arg)
