"""Strides of torch's tensors: memory as it lies there, seen as values of Svod and back.

In: shapes and strides, which may hold symbols. Out: how a line of elements becomes a tensor of that
shape. Axes in any order, expanded axes and slices of a larger tensor are views; other memory is
copied by torch before a call. Sizes that change are counted densely, as torch lays them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import sympy

from svod.frontend.torch.sizes import Sizes, expression
from svod.ir import build as B
from svod.ir.node import UOp, is_symbolic


@dataclass(frozen=True, slots=True)
class Layout:
    """Axes in the order of memory, and the sizes of the tensor that they are a part of."""

    shape: tuple[Any, ...]  # of the tensor
    order: tuple[int, ...]  # axes with steps of their own, outermost first
    parent: tuple[Any, ...]  # sizes in memory, in that order
    is_dense: bool = True  # all elements are there, one after the other
    is_copied: bool = False  # no view: the tensor is copied before it is read

    def view(self, memory: UOp, sizes: Sizes) -> UOp:
        """A BUFFER as the value of the tensor."""
        parent = sizes.shape(self.parent)
        found = B.reshape(B.view_as(memory, (prod(parent),)), parent)
        kept = sizes.shape([self.shape[axis] for axis in self.order])
        if kept != parent:
            found = B.shrink(found, tuple([(0, n) for n in kept]))
        rest = [axis for axis in range(len(self.shape)) if axis not in self.order]
        found = B.reshape(found, (*kept, *[1] * len(rest)))
        places = [*self.order, *rest]
        found = B.permute(found, tuple([places.index(axis) for axis in range(len(places))]))
        return B.expand(found, sizes.shape(self.shape))

    def count(self, sizes: Sizes) -> Any:
        """How many elements memory has, at most those of the largest sizes."""
        return prod(sizes.shape(self.parent))

    def line(self, value: UOp) -> UOp:
        """The value of a dense tensor in the order of memory."""
        found = B.permute(value, self.order)
        if is_symbolic(found.shape[1:]):  # stored with gaps otherwise
            return B.reshape(found, (prod(found.shape),))
        return found


def layout_of(shape: Any, strides: Any) -> Layout:
    """How a tensor of this shape and these strides lies in memory."""
    shape, strides = tuple(shape), tuple(strides)
    plain = row_major(shape)
    if _is_line(shape, strides):
        return plain
    own = [a for a in range(len(shape)) if not (_is(strides[a], 0) or _is(shape[a], 1))]
    if any(_is(n, 0) for n in shape):
        return plain
    order = tuple(sorted(own, key=lambda a: (-_hint(strides[a]), -_hint(shape[a]))))
    parent: list[Any] = []
    for place, axis in enumerate(order):
        outer = strides[order[place - 1]] if place else None
        if outer is None:
            parent.append(shape[axis])
            continue
        ratio = _ratio(outer, strides[axis])
        if ratio is None or not _holds(ratio, shape[axis]):
            return Layout(shape, plain.order, shape, is_dense=False, is_copied=True)
        parent.append(ratio)
    if order and not _is(strides[order[-1]], 1):
        return Layout(shape, plain.order, shape, is_dense=False, is_copied=True)
    is_filled = all(_is(n, shape[axis]) for n, axis in zip(parent, order, strict=True))
    if is_filled and _dense_axes(shape, order):
        rest = [a for a in range(len(shape)) if a not in order]
        order = (*order, *rest)
        return Layout(shape, order, tuple([shape[a] for a in order]))
    if any(type(n) is not int for n in parent):
        return Layout(shape, plain.order, shape, is_dense=False, is_copied=True)
    return Layout(shape, order, tuple(parent), is_dense=False)


def row_major(shape: Any) -> Layout:
    """A dense tensor in the order of its axes."""
    return Layout(tuple(shape), tuple(range(len(shape))), tuple(shape))


def dense_strides(layout: Layout) -> tuple[Any, ...]:
    """The strides of a dense tensor."""
    found: list[Any] = [0] * len(layout.shape)
    step: Any = 1
    for axis in reversed(layout.order):
        found[axis] = step
        step = step * layout.shape[axis]
    return tuple(found)


def _dense_axes(shape: Any, order: Any) -> bool:
    """Whether the axes without steps of their own have size 1."""
    return all(_is(shape[a], 1) for a in range(len(shape)) if a not in order)


def _is_line(shape: Any, strides: Any) -> bool:
    """Whether elements lie in row-major order without gaps; axes of size 1 do not count."""
    step: Any = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if _is(n, 1):
            continue
        if not _is(s, step):
            return False
        step = step * n
    return True


def _is(a: Any, b: Any) -> bool:
    if type(a) is int and type(b) is int:
        return a == b
    return sympy.expand(expression(a) - expression(b)) == 0


def _ratio(a: Any, b: Any) -> Any:
    """a / b where that is whole."""
    if type(a) is int and type(b) is int:
        return a // b if a % b == 0 else None
    found = sympy.cancel(expression(a) / expression(b))
    return found if sympy.fraction(found)[1] == 1 else None


def _holds(room: Any, size: Any) -> bool:
    """Whether an axis of memory has room for an axis of the tensor, whatever symbols are."""
    if type(room) is int and type(size) is int:
        return room >= size
    return _is(room, size)


def _hint(size: Any) -> int:
    """The value of a size when the graph was made."""
    if type(size) is int:
        return size
    found = size.node.hint
    return int(found) if found is not None else 1 << 20
