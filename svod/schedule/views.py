"""Movement ops as index arithmetic: where an element of the result comes from."""

from __future__ import annotations

from math import prod

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.ir.symbolic import TRUE, ZERO, add, and_, ge, idiv, lt, mod, mul, num

Indices = tuple[UOp, ...]


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def flatten(indices: Indices, shape: tuple[int, ...]) -> UOp:
    """The row-major position of an element."""
    offset = ZERO
    for index, stride, size in zip(indices, strides_of(shape), shape, strict=True):
        if size != 1:
            offset = add(offset, mul(index, stride))
    return offset


def _unflatten(offset: UOp, shape: tuple[int, ...]) -> list[UOp]:
    indices = [ZERO] * len(shape)
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] == 1:
            continue
        if prod(shape[:i]) == 1:
            indices[i] = offset
            break
        indices[i] = mod(offset, shape[i])
        offset = idiv(offset, shape[i])
    return indices


def reshape_indices(indices: Indices, outer: tuple[int, ...], inner: tuple[int, ...]) -> Indices:
    """Indices into ``inner`` of the element at ``indices`` of ``outer``, same row-major order.

    Axes are matched in the smallest groups of equal size, so untouched axes stay as they are.
    """
    found: list[UOp] = []
    i = j = 0
    while i < len(outer) or j < len(inner):
        first_i, first_j = i, j
        left = right = 1
        if i < len(outer):
            left = outer[i]
            i += 1
        if j < len(inner):
            right = inner[j]
            j += 1
        while left != right:
            if left < right and i < len(outer):
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
        return tuple([add(i, num(a)) for i, (a, _) in zip(indices, arg, strict=True)]), TRUE
    if op == O.FLIP:
        return tuple(
            [
                add(mul(i, -1), num(n - 1)) if axis in arg and n != 1 else i
                for axis, (i, n) in enumerate(zip(indices, shape, strict=True))
            ]
        ), TRUE
    if op == O.PAD:
        valid = TRUE
        moved = []
        for i, (before, after), n in zip(indices, arg, shape, strict=True):
            if before or after:
                if before:
                    valid = and_(valid, ge(i, before))
                if after:
                    valid = and_(valid, lt(i, before + n))
                i = add(i, num(-before))
            moved.append(i)
        return tuple(moved), valid
    raise GraphError(f"{O.NAMES[op]} does not move data")
