"""Partition: a graph over values on a mesh becomes a graph over the parts that this process has.

In: roots of a tensor graph, some of them on a mesh. Out: roots on the host that compute the parts,
and how each is placed. Placements travel from sources to results by the rule of each op; where
sources disagree, the placement that costs least on the link of the mesh is taken. An op without a
rule gets its sources whole, which is right for every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import BufferRef, IndexCheck
from svod.ir.node import UOp, const, make, toposort
from svod.ir.placement import Dims, Mesh, Placed, Placement, is_mesh, mesh_of
from svod.schedule.collectives import Carrier, Collective, Value, local_shape, narrowed, reshaped

_MEMORY: Final = frozenset({O.BUFFER, O.BUFFER_VIEW})
_FOLDS: Final = frozenset({O.ADD, O.MUL, O.MAX, O.MIN, O.AND, O.OR, O.XOR})


class Partition:
    """The parts of a program; ``placed`` says how each root is held, None where it is whole."""

    def __init__(self, roots: Sequence[UOp]) -> None:
        self.values: dict[UOp, Value] = {}  # of nodes on the mesh
        self.host: dict[UOp, UOp] = {}  # nodes elsewhere that changed
        self.order = toposort(tuple(roots))
        self.mesh = _the_mesh(self.order)
        self.carrier = Carrier(self.mesh)
        for node in self.order:
            self.carrier.line = node.origin
            self._visit(node)
        self.placed: list[Placed | None] = []
        self.roots = [self._root(root) for root in roots]

    @property
    def collectives(self) -> list[Collective]:
        """What goes between ranks, in order."""
        return self.carrier.done

    # -- nodes -------------------------------------------------------------------------------------

    def _visit(self, node: UOp) -> None:
        if node.op == O.BUFFER and is_mesh(node.src[-1].arg):
            self.values[node] = self._memory(node)
        elif node.op == O.COPY:
            self._copy(node)
        elif any(s in self.values for s in node.src):
            if node.op == O.BUFFER_VIEW:
                raise UnsupportedError("bytes of a sharded tensor as another dtype", "MESH")
            rule = _RULES.get(node.op)
            if rule is None and node.op in O.ELEMENTWISE:
                rule = _elementwise
            self.values[node] = (rule or _whole)(self, node)
        elif any(s in self.host for s in node.src):
            self.host[node] = node.with_sources(tuple([self.host.get(s, s) for s in node.src]))

    def _memory(self, node: UOp) -> Value:
        """A BUFFER: the parts of hosted ranks lie one after the other."""
        placed = node.arg.placed
        local = _host_memory(node)
        if placed is None:
            return self.everywhere(local)
        shape = local_shape(self.mesh, placed.shape, placed.dims)
        count = len(self.mesh.hosted)
        rows = B.reshape(local, (count, *shape))
        parts = [B.reshape(narrowed(rows, 0, i, i + 1), shape) for i in range(count)]
        return Value(placed.shape, Placement(placed.dims), tuple(parts))

    def _copy(self, node: UOp) -> None:
        source, where = node.src[0], node.src[1].arg
        if not is_mesh(where):
            if source in self.values:
                inner = self.whole(self.source(node, 0)).parts[0]
                self.host[node] = inner if where == "CPU" else B.copy(inner, where)
            elif source in self.host:
                self.host[node] = node.with_sources((self.host[source], node.src[1]))
            return
        if source in self.values:
            self.values[node] = self.values[source]
            return
        inner = self.host.get(source, source)
        self.values[node] = self.everywhere(B.copy(inner, "CPU") if _is_elsewhere(inner) else inner)

    def everywhere(self, node: UOp) -> Value:
        """A value that every rank has."""
        dims = (None,) * len(node.shape)
        return Value(node.shape, Placement(dims), (node,) * len(self.mesh.hosted))

    def source(self, node: UOp, place: int) -> Value:
        """The value of a source, in the shape it has in the graph."""
        source = node.src[place]
        found = self.values.get(source)
        if found is None:
            return self.everywhere(self.host.get(source, source))
        return found if found.shape == source.shape else _as_shape(self, found, source.shape)

    def whole(self, value: Value) -> Value:
        return self.carrier.place(value, (None,) * len(value.shape))

    def folded(self, value: Value) -> Value:
        """The value without terms that wait to be folded."""
        return self.carrier.place(value, value.placement.dims)

    def built(self, node: UOp, dims: Dims, sources: Sequence[Value], arg: Any = None) -> Value:
        """The op over the parts of its sources."""
        parts = tuple(
            make(node.op, node.dtype, own, node.arg if arg is None else arg)
            for own in zip(*[s.parts for s in sources], strict=True)
        )
        return Value(node.shape, Placement(dims), parts)

    # -- results -----------------------------------------------------------------------------------

    def _root(self, root: UOp) -> UOp:
        value = self.values.get(root)
        if value is None:
            self.placed.append(None)
            return self.host.get(root, root)
        if value.shape != root.shape:
            value = _as_shape(self, value, root.shape)
        value = self.folded(value)
        if root.op == O.ASSIGN:
            self.placed.append(None)
            return _assignment_below(value.parts[0])
        dims = value.placement.dims
        if not any(dims):
            self.placed.append(None)
            return value.parts[0]
        self.placed.append(Placed(root.shape, dims))
        if len(value.parts) == 1:
            return value.parts[0]
        return B.cat([B.reshape(p, (1, *p.shape)) for p in value.parts], 0)


def on_mesh(roots: Sequence[UOp]) -> bool:
    """Whether anything in these graphs is on a mesh."""
    return any(n.op == O.DEVICE and is_mesh(n.arg) for n in toposort(tuple(roots)))


# -- rules ----------------------------------------------------------------------------------------

Rule = Callable[[Partition, UOp], Value]


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


def _elementwise(at: Partition, node: UOp) -> Value:
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


def _as_shape(at: Partition, value: Value, shape: tuple[Any, ...]) -> Value:
    kept, dims = reshaped(at.mesh, value.shape, shape, value.placement.dims)
    if kept != value.placement.dims:
        value = at.carrier.place(value, kept)
    sizes = local_shape(at.mesh, shape, dims)
    parts = tuple([B.reshape(part, sizes) for part in value.parts])
    node = make(O.RESHAPE, value.parts[0].dtype, (value.parts[0],), shape)
    return Value(shape, Placement(dims, value.placement.partial), parts, (node, value))


def _reshape(at: Partition, node: UOp) -> Value:
    found = at.values[node.src[0]]
    return _as_shape(at, found, node.shape)


def _permute(at: Partition, node: UOp) -> Value:
    value = at.source(node, 0)
    dims = tuple([value.placement.dims[a] for a in node.arg])
    parts = tuple([B.permute(part, node.arg) for part in value.parts])
    return Value(node.shape, Placement(dims, value.placement.partial), parts, (node, value))


def _expand(at: Partition, node: UOp) -> Value:
    value = at.folded(at.source(node, 0))
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
    indices = [at.carrier.place(i, where) for i in indices]
    if split is not None:
        indices = [_shifted(at, indices[0], split, table.parts[0].shape[0])]
    found = at.built(node, (*where, *kept[count:]), [table, *indices])
    if split is None:
        return found
    terms = ((split, O.OR if node.dtype.kind == "b" else O.ADD),)
    return Value(node.shape, Placement(found.placement.dims, terms), found.parts)


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
    indices = [at.carrier.place(i, where) for i in indices]
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
    value = at.folded(at.source(node, 0))
    return at.built(node, value.placement.dims, [value])


def _whole(at: Partition, node: UOp) -> Value:
    """An op that needs all of its sources, as linear algebra and loops over time."""
    sources = [at.whole(at.source(node, i)) for i in range(len(node.src))]
    return at.built(node, (None,) * len(node.shape), sources)


def _assign(at: Partition, node: UOp) -> Value:
    """The whole of a tensor takes a value: it stays placed as it was."""
    target = node.src[0]
    while target.op in (O.RESHAPE, O.ASSIGN):
        target = target.src[0]
    if target.op != O.BUFFER:
        raise UnsupportedError(
            "a part of a tensor on a mesh cannot be written: compute the whole of it", "MESH"
        )
    placed, local = target.arg.placed, _host_memory(target)
    before = _assignment_target(at, node.src[0], local)
    value = at.source(node, 1)
    if placed is None:
        value = at.whole(value)
        part = B.assign(before, B.reshape(value.parts[0], before.shape))
        return at.everywhere(B.reshape(part, node.shape))
    value = at.folded(value)
    if value.shape != placed.shape:
        value = _as_shape(at, value, placed.shape)
    value = at.carrier.place(value, placed.dims)
    count, shape = len(value.parts), value.parts[0].shape
    rows = B.cat([B.reshape(p, (1, *shape)) for p in value.parts], 0)
    done = B.assign(before, B.reshape(rows, before.shape))
    stack = B.reshape(done, (count, *shape))
    parts = [B.reshape(narrowed(stack, 0, i, i + 1), shape) for i in range(count)]
    return Value(placed.shape, Placement(placed.dims), tuple(parts))


def _assignment_target(at: Partition, target: UOp, local: UOp) -> UOp:
    """The memory of a target, after the assignments that come before."""
    while target.op == O.RESHAPE:
        target = target.src[0]
    if target.op != O.ASSIGN:
        return local
    return _assignment_below(at.values[target].parts[0])


def _assignment_below(node: UOp) -> UOp:
    while node.op in O.MOVEMENT:
        node = node.src[0]
    return node


# -- pieces ---------------------------------------------------------------------------------------


def _host_memory(node: UOp) -> UOp:
    """The BUFFER of the host with the memory of one of a mesh; the same for each mention of it."""
    ref = node.arg
    if ref.placed is None:
        return make(O.BUFFER, node.dtype, (B.device("CPU"),), ref)
    if ref.local is None:
        ref.local = BufferRef(ref.buffer.size, ref.buffer)
    return make(O.BUFFER, node.dtype, (B.device("CPU"),), ref.local)


def _is_elsewhere(node: UOp) -> bool:
    """Whether a value is on another device than the host's processor."""
    return any(n.op == O.DEVICE and n.arg != "CPU" for n in node.toposort())


def _the_mesh(order: Sequence[UOp]) -> Mesh:
    names = {n.arg for n in order if n.op == O.DEVICE and is_mesh(n.arg)}
    if len(names) != 1:
        raise UnsupportedError(f"one program uses one mesh, not {sorted(names)}", "MESH")
    return mesh_of(names.pop())


_RULES: Final[dict[int, Rule]] = {
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
    O.ASSIGN: _assign,
}
