"""Sorts: stable, NaN last, of all dtypes, around the sizes where kernels change."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.schedule.sorts import BY_BLOCKS

SHARE = BY_BLOCKS.share
DEALT = BY_BLOCKS.dealt

RNG = np.random.default_rng(7)
SIZES = [1, 2, 255, 256, 257, 511, 4095, 4096, 4097, SHARE - 1, SHARE, SHARE + 1, 3 * DEALT, 50_001]
KINDS = [
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.int32,
    np.uint32, np.int64, np.uint64, np.bool_,
]  # fmt: skip


def numbers(kind: Any, *shape: int) -> np.ndarray[Any, Any]:
    """Many of them alike, with the special ones of the dtype."""
    dtype = np.dtype(kind)
    if dtype == np.bool_:
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = RNG.integers(-5 if info.min else 0, 6, shape).astype(dtype)
        wild = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(RNG.random(shape) < 0.5, found, wild)
    found = (RNG.integers(-40, 40, shape) / 8).astype(dtype)
    special = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0]).astype(dtype)
    return np.where(RNG.random(shape) < 0.9, found, special[RNG.integers(0, 5, shape)])


def order(x: np.ndarray[Any, Any], descending: bool = False) -> np.ndarray[Any, Any]:
    """NumPy's, as Svod defines it: NaN is the largest."""
    if x.dtype.kind not in "iub":
        is_nan = np.isnan(x)
        x = x.astype(np.float64)
        rank = np.unique(np.where(is_nan, 0, x), return_inverse=True)[1].reshape(x.shape)
        x = np.where(is_nan, x.size + 1, rank)
    else:
        x = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-x if descending else x, -1, kind="stable")


def check(x: np.ndarray[Any, Any], descending: bool = False) -> None:
    values, places = Tensor(x).realize().sort(-1, descending)
    svod.realize(values, places)
    wanted = order(x, descending)
    np.testing.assert_array_equal(places.numpy(), wanted)
    chosen = np.take_along_axis(x, wanted, -1)
    found = np.asarray(values.numpy())
    assert found.tobytes() == np.ascontiguousarray(chosen).astype(found.dtype).tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_sizes_around_the_borders_of_blocks(size: int) -> None:
    check(numbers(np.float32, 3, size))
    check(numbers(np.int32, size), descending=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [700, 20_000])
def test_dtypes(kind: Any, size: int) -> None:
    check(numbers(kind, 2, size))
    check(numbers(kind, 2, size), descending=True)


def test_many_rows_and_other_axes() -> None:
    check(numbers(np.float32, 500, 300))
    check(numbers(np.float32, 7, 3, 9000))
    x = numbers(np.float32, 600, 5)
    np.testing.assert_array_equal(Tensor(x).realize().argsort(0).numpy(), order(x.T).T)


def test_a_million() -> None:
    check(numbers(np.float32, 1 << 20))
    check(RNG.standard_normal((1 << 20) + 3).astype(np.float32))


@pytest.mark.parametrize("size", [300, 4096, 5000, SHARE + 5, 40_000])
@pytest.mark.parametrize("count", [1, 50, 256, 290])
def test_the_largest(size: int, count: int) -> None:
    x = numbers(np.float32, 4, size)
    for largest in (True, False):
        values, places = Tensor(x).realize().topk(count, largest=largest)
        svod.realize(values, places)
        wanted = order(x, largest)[:, :count]
        np.testing.assert_array_equal(places.numpy(), wanted)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, -1))


@pytest.mark.parametrize("size", [301, 4097, 30_000])
def test_middles(size: int) -> None:
    x = RNG.standard_normal((3, size)).astype(np.float32)
    values, places = Tensor(x).realize().kthvalue(size // 3)
    wanted = order(x)[:, size // 3 - 1]
    np.testing.assert_array_equal(places.numpy(), wanted)
    np.testing.assert_array_equal(values.numpy(), np.sort(x, -1)[:, size // 3 - 1])
    values = Tensor(x).realize().median(1).values
    np.testing.assert_array_equal(values.numpy(), np.sort(x, -1)[:, (size - 1) // 2])


def test_gradients_go_back_to_their_places() -> None:
    x = RNG.standard_normal((2, 5000)).astype(np.float32)
    t = Tensor(x).realize()
    t.requires_grad = True
    weight = np.arange(10, dtype=np.float32)
    (t.topk(10).values * Tensor(weight)).sum().backward()
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, order(x, True)[:, :10], np.broadcast_to(weight, (2, 10)), -1)
    np.testing.assert_array_equal(t.grad.numpy(), wanted)


def test_a_plan_runs_again_with_other_values() -> None:
    ordered = svod.jit(lambda x: x.sort(-1).values)
    for _ in range(4):
        x = RNG.standard_normal((2, 20_000)).astype(np.float32)
        np.testing.assert_array_equal(ordered(Tensor(x).realize()).numpy(), np.sort(x, -1))
