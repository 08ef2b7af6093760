"""Functions of complex numbers element by element against NumPy: values, special values, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError

INF, NAN = np.inf, np.nan
KINDS = [np.complex64, np.complex128]
# name here = name in NumPy
FUNCTIONS = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "reciprocal": "reciprocal", "sign": "sign", "abs": "abs", "angle": "angle",
    "square": "square", "conj": "conj", "real": "real", "imag": "imag", "isnan": "isnan",
    "isinf": "isinf", "isfinite": "isfinite", "isreal": "isreal", "negative": "negative",
    "round": "round",
}  # fmt: skip


def random(kind: type, scale: float, count: int = 200) -> np.ndarray:
    rng = np.random.default_rng(int(scale * 1000) + 3)
    z = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    return (z * scale).astype(kind)


def apart(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Distances in units of the last place of the size of the wanted number."""
    with np.errstate(all="ignore"):
        return np.abs(found - wanted) / np.abs(wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_values(name: str, kind: type) -> None:
    eps = np.finfo(kind).eps
    for scale in (1e-3, 1.0, 8.0):
        z = random(kind, scale)
        # NumPy's own log1p and expm1 lose digits near zero
        wide = np.clongdouble if name in ("log1p", "expm1") else np.complex128
        wanted = getattr(np, FUNCTIONS[name])(z.astype(wide))
        x = Tensor(z)
        found = np.asarray(getattr(x, name) if name in ("real", "imag") else getattr(svod, name)(x))
        if wanted.dtype == bool:
            np.testing.assert_array_equal(found, wanted)
            continue
        assert found.dtype == getattr(np, FUNCTIONS[name])(z).dtype
        # an angle times log(2), and the reference's own error
        slack = {"exp2": 16, "log1p": 40}.get(name, 6)
        assert apart(found, wanted)[np.abs(wanted) > 0].max(initial=0) < slack * eps


def test_exact_near_zero() -> None:
    z = np.array([1e-20 + 3e-20j, -2e-25 + 1e-30j])
    np.testing.assert_allclose(Tensor(z).log1p().numpy(), z, rtol=1e-15)
    np.testing.assert_allclose(Tensor(z).expm1().numpy(), z, rtol=1e-15)
    near_one = Tensor(np.array([1 + 1e-12j, 1 + 1e-17 + 1e-9j]))
    np.testing.assert_allclose(near_one.log().real.numpy(), [5e-25, 5e-19], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_overflow_on_the_way(kind: type) -> None:
    big = 1e30 if kind is np.complex64 else 1e300
    z = np.array([big * (3 + 4j), (3 + 4j) / big], kind)
    tolerance = 1e-6 if kind is np.complex64 else 1e-14
    np.testing.assert_allclose(Tensor(z).abs().numpy(), [5 * big, 5 / big], rtol=tolerance)
    np.testing.assert_allclose((Tensor(z) / Tensor(z)).numpy(), [1, 1], rtol=tolerance)
    np.testing.assert_allclose(Tensor(z).log().numpy(), np.log(z), rtol=tolerance)
    np.testing.assert_allclose(Tensor(z).sqrt().numpy(), np.sqrt(z), rtol=tolerance)
    np.testing.assert_allclose(Tensor(z).sign().numpy(), [0.6 + 0.8j] * 2, rtol=tolerance)
    np.testing.assert_allclose(Tensor(z).asinh().numpy(), np.arcsinh(z), rtol=tolerance)
    np.testing.assert_allclose(Tensor(z).acos().numpy(), np.arccos(z), rtol=tolerance)
    edge = np.array([89.0 + 0.8j] if kind is np.complex64 else [709.9 + 0.8j], kind)
    np.testing.assert_allclose(Tensor(edge).exp().numpy(), np.exp(edge), rtol=10 * tolerance)


# What the array API standard says about parts that are infinite, NaN or zero. "?" is any sign.
SPECIAL: dict[str, list[tuple[complex, Any, Any]]] = {
    "exp": [
        (complex(0, 0), 1, 0), (complex(-INF, INF), 0, "0?"), (complex(INF, 0), INF, 0),
        (complex(INF, INF), "inf?", NAN), (complex(-INF, NAN), "0?", "0?"),
        (complex(INF, NAN), "inf?", NAN), (complex(NAN, 0), NAN, 0), (complex(NAN, 1), NAN, NAN),
        (complex(1, INF), NAN, NAN), (complex(-INF, 1), 0, 0), (complex(INF, 2), -INF, INF),
    ],
    "expm1": [
        (complex(0, 0), 0, 0), (complex(INF, 0), INF, 0), (complex(-INF, 1), -1, 0),
        (complex(INF, INF), "inf?", NAN), (complex(-INF, INF), -1, "0?"),
        (complex(-INF, NAN), -1, "0?"), (complex(NAN, 0), NAN, 0), (complex(1, NAN), NAN, NAN),
    ],
    "log": [
        (complex(-0.0, 0), -INF, np.pi), (complex(0, 0), -INF, 0),
        (complex(1, INF), INF, np.pi / 2), (complex(1, NAN), NAN, NAN),
        (complex(-INF, 1), INF, np.pi), (complex(INF, 1), INF, 0),
        (complex(-INF, INF), INF, 3 * np.pi / 4), (complex(INF, INF), INF, np.pi / 4),
        (complex(INF, NAN), INF, NAN), (complex(NAN, INF), INF, NAN), (complex(NAN, NAN), NAN, NAN),
    ],
    "log1p": [
        (complex(-1, 0), -INF, 0), (complex(1, INF), INF, np.pi / 2),
        (complex(-INF, 1), INF, np.pi), (complex(INF, 1), INF, 0), (complex(INF, NAN), INF, NAN),
        (complex(NAN, 1), NAN, NAN),
    ],
    "sqrt": [
        (complex(0, 0), 0, 0), (complex(-0.0, 0), 0, 0), (complex(1, INF), INF, INF),
        (complex(NAN, INF), INF, INF), (complex(1, NAN), NAN, NAN), (complex(-INF, 1), 0, INF),
        (complex(INF, 1), INF, 0), (complex(-INF, NAN), NAN, "inf?"), (complex(INF, NAN), INF, NAN),
        (complex(NAN, 1), NAN, NAN), (complex(-4, 0), 0, 2), (complex(-4, -0.0), 0, -2),
    ],
    "sinh": [
        (complex(0, 0), 0, 0), (complex(0, INF), "0?", NAN), (complex(0, NAN), "0?", NAN),
        (complex(1, INF), NAN, NAN), (complex(INF, 0), INF, 0), (complex(INF, INF), "inf?", NAN),
        (complex(INF, NAN), "inf?", NAN), (complex(NAN, 0), NAN, 0), (complex(NAN, 1), NAN, NAN),
    ],
    "cosh": [
        (complex(0, 0), 1, 0), (complex(0, INF), NAN, "0?"), (complex(0, NAN), NAN, "0?"),
        (complex(1, INF), NAN, NAN), (complex(INF, 0), INF, 0), (complex(INF, INF), INF, NAN),
        (complex(INF, NAN), INF, NAN), (complex(NAN, 0), NAN, "0?"), (complex(NAN, 1), NAN, NAN),
    ],
    "tanh": [
        (complex(0, 0), 0, 0), (complex(1, INF), NAN, NAN), (complex(INF, 1), 1, 0),
        (complex(INF, INF), 1, "0?"), (complex(INF, NAN), 1, "0?"), (complex(NAN, 0), NAN, 0),
        (complex(NAN, 1), NAN, NAN), (complex(-INF, 1), -1, 0), (complex(0, INF), 0, NAN),
    ],
    "asinh": [
        (complex(0, 0), 0, 0), (complex(1, INF), INF, np.pi / 2), (complex(1, NAN), NAN, NAN),
        (complex(INF, 1), INF, 0), (complex(INF, INF), INF, np.pi / 4),
        (complex(INF, NAN), INF, NAN), (complex(NAN, 0), NAN, 0),
        (complex(NAN, INF), "inf?", NAN), (complex(NAN, 1), NAN, NAN),
    ],
    "acos": [
        (complex(0, 0), np.pi / 2, -0.0), (complex(0, NAN), np.pi / 2, NAN),
        (complex(1, INF), np.pi / 2, -INF), (complex(1, NAN), NAN, NAN),
        (complex(-INF, 1), np.pi, -INF), (complex(INF, 1), 0, -INF),
        (complex(-INF, INF), 3 * np.pi / 4, -INF), (complex(INF, INF), np.pi / 4, -INF),
        (complex(INF, NAN), NAN, "inf?"), (complex(NAN, INF), NAN, -INF),
        (complex(NAN, 1), NAN, NAN),
    ],
    "acosh": [
        (complex(0, 0), 0, np.pi / 2), (complex(1, INF), INF, np.pi / 2),
        (complex(-INF, 1), INF, np.pi), (complex(INF, 1), INF, 0),
        (complex(INF, INF), INF, np.pi / 4), (complex(INF, NAN), INF, NAN),
        (complex(NAN, INF), INF, NAN), (complex(NAN, 1), NAN, NAN),
    ],
    "atanh": [
        (complex(0, 0), 0, 0), (complex(0, NAN), 0, NAN), (complex(1, 0), INF, 0),
        (complex(1, INF), 0, np.pi / 2), (complex(INF, 1), 0, np.pi / 2),
        (complex(INF, INF), 0, np.pi / 2), (complex(INF, NAN), 0, NAN),
        (complex(NAN, INF), "0?", np.pi / 2), (complex(NAN, 1), NAN, NAN),
        (complex(1, NAN), NAN, NAN),
    ],
    "abs": [(complex(NAN, INF), INF, None), (complex(-INF, 1), INF, None), (0j, 0, None)],
}  # fmt: skip


def same(found: float, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return abs(found) == float(wanted[:-1])
    if np.isnan(wanted):
        return bool(np.isnan(found))
    is_near = found == wanted or abs(found - wanted) < 1e-6
    return bool(is_near and (wanted != 0 or np.signbit(found) == np.signbit(wanted)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(name: str, kind: type) -> None:
    points = SPECIAL[name]
    z = np.array([p[0] for p in points], kind)
    found = getattr(Tensor(z), name)().numpy()
    for value, (point, re, im) in zip(found, points, strict=True):
        assert same(value.real, re), f"{name}({point}) = {value}"
        assert im is None or same(value.imag, im), f"{name}({point}) = {value}"
    if name != "abs":  # and at the conjugates
        turned = getattr(Tensor(z.conj()), name)().numpy()
        for value, (point, re, im) in zip(turned, points, strict=True):
            assert same(value.real, re), f"{name}(conj {point}) = {value}"
            assert same(value.imag, im if isinstance(im, str) else -float(im)), (
                f"{name}(conj {point})"
            )


@pytest.mark.parametrize("name", ["asin", "acos", "acosh", "atanh", "asinh", "atan", "log", "sqrt"])
def test_the_sign_of_zero_chooses_the_side_of_a_cut(name: str) -> None:
    numpy = FUNCTIONS[name]
    for z in (complex(-2, 0.0), complex(-2, -0.0), complex(2, 0.0), complex(2, -0.0),
              complex(0.0, 2), complex(-0.0, 2), complex(0.0, -2), complex(-0.0, -2)):  # fmt: skip
        wanted = getattr(np, numpy)(np.complex128(z))
        assert abs(getattr(Tensor(np.array(z)), name)().item() - wanted) < 1e-12, z


@pytest.mark.parametrize("kind", KINDS)
def test_binary_operators(kind: type) -> None:
    a, b = random(kind, 1.0), random(kind, 2.0)
    x, y = Tensor(a), Tensor(b)
    wide_a, wide_b = a.astype(np.complex128), b.astype(np.complex128)
    real = np.abs(a)
    tolerance = 4e-6 if kind is np.complex64 else 1e-14
    for found, wanted in (
        (x + y, wide_a + wide_b), (x - y, wide_a - wide_b), (x * y, wide_a * wide_b),
        (x / y, wide_a / wide_b), (1 / y, 1 / wide_b), (x / 2, wide_a / 2), (x * 3j, wide_a * 3j),
        (x**y, wide_a**wide_b), (x**3, wide_a**3), (x**-2, wide_a**-2.0), (x**0.5, wide_a**0.5),
        (2**y, 2**wide_b), (Tensor(real) ** y, real**wide_b), (x ** Tensor(real), wide_a**real),
        (Tensor(real) / y, real / wide_b), (x / Tensor(real), wide_a / real), (x**0, wide_a**0),
        (svod.divide(x, y), wide_a / wide_b), (svod.pow(Tensor(real), y), real**wide_b),
        (-x, -wide_a), (abs(x), abs(wide_a)), (x.lerp(y, 0.25), wide_a + 0.25 * (wide_b - wide_a)),
    ):  # fmt: skip
        assert found.dtype.bits == Tensor(wanted.astype(found.numpy().dtype)).dtype.bits
        assert apart(found.numpy(), wanted).max() < 8 * tolerance
    np.testing.assert_array_equal((x == y).numpy(), a == b)
    np.testing.assert_array_equal((x != x).numpy(), a != a)


def test_division_by_zero_is_as_in_numpy() -> None:
    a = np.array([1 + 1j, 0, 1j, INF], np.complex128)
    with np.errstate(all="ignore"):
        wanted = a / np.zeros(4, np.complex128)
    np.testing.assert_array_equal((Tensor(a) / Tensor(np.zeros(4, np.complex128))).numpy(), wanted)
    powers = Tensor([0j, 0j, 0j, 1j]) ** Tensor([0j, 2, -1, 0])
    np.testing.assert_array_equal(
        powers.numpy(), np.array([1, 0, complex(NAN, NAN), 1], np.complex64)
    )


def test_closeness() -> None:
    a = np.array([1 + 1j, 2, complex(NAN, 0), complex(INF, 0)])
    b = a + np.array([1e-9, 1e-3j, 0, 0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(Tensor(a).isclose(Tensor(b)).numpy(), np.isclose(a, b))
    assert svod.allclose(Tensor([1j]), Tensor([1j + 1e-9]))
    assert svod.isclose(Tensor([1.0]), Tensor([1 + 1e-9j])).item()


def test_makers() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([0.5, -1.0])
    np.testing.assert_allclose(svod.complex(x, y).numpy(), [1 + 0.5j, 2 - 1j])
    wanted = np.array([1, 2]) * np.exp(1j * np.array([0.5, -1]))
    np.testing.assert_allclose(svod.polar(x, y).numpy(), wanted, rtol=1e-6)
    pairs = svod.view_as_real(Tensor([1 + 2j, 3j]))
    assert pairs.tolist() == [[1, 2], [0, 3]]
    assert svod.view_as_complex(pairs).tolist() == [1 + 2j, 3j]
    memory = Tensor(np.zeros((2, 2), np.float32)).realize()
    assert svod.view_as_complex(memory).is_realized
    for bad in (
        lambda: svod.complex(x, y.double()),
        lambda: svod.view_as_real(x),
        lambda: svod.view_as_complex(Tensor([[1, 2]])),
        lambda: svod.complex(Tensor([1]), Tensor([2])),
        lambda: x.imag,
    ):
        with pytest.raises(DTypeError):
            bad()
    with pytest.raises(ValueError, match="last axis of size 2"):
        svod.view_as_complex(x.reshape(2, 1))
    assert svod.is_complex(Tensor(1j)) and not svod.is_complex(x)
    assert svod.isreal(Tensor([1j, 2])).tolist() == [False, True]
    assert svod.imag(x).tolist() == [0, 0] and svod.real(x).tolist() == [1, 2]


def test_creation() -> None:
    assert svod.full((2,), 1 + 2j).numpy().tolist() == [1 + 2j] * 2
    assert svod.full((2,), 1 + 2j).dtype is svod.complex64
    for kind in (svod.complex64, svod.complex128):
        for made in (svod.zeros(2, 2, dtype=kind), svod.ones(2, dtype=kind),
                     svod.empty(2, dtype=kind), svod.full((2,), 3, dtype=kind)):  # fmt: skip
            assert made.dtype is kind
        np.testing.assert_array_equal(svod.eye(3, dtype=kind).numpy(), np.eye(3))
    for ends in ((0, 1j), (1 + 1j, 3 - 2j), (0, 1)):
        for endpoint in (True, False):
            found = svod.linspace(*ends, 5, endpoint=endpoint, dtype=svod.complex128)
            wanted = np.linspace(*ends, 5, endpoint=endpoint)
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-14, atol=1e-15)
    assert svod.zeros_like(Tensor([1j])).dtype is svod.complex64
    assert svod.full_like(Tensor([1j]), 2j).tolist() == [2j]
    with pytest.raises(DTypeError):
        svod.full((2,), 1j, dtype=svod.float32)
    with pytest.raises(DTypeError):
        svod.arange(1j)


def test_dtypes_are_told_apart() -> None:
    assert svod.isdtype(svod.complex64, "complex floating")
    assert svod.isdtype(svod.complex128, "numeric")
    assert not svod.isdtype(svod.complex64, "real floating")
    assert svod.finfo(svod.complex128) == svod.finfo(svod.float64)
    assert svod.can_cast(svod.float32, svod.complex64)
    assert not svod.can_cast(svod.float64, svod.complex64)
    assert not svod.can_cast(svod.complex64, svod.float64)
    assert svod.result_type(svod.float64, 1j) is svod.complex128
    info = svod.__array_namespace_info__()
    assert info.default_dtypes()["complex floating"] is svod.complex64
    assert info.dtypes(kind="complex floating") == {
        "complex64": svod.complex64,
        "complex128": svod.complex128,
    }
    assert Tensor([1, 2]).astype(svod.complex64).tolist() == [1, 2]
    assert Tensor([1j]).to(svod.complex128).dtype is svod.complex128
    assert Tensor([1j, 0]).bool().tolist() == [True, False]
    assert Tensor([1j, 0]).to("complex128").dtype is svod.complex128


@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_devices(device: str) -> None:
    a = random(np.complex64, 1.0, 8)
    x = Tensor(a, device=device)
    np.testing.assert_allclose((x.exp() * x).numpy(), np.exp(a) * a, rtol=1e-5)
    np.testing.assert_allclose(x.to("CPU").numpy(), a)
