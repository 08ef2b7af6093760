"""What CAST means for every pair of dtypes: the executable definition all devices follow.

- to bool: ``x != 0``, so NaN is True;
- integer to integer: keeps the low bits (wraps);
- float to integer: toward zero, saturating at the ends of the range, NaN gives 0;
- integer to float: one rounding, to nearest even;
- float to float: to nearest even. float64 to a 16 or 8-bit float goes through float32, two
  roundings, because that is what is cheap everywhere;
- overflow gives infinity, except for float8_e4m3, which has none and gives NaN;
- to complex: each part as a float. From complex to anything but complex and bool is refused.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from svod.base.errors import DTypeError
from svod.dtype import types as dt
from svod.dtype.convert import from_numpy, to_numpy
from svod.dtype.types import DType

_SMALL_FLOATS: Final = frozenset({dt.float16, dt.bfloat16, dt.float8_e4m3, dt.float8_e5m2})


def cast_array(array: npt.ArrayLike, dtype: DType) -> npt.NDArray[Any]:
    """The array in another dtype; the same array when it already has it."""
    source_array = np.asarray(array)
    source = from_numpy(source_array.dtype)
    target = dtype.scalar
    kind = to_numpy(target)
    if source_array.dtype == kind:
        return source_array
    with np.errstate(all="ignore"):
        if target.kind == "b":
            return np.asarray(_widen(source_array, source) != 0)
        if target.kind == "c":
            return _widen(source_array, source).astype(kind)
        if source.kind == "c":
            raise DTypeError(
                f"a {source.name} value has no {target.name}: take .real, .imag or .abs()"
            )
        if target.kind == "f":
            return _to_float(source_array, source, target, kind)
        if source.kind == "f":
            return _float_to_int(_widen(source_array, source), target, kind)
        return source_array.astype(kind)


def pack_const(value: object, dtype: DType) -> Any:
    """The Python value a constant has once it is stored in the dtype, by the rules of CAST."""
    kind = dtype.kind
    if isinstance(value, np.generic):
        return cast_array(np.asarray(value), dtype).item()
    if kind == "c" or isinstance(value, complex):
        return _pack_complex(value, dtype)
    if not isinstance(value, (bool, int, float)):
        raise DTypeError(f"{value!r} of type {type(value).__name__} is not a bool, int or float")
    if kind == "b":
        return value != 0
    if kind == "f":
        return _pack_float(value, dtype.scalar)
    if kind == "v":
        raise DTypeError("void has no constants")
    if isinstance(value, float):
        return int(cast_array(np.float64(value), dtype).item())
    lo, hi = dt.integer_limits(dtype)
    number = int(value)
    return number if lo <= number <= hi else (number - lo) % (hi - lo + 1) + lo


def _pack_complex(value: object, dtype: DType) -> Any:
    if dtype.kind == "b" and isinstance(value, complex):
        return value != 0
    if dtype.kind != "c":
        raise DTypeError(f"{value!r} is complex and has no {dtype.name}: give a real number")
    floats = dt.FLOATS_OF[dtype]
    if isinstance(value, complex):
        return complex(pack_const(value.real, floats), pack_const(value.imag, floats))
    return complex(pack_const(value, floats), 0.0)


def _pack_float(value: bool | int | float, target: DType) -> float:
    if isinstance(value, int):
        if abs(value) <= 1 << 53:
            value = float(value)
        elif -(1 << 63) <= value < 1 << 64:
            array = np.array(value, np.uint64 if value > 0 else np.int64)
            return float(cast_array(array, target))
        else:
            try:
                value = float(value)
            except OverflowError:
                value = float("inf") if value > 0 else float("-inf")
    if target is dt.float64:
        return float(value)
    value = ctypes.c_float(value).value  # rounds to nearest even, overflow gives infinity
    return value if target is dt.float32 else float(cast_array(np.float32(value), target))


def _widen(array: npt.NDArray[Any], source: DType) -> npt.NDArray[Any]:
    """A float array in a NumPy float that computes, exactly; anything else as it is."""
    return array.astype(np.float32) if source in _SMALL_FLOATS else array


def _to_float(
    array: npt.NDArray[Any], source: DType, target: DType, kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    if target not in _SMALL_FLOATS:
        return array.astype(kind)  # NumPy rounds once, also from 64-bit integers
    if source.kind in "iu":
        return _int_to_odd_float32(array, source).astype(kind)
    return array.astype(np.float32).astype(kind)


def _int_to_odd_float32(array: npt.NDArray[Any], source: DType) -> npt.NDArray[Any]:
    """Integers as float32, an inexact one rounded to its neighbour with an odd mantissa.

    The odd last bit remembers that something was lost, so a second rounding to at most 22 bits
    gives what a single rounding would (Boldo and Melquiond, "Emulation of FMA...", 2008).
    """
    if source.bits == 64:
        # Fold the lowest 11 bits into bit 11: at most 53 bits remain, exact in float64.
        large = array > (1 << 53)
        if source.kind == "i":
            large |= array < -(1 << 53)
        low = array & array.dtype.type(0x7FF)
        sticky = (low != 0).astype(array.dtype) << array.dtype.type(11)
        array = np.where(large, (array - low) | sticky, array)
    exact = array.astype(np.float64)
    rounded = np.asarray(exact.astype(np.float32))
    bits = rounded.view(np.int32)
    back = rounded.astype(np.float64)
    toward_even = (back != exact) & ((bits & 1) == 0)
    step = np.where(np.abs(exact) > np.abs(back), 1, -1).astype(np.int32)
    return np.asarray(np.where(toward_even, bits + step, bits)).view(np.float32)


def _float_to_int(array: npt.NDArray[Any], target: DType, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    lo, hi = dt.integer_limits(target)
    whole = np.trunc(array.astype(np.float64))
    above = whole >= float(hi + 1)  # a power of two, so exact where hi itself is not
    below = whole < float(lo)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(kind)
    top, bottom = kind.type(hi), kind.type(lo)
    return np.asarray(np.where(above, top, np.where(below, bottom, inside)))
