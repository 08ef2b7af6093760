"""Reshaping, moving, joining and indexing."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import svod
from svod import Tensor
from tests.array_api import reference as R
from tests.array_api.reference import DTYPES, check, quick


def _array(data: Any, shape: Any = R.shapes) -> Any:
    return data.draw(R.any_array(DTYPES, shape))


@quick
@given(data=st.data())
def test_reshape(data: Any) -> None:
    x = _array(data, R.filled)
    shape = data.draw(st.permutations(x.shape))
    cut = data.draw(st.integers(0, len(shape) - 1))
    for wanted in (tuple(shape), (-1,), (*shape[:cut], -1, *shape[cut + 1 :]), (1, *shape, 1)):
        check("reshape", x, wanted)
    check("reshape", x, shape=tuple(shape), copy=True)


@quick
@given(data=st.data())
def test_broadcast(data: Any) -> None:
    found = data.draw(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    a, b = [_array(data, st.just(s)) for s in found.input_shapes]
    check("broadcast_to", a, found.result_shape)
    check("broadcast_to", b, shape=found.result_shape)
    check("broadcast_arrays", a, b)
    assert svod.broadcast_shapes(a.shape, b.shape) == found.result_shape


@quick
@given(data=st.data())
def test_axes(data: Any) -> None:
    x = _array(data)
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    check("expand_dims", x, axis=axis)
    check("expand_dims", x, axis=(0, -1))
    check("permute_dims", x, tuple(data.draw(st.permutations(range(x.ndim)))))
    if x.ndim:
        one = data.draw(st.integers(-x.ndim, x.ndim - 1))
        check("moveaxis", x, one, data.draw(st.integers(-x.ndim, x.ndim - 1)))
        several = tuple(data.draw(st.permutations(range(x.ndim))))
        check("moveaxis", x, several, tuple([a - x.ndim for a in reversed(several)]))
        check("unstack", x, axis=one)
        check("flip", x, axis=one)
    check("flip", x)
    for wrong in (x.ndim + 1, -x.ndim - 2):
        with pytest.raises(IndexError):
            svod.expand_dims(Tensor(x), axis=wrong)


@quick
@given(data=st.data())
def test_squeeze(data: Any) -> None:
    x = _array(data, npst.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=2))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    if x.shape[axis] == 1:
        check("squeeze", x, axis)
    else:
        with pytest.raises(ValueError):
            svod.squeeze(Tensor(x), axis)
        assert svod.squeeze(Tensor(x), dim=axis).shape == x.shape  # as in torch
    check("squeeze", x, tuple([i for i, n in enumerate(x.shape) if n == 1]))


@quick
@given(data=st.data())
def test_roll_tile_repeat(data: Any) -> None:
    x = _array(data, R.filled)
    check("roll", x, data.draw(st.integers(-9, 9)))
    axes = tuple(data.draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1)))
    shifts = tuple([data.draw(st.integers(-5, 5)) for _ in axes])
    check("roll", x, shifts, axis=axes)
    check("roll", x, shifts[0], axis=axes[0])
    counts = st.lists(st.integers(0, 3), min_size=1, max_size=x.ndim + 1)
    check("tile", x, tuple(data.draw(counts)))
    check("repeat", x, data.draw(st.integers(0, 3)))
    each = np.array([data.draw(st.integers(0, 2)) for _ in range(x.shape[axes[0]])])
    check("repeat", x, each, axis=axes[0])


@quick
@given(data=st.data())
def test_joining(data: Any) -> None:
    group = data.draw(st.sampled_from([("bool",), R.INTEGERS[:4], R.FLOATS]))
    shape = data.draw(R.filled)
    parts = [data.draw(R.any_array(group, st.just(shape))) for _ in range(3)]
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    check("concat", parts, axis=axis)
    check("concat", parts, axis=None)
    check("stack", parts, axis=axis)


@quick
@given(data=st.data())
def test_take(data: Any) -> None:
    x = _array(data, R.filled)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    place = st.integers(0, x.shape[axis] - 1)
    places = np.array(data.draw(st.lists(place, min_size=1, max_size=4)))
    check("take", x, places, axis=axis)
    order = np.argsort(np.random.default_rng(0).random(x.shape), axis)
    check("take_along_axis", x, order, axis=axis)
    if axis in (-1, x.ndim - 1):
        check("take_along_axis", x, order)


@quick
@given(data=st.data())
def test_triangles_and_grids(data: Any) -> None:
    x = _array(data, npst.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4))
    k = data.draw(st.integers(-4, 4) | st.sampled_from([2**32, -(2**32), 10**18]))
    check("tril", x, k=k)
    check("triu", x, k=k)
    check("matrix_transpose", x)
    lines = [np.arange(n) for n in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))]
    check("meshgrid", *lines, indexing=data.draw(st.sampled_from(["xy", "ij"])))


# -- indexing ----------------------------------------------------------------------------------


@quick
@given(data=st.data())
def test_reading(data: Any) -> None:
    x = _array(data)
    places = npst.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True)
    key = data.draw(places)
    R.same(Tensor(x)[key], strict.asarray(x)[_full(key, x)], f"x[{key}]")


def _full(key: Any, x: Any) -> Any:
    """The reference wants an ellipsis where axes are left out."""
    parts = key if isinstance(key, tuple) else (key,)
    return parts if any(p is Ellipsis for p in parts) else (*parts, Ellipsis)


@quick
@given(data=st.data())
def test_writing(data: Any) -> None:
    x = _array(data, R.filled)
    key = data.draw(npst.basic_indices(x.shape, allow_ellipsis=True))
    value = data.draw(R.elements(str(x.dtype)))
    mine, wanted = Tensor(x), strict.asarray(x.copy())
    mine[key] = value
    wanted[_full(key, x)] = value
    R.same(mine, wanted, f"x[{key}] = {value}")
    part = wanted[_full(key, x)]
    mine[key] = Tensor(np.zeros(part.shape, x.dtype))
    wanted[_full(key, x)] = strict.zeros(part.shape, dtype=part.dtype)
    R.same(mine, wanted, f"x[{key}] = zeros")


@quick
@given(data=st.data())
def test_masks(data: Any) -> None:
    x = _array(data)
    mask = data.draw(R.arrays("bool", x.shape))
    R.same(Tensor(x)[Tensor(mask)], strict.asarray(x)[strict.asarray(mask)], "x[mask]")
    mine, wanted = Tensor(x), strict.asarray(x.copy())
    value = data.draw(R.elements(str(x.dtype)))
    mine[Tensor(mask)] = value
    wanted[strict.asarray(mask)] = value
    R.same(mine, wanted, "x[mask] = value")


@pytest.mark.parametrize("mask", [(0, 2), (3, 0), (0,), (0, 0), (0, 5), (2, 2), (3, 2, 0)])
def test_masks_without_elements(mask: tuple[int, ...]) -> None:
    x, key = np.ones((3, 2)), np.zeros(mask, bool)
    try:
        wanted = x[key].shape
    except IndexError:
        with pytest.raises(IndexError):
            Tensor(x)[Tensor(key)]
    else:
        assert Tensor(x)[Tensor(key)].shape == wanted


@quick
@given(data=st.data())
def test_indices_as_arrays(data: Any) -> None:
    x = _array(data, R.filled)
    found = data.draw(npst.integer_array_indices(x.shape, result_shape=R.filled))
    wanted = strict.asarray(x)[tuple([strict.asarray(i) for i in found])]
    R.same(Tensor(x)[tuple([Tensor(i) for i in found])], wanted, f"x[{found}]")


@pytest.mark.parametrize("key", [5, -6, (0, 3), (0, 0, 0)])
def test_places_outside_are_an_index_error(key: Any) -> None:
    with pytest.raises(IndexError):
        svod.zeros((5, 3))[key]
