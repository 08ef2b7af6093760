"""Convolutions over lines that are packed once for all steps of their window."""

from __future__ import annotations

import numpy as np
import pytest

from svod import Tensor
from svod.optimize import windows
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.opts import Opt
from tests.codegen.test_kernels_contraction import BLOCKS, data, failure
from tests.fuzz.check import WAYS, Way, compiling, evaluated
from tests.schedule.graphs import MACHINE, bodies, code, loop_nest

# images, channels, filters, height and width, window, padding, dilation
CASES = (
    (1, 4, 8, (20, 33), (3, 3), 1, 1),
    (2, 3, 17, (19, 40), (3, 3), 0, 1),
    (1, 5, 12, (33, 18), (5, 1), 2, 1),
    (2, 8, 9, (7, 30), (1, 5), 1, 1),
    (1, 2, 16, (24, 50), (3, 3), 2, 2),
    (1, 3, 8, (40, 17), (2, 4), 0, 1),
)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LEAST_USED", 0.0)


def convolution(case: tuple, after: str) -> Tensor:  # type: ignore[type-arg]
    images, channels, filters, size, window, padding, dilation = case
    rng = np.random.default_rng(channels)
    x = Tensor(data(rng, (images, channels, *size), "float32")).realize()
    w = Tensor(data(rng, (filters, channels, *window), "float32")).realize()
    x = x.maximum(0) if after == "what is computed" else x
    y = x.conv2d(w, padding=padding, dilation=dilation)
    if after == "residual":
        y = (y + Tensor(data(rng, y.shape, "float32")).realize()).maximum(0)
    if after == "bias":
        y = y + Tensor(data(rng, (filters, 1, 1), "float32")).realize()
    return y


def names(x: Tensor) -> list[str]:
    return [o.name for body in bodies(x) for o in code(body, MACHINE).opts]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("after", ("nothing", "bias", "residual", "what is computed"))
def test_convolutions_over_packed_lines(
    case: tuple, after: str, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[type-arg]
    assert "WINDOW" in names(convolution(case, after))
    want = evaluated(convolution(case, after))
    for name, machine in BLOCKS.items():
        monkeypatch.setitem(WAYS, name, Way(machine=machine, thread_work=500.0))
        with compiling(name):
            assert (convolution(case, after).numpy() == want).all(), name


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_random_contractions_with_windows(
    first: int, monkeypatch: pytest.MonkeyPatch, always: None
) -> None:
    for seed in range(first, first + 8):
        wrong = failure(seed, monkeypatch)
        assert wrong is None, f"contraction {seed}, {wrong}"


def test_wide_images_are_packed_in_lines_and_small_ones_in_panels() -> None:
    def convolved(size: int, stride: int = 1) -> list[str]:
        x = Tensor(np.ones((1, 16, size, size), np.float32)).realize()
        w = Tensor(np.ones((16, 16, 3, 3), np.float32)).realize()
        return names(x.conv2d(w, padding=1, stride=stride))

    assert "WINDOW" in convolved(56)
    assert "WINDOW" not in convolved(14) and "STAGE" in convolved(14)
    assert "WINDOW" not in convolved(56, stride=2)


def test_products_have_no_window() -> None:
    (body,) = bodies(Tensor(np.ones((16, 32), np.float32)) @ Tensor(np.ones((32, 64), np.float32)))
    opts = [Opt("TILE", 1, 16), Opt("WINDOW", 1, 1)]
    with pytest.raises(OptimizeError, match="no contraction with these columns"):
        apply_opts(loop_nest(body), opts, MACHINE)
