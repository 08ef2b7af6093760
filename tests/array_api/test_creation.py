"""Creation, dtypes, conversion to Python, exchange with other libraries, inspection."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod
from svod import Tensor
from tests.array_api import reference as R
from tests.array_api.reference import COMPLEX, DTYPES, FLOATS, INTEGERS, NUMBERS, quick


def _dtype(name: str) -> Any:
    return getattr(svod, name)


@quick
@given(data=st.data())
def test_arange(data: Any) -> None:
    numbers = st.integers(-20, 20)
    start, stop = data.draw(numbers), data.draw(numbers)
    step = data.draw(st.integers(-5, 5).filter(bool))
    np.testing.assert_array_equal(
        svod.arange(start, stop, step).numpy(), np.arange(start, stop, step)
    )
    np.testing.assert_array_equal(svod.arange(stop).numpy(), np.arange(stop))
    dtype = data.draw(st.sampled_from(FLOATS))
    found = svod.arange(start, stop=stop, step=step / 4, dtype=_dtype(dtype))
    np.testing.assert_allclose(found.numpy(), np.arange(start, stop, step / 4, dtype), rtol=1e-6)
    assert found.dtype == _dtype(dtype)
    assert svod.arange(3.0).dtype == svod.float32 and svod.arange(3).dtype == svod.int64


@quick
@given(data=st.data())
def test_linspace(data: Any) -> None:
    start, stop = data.draw(st.floats(-1e3, 1e3)), data.draw(st.floats(-1e3, 1e3))
    num, endpoint = data.draw(st.integers(0, 9)), data.draw(st.booleans())
    for name in FLOATS:
        found = svod.linspace(start, stop, num=num, endpoint=endpoint, dtype=_dtype(name))
        wanted = np.linspace(start, stop, num, endpoint, dtype=name)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-3)
        assert found.dtype == _dtype(name)
        longer = svod.linspace(start, stop, num + 1, dtype=_dtype(name))
        shorter = svod.linspace(start, stop, num, dtype=_dtype(name), endpoint=False)
        np.testing.assert_array_equal(shorter.numpy(), longer.numpy()[:-1])
    if num > 1 and endpoint:
        ends = svod.linspace(start, stop, num, dtype=svod.float64).numpy()
        assert ends[0] == start and ends[-1] == stop


@quick
@given(shape=R.shapes, name=st.sampled_from(DTYPES))
def test_filled(shape: Any, name: str) -> None:
    dtype = _dtype(name)
    for function, value in (("zeros", 0), ("ones", 1)):
        for found in (
            getattr(svod, function)(shape, dtype=dtype),
            getattr(svod, function)(shape=shape, dtype=dtype),
        ):
            assert found.dtype == dtype and found.shape == shape
            np.testing.assert_array_equal(found.numpy(), np.full(shape, value, name))
        like = getattr(svod, f"{function}_like")(svod.empty(shape, dtype=dtype))
        assert like.dtype == dtype and like.shape == shape
        assert getattr(svod, function)(shape).dtype == svod.float32
    assert svod.empty(shape, dtype=dtype).shape == shape
    value = {"b": True, "f": 2.5}.get(np.dtype(name).kind, 3)
    np.testing.assert_array_equal(
        svod.full(shape, value, dtype=dtype).numpy(), np.full(shape, value, name)
    )
    like = svod.full_like(svod.zeros(shape, dtype=dtype), value)
    assert like.dtype == dtype
    for number, default in ((True, svod.bool), (3, svod.int64), (2.5, svod.float32)):
        assert svod.full(shape, number).dtype == default


@quick
@given(data=st.data())
def test_eye(data: Any) -> None:
    rows, columns = data.draw(st.integers(0, 5)), data.draw(st.none() | st.integers(0, 5))
    k = data.draw(st.integers(-6, 6) | st.sampled_from([2**32, -(2**32)]))
    name = data.draw(st.sampled_from(NUMBERS))
    found = svod.eye(rows, columns, k=k, dtype=_dtype(name))
    np.testing.assert_array_equal(found.numpy(), np.eye(rows, columns, k, name))
    assert found.dtype == _dtype(name)


@quick
@given(data=st.data())
def test_asarray(data: Any) -> None:
    array = data.draw(R.any_array(DTYPES))
    x = svod.asarray(array)
    np.testing.assert_array_equal(x.numpy(), array)
    assert svod.asarray(x) is x and svod.asarray(x, copy=False) is x
    plain = svod.asarray(array.tolist(), dtype=_dtype(str(array.dtype)))
    if array.size:
        np.testing.assert_array_equal(plain.numpy(), array)
    if array.size and array.dtype.kind != "b":
        copied = svod.asarray(x, copy=True)
        first = (0,) * array.ndim
        before = copied[first].item()
        x[first] = 1 if before != 1 else 0
        after = copied[first].item()
        assert after == before or before != before, "a copy keeps its values"


def test_asarray_of_python_values() -> None:
    assert svod.asarray(True).dtype == svod.bool
    assert svod.asarray(1).dtype == svod.int64 and svod.asarray(1.5).dtype == svod.float32
    assert svod.asarray([[1, 2.5], [3, 4]]).dtype == svod.float32
    assert svod.asarray([svod.asarray(1), svod.asarray(2)]).tolist() == [1, 2]
    assert svod.asarray((1, 2), dtype=svod.float64).dtype == svod.float64
    assert svod.asarray(1j).dtype == svod.complex64 == svod.asarray([1, 2.5, 1j]).dtype


# -- dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_result_type(a: str, b: str) -> None:
    if not R.promotes(a, b):
        return
    first, second = getattr(strict, a), getattr(strict, b)
    wanted = strict.result_type(first, second)
    found = svod.result_type(_dtype(a), svod.zeros(1, dtype=_dtype(b)))
    assert found.name == np.dtype(wanted._np_dtype).name
    assert svod.can_cast(_dtype(a), _dtype(b)) == strict.can_cast(
        getattr(strict, a), getattr(strict, b)
    )


def test_result_type_with_numbers() -> None:
    assert svod.result_type(svod.int8, 3) == svod.int8
    assert svod.result_type(svod.float32, 3, 2.5) == svod.float32
    assert svod.result_type(svod.zeros(2, dtype=svod.float64), 1.0) == svod.float64


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    "kind",
    ["bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric",
     "complex floating", ("integral", "bool")],
)  # fmt: skip
def test_isdtype(name: str, kind: Any) -> None:
    assert svod.isdtype(_dtype(name), kind) == strict.isdtype(getattr(strict, name), kind)
    assert svod.isdtype(_dtype(name), _dtype(name))
    with pytest.raises((TypeError, ValueError)):
        svod.isdtype(_dtype(name), "no such kind")


@pytest.mark.parametrize("name", FLOATS)
def test_finfo(name: str) -> None:
    wanted = np.finfo(name)
    for found in (svod.finfo(_dtype(name)), svod.finfo(svod.zeros(1, dtype=_dtype(name)))):
        assert (found.bits, found.dtype) == (wanted.bits, _dtype(name))
        for limit in ("eps", "max", "min", "smallest_normal"):
            assert isinstance(getattr(found, limit), float)
            assert getattr(found, limit) == float(getattr(wanted, limit))


@pytest.mark.parametrize("name", INTEGERS)
def test_iinfo(name: str) -> None:
    wanted = np.iinfo(name)
    for found in (svod.iinfo(_dtype(name)), svod.iinfo(svod.zeros(1, dtype=_dtype(name)))):
        assert (found.bits, found.max, found.min) == (wanted.bits, wanted.max, wanted.min)
        assert found.dtype == _dtype(name)


@quick
@given(data=st.data())
def test_astype(data: Any) -> None:
    x = data.draw(R.any_array(DTYPES, bound=100))
    name = data.draw(st.sampled_from(DTYPES))
    if np.dtype(name).kind == "u":
        x = np.abs(x) if x.dtype.kind != "b" else x
    if x.dtype == np.int8:
        x = np.clip(x, -127, 127)
    found = svod.astype(Tensor(x), _dtype(name), copy=data.draw(st.booleans()))
    np.testing.assert_array_equal(found.numpy(), x.astype(name))
    assert found.dtype == _dtype(name)


# -- to Python and to others -------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_python_numbers(name: str) -> None:
    x = svod.ones((), dtype=_dtype(name))
    assert bool(x) is True and int(x) == 1 and float(x) == 1.0 and complex(x) == 1 + 0j
    if name in INTEGERS:
        assert [10, 20][x] == 20
    else:
        with pytest.raises(TypeError):
            [10, 20][x]


def test_float_to_int_errors() -> None:
    with pytest.raises(OverflowError):
        int(svod.asarray(svod.inf))
    with pytest.raises(ValueError):
        int(svod.asarray(svod.nan))
    with pytest.raises(ValueError):
        bool(svod.zeros(2))


@quick
@given(data=st.data())
def test_dlpack(data: Any) -> None:
    array = data.draw(R.any_array(DTYPES, R.filled))
    x = Tensor(array)
    np.testing.assert_array_equal(np.from_dlpack(x), array)
    np.testing.assert_array_equal(svod.from_dlpack(array).numpy(), array)
    np.testing.assert_array_equal(svod.from_dlpack(x, copy=True).numpy(), array)
    np.testing.assert_array_equal(svod.from_dlpack(x, device=x.device).numpy(), array)
    assert x.__dlpack_device__() == (1, 0)
    assert x.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=True) is not None


def test_devices() -> None:
    x = svod.ones(3)
    for device in svod.__array_namespace_info__().devices():
        moved = x.to_device(device)
        assert moved.device == device and moved.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="stream"):
        x.to_device("CPU", stream=3)


def test_inspection() -> None:
    info = svod.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64,
    }  # fmt: skip
    assert info.default_device() in info.devices()
    assert svod.ones(1).device == info.default_device()
    for device in (None, *info.devices()):
        found = info.default_dtypes(device=device)
        assert found["real floating"] == svod.asarray(1.0).dtype
        assert found["integral"] == svod.asarray(1).dtype
        assert found["indexing"] == svod.argmax(svod.ones(2)).dtype
        assert found["complex floating"] == svod.asarray(1j).dtype
        assert info.dtypes(device=device) == {n: _dtype(n) for n in (*DTYPES, *COMPLEX)}
    for kind in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "numeric",
    ):
        every = (*DTYPES, *COMPLEX)
        wanted = {n: _dtype(n) for n in every if svod.isdtype(_dtype(n), kind)}
        assert info.dtypes(kind=kind) == wanted
    assert info.dtypes(kind="complex floating") == {
        "complex64": svod.complex64, "complex128": svod.complex128,
    }  # fmt: skip
    assert info.dtypes(kind=("bool", "real floating")).keys() == {"bool", *FLOATS}
    with pytest.raises(ValueError, match="no kind"):
        info.dtypes(kind="decimal")


def test_hypothesis_strategies_accept_the_namespace() -> None:
    from hypothesis import find
    from hypothesis.extra.array_api import make_strategies_namespace

    strategies = make_strategies_namespace(svod, api_version="2024.12")
    x = find(
        strategies.arrays(svod.float32, (2, 3), elements=st.floats(1, 2, width=32)), lambda x: True
    )
    assert isinstance(x, Tensor) and x.shape == (2, 3) and svod.all(x >= 1).item()
