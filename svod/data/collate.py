"""Samples to batches: elements that belong together are stacked along a new first axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.tensor import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Numbers, arrays and tensors become one tensor; containers are gone through; texts listed."""
    return tensors_of(stacked(batch))


def stacked(batch: Sequence[Any]) -> Any:
    """A batch whose leaves are NumPy arrays, which travel between processes."""
    first = batch[0]
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: stacked([sample[key] for sample in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        if len({len(sample) for sample in batch}) > 1:
            raise ShapeError(f"samples have different lengths: {[len(s) for s in batch]}")
        parts = [stacked(part) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (Tensor, bool, int, float, complex)):
        rows = [s.numpy() if isinstance(s, Tensor) else s for s in batch]
        made = _stack(rows)
        if isinstance(first, float):
            return made.astype(np.float64)
        return made
    if isinstance(first, (np.ndarray, np.generic)) or hasattr(first, "__array__"):
        return _stack([np.asarray(s) for s in batch])
    raise DTypeError(
        f"samples of type {type(first).__name__} cannot be stacked: give DataLoader a collate_fn"
    )


def _stack(rows: list[Any]) -> Any:
    shapes = {np.shape(row) for row in rows}
    if len(shapes) > 1:
        raise ShapeError(
            f"samples of shapes {sorted(shapes)} cannot be stacked: give DataLoader a collate_fn "
            "that pads them"
        )
    return np.stack(rows)


def tensors_of(value: Any) -> Any:
    """A batch of arrays as tensors over the same memory."""
    if isinstance(value, np.ndarray):
        return Tensor.from_numpy(value)
    if isinstance(value, dict):
        return {key: tensors_of(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        parts = [tensors_of(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
