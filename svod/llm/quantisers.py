"""Float weights to bytes of block formats: what `svod quantize` rounds with.

A quantiser takes rows of one block, float32 (blocks, elements), and gives their bytes. Scales are
found by trying a few and keeping the one whose blocks come out closest; weights far from zero count
more, for products are more sensitive to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svod.llm.errors import ModelFileError
from svod.llm.formats import BY_NAME

Array = np.ndarray[Any, Any]
TRIES = np.linspace(-1.0, 1.0, 9, dtype=np.float32)  # steps more or fewer between the ends


def quantized(values: Array, kind: str) -> tuple[str, tuple[int, ...], Array]:
    """Float weights in a format, as (format, shape, bytes)."""
    shape, flat = values.shape, np.ascontiguousarray(values, np.float32)
    if kind == "F32":
        return kind, shape, flat.reshape(-1).view(np.uint8)
    if kind == "F16":
        return kind, shape, flat.astype(np.float16).reshape(-1).view(np.uint8)
    if kind == "BF16":
        from ml_dtypes import bfloat16

        return kind, shape, flat.astype(bfloat16).reshape(-1).view(np.uint8)
    if kind not in QUANTISERS:
        raise ModelFileError(f"weights are not quantised to {kind!r}: use {', '.join(KINDS)}")
    BY_NAME[kind].size(shape)
    blocks = flat.reshape(-1, BY_NAME[kind].elements)
    return kind, shape, QUANTISERS[kind](blocks).reshape(-1)


def _divided(values: Array, steps: Array) -> Array:
    return np.divide(values, steps, out=np.zeros_like(values), where=steps != 0)


def _half(values: Array) -> Array:
    """float16 as bytes."""
    return values.astype(np.float16).view(np.uint8)


def _read(halves: Array) -> Array:
    return halves.view(np.float16).astype(np.float32)


def _q8_0(blocks: Array) -> Array:
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    quants = np.rint(_divided(blocks, scale)).astype(np.int8)
    return np.concatenate([_half(scale), quants.view(np.uint8)], 1)


def _q4_0(blocks: Array) -> Array:
    """The weight that is farthest from zero becomes -8, the end of the longer side."""
    place = np.abs(blocks).argmax(1)[:, None]
    scale = np.take_along_axis(blocks, place, 1) / np.float32(-8)
    quants = np.clip(np.floor(_divided(blocks, scale) + 8.5), 0, 15).astype(np.uint8)
    return np.concatenate([_half(scale), quants[:, :16] | (quants[:, 16:] << 4)], 1)


def _q4_1(blocks: Array) -> Array:
    least = blocks.min(1, keepdims=True)
    scale = (blocks.max(1, keepdims=True) - least) / np.float32(15)
    quants = np.clip(np.floor(_divided(blocks - least, scale) + 0.5), 0, 15).astype(np.uint8)
    packed = quants[:, :16] | (quants[:, 16:] << 4)
    return np.concatenate([_half(scale), _half(least), packed], 1)


def _importance(groups: Array) -> Array:
    """How much an error of each weight of a group counts."""
    typical = np.sqrt((groups * groups).mean(-1, keepdims=True))
    found: Array = typical + np.abs(groups)
    return found


def _scales_and_minima(groups: Array, most: int) -> tuple[Array, Array]:
    """The scale and the minimum (at least zero, taken off) of each group (.., elements): of a few
    tries, the least squares of the weighted errors."""
    weight = _importance(groups)
    low = np.minimum(groups.min(-1, keepdims=True), 0)
    width = groups.max(-1, keepdims=True) - low
    total = weight.sum(-1, keepdims=True)
    mean_x = (weight * groups).sum(-1, keepdims=True)
    best = np.full(low.shape, np.inf, np.float32)
    scale, minimum = np.zeros_like(low), np.zeros_like(low)
    for more in TRIES:
        steps = np.clip(np.rint(_divided((groups - low) * (most + more), width)), 0, most)
        mean_q = (weight * steps).sum(-1, keepdims=True)
        squares = (weight * steps * steps).sum(-1, keepdims=True)
        both = (weight * steps * groups).sum(-1, keepdims=True)
        slope = _divided(total * both - mean_x * mean_q, total * squares - mean_q * mean_q)
        offset = _divided(mean_x - slope * mean_q, total)
        slope = np.where(offset > 0, _divided(both, squares), slope)
        offset = np.minimum(offset, 0)
        error = (weight * (slope * steps + offset - groups) ** 2).sum(-1, keepdims=True)
        is_better = (error < best) & (slope >= 0)
        best = np.where(is_better, error, best)
        scale = np.where(is_better, slope, scale)
        minimum = np.where(is_better, -offset, minimum)
    return scale[..., 0], minimum[..., 0]


def _sixths(values: Array) -> tuple[Array, Array]:
    """Numbers of a block as 6 bits each and a float16 that they count in."""
    unit = _half(values.max(1, keepdims=True) / np.float32(63))
    counted = np.clip(np.rint(_divided(values, _read(unit) + 0 * values)), 0, 63)
    return counted.astype(np.uint8), unit


def _with_minima(blocks: Array, most: int) -> tuple[Array, Array]:
    """The bytes of scales and minima of 8 groups of 32, and the quants."""
    groups = blocks.reshape(-1, 8, 32)
    scale, minimum = _scales_and_minima(groups, most)
    (scales, d), (minima, least) = _sixths(scale), _sixths(minimum)
    real, off = _read(d) * scales, _read(least) * minima
    steps = _divided(groups + off[:, :, None], real[:, :, None] + 0 * groups)
    quants = np.clip(np.rint(steps), 0, most).astype(np.uint8)
    packed = np.concatenate(
        [
            scales[:, :4] | ((scales[:, 4:] >> 4) << 6),
            minima[:, :4] | ((minima[:, 4:] >> 4) << 6),
            (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4),
        ],
        1,
    )
    return np.concatenate([d, least, packed], 1), quants


def _nibbles_of(quants: Array) -> Array:
    """64 elements in 32 bytes: (blocks, 8, 32) to (blocks, 128)."""
    pairs = quants.reshape(-1, 4, 2, 32)
    return ((pairs[:, :, 0] & 15) | ((pairs[:, :, 1] & 15) << 4)).reshape(-1, 128)


def _q4_k(blocks: Array) -> Array:
    head, quants = _with_minima(blocks, 15)
    return np.concatenate([head, _nibbles_of(quants)], 1)


def _q5_k(blocks: Array) -> Array:
    head, quants = _with_minima(blocks, 31)
    places = np.arange(8, dtype=np.uint8)[:, None]
    high = np.bitwise_or.reduce((quants >> 4) << places, 1)
    return np.concatenate([head, high, _nibbles_of(quants)], 1)


def _q6_k(blocks: Array) -> Array:
    groups = blocks.reshape(-1, 16, 16)
    weight = groups * groups
    place = np.abs(groups).argmax(2)[:, :, None]
    farthest = np.take_along_axis(groups, place, 2)
    best, scale = np.full(farthest.shape, -1.0, np.float32), np.zeros_like(farthest)
    for more in TRIES:
        steps = np.clip(np.rint(_divided(groups * -(32 + more), farthest)), -32, 31)
        both = (weight * steps * groups).sum(2, keepdims=True)
        squares = (weight * steps * steps).sum(2, keepdims=True)
        gain = _divided(both * both, squares)  # what is left of the error is less by this
        is_better = gain > best
        best, scale = (
            np.where(is_better, gain, best),
            np.where(is_better, _divided(both, squares), scale),
        )
    scale = scale[:, :, 0]
    widest = np.take_along_axis(scale, np.abs(scale).argmax(1)[:, None], 1)
    d = _half(widest / np.float32(-128))
    scales = np.clip(np.rint(_divided(scale, _read(d) + 0 * scale)), -128, 127)
    steps = _divided(groups, (_read(d) * scales)[:, :, None] + 0 * groups)
    quants = (np.clip(np.rint(steps), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (quants[:, :, :2] & 15) | ((quants[:, :, 2:] & 15) << 4)
    places = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = np.bitwise_or.reduce((quants >> 4) << places, 2)
    count = len(blocks)
    fields = [low.reshape(count, 128), high.reshape(count, 64)]
    return np.concatenate([*fields, scales.astype(np.int8).view(np.uint8), d], 1)


QUANTISERS: dict[str, Callable[[Array], Array]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
}  # fmt: skip
KINDS = ("F32", "F16", "BF16", *QUANTISERS)
