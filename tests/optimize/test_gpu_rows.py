"""Reductions and scans that threads of a GPU share, run thread by thread without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cuda import cuda_target
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.optimize import gpu_rows
from svod.optimize.gpu_machine import GpuMachine
from tests.codegen.test_nvptx import bodies, ptx, stored
from tests.optimize.gpu_threads import run_threads

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
NUMPY = {dt.float32: np.float32, dt.int32: np.int32, dt.int64: np.int64}


def whole(*shape: int, kind: dt.DType = dt.float32) -> Array:
    """Small whole numbers, whose sums are exact in any order."""
    return RNG.integers(-9, 10, shape).astype(NUMPY[kind])


def kernel(result: Tensor) -> KernelCode:
    (body,) = bodies(result)
    return generate(body, cuda_target(GpuMachine()))


def grid(code: KernelCode) -> tuple[list[int], list[int]]:
    """Blocks, and threads of one."""
    sizes = derive_metadata(code.kernel)
    assert sizes.local_size is not None
    return [int(s.arg) for s in sizes.global_size], [int(s.arg) for s in sizes.local_size]


def run(result: Tensor, kind: dt.DType, *arrays: Array) -> tuple[Array, KernelCode]:
    code = kernel(result)
    found = np.zeros(result.shape, NUMPY[kind])
    run_threads(code.kernel, dict(enumerate((found, *arrays))))
    return found, code


@pytest.mark.parametrize("pieces", [8, 15, 64, 187])
@pytest.mark.parametrize("columns", [8192, 20_001])
def test_blocks_write_parts_of_few_long_rows(pieces: int, columns: int) -> None:
    x, m = whole(3, columns), whole(3, pieces)
    t = stored(3, columns) - stored(3, pieces).amax(1, keepdim=True)
    found, code = run(t, dt.float32, x, m)
    np.testing.assert_array_equal(found, x - m.max(1, keepdims=True))
    blocks, _ = grid(code)
    assert blocks[0] == 3 and blocks[1] > 1
    if columns % 4 == 0:
        assert "st.global.v4" in ptx(code)


def test_rows_that_are_reduced_as_a_whole_are_not_cut() -> None:
    blocks, _ = grid(kernel(stored(3, 8192).softmax(-1)))
    assert blocks == [3, 1, 1]


def test_short_reductions_leave_rows_to_blocks() -> None:
    x, m = whole(24, 2048), whole(24, 8)
    t = (stored(24, 2048) - stored(24, 8).amax(1, keepdim=True)).sum(1)
    found, code = run(t, dt.float32, x, m)
    np.testing.assert_array_equal(found, (x - m.max(1, keepdims=True)).sum(1))
    blocks, threads = grid(code)
    assert blocks == [24, 1, 1] and threads[0] >= 128
    assert "ld.global.nc.v4" in ptx(code)


def test_columns_beside_a_short_reduction() -> None:
    x, m = whole(512, 640), whole(8, 640)
    t = (stored(512, 640) - stored(8, 640).amax(0, keepdim=True)).sum(0)
    found, _ = run(t, dt.float32, x, m)
    np.testing.assert_array_equal(found, (x - m.max(0)).sum(0))


SIZES = [(70, 66), (3, 128), (2, 1000), (2, 1001), (3, 4096), (1, 8192), (1, 8191)]
Scan = tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], dt.DType]
SCANS: dict[str, Scan] = {
    "cumsum": (lambda t: t.cumsum(-1), lambda x: x.cumsum(-1), dt.float32),
    "of a product": (lambda t: (t * 2).cumsum(-1), lambda x: (x * 2).cumsum(-1), dt.float32),
    "of integers": (lambda t: t.cumsum(-1), lambda x: x.cumsum(-1), dt.int64),
    "max": (lambda t: t.cummax(-1).values, lambda x: np.maximum.accumulate(x, -1), dt.int32),
    "min": (lambda t: t.cummin(-1).values, lambda x: np.minimum.accumulate(x, -1), dt.float32),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("shape", SIZES)
def test_scans_of_rows(shape: tuple[int, int], name: str) -> None:
    ours, exact, kind = SCANS[name]
    x = whole(*shape, kind=kind)
    found, code = run(ours(stored(*shape, dtype=kind)), kind, x)
    np.testing.assert_array_equal(found, exact(x))
    reads = ptx(code).count("ld.global")
    assert reads <= 8, f"{reads} reads: every element is read once"


@pytest.mark.parametrize("shape", SIZES)
def test_gradients_of_scans_are_scans(shape: tuple[int, int]) -> None:
    t, g = stored(*shape).detach(), stored(*shape)
    t.requires_grad = True
    (t.cumsum(-1) * g).sum().backward()
    assert t.grad is not None
    x = whole(*shape)
    found, _ = run(t.grad, dt.float32, x)
    np.testing.assert_array_equal(found, x[:, ::-1].cumsum(-1)[:, ::-1])


def test_long_axes_are_rows_of_blocks() -> None:
    found = [generate(b, cuda_target(GpuMachine())) for b in bodies(stored(1 << 22).cumsum(0))]
    assert [grid(code)[0][0] for code in found] == [1024, 1, 1024]
    assert len(bodies(stored(64, 4096).cumsum(-1))) == 1


def test_places_of_extremes_are_found_on_the_way() -> None:
    values, places = stored(64, 4096).cummax(-1)
    assert len(bodies(values, places)) == 2


@pytest.mark.parametrize(("rows", "columns", "copies"), [(2, 8192, 4), (3, 4098, 2), (8, 4095, 1)])
def test_columns_of_a_product_share_few_rows(
    rows: int, columns: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_rows, "FAR_BYTES", 0)  # rows that are not in the closest cache
    x, w = whole(rows, 64), whole(columns, 64)
    found, code = run(stored(rows, 64) @ stored(columns, 64).T, dt.float32, x, w)
    np.testing.assert_array_equal(found, x @ w.T)
    amounts = [o.amount for o in code.opts if o.name == "UPCAST"]
    assert amounts == ([copies, rows] if copies > 1 else [rows])


def test_short_reductions_of_a_size_known_later_stay_loops() -> None:
    n = svod.Variable("n", 1, 12)
    top = stored(24, 12)[:, :n].amax(1, keepdim=True)
    for t in (stored(24, 2048) * top, (stored(24, 2048) * top).sum(1)):
        assert "st.global" in ptx(kernel(t))
