"""Convolutions of float32 in tiles that read windows where they are, by the emulator."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cuda import cuda_target
from svod.device.spec import derive_metadata
from svod.ir import ops as O
from svod.optimize import gpu_tile, gpu_windows
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from svod.schedule import channels
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import assemble, bodies, kernels, ptx, stored
from tests.gpu.test_convolutions import Case, convolve, convolved

CASES = {
    "padded": Case((1, 32, 9, 11), (64, 32, 3, 3), padding=1),
    "not padded": Case((1, 16, 12, 19), (70, 16, 3, 3)),
    "long rows": Case((2, 16, 5, 33), (24, 16, 3, 5), padding=2),
    "stride": Case((2, 48, 9, 11), (40, 48, 3, 2), stride=2, padding=1),
    "groups and dilation": Case((1, 64, 8, 9), (72, 32, 3, 3), padding=2, dilation=2, groups=2),
    "a line": Case((2, 32, 70), (65, 32, 5), padding=2),
}


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tile, "SMALL_SPEED", 0.0)
    monkeypatch.setattr(gpu_windows, "MIN_WORK", 1)
    monkeypatch.setattr(channels, "MIN_WORK", 1)


def product(result: Tensor, processors: int) -> KernelCode:
    """The last kernel, for a GPU of so many multiprocessors."""
    return generate(bodies(result)[-1], cuda_target(GpuMachine(multiprocessors=processors)))


def run(code: KernelCode, arrays: dict[int, Any], aligned: bool = True) -> None:
    x, y, z = (int(s.arg) for s in derive_metadata(code.kernel).global_size)
    Emulator(code.text(aligned).source, arrays, code.threads).run((x, y, z))


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("processors", [132, 1])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, processors: int, aligned: bool) -> None:
    case = CASES[name]
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (case.image, case.kernel))
    code = product(convolve(stored(*case.image), stored(*case.kernel), case), processors)
    (tile,) = [n for n in code.kernel.toposort() if is_tile(n)]
    assert tile.arg[1] == "windows"
    assert tile.arg[2:4] in ([(64, 64)] if processors > 1 else [(64, 256), (128, 128)])
    wanted = convolved(a, b, case)
    found = np.full(wanted.shape, np.nan, np.float32)
    last = [t.transpose(0, *range(2, t.ndim), 1).copy() for t in (a, b)]
    is_kept = wanted.shape[-1] >= gpu_windows.LEAST_ROW
    arrays = {0: found, 1: a if is_kept else last[0], 2: last[1]}
    run(code, arrays, aligned)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_small_tiles_where_large_ones_would_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tile, "SMALL_SPEED", 0.8)
    many = GpuMachine(multiprocessors=1)

    def chosen(rows: int, columns: int) -> tuple[int, int]:
        def tiles(m: int, n: int) -> int:
            return -(-rows // m) * -(-columns // n)

        shape = gpu_tile.choose_shape("fma", False, 4, rows * columns, tiles, many)
        return shape.rows, shape.columns

    assert chosen(4096, 4096) == (128, 128)
    assert chosen(64, 4096) == (64, 256)
    assert chosen(4096, 64) == (256, 64)
    assert chosen(64, 576) == (64, 64)


def test_only_the_weight_is_moved(tmp_path: Path) -> None:
    x, w = stored(32, 64, 56, 56), stored(64, 64, 3, 3)
    first, second = kernels(x.conv2d(w, padding=1).relu())
    assert first.name == "copy_64x3x3x64"
    (tile,) = [n for n in second.kernel.toposort() if is_tile(n)]
    assert tile.arg[2:4] == (64, 256)
    said = assemble([ptx(second), ptx(second, aligned=False)], tmp_path)
    spilled = [int(n) for n in re.findall(r"(\d+) bytes spill", said)]
    assert max(spilled, default=0) <= 32  # two blocks share the registers


def test_tensor_cores_take_float32_where_that_is_allowed() -> None:
    """Then channels are last in both, as for narrower types."""
    y = stored(32, 64, 56, 56).conv2d(stored(64, 64, 3, 3), padding=1)
    codes = kernels(y, machine=GpuMachine(uses_tf32=True))
    assert [code.name for code in codes][:2] == ["copy_32x56x56x64", "copy_64x3x3x64"]
    (tile,) = [n for code in codes for n in code.kernel.toposort() if is_tile(n)]
    assert tile.arg[1] == "boxes.tf32"


def test_the_gradient_of_a_weight_in_pieces() -> None:
    """Images are neighbours, rows of them are pieces, and each piece knows where it is."""
    case = Case((16, 24, 32, 8), (20, 24, 3, 3), padding=1)
    x, w = stored(*case.image).requires_grad_(), stored(*case.kernel).requires_grad_()
    y = convolve(x, w, case)
    y.backward(stored(*y.shape))
    assert w.grad is not None
    (code,) = [c for c in kernels(w.grad) if any(is_tile(n) for n in c.kernel.toposort())]
    rng = np.random.default_rng(2)
    a, g = (rng.standard_normal(s).astype(np.float32) for s in (case.image, y.shape))
    shapes = {n.arg.slot: n.shape for n in code.body.toposort() if n.op == O.PARAM}
    found = np.full(shapes[0], np.nan, np.float32)
    arrays = {0: found}
    for t in (a, g):
        (slot,) = [i for i, shape in shapes.items() if prod(shape) == t.size]
        arrays[slot] = t.transpose(1, 2, 3, 0).copy()
    run(code, arrays)
    padded = np.pad(a.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    wanted = np.zeros((3, 3, 20, 24))
    for i, j in np.ndindex(3, 3):
        cut = padded[:, :, i : i + 32, j : j + 8]
        wanted[i, j] = np.einsum("nchw,nohw->oc", cut, g.astype(np.float64), optimize=True)
    assert shapes[0][0] > 1
    np.testing.assert_allclose(found.sum(0).squeeze(), wanted, rtol=1e-4, atol=1e-3)
