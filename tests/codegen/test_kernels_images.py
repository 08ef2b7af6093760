"""Convolutions by frozen weights: channels in lanes, the image copied with its borders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.device.cpu.host import host_machine
from svod.optimize import across
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.heuristics import optimize
from svod.optimize.neighbours import neighbours
from svod.optimize.opts import Opt
from svod.runtime import freeze
from tests.codegen.test_kernels_contraction import BLOCKS, data
from tests.fuzz.check import WAYS, Way, compiling, evaluated
from tests.schedule.graphs import MACHINE, bodies, loop_nest

# images, channels, filters, height and width, window, padding, stride, dilation
CASES = (
    (1, 8, 40, (7, 7), (3, 3), 1, 1, 1),
    (1, 5, 64, (13, 13), (3, 3), 1, 1, 1),
    (2, 6, 34, (9, 16), (3, 3), 1, 2, 1),
    (1, 4, 48, (15, 11), (5, 1), 2, 1, 1),
    (3, 3, 33, (8, 10), (2, 4), 1, 1, 1),
    (1, 7, 50, (12, 12), (3, 3), 2, 1, 2),
    (1, 2, 96, (30, 35), (7, 7), 3, 2, 1),
    (2, 16, 37, (5, 5), (1, 1), 0, 1, 1),
    (1, 16, 72, (14, 14), (1, 1), 0, 2, 1),
    (1, 9, 65, (6, 9), (3, 3), 0, 1, 1),
)
MACHINES = {**BLOCKS, "no masks": {"vector_bytes": 32, "registers": 16, "has_masks": False}}
AFTER = ("nothing", "bias", "residual", "what is computed")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(across, "_cycles_along", lambda sink, machine: float("inf"))


def convolution(case: tuple, after: str = "nothing") -> tuple[Tensor, Tensor]:  # type: ignore[type-arg]
    images, channels, filters, size, window, padding, stride, dilation = case
    rng = np.random.default_rng(channels)
    x = Tensor(data(rng, (images, channels, *size), "float32")).realize()
    w = Tensor(data(rng, (filters, channels, *window), "float32")).realize()
    given = x.maximum(0) if after == "what is computed" else x
    y = given.conv2d(w, padding=padding, stride=stride, dilation=dilation)
    if after == "residual":
        y = (y + Tensor(data(rng, y.shape, "float32")).realize()).maximum(0)
    if after == "bias":
        y = y + Tensor(data(rng, (filters, 1, 1), "float32")).realize()
    return x, y


def frozen(x: Tensor, y: Tensor) -> Any:
    return svod.prepare(y, inputs=[x], freeze=True)


def opts_of(plan: Any) -> dict[str, int]:
    """Amounts by name and axis, of all kernels."""
    chosen = [opt for kernel in plan.kernels() for opt in kernel.choice[0]]
    return {f"{opt.name} {opt.axis}": opt.amount for opt in chosen}


def names(plan: Any) -> set[str]:
    return {name.split()[0] for name in opts_of(plan)}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("after", AFTER)
def test_values(case: tuple, after: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    want = evaluated(convolution(case, after)[1])
    for name, machine in MACHINES.items():
        monkeypatch.setitem(WAYS, name, Way(machine=machine, thread_work=500.0))
        with compiling(name):
            x, y = convolution(case, after)
            plan = frozen(x, y)
            plan.execute()
            assert (y.numpy() == want).all(), name
            if after == "what is computed" and max(case[4]) == 1:
                continue  # nothing is read through a window: what is computed is packed
            is_copied = case[5] > 0 or after == "what is computed"
            assert ("IMAGE" in names(plan)) == is_copied, name
            assert any("alloca" in kernel.source for kernel in plan.kernels()) == is_copied, name


def test_the_image_of_each_run_is_read() -> None:
    rng = np.random.default_rng(0)
    images = [data(rng, (1, 64, 7, 7), "float32") for _ in range(3)]
    w = data(rng, (64, 64, 3, 3), "float32")
    x = Tensor(images[0]).realize()
    plan = frozen(x, x.conv2d(Tensor(w).realize(), padding=1))
    assert "IMAGE" in names(plan)
    for image in images[1:]:
        want = evaluated(Tensor(image).realize().conv2d(Tensor(w).realize(), padding=1))
        assert (plan(input0=image) == want).all()


def test_small_images_take_channels_as_lanes() -> None:
    """49 places would fill 64 lanes; channels fill all of them."""
    x, y = convolution((1, 64, 128, (7, 7), (3, 3), 1, 1, 1))
    chosen = opts_of(frozen(x, y))
    assert any(name.startswith("IMAGE") for name in chosen)
    assert 7 in chosen.values()  # the places of a line
    live = svod.prepare(convolution((1, 64, 128, (7, 7), (3, 3), 1, 1, 1))[1])
    assert "IMAGE" not in names(live)  # nothing is packed beforehand


def test_short_depths_of_full_lines_do_not() -> None:
    """Turning the tiles would cost more than it saves."""
    x, y = convolution((1, 16, 128, (64, 64), (1, 1), 0, 1, 1))
    turned = [opt for kernel in frozen(x, y).kernels() for opt in kernel.choice[0]]
    assert not any(opt.name == "TILE" and opt.axis > 2 for opt in turned)


@pytest.mark.parametrize("stride", (1, 2))
def test_large_images_are_copied_in_bands(stride: int, always: None) -> None:
    case = (2, 8, 32, (144, 150), (3, 3), 1, stride, 1)
    x, y = convolution(case, "residual")
    want = evaluated(y)
    plan = frozen(x, y)
    (lines,) = [n for name, n in opts_of(plan).items() if name.startswith("IMAGE")]
    assert lines < 144 // stride and 144 // stride % lines == 0
    plan.execute()
    assert (y.numpy() == want).all()


def test_a_line_that_is_too_large_stays_where_it_is() -> None:
    x, y = convolution((1, 40, 32, (3, 9000), (3, 3), 1, 1, 1))
    assert "IMAGE" not in names(frozen(x, y))


@pytest.mark.parametrize("limit", (0, 1 << 30))
def test_little_is_packed_without_compiling(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freeze, "COMPILE_BYTES", limit)
    x, y = convolution((1, 40, 72, (7, 7), (3, 3), 1, 1, 1), "residual")
    want = evaluated(y)
    frozen(x, y).execute()
    assert (y.numpy() == want).all()


@pytest.mark.parametrize("size", (4, 5, 7, 13, 14, 15, 17, 28, 31, 56))
@pytest.mark.parametrize("filters", (32, 40, 96))
def test_tiles_fit_in_registers(size: int, filters: int) -> None:
    """One whole piece and a rest run side by side: both are counted."""
    x, y = convolution((1, 24, filters, (size, size), (3, 3), 1, 1, 1))
    (chosen,) = [kernel.choice[0] for kernel in frozen(x, y).kernels()]
    if "IMAGE" in [opt.name for opt in chosen]:
        (tile,) = [opt.amount for opt in chosen if opt.name == "TILE"]
        copies = [opt.amount for opt in chosen if opt.name == "UPCAST"]
        live = [size if size < 2 * n else n for n in copies]
        assert -(-tile // 16) * int(np.prod(live)) <= 28


def test_a_search_goes_on_from_images(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[freeze.Packing | None] = []
    find = freeze.find_packing
    monkeypatch.setattr(freeze, "find_packing", lambda *a: found.append(find(*a)) or found[-1])
    frozen(*convolution((1, 64, 64, (7, 7), (3, 3), 1, 1, 1), "residual"))
    (packing,) = [p for p in found if p is not None]
    kernel = loop_nest(packing.body)
    machine = host_machine()  # the one it was packed for
    _, opts = optimize(kernel, machine)
    lists = [[opt.name for opt in each] for each in neighbours(kernel, opts, machine)]
    assert any("IMAGE" in each for each in lists) and any("IMAGE" not in each for each in lists)


def test_products_have_no_image() -> None:
    (body,) = bodies(Tensor(np.ones((16, 32), np.float32)) @ Tensor(np.ones((32, 64), np.float32)))
    opts = [Opt("TILE", 1, 16), Opt("STAGE", 1, 1), Opt("IMAGE", 0, 16)]
    with pytest.raises(OptimizeError, match="of rows that read an image"):
        apply_opts(loop_nest(body), opts, MACHINE)
