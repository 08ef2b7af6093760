"""BEAM on the GPU: values stay right, the choice is used and remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.device.registry import get_device
from svod.tensor.recording.realize import prepare


def test_searched_kernels_give_the_same_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((300, 512)).astype(np.float32) for _ in range(2))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    renderer = get_device("CUDA").renderer
    chosen = renderer.chosen  # type: ignore[attr-defined]
    before = set(chosen)
    with knobs.scope(cache_dir=str(tmp_path), beam=2):
        np.testing.assert_allclose((x * 2.5 + y).numpy(), a * np.float32(2.5) + b, rtol=1e-6)
        np.testing.assert_allclose(x.softmax(-1).numpy().sum(1), 1.0, rtol=1e-5)
        product = (x @ y.T).numpy()
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        assert np.linalg.norm(product - exact) / np.linalg.norm(exact) < 1e-5
    searched = {key: chosen[key] for key in chosen if key not in before}
    assert len(searched) >= 3
    for key in searched:
        del chosen[key]
    with knobs.scope(cache_dir=str(tmp_path), beam=2):
        np.testing.assert_allclose((x * 2.5 + y + 0.25).numpy(), a * 2.5 + b + 0.25, rtol=1e-5)


def test_a_searched_matmul_is_not_slower() -> None:
    half = svod.ones(2048, 2048, dtype="bfloat16").contiguous().realize()
    with knobs.scope(beam=1):
        plan = prepare([half @ half * 2.0])
    plan.execute()
    found = plan.output_buffer()
    assert found is not None
    np.testing.assert_array_equal(found.copyout().astype(np.float32), 4096.0)


def test_kernels_with_variables_are_searched() -> None:
    array = np.arange(5000, dtype=np.float32)
    n = svod.Variable("n", 1, 5000)
    with knobs.scope(beam=1):
        plan = prepare([(Tensor(array).realize()[: n.bind(10)] * 3.5).contiguous()])
    for size in (10, 5000, 1, 4999):
        plan.execute_with_vars({"n": size})
        found = plan.output_buffer()
        assert found is not None
        np.testing.assert_array_equal(found.copyout()[:size], array[:size] * np.float32(3.5))
