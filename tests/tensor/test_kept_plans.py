"""Graphs that are computed again run the plan that was kept: other memory, the same values."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.ir.sweep import sweep
from svod.runtime.caches import clear_kernel_cache
from svod.runtime.kept import KeptPlan
from svod.tensor.core.tensor_registry import buffer_of
from svod.tensor.recording import kept_plans


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def runs(monkeypatch):
    """How often a kept plan ran."""
    found: list[int] = []
    run = KeptPlan.run

    def counted(self, inputs):
        found.append(1)
        return run(self, inputs)

    monkeypatch.setattr(KeptPlan, "run", counted)
    clear_kernel_cache()
    return found


def test_the_third_time_a_graph_is_computed_its_plan_runs_again(runs):
    for seed in range(5):
        a, b = numbers(6, 7, seed=seed), numbers(7, 5, seed=seed + 50)
        found = (Tensor(a) @ Tensor(b)).softmax(-1).sum(0)
        wanted = np.exp(a @ b) / np.exp(a @ b).sum(-1, keepdims=True)
        np.testing.assert_allclose(found.numpy(), wanted.sum(0), rtol=1e-5)
    assert len(runs) == 3


def test_results_of_earlier_runs_stay(runs):
    found = [(Tensor(np.full(4, n, np.float32)) * 3).realize() for n in range(6)]
    assert [t.tolist() for t in found] == [[3.0 * n] * 4 for n in range(6)]
    assert len(runs) == 4


def test_two_inputs_that_were_one_may_be_two(runs):
    x = Tensor(numbers(4)).realize()
    for _ in range(4):
        a, b = x * 2, x * 2
        svod.realize(a, b)
        assert buffer_of(a.uop) is buffer_of(b.uop), "equal values share their memory"
        np.testing.assert_array_equal((a - b).numpy(), np.zeros(4))
    first, second = numbers(4, seed=1), numbers(4, seed=2)
    np.testing.assert_array_equal((Tensor(first) - Tensor(second)).numpy(), first - second)


def test_assignments_write_where_they_should(runs):
    for n in range(5):
        x = Tensor(np.zeros(6, np.float32)).realize()
        y = Tensor(np.zeros(6, np.float32)).realize()
        x += 1
        y[1:3] = 2
        x.realize()
        y.realize()
        y[0:2].add_(x[0:2]).realize()
        assert x.tolist() == [1.0] * 6, n
        assert y.tolist() == [1, 3, 2, 0, 0, 0], n


def test_several_results_of_a_batch_are_their_own(runs):
    for seed in range(4):
        x = Tensor(numbers(8, seed=seed))
        first, second, third = x + 1, x.sum(), x + 1
        svod.realize(first, second, third)
        third += 1
        data = numbers(8, seed=seed)
        np.testing.assert_array_equal(first.numpy(), data + 1)
        np.testing.assert_allclose(third.numpy(), data + 2, rtol=1e-5)
        np.testing.assert_allclose(second.item(), data.sum(), rtol=1e-5)


def test_indices_out_of_range_are_found_every_time(runs):
    table = Tensor(numbers(5, 2)).realize()
    for n in range(4):
        with pytest.raises(svod.errors.IndexRangeError, match=f"{n + 5} is out of range"):
            table[Tensor(np.array([0, n + 5]))].realize()
        assert table[Tensor(np.array([n]))].shape == (1, 2)


def test_nothing_is_held_between_runs(runs):
    for _ in range(4):
        x = Tensor(numbers(64, 64)).realize()
        y = ((x @ x).softmax(1) @ x).realize()
    memory = [weakref.ref(buffer_of(t.uop).storage) for t in (x, y)]
    assert runs
    del x, y
    gc.collect()
    sweep()
    assert [known() for known in memory] == [None, None]


def test_settings_that_change_code_make_another_plan(runs):
    x = Tensor(numbers(9)).realize()
    for _ in range(4):
        (x * 2).realize()
    before = len(runs)
    with knobs.scope(OPTIMIZE=0):
        (x * 2).realize()
    assert len(runs) == before
    (x * 2).realize()
    assert len(runs) == before + 1


def test_views_and_offsets_are_read_where_they_are(runs):
    for n in range(6):
        x = Tensor(np.arange(20, dtype=np.float32)).realize()
        part = x[n : n + 3].realize()
        np.testing.assert_array_equal((part + 0.5).numpy(), np.arange(n, n + 3) + 0.5)


def test_threads_share_the_plans(runs):
    wrong: list[int] = []
    interval = sys.getswitchinterval()

    def work(seed: int) -> None:
        data = numbers(64, seed=seed)
        for n in range(60):
            if not np.array_equal((Tensor(data + n) * 2).numpy(), (data + n) * 2):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and runs


def test_a_plan_is_one_threads_alone_while_it_runs(runs):
    for _ in range(3):
        (Tensor(numbers(5)) * 4).realize()
    (_, key), plan = list(kept_plans._plans.items())[-1]
    assert kept_plans.take(key) is plan and kept_plans.take(key) is None
    np.testing.assert_array_equal((Tensor(numbers(5)) * 4).numpy(), numbers(5) * 4)
    kept_plans.put(key, plan)


def test_many_graphs_are_bounded(runs, monkeypatch):
    monkeypatch.setattr(kept_plans, "KEPT", 3)
    for size in range(2, 8):
        for _ in range(3):
            (Tensor(numbers(size)) + 2).realize()
    assert len(kept_plans._plans) <= 3
