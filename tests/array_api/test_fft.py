"""The fft extension against the reference implementation: results, dtypes, shapes."""

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
from tests.array_api.reference import quick

NORMS = st.sampled_from(["backward", "ortho", "forward"])
TAKES_REAL = ("rfft", "rfftn", "ihfft")
FREQUENCIES = ("fftfreq", "rfftfreq")
_SHAPES = npst.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=6)
_FEW = [1, 2, 5, 8]  # points an axis is brought to: every new size is a new kernel


def numbers(draw: Any, name: str) -> Any:
    shape = draw(_SHAPES)
    is_single = draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x = random.normal(size=shape)
    if name in TAKES_REAL:
        return x.astype(np.float32 if is_single else np.float64)
    z = x + 1j * random.normal(size=shape)
    return z.astype(np.complex64 if is_single else np.complex128)


def check(name: str, x: Any, **options: Any) -> None:
    found = getattr(svod.fft, name)(Tensor(x), **options)
    wanted = np.asarray(getattr(strict.fft, name)(strict.asarray(x), **options))
    assert found.dtype.name == str(wanted.dtype) and found.shape == wanted.shape
    is_single = wanted.dtype in (np.float32, np.complex64)
    limit = {"rtol": 1e-4, "atol": 1e-5} if is_single else {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(found.numpy(), wanted, **limit)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@quick
@given(data=st.data())
def test_one_axis(name: str, data: Any) -> None:
    x = numbers(data.draw, name)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = data.draw(st.none() | st.sampled_from(_FEW))
    check(name, x, n=n, axis=axis, norm=data.draw(NORMS))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@quick
@given(data=st.data())
def test_several_axes(name: str, data: Any) -> None:
    x = numbers(data.draw, name)
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=2, unique=True))
    s = data.draw(st.none() | st.just([data.draw(st.sampled_from(_FEW)) for _ in axes]))
    check(name, x, s=s, axes=axes, norm=data.draw(NORMS))


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@quick
@given(data=st.data())
def test_shifts(name: str, data: Any) -> None:
    x = numbers(data.draw, data.draw(st.sampled_from(["rfft", "fft"])))
    axes = st.lists(st.integers(-x.ndim, -1), min_size=1, max_size=2, unique=True)
    check(name, x, axes=data.draw(st.none() | st.integers(0, x.ndim - 1) | axes))


@pytest.mark.parametrize("name", FREQUENCIES)
@pytest.mark.parametrize("n", [1, 2, 7, 10])
def test_frequencies(name: str, n: int) -> None:
    for d in (1.0, 0.25, 3.0):
        for dtype in ("float32", "float64"):
            found = getattr(svod.fft, name)(n, d=d, dtype=getattr(svod, dtype))
            wanted = getattr(strict.fft, name)(n, d=d, dtype=getattr(strict, dtype))
            assert found.dtype.name == dtype
            np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=1e-6)
