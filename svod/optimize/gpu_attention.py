"""Attention on a GPU: softmax(query @ key.T) @ value by blocks that never store the scores.

``find_attention`` recognises the loop form of the whole formula in one kernel: a sum over keys of
weights times values, the weights a softmax over the same axis of a contraction with scales and
masks. ``optimize_attention`` makes one TILE node of it: a block has 128 rows of queries and
walks over the keys with the running maxima and sums of its rows in registers. Scores and weights
stay in float32 until the second product, also where the formula rounds them on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import add, and_, lt, mul, num, sub
from svod.optimize.attention_scores import (
    Added,
    Kept,
    Step,
    described,
    half_load,
    is_reduction,
    plain,
    steps_of,
    walk_scores,
)
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special, unflatten
from svod.optimize.gpu_tile import (
    HALVES,
    TileShape,
    contiguous_operand,
    gated,
    output_pieces,
    store_lanes,
)
from svod.optimize.graph import extent, replace_all
from svod.optimize.opts import Opt

ROWS: Final = 128  # of queries in a block: two warpgroups of 64
MAX_SIDE: Final = 256  # elements of one query or value
MIN_ROWS: Final = 64  # below, most of a block would be idle
LARGEST: Final = finfo(dt.float32).max


@dataclass(frozen=True, slots=True)
class Attention:
    """The parts of a kernel that is attention, with something after it."""

    reduction: UOp
    query: UOp
    key: UOp
    value: UOp
    steps: tuple[Step, ...]  # from the product to the softmax
    is_guarded: bool  # rows without keys are zeros
    row: UOp  # loop over queries
    column: UOp  # over the elements of a result
    keys: UOp
    depth: UOp


def find_attention(sink: UOp) -> Attention | None:
    """The attention of a kernel, if that is what it is."""
    if len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return None
    end = sink.src[0]
    outputs = list(end.src[1:])
    inner: set[UOp] = set()
    outermost = []
    for node in reversed(end.src[0].toposort()):
        if node.op == O.REDUCE and node not in inner:
            outermost.append(node)
            inner.update(n for n in node.toposort() if n.op == O.REDUCE)
    if len(outermost) != 1:
        return None
    (reduction,) = outermost
    if reduction.arg != O.ADD or len(reduction.src) != 2 or reduction.src[0].op != O.MUL:
        return None
    keys = reduction.src[1]
    for weights, value in (reduction.src[0].src, reduction.src[0].src[::-1]):
        if half_load(value) is None or not _is_rounded(weights, value):
            continue
        found = _softmax(weights, keys)
        if found is not None:
            return _with_scores(reduction, found, value, keys, outputs)
    return None


def _is_rounded(weights: UOp, value: UOp) -> bool:
    """Whether the formula itself rounds the weights to the type of the values."""
    is_wide = weights.op == O.CAST and weights.dtype is dt.float32
    return is_wide and weights.src[0].dtype is value.src[0].dtype


def _softmax(node: UOp, keys: UOp) -> tuple[UOp, bool] | None:
    """What a node is the softmax of, over the loop ``keys``, and whether rows of minus infinity
    are zeros in it."""
    node = plain(node)
    if node.op not in (O.MUL, O.DIV):
        return None
    is_turned = node.op == O.MUL and node.src[1].op == O.EXP
    grown, total = node.src[::-1] if is_turned else node.src
    if grown.op != O.EXP or grown.src[0].op != O.SUB:
        return None
    if node.op == O.MUL:
        if total.op != O.RECIP:
            return None
        total = total.src[0]
    return folded_scores(grown, total, keys)


def folded_scores(grown: UOp, total: UOp, keys: UOp) -> tuple[UOp, bool] | None:
    """The scores whose exponentials over their maximum are added up to ``total``."""
    scores, largest = grown.src[0].src
    top, below = _without_floor(largest), _without_zero(total)
    is_guarded = top is not largest and below is not total
    if is_guarded:
        largest, total = top, below
    if not is_reduction(total, O.ADD) or not is_reduction(largest, O.MAX):
        return None
    is_total = _same(total.src[0], grown, {total.src[1]: keys})
    is_largest = _same(largest.src[0], scores, {largest.src[1]: keys})
    return (scores, is_guarded) if is_total and is_largest else None


def _without_floor(node: UOp) -> UOp:
    """A maximum, below its limit to what is finite."""
    limit = node.src[1] if node.op == O.MAX else node
    is_lowest = limit.op == O.CONST and limit.arg == -LARGEST
    return node.src[0] if is_lowest else node


def _without_zero(node: UOp) -> UOp:
    """A sum, where it is one instead of zero."""
    if node.op != O.WHERE or node.src[0].op != O.EQ or node.src[0].src[0] is not node.src[2]:
        return node
    numbers = (node.src[0].src[1], node.src[1])
    return node.src[2] if [n.arg for n in numbers if n.op == O.CONST] == [0, 1] else node


def _same(a: UOp, b: UOp, ranges: dict[UOp, UOp]) -> bool:
    """Whether a is b once its loops are renamed; inner loops find their partners on the way."""
    known: dict[tuple[UOp, UOp], bool] = {}
    names = dict(ranges)

    def visit(x: UOp, y: UOp) -> bool:
        if x.op == O.RANGE and x in names:
            return names[x] is y
        if x is y and not any(r in names for r in x.ranges):
            return True
        found = known.get((x, y))
        if found is not None:
            return found
        alike = x.op == y.op and x.dtype is y.dtype and len(x.src) == len(y.src)
        if alike and x.op == O.REDUCE:
            for r, s in zip(x.src[1:], y.src[1:], strict=True):
                alike = alike and r.src == s.src
                names.setdefault(r, s)
        alike = alike and (x.op == O.RANGE or x.arg == y.arg)
        if alike and x.op == O.RANGE:
            alike = names.get(x, x) is y
        elif alike:
            alike = all(visit(s, t) for s, t in zip(x.src, y.src, strict=True))
        known[x, y] = alike
        return alike

    return visit(a, b)


def _with_scores(
    reduction: UOp, softmax: tuple[UOp, bool], value: UOp, keys: UOp, outputs: list[UOp]
) -> Attention | None:
    scores, is_guarded = softmax
    found = walk_scores(scores)
    if found is None:
        return None
    product, parts = found
    depth = product.src[1]
    for query, key in (product.src[0].src, product.src[0].src[::-1]):
        if half_load(query) is None or half_load(key) is None:
            return None
        if keys not in query.ranges and keys in key.ranges:
            break
    else:
        return None
    rows = [r for r in outputs if r in query.ranges and r not in key.ranges]
    columns = [r for r in outputs if r in value.ranges and r not in query.ranges | key.ranges]
    rows = [r for r in rows if r not in value.ranges]
    if len(columns) != 1 or any(r.src[0].op != O.CONST for r in (*outputs, keys, depth)):
        return None
    # Heads that share their keys look like rows too: the longest axis the masks agree with is it.
    for row in sorted(rows, key=extent, reverse=True):
        steps = steps_of(parts, row, columns[0], keys)
        if steps is not None:
            return Attention(
                reduction, query, key, value, steps, is_guarded, row, columns[0], keys, depth
            )
    return None


# -- the tile -------------------------------------------------------------------------------------


def side_of(size: int) -> int:
    """Elements of a query or value in shared memory."""
    return max(64, 1 << (size - 1).bit_length())


def keys_of(columns: int, depth: int) -> int:
    """Keys of one step: as many as shared memory and registers hold."""
    return 64 if side_of(max(columns, depth)) > 128 else 128


def optimize_attention(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no attention, or of other sizes."""
    if not machine.has_wgmma:
        return None
    found = find_attention(sink)
    if found is None:
        return None
    rows, columns, keys, depth = map(extent, (found.row, found.column, found.keys, found.depth))
    if max(columns, depth) > MAX_SIDE or min(rows, keys) < MIN_ROWS or min(columns, depth) < 16:
        return None
    kinds = {f.src[0].dtype for f in (found.query, found.key, found.value)}
    if len(kinds) != 1:
        return None
    query = contiguous_operand(found.query, [found.row], [found.depth])
    key = contiguous_operand(found.key, [found.keys], [found.depth])
    value = contiguous_operand(found.value, [found.column], [found.keys])
    if query is None or key is None or value is None:
        return None
    (end,) = sink.src
    batch = [r for r in end.src[1:] if r not in (found.row, found.column)]
    count = prod(map(extent, batch))
    down = -(-rows // ROWS)
    if count > 65535:
        return None
    values = unflatten(special("g1", count), batch)
    # The longest rows of a triangle come first, so that short ones fill the end.
    start = mul(sub(num(down - 1), special("g0", down)), ROWS)
    memories = [s.memory for s in found.steps if isinstance(s, Added | Kept)]
    sources = [query.memory, key.memory, value.memory, *[m.source for m in memories]]
    bases = [replace_all(b, values) for b in (query.base, key.base, value.base)]
    bases += [replace_all(m.base, values) for m in memories]
    kind = HALVES[kinds.pop()]
    arg = (
        "tile", "attention", kind, rows, columns, keys, depth, tuple(map(described, found.steps)),
        found.is_guarded, *[(o.outer, o.depth, o.wide) for o in (query, key, value)],
    )  # fmt: skip
    tile = make(O.BARRIER, dt.float32, (*sources, *bases, start), arg)
    applied += [
        Opt("TILE", found.row.arg.id, ROWS),
        Opt("TC", found.keys.arg.id, keys_of(columns, depth)),
    ]
    shape = TileShape(f"wgmma.{kind}", ROWS, side_of(columns), keys_of(columns, depth))
    lanes = store_lanes(end.src[0].src[0], found.column, shape)
    ends = []
    for piece in output_pieces(shape, lanes):
        row, column = add(start, piece.m), piece.n
        gate = and_(lt(row, rows), lt(column, columns))
        if lanes > 1:
            column = add(column, piece.lane)
        part = make(O.BARRIER, dt.float32, (tile, piece.lane), ("piece", piece.number))
        places = {found.reduction: part, found.row: row, found.column: column, **values}
        store = replace_all(end.src[0], places)
        loops = [piece.lane] if lanes > 1 else []
        ends.append(make(O.END, dt.void, (gated(store, gate), *loops)))
    return make(O.SINK, dt.void, tuple(ends))
