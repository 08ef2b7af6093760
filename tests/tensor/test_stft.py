"""stft and istft against results of torch, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import SvodError
from svod.tensor.core.complex_parts import parts
from svod.testing import gradcheck
from tests.tensor.stft_cases import BACK, FORWARD, RECORDED, options, signal

WANTED = dict(np.load(RECORDED))


@pytest.mark.parametrize("name", FORWARD)
def test_stft_is_that_of_torch(name: str) -> None:
    given = options(FORWARD[name][2], svod, svod.float64)
    found = svod.stft(Tensor(signal(name)), return_complex=True, **given)
    np.testing.assert_allclose(found.numpy(), WANTED[f"stft {name}"], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", BACK)
def test_istft_is_that_of_torch(name: str) -> None:
    source, given = BACK[name]
    z = Tensor(WANTED[f"stft {source}"])
    found = z.istft(**options(given, svod, svod.float64))
    np.testing.assert_allclose(found.numpy(), WANTED[f"istft {name}"], rtol=1e-10, atol=1e-11)


def test_there_and_back_in_single_precision() -> None:
    x = Tensor(signal("batch").astype(np.float32))
    window = svod.hann_window(16)
    z = x.stft(16, 4, window=window, return_complex=True)
    assert z.dtype is svod.complex64 and z.shape == (3, 9, 26)
    back = z.istft(16, 4, window=window, length=100)
    np.testing.assert_allclose(back.numpy(), x.numpy(), rtol=1e-4, atol=1e-5)


def test_pairs_of_floats() -> None:
    x = Tensor(signal("plain"))
    found = x.stft(16, return_complex=False)
    assert found.dtype is svod.float64 and found.shape == (9, 26, 2)
    wanted = WANTED["stft plain"]
    np.testing.assert_allclose(found.numpy()[..., 1], wanted.imag, rtol=1e-10, atol=1e-11)


def test_gradients() -> None:
    window = svod.hann_window(8, dtype=svod.float64)

    def there(x: Tensor) -> list[Tensor]:
        return list(parts(x.stft(8, 3, window=window, return_complex=True)))

    def back(x: Tensor) -> Tensor:
        z = x.stft(8, 2, window=window, return_complex=True)
        return (z * z).istft(8, 2, window=window)

    x = Tensor(signal("plain")[:20])
    gradcheck(there, x)
    gradcheck(back, x)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: svod.stft(x, 16), "return_complex"),
        (lambda x: svod.stft(x, 0, return_complex=True), "n_fft is 1 or more"),
        (lambda x: svod.stft(x, 300, center=False, return_complex=True), "pieces of 300 values"),
        (lambda x: svod.stft(x, 16, 0, return_complex=True), "hop_length=0"),
        (lambda x: svod.stft(x, 16, win_length=17, return_complex=True), "win_length=17"),
        (lambda x: svod.stft(x, 16, window=svod.ones(5), return_complex=True), "a window of shape"),
        (lambda x: svod.stft(x.reshape(1, 1, 100), 16, return_complex=True), "1 or 2 axes"),
        (lambda x: svod.istft(x, 16), "istft takes complex numbers"),
        (lambda x: svod.istft(svod.fft.fft(x.reshape(10, 10)), 16), "has no pieces"),
    ],
)
def test_bad_arguments(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        call(Tensor(signal("plain")))
    assert isinstance(caught.value, SvodError)


def test_windows_that_leave_gaps_are_refused() -> None:
    z = Tensor(WANTED["stft plain"])
    window = svod.hann_window(16, dtype=svod.float64)
    with pytest.raises(ValueError, match="leave gaps"):
        z.istft(16, window=window, center=False)
    with pytest.raises(ValueError, match="do not meet"):
        z.istft(16, 9, win_length=8)
