"""Iterating a tensor: rows in order, computed once."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.runtime.plan import ExecutionPlan

X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every plan that runs."""
    found: list[int] = []
    execute = ExecutionPlan.execute

    def counted(plan: ExecutionPlan) -> None:
        found.append(1)
        execute(plan)

    monkeypatch.setattr(ExecutionPlan, "execute", counted)
    return found


def test_a_lazy_tensor_is_computed_once_for_all_its_rows(runs: list[int]) -> None:
    y = (Tensor(X) @ Tensor(X).T).sin()
    rows = [row.numpy() for row in y]
    np.testing.assert_allclose(rows, np.sin(X @ X.T), atol=1e-5)
    assert len(runs) == 1
    first, *_ = y
    assert first.tolist() == rows[0].tolist()
    assert len(runs) == 1


def test_rows_of_what_is_trained_have_gradients() -> None:
    w = Tensor(X).requires_grad_()
    total = svod.zeros(())
    for row in w * 2:
        total = total + (row * row).sum()
    for row in w:
        total = total + row.sum()
    total.backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 8 * X + 1)


def test_a_recorded_function_may_iterate() -> None:
    f = svod.jit(lambda x: sum([row * k for k, row in enumerate(x + 1)]))
    np.testing.assert_allclose(f(X).numpy(), (np.arange(4)[:, None] * (X + 1)).sum(0))
