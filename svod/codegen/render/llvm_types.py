"""Dtypes and constants as LLVM IR writes them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from svod.dtype import types as dt
from svod.dtype.convert import to_numpy
from svod.dtype.types import DType

_TYPES = {
    dt.bool_: "i1", dt.int8: "i8", dt.uint8: "i8", dt.int16: "i16", dt.uint16: "i16",
    dt.int32: "i32", dt.uint32: "i32", dt.int64: "i64", dt.uint64: "i64", dt.float16: "half",
    dt.bfloat16: "i16", dt.float8_e4m3: "i8", dt.float8_e5m2: "i8", dt.float32: "float",
    dt.float64: "double",
}  # fmt: skip
_SUFFIXES = {dt.bool_: "i1", dt.float16: "f16", dt.float32: "f32", dt.float64: "f64"}


def type_name(dtype: DType) -> str:
    """The type of a value in registers."""
    scalar = _TYPES[dtype.scalar]
    return scalar if dtype.lanes == 1 else f"<{dtype.lanes} x {scalar}>"


def memory_type(dtype: DType) -> str:
    """As stored: a bool is a byte."""
    return type_name(stored(dtype))


def stored(dtype: DType) -> DType:
    """What memory holds for values of a dtype: bytes for bools."""
    return dt.uint8.vec(dtype.lanes) if dtype.scalar is dt.bool_ else dtype


def suffix(dtype: DType) -> str:
    """A type in the name of an intrinsic."""
    scalar = dtype.scalar
    name = _SUFFIXES.get(scalar, f"i{scalar.bits}")
    return name if dtype.lanes == 1 else f"v{dtype.lanes}{name}"


def constant(value: Any, dtype: DType) -> str:
    """A number; in all lanes of a vector."""
    scalar = dtype.scalar
    if scalar.kind == "f":
        text = _float_constant(float(value), scalar)
    elif scalar.kind == "b":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if dtype.lanes == 1 else f"splat ({type_name(scalar)} {text})"


def _float_constant(value: float, scalar: DType) -> str:
    if scalar is dt.float32:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    if scalar in (dt.float32, dt.float64):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    number = int(np.array(value, dtype=to_numpy(scalar)).view(f"u{scalar.itemsize}"))
    return f"0xH{number:04X}" if scalar is dt.float16 else str(number)


def zero(kind: str) -> str:
    """The zero of a type."""
    if kind.startswith("<"):
        return "zeroinitializer"
    return "0.0" if kind in ("float", "double", "half") else "0"
