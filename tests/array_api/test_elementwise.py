"""Element by element: every function and operator of the standard, over dtypes and shapes."""

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
from tests.array_api.reference import DTYPES, FLOATS, INTEGERS, NUMBERS, check, names, quick

_SIGNED = tuple([d for d in NUMBERS if d[0] != "u"])
_BITS = ("bool", *INTEGERS)
UNARY = {
    **dict.fromkeys(
        names("abs ceil floor positive round sign square trunc isfinite isinf isnan"), NUMBERS
    ),
    "negative": _SIGNED,
    "bitwise_invert": _BITS,
    "logical_not": ("bool",),
    "conj": NUMBERS,
    **dict.fromkeys(
        names(
            "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 reciprocal "
            "signbit sin sinh sqrt tan tanh"
        ),
        FLOATS,
    ),
}
BINARY = {
    **dict.fromkeys(names("add subtract multiply maximum minimum"), NUMBERS),
    **dict.fromkeys(names("equal not_equal"), DTYPES),
    **dict.fromkeys(names("greater greater_equal less less_equal"), NUMBERS),
    **dict.fromkeys(names("bitwise_and bitwise_or bitwise_xor"), _BITS),
    **dict.fromkeys(names("logical_and logical_or logical_xor"), ("bool",)),
    **dict.fromkeys(
        names("atan2 copysign divide floor_divide hypot logaddexp nextafter pow remainder"), FLOATS
    ),
}


def _tolerance(dtypes: tuple[str, ...]) -> dict[str, float]:
    return {"rtol": 1e-5, "atol": 1e-30} if set(dtypes) & set(FLOATS) else {}


@pytest.mark.parametrize("name", UNARY)
@quick
@given(data=st.data())
def test_one_argument(name: str, data: Any) -> None:
    x = data.draw(R.any_array(UNARY[name]))
    check(name, x, **_tolerance(UNARY[name]))


@pytest.mark.parametrize("name", BINARY)
@quick
@given(data=st.data())
def test_two_arguments(name: str, data: Any) -> None:
    a, b = data.draw(R.pairs(BINARY[name], bound=1e3 if name in ("pow", "remainder") else None))
    if name == "floor_divide":  # the special cases have a test of their own
        a, b = [np.where(np.isinf(x), 1.0, x).astype(x.dtype) for x in (a, b)]
    check(name, a, b, **_tolerance(BINARY[name]))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "pow"])
@quick
@given(data=st.data())
def test_whole_numbers(name: str, data: Any) -> None:
    a, b = data.draw(R.pairs(INTEGERS))
    b = np.abs(b) % b.dtype.type(5) + b.dtype.type(1)
    check(name, a, b)


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
@quick
@given(data=st.data())
def test_shifts(name: str, data: Any) -> None:
    a, b = data.draw(R.pairs(INTEGERS))
    width = np.result_type(a, b).itemsize * 8
    check(name, a, (np.abs(b) % np.min([width, 100])).astype(b.dtype))


@quick
@given(data=st.data())
def test_clip(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    x = data.draw(R.arrays(dtype, bound=100))
    low = data.draw(st.none() | R.elements(dtype, 50))
    high = data.draw(st.none() | R.elements(dtype, 50))
    if low is not None and high is not None and low > high:
        low, high = high, low
    check("clip", x, low, high)
    bounds = np.sort(data.draw(R.arrays(dtype, (2, *x.shape), bound=50)), 0)
    check("clip", x, bounds[0], bounds[1])


@quick
@given(data=st.data())
def test_where(data: Any) -> None:
    a, b = data.draw(R.pairs(data.draw(st.sampled_from([("bool",), NUMBERS]))))
    shape = np.broadcast_shapes(a.shape, b.shape)
    check("where", data.draw(R.arrays("bool", shape)), a, b)


_OPERATORS = {
    **dict.fromkeys(("+", "-", "*", "<", "<=", ">", ">="), NUMBERS),
    **dict.fromkeys(("==", "!="), DTYPES),
    **dict.fromkeys(("&", "|", "^"), _BITS),
    "/": FLOATS,
}


@pytest.mark.parametrize("symbol", _OPERATORS)
@quick
@given(data=st.data())
def test_operators_with_numbers(symbol: str, data: Any) -> None:
    dtype = data.draw(st.sampled_from(_OPERATORS[symbol]))
    x = data.draw(R.arrays(dtype, bound=100))
    number = data.draw(R.elements(dtype, 100))
    for text in (f"x {symbol} n", f"n {symbol} x"):
        with np.errstate(all="ignore"):
            wanted = eval(text, {"x": strict.asarray(x), "n": number})
        R.same(eval(text, {"x": Tensor(x), "n": number}), wanted, text, **_tolerance((dtype,)))


@quick
@given(data=st.data())
def test_functions_take_numbers(data: Any) -> None:
    x = data.draw(R.any_array(NUMBERS, bound=100))
    number = 3 if x.dtype.kind in "iu" else 2.5
    for name in ("add", "subtract", "multiply", "maximum", "minimum", "less", "equal"):
        check(name, x, number)
        check(name, number, x)


@quick
@given(data=st.data())
def test_in_place(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    x = data.draw(R.arrays(dtype, bound=100))
    ours, theirs = Tensor(x), strict.asarray(x.copy())
    ours += 2
    theirs += 2
    ours *= ours
    theirs *= theirs
    R.same(ours, theirs, "in place")


@pytest.mark.parametrize("wrong", ["int64 + float64", "bool & int8"])
def test_kinds_that_the_standard_leaves_open_still_promote(wrong: str) -> None:
    """Mixed kinds are allowed here; docs/numerics.md says to what they promote."""
    a, symbol, b = wrong.split()
    x, y = svod.ones(2, dtype=a), svod.ones(2, dtype=b)
    found = eval(f"x {symbol} y", {"x": x, "y": y})
    assert found.dtype in (svod.float64, svod.int8)
