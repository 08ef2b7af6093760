"""CAST for every pair of dtypes, against exact arithmetic and against NumPy and ml_dtypes."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod.dtype as sd
from svod.base.errors import DTypeError
from svod.dtype import STORABLE, DType, cast_array, finfo, integer_limits, pack_const, to_numpy

FLOATS = [d for d in STORABLE if d.is_float]
SMALL = [d for d in FLOATS if d.bits < 32]
INTEGERS = [d for d in STORABLE if d.is_int]


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def edge_values(dtype: DType) -> np.ndarray[Any, Any]:
    """All values of 8-bit dtypes, else the ends, the powers of two with neighbours, and noise."""
    kind = to_numpy(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8).view(kind)
    noise = np.random.default_rng(7).integers(0, 256, (400, dtype.itemsize), np.uint8)
    random = noise.view(kind).ravel()
    if dtype.is_int:
        lo, hi = integer_limits(dtype)
        around = [s * (1 << k) + d for k in range(64) for s in (-1, 1) for d in (-1, 0, 1)]
        picked = np.array([v for v in [0, lo, hi, *around] if lo <= v <= hi], kind)
        return np.concatenate([picked, random])
    limits = finfo(dtype)
    values = [0.0, math.inf, math.nan, limits.max, limits.smallest_normal, limits.eps]
    values += [limits.smallest_subnormal, 0.5, 1.5, 2.5, 0.999, 448.0, 464.0, 465.0, 65519.0]
    values += [65520.0, 57344.0, 61440.0, 61439.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64]
    values += [127.5, 128.0, 255.5, 256.0, 32768.0, 65535.9, 2147483647.0, 4294967295.0]
    with np.errstate(all="ignore"):
        picked = np.array(values, np.float64).astype(kind)
    return np.concatenate([picked, -picked, random])


@cache
def ladder(dtype: DType) -> list[Fraction]:
    """The non-negative finite values in order of their bits, then the step past the last."""
    limits = finfo(dtype)
    count = int(np.array(limits.max).astype(to_numpy(dtype)).view(f"u{dtype.itemsize}")) + 1
    values = np.arange(count, dtype=f"u{dtype.itemsize}").view(to_numpy(dtype))
    steps = [Fraction(v) for v in values.astype(np.float64).tolist()]
    return [*steps, 2 * steps[-1] - steps[-2]]


def rounded(value: Fraction, dtype: DType) -> float:
    """To nearest even by search; a value that rounds past the last step overflows."""
    steps = ladder(dtype)
    size = abs(value)
    at = min(bisect_left(steps, size), len(steps) - 1)
    if at and size < steps[at]:
        below, above = size - steps[at - 1], steps[at] - size
        if below < above or (below == above and at % 2):
            at -= 1
    if at == len(steps) - 1:
        result = math.nan if dtype is sd.float8_e4m3 else math.inf
    else:
        result = float(steps[at])
    return -result if value < 0 else result


def expected_item(value: Any, source: DType, target: DType) -> Any:
    if source.is_float:
        value = float(value)
    else:
        value = int(value)
    if target.kind == "b":
        return value != 0
    if target.is_int:
        lo, hi = integer_limits(target)
        if source.is_float:
            if math.isnan(value):
                return 0
            return (
                max(lo, min(hi, math.trunc(value)))
                if math.isfinite(value)
                else (hi if value > 0 else lo)
            )
        return (value - lo) % (hi - lo + 1) + lo
    if source.is_float and not math.isfinite(value):
        return math.nan if target is sd.float8_e4m3 else value
    if target in SMALL:
        if source is sd.float64:
            with np.errstate(all="ignore"):
                value = float(np.float32(value))
            if math.isinf(value):
                return math.nan if target is sd.float8_e4m3 else value
        result = rounded(Fraction(value), target)
        return math.copysign(result, value) if result == 0 else result
    if source.is_float:
        with np.errstate(all="ignore"):
            return float(to_numpy(target).type(value))
    return nearest_of_integer(value, target)


def nearest_of_integer(value: int, target: DType) -> float:
    exact = float(value)  # Python rounds once, to nearest even
    if target is sd.float64:
        return exact
    candidates = [np.float32(exact)]
    candidates += [np.nextafter(candidates[0], np.float32(s * np.inf)) for s in (-1, 1)]
    return float(
        min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1))
    )


@pytest.mark.parametrize("target", STORABLE, ids=repr)
@pytest.mark.parametrize("source", STORABLE, ids=repr)
def test_every_pair_against_exact_arithmetic(source: DType, target: DType) -> None:
    values = edge_values(source)
    result = cast_array(values, target)
    assert result.dtype == to_numpy(target)
    with np.errstate(all="ignore"):  # signalling NaNs
        wide = result.astype(np.float64) if target.is_float else result
    for value, found in zip(values, wide.tolist(), strict=True):
        wanted = expected_item(value, source, target)
        same = found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
        both_nan = found != found and wanted != wanted
        assert same or both_nan, f"{value!r}: {found} instead of {wanted}"


@pytest.mark.parametrize("target", SMALL, ids=repr)
def test_float32_rounds_as_numpy_and_ml_dtypes_do(target: DType) -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), edge_values(sd.float32)])
    with np.errstate(all="ignore"):
        wanted = values.astype(to_numpy(target))
    found = cast_array(values, target)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


# A few leading bits, then one step from a power of two: where two roundings go wrong.
near_middles = st.builds(
    lambda sign, top, shift, step: max(-(2**63), min(2**64 - 1, sign * ((top << shift) + step))),
    st.sampled_from([-1, 1]),
    st.integers(1, 1 << 13),
    st.integers(0, 60),
    st.integers(-1, 1),
)


@pytest.mark.parametrize("target", SMALL, ids=repr)
@given(value=near_middles | st.integers(-(2**63), 2**64 - 1))
def test_integers_round_once(target: DType, value: int) -> None:
    array = np.array(value, np.int64 if value < 2**63 else np.uint64)
    found = float(cast_array(array, target))
    wanted = rounded(Fraction(value), target)
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_integers_that_two_roundings_would_get_wrong() -> None:
    # Just above the middle of two bfloat16 values, by less than float32 or float64 can hold.
    value = (1 << 62) + (1 << 54) + 1
    assert float(cast_array(np.array(value), sd.bfloat16)) == float((1 << 62) + (1 << 55))
    assert float(cast_array(np.array(-value), sd.bfloat16)) == -float((1 << 62) + (1 << 55))
    assert float(cast_array(np.array(2049 * 4 + 0), sd.float16)) == 8196.0 - 4.0


def test_float64_reaches_the_small_floats_through_float32() -> None:
    value = np.array(1 + 2.0**-8 + 2.0**-40)  # above the middle, but float32 forgets by how much
    assert float(cast_array(value, sd.bfloat16)) == 1.0


@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_the_same_dtype_is_the_same_array(dtype: DType) -> None:
    array = np.zeros((2, 3), to_numpy(dtype))
    assert cast_array(array, dtype) is array


@pytest.mark.parametrize("target", STORABLE, ids=repr)
def test_shapes_survive(target: DType) -> None:
    for source in STORABLE:
        for shape in [(), (0,), (2, 3), (2, 0, 3)]:
            assert cast_array(np.ones(shape, to_numpy(source)), target).shape == shape
        strided = np.ones((4, 6), to_numpy(source))[::2, ::-3]
        assert cast_array(strided, target).tolist() == np.ones((2, 2)).tolist()


@pytest.mark.parametrize("target", STORABLE, ids=repr)
def test_constants_pack_as_casts_do(target: DType) -> None:
    for source in STORABLE:
        values = edge_values(source)[::7]
        for value, wanted in zip(values, cast_array(values, target).tolist(), strict=True):
            for spelling in (value, value.item()):
                found = pack_const(spelling, target)
                assert type(found) is type(wanted)
                assert found == wanted or (found != found and wanted != wanted)


def test_constants_beyond_64_bits() -> None:
    assert pack_const(2**70 + 5, sd.uint8) == 5
    assert pack_const(-(2**70) - 1, sd.int64) == -1
    assert pack_const(2**200, sd.float32) == math.inf
    assert pack_const(-(10**400), sd.float64) == -math.inf
    assert pack_const(10**400, sd.bool_) is True
    assert pack_const(True, sd.float16) == 1.0
    assert pack_const(0.1, sd.float32) == float(np.float32(0.1))


def test_what_is_no_constant() -> None:
    with pytest.raises(DTypeError, match="'1' of type str is not a bool, int or float"):
        pack_const("1", sd.float32)
    with pytest.raises(DTypeError, match="void has no constants"):
        pack_const(1, sd.void)
    with pytest.raises(DTypeError, match="a complex128 value has no float32"):
        cast_array(np.array([1j]), sd.float32)
