"""Promotion: the array API's table, our choices where it is silent, and weak scalars."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod.dtype as sd
from svod.base.errors import DTypeError
from svod.dtype import STORABLE, DType, least_upper_float, promote, result_type, to_numpy

EXTENSIONS = (sd.bfloat16, sd.float8_e4m3, sd.float8_e5m2)
PLAIN = [d for d in STORABLE if d not in EXTENSIONS]


@pytest.mark.parametrize("a", PLAIN, ids=repr)
def test_equal_kinds_promote_as_in_numpy(a: DType) -> None:
    for b in PLAIN:
        if (a.kind == "f") == (b.kind == "f"):
            assert to_numpy(promote(a, b)) == np.promote_types(to_numpy(a), to_numpy(b))


def test_an_integer_with_a_float_gives_the_float() -> None:
    for a in STORABLE:
        for b in STORABLE:
            if a.kind != "f" and b.kind == "f":
                assert promote(a, b) is b
                assert promote(b, a) is b


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (sd.float16, sd.bfloat16, sd.float32),
        (sd.float8_e4m3, sd.float8_e5m2, sd.float16),
        (sd.float8_e4m3, sd.bfloat16, sd.bfloat16),
        (sd.float8_e5m2, sd.float16, sd.float16),
        (sd.float8_e5m2, sd.float64, sd.float64),
        (sd.uint64, sd.int8, sd.float64),
        (sd.uint32, sd.int8, sd.int64),
        (sd.uint8, sd.int8, sd.int16),
        (sd.bool_, sd.uint8, sd.uint8),
    ],
    ids=repr,
)
def test_chosen_pairs(a: DType, b: DType, expected: DType) -> None:
    assert promote(a, b) is expected
    assert promote(b, a) is expected


def test_the_two_small_floats_fit_into_what_they_promote_to() -> None:
    for dtype in (sd.float8_e4m3, sd.float8_e5m2):
        values = np.arange(256, dtype=np.uint8).view(to_numpy(dtype))
        back = sd.cast_array(sd.cast_array(values, sd.float16), dtype)
        np.testing.assert_array_equal(back.astype(np.float32), values.astype(np.float32))


@given(st.lists(st.sampled_from(STORABLE), min_size=1, max_size=4))
def test_the_order_of_operands_does_not_matter(dtypes: list[DType]) -> None:
    results = {result_type(*order) for order in itertools.permutations(dtypes)}
    assert len(results) == 1


@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_python_scalars_are_weak(dtype: DType) -> None:
    assert result_type(dtype, True) is dtype
    assert result_type(1, dtype) is (sd.int64 if dtype.kind == "b" else dtype)
    assert result_type(dtype, 1.5) is (dtype if dtype.kind == "f" else sd.float32)
    assert result_type(dtype, 10**30) is result_type(dtype, 1)


def test_scalars_alone_have_the_default_dtypes() -> None:
    assert result_type(True) is sd.bool_
    assert result_type(1, True) is sd.int64
    assert result_type(1, 2.0) is sd.float32


def test_numpy_scalars_have_their_own_dtype() -> None:
    assert result_type(np.float64(1), sd.float32) is sd.float64
    assert result_type(np.int16(1), sd.int8) is sd.int16


def test_least_upper_float() -> None:
    for dtype in STORABLE:
        expected = dtype if dtype.kind == "f" else sd.float32
        assert least_upper_float(dtype) is expected


def test_no_common_dtype() -> None:
    with pytest.raises(DTypeError, match="f32 and idx have no common dtype"):
        promote(sd.index, sd.float32)
    with pytest.raises(DTypeError, match="index arithmetic takes integers"):
        result_type(sd.index, 1.5)
    with pytest.raises(DTypeError, match="'1' of type str has no dtype"):
        result_type(sd.float32, "1")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="at least one"):
        result_type()
    assert result_type(sd.index, 1) is sd.index


def test_dtypes_survive_pickling_as_the_same_object() -> None:
    for dtype in sd.ALL:
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert pickle.loads(pickle.dumps(dtype.vec(4))) is dtype.vec(4)
