"""Folds over axes, running folds, searching and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod
from svod import Tensor
from tests.array_api import reference as R
from tests.array_api.reference import DTYPES, FLOATS, INTEGERS, NUMBERS, check, quick


def _axis(data: Any, x: Any, several: bool = True) -> Any:
    choices = [st.none()]
    if x.ndim:
        one = st.integers(-x.ndim, x.ndim - 1)
        choices.append(one)
        if several:
            axes = st.lists(st.integers(0, x.ndim - 1), unique=True, max_size=x.ndim)
            choices.append(axes.map(tuple))
    return data.draw(st.one_of(choices))


@pytest.mark.parametrize("name", ["sum", "prod"])
@quick
@given(data=st.data())
def test_sum_and_prod(name: str, data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, bound=3))
    dtype = data.draw(st.sampled_from([None, str(x.dtype), "float64"]))
    options = {"axis": _axis(data, x), "keepdims": data.draw(st.booleans()), "dtype": dtype}
    if x.dtype.kind != "f" and dtype == "float64":
        options["dtype"] = None
    check(name, x, **options, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["max", "min"])
@quick
@given(data=st.data())
def test_extremes(name: str, data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, R.filled))
    check(name, x, axis=_axis(data, x), keepdims=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@quick
@given(data=st.data())
def test_moments(name: str, data: Any) -> None:
    x = data.draw(R.any_array(FLOATS, R.filled, bound=100))
    options: dict[str, Any] = {"axis": _axis(data, x), "keepdims": data.draw(st.booleans())}
    if name != "mean":
        options["correction"] = data.draw(st.sampled_from([0.0, 0.5]))
    check(name, x, **options, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["all", "any"])
@quick
@given(data=st.data())
def test_truth(name: str, data: Any) -> None:
    x = data.draw(R.any_array(DTYPES))
    check(name, x, axis=_axis(data, x), keepdims=data.draw(st.booleans()))


@quick
@given(data=st.data())
def test_count_nonzero(data: Any) -> None:
    x = data.draw(R.any_array(DTYPES, bound=1))
    check("count_nonzero", x, axis=_axis(data, x), keepdims=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@quick
@given(data=st.data())
def test_running_folds(name: str, data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, R.filled, bound=3))
    axis = None if x.ndim == 1 else data.draw(st.integers(-x.ndim, x.ndim - 1))
    initial = data.draw(st.booleans())
    check(name, x, axis=axis, include_initial=initial, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@quick
@given(data=st.data())
def test_places_of_extremes(name: str, data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, R.filled, bound=5))
    check(name, x, axis=_axis(data, x, several=False), keepdims=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["sort", "argsort"])
@quick
@given(data=st.data())
def test_order(name: str, data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, R.filled, bound=5))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check(name, x, axis=axis, descending=data.draw(st.booleans()), stable=True)


@quick
@given(data=st.data())
def test_searchsorted(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    line = data.draw(R.arrays(dtype, st.tuples(st.integers(1, 6)), bound=9))
    values = data.draw(R.arrays(dtype, bound=9))
    side = data.draw(st.sampled_from(["left", "right"]))
    check("searchsorted", np.sort(line), values, side=side)
    order = np.argsort(line)
    wanted = np.searchsorted(line, values, side=side, sorter=order)
    found = svod.searchsorted(Tensor(line), Tensor(values), side=side, sorter=Tensor(order))
    np.testing.assert_array_equal(found.numpy(), wanted)


@quick
@given(data=st.data())
def test_nonzero(data: Any) -> None:
    check("nonzero", data.draw(R.any_array(DTYPES, R.filled, bound=1)))
    with pytest.raises(ValueError):
        svod.nonzero(Tensor(1))


@pytest.mark.parametrize("name", ["unique_values", "unique_counts", "unique_inverse", "unique_all"])
@quick
@given(data=st.data())
def test_sets(name: str, data: Any) -> None:
    x = data.draw(R.any_array(DTYPES, bound=3))
    check(name, x)


def test_every_nan_is_distinct() -> None:
    x = Tensor([np.nan, 1.0, np.nan])
    assert svod.unique_values(x).shape == (3,)
    assert svod.unique_counts(x).counts.tolist() == [1, 1, 1]


@quick
@given(data=st.data())
def test_isin(data: Any) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    x, y = data.draw(R.arrays(dtype, bound=3)), data.draw(R.arrays(dtype, bound=3))
    invert = data.draw(st.booleans())  # the reference passes it on as another argument
    found = svod.isin(Tensor(x), Tensor(y), invert=invert)
    np.testing.assert_array_equal(found.numpy(), np.isin(x, y, invert=invert))


@quick
@given(data=st.data())
def test_diff(data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, R.filled, bound=9))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = data.draw(st.integers(0, min(2, x.shape[axis])))
    check("diff", x, axis=axis, n=n)
    check("diff", x, axis=axis, prepend=x, append=x)
