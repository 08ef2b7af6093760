"""Movement ops as index arithmetic: where an element of the result comes from."""

from __future__ import annotations

from math import prod
from typing import Any

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, const, largest, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, ge, lt, mul, num, parted, sub

MAX_STACKED = 64  # values that one kernel stores side by side

Indices = tuple[UOp, ...]
Shape = tuple[Any, ...]  # sizes: numbers, or index nodes for run-time sizes


def node_of(size: UOp | int) -> UOp:
    """A size as a node."""
    return size if isinstance(size, UOp) else num(size)


def axis_range(number: int, size: UOp | int, kind: AxisKind = AxisKind.LOOP) -> UOp:
    """The loop counter of one axis; an axis of one element needs none."""
    if size == 1:
        return ZERO
    return make(O.RANGE, dt.index, (node_of(size),), RangeArg(number, kind))


def output_indices(shape: Shape) -> Indices:
    """The loop counters over all elements of a shape."""
    return tuple([axis_range(axis, size) for axis, size in enumerate(shape)])


def strides_of(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides: list[Any] = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def flatten(indices: Indices, shape: Shape) -> UOp:
    """The row-major position of an element."""
    offset = ZERO
    for index, stride, size in zip(indices, strides_of(shape), shape, strict=True):
        if size != 1:
            offset = add(offset, mul(index, stride))
    return offset


def _unflatten(offset: UOp, shape: Shape) -> list[UOp]:
    indices = [ZERO] * len(shape)
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] == 1:
            continue
        if prod(shape[:i]) == 1:
            indices[i] = offset
            break
        offset, indices[i] = parted(offset, node_of(shape[i]))
    return indices


def reshape_indices(indices: Indices, outer: Shape, inner: Shape) -> Indices:
    """Indices into ``inner`` of the element at ``indices`` of ``outer``, same row-major order.

    Axes are matched in the smallest groups of equal size, so untouched axes stay as they are.
    """
    found: list[UOp] = []
    i = j = 0
    while i < len(outer) or j < len(inner):
        first_i, first_j = i, j
        left: Any = 1
        right: Any = 1
        if i < len(outer):
            left = outer[i]
            i += 1
        if j < len(inner):
            right = inner[j]
            j += 1
        while left != right:
            if largest(left) < largest(right) and i < len(outer):
                left *= outer[i]
                i += 1
            elif j < len(inner):
                right *= inner[j]
                j += 1
            elif i < len(outer):
                left *= outer[i]
                i += 1
            else:
                raise GraphError(f"cannot reshape {inner} to {outer}: sizes differ")
        if i - first_i == 1 and j - first_j == 1:
            found.append(indices[first_i] if left != 1 else ZERO)
        else:
            offset = flatten(indices[first_i:i], outer[first_i:i])
            found.extend(_unflatten(offset, inner[first_j:j]))
    return tuple(found)


def source_indices(node: UOp, indices: Indices) -> tuple[Indices, UOp]:
    """Where the movement op ``node`` reads its source, and when that place exists."""
    op, arg = node.op, node.arg
    shape = node.src[0].shape
    if op == O.RESHAPE:
        return reshape_indices(indices, arg, shape), TRUE
    if op == O.EXPAND:
        return tuple([ZERO if n == 1 else i for i, n in zip(indices, shape, strict=True)]), TRUE
    if op == O.PERMUTE:
        moved = [ZERO] * len(arg)
        for index, axis in zip(indices, arg, strict=True):
            moved[axis] = index
        return tuple(moved), TRUE
    if op == O.SHRINK:
        return tuple([add(i, node_of(a)) for i, (a, _) in zip(indices, arg, strict=True)]), TRUE
    if op == O.FLIP:
        return tuple(
            [
                sub(node_of(n - 1), i) if axis in arg and n != 1 else i
                for axis, (i, n) in enumerate(zip(indices, shape, strict=True))
            ]
        ), TRUE
    if op == O.PAD:
        valid = TRUE
        moved = []
        for i, (before, after), n in zip(indices, arg, shape, strict=True):
            if before or after:
                start = node_of(before)
                if before:
                    valid = and_(valid, lt(sub(start, i), 1))
                if after:
                    valid = and_(valid, lt(i, node_of(before + n)))
                i = sub(i, start)
            moved.append(i)
        return tuple(moved), valid
    raise GraphError(f"{O.NAMES[op]} does not move data")


def inside(value: UOp, index: UOp, size: UOp) -> UOp:
    """Whether a value, which ``index`` stands for, is a place on an axis of this size.

    Data is compared in its own dtype: as an index its smallest number has no negative, and the
    largest unsigned ones look negative.
    """
    if value.op == O.CAST and value.dtype is dt.index:
        value = value.src[0]
    if value.dtype is dt.index or value.dtype.bits < 64:
        return and_(ge(index, 0), lt(index, size))
    gate = lt(index, size)
    least = const(0, value.dtype)
    if value.dtype.kind == "i":
        return and_(make(O.LE, dt.bool_, (least, value)), gate)
    # As a signed number an unsigned one past the middle is below zero.
    signed = make(O.CAST, dt.int64, (value,))
    return and_(make(O.LE, dt.bool_, (const(0, dt.int64), signed)), gate)


def is_stack(node: UOp, indices: Indices) -> bool:
    """Whether a CAT puts single elements side by side along a loop of its own.

    The loop is written out, so that what the elements share is computed once for all of them.
    """
    return indices[node.arg].op == O.RANGE and all(s.shape[node.arg] == 1 for s in node.src)


def movement_chain(view: UOp) -> list[UOp]:
    """The movement ops of a view, the last one first."""
    found = []
    while view.op in O.MOVEMENT:
        found.append(view)
        view = view.src[0]
    return found
