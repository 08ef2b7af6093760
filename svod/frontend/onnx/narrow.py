"""Casts between ONNX's types, with its rules for values that do not fit.

Narrow types are values of a wider dtype: a cast to one rounds to its nearest value there.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.types import STRING, Element, element
from svod.tensor.tensor import Tensor


def cast_to(
    x: Tensor, number: int, saturate: bool = True, round_mode: str = "up", origin: int | None = None
) -> Tensor:
    """A tensor in another type."""
    kind = element(number)
    if number == STRING:
        raise UnsupportedError("a cast to STRING is done on the host only")
    if kind.name.startswith(("UINT", "INT")) and kind.is_narrow:
        return _to_bits(x, kind)
    if kind.name.startswith(("FLOAT8", "FLOAT4")):
        return _to_small_float(x, kind, saturate, round_mode)
    return x.cast(kind.carrier)


def _to_bits(x: Tensor, kind: Element) -> Tensor:
    """Numbers of 2 or 4 bits: the lowest bits of whole ones, floats without their fraction."""
    is_signed = kind.name.startswith("INT")
    half = 1 << (kind.bits - 1)
    low = x.cast(dt.int32) & (2 * half - 1)
    return ((low ^ half) - half if is_signed else low).cast(kind.carrier)


def limits(kind: Element) -> tuple[float, float]:
    """The least and the largest finite value of a type."""
    if kind.array.kind in "iub":
        info = np.iinfo(kind.array)
        return int(info.min), int(info.max)
    info = ml_dtypes.iinfo(kind.array) if "INT" in kind.name else ml_dtypes.finfo(kind.array)
    return float(info.min), float(info.max)


def _to_small_float(x: Tensor, kind: Element, saturate: bool, round_mode: str) -> Tensor:
    x = x.cast(dt.float32)
    if kind.name == "FLOAT8E8M0":
        return _to_power_of_two(x, saturate, round_mode)
    info = ml_dtypes.finfo(kind.array)
    largest, bits = float(info.max), int(info.nmant)
    smallest = float(info.smallest_subnormal)
    # The distance of two neighbours, from the exponent of the value.
    magnitude = svod.minimum(x.abs(), 4 * largest)
    tiny = float(info.smallest_normal)
    exponent_bits = svod.maximum(magnitude, tiny).bitcast(dt.int32) & 0x7F800000
    step = svod.maximum(exponent_bits.bitcast(dt.float32) * 2.0**-bits, smallest)
    rounded = (magnitude / step).round() * step
    if saturate or kind.name == "FLOAT4E2M1":
        rounded = svod.minimum(rounded, largest)
    else:
        beyond = float("inf" if kind.name == "FLOAT8E5M2" else "nan")
        rounded = svod.where(rounded > largest, beyond, rounded)
    rounded = rounded.copysign(x)
    if kind.name.endswith("FNUZ"):
        rounded = svod.where(rounded == 0, 0.0, rounded)  # there is no -0
    odd = -0.0 if kind.name == "FLOAT4E2M1" else float("nan")
    return svod.where(x.isnan(), odd, rounded).cast(kind.carrier)


def _to_power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """FLOAT8E8M0: 2 to a power from -127 to 127, or NaN; the sign is lost."""
    magnitude = x.abs()
    bits = magnitude.bitcast(dt.int32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    if round_mode == "up":
        is_more = (mantissa > 0) & ((exponent > 0) | (mantissa > 0x400000))
    elif round_mode == "nearest":
        is_more = (mantissa >= 0x400000) & ((exponent > 0) | (mantissa > 0x400000))
    else:
        is_more = mantissa < 0
    power = exponent + is_more.cast(dt.int32)
    is_over = power >= 255
    power = svod.where(is_over, 254, power) if saturate else power
    value = svod.where(power == 0, 0x400000, power << 23).bitcast(dt.float32)
    if not saturate:
        value = svod.where(is_over, float("nan"), value)
    return svod.where(x.isnan() | (x.isinf() if not saturate else x.isnan()), float("nan"), value)
