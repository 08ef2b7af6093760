"""Plans on the GPU: replay, rebinding, variables, profiles, memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import AllocationError, DeviceError
from svod.device.buffer import Buffer
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.tensor.recording.realize import prepare


def test_a_plan_replays_as_a_graph() -> None:
    x = Tensor(np.arange(64, dtype=np.float32)).realize()
    t = x
    for _ in range(10):
        t = (t * 0.5 + 1.0).contiguous()
    plan = prepare([t])
    wanted = np.arange(64, dtype=np.float32)
    for _ in range(10):
        wanted = wanted * np.float32(0.5) + np.float32(1.0)
    for _ in range(4):
        plan.execute()
        found = plan.output_buffer()
        assert found is not None
        np.testing.assert_array_equal(found.copyout(), wanted)


def test_inputs_are_rebound_between_replays() -> None:
    x = Tensor(np.zeros(100, np.float32)).realize()
    plan = prepare([((x + 1).contiguous() * 2)], inputs={"x": x})
    for number in range(5):
        array = np.full(100, number, np.float32)
        np.testing.assert_array_equal(plan(x=array), (array + 1) * 2)


def test_arguments_that_are_not_aligned_use_narrow_accesses() -> None:
    x = Tensor(np.arange(65, dtype=np.float32)).realize()
    for start in (1, 2, 3):
        view = x[start : start + 60]
        np.testing.assert_array_equal((view + 1).numpy(), np.arange(start, start + 60) + 1.0)


def test_kernels_are_profiled_by_events() -> None:
    x = Tensor(np.ones((512, 512), np.float32)).realize()
    plan = prepare([x.sum(1).contiguous() * 2])
    for _ in range(3):
        profiles = plan.execute_profiled()
        assert profiles and all(p.elapsed_ns > 0 for p in profiles)


def test_memory_that_runs_out_is_an_error_that_leaves_everything_usable() -> None:
    allocator = get_device("CUDA").allocator
    x = Tensor(np.arange(10, dtype=np.float32)).realize()
    with pytest.raises(AllocationError, match="could not allocate"):
        Buffer.new("CUDA", 1 << 46, dt.uint8).allocate()
    assert allocator.counters.live > 0
    np.testing.assert_array_equal((x * 2).numpy(), np.arange(10) * 2.0)


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DeviceError, match="there is no device CUDA:99"):
        Tensor([1.0], device="CUDA:99").realize()


def test_threads_may_run_plans_at_once() -> None:
    errors: list[str] = []

    def work(seed: int) -> None:
        array = np.random.default_rng(seed).standard_normal((64, 300)).astype(np.float32)
        x = Tensor(array, device="CUDA").realize()
        plan = prepare([(x.softmax(-1).contiguous() + 1)])
        powers = np.exp(array - array.max(1, keepdims=True))
        wanted = powers / powers.sum(1, keepdims=True) + 1
        for _ in range(20):
            plan.execute()
            found = plan.output_buffer()
            assert found is not None
            if not np.allclose(found.copyout().reshape(64, 300), wanted, atol=1e-5):
                errors.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_copies_between_host_and_gpu_keep_the_bytes() -> None:
    array = np.random.default_rng(0).integers(0, 255, 100_003).astype(np.uint8)
    x = Tensor(array, device="CPU").to("CUDA")
    np.testing.assert_array_equal(x.to("CPU").numpy(), array)
    np.testing.assert_array_equal((x.to("CUDA") + 1).to("CPU").numpy(), array + 1)


def test_large_reductions_of_every_kind() -> None:
    rng = np.random.default_rng(1)
    for shape in [(3, 100_000), (100_000, 3), (517, 1031), (4096, 64), (64, 4096), (1, 70_001)]:
        array = rng.standard_normal(shape).astype(np.float32)
        x = Tensor(array).realize()
        for axis in (0, 1):
            exact = array.astype(np.float64).sum(axis)
            np.testing.assert_allclose(x.sum(axis).numpy(), exact, rtol=1e-4, atol=2e-2)
            np.testing.assert_array_equal(x.amax(axis).numpy(), array.max(axis))
        np.testing.assert_allclose(x.sum().numpy(), array.astype(np.float64).sum(), atol=0.5)
        mean, variance = array.mean(1, keepdims=True), array.var(1, keepdims=True)
        found = x.layer_norm(shape[1], eps=1e-5).numpy()
        np.testing.assert_allclose(found, (array - mean) / np.sqrt(variance + 1e-5), atol=2e-3)


def test_everything_of_svod_is_told_apart_by_device() -> None:
    x = svod.ones(3)
    assert x.device == "CUDA"


@pytest.mark.parametrize("axis", [0, 1])
def test_run_time_sizes_keep_the_graph(axis: int) -> None:
    array = np.random.default_rng(4).standard_normal((70, 70)).astype(np.float32)
    n = svod.Variable("n", 1, 70)
    x = Tensor(array).realize()
    part = x[: n.bind(5)] if axis == 0 else x[:, : n.bind(5)]
    total = (part.sum(axis) * 2).contiguous()
    largest = part.amax(axis).contiguous()
    plan = prepare([(total + largest).contiguous(), part.softmax(axis).sum(axis)])
    for size in (5, 5, 1, 33, 70, 64, 2):
        plan.execute_with_vars({"n": size})
        chosen = array[:size] if axis == 0 else array[:, :size]
        first, second = (b.copyout() for b in plan.output_buffers())
        wanted = chosen.sum(axis, dtype=np.float64) * 2 + chosen.max(axis)
        np.testing.assert_allclose(first, wanted, atol=1e-4)
        np.testing.assert_allclose(second, 1.0, atol=1e-5)


def test_a_variable_changes_the_grid() -> None:
    array = np.arange(5000, dtype=np.float32)
    n = svod.Variable("n", 1, 5000)
    plan = prepare([(Tensor(array).realize()[: n.bind(10)] * 3).contiguous()])
    for size in (10, 5000, 1, 4999):
        plan.execute_with_vars({"n": size})
        found = plan.output_buffer()
        assert found is not None
        np.testing.assert_array_equal(found.copyout()[:size], array[:size] * 3)
