"""Collectives: parts of a value go from the ranks that have them to those that need them.

In: a value as one node per hosted rank, and its placement. Out: the same value placed otherwise.
Where this process hosts every rank, a collective is ordinary nodes over the parts of all ranks;
else it is a CUSTOM_FUNCTION that a carrier implements (``buckets``). Parts are alike in size:
where an axis is not split equally, what is behind its end is padding, with values of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import CustomArg
from svod.ir.node import UOp, const, make
from svod.ir.placement import Dims, Mesh, Placement
from svod.ir.reductions import identity
from svod.schedule.buckets import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, Move


@dataclass(frozen=True, slots=True)
class Value:
    """A value on a mesh: its parts, alike in shape, one for each rank of this process."""

    shape: tuple[Any, ...]  # of the whole
    placement: Placement
    parts: tuple[UOp, ...]
    # What this is a mere view of: it is placed otherwise by placing that otherwise.
    below: tuple[UOp, Value] | None = None


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a program, for people to look at."""

    kind: str
    axis: str
    nbytes: int  # that each rank sends
    shape: tuple[int, ...]
    line: Any

    def text(self) -> str:
        kind = self.kind.partition(".")[2].replace("_", "-")
        where = f"  {self.line[0]}:{self.line[1]}" if isinstance(self.line, tuple) else ""
        return f"{kind:14} over {self.axis:8} {self.nbytes:>12,} bytes  {list(self.shape)}{where}"


