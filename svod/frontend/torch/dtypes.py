"""Dtypes of torch and of Svod."""

from __future__ import annotations

import torch

from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.dtype.types import DType

_PAIRS = {
    torch.bool: dt.bool_, torch.uint8: dt.uint8, torch.int8: dt.int8, torch.int16: dt.int16,
    torch.int32: dt.int32, torch.int64: dt.int64, torch.uint16: dt.uint16,
    torch.uint32: dt.uint32, torch.uint64: dt.uint64, torch.float16: dt.float16,
    torch.bfloat16: dt.bfloat16, torch.float32: dt.float32, torch.float64: dt.float64,
    torch.complex64: dt.complex64, torch.complex128: dt.complex128,
    torch.float8_e4m3fn: dt.float8_e4m3, torch.float8_e5m2: dt.float8_e5m2,
}  # fmt: skip

_BACK = {ours: theirs for theirs, ours in _PAIRS.items()}


def from_torch(dtype: torch.dtype) -> DType:
    """The dtype of Svod; UnsupportedError where it has none."""
    found = _PAIRS.get(dtype)
    if found is None:
        raise UnsupportedError(f"Svod has no dtype like {dtype}")
    return found


def to_torch(dtype: DType) -> torch.dtype:
    """The dtype of torch."""
    return _BACK[dtype]


def is_known(dtype: torch.dtype) -> bool:
    return dtype in _PAIRS
