"""Dtypes to and from NumPy, from names and Python types, and their numeric limits.

bfloat16 and the 8-bit floats are NumPy dtypes of ``ml_dtypes``, which is imported only when
one of them is asked for. ``float8_e4m3`` is its ``float8_e4m3fn`` (no infinity, one NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from svod.base.errors import DTypeError
from svod.dtype import types as dt
from svod.dtype.types import DType

_EXTENSION_NAMES: Final = {
    dt.bfloat16: "bfloat16",
    dt.float8_e4m3: "float8_e4m3fn",
    dt.float8_e5m2: "float8_e5m2",
}
_BY_EXTENSION_NAME: Final = {name: dtype for dtype, name in _EXTENSION_NAMES.items()}
_BY_KIND_AND_SIZE: Final = {
    (d.kind, d.itemsize): d for d in (*dt.STORABLE, *dt.COMPLEX) if d not in _EXTENSION_NAMES
}
_BY_TEXT: Final = {
    **{d.name: d for d in (*dt.STORABLE, *dt.COMPLEX)},
    **{d.short: d for d in (*dt.STORABLE, *dt.COMPLEX)},
    "bool_": dt.bool_,
    "float8_e4m3fn": dt.float8_e4m3,  # as ml_dtypes and torch call it
}
_BY_PYTHON_TYPE: Final[dict[object, DType]] = {
    bool: dt.bool_,
    int: dt.int64,
    float: dt.float32,
    complex: dt.complex64,
}


@cache
def to_numpy(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of one lane; ``index`` is stored as int64."""
    scalar = dtype.scalar
    if scalar.kind == "v":
        raise DTypeError("void has no values, so it has no NumPy dtype")
    if scalar.kind == "x":
        return np.dtype(np.int64)
    name = _EXTENSION_NAMES.get(scalar)
    if name is None:
        return np.dtype(scalar.name)
    import ml_dtypes

    extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return extension


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The dtype of such an array."""
    found = _BY_KIND_AND_SIZE.get((dtype.kind, dtype.itemsize))
    if found is not None:
        if dtype.isnative:
            return found
        raise DTypeError(
            f"arrays of {dtype.str!r} have foreign byte order; "
            "convert with array.astype(array.dtype.newbyteorder('='))"
        )
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        found = _BY_EXTENSION_NAME.get(dtype.name)
        if found is not None:
            return found
    raise DTypeError(f"NumPy dtype {dtype.name!r} has no counterpart; {_choices()}")


def dtype_of(spec: object) -> DType:
    """The dtype meant by a dtype, a name ("float32", "f32"), a NumPy dtype or a Python type.

    ``bool`` is bool, ``int`` is int64, ``float`` is float32 and ``complex`` is complex64.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        found = _BY_TEXT.get(spec)
        if found is None:
            raise DTypeError(f"no dtype is called {spec!r}; {_choices()}")
        return found
    if isinstance(spec, np.dtype):
        return from_numpy(spec)
    if isinstance(spec, type):
        found = _BY_PYTHON_TYPE.get(spec)
        if found is not None:
            return found
        if issubclass(spec, np.generic) or spec.__module__.partition(".")[0] == "ml_dtypes":
            return from_numpy(np.dtype(spec))
    raise DTypeError(f"{spec!r} is not a dtype; {_choices()}")


def _choices() -> str:
    return "the dtypes are " + ", ".join(d.name for d in (*dt.STORABLE, *dt.COMPLEX))


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a float dtype, as Python floats (all of them exact)."""

    dtype: DType
    bits: int
    eps: float  # distance from 1.0 to the next value
    max: float  # largest finite value
    min: float  # -max
    smallest_normal: float
    smallest_subnormal: float

    @property
    def tiny(self) -> float:
        """torch's name of the smallest normal number."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    dtype: DType
    bits: int
    max: int
    min: int


# Stored mantissa bits, smallest normal exponent, largest finite value.
_FLOAT_SHAPES: Final = {
    dt.float8_e4m3: (3, -6, 448.0),
    dt.float8_e5m2: (2, -14, 57344.0),
    dt.float16: (10, -14, 65504.0),
    dt.bfloat16: (7, -126, (2.0 - 2.0**-7) * 2.0**127),
    dt.float32: (23, -126, (2.0 - 2.0**-23) * 2.0**127),
    dt.float64: (52, -1022, (2.0 - 2.0**-52) * 2.0**1023),
}


@cache
def finfo(dtype: DType) -> FloatInfo:
    """Limits of a float dtype; of a complex one, those of its parts."""
    dtype = dt.FLOATS_OF.get(dtype, dtype)
    shape = _FLOAT_SHAPES.get(dtype.scalar)
    if shape is None:
        raise DTypeError(f"finfo takes a float dtype, not {dtype}; iinfo is for integers")
    mantissa, exponent, largest = shape
    smallest = 2.0**exponent
    eps = 2.0**-mantissa
    return FloatInfo(dtype.scalar, dtype.bits, eps, largest, -largest, smallest, smallest * eps)


@cache
def iinfo(dtype: DType) -> IntegerInfo:
    """Limits of an integer dtype."""
    if not dtype.is_int:
        raise DTypeError(f"iinfo takes an integer dtype, not {dtype}; finfo is for floats")
    lo, hi = dt.integer_limits(dtype)
    return IntegerInfo(dtype.scalar, dtype.bits, hi, lo)
