"""Batching, the graph rewrite of vmap: nodes that depend on the inputs get a leading axis.

In: nodes, and for stand-ins below them the values with an axis more in front. Out: the nodes with
that axis. Each kind of node has one rule; what has none (loops over time, custom functions, calls
with a backward of their own) is refused. ``vmap`` and gradients of several seeds are made of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.guards import is_check, marked
from svod.ir.node import UOp, make, toposort
from svod.ir.scan import parameter
from svod.tensor.gradients.reverse_mode import is_hooked, is_mark, mark
from svod.tensor.gradients.scan_gradient import moved

_slots = count(1 << 24)  # above those of loops over time


def stand_in(shape: tuple[int, ...], dtype: DType) -> UOp:
    """A node without a value, for one value of a batch."""
    return parameter(next(_slots), shape, dtype)


def batched(roots: Sequence[UOp], values: Mapping[UOp, UOp], keeps_marks: bool = True) -> list[UOp]:
    """The roots with a leading axis, given the values of stand-ins with theirs.

    Without ``keeps_marks`` nobody will differentiate the result again.
    """
    size = next(iter(values.values())).shape[0]
    graph = _Batch(size, dict(values), keeps_marks)
    for node in toposort(roots):
        graph.add(node)
    return [graph.at(root, root.shape) for root in roots]


class _Batch:
    """The nodes that depend on the batch, each with its axis in front."""

    def __init__(self, size: int, found: dict[UOp, UOp], keeps_marks: bool) -> None:
        self.size, self.found, self.keeps_marks = size, found, keeps_marks

    def at(self, node: UOp, shape: tuple[int, ...]) -> UOp:
        """A node for all of the batch, stretched to a shape."""
        x = self.found.get(node)
        if x is None:
            return B.broadcast_to(node, (self.size, *shape))
        if not node.shape and shape:
            x = B.reshape(x, (self.size, *(1,) * len(shape)))
        return B.expand(x, (self.size, *shape))

    def add(self, node: UOp) -> None:
        """Note the batched form of a node that depends on the batch; its sources come before."""
        if node in self.found or not any(s in self.found for s in node.src):
            return
        op = node.op
        if is_check(node):
            found = self.found.get(node.src[0], node.src[0])
            self.found[node] = marked(found, node.arg, *node.src[1:])
        elif op == O.BITCAST and node.dtype is node.src[0].dtype:
            self._add_mark(node)
        elif op in O.ELEMENTWISE:
            src = tuple([self.at(s, node.shape) for s in node.src])
            self.found[node] = make(op, node.dtype, src, node.arg)
        elif op in O.MOVEMENT:
            self.found[node] = moved(node, self.found[node.src[0]])
        elif op == O.REDUCE_AXIS:
            axes = tuple([a + 1 for a in node.arg.axes])
            self.found[node] = B.reduce(self.found[node.src[0]], node.arg.op, axes)
        elif op == O.CAT:
            parts = tuple([self.at(s, s.shape) for s in node.src])
            self.found[node] = make(op, node.dtype, parts, node.arg + 1)
        elif op == O.CONTIGUOUS:
            self.found[node] = B.contiguous(self.found[node.src[0]])
        elif op == O.COPY:
            self.found[node] = B.copy(self.found[node.src[0]], node.src[1].arg)
        elif op == O.SORT:
            self.found[node] = make(op, node.dtype, (self.found[node.src[0]],), node.arg)
        elif op == O.GATHER:
            self.found[node] = self._gathered(node)
        elif op == O.SCATTER:
            self.found[node] = self._scattered(node)
        else:
            raise UnsupportedError(f"{O.NAMES[op]} of a batch", "vmap")

    def _add_mark(self, node: UOp) -> None:
        value = self.found.get(node.src[0])
        if node.arg is None or (is_mark(node) and node.arg.role == "argument"):
            assert value is not None, "such a mark has one source"
            self.found[node] = mark(value, node.arg)
        elif node.arg == B.EMPTY or is_hooked(node) or not self.keeps_marks:
            if value is not None:
                self.found[node] = value
        else:
            raise UnsupportedError("a function with a gradient of its own, of a batch", "vmap")

    def _numbered(self, indices: Sequence[UOp]) -> list[UOp]:
        """Indices of a batch, with the place in the batch before them."""
        shape = (self.size, *indices[0].shape)
        place = B.reshape(B.iota(self.size, dt.int64), (self.size, *(1,) * (len(shape) - 1)))
        return [B.expand(place, shape), *[self.at(i, i.shape) for i in indices]]

    def _gathered(self, node: UOp) -> UOp:
        x, indices = node.src[0], node.src[1:]
        if any(i in self.found for i in indices):
            if x in self.found:
                return B.gather(self.found[x], self._numbered(indices))
            return B.gather(x, [self.at(i, i.shape) for i in indices])
        found = B.gather(_behind(self.found[x], len(indices)), indices)
        return _in_front(found, len(indices[0].shape))

    def _scattered(self, node: UOp) -> UOp:
        x, values, *indices = node.src
        both = self.at(x, x.shape), self.at(values, values.shape)
        if any(i in self.found for i in indices):
            return B.scatter(*both, self._numbered(indices), node.arg)
        lead = len(indices[0].shape)
        into, given = _behind(both[0], len(indices)), _behind(both[1], lead)
        return _in_front(B.scatter(into, given, indices, node.arg), len(indices))


def _behind(x: UOp, axes: int) -> UOp:
    """The first axis after so many others."""
    return B.permute(x, (*range(1, axes + 1), 0, *range(axes + 1, len(x.shape))))


def _in_front(x: UOp, axis: int) -> UOp:
    """An axis before all others."""
    return B.permute(x, (axis, *range(axis), *range(axis + 1, len(x.shape))))
