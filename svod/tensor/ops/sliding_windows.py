"""Sliding windows over the last axes, as further axes made by movement ops alone.

In: a node, and the sizes, strides and dilations of the windows. Out: a node with an axis of output
positions and an axis of positions in the window for each axis. Convolutions, pooling and
``unfold`` read their inputs this way; no element is copied until a kernel needs it.
"""

from __future__ import annotations

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core.slicing import tile


def windows_of(x: UOp, argument: tuple[int, int]) -> UOp:
    """Windows of one size and step along the last axis."""
    size, step = argument
    return windows(x, (size,), (step,), (1,))


def windows(
    x: UOp, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> UOp:
    """The last axes (i..) as (o.., k..): output positions and places in the window.

    Repeating an axis of size i and cutting it into rows of length i + d makes row r start d
    further than row r - 1: element (r, c) is x[r * d + c]. A stride keeps every s-th column.
    """
    count = len(kernel)
    lead, inner = x.shape[:-count], x.shape[-count:]
    outer = []
    for i, k, s, d in zip(inner, kernel, stride, dilation, strict=True):
        if i < d * (k - 1) + 1:
            raise ShapeError(f"a window of {d * (k - 1) + 1} does not fit an axis of {i}")
        outer.append(-(-(i - d * (k - 1)) // s))
    whole = [(0, n) for n in lead]
    if all(k == 1 and s == 1 for k, s in zip(kernel, stride, strict=True)):
        return B.reshape(x, (*lead, *outer, *kernel))
    if all(k <= s and d == 1 for k, s, d in zip(kernel, stride, dilation, strict=True)):
        cuts = list(zip(inner, outer, stride, strict=True))
        pads = [(0, _missing(i, k, s)) for i, k, s in zip(inner, kernel, stride, strict=True)]
        x = B.pad(x, (*[(0, 0)] * len(lead), *pads))
        x = B.shrink(x, (*whole, *[(0, o * s) for _, o, s in cuts]))
        x = B.reshape(x, (*lead, *[n for _, o, s in cuts for n in (o, s)]))
        first = [p for o, k in zip(outer, kernel, strict=True) for p in ((0, o), (0, k))]
        x = B.shrink(x, (*whole, *first))
        order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2)]
    else:
        grown, repeats = [], []  # a longer row where the strided columns would run past its end
        for i, k, s, d, o in zip(inner, kernel, stride, dilation, outer, strict=True):
            is_past = s > 1 if isinstance(i, UOp) else o * s > i - d * (k - 1)
            grown.append(i * (1 + int(is_past)) + d)
            repeats.append(k * (1 + int(is_past)) - (-k * d // _least(i)))
        x = tile(x, (*[1] * len(lead), *repeats))
        x = B.shrink(x, (*whole, *[(0, k * g) for k, g in zip(kernel, grown, strict=True)]))
        x = B.reshape(x, (*lead, *[n for kg in zip(kernel, grown, strict=True) for n in kg]))
        sizes = list(zip(kernel, outer, stride, strict=True))
        x = B.shrink(x, (*whole, *[p for k, o, s in sizes for p in ((0, k), (0, o * s))]))
        x = B.reshape(x, (*lead, *[n for k, o, s in sizes for n in (k, o, s)]))
        x = B.shrink(x, (*whole, *[p for k, o, _ in sizes for p in ((0, k), (0, o), (0, 1))]))
        x = B.reshape(x, (*lead, *[n for k, o, _ in sizes for n in (k, o)]))
        order = [*range(1, 2 * count, 2), *range(0, 2 * count, 2)]
    base = len(lead)
    return B.permute(x, (*range(base), *[base + a for a in order]))


def _missing(size: int, window: int, step: int) -> int:
    """Elements after an axis so that every window has a whole step; of a run-time size as many as
    there can be."""
    if isinstance(size, UOp):
        return step - window
    return max(0, -(-(size - window + 1) // step) * step - size)


def _least(size: int) -> int:
    return max(1, size.vmin) if isinstance(size, UOp) else size
