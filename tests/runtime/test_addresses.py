"""Plans on memory that is given by address."""

from __future__ import annotations

import numpy as np

import svod
from svod.runtime.addresses import AddressedPlan
from svod.runtime.trace import profile


def _plan() -> AddressedPlan:
    x = svod.Tensor(np.zeros((4, 8), np.float32))
    w = svod.Tensor(np.zeros((8, 3), np.float32))
    plan = svod.prepare((x @ w).relu() + 1, inputs={"x": x, "w": w}, outputs=["y"])
    return AddressedPlan(plan, ["x", "w", "y"])


def test_every_call_reads_and_writes_the_memory_it_is_given() -> None:
    run = _plan()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((4, 8), np.float32), rng.standard_normal((8, 3), np.float32)
        y = np.empty((4, 3), np.float32)
        run([a.ctypes.data for a in (x, w, y)])
        np.testing.assert_allclose(y, np.maximum(x @ w, 0) + 1, rtol=1e-5)


def test_a_watched_run_uses_the_same_memory(tmp_path) -> None:
    run = _plan()
    x, w = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
    y = np.zeros((4, 3), np.float32)
    with profile(tmp_path / "trace.json"):
        run([a.ctypes.data for a in (x, w, y)])
    assert (y == 9).all()


def test_a_plan_with_python_inside_runs_on_addresses() -> None:
    x = svod.Tensor(np.zeros((3, 3), np.float32))
    run = AddressedPlan(
        svod.prepare(svod.linalg.inv(x) * 2, inputs={"x": x}, outputs=["y"]), ["x", "y"]
    )
    for factor in (2.0, 4.0):
        given, found = np.eye(3, dtype=np.float32) * factor, np.empty((3, 3), np.float32)
        run([given.ctypes.data, found.ctypes.data])
        np.testing.assert_allclose(found, np.eye(3) * 2 / factor)


def test_sizes_follow_the_values_of_a_call() -> None:
    n = svod.Variable("n", 1, 16)
    x = svod.Tensor(np.zeros(16, np.float32))[:n].realize()
    run = AddressedPlan(svod.prepare(x * 2, inputs={"x": x}, outputs=["y"]), ["x", "y"])
    for size in (3, 16, 5):
        given, found = np.arange(size, dtype=np.float32), np.full(size + 1, -1, np.float32)
        run([given.ctypes.data, found.ctypes.data], {"n": size})
        np.testing.assert_array_equal(found, [*(given * 2), -1])
