"""Slices, padding, tiling and diagonals of nodes, as movement ops."""

from __future__ import annotations

from collections.abc import Sequence

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core.tensor_core import Scalar, scalar_node

Cut = tuple[int, int, int]  # start, stop and step of one axis; a negative step reads backwards


def pad_value(x: UOp, pairs: B.Pairs, value: Scalar) -> UOp:
    """Pad with any number: zeros, then the number where the padding is."""
    padded = B.pad(x, pairs)
    if padded is x or (value == 0 and not _is_negative_zero(value)):
        return padded
    inside = B.pad(B.full(x.shape, True, dt.bool_), pairs)
    return B.where(inside, padded, scalar_node(value, x.dtype))


def _is_negative_zero(value: Scalar) -> bool:
    return isinstance(value, float) and str(value) == "-0.0"


def slice_axis(x: UOp, axis: int, start: int, stop: int) -> UOp:
    """The part of one axis between start and stop."""
    return B.shrink(x, bounds(x.shape, axis, start, stop))


def bounds(shape: tuple[int, ...], axis: int, start: int, stop: int) -> B.Pairs:
    """Start and stop for every axis, where all but one are kept whole."""
    return tuple([(start, stop) if a == axis else (0, n) for a, n in enumerate(shape)])


def swapped(count: int, a: int, b: int) -> tuple[int, ...]:
    """The order of axes with two of them exchanged."""
    axes = list(range(count))
    axes[a], axes[b] = axes[b], axes[a]
    return tuple(axes)


def transpose(x: UOp, a: int, b: int) -> UOp:
    """Two axes exchanged."""
    return B.permute(x, swapped(len(x.shape), a, b))


def tile(x: UOp, counts: tuple[int, ...]) -> UOp:
    """Each axis repeated whole."""
    shape = x.shape
    split = [m for n in shape for m in (1, n)]
    wide = [m for n, c in zip(shape, counts, strict=True) for m in (c, n)]
    x = B.expand(B.reshape(x, tuple(split)), tuple(wide))
    return B.reshape(x, tuple([n * c for n, c in zip(shape, counts, strict=True)]))


def diagonal_of(x: UOp, offset: int) -> UOp:
    """The diagonal of the last two axes."""
    rows, columns = x.shape[-2:]
    top, left = max(0, -offset), max(0, offset)
    size = max(0, min(rows - top, columns - left))
    lead = x.shape[:-2]
    if size == 0:
        return B.full((*lead, 0), 0, x.dtype)
    whole = tuple([(0, n) for n in lead])
    x = B.shrink(x, (*whole, (top, top + size), (left, left + size)))
    # size x size read with a row length of size + 1: column 0 is the diagonal.
    x = B.pad(B.reshape(x, (*lead, size * size)), (*[(0, 0) for _ in lead], (0, size)))
    x = B.shrink(B.reshape(x, (*lead, size, size + 1)), (*whole, (0, size), (0, 1)))
    return B.reshape(x, (*lead, size))


def length(cut: Cut) -> int:
    """How many elements a cut takes."""
    start, stop, step = cut
    return -(-(stop - start) // step)


def take_cuts(x: UOp, cuts: Sequence[Cut]) -> UOp:
    """The strided part of x: flip, shrink, and for steps a reshape that drops the rest."""
    shape = x.shape
    if all(step == 1 for _, _, step in cuts):
        return B.shrink(x, tuple([(a, b) for a, b, _ in cuts]))
    forward, backward = _forward(cuts, shape)
    x = B.flip(x, backward)
    pairs, pads, split, first, result = [], [], [], [], []
    for (start, stop, step), n in zip(forward, shape, strict=True):
        count = length((start, stop, step))
        whole, missing = _whole_steps((start, stop, step), n)
        pairs.append((start, whole))
        pads.append((0, missing))
        split += [count, step] if step > 1 else [count]
        first += [(0, count), (0, 1)] if step > 1 else [(0, count)]
        result.append(count)
    x = B.pad(B.shrink(x, tuple(pairs)), tuple(pads))
    return B.reshape(B.shrink(B.reshape(x, tuple(split)), tuple(first)), tuple(result))


def _whole_steps(cut: Cut, size: int) -> tuple[int, int]:
    """Where to end an axis, and how much to add there, so that it is whole steps of a cut."""
    start, stop, step = cut
    if step == 1:
        return stop, 0
    end = start + length(cut) * step
    if isinstance(end, UOp) or isinstance(size, UOp):
        return stop, end - stop
    return min(end, size), max(0, end - size)


def put_cuts(part: UOp, cuts: Sequence[Cut], shape: tuple[int, ...]) -> UOp:
    """The inverse of ``take_cuts``: the part in its place, zeros elsewhere."""
    forward, backward = _forward(cuts, shape)
    split, pads, merged, pairs, border = [], [], [], [], []
    for (start, stop, step), n in zip(forward, shape, strict=True):
        count = length((start, stop, step))
        split += [count, 1] if step > 1 else [count]
        pads += [(0, 0), (0, step - 1)] if step > 1 else [(0, 0)]
        merged.append(count * step)
        end = min(start + count * step, n)
        pairs.append((0, end - start))
        border.append((start, n - end))
    x = B.reshape(B.pad(B.reshape(part, tuple(split)), tuple(pads)), tuple(merged))
    return B.flip(B.pad(B.shrink(x, tuple(pairs)), tuple(border)), backward)


def _forward(cuts: Sequence[Cut], shape: tuple[int, ...]) -> tuple[list[Cut], tuple[int, ...]]:
    """Cuts with positive steps, and the axes to flip first."""
    forward: list[Cut] = []
    backward = []
    for axis, ((start, stop, step), n) in enumerate(zip(cuts, shape, strict=True)):
        if step < 0:
            backward.append(axis)
            if start == stop:
                start = stop = n - 1
            forward.append((n - 1 - start, n - 1 - stop, -step))
        else:
            forward.append((start, stop, step))
    return forward, tuple(backward)