class Carrier:
    """Moves values of one program over its mesh, and notes what is moved."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.done: list[Collective] = []
        self.line: Any = None  # of user code, for the next collectives
        self.moves: list[Move] = []  # between processes
        self.depends = 0  # a bit for each collective that the node at hand depends on
        self.depth = 0  # of this node
        # By the value, not by its parts: these may be alike on one rank and not on another.
        self._known: dict[tuple[int, Dims], tuple[Value, Value, int]] = {}

    # -- placing otherwise -------------------------------------------------------------------------

    def place(self, value: Value, dims: Dims) -> Value:
        """The same value with its axes split as ``dims`` says, and no terms left to fold."""
        if value.placement == Placement(dims):
            return value
        key = (id(value), dims)
        known = self._known.get(key)
        if known is None:
            found = self._place(value, dims)
            known = self._known[key] = (found, value, self.depends)
        self.depends |= known[2]
        return known[0]

    def settled(self, value: Value) -> Value:
        """A value without terms, placed as somebody needed it already, else as it is."""
        if value.placement.partial:
            for found, given, _ in self._known.values():
                if given is value and not found.placement.partial:
                    return found
        return self.place(value, value.placement.dims)

    def cost(self, value: Value, dims: Dims) -> float:
        """Seconds that ``place`` would take on the link of the mesh."""
        if value.placement == Placement(dims):
            return 0.0
        if (id(value), dims) in self._known:
            return 0.0
        through = _through(value, dims, self.mesh)
        if through is not None:
            return self.cost(through[0], through[1])
        return sum([self.mesh.link.cost(n) for *_, n in self._steps(value, dims)])

    def _place(self, value: Value, dims: Dims) -> Value:
        through = _through(value, dims, self.mesh)
        if through is not None:
            source, wanted, rebuild = through
            inner = self.place(source, wanted)
            parts = tuple([rebuild(part, dims) for part in inner.parts])
            return Value(value.shape, Placement(dims), parts)
        for kind, axis, old, new, nbytes in self._steps(value, dims):
            value = self._moved(value, kind, axis, old, new, nbytes)
        return self.sliced(value, dims)

    def sliced(self, value: Value, dims: Dims) -> Value:
        """Every rank takes its part of axes that it has whole."""
        parts = list(value.parts)
        for dim, axis in enumerate(dims):
            if axis is not None and value.placement.dims[dim] is None:
                parts = [
                    self._part(part, dim, axis, self.mesh.coordinate(rank, axis))
                    for part, rank in zip(parts, self.mesh.hosted, strict=True)
                ]
        return Value(value.shape, Placement(dims), tuple(parts))

    def _part(self, node: UOp, dim: int, axis: str, place: int) -> UOp:
        """What the rank at a place along an axis has of a value; behind its end there are zeros."""
        length = node.shape[dim]
        size = part_of(length, self.mesh.size(axis))
        start, stop = place * size, min(length, (place + 1) * size)
        if stop - start == size:
            return narrowed(node, dim, start, stop)
        if start >= stop:  # all of it is padding
            start, stop = 0, min(length, size)
        pairs = [(0, 0)] * len(node.shape)
        pairs[dim] = (0, size - (stop - start))
        return B.pad(narrowed(node, dim, start, stop), tuple(pairs))

    def without_padding(self, value: Value, op: int, axes: Sequence[int] | None = None) -> Value:
        """The value with what is behind the end of axes neutral to a fold."""
        dims, shape = value.placement.dims, value.shape
        parts = list(value.parts)
        neutral = const(identity(op, parts[0].dtype), parts[0].dtype)
        for dim, axis in enumerate(dims):
            if axis is None or (axes is not None and dim not in axes):
                continue
            size = part_of(shape[dim], self.mesh.size(axis))
            if size * self.mesh.size(axis) == shape[dim]:
                continue
            for i, rank in enumerate(self.mesh.hosted):
                used = shape[dim] - self.mesh.coordinate(rank, axis) * size
                if used < size:
                    parts[i] = B.where(_front(parts[i].shape, dim, used), parts[i], neutral)
        return Value(shape, value.placement, tuple(parts))

    def _steps(self, value: Value, dims: Dims) -> list[tuple[str, str, int, int, int]]:
        """Collectives from a placement to another: kind, mesh axis, old and new axis, bytes."""
        now = list(value.placement.dims)
        nbytes = prod(value.parts[0].shape) * value.parts[0].dtype.itemsize
        steps = []
        for axis, op in value.placement.partial:
            size = self.mesh.size(axis)
            sent = nbytes * (size - 1) // size
            dim = dims.index(axis) if axis in dims else -1
            if dim >= 0 and now[dim] is None:
                steps.append((REDUCE_SCATTER, axis, op, dim, sent))
                now[dim] = axis
                nbytes //= size
            else:
                steps.append((ALL_REDUCE, axis, op, -1, 2 * sent))
        for dim, have in enumerate(value.placement.dims):
            if have is None or have == dims[dim]:
                continue
            size = self.mesh.size(have)
            other = dims.index(have) if have in dims else -1
            if other >= 0 and now[other] is None:
                steps.append((ALL_TO_ALL, have, dim, other, nbytes * (size - 1) // size))
                now[other] = have
            else:
                nbytes *= size
                steps.append((ALL_GATHER, have, dim, -1, nbytes * (size - 1) // size))
            now[dim] = None
        return steps

    def _moved(self, value: Value, kind: str, axis: str, old: int, new: int, nbytes: int) -> Value:
        dims, partial = list(value.placement.dims), value.placement.partial
        if kind in (ALL_REDUCE, REDUCE_SCATTER):
            partial = tuple([p for p in partial if p[0] != axis])
        else:
            dims[old] = None
        if new >= 0:
            dims[new] = axis
        stored = tuple([B.contiguous(part) for part in value.parts])
        self.done.append(Collective(kind, axis, nbytes, stored[0].shape, self.line))
        move = self._within if self.mesh.is_whole else self._between
        parts = move(stored, kind, axis, old, new)
        if kind in (ALL_GATHER, ALL_TO_ALL):  # what is behind the end is nobody's
            parts = tuple([narrowed(part, old, 0, value.shape[old]) for part in parts])
        return Value(value.shape, Placement(tuple(dims), partial), parts)

    # -- every rank is in this process -------------------------------------------------------------

    def _within(
        self, parts: tuple[UOp, ...], kind: str, axis: str, old: int, new: int
    ) -> tuple[UOp, ...]:
        found = []
        for rank in self.mesh.hosted:
            own = [parts[other] for other in self.mesh.group(rank, axis)]
            if new >= 0:
                place = self.mesh.coordinate(rank, axis)
                own = [self._part(part, new, axis, place) for part in own]
            found.append(_joined(own, kind, old))
        return tuple(found)

    # -- other ranks are in other processes --------------------------------------------------------

    def _between(
        self, parts: tuple[UOp, ...], kind: str, axis: str, old: int, new: int
    ) -> tuple[UOp, ...]:
        (part,) = parts
        size = self.mesh.size(axis)
        sent = part
        if new >= 0:  # what each rank gets lies in one piece
            pieces = [self._part(part, new, axis, i) for i in range(size)]
            sent = B.contiguous(B.cat([B.reshape(p, (1, *p.shape)) for p in pieces], 0))
        inner = sent.shape[1:] if new >= 0 else part.shape
        shape = inner if kind in (ALL_REDUCE, REDUCE_SCATTER) else (size, *inner)
        number = len(self.moves)
        fold = old if kind in (ALL_REDUCE, REDUCE_SCATTER) else -1
        attrs = (self.mesh.name, axis, fold, number)
        got = make(O.CUSTOM_FUNCTION, part.dtype, (sent,), CustomArg(kind, attrs, shape))
        self.moves.append(Move(got, kind, axis, fold, number, self.depends, self.depth))
        self.depends |= 1 << number
        if kind in (ALL_REDUCE, REDUCE_SCATTER):
            return (got,)
        pieces = [B.reshape(narrowed(got, 0, i, i + 1), inner) for i in range(size)]
        return (_joined(pieces, kind, old),)


def _joined(pieces: list[UOp], kind: str, old: int) -> UOp:
    """What ranks give one: folded in the order of the ranks, or side by side."""
    if kind in (ALL_GATHER, ALL_TO_ALL):
        return B.cat(pieces, old)
    total = pieces[0]
    for piece in pieces[1:]:
        total = B.binary(old, total, piece)
    return total


def narrowed(node: UOp, dim: int, start: int, stop: int) -> UOp:
    """A part of an axis; of an axis that was grown it is a smaller growth."""
    if node.shape[dim] == stop - start:
        return node
    if node.op == O.EXPAND and node.src[0].shape[dim] == 1:
        shape = (*node.shape[:dim], stop - start, *node.shape[dim + 1 :])
        return B.expand(node.src[0], shape)
    if node.op == O.PERMUTE:
        return B.permute(narrowed(node.src[0], node.arg[dim], start, stop), node.arg)
    pairs = [(0, n) for n in node.shape]
    pairs[dim] = (start, stop)
    return B.shrink(node, tuple(pairs))


Through = tuple[Value, Dims, Callable[[UOp, Dims], UOp]]


def _through(value: Value, dims: Dims, mesh: Mesh) -> Through | None:
    """The value that this one is a view of, and how that must be placed for this to be so."""
    if value.below is None:
        return None
    node, source = value.below

    def local(sizes: tuple[Any, ...], placed: Dims) -> tuple[Any, ...]:
        return local_shape(mesh, sizes, placed)

    if node.op == O.EXPAND:
        shapes = zip(dims, source.shape, node.shape, strict=True)
        wanted = tuple([d if n == m else None for d, n, m in shapes])
        return source, wanted, lambda part, own: B.expand(part, local(node.shape, own))
    if node.op == O.PERMUTE:
        back: list[str | None] = [None] * len(dims)
        for place, axis in enumerate(node.arg):
            back[axis] = dims[place]
        return source, tuple(back), lambda part, own: B.permute(part, node.arg)
    kept, wanted = reshaped(mesh, node.shape, source.shape, dims)
    if kept != dims:
        return None
    return source, wanted, lambda part, own: B.reshape(part, local(node.shape, own))


def local_shape(mesh: Mesh, shape: tuple[Any, ...], dims: Dims) -> tuple[Any, ...]:
    """The shape of the part that a rank has."""
    sizes = zip(shape, dims, strict=True)
    return tuple([n if d is None else part_of(n, mesh.size(d)) for n, d in sizes])


def part_of(length: Any, ranks: int) -> Any:
    """How long the part of each rank is; the last ranks have less of the axis, or nothing."""
    return -(-length // ranks)


def _front(shape: tuple[Any, ...], dim: int, count: int) -> UOp:
    """True in the first places of an axis."""
    places = B.reshape(B.iota(shape[dim]), (shape[dim], *[1] * (len(shape) - dim - 1)))
    return B.broadcast_to(B.binary(O.LT, places, const(max(count, 0), dt.int64)), shape)


def reshaped(
    mesh: Mesh, before: tuple[Any, ...], after: tuple[Any, ...], dims: Dims
) -> tuple[Dims, Dims]:
    """Which splits survive a reshape: those of the source, and those of the result.

    Axes that are joined or cut form groups of equal size. A part stays in one piece where the
    first axis of its group is the split one, and it has no padding or is alone in its group.
    """
    kept: list[str | None] = [None] * len(before)
    found: list[str | None] = [None] * len(after)
    if not all(type(n) is int and n > 0 for n in (*before, *after)):
        return tuple(kept), tuple(found)
    i = j = 0
    while i < len(before) and j < len(after):
        first, second = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= before[i]
                i += 1
            else:
                right *= after[j]
                j += 1
        sources = [a for a in range(first, i) if before[a] != 1]
        results = [a for a in range(second, j) if after[a] != 1]
        if not sources or not results:
            continue
        axis = dims[sources[0]]
        if axis is None:
            continue
        is_even = not (before[sources[0]] % mesh.size(axis) or after[results[0]] % mesh.size(axis))
        if is_even or (len(sources) == 1 and len(results) == 1):
            kept[sources[0]] = found[results[0]] = axis
    return tuple(kept), tuple(found)
