"""Whole numbers that were widened are stored as narrow as they are: products then read bytes."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod.dtype import types as dt
from svod.tools.explain import explanation


def _products_of_bytes(is_unsigned: bool) -> tuple[svod.Tensor, np.ndarray]:
    """Two products that share their rows, which are rounded to bytes, and the exact answer."""
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 64)).astype(np.float32)
    weights = random.integers(-128, 128, (2, 64, 48)).astype(np.int8)
    low, high = (0, 255) if is_unsigned else (-128, 127)
    whole = (svod.Tensor(x) * 40).round().clamp(low, high)
    whole = whole.cast(dt.uint8 if is_unsigned else dt.int8).cast(dt.int32)
    first, second = [whole @ svod.Tensor(w).cast(dt.int32) for w in weights]
    narrow = np.clip(np.round(x * np.float32(40)), low, high).astype(np.int32)
    return first + second, narrow @ weights.astype(np.int32).sum(0)


@pytest.mark.parametrize("is_unsigned", [True, False])
def test_sums_of_products_of_stored_bytes_are_exact(is_unsigned: bool) -> None:
    found, wanted = _products_of_bytes(is_unsigned)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_what_two_products_read_is_stored_as_bytes() -> None:
    text = explanation(_products_of_bytes(True)[0], code=True)
    assert "u8 p0[32][64]" in text
    assert "i32 p1[2048]" not in text
