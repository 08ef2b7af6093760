"""Dtypes from and to NumPy, names and Python types; limits."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import svod.dtype as sd
from svod.base.errors import DTypeError
from svod.dtype import STORABLE, DType, dtype_of, finfo, from_numpy, iinfo, to_numpy


@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_every_dtype_goes_to_numpy_and_back(dtype: DType) -> None:
    there = to_numpy(dtype)
    assert there.itemsize == dtype.itemsize
    assert from_numpy(there) is dtype
    assert dtype_of(there) is dtype
    assert dtype_of(there.type) is dtype
    assert dtype_of(dtype.name) is dtype
    assert dtype_of(dtype.short) is dtype
    assert dtype_of(dtype) is dtype
    assert to_numpy(dtype.vec(4)) == there


def test_the_small_floats_are_those_of_ml_dtypes() -> None:
    assert to_numpy(sd.bfloat16) == np.dtype(ml_dtypes.bfloat16)
    assert to_numpy(sd.float8_e4m3) == np.dtype(ml_dtypes.float8_e4m3fn)
    assert to_numpy(sd.float8_e5m2) == np.dtype(ml_dtypes.float8_e5m2)


def test_python_types_and_aliases() -> None:
    assert dtype_of(bool) is sd.bool_
    assert dtype_of(int) is sd.int64
    assert dtype_of(float) is sd.float32
    assert dtype_of("float8_e4m3fn") is sd.float8_e4m3
    assert from_numpy(np.dtype(np.longlong)) is sd.int64


@pytest.mark.parametrize(
    "foreign",
    [object, "U3", "S3", np.clongdouble, "datetime64[s]", [("a", "f4")], np.longdouble,
     ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2fnuz, ml_dtypes.int4],
    ids=str,
)  # fmt: skip
def test_foreign_numpy_dtypes_are_refused_by_name(foreign: object) -> None:
    dtype = np.dtype(foreign)  # type: ignore[call-overload]
    with pytest.raises(DTypeError, match=r"has no counterpart; the dtypes are bool, int8"):
        from_numpy(dtype)


def test_foreign_byte_order_is_refused_with_the_remedy() -> None:
    with pytest.raises(DTypeError, match=r"foreign byte order; convert with array\.astype"):
        from_numpy(np.dtype(np.float32).newbyteorder())


@pytest.mark.parametrize("spec", ["float33", "index", "void", "", None, 3, bytes, str])
def test_what_is_no_dtype(spec: object) -> None:
    with pytest.raises(DTypeError, match="the dtypes are"):
        dtype_of(spec)
    with pytest.raises(DTypeError, match="void has no values"):
        to_numpy(sd.void)


@pytest.mark.parametrize("dtype", [d for d in STORABLE if d.is_float], ids=repr)
def test_float_limits(dtype: DType) -> None:
    expected, found = ml_dtypes.finfo(to_numpy(dtype)), finfo(dtype)
    assert found.dtype is dtype
    assert found.bits == expected.bits
    for name in ("max", "min", "eps", "smallest_normal", "smallest_subnormal"):
        assert getattr(found, name) == float(getattr(expected, name)), name


@pytest.mark.parametrize("dtype", [d for d in STORABLE if d.is_int], ids=repr)
def test_integer_limits(dtype: DType) -> None:
    expected, found = np.iinfo(to_numpy(dtype)), iinfo(dtype)
    assert (found.dtype, found.bits) == (dtype, expected.bits)
    assert (found.min, found.max) == (expected.min, expected.max)


def test_limits_of_the_wrong_kind() -> None:
    with pytest.raises(DTypeError, match="finfo takes a float dtype, not int32"):
        finfo(sd.int32)
    with pytest.raises(DTypeError, match="iinfo takes an integer dtype, not float32"):
        iinfo(sd.float32)


def test_ml_dtypes_is_imported_only_when_a_small_float_is_used() -> None:
    program = (
        "import sys, numpy, svod.dtype as sd;"
        "[sd.to_numpy(d) for d in (sd.float16, sd.float32, sd.bool_)];"
        "sd.cast_array(numpy.ones(3), sd.int8);"
        "print('ml_dtypes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
