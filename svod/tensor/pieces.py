"""Node-level pieces that several families share: cuts, borders, repetition."""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir.node import UOp
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
