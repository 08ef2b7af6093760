"""Rules of placement: for each op how its parts are computed from the parts of its sources.

In: the partition so far and a node. Out: the node's value as parts. Where a rule needs a source
placed otherwise, the carrier places it; what is behind the end of an axis that is not split equally
is of no use to anybody, and folds over such an axis make it neutral first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import IndexCheck
from svod.ir.node import UOp, const
from svod.ir.placement import Dims, Placement
from svod.schedule.collectives import Value, local_shape

if TYPE_CHECKING:
    from svod.schedule.partition import Partition

_FOLDS: Final = frozenset({O.ADD, O.MUL, O.MAX, O.MIN, O.AND, O.OR, O.XOR})
Rule = Callable[["Partition", UOp], Value]


def agreed(at: Partition, sources: Sequence[Value]) -> Dims:
    """How sources of one shape are best placed: the cheapest of what they have, then the most
    split."""
    rank = len(sources[0].shape)
    by_size = sorted(sources, key=lambda s: -_weight(s))
    merged: list[str | None] = [None] * rank
    for source in by_size:
        for dim, axis in enumerate(source.placement.dims):
            if axis is not None and merged[dim] is None and axis not in merged:
                merged[dim] = axis
    choices = [tuple(merged), *[s.placement.dims for s in by_size]]

    def price(dims: Dims) -> tuple[float, int]:
        return sum([at.carrier.cost(s, dims) for s in sources]), -sum([d is not None for d in dims])

    return min(choices, key=price)


def _weight(value: Value) -> int:
    while value.below is not None:
        value = value.below[1]
    total = 1
    for n in value.shape:
        total *= n if type(n) is int else 1
    return total


def elementwise(at: Partition, node: UOp) -> Value:
    is_view = node.op == O.BITCAST
    if is_view and node.dtype is node.src[0].dtype and type(node.arg) is not IndexCheck:
        return at.source(node, 0)  # a mark for gradients
    count = 1 if is_view else len(node.src)  # checks have more
    sources = [at.source(node, i) for i in range(count)]
    shaped = [s for s in sources if s.shape]
    if not shaped:
        return at.built(node, (), [at.folded(s) for s in sources])
    terms = {s.placement for s in sources}
    if node.op == O.ADD and len(terms) == 1 and len(shaped) == 2:
        (placement,) = terms
        if placement.partial and all(op == O.ADD for _, op in placement.partial):
            found = at.built(node, placement.dims, sources)
            return Value(found.shape, placement, found.parts)
    dims = agreed(at, shaped)
    placed = [at.carrier.place(s, dims) if s.shape else at.folded(s) for s in sources]
    return at.built(node, dims, placed)


def _reshape(at: Partition, node: UOp) -> Value:
    return at.as_shape(at.values[node.src[0]], node.shape)


def _permute(at: Partition, node: UOp) -> Value:
    value = at.source(node, 0)
    dims = tuple([value.placement.dims[a] for a in node.arg])
    parts = tuple([B.permute(part, node.arg) for part in value.parts])
    return Value(node.shape, Placement(dims, value.placement.partial), parts, (node, value))


def _expand(at: Partition, node: UOp) -> Value:
    sizes = enumerate(zip(node.src[0].shape, node.shape, strict=True))
    value = _without(at, at.source(node, 0), [a for a, (n, m) in sizes if n is not m and n != m])
    dims = value.placement.dims
    shape = local_shape(at.mesh, node.shape, dims)
    parts = tuple([B.expand(part, shape) for part in value.parts])
    return Value(node.shape, Placement(dims), parts, (node, value))


def _without(at: Partition, value: Value, axes: Sequence[int]) -> Value:
    """The value with some axes whole."""
    dims = tuple([None if a in axes else d for a, d in enumerate(value.placement.dims)])
    return at.carrier.place(value, dims)


def _cut(at: Partition, node: UOp) -> Value:
    """PAD, SHRINK and FLIP: axes that change are whole."""
    value = at.source(node, 0)
    if node.op == O.FLIP:
        changed = list(node.arg)
    elif node.op == O.PAD:
        changed = [a for a, pair in enumerate(node.arg) if pair != (0, 0)]
    else:
        changed = [a for a, p in enumerate(node.arg) if p != (0, value.shape[a])]
    value = _without(at, value, changed)
    arg = node.arg
    if node.op == O.SHRINK:
        own = local_shape(at.mesh, value.shape, value.placement.dims)
        pairs = enumerate(node.arg)
        arg = tuple([pair if a in changed else (0, own[a]) for a, pair in pairs])
    return at.built(node, value.placement.dims, [value], arg)


def _reduce(at: Partition, node: UOp) -> Value:
    value = at.source(node, 0)
    op, axes = node.arg
    if any(term != O.ADD for _, term in value.placement.partial) or op != O.ADD:
        value = at.folded(value)  # only sums of sums may wait
    dims, partial = value.placement
    lost = [dims[a] for a in axes if dims[a] is not None]
    if lost and op not in _FOLDS:
        value = _without(at, value, axes)
        dims, partial = value.placement
        lost = []
    kept = tuple([None if a in axes else d for a, d in enumerate(dims)])
    if lost:
        value = at.carrier.without_padding(value, op, axes)
    found = at.built(node, kept, [value])
    terms = (*partial, *[(axis, op) for axis in lost if axis is not None])
    return Value(node.shape, Placement(kept, terms), found.parts)


def _cat(at: Partition, node: UOp) -> Value:
    axis = node.arg
    sources = [_without(at, at.source(node, i), [axis]) for i in range(len(node.src))]
    sizes = {s.shape for s in sources}
    if len(sizes) == 1:
        dims = agreed(at, sources)
    else:
        dims = max(sources, key=_weight).placement.dims
    return at.built(node, dims, [at.carrier.place(s, dims) for s in sources])


def _gather(at: Partition, node: UOp) -> Value:
    """Rows by index: each rank reads those it has, and what lies outside of an axis is 0."""
    count = len(node.src) - 1
    table = at.folded(at.source(node, 0))
    indices = [at.folded(at.source(node, i + 1)) for i in range(count)]
    split = table.placement.dims[0] if count == 1 else None
    kept = (split, *[None] * (count - 1), *table.placement.dims[count:])
    where = agreed(at, indices) if indices[0].shape else ()
    used = {d for d in kept if d is not None}
    where = tuple([None if d in used else d for d in where])
    table = at.carrier.place(table, kept)
    indices = [_within_reach(at, at.carrier.place(i, where)) for i in indices]
    if split is not None:
        indices = [_shifted(at, indices[0], split, table.parts[0].shape[0])]
    found = at.built(node, (*where, *kept[count:]), [table, *indices])
    if split is None:
        return found
    terms = ((split, O.OR if node.dtype.kind == "b" else O.ADD),)
    return Value(node.shape, Placement(found.placement.dims, terms), found.parts)


def _within_reach(at: Partition, index: Value) -> Value:
    """Indices of which those in padding are 0, which every axis has."""
    return at.carrier.without_padding(index, O.ADD)


def _shifted(at: Partition, index: Value, axis: str, size: int) -> Value:
    """Indices as the ranks along an axis count them, each from its own first row."""
    parts = []
    for part, rank in zip(index.parts, at.mesh.hosted, strict=True):
        wide = B.cast(part, dt.int64)
        start = size * at.mesh.coordinate(rank, axis)
        parts.append(B.binary(O.SUB, wide, const(start, dt.int64)) if start else wide)
    return Value(index.shape, index.placement, tuple(parts))


def _scatter(at: Partition, node: UOp) -> Value:
    """Into rows by index. Rows are whole, and every rank writes all of them in order, but for sums
    into zeros, of which each rank makes those of its own values."""
    count = len(node.src) - 2
    table, values = at.folded(at.source(node, 0)), at.folded(at.source(node, 1))
    indices = [at.folded(at.source(node, i + 2)) for i in range(count)]
    lead = len(indices[0].shape)
    rest = table.placement.dims[count:]
    own = values.placement.dims
    if node.arg == "add" and is_zero(node.src[0]) and node.dtype.kind in "fiu":
        rest = own[lead:]
        where = own[:lead]
        terms = tuple([(d, O.ADD) for d in where if d is not None])
    else:
        where, terms = (None,) * lead, ()
    table = at.carrier.place(table, ((None,) * count + rest))
    values = at.carrier.place(values, (*where, *rest))
    if terms:
        values = at.carrier.without_padding(values, O.ADD, range(lead))
    indices = [_within_reach(at, at.carrier.place(i, where)) for i in indices]
    found = at.built(node, table.placement.dims, [table, values, *indices])
    return Value(node.shape, Placement(found.placement.dims, terms), found.parts)


def is_zero(node: UOp) -> bool:
    while node.op in O.MOVEMENT or node.op in (O.CAST, O.CONTIGUOUS):
        node = node.src[0]
    return node.op == O.CONST and node.arg == 0


def _sort(at: Partition, node: UOp) -> Value:
    value = _without(at, at.source(node, 0), [len(node.shape) - 1])
    return at.built(node, value.placement.dims, [value])


def _shard(at: Partition, node: UOp) -> Value:
    return at.carrier.place(at.source(node, 0), node.arg.dims)


def _contiguous(at: Partition, node: UOp) -> Value:
    value = at.source(node, 0)
    found = at.built(node, value.placement.dims, [value])
    # Terms wait until it is known where somebody needs their sum.
    return Value(node.shape, value.placement, found.parts)


def whole(at: Partition, node: UOp) -> Value:
    """An op that needs all of its sources, as linear algebra and loops over time."""
    sources = [at.whole(at.source(node, i)) for i in range(len(node.src))]
    return at.built(node, (None,) * len(node.shape), sources)


RULES: Final[dict[int, Rule]] = {
    O.RESHAPE: _reshape,
    O.PERMUTE: _permute,
    O.EXPAND: _expand,
    O.PAD: _cut,
    O.SHRINK: _cut,
    O.FLIP: _cut,
    O.REDUCE_AXIS: _reduce,
    O.CAT: _cat,
    O.GATHER: _gather,
    O.SCATTER: _scatter,
    O.SORT: _sort,
    O.SHARD: _shard,
    O.CONTIGUOUS: _contiguous,
}
