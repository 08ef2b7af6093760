"""Run-time sizes that are bound: checked at their value, over their range only in plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import IndexingError, ShapeError, VariableError

X = np.arange(10, dtype=np.float32)
M = np.arange(40, dtype=np.float32).reshape(10, 4)
ROWS = svod.Variable("i", 1, 8)
PADS = svod.Variable("p", 1, 8)

# What a tensor cut to a bound size does, and the same with a number.
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "a slice of all": lambda x, i: (x[:i] + 1)[:5],
    "a slice of some": lambda x, i: (x[:i] + 1)[:3],
    "a slice past the end": lambda x, i: (x[:i] + 1)[:7],
    "a slice from the end": lambda x, i: (x[:i] + 1)[-2:],
    "an element": lambda x, i: (x[:i] + 1)[4],
    "the last element": lambda x, i: (x[:i] + 1)[-1],
    "a sum with a size of its own": lambda x, i: x[:i] + np.ones(5, np.float32),
    "a shape of numbers": lambda x, i: x[:i].reshape(5, 1),
    "a part of a part": lambda x, i: (x[:i] + 1)[: i - 2],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bound_size_does_what_its_value_does(name: str) -> None:
    found = PROGRAMS[name](Tensor(X), ROWS.bind(5))
    np.testing.assert_array_equal(found.numpy(), PROGRAMS[name](X, 5))


def test_sizes_of_two_variables_with_one_value_are_equal() -> None:
    a, b = Tensor(X)[: ROWS.bind(5)], Tensor(X)[: PADS.bind(5)]
    np.testing.assert_array_equal((a + b).numpy(), 2 * X[:5])
    np.testing.assert_array_equal(svod.stack([a, b]).numpy(), np.stack([X[:5]] * 2))
    found = Tensor(M).T[:, : ROWS.bind(5)] @ Tensor(M)[: PADS.bind(5)]
    np.testing.assert_allclose(found.numpy(), M.T[:, :5] @ M[:5])
    assert len(a) == 5
    assert [float(v) for v in a] == list(X[:5])


@pytest.mark.parametrize("size", [1, 3, 7, 8])
def test_borders_follow_the_value_of_a_variable(size: int) -> None:
    p = PADS.bind(size)
    found = Tensor(X)[:p].pad((0, 8 - p - 1))
    wanted = np.zeros(7, np.float32)
    wanted[: min(size, 7)] = X[: min(size, 7)]
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_a_bound_part_is_assigned_to() -> None:
    w = svod.zeros(8).realize()
    w[: ROWS.bind(5)].assign(svod.ones(5)).realize()
    assert w.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_what_the_value_does_not_allow_is_refused() -> None:
    x = Tensor(X)[: ROWS.bind(5)] + 1
    with pytest.raises(IndexingError, match="index 6 is out of range"):
        x[6]
    with pytest.raises(ShapeError, match="do not broadcast"):
        x + svod.ones(4)
    with pytest.raises(ShapeError, match="cannot reshape"):
        x.reshape(2, 2)


def plan(function: Callable[[Tensor], Tensor]) -> Any:
    x = Tensor(X).realize()
    return svod.prepare(function(x), inputs={"x": x})


def test_a_slice_in_a_plan_ends_at_the_axis_for_every_value() -> None:
    run = plan(lambda x: (x[: ROWS.bind(5)] + 1)[:7])
    for size in (3, 7, 8):
        np.testing.assert_array_equal(run(i=size), (X[:size] + 1)[:7])
    recorded = svod.jit(lambda x, i: (x[:i] + 1)[:7])
    for size in (3, 7, 8):
        np.testing.assert_array_equal(recorded(X, ROWS.bind(size)).numpy(), (X[:size] + 1)[:7])


def test_a_plan_holds_for_every_value_or_is_not_made() -> None:
    with pytest.raises(VariableError, match=r"slice \(0, 5\) of an axis of size i .* from 1 to 8"):
        plan(lambda x: (x[: ROWS.bind(5)] + 1)[:5])
    with pytest.raises(VariableError, match=r"border .* of an axis of size p .* from 1 to 8"):
        plan(lambda x: x[: PADS.bind(3)].pad((0, 8 - PADS.bind(3) - 1)))
    run = plan(lambda x: x[: PADS.bind(3)].pad((0, 8 - PADS.bind(3))))
    for size in (1, 8):
        np.testing.assert_array_equal(run(p=size), np.pad(X[:size], (0, 8 - size)))
