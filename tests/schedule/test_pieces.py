"""Long reductions on a GPU: as many pieces as blocks run at once, and what they leave over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import BY_KIND
from svod.ir.node import make
from svod.schedule.schedule import clear_schedule_cache
from svod.schedule.split_reduce import split_reductions
from tests.codegen.test_nvptx import stored

RNG = np.random.default_rng(0)


def pieces(t: Tensor) -> list[tuple[int, ...]]:
    """The shapes of the partial results."""
    sink = split_reductions(make(O.SINK, dt.void, (t.uop,)), None, True)
    return [n.shape for n in sink.toposort() if n.op == O.CONTIGUOUS]


@pytest.mark.parametrize(
    ("t", "shapes"),
    [
        (lambda: stored(32, 128256).sum(1), [(32, 8, 1)]),
        (lambda: stored(1, 10**6).amax(1), [(1, 200, 1)]),
        (lambda: stored(7, 262147).sum(1), [(7, 37, 1)]),
        (lambda: stored(50257).sum(), [(12, 1)]),
        (lambda: stored(16384, 8192).sum(), [(256, 1, 1)]),
        (lambda: stored(32, 64, 112, 112).sum((0, 2, 3)), [(1, 64, 4, 1, 1)]),
        (lambda: stored(256, 65536).sum(1), []),  # blocks enough
        (lambda: stored(1, 1 << 15).sum(1), []),  # one block keeps it in registers
        (lambda: stored(100, 50000).sum(1), []),  # most multiprocessors have a row
        (lambda: stored(100, 1 << 16).sum(1), [(100, 2, 1)]),
        (lambda: stored(1 << 20, 64).sum(0), [(128, 1, 64)]),
        (lambda: stored(8192, 1024).sum(0), [(8, 1, 1024)]),
        (lambda: stored(16384, 8192).sum(0), []),  # columns enough
        (lambda: stored(512, 64).sum(0), []),  # short
    ],
)
def test_pieces_fill_a_gpu(t: Callable[[], Tensor], shapes: list[tuple[int, ...]]) -> None:
    assert pieces(t()) == shapes


@pytest.fixture
def tiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU schedules as a GPU would, which changes no result."""
    monkeypatch.setitem(BY_KIND, "CPU", replace(BY_KIND["CPU"], runs_blocks=True))
    clear_schedule_cache()
    yield
    clear_schedule_cache()


@pytest.mark.parametrize("shape", [(1, 50257), (7, 70001), (32, 40000), (100_003, 3), (9000, 8)])
def test_values_of_pieces(shape: tuple[int, int], tiling: None) -> None:
    x = RNG.integers(-8, 9, shape).astype(np.float32)
    t = Tensor(x)
    for axis in (0, 1):
        np.testing.assert_array_equal(t.sum(axis).numpy(), x.sum(axis))
        np.testing.assert_array_equal(t.amax(axis).numpy(), x.max(axis))
        np.testing.assert_array_equal(t.argmin(axis).numpy(), x.argmin(axis))
        wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        wanted = wide / wide.sum(axis, keepdims=True)
        np.testing.assert_allclose(t.softmax(axis).numpy(), wanted, rtol=1e-5)


def test_partial_sums_of_narrow_floats_are_wide(tiling: None) -> None:
    x = Tensor(np.full((2, 70001), 0.1, np.float32)).cast(dt.bfloat16).realize()
    exact = x.cast(dt.float32).numpy().astype(np.float64).sum(1)
    np.testing.assert_allclose(x.sum(1).cast(dt.float32).numpy(), exact, rtol=4e-3)


def test_a_sum_that_picks_elements_stays_a_load() -> None:
    x, target = stored(32, 128256), stored(32, dtype=dt.int64)
    assert pieces(x.cross_entropy(target)) == [(32, 8, 1)] * 2  # the largest, and the sum of exp


def test_a_constant_that_is_stored_lies_on_the_device_of_its_users():
    x = svod.Tensor(np.ones(5, np.float32)).to("REF").realize()
    w = svod.zeros(1, device="REF", requires_grad=True)
    loss = ((w * x - 1) ** 2).mean()
    (gradient,) = svod.autograd.grad(loss, (w,))
    assert (w - 0.5 * gradient).detach().cpu().tolist() == [1.0]
