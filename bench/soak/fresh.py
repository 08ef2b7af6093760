"""Graphs that no cache has seen: a number gives a small formula, its inputs and NumPy's result.

In: any number. Out: a function that builds the graph from tensors, and what it must give. The
number is spelled as a sequence of operations, so that two numbers never make the same graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import svod

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 3, 8

# Each with itself for NumPy; all of them keep numbers small.
STEPS: tuple[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]], ...] = (
    (lambda x, y: x.sin(), lambda x, y: np.sin(x)),
    (lambda x, y: x * y, lambda x, y: x * y),
    (lambda x, y: (x + y).tanh(), lambda x, y: np.tanh(x + y)),
    (lambda x, y: x.maximum(y), lambda x, y: np.maximum(x, y)),
    (lambda x, y: x - y.abs(), lambda x, y: x - np.abs(y)),
    (lambda x, y: x.flip(1), lambda x, y: x[:, ::-1]),
    (lambda x, y: x.relu() + y, lambda x, y: np.maximum(x, 0) + y),
    (lambda x, y: (x - x.mean(1, keepdim=True)).cos(),
     lambda x, y: np.cos(x - x.mean(1, keepdims=True))),
)  # fmt: skip


def digits(number: int) -> list[int]:
    """The number in the base of the steps, the lowest digit first, at least three."""
    found = []
    while number or len(found) < 3:
        number, digit = divmod(number, len(STEPS))
        found.append(digit)
    return found


def inputs() -> tuple[Array, Array]:
    chance = np.random.default_rng(7)
    return chance.random((ROWS, COLUMNS), np.float32), chance.random((ROWS, COLUMNS), np.float32)


def is_right(number: int) -> bool:
    """Compute the graph of a number and compare it with NumPy."""
    a, b = inputs()
    x, y = svod.Tensor(a), svod.Tensor(b)
    wanted = a
    for digit in digits(number):
        ours, theirs = STEPS[digit]
        x, wanted = ours(x, y), theirs(wanted, b)
    return bool(np.allclose(x.numpy(), wanted, rtol=1e-3, atol=1e-4))
