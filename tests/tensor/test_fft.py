"""Fourier transforms against NumPy's: sizes, dtypes, norms, axes, gradients, kernels, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, fft
from svod.base.errors import SvodError
from svod.tensor.core.complex_parts import joined, parts
from svod.tensor.fft.butterflies import roots
from svod.tensor.fft.dft_graph import DENSE, LARGEST_FACTOR, factors_of
from svod.testing import gradcheck

Array = np.ndarray[Any, Any]
SIZES = [*range(1, 34), 97, 127, 128, 360, 1000, 1021]
COMPLEX = ("fft", "ifft")
REAL = ("rfft", "ihfft")
HALF = ("irfft", "hfft")


def numbers(*shape: int, dtype: str = "complex128") -> Array:
    random = np.random.default_rng(shape)
    found = random.normal(size=shape)
    if dtype.startswith("complex"):
        found = found + 1j * random.normal(size=shape)
    return found.astype(dtype)


def check(name: str, x: Array, **options: Any) -> None:
    """The relative error of all numbers together, a small multiple of what rounding gives."""
    found = getattr(fft, name)(Tensor(x), **options).numpy()
    wanted = getattr(np.fft, name)(x, **options)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    exact = getattr(np.fft, name)(x.astype(np.result_type(x.dtype, np.float64)), **options)
    limit = 4e-7 if found.dtype in (np.float32, np.complex64) else 1e-15 * np.log2(x.size + 2)
    assert error(found, exact) < limit


def error(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found - exact) / max(np.linalg.norm(exact), 1e-300))


@pytest.mark.parametrize("n", SIZES)
def test_sizes(n: int) -> None:
    check("fft", numbers(2, n))
    check("rfft", numbers(2, n, dtype="float64"))
    check("irfft", numbers(2, n // 2 + 1), n=n)


@pytest.mark.parametrize("n", [1, 2, 6, 16, 17, 26, 97, 100, 128, 1021])
def test_sizes_along_another_axis_in_single_precision(n: int) -> None:
    check("ifft", numbers(2, n, 3, dtype="complex64"), axis=1)
    check("rfft", numbers(n, 5, dtype="float32"), axis=0)
    check("hfft", numbers(n // 2 + 1, 5, dtype="complex64"), n=n, axis=0)


@pytest.mark.parametrize("n", [4096, 65536])
def test_errors_of_large_transforms(n: int) -> None:
    z = numbers(1, n, dtype="complex64")
    exact = np.fft.fft(z.astype(np.complex128))
    assert error(fft.fft(Tensor(z)).numpy(), exact) < 2.5e-7
    assert error(fft.ifft(fft.fft(Tensor(z))).numpy(), z) < 4e-7
    x = z.real
    assert error(fft.irfft(fft.rfft(Tensor(x))).numpy(), x) < 4e-7


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", [*COMPLEX, *REAL, *HALF])
def test_norms_padding_and_axes(name: str, norm: str) -> None:
    x = numbers(3, 4, 10, dtype="float64" if name in REAL else "complex128")
    for n in (None, 7, 16):
        check(name, x, n=n, norm=norm)
    check(name, x, n=6, axis=-2, norm=norm)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_several_axes(name: str) -> None:
    x = numbers(3, 4, 10, dtype="float64" if name == "rfftn" else "complex128")
    for s, axes in ((None, None), ((5, 6), (0, 1)), (None, (2, 0)), ((4, 12), (-1, 0))):
        check(name, x, s=s, axes=axes)
    check(name.replace("n", "2", 1) if name == "fftn" else name[:-1] + "2", x)
    check(name, x, norm="ortho")


def test_hermitian_transforms_of_several_axes() -> None:
    """As in torch: complex along all axes but the last, then the real one."""
    z, x = numbers(3, 4, 5), numbers(3, 4, 8, dtype="float64")
    wanted = np.fft.hfft(np.fft.fftn(z, axes=(0, 1)), n=8)
    found = fft.hfftn(Tensor(z)).numpy()
    assert error(found, wanted) < 1e-14
    assert error(fft.hfft2(Tensor(z)).numpy(), np.fft.hfft(np.fft.fft(z, axis=1))) < 1e-14
    wanted = np.fft.ifft(np.fft.ihfft(x), axis=1)
    assert error(fft.ihfft2(Tensor(x)).numpy(), wanted) < 1e-14
    assert error(fft.hfftn(fft.ihfftn(Tensor(x)), s=x.shape).numpy(), x) < 1e-14


def test_real_values_have_a_whole_transform() -> None:
    x = numbers(3, 7, 6, dtype="float64")
    check("fft", x)
    check("ifft", x, n=9, axis=1)
    check("fftn", x)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16"])
def test_other_dtypes_are_computed_in_single_precision(dtype: str) -> None:
    x = (numbers(4, 6, dtype="float64") * 3).astype(dtype) if dtype != "uint8" else np.eye(4, 6)
    x = x.astype(dtype)
    for name in ("fft", "rfft"):
        found = getattr(fft, name)(Tensor(x))
        assert found.dtype is svod.complex64
        assert error(found.numpy(), getattr(np.fft, name)(x.astype(np.float64))) < 1e-6


def test_little_and_nothing() -> None:
    assert fft.fft(svod.zeros((0, 8))).shape == (0, 8)
    assert fft.rfft(svod.zeros((0, 8))).shape == (0, 5)
    assert fft.irfft(svod.zeros((0, 5))).shape == (0, 8)
    assert fft.fft(svod.zeros((0, 2)), n=3, axis=0).tolist() == [[0, 0]] * 3
    assert fft.fftn(svod.ones((0, 2)), axes=(1,)).shape == (0, 2)
    assert fft.fft(Tensor([2.0])).tolist() == [2]
    assert fft.irfft(Tensor([3.0]), n=1).tolist() == [3]
    assert fft.fftn(Tensor(3.0)).tolist() == 3 and fft.fftn(svod.ones(2), axes=()).tolist() == [
        1,
        1,
    ]


def test_numbers_that_must_be_real_are_taken_so() -> None:
    z = numbers(2, 6)
    for n in (9, 10, 11):
        check("irfft", z, n=n)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("d", [1.0, 0.1])
def test_frequencies_and_shifts(n: int, d: float) -> None:
    for name in ("fftfreq", "rfftfreq"):
        found = getattr(fft, name)(n, d=d, dtype=svod.float64)
        np.testing.assert_allclose(found.numpy(), getattr(np.fft, name)(n, d=d), rtol=1e-15)
    assert fft.fftfreq(n).dtype is svod.float32
    x = numbers(n, 3, n, dtype="complex128")
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, (0, 2), (-1,)):
            found = getattr(fft, name)(Tensor(x), axes=axes)
            np.testing.assert_array_equal(found.numpy(), getattr(np.fft, name)(x, axes=axes))


def test_keywords_of_torch() -> None:
    x = numbers(4, 6)
    assert error(fft.fft(Tensor(x), 5, dim=0).numpy(), np.fft.fft(x, 5, axis=0)) < 1e-15
    found = fft.fftn(Tensor(x), (3, 5), dim=(1, 0), norm=None).numpy()
    assert error(found, np.fft.fftn(x, (3, 5), axes=(1, 0))) < 1e-15
    assert fft.fftshift(Tensor(x), dim=0).shape == (4, 6)
    assert (
        error(fft.fftn(Tensor(x), s=(-1, 3)).numpy(), np.fft.fftn(x, s=(4, 3), axes=(0, 1))) < 1e-15
    )


def test_roots_are_exact_where_they_can_be() -> None:
    n = 1 << 20
    cosine, sine = roots(np.arange(8) * (n // 8) + n * 5, n)
    np.testing.assert_array_equal(cosine[::2], [1, 0, -1, 0])
    np.testing.assert_array_equal(sine[::2], [0, 1, 0, -1])
    half_turn = np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)
    angles = 2 * half_turn * np.arange(1000) / 1000
    found = np.stack(roots(np.arange(1000), 1000))
    assert abs(found - np.stack([np.cos(angles), np.sin(angles)])).max() < 1.5e-16


def test_stages() -> None:
    for n in range(1, 5000):
        factors = factors_of(n)
        if factors:
            assert np.prod(factors) == n and max(factors) <= LARGEST_FACTOR
    assert factors_of(4096) == (16, 16, 16) and factors_of(17) == ()
    assert factors_of(1 << 20) == (16,) * 5


def kernels(x: Tensor) -> int:
    return len(list(x.prepare().kernels()))


def test_a_transform_is_one_kernel_per_stage() -> None:
    z = Tensor(numbers(4, 4096, dtype="complex64"))
    x = Tensor(numbers(4, 4096, dtype="float32"))
    assert kernels(fft.fft(z)) == 3
    assert kernels(fft.fft(z * 2 + 1, norm="ortho")) == 3
    assert kernels(fft.rfft(x)) == 4  # 3 stages of half the size, and sorting out
    assert kernels(fft.irfft(fft.rfft(x))) == 7
    assert kernels(fft.fft(Tensor(numbers(4, 12)))) == 1
    assert kernels(fft.fft(Tensor(numbers(4, DENSE - 3)))) == 1  # one product


def test_a_plan_transforms_new_values() -> None:
    x = Tensor(numbers(3, 60, dtype="float64"))
    plan = fft.irfft(fft.rfft(x) * 2).prepare(inputs={"x": x}, outputs=["y"])
    for seed in (1, 2):
        given = numbers(3, 60, dtype="float64") * seed
        np.testing.assert_allclose(plan(x=given), given * 2, rtol=1e-12, atol=1e-12)


def test_recorded_by_jit() -> None:
    recorded = svod.jit(lambda z: fft.fft(z) * 2)
    z = numbers(2, 48)
    for scale in (1, 3):
        found = recorded(Tensor(z * scale)).numpy()
        np.testing.assert_allclose(found, 2 * np.fft.fft(z * scale), rtol=1e-12)


def test_on_the_reference_device() -> None:
    z = numbers(2, 96)
    found = fft.fft(Tensor(z, device="REF"))
    assert found.device == "REF"
    assert error(found.numpy(), np.fft.fft(z)) < 1e-15


# -- gradients -------------------------------------------------------------------------------------


def _folded(z: Tensor) -> list[Tensor]:
    return list(parts(z)) if z.dtype.kind == "c" else [z]


@pytest.mark.parametrize("n", [1, 2, 6, 7, 12, 19])
@pytest.mark.parametrize("name", [*COMPLEX, *REAL, *HALF])
def test_gradients(name: str, n: int) -> None:
    function = getattr(fft, name)
    if name in REAL:
        gradcheck(lambda x: _folded(function(x, norm="ortho")), Tensor(numbers(2, n).real))
        return
    size = {"n": n} if name in HALF else {}
    count = n // 2 + 1 if name in HALF else n
    z = numbers(2, count)
    gradcheck(
        lambda re, im: _folded(function(joined(re, im), **size)), [Tensor(z.real), Tensor(z.imag)]
    )


def test_gradients_of_several_axes_and_of_real_values() -> None:
    x = Tensor(numbers(3, 4, 5, dtype="float64"))
    gradcheck(lambda x: _folded(fft.fft2(x)), x)
    gradcheck(lambda x: _folded(fft.rfftn(x, s=(6, 3), axes=(2, 0))), x)
    gradcheck(lambda x: fft.irfftn(fft.rfftn(x) * 0.5, s=(3, 4, 5)), x)
    gradcheck(lambda x: _folded(fft.fft(x, n=70)), x)


def _power(z: Tensor) -> Tensor:
    re, im = parts(z)
    return re * re + im * im


def test_the_gradient_of_a_power_spectrum() -> None:
    x = numbers(16, dtype="float64")
    z = Tensor(x, requires_grad=True)
    _power(fft.fft(z)).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * 16 * x, rtol=1e-12)  # Parseval


def test_gradients_of_gradients() -> None:
    def slope(x: Tensor) -> Tensor:
        return (svod.grad(lambda y: (_power(fft.rfft(y)) ** 2).sum())(x) * weights).sum()

    weights = Tensor(numbers(6, dtype="float64"))
    x = numbers(1, 6, dtype="float64")[0]
    found = svod.grad(slope)(Tensor(x)).numpy()
    for place in range(6):
        step = np.zeros(6)
        step[place] = 1e-5
        ends = [slope(Tensor(x + step)).item(), slope(Tensor(x - step)).item()]
        np.testing.assert_allclose(found[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-5)


# -- bad arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: fft.fft(x, n=0), ValueError, "fft needs 1 point or more along an axis, not 0"),
        (lambda x: fft.rfft(x, n=-3), ValueError, "not -3"),
        (lambda x: fft.fft(svod.zeros((3, 0))), ValueError, "not 0"),
        (lambda x: fft.irfft(svod.zeros((3, 1))), ValueError, "not 0"),
        (lambda x: fft.fft(x, axis=2), IndexError, "axis 2 is out of range"),
        (lambda x: fft.fft(x, norm="both"), ValueError, "norm is 'backward', 'ortho' or 'forward'"),
        (lambda x: fft.fft(x, n=2.5), TypeError, "n must be a whole number"),
        (lambda x: fft.fft([1.0]), TypeError, "fft takes a tensor, not a list"),
        (lambda x: fft.fft(Tensor(1.0)), ValueError, "at least 1 axis"),
        (lambda x: fft.rfft(fft.fft(x)), TypeError, "rfft takes real numbers, not complex64"),
        (lambda x: fft.ihfft(fft.fft(x)), TypeError, "ihfft takes real numbers"),
        (lambda x: fft.fftn(x, s=(2, 2, 2)), ValueError, "3 sizes for a tensor with 2 axes"),
        (lambda x: fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "sizes"),
        (lambda x: fft.fftn(x, axes=(0, 0)), ValueError, "name an axis twice"),
        (lambda x: fft.fft2(svod.zeros(3)), IndexError, "axis -2"),
        (lambda x: fft.rfftn(x, axes=()), ValueError, "rfftn needs at least 1 axis"),
        (lambda x: fft.fftfreq(0), ValueError, "fftfreq needs 1 sample or more"),
        (lambda x: fft.fftfreq(4, d=0), ValueError, "distance 0"),
        (lambda x: fft.rfftfreq(4, dtype=svod.int32), TypeError, "frequencies are floats"),
        (lambda x: fft.fftshift(x, axes=5), IndexError, "axis 5"),
    ],
)
def test_bad_arguments(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        call(svod.ones((2, 3)))
    assert isinstance(caught.value, SvodError)
