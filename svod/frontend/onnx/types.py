"""ONNX's element types, and what carries their values here.

Most types are dtypes of Svod. The others (8-bit floats of other layouts, 4-bit and 2-bit numbers)
are *narrow*: their values travel in a wider dtype that holds every one of them exactly, int8, uint8
or float32. Arrays at the boundary have the type itself, through ml_dtypes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.frontend.onnx.errors import OnnxError

STRING = 8


class Element(NamedTuple):
    """A type: its ONNX name, the array's dtype, the dtype that carries it, bits in a file."""

    number: int
    name: str
    array: Any
    carrier: DType
    bits: int
    is_narrow: bool = False


def _element(number: int, name: str, array: Any, carrier: DType, bits: int = 0) -> Element:
    array = np.dtype(array)
    return Element(number, name, array, carrier, bits or array.itemsize * 8)


def _narrow(number: int, name: str, array: Any, carrier: DType, bits: int) -> Element:
    return Element(number, name, np.dtype(array), carrier, bits, True)


ELEMENTS: dict[int, Element] = {
    e.number: e
    for e in (
        _element(1, "FLOAT", np.float32, dt.float32),
        _element(2, "UINT8", np.uint8, dt.uint8),
        _element(3, "INT8", np.int8, dt.int8),
        _element(4, "UINT16", np.uint16, dt.uint16),
        _element(5, "INT16", np.int16, dt.int16),
        _element(6, "INT32", np.int32, dt.int32),
        _element(7, "INT64", np.int64, dt.int64),
        _element(9, "BOOL", np.bool_, dt.bool_),
        _element(10, "FLOAT16", np.float16, dt.float16),
        _element(11, "DOUBLE", np.float64, dt.float64),
        _element(12, "UINT32", np.uint32, dt.uint32),
        _element(13, "UINT64", np.uint64, dt.uint64),
        _element(14, "COMPLEX64", np.complex64, dt.complex64),
        _element(15, "COMPLEX128", np.complex128, dt.complex128),
        _element(16, "BFLOAT16", ml_dtypes.bfloat16, dt.bfloat16),
        _element(17, "FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn, dt.float8_e4m3),
        _narrow(18, "FLOAT8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz, dt.float32, 8),
        _element(19, "FLOAT8E5M2", ml_dtypes.float8_e5m2, dt.float8_e5m2),
        _narrow(20, "FLOAT8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz, dt.float32, 8),
        _narrow(21, "UINT4", ml_dtypes.uint4, dt.uint8, 4),
        _narrow(22, "INT4", ml_dtypes.int4, dt.int8, 4),
        _narrow(23, "FLOAT4E2M1", ml_dtypes.float4_e2m1fn, dt.float32, 4),
        _narrow(24, "FLOAT8E8M0", ml_dtypes.float8_e8m0fnu, dt.float32, 8),
        _narrow(25, "UINT2", ml_dtypes.uint2, dt.uint8, 2),
        _narrow(26, "INT2", ml_dtypes.int2, dt.int8, 2),
    )
}
STRINGS = Element(STRING, "STRING", np.dtype(object), dt.void, 0)
_OF_ARRAY = {e.array: e for e in ELEMENTS.values()}
_OF_CARRIER = {e.carrier: e for e in ELEMENTS.values() if not e.is_narrow}
CARRIERS: dict[DType, Any] = {e.carrier: e.array for e in ELEMENTS.values() if not e.is_narrow}


def element(number: int) -> Element:
    """The type with ONNX's number."""
    if number == STRING:
        return STRINGS
    found = ELEMENTS.get(number)
    if found is None:
        raise OnnxError(f"element type {number} is unknown")
    return found


def element_of_array(array: NDArray[Any]) -> Element | None:
    """The type an array has; objects are whole numbers of run-time size, texts are strings."""
    if array.dtype == object:
        return ELEMENTS[7] if is_sizes(array) else STRINGS
    return STRINGS if array.dtype.kind in "US" else _OF_ARRAY.get(array.dtype)


def element_of_dtype(dtype: DType) -> Element:
    return _OF_CARRIER[dtype]


def is_sizes(array: NDArray[Any]) -> bool:
    """Whether an array of objects holds run-time sizes, not texts."""
    return array.dtype == object and not any(isinstance(v, (str, bytes)) for v in array.flat)


def is_texts(value: object) -> bool:
    """Whether a value is an array of texts."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.kind in "US" or (value.size > 0 and isinstance(value.flat[0], (str, bytes)))


def to_carrier(array: NDArray[Any]) -> NDArray[Any]:
    """An array in the dtype that carries its type."""
    found = _OF_ARRAY.get(array.dtype)
    return array.astype(CARRIERS[found.carrier]) if found is not None and found.is_narrow else array


def from_carrier(array: NDArray[Any], number: int) -> NDArray[Any]:
    """An array of a type from the carried values."""
    kind = element(number)
    return array.astype(kind.array) if kind.is_narrow else array
