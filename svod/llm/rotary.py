"""Rotary angles: tables of cosines and sines by position, and turning heads by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import svod
from svod.llm.config import DecoderConfig
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


def angle_tables(
    config: DecoderConfig, positions: int, is_local: bool, factors: Array | None
) -> tuple[Array, Array]:
    """Cosines and sines, (positions, rotated / 2) each; `factors` divide the frequencies."""
    base = config.local_base if is_local and config.local_base else config.base
    steps = np.arange(0, config.rotated, 2, dtype=np.float32) / np.float32(config.rotated)
    frequencies = (1.0 / np.power(np.float32(base), steps)).astype(np.float32)
    is_scaled = not (is_local and config.local_base)
    if is_scaled and config.divisor != 1.0:
        frequencies = frequencies / np.float32(config.divisor)
    if is_scaled and config.llama3_scaling is not None:
        frequencies = _llama3(frequencies, config.llama3_scaling)
    if is_scaled and factors is not None:
        frequencies = frequencies / factors.astype(np.float32)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    return np.cos(angles), np.sin(angles)


def _llama3(frequencies: Array, scaling: tuple[float, float, float, float]) -> Array:
    """Long waves are stretched by the factor, short ones kept, those between mixed."""
    factor, low, high, original = scaling
    length = 2 * math.pi / frequencies
    share = (original / length - low) / (high - low)
    mixed = (1 - share) * frequencies / factor + share * frequencies
    found = np.where(length > original / low, frequencies / factor, frequencies)
    between = (length >= original / high) & (length <= original / low)
    return np.where(between, mixed, found).astype(np.float32)


def turned(x: Tensor, cosines: Tensor, sines: Tensor, config: DecoderConfig) -> Tensor:
    """Heads (tokens, heads, size) turned by the angles (tokens, 1, rotated / 2)."""
    half = config.rotated // 2
    moved, kept = x[:, :, : config.rotated], x[:, :, config.rotated :]
    if config.rotation == "pairs":
        pairs = moved.reshape(*moved.shape[:2], half, 2)
        a, b = pairs[:, :, :, 0], pairs[:, :, :, 1]
        both = svod.stack([a * cosines - b * sines, b * cosines + a * sines], 3)
        moved = both.reshape(*moved.shape)
    else:
        a, b = moved[:, :, :half], moved[:, :, half:]
        moved = svod.cat([a * cosines - b * sines, b * cosines + a * sines], 2)
    return moved if config.rotated == config.head_size else svod.cat([moved, kept], 2)
