"""Padding: constant, reflect, replicate or circular."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core.slicing import pad_value, slice_axis
from svod.tensor.core.tensor_core import Scalar, integer, numbers


def pad_pairs(pad: Any, ndim: int) -> list[tuple[int, int]]:
    """A pad argument as a pair per axis: torch's flat form (last axis first), or pairs."""
    if not isinstance(pad, Iterable):
        return [(integer(pad, "pad"), integer(pad, "pad"))] * ndim
    given = list(pad)
    if given and isinstance(given[0], Iterable):
        whole = [numbers(pair, 2, "a pair of pad") for pair in given]
        pairs = [(a, b) for a, b in whole]
        if len(pairs) != ndim:
            raise ShapeError(f"pad needs a pair for each of {ndim} axes, got {given}")
        return pairs
    if len(given) % 2 or len(given) > 2 * ndim:
        raise ShapeError(f"pad needs pairs for at most {ndim} axes, got {given}")
    sizes = [integer(p, "pad") for p in given]
    pairs = [(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)]
    return [(0, 0)] * (ndim - len(pairs)) + pairs[::-1]


def pad_modes(x: UOp, pairs: list[tuple[int, int]], mode: str, value: Scalar) -> UOp:
    """Borders of any mode; negative sizes cut.

    What is reflected or replicated is that of the whole axis, so these modes cut last, as in torch.
    """
    sizes = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode not in ("reflect", "replicate"):
        x = _cut(x, pairs)
    if mode == "constant":
        return pad_value(x, tuple(sizes), value)
    for axis, (a, b) in enumerate(sizes):
        if a or b:
            x = _pad_axis(x, axis, a, b, mode)
    return _cut(x, pairs) if mode in ("reflect", "replicate") else x


def _cut(x: UOp, pairs: list[tuple[int, int]]) -> UOp:
    """Without what negative sizes take away."""
    node = x
    for axis, (a, b) in enumerate(pairs):
        if a < 0 or b < 0:
            size = node.shape[axis]
            if size + min(a, 0) + min(b, 0) < 0:
                raise ShapeError(f"pad {pairs} cuts more than the shape {x.shape} has")
            node = slice_axis(node, axis, max(0, -a), size - max(0, -b))
    return node


def _pad_axis(x: UOp, axis: int, before: int, after: int, mode: str) -> UOp:
    size = x.shape[axis]
    limit = {"reflect": size - 1, "circular": size, "replicate": max(before, after)}.get(mode)
    if limit is None:
        raise ShapeError(f"pad mode {mode!r} is not constant, reflect, replicate or circular")
    if max(before, after) > limit or size == 0:
        raise ShapeError(f"{mode} pad ({before}, {after}) is too large for an axis of {size}")
    parts = [x]
    if mode == "reflect":
        if before:
            parts.insert(0, B.flip(slice_axis(x, axis, 1, before + 1), (axis,)))
        if after:
            parts.append(B.flip(slice_axis(x, axis, size - 1 - after, size - 1), (axis,)))
    elif mode == "circular":
        if before:
            parts.insert(0, slice_axis(x, axis, size - before, size))
        if after:
            parts.append(slice_axis(x, axis, 0, after))
    else:
        shape = x.shape
        if before:
            wide = (*shape[:axis], before, *shape[axis + 1 :])
            parts.insert(0, B.expand(slice_axis(x, axis, 0, 1), wide))
        if after:
            wide = (*shape[:axis], after, *shape[axis + 1 :])
            parts.append(B.expand(slice_axis(x, axis, size - 1, size), wide))
    return B.cat(parts, axis)
