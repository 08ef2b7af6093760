"""Sums and writes at places that data chooses: in order, whatever meets, as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from svod import Tensor

RNG = np.random.default_rng(12)


@pytest.mark.parametrize("rows", [1, 7, 300, 5000])
@pytest.mark.parametrize("columns", [1, 3, 64, 1000])
@pytest.mark.parametrize("steps", [5, 64, 1003])
def test_rows_are_added_in_order(rows: int, columns: int, steps: int) -> None:
    target = RNG.standard_normal((rows, columns), np.float32)
    values = RNG.standard_normal((steps, columns), np.float32)
    places = RNG.integers(0, rows, steps)
    wanted = target.copy()
    np.add.at(wanted, places, values)
    found = Tensor(target).realize().index_add(0, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_array_equal(found, wanted)  # the order of the additions is that of NumPy


@pytest.mark.parametrize("size", [1, 10, 4000])
def test_single_numbers_are_added_in_order(size: int) -> None:
    values = RNG.standard_normal(3000, np.float32)
    places = RNG.integers(0, size, 3000)
    wanted = np.zeros(size, np.float32)
    np.add.at(wanted, places, values)
    zeros = Tensor(np.zeros(size, np.float32)).realize()
    np.testing.assert_array_equal(
        zeros.scatter_add(0, Tensor(places), Tensor(values)).numpy(), wanted
    )
    np.testing.assert_array_equal(
        Tensor(places).realize().bincount(minlength=size).numpy(), np.bincount(places, None, size)
    )


def test_the_last_of_several_writes_stays() -> None:
    places = RNG.integers(0, 50, (40, 30))
    values = RNG.standard_normal((40, 30), np.float32)
    target = np.zeros((40, 50), np.float32)
    wanted = target.copy()
    for row in range(40):
        for column in range(30):
            wanted[row, places[row, column]] = values[row, column]
    found = Tensor(target).realize().scatter(1, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_array_equal(found, wanted)
    down = Tensor(np.zeros((50, 30), np.float32)).realize()
    wanted = np.zeros((50, 30), np.float32)
    for row in range(40):
        for column in range(30):
            wanted[places[row, column], column] += values[row, column]
    found = down.scatter_add(0, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_gradient_of_an_embedding() -> None:
    table = RNG.standard_normal((500, 48), np.float32)
    words = RNG.integers(0, 500, (16, 40))
    weights = Tensor(table).realize().requires_grad_()
    (weights[Tensor(words)] * 2).sum().backward()
    assert weights.grad is not None
    wanted = np.zeros((500, 48), np.float32)
    np.add.at(wanted, words, np.full((16, 40, 48), 2, np.float32))
    np.testing.assert_array_equal(weights.grad.numpy(), wanted)
