"""The strided layout of a view: shape, strides and offset, counted in elements.

In: the layout of a tensor and a movement. Out: the layout of the view, or None where no strides
describe it, so that the movement has to copy. The rules are torch's. Writes ask here whether a
view shows an element twice, and whether two views have elements in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from svod.base import strides as memory

Sizes = tuple[int, ...]


class Layout(NamedTuple):
    """Element (i, j, ..) of the view is element ``offset + i * strides[0] + ..`` of the tensor."""

    shape: Sizes
    strides: Sizes
    offset: int = 0


def row_major(shape: Sizes) -> Layout:
    """A tensor of its own: the last axis is the innermost, without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return Layout(shape, tuple(reversed(strides)))


def permuted(layout: Layout, axes: Sizes) -> Layout:
    """The axes in another order."""
    shape, strides, offset = layout
    return Layout(tuple([shape[a] for a in axes]), tuple([strides[a] for a in axes]), offset)


def shrunk(layout: Layout, pairs: Sequence[tuple[int, int]]) -> Layout:
    """The part between start and stop of each axis."""
    return cut(layout, [(start, stop, 1) for start, stop in pairs])


def cut(layout: Layout, cuts: Sequence[tuple[int, int, int]]) -> Layout:
    """Start, stop and step of each axis; a negative step reads backwards."""
    offset, shape, strides = layout.offset, [], []
    for (start, stop, step), stride in zip(cuts, layout.strides, strict=True):
        offset += start * stride
        shape.append(-(-(stop - start) // step))
        strides.append(stride * step)
    return Layout(tuple(shape), tuple(strides), offset)


def expanded(layout: Layout, shape: Sizes) -> Layout:
    """Axes of size 1 stretched, and new ones in front."""
    missing = len(shape) - len(layout.shape)
    have = (1,) * missing + layout.shape
    strides = (0,) * missing + layout.strides
    pairs = zip(have, shape, strides, strict=True)
    return Layout(shape, tuple([s if n == m else 0 for n, m, s in pairs]), layout.offset)


def diagonal(layout: Layout, offset: int) -> Layout:
    """A diagonal of the last two axes."""
    *lead, rows, columns = layout.shape
    *outer, down, right = layout.strides
    top, left = max(0, -offset), max(0, offset)
    size = max(0, min(rows - top, columns - left))
    start = layout.offset + top * down + left * right
    return Layout((*lead, size), (*outer, down + right), start)


def reshaped(layout: Layout, shape: Sizes) -> Layout | None:
    """Another shape: neighbouring axes that are one line in memory are joined and cut anew."""
    if 0 in shape:
        return row_major(shape)
    lines: list[tuple[int, int]] = []  # size and stride of what is one line, outermost first
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        if size == 1:
            continue
        if lines and lines[-1][1] == size * stride:
            lines[-1] = (lines[-1][0] * size, stride)
        else:
            lines.append((size, stride))
    strides: list[int] = []
    left, step = lines.pop() if lines else (1, 1)
    for size in reversed(shape):
        if left == 1 and size != 1 and lines:
            left, step = lines.pop()
        if left % size:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return Layout(shape, tuple(reversed(strides)), layout.offset)


def shows_twice(layout: Layout) -> bool:
    """Whether two positions of the view may be one element."""
    if 0 in layout.shape:
        return False
    pairs = zip(layout.strides, layout.shape, strict=True)
    reach = 0
    for stride, size in sorted([(abs(s), n) for s, n in pairs if n > 1]):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def are_apart(a: Layout, b: Layout) -> bool:
    """Whether two views certainly have no element in common."""
    (first, last), (start, stop) = _range(a), _range(b)
    return last < start or stop < first


def is_row_major(layout: Layout) -> bool:
    """Whether the elements follow each other in order, without gaps."""
    return memory.is_row_major(layout.shape, layout.strides)


def size(shape: Sequence[Any]) -> int:
    """How many elements there are; -1 where that is not known now."""
    return prod(shape) if is_fixed(shape) else -1


def is_fixed(shape: Sequence[Any]) -> bool:
    """Whether all sizes are numbers now."""
    return all(type(n) is int for n in shape)


def _range(layout: Layout) -> tuple[int, int]:
    low = high = layout.offset
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        reach = (size - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high
