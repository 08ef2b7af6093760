"""Reductions, scans, sorting against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError, ShapeError
from tests.tensor.check import ALL, EPSILON, FLOATS, INTEGERS, NUMBERS, Cases, array, pair, value

AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("dtype", ALL)
def test_sum_prod_and_extremes(dtype):
    x, a = pair((3, 4, 2), dtype, low=-2, high=2)
    kind = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(a.dtype.kind, a.dtype)
    wide = a.astype(np.float64) if dtype in FLOATS else a
    near = 20 * EPSILON.get(dtype, 0)
    cases = Cases()
    for axis in AXES:
        for keep in (False, True):
            name = f"{axis} {keep}"
            total = np.sum(wide, axis, keepdims=keep).astype(kind)
            cases.add("sum " + name, x.sum(axis, keep), total, rtol=near, atol=near)
            product = np.prod(wide, axis, keepdims=keep).astype(kind)
            cases.add("prod " + name, x.prod(axis, keep), product, rtol=near, atol=near)
            cases.add("amax " + name, x.amax(axis, keep), np.max(a, axis, keepdims=keep))
            cases.add("amin " + name, x.amin(axis, keep), np.min(a, axis, keepdims=keep))
            cases.add("any " + name, x.any(axis, keep), np.any(a, axis, keepdims=keep))
            cases.add("all " + name, x.all(axis, keep), np.all(a, axis, keepdims=keep))
    cases.run()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_mean_and_moments(dtype):
    x, a = pair((3, 4, 2), dtype)
    wide = a.astype(np.float64)
    kind = a.dtype if dtype in FLOATS else np.dtype(np.float32)
    near = 8 * EPSILON.get(dtype, 2e-6)
    cases = Cases()
    for axis in AXES[:-1]:
        name = str(axis)
        cases.add("mean " + name, x.mean(axis), wide.mean(axis).astype(kind), near, near)
        for c in (0, 1):
            wanted = wide.var(axis, ddof=c).astype(kind)
            cases.add(f"var {name} {c}", x.var(axis, c), wanted, near, near)
        wanted = wide.std(axis, ddof=1, keepdims=True).astype(kind)
        cases.add("std " + name, x.std(axis, keepdim=True), wanted, near, near)
    cases.add("namespace", svod.var(x, axis=1), wide.var(1).astype(kind), near, near)
    cases.run()


@pytest.mark.parametrize("dtype", ALL)
def test_positions_of_extremes(dtype):
    x, a = pair((4, 7), dtype, low=-2, high=2)
    cases = Cases()
    for axis in (None, 0, 1):
        cases.add(f"argmax {axis}", x.argmax(axis), np.argmax(a, axis))
        cases.add(f"argmin {axis}", x.argmin(axis), np.argmin(a, axis))
    values, places = x.max(1)
    cases.add("max pair", values, a.max(1))
    cases.add("max places", places, a.argmax(1))
    cases.add("keepdim", x.argmax(1, keepdim=True), np.argmax(a, 1, keepdims=True))
    cases.run()


def test_nan_wins():
    a = np.array([[1, np.nan, 3, np.nan], [np.inf, 2, -np.inf, 0]], np.float32)
    x = Tensor(a)
    cases = Cases()
    cases.add("max", x.amax(1), a.max(1))
    cases.add("min", x.amin(1), a.min(1))
    cases.add("argmax", x.argmax(1), a.argmax(1))
    cases.add("argmin", x.argmin(1), a.argmin(1))
    cases.add("flat", x.max(), a.max())
    cases.add("nansum", x[0].nansum(), np.nansum(a[0]))
    cases.add("nanmean", x[0].nanmean(), np.nanmean(a[0]))
    cases.run()


def test_empty_axes():
    x = Tensor(np.ones((3, 0, 2), np.float32))
    cases = Cases()
    cases.add("sum", x.sum(1), np.zeros((3, 2), np.float32))
    cases.add("sum all", x.sum(), np.float32(0))
    cases.add("prod", x.prod(1), np.ones((3, 2), np.float32))
    cases.add("any", x.any(1), np.zeros((3, 2), bool))
    cases.add("all", x.all(), np.True_)
    cases.add("mean", x.mean(1), np.full((3, 2), np.nan, np.float32))
    cases.add("kept", x.amax(0), np.ones((0, 2), np.float32))
    cases.run()
    with pytest.raises(ShapeError, match="no elements"):
        x.max(1)
    with pytest.raises(ShapeError, match="no elements"):
        x.argmax(1)


def test_scalars_and_spellings():
    x, a = pair((2, 3))
    cases = Cases()
    cases.add("axis", x.sum(axis=1, keepdims=True), a.sum(1, keepdims=True))
    cases.add("dim", x.sum(dim=1, keepdim=True), a.sum(1, keepdims=True))
    cases.add("namespace", svod.sum(x, axis=0, keepdims=True), a.sum(0, keepdims=True))
    cases.add("namespace dim", svod.sum(x, dim=0), a.sum(0))
    cases.add("namespace max", svod.max(x, axis=1), a.max(1))
    cases.add("dtype", x.sum(dtype="float64"), a.astype(np.float64).sum(), rtol=1e-12)
    cases.add("scalar", Tensor(2.0).sum(), np.float32(2))
    cases.add("scalar axis", Tensor(2.0).sum(0), np.float32(2))
    cases.run()
    with pytest.raises(TypeError, match="both"):
        x.sum(dim=0, axis=1)
    with pytest.raises(ShapeError, match="out of range"):
        x.sum(2)
    with pytest.raises(ShapeError, match="twice"):
        x.sum((0, 0))
    with pytest.raises(DTypeError):
        x.sum(1.5)


def test_large_reductions_are_accurate():
    a = np.random.default_rng(0).random(100_000, np.float32)
    half = np.full(4096, 0.1, np.float16)
    cases = Cases()
    cases.add("sum", Tensor(a).sum(), np.float32(a.sum(dtype=np.float64)), rtol=1e-5)
    cases.add("half", Tensor(half).sum(), np.float16(half.astype(np.float64).sum()))
    cases.add("half mean", Tensor(half * 600).mean(), np.float16((half * 600)[0]))
    cases.run()


def test_logsumexp_and_norms():
    x, a = pair((3, 5))
    wide = a.astype(np.float64)
    cases = Cases()
    cases.add("lse", x.logsumexp(1), np.log(np.exp(wide).sum(1)).astype(np.float32))
    huge = Tensor([1000.0, 1000.0]).logsumexp(0)
    cases.add("huge", huge, np.float32(1000 + math.log(2)))
    low = Tensor([-math.inf, -math.inf]).logsumexp(0)
    cases.add("nothing", low, np.float32(-math.inf))
    for p in (1, 2, 3, math.inf, -math.inf, 0):
        wanted = np.linalg.norm(wide, p, 1).astype(np.float32)
        cases.add(f"norm {p}", x.norm(p, 1), wanted, rtol=1e-5)
    cases.add("count", Tensor([0, 1, 2]).count_nonzero(), np.int64(2))
    cases.run()


# -- scans -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 5, 64, 65, 100, 2500])
def test_running_folds(size):
    x, a = pair((2, size))
    i, b = pair((size, 3), "int32", low=-3, high=3)
    cases = Cases()
    wide = a.astype(np.float64)
    cases.add("cumsum", x.cumsum(1), wide.cumsum(1).astype(np.float32), rtol=1e-5, atol=1e-4)
    cases.add("integers", i.cumsum(0), b.cumsum(0, dtype=np.int64))
    cases.add("cummax", x.cummax(1).values, np.maximum.accumulate(a, 1) if size else a)
    cases.add("cummin", i.cummin(0).values, np.minimum.accumulate(b, 0) if size else b)
    if size:
        small = a[:, :64] / 4 + 1
        wanted = small.astype(np.float64).cumprod(1).astype(np.float32)
        cases.add("cumprod", Tensor(small).cumprod(1), wanted, rtol=1e-4, atol=1e-30)
        with_start = svod.cumulative_sum(x, axis=1, include_initial=True)
        wanted = np.pad(wide.cumsum(1), ((0, 0), (1, 0))).astype(np.float32)
        cases.add("initial", with_start, wanted, rtol=1e-5, atol=1e-4)
        lse = np.logaddexp.accumulate(wide, 1).astype(np.float32)
        cases.add("logcumsumexp", x.logcumsumexp(1), lse, rtol=1e-4, atol=1e-4)
    cases.run()


def test_running_maximum_positions():
    a = np.array([3, 1, 3, 5, 2, 5], np.int64)
    cases = Cases()
    cases.add("indices", Tensor(a).cummax(0).indices, np.array([0, 0, 2, 3, 3, 5]))
    cases.run()


# -- sorting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL)
def test_sort_is_stable_for_every_dtype(dtype):
    x, a = pair((3, 17), dtype, low=-3, high=3)
    cases = Cases()
    values, places = x.sort(1)
    cases.add("values", values, np.sort(a, 1))
    cases.add("places", places, np.argsort(a, 1, kind="stable"))
    cases.add("axis 0", svod.sort(x, axis=0), np.sort(a, 0))
    down = np.argsort(a[:, ::-1], 1, kind="stable")[:, ::-1]
    wanted = a.shape[1] - 1 - down
    cases.add("descending", x.argsort(1, descending=True), wanted)
    cases.run()


@pytest.mark.parametrize("size", [1, 2, 256, 257, 700])
def test_sort_of_many_sizes(size):
    a = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    wide = np.random.default_rng(size).integers(-(1 << 62), 1 << 62, size)
    cases = Cases()
    cases.add("floats", Tensor(a).sort(-1).values, np.sort(a, -1))
    cases.add("places", Tensor(a).argsort(-1), np.argsort(a, -1, kind="stable"))
    cases.add("64 bits", svod.sort(Tensor(wide)), np.sort(wide))
    cases.run()


def test_sort_of_special_values():
    a = np.array([np.nan, 1, -0.0, 0.0, np.inf, -np.inf, -1, np.nan, 1e-40], np.float32)
    cases = Cases()
    cases.add("up", Tensor(a).sort(0).values, np.sort(a))
    cases.add("stable zeros", Tensor(a).argsort(0), np.argsort(a, kind="stable"))
    first = Tensor(a).sort(0, descending=True).values[:3]
    cases.add("down", first, np.array([np.nan, np.nan, np.inf], np.float32))
    cases.add("empty", svod.sort(Tensor(np.ones((0,), "f"))), np.ones(0, np.float32))
    cases.run()


def test_topk_median_and_search():
    x, a = pair((3, 10))
    cases = Cases()
    values, places = x.topk(3)
    order = np.argsort(-a, 1, kind="stable")[:, :3]
    cases.add("values", values, np.take_along_axis(a, order, 1))
    cases.add("places", places, order)
    low = x.topk(2, dim=0, largest=False).values
    cases.add("smallest", low, np.sort(a, 0)[:2])
    cases.add("median", x.median(1).values, np.sort(a, 1)[:, 4])
    cases.add("kth", x.kthvalue(2, 1).values, np.sort(a, 1)[:, 1])
    cases.add("quantile", x.quantile(0.3, 1), np.quantile(a, 0.3, axis=1).astype("f"), rtol=1e-5)
    line = np.sort(array((37,), "int64", low=-20, high=20))
    goal = np.arange(-25, 26)
    for side in ("left", "right"):
        found = Tensor(line).searchsorted(Tensor(goal), side=side)
        cases.add(side, found, np.searchsorted(line, goal, side))
    cases.add("unique", Tensor(line).unique(), np.unique(line))
    cases.add("bincount", Tensor([1, 1, 3]).bincount(), np.array([0, 2, 0, 1]))
    cases.run()
    with pytest.raises(ShapeError, match="topk"):
        x.topk(11)


def test_integers_of_any_width_sum_to_64_bits():
    for dtype in INTEGERS:
        x = Tensor(np.full(5, 100, dtype))
        assert x.sum().dtype.name == ("uint64" if dtype.startswith("u") else "int64")
        assert value(x.sum()).item() == 500


def test_norms_that_count_and_of_powers_below_one() -> None:
    array = np.array([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]], np.float32)
    x = Tensor(array)
    assert x.norm(0).item() == 3 and x.norm(0, dim=1).numpy().tolist() == [2, 1]
    np.testing.assert_allclose(x.norm(0.5, dim=1).numpy(), [(1 + 2**0.5) ** 2, 3], rtol=1e-6)
    np.testing.assert_allclose(x.norm(3, dim=0).numpy(), [3, 1, 2], rtol=1e-6)
    np.testing.assert_allclose((x + 4).norm(-1).item(), 1 / (1 / (array + 4)).sum(), rtol=1e-6)


@pytest.mark.parametrize("p", [0.5, 3])
def test_norms_have_no_slope_at_zero(p: float) -> None:
    x = Tensor(np.array([0.0, 1.0, 4.0], np.float32)).requires_grad_()
    x.norm(p).backward()
    slopes = x.grad.numpy()
    assert slopes[0] == 0 and np.isfinite(slopes).all()
