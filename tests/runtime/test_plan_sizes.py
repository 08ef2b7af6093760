"""Plans whose inputs have run-time sizes: arrays say what they are, and a call has its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ShapeError, VariableError

RNG = np.random.default_rng(5)
WEIGHTS = RNG.standard_normal((4, 3)).astype(np.float32)


def rows(count: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal((count, 4)).astype(np.float32)


@pytest.fixture
def plan() -> Iterator[Any]:
    """A product of rows and the sum of all, for 1 to 64 rows."""
    n = svod.Variable("n", 1, 64)
    x = Tensor(np.zeros((64, 4), np.float32)).realize()[: n.bind(2)]
    w = Tensor(WEIGHTS).realize()
    yield svod.prepare((x @ w).relu(), x.sum(), inputs={"x": x}, outputs=["y", "total"])


def wanted(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.maximum(x @ WEIGHTS, 0)


def test_the_rows_of_an_array_are_the_size(plan: Any) -> None:
    for count in (5, 1, 64, 3):
        x = rows(count)
        y, total = plan(x=x)
        np.testing.assert_allclose(y, wanted(x), atol=1e-5)
        np.testing.assert_allclose(total, x.sum(), atol=1e-4)


def test_an_output_takes_an_array_of_its_size(plan: Any) -> None:
    x, y = rows(5), np.zeros((5, 3), np.float32)
    found, _ = plan(x=x, y=y)
    assert found is y
    np.testing.assert_allclose(y, wanted(x), atol=1e-5)
    whole = np.zeros((64, 3), np.float32)
    plan(x=rows(64), y=whole)
    assert whole[63].any()


def test_variables_of_a_call_are_those_of_the_call(plan: Any) -> None:
    plan.bind(x=np.ones((64, 4), np.float32))
    plan.set_vars({"n": 2})
    assert plan(n=7)[0].shape == (7, 3)
    assert plan()[0].shape == (2, 3)
    with pytest.raises(ShapeError):
        plan(x=np.ones((5, 2), np.float32))
    assert plan()[0].shape == (2, 3)


def test_calls_that_contradict_themselves_are_refused(plan: Any) -> None:
    with pytest.raises(VariableError, match=r"variable n is 4 in this call.*says 5"):
        plan(x=rows(5), n=4)
    with pytest.raises(VariableError, match="n=65 is outside bounds"):
        plan(x=rows(65))


def test_threads_call_one_plan_with_sizes_of_their_own(plan: Any) -> None:
    def work(count: int) -> bool:
        x = rows(count)
        for _ in range(50):
            y, total = plan(x=x)
            if y.shape != (count, 3) or not np.allclose(y, wanted(x), atol=1e-4):
                return False
            if not np.isclose(total, x.sum(), atol=1e-3):
                return False
        return True

    with ThreadPoolExecutor(5) as pool:
        assert all(pool.map(work, (1, 3, 5, 17, 64)))


def test_a_recorded_function_serves_threads_with_their_own_sizes() -> None:
    n = svod.Variable("n", 1, 64)
    f = svod.jit(lambda x, k: x[:k].sum(0))
    x = rows(64)
    f(x, n.bind(1))

    def work(count: int) -> bool:
        return all(
            np.allclose(f(x, n.bind(count)).numpy(), x[:count].sum(0), atol=1e-4) for _ in range(50)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, (1, 5, 17, 64)))
    assert f.plans == 1
