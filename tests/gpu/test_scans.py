"""Running sums and extremes along rows: blocks of threads scan them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor

RNG = np.random.default_rng(5)
SHAPES = [(3, 65), (70, 128), (5, 1000), (4, 1001), (9, 4096), (2, 8192), (3, 10000), (1_000_003,)]
SHAPES += [(1 << 20,), (2, 3, 500_000)]


@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, np.float32)
    wanted = np.cumsum(x.astype(np.float64), -1)
    np.testing.assert_allclose(Tensor(x).cumsum(-1).numpy(), wanted, atol=1e-3, rtol=1e-4)
    found = ((Tensor(x) * 2 + 1).cumsum(-1) * 0.5).numpy()
    wanted = np.cumsum(x.astype(np.float64) * 2 + 1, -1) * 0.5
    np.testing.assert_allclose(found, wanted, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_running_sums_of_integers(shape: tuple[int, ...], kind: Any) -> None:
    x = RNG.integers(0, 100, shape).astype(kind)
    np.testing.assert_array_equal(Tensor(x).cumsum(-1).numpy(), np.cumsum(x, -1, np.int64))


@pytest.mark.parametrize("shape", SHAPES)
def test_running_extremes(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-(10**6), 10**6, shape).astype(np.float32)
    for found, fold in ((Tensor(x).cummax(-1), np.maximum), (Tensor(x).cummin(-1), np.minimum)):
        wanted = fold.accumulate(x, -1)
        np.testing.assert_array_equal(found.values.numpy(), wanted)
        places = np.where(x == wanted, np.arange(shape[-1]), 0)
        np.testing.assert_array_equal(found.indices.numpy(), np.maximum.accumulate(places, -1))


@pytest.mark.parametrize("shape", [(5, 1000), (3, 10000)])
def test_gradients_of_running_sums(shape: tuple[int, ...]) -> None:
    x, g = RNG.standard_normal((2, *shape), np.float32)
    t = Tensor(x, requires_grad=True)
    (t.cumsum(-1) * Tensor(g)).sum().backward()
    assert t.grad is not None
    wanted = np.cumsum(g.astype(np.float64)[:, ::-1], -1)[:, ::-1]
    np.testing.assert_allclose(t.grad.numpy(), wanted, atol=1e-3)


def test_narrow_floats_are_summed_in_float32() -> None:
    x = Tensor(RNG.random((7, 4096), np.float32)).cast(svod.bfloat16).realize()
    exact = np.cumsum(x.cast(svod.float32).numpy().astype(np.float64), -1)
    np.testing.assert_allclose(x.cumsum(-1).cast(svod.float32).numpy(), exact, rtol=5e-3)
