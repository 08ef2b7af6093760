"""A loop whose numbers, indices and offsets change compiles at most twice, and is right."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.schedule.cache import cache_statistics
from svod.schedule.schedule import clear_schedule_cache
from svod.tensor.recording import scalar_arguments

X = np.random.default_rng(0).normal(size=(24, 10)).astype(np.float32)

LOOPS = {
    "row times number": lambda x, i: (x[i] * (i * 0.5 - 1)).sum(),
    "column slice": lambda x, i: x[:, i % 8 : i % 8 + 2] + i,
    "two slices of one tensor": lambda x, i: x[i : i + 3] - 2 * x[i + 1 : i + 4],
    "negative step": lambda x, i: x[i : i + 4][::-1] / (i + 1),
    "powers": lambda x, i: abs(x) ** (1.5 + i),
    "integers": lambda x, i: (x * 100).astype("int32") // (i + 3) + (i << 2),
    "comparison": lambda x, i: (x > i * 0.1) | (x < -i),
    "reduction of rows": lambda x, i: (x[i : i + 2] * 3 + i).sum(1),
}


def _compiled() -> int:
    return cache_statistics()["schedules"].misses


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_numbers_and_offsets_compiles_twice(name):
    function = LOOPS[name]
    x = Tensor(X)
    before = _compiled()
    for i in range(20):
        found, expected = function(x, i), function(X, i)
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-6)
    assert _compiled() - before <= 2


def test_writes_at_changing_places_compile_twice():
    before = _compiled()
    for i in range(20):
        x, expected = Tensor(X), X.copy()
        x[i, 2:5] = float(i)
        expected[i, 2:5] = i
        assert np.array_equal(x.numpy(), expected)
    assert _compiled() - before <= 2


def test_gradients_with_changing_numbers_compile_twice():
    before = _compiled()
    for i in range(10):
        x = Tensor(X, requires_grad=True)
        ((x * i)[i] ** 2).sum().backward()
        expected = np.zeros_like(X)
        expected[i] = 2 * X[i] * i * i
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)
    assert _compiled() - before <= 3  # the first is zero times x


def test_a_number_that_changes_later_is_lifted_then():
    x = Tensor(X)
    before = _compiled()
    for i in range(12):
        a, b = (i if i < 6 else 5), (1 if i < 6 else i)
        np.testing.assert_allclose((x * a + b).numpy(), X * a + b, rtol=1e-6, atol=1e-6)
    assert _compiled() - before <= 4


def test_another_shift_of_roll_is_another_offset():
    x, lazy = Tensor(X).realize(), Tensor(X).realize() * 2
    before = _compiled()
    for i in range(1, 12):
        np.testing.assert_array_equal(x.roll(i, 0).numpy(), np.roll(X, i, 0))
        np.testing.assert_array_equal(
            lazy.roll((i, -i), (1, 0)).numpy(), np.roll(X * 2, (i, -i), (1, 0))
        )
    assert _compiled() - before <= 8  # also where a shift is that of no shift along one axis


def test_other_lines_keep_their_own_constants():
    x = Tensor(X)
    first = (x * 2).exp().numpy()
    second = (x * 3).exp().numpy()
    np.testing.assert_allclose(first, np.exp(X * 2), rtol=1e-5)
    np.testing.assert_allclose(second, np.exp(X * 3), rtol=1e-5)


def test_special_numbers_pass_as_arguments():
    x = Tensor(X)
    for value in (1.0, float("inf"), float("nan"), -0.0, float("nan"), 3.0):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal((x * value).numpy(), X * np.float32(value))


def test_a_line_that_keeps_compiling_is_named_once(caplog):
    x = Tensor(X)
    clear_schedule_cache()
    scalar_arguments._compiled.clear()
    with caplog.at_level(logging.WARNING, "svod"), svod.knobs.scope(WARN_RECOMPILE=5):
        for n in range(1, 15):
            x[:n].sum().item()
    texts = [r.getMessage() for r in caplog.records if "different graphs" in r.getMessage()]
    assert len(texts) == 1 and "test_lifting.py" in texts[0] and "svod.Variable" in texts[0]
    caplog.clear()
    scalar_arguments._compiled.clear()
    clear_schedule_cache()

    def shown(t):
        return t.detach().cpu().reshape(-1).tolist()

    with caplog.at_level(logging.WARNING, "svod"), svod.knobs.scope(WARN_RECOMPILE=3):
        shown(x.sin() + 1)
        shown(x.exp().sum(0))
        shown(x * x.cos())
        shown(x @ x.T)
    assert not caplog.records, "a helper that shows results is not where they come from"
    with caplog.at_level(logging.WARNING, "svod"), svod.knobs.scope(WARN_RECOMPILE=0):
        for n in range(1, 15):
            x[:n].mean().item()
    assert not caplog.records
