"""Partition: a graph over values on a mesh becomes a graph over the parts that this process has.

In: roots of a tensor graph, some of them on a mesh. Out: roots on the host that compute the parts,
and how each is placed. Placements travel from sources to results by the rule of each op; where
sources disagree, the placement that costs least on the link of the mesh is taken. An op without a
rule gets its sources whole, which is right for every op.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import BufferRef
from svod.ir.node import UOp, make, toposort
from svod.ir.placement import Dims, Mesh, Placed, Placement, is_mesh, mesh_of
from svod.schedule.buckets import arranged
from svod.schedule.collectives import Carrier, Collective, Value, local_shape, narrowed, reshaped
from svod.schedule.placement_rules import RULES, elementwise, whole


class Partition:
    """The parts of a program; ``placed`` says how each root is held, None where it is whole."""

    def __init__(self, roots: Sequence[UOp]) -> None:
        self.values: dict[UOp, Value] = {}  # of nodes on the mesh
        self.host: dict[UOp, UOp] = {}  # nodes elsewhere that changed
        self.memory: dict[UOp, UOp] = {}  # BUFFERs of the mesh -> the same memory on the host
        self._written: dict[UOp, UOp] = {}  # ASSIGNs to a part of a tensor -> to the whole of it
        self._last: dict[UOp, UOp] = {}  # memory -> the last of these
        self.order = toposort(tuple(roots))
        self.mesh = _the_mesh(self.order)
        self.carrier = Carrier(self.mesh)
        self._below: dict[UOp, tuple[int, int]] = {}  # collectives below a node, and its depth
        for node in self.order:
            self._visit(node)
        self.placed: list[Placed | None] = []
        self.roots = [self._root(root) for root in roots]
        if self.carrier.moves:
            self.roots = arranged(self.mesh, self.carrier.moves, self.roots)

    @property
    def collectives(self) -> list[Collective]:
        """What goes between ranks, in order."""
        return self.carrier.done

    # -- nodes -------------------------------------------------------------------------------------

    def _visit(self, node: UOp) -> None:
        carrier, below = self.carrier, [self._below[s] for s in node.src]
        carrier.line = node.origin
        carrier.depends, carrier.depth = 0, 1 + max([depth for _, depth in below], default=0)
        for depends, _ in below:
            carrier.depends |= depends
        self._compute(node)
        self._below[node] = (carrier.depends, carrier.depth)

    def _compute(self, node: UOp) -> None:
        if node.op == O.BUFFER and is_mesh(node.src[-1].arg):
            self.values[node] = self._shown(node, self._host_memory(node))
        elif node.op == O.COPY:
            self._copy(node)
        elif any(s in self.values for s in node.src):
            if node.op == O.BUFFER_VIEW:
                raise UnsupportedError("bytes of a sharded tensor as another dtype", "MESH")
            self.values[node] = self._value(node)
        elif any(s in self.host for s in node.src):
            self.host[node] = node.with_sources(tuple([self.host.get(s, s) for s in node.src]))

    def _value(self, node: UOp) -> Value:
        if node.op == O.ASSIGN:
            return self._assign(node)
        if node.op == O.AFTER:
            return self._shown(_memory_of(node), self._local(node))
        rule = RULES.get(node.op)
        if rule is None and node.op in O.ELEMENTWISE:
            rule = elementwise
        return (rule or whole)(self, node)

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
        return found if found.shape == source.shape else self.as_shape(found, source.shape)

    def as_shape(self, value: Value, shape: tuple[Any, ...]) -> Value:
        """The value in another shape, split as far as its parts stay in one piece."""
        kept, dims = reshaped(self.mesh, value.shape, shape, value.placement.dims)
        if kept != value.placement.dims:
            value = self.carrier.place(value, kept)
        sizes = local_shape(self.mesh, shape, dims)
        parts = tuple([B.reshape(part, sizes) for part in value.parts])
        node = make(O.RESHAPE, value.parts[0].dtype, (value.parts[0],), shape)
        return Value(shape, Placement(dims, value.placement.partial), parts, (node, value))

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
        root = self._written.get(root, root)
        value = self.values.get(root)
        if value is None:
            self.placed.append(None)
            return self.host.get(root, root)
        self.carrier.depends, self.carrier.depth = self._below[root]
        value = self.carrier.settled(value)
        if value.shape != root.shape:
            value = self.as_shape(value, root.shape)
        if root.op == O.ASSIGN:
            self.placed.append(None)
            return _below(value.parts[0])
        dims = value.placement.dims
        if not any(dims):
            self.placed.append(None)
            return value.parts[0]
        self.placed.append(Placed(root.shape, dims))
        if len(value.parts) == 1:
            return value.parts[0]
        return B.cat([B.reshape(p, (1, *p.shape)) for p in value.parts], 0)

    # -- memory ------------------------------------------------------------------------------------

    def _host_memory(self, node: UOp) -> UOp:
        """The BUFFER of the host with the memory of one of the mesh."""
        found = self.memory.get(node)
        if found is None:
            ref = node.arg
            if ref.placed is not None:
                if ref.local is None or ref.local.buffer is not ref.buffer:
                    ref.local = BufferRef(local_size(self.mesh, ref.placed), ref.buffer)
                ref = ref.local
            found = self.memory[node] = make(O.BUFFER, node.dtype, (B.device("CPU"),), ref)
        return found

    def shape_of(self, node: UOp, shape: Any) -> Any:
        """The shape in which this process has memory of the mesh; of others the given one."""
        placed = node.arg.placed if node in self.memory else None
        if placed is None:
            return shape
        own = local_shape(self.mesh, placed.shape, placed.dims)
        return own if len(self.mesh.hosted) == 1 else (len(self.mesh.hosted), *own)

    def _shown(self, memory: UOp, local: UOp) -> Value:
        """What memory of the mesh holds: the parts of hosted ranks lie one after the other."""
        placed = memory.arg.placed
        if placed is None:
            return self.everywhere(local)
        shape = local_shape(self.mesh, placed.shape, placed.dims)
        count = len(self.mesh.hosted)
        rows = B.reshape(local, (count, *shape))
        parts = [B.reshape(narrowed(rows, 0, i, i + 1), shape) for i in range(count)]
        return Value(placed.shape, Placement(placed.dims), tuple(parts))

    def _local(self, node: UOp) -> UOp:
        """Memory of the mesh as the host has it, perhaps after assignments to it."""
        while node.op == O.RESHAPE:
            node = node.src[0]
        if node.op == O.BUFFER:
            return self._host_memory(node)
        if node.op == O.ASSIGN:
            node = self._written.get(node, node)
            return _below(self.values[node].parts[0])
        waits = dict.fromkeys([self._local(s) for s in node.src[1:]])
        found = make(O.AFTER, node.dtype, (self._host_memory(_memory_of(node)), *waits))
        found._shape = found.src[0].shape
        return found

    def _assign(self, node: UOp) -> Value:
        """A tensor takes a value: it stays placed as it was."""
        base = node.src[0]
        while base.op == O.RESHAPE:
            base = base.src[0]
        if base.op not in (O.BUFFER, O.AFTER, O.ASSIGN):
            return self._assign_part(node)
        memory, before = _memory_of(base), self._local(base)
        placed = memory.arg.placed
        value = self.source(node, 1)
        if placed is None:
            value = self.whole(value)
            part = B.assign(before, B.reshape(value.parts[0], before.shape))
            return self.everywhere(B.reshape(part, node.shape))
        value = self.folded(value)
        if value.shape != placed.shape:
            value = self.as_shape(value, placed.shape)
        value = self.carrier.place(value, placed.dims)
        shape = value.parts[0].shape
        rows = B.cat([B.reshape(p, (1, *shape)) for p in value.parts], 0)
        return self._shown(memory, B.assign(before, B.reshape(rows, before.shape)))

    def _assign_part(self, node: UOp) -> Value:
        """A part of a tensor takes a value: all of it is written, the rest with what it has."""
        target, value = node.src
        moves: list[UOp] = []
        base = target
        while base.op in _PARTS:
            moves.append(base)
            base = base.src[0]
        if base.op not in (O.BUFFER, O.AFTER, O.ASSIGN):
            kind = O.NAMES[base.op]
            raise UnsupportedError(f"a tensor on a mesh cannot be written through {kind}", "MESH")
        memory = _memory_of(base)
        if base.op == O.BUFFER:
            base = self._last.get(memory, base)
        inside = B.full(value.shape, True, dt.bool_)
        for move in moves:
            value, inside = _moved_back(value, move), _moved_back(inside, move)
        whole = make(O.ASSIGN, node.dtype, (base, B.where(inside, value, base)))
        whole._shape = base.shape
        shown = whole
        for move in reversed(moves):
            shown = make(move.op, move.dtype, (shown,), move.arg)
        for other in toposort((shown,)):
            if other not in self._below:
                self._visit(other)
        self._written[node] = self._last[memory] = whole
        return self.values[shown]


_PARTS = frozenset({O.RESHAPE, O.PERMUTE, O.FLIP, O.SHRINK})


def _moved_back(node: UOp, move: UOp) -> UOp:
    """Elements of a view where they are in what it was made of, with zeros for all others."""
    before, argument = move.src[0].shape, move.arg
    if move.op == O.RESHAPE:
        return B.reshape(node, before)
    if move.op == O.PERMUTE:
        return B.permute(node, tuple([argument.index(a) for a in range(len(argument))]))
    if move.op == O.FLIP:
        return B.flip(node, argument)
    sizes = zip(argument, before, strict=True)
    return B.pad(node, tuple([(start, n - stop) for (start, stop), n in sizes]))


def _memory_of(node: UOp) -> UOp:
    while node.op != O.BUFFER:
        node = node.src[0]
    return node


def _below(node: UOp) -> UOp:
    while node.op in O.MOVEMENT:
        node = node.src[0]
    return node


def local_size(mesh: Mesh, placed: Placed) -> int:
    """How many elements this process has of a value: the parts of all its ranks."""
    return int(prod(local_shape(mesh, placed.shape, placed.dims))) * len(mesh.hosted)


def on_mesh(roots: Sequence[UOp]) -> bool:
    """Whether anything in these graphs is on a mesh."""
    return any(n.op == O.DEVICE and is_mesh(n.arg) for n in toposort(tuple(roots)))


def _is_elsewhere(node: UOp) -> bool:
    """Whether a value is on another device than the host's processor."""
    return any(n.op == O.DEVICE and n.arg != "CPU" for n in node.toposort())


def _the_mesh(order: Sequence[UOp]) -> Mesh:
    names = {n.arg for n in order if n.op == O.DEVICE and is_mesh(n.arg)}
    if len(names) != 1:
        raise UnsupportedError(f"one program uses one mesh, not {sorted(names)}", "MESH")
    return mesh_of(names.pop())
