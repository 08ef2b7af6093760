"""NaN, infinities, signed zeros, limits: each function at every pair of such values."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import svod
from svod import Tensor
from tests.array_api.reference import FLOATS, array_of, names

UNARY = names(
    "abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log "
    "log1p log2 log10 negative positive reciprocal round sign signbit sin sinh sqrt square tan "
    "tanh trunc"
)
BINARY = names(
    "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal "
    "logaddexp maximum minimum multiply nextafter not_equal pow remainder subtract"
)
# The standard leaves the sign of equal zeros in an extreme open.
_ANY_ZERO = ("maximum", "minimum")


def _values(dtype: str) -> Any:
    limits = np.finfo(dtype)
    sizes = [0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, np.pi / 2, np.pi, 89.0, 104.0, 710.0, 1e10]
    sizes += [limits.max, limits.tiny, limits.eps, 1 + limits.eps, np.inf]
    return np.array([np.nan, *sizes, *[-s for s in sizes]], dtype)


def _compare(name: str, mine: Any, wanted: Any, at: tuple[Any, ...]) -> None:
    assert mine.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(mine, wanted)
        return
    close = np.isclose(mine, wanted, rtol=16 * np.finfo(mine.dtype).eps, atol=0, equal_nan=True)
    if name not in _ANY_ZERO:
        close &= (wanted != 0) | (np.signbit(mine) == np.signbit(wanted))
    wrong = ~close
    shown = list(zip(*[a[wrong] for a in (*at, mine, wanted)], strict=True))[:5]
    assert not wrong.any(), f"{name}: arguments, result, expected: {shown}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_one_argument(name: str, dtype: str) -> None:
    values = _values(dtype)
    with np.errstate(all="ignore"):
        wanted = array_of(getattr(strict, name)(strict.asarray(values)))
    _compare(name, getattr(svod, name)(Tensor(values)).numpy(), wanted, (values,))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name: str, dtype: str) -> None:
    a, b = [g.ravel() for g in np.meshgrid(_values(dtype), _values(dtype))]
    with np.errstate(all="ignore"):
        wanted = array_of(getattr(strict, name)(strict.asarray(a), strict.asarray(b))).copy()
        if name == "floor_divide":  # NumPy: NaN for an infinity, -1 where the signs differ
            either = np.isinf(a) != np.isinf(b)
            wanted[either] = (a / b)[either]
    _compare(name, getattr(svod, name)(Tensor(a), Tensor(b)).numpy(), wanted, (a, b))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "**"])
def test_operators_are_the_functions(symbol: str, dtype: str) -> None:
    names = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide"}
    name = (names | {"%": "remainder", "**": "pow"})[symbol]
    a, b = [Tensor(g.ravel()) for g in np.meshgrid(_values(dtype), _values(dtype))]
    wanted = getattr(svod, name)(a, b).numpy()
    np.testing.assert_array_equal(eval(f"a {symbol} b", {"a": a, "b": b}).numpy(), wanted)
    scope = {"a": a + 0, "b": b}
    exec(f"a {symbol}= b", scope)
    np.testing.assert_array_equal(
        scope["a"].numpy(), (eval(f"a {symbol} b", {"a": a + 0, "b": b})).numpy()
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_folds_of_nothing(dtype: str) -> None:
    empty = svod.asarray(np.zeros((0,), dtype))
    assert svod.sum(empty).item() == 0 and svod.prod(empty).item() == 1
    for name in ("mean", "std", "var"):
        assert np.isnan(getattr(svod, name)(empty).item())
    assert svod.all(empty).item() is True and svod.any(empty).item() is False
    with_nan = svod.asarray(np.array([1.0, np.nan, 2.0], dtype))
    for name in ("sum", "prod", "mean", "std", "var", "max", "min"):
        assert np.isnan(getattr(svod, name)(with_nan).item())
