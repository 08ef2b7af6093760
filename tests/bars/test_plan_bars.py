"""Bars of plans: tight memory that equals its report, loops that do not grow, cheap calls."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import svod
from bench.soak import threads as soak_threads
from svod import nn
from svod.device.registry import get_device
from svod.ir.sweep import sweep
from svod.tools.bench import models, plans

MODELS: dict[str, Callable[[], models.Model]] = {
    "resnet18": partial(models.resnet18, 64),
    "transformer": partial(models.transformer, 12, 96, 4, 32),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_arena_is_close_to_the_lower_bound(name: str) -> None:
    model = MODELS[name]()
    plan = model.run(model.tensors()).prepare()
    assert plan.memory.reused > 10
    assert plan.memory.lower_bound <= plan.memory.planned_bytes <= 1.15 * plan.memory.lower_bound


def live_bytes() -> int:
    return int(get_device("CPU").allocator.counters.live)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_allocated_is_what_the_report_says(name: str) -> None:
    model = MODELS[name]()
    tensors = model.tensors()  # over the arrays: not allocated here
    output = model.run(tensors)
    svod.ones(1).realize()
    gc.collect()
    sweep()  # what earlier work left behind is freed now, not while this plan is made
    before = live_bytes()
    plan = output.prepare()
    report = plan.memory
    given = sum(array.nbytes for array in model.arrays.values())
    allocated = live_bytes() - before
    assert report.peak_bytes - given <= allocated <= report.peak_bytes - given + 4096
    held = {b.storage.id: b.storage.nbytes for b in plan.buffers()}
    assert sum(held.values()) == report.peak_bytes
    plan.execute()
    assert live_bytes() - before == allocated  # a run allocates nothing


def test_a_training_step_through_a_loop_shares_memory_too() -> None:
    lstm, optimizer = _lstm()

    @svod.jit(state=(lstm, optimizer))
    def train(x: Any) -> Any:
        optimizer.zero_grad()
        loss = lstm(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    report = train.plan(svod.ones(16, 4, 8)).memory
    assert report.planned_bytes <= 1.15 * report.lower_bound


def _lstm() -> tuple[Any, Any]:
    lstm = nn.LSTM(8, 16, num_layers=2)
    return lstm, nn.optim.SGD(lstm.parameters(), lr=0.1)


def test_preparing_a_long_loop_costs_little_more_than_a_short_one() -> None:
    """The bar is 1.5, see the benchmark; here is room for a busy machine."""
    best: dict[int, float] = {}
    for _ in range(2):
        for steps in plans.STEPS:
            seconds = _fresh_lstm(steps)
            best[steps] = min(seconds, best.get(steps, seconds))
    assert best[512] < 2.0 * best[8], best


def _fresh_lstm(steps: int) -> float:
    program = f"from svod.tools.bench.plans import prepare_lstm as p; print(p({steps})['seconds'])"
    environment = {**os.environ, "SVOD_OBJECT_CACHE": "0", "SVOD_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


def test_a_loop_of_512_steps_is_right() -> None:
    random = np.random.default_rng(0)
    lstm = nn.LSTM(3, 4)
    x = random.standard_normal((512, 2, 3)).astype(np.float32)
    found = lstm(svod.Tensor(x))[0].numpy()
    w, u, b = (
        lstm.weight_ih_l0.numpy(),
        lstm.weight_hh_l0.numpy(),
        lstm.bias_ih_l0.numpy() + lstm.bias_hh_l0.numpy(),
    )
    h = c = np.zeros((2, 4), np.float32)
    for t in range(512):
        i, f, g, o = np.split(x[t] @ w.T + h @ u.T + b, 4, 1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        np.testing.assert_allclose(found[t], h, atol=1e-5)


def test_many_threads_on_one_plan_and_on_replicas() -> None:
    outcome = soak_threads.soak(5.0)
    assert outcome.is_good, str(outcome)
    assert outcome.runs > 32
