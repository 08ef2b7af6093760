"""Running sums and extremes along every axis: the same values wherever the axis is."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor

SHAPES = [(3, 70, 20), (70, 3, 20), (130, 33), (33, 130), (2, 65, 3), (2, 300, 4, 5), (1, 1, 40)]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_folds_along_every_axis(shape):
    x = numbers(shape)
    for axis in range(x.ndim):
        sums = Tensor(x).cumsum(axis).numpy()
        np.testing.assert_allclose(sums, x.cumsum(axis), rtol=1e-4, atol=1e-5)
        values, places = Tensor(x).cummax(axis)
        np.testing.assert_array_equal(values.numpy(), np.maximum.accumulate(x, axis))
        np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), axis), values.numpy())


@pytest.mark.parametrize("shape", [(90, 64), (5, 90, 4, 8)])
def test_an_axis_in_front_has_the_bits_of_one_at_the_end(shape):
    """Blocks are the same, so the order in which numbers are added is, too."""
    x = numbers(shape, 1)
    axis = shape.index(90)
    here = Tensor(x).cumsum(axis).numpy()
    at_the_end = np.moveaxis(Tensor(np.moveaxis(x, axis, -1).copy()).cumsum(-1).numpy(), -1, axis)
    np.testing.assert_array_equal(here, at_the_end)


def test_long_columns_are_read_and_stored_where_they_are():
    """No kernel walks the rows of a matrix as lanes: neighbours in memory are the lanes."""
    x = Tensor(numbers((4096, 64))).realize()
    plan = svod.prepare(x.cumsum(0))
    names = [str(kernel) for kernel in plan.kernels()]
    assert any("x64_" in name for name in names) and not any("_64x" in name for name in names), (
        names
    )


def test_run_time_sizes_and_gradients():
    n = svod.Variable("n", 1, 80)
    data = numbers((80, 32), 2)
    found = Tensor(data).realize()[: n.bind(70)].cumsum(0)
    np.testing.assert_allclose(found.numpy(), data[:70].cumsum(0), rtol=1e-4, atol=1e-5)
    x = Tensor(data).requires_grad_()
    weights = numbers((80, 32), 3)
    (x.cumsum(0) * Tensor(weights)).sum().backward()
    wanted = weights[::-1].cumsum(0)[::-1]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)
