"""Node-level pieces that several families share: cuts, borders, repetition, joining.

Joining pads every part to the full extent and picks the part by position; the picks form a
balanced tree, so the graph of n parts is only log2(n) deep.
"""

from __future__ import annotations

from collections.abc import Sequence

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core import Scalar, scalar_node


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
    pairs = [(0, n) for n in x.shape]
    pairs[axis] = (start, stop)
    return B.shrink(x, tuple(pairs))


def split_axis(x: UOp, axis: int, sizes: tuple[int, ...]) -> UOp:
    """One axis cut into several."""
    shape = x.shape
    return B.reshape(x, shape[:axis] + sizes + shape[axis + 1 :])


def transpose(x: UOp, a: int, b: int) -> UOp:
    """Two axes exchanged."""
    axes = list(range(len(x.shape)))
    axes[a], axes[b] = axes[b], axes[a]
    return B.permute(x, tuple(axes))


def tile(x: UOp, counts: tuple[int, ...]) -> UOp:
    """Each axis repeated whole."""
    shape = x.shape
    split = [m for n in shape for m in (1, n)]
    wide = [m for n, c in zip(shape, counts, strict=True) for m in (c, n)]
    x = B.expand(B.reshape(x, tuple(split)), tuple(wide))
    return B.reshape(x, tuple([n * c for n, c in zip(shape, counts, strict=True)]))


def join(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts one after the other along an axis."""
    parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    total = sum([p.shape[axis] for p in parts])
    shape = parts[0].shape
    none: list[tuple[int, int]] = [(0, 0)] * len(shape)
    padded, ends, start = [], [], 0
    for part in parts:
        end = start + part.shape[axis]
        pairs = list(none)
        pairs[axis] = (start, total - end)
        padded.append(B.pad(part, tuple(pairs)))
        ends.append(end)
        start = end
    kind = dt.int32 if total < 1 << 31 else dt.int64
    line = tuple([total if i == axis else 1 for i in range(len(shape))])
    position = B.reshape(B.iota(total, kind), line)
    while len(padded) > 1:
        merged = []
        for i in range(0, len(padded) - 1, 2):
            first = B.binary(O.LT, position, const(ends[i], kind))
            merged.append(B.where(first, padded[i], padded[i + 1]))
        if len(padded) % 2:
            merged.append(padded[-1])
        ends = ends[1::2] + ([ends[-1]] if len(padded) % 2 else [])
        padded = merged
    return padded[0]
