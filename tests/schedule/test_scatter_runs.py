"""Sums by a sort, which only a GPU makes; here its graph runs on other devices."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from svod import Tensor
from svod.base.knobs import knobs
from svod.ir.capabilities import BY_KIND
from svod.schedule import scatter_runs, scatters, schedule

RNG = np.random.default_rng(9)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BY_KIND, "CPU", replace(BY_KIND["CPU"], scatters_at_once=True))
    monkeypatch.setattr(scatters, "MANY", 8)
    monkeypatch.setattr(scatter_runs, "FEWEST", 8)
    monkeypatch.setattr(scatter_runs, "PART", 16)
    schedule.clear_schedule_cache()


@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.uint16])
@pytest.mark.parametrize("size", [1, 3, 40, 700])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_sums_at_places(kind: type, size: int, rest: tuple[int, ...]) -> None:
    x = (RNG.standard_normal((size, *rest)) * 9).astype(kind)
    index = RNG.integers(-size - 3, size + 3, 150).astype(np.int16)
    values = (RNG.standard_normal((150, *rest)) * 9).astype(kind)
    wanted = x.copy()
    inside = (index >= 0) & (index < size)
    np.add.at(wanted, index[inside], values[inside])
    with knobs.scope(CHECK_INDICES=0):  # what is outside is dropped
        found = Tensor(x).realize().index_add(0, Tensor(index), Tensor(values)).numpy()
    np.testing.assert_array_equal(found, wanted)


def test_sums_at_places_of_two_axes() -> None:
    x = RNG.standard_normal((6, 11)).astype(np.float32)
    rows, columns = RNG.integers(-9, 9, (2, 10, 20))
    values = RNG.standard_normal((10, 20)).astype(np.float32)
    wanted = x.copy()
    inside = (rows >= -6) & (rows < 6) & (columns >= -11)
    np.add.at(wanted, (rows[inside], columns[inside]), values[inside])
    given = (Tensor(rows).realize(), Tensor(columns).realize())
    with knobs.scope(CHECK_INDICES=0):
        found = Tensor(x).realize().index_put(given, Tensor(values), accumulate=True).numpy()
    np.testing.assert_array_equal(found, wanted)


def test_whole_numbers_are_not_sorted() -> None:
    index = RNG.integers(0, 5, 100)
    counts = Tensor(np.zeros(5, np.int32)).realize()
    found = counts.scatter_add(0, Tensor(index), Tensor(np.ones(100, np.int32))).numpy()
    np.testing.assert_array_equal(found, np.bincount(index, minlength=5))
