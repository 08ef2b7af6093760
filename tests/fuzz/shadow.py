"""NumPy arrays with error bounds: what a program must compute, and how far off it may be.

A Shadow is an array and, per element, the largest absolute difference that rounding may explain:
0 means the same value, infinity means that nothing is known (a comparison of two nearly equal
floats, for example). Every function here is the NumPy meaning of one tensor operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svod.dtype import types as dt
from svod.dtype.casts import cast_array
from svod.dtype.convert import from_numpy, to_numpy
from svod.dtype.promotion import promote

Array = NDArray[Any]
Errors = NDArray[np.float64]

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}


@dataclass(slots=True)
class Shadow:
    """Values and their error bounds."""

    array: Array
    error: Errors

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> dt.DType:
        return from_numpy(self.array.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"


def exact(array: Array) -> Shadow:
    """An array known to the last bit."""
    return Shadow(array, np.zeros(array.shape))


def _wide(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64)


def _bounded(array: Array, error: Errors, ulps: float = 0.0) -> Shadow:
    """Errors with rounding added, and infinite where nothing can be said."""
    name = from_numpy(array.dtype).name
    wide = _wide(array)
    with np.errstate(all="ignore"):
        error = error + ulps * (EPSILON[name] * np.abs(wide) + TINY[name])
        lost = np.isnan(error) | (np.abs(wide) + error > LARGEST[name]) & (error > 0)
    return Shadow(array, np.where(lost, np.inf, error))


def _inexact(array: Array, error: Errors) -> Shadow:
    """The result of a correctly rounded operation: exact where its operands are."""
    grown = _bounded(array, error, 1.0)
    return Shadow(array, np.where(error == 0, 0.0, grown.error))


def cast(x: Shadow, dtype: dt.DType) -> Shadow:
    """The value in another dtype."""
    if x.dtype is dtype:
        return x
    array = cast_array(x.array, dtype)
    if not x.error.any():
        return exact(array)
    return _monotone(x, array, lambda v: cast_array(v.astype(x.array.dtype), dtype), 1.0)


def _monotone(x: Shadow, array: Array, function: Callable[[Array], Array], ulps: float) -> Shadow:
    """Errors of a function that never turns back: what the ends of the interval differ by."""
    wide = _wide(x.array)
    with np.errstate(all="ignore"):
        middle = _wide(array)
        gap = np.zeros(array.shape)
        for end in (wide - x.error, wide + x.error):
            gap = np.maximum(gap, np.abs(_wide(function(end)) - middle))
    known = np.isfinite(gap) & np.isfinite(x.error)  # an unknown operand may be NaN
    gap = np.where(x.error == 0, 0.0, np.where(known, gap, np.inf))
    if from_numpy(array.dtype).kind != "f":
        return Shadow(array, np.where(gap > 0, np.inf, 0.0))
    return _bounded(array, gap, ulps) if ulps else Shadow(array, gap)


# -- elementwise --------------------------------------------------------------------------------


def _computed(array: Array) -> Array:
    """Small floats compute in float32, float32 in float64: one rounding at the end."""
    return array.astype(np.float64)


_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], bool]] = {  # (meaning, is monotone)
    "exp": (np.exp, True),
    "exp2": (np.exp2, True),
    "log": (np.log, True),
    "log2": (np.log2, True),
    "sin": (np.sin, False),
    "cos": (np.cos, False),
    "tanh": (np.tanh, True),
    "erf": (np.vectorize(erf, otypes=[np.float64]), True),
    "expm1": (np.expm1, True),
    "log1p": (np.log1p, True),
    "atan": (np.arctan, True),
    "asin": (np.arcsin, True),
    "sinh": (np.sinh, True),
    "asinh": (np.arcsinh, True),
    "sqrt": (np.sqrt, True),
    "rsqrt": (lambda v: 1.0 / np.sqrt(v), True),
    "floor": (np.floor, True),
    "ceil": (np.ceil, True),
    "trunc": (np.trunc, True),
    "round": (np.rint, True),
    "neg": (np.negative, True),
    "abs": (np.abs, False),
}
_EXACT = frozenset({"floor", "ceil", "trunc", "round", "neg", "abs", "sqrt"})
FUNCTIONS = tuple(_FUNCTIONS)
ULPS = 4.0


def unary(name: str, x: Shadow) -> Shadow:
    """A function of one operand."""
    if not x.is_float and name in ("neg", "abs", "floor", "ceil", "trunc", "round"):
        if name == "neg":
            return Shadow(np.negative(x.array), x.error)
        return Shadow(np.abs(x.array) if name == "abs" else x.array, x.error)
    if not x.is_float:
        x = cast(x, dt.float32)
    function, is_monotone = _FUNCTIONS[name]
    kind = x.array.dtype

    def rounded(v: Array) -> Array:
        return cast_array(np.asarray(function(_computed(v))), from_numpy(kind))

    with np.errstate(all="ignore"):
        array = rounded(x.array)
    if name in _EXACT and not x.error.any():
        return exact(array)
    if name in ("neg", "abs"):
        return Shadow(array, x.error)
    if is_monotone:
        found = _monotone(x, array, lambda v: rounded(v.astype(kind)), 0.0)
        with np.errstate(all="ignore"):
            zero = (name == "rsqrt") & (_wide(x.array) == 0)  # the sign of zero is not tracked
        error = np.where(zero, np.inf, found.error)
    else:
        error = np.where(np.abs(_wide(x.array)) > 1e4, np.inf, x.error)
    grow = 0.0 if name in _EXACT else ULPS
    kept = _bounded(array, error, grow)
    special = ~np.isfinite(_wide(array)) & (error == 0)
    return Shadow(array, np.where(special, 0.0, kept.error))


def binary(name: str, a: Shadow, b: Shadow) -> Shadow:
    """An operator of two operands, promoted and broadcast."""
    common = promote(a.dtype, b.dtype)
    if name == "div" and common.kind != "f":
        common = dt.float32
    a, b = cast(a, common), cast(b, common)
    with np.errstate(all="ignore"):
        array = np.asarray(_BINARY[name](a.array, b.array))
        ea, eb = np.broadcast_arrays(a.error, b.error)
        if name in ("lt", "le", "eq", "ne"):
            return Shadow(array, _comparison_error(a, b))
        array = array.astype(a.array.dtype, copy=False)
        if common.kind != "f":
            return Shadow(array, np.where((ea > 0) | (eb > 0), np.inf, 0.0))
        x, y = np.broadcast_arrays(_wide(a.array), _wide(b.array))
        error = ea + eb
        if name == "mul":
            error = np.where(error > 0, np.abs(x) * eb + np.abs(y) * ea + ea * eb, 0.0)
        elif name == "div":
            ratio = (ea + np.abs(_wide(array)) * eb) / np.maximum(np.abs(y) - eb, 0.0)
            error = np.where(error > 0, ratio, 0.0)
            error = np.where((y == 0) & ~np.isnan(x), np.inf, error)
        elif name in ("max", "min"):
            error = np.maximum(ea, eb)
        error = np.where(np.isnan(error), np.inf, error)
    return _inexact(array, error)


def _comparison_error(a: Shadow, b: Shadow) -> Errors:
    with np.errstate(all="ignore"):
        near = np.abs(_wide(a.array) - _wide(b.array)) <= a.error + b.error
        lost = (a.error + b.error > 0) & (near | ~np.isfinite(_wide(a.array) - _wide(b.array)))
    return np.where(lost, np.inf, 0.0)


def _floor_divide(a: Array, b: Array) -> Array:
    minus = b == -1 if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    safe = np.where((b == 0) | minus, np.ones_like(b), b)
    found = np.where(minus, np.negative(a), a // safe)
    return np.where(b == 0, np.zeros_like(found), found)


def _remainder(a: Array, b: Array) -> Array:
    minus = b == -1 if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    return a % np.where((b == 0) | minus, np.ones_like(b), b)


def _shift_left(a: Array, b: Array) -> Array:
    past = (b < 0) | (b >= 8 * a.dtype.itemsize)
    return np.where(past, np.zeros_like(a), a << np.where(past, np.zeros_like(b), b))


def _shift_right(a: Array, b: Array) -> Array:
    past = (b < 0) | (b >= 8 * a.dtype.itemsize)
    shifted = a >> np.where(past, b.dtype.type(8 * a.dtype.itemsize - 1), b)
    return np.where(past & (a >= 0), np.zeros_like(a), shifted)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "floordiv": _floor_divide,
    "mod": _remainder,
    "shl": _shift_left,
    "shr": _shift_right,
}


def where(test: Shadow, a: Shadow, b: Shadow) -> Shadow:
    """a where the test holds, else b."""
    common = promote(a.dtype, b.dtype)
    a, b = cast(a, common), cast(b, common)
    array = np.where(test.array, a.array, b.array)
    error = np.where(test.array, a.error, b.error)
    either = np.where(a.array == b.array, np.maximum(a.error, b.error), np.inf)
    return Shadow(array, np.where(test.error > 0, either, error))


# -- movement -----------------------------------------------------------------------------------


def moved(x: Shadow, move: Callable[[Array], Array]) -> Shadow:
    """The same movement of values and errors."""
    return Shadow(np.array(move(x.array)), np.array(move(x.error)))


def joined(parts: list[Shadow], axis: int) -> Shadow:
    """Pieces one after another."""
    common = parts[0].dtype
    for part in parts[1:]:
        common = promote(common, part.dtype)
    parts = [cast(p, common) for p in parts]
    return Shadow(
        np.concatenate([p.array for p in parts], axis),
        np.concatenate([p.error for p in parts], axis),
    )


def padded(x: Shadow, pairs: tuple[tuple[int, int], ...]) -> Shadow:
    """Zeros around."""
    return moved(x, lambda v: np.pad(v, pairs))


def written(x: Shadow, key: Any, values: Shadow) -> Shadow:
    """x after ``x[key] = values``; of several values for one place the last one stays."""
    array, error = x.array.copy(), x.error.copy()
    part = cast(values, x.dtype)
    array[key] = part.array
    error[key] = part.error
    return Shadow(array, error)


# -- reductions ---------------------------------------------------------------------------------


def reduced(name: str, x: Shadow, axes: tuple[int, ...], keepdims: bool) -> Shadow:
    """A fold over axes."""
    if name == "mean":
        x = x if x.is_float else cast(x, dt.float32)
        return _mean(x, axes, keepdims)
    if name in ("sum", "prod"):
        kind = x.dtype.kind
        target = dt.int64 if kind in "bi" else dt.uint64 if kind == "u" else x.dtype
        return _folded(name, cast(x, target), axes, keepdims)
    if name in ("any", "all"):
        truth = binary("ne", x, exact(np.zeros((), x.array.dtype)))
        fold = np.any if name == "any" else np.all
        unknown = np.any(truth.error > 0, axes, keepdims=keepdims)
        return Shadow(
            np.asarray(fold(truth.array, axes, keepdims=keepdims)), np.where(unknown, np.inf, 0.0)
        )
    fold = np.max if name == "amax" else np.min
    array = np.asarray(fold(x.array, axes, keepdims=keepdims))
    error = np.max(x.error, axes, keepdims=keepdims) if axes else x.error
    if not x.is_float:
        error = np.where(error > 0, np.inf, 0.0)
    return Shadow(array.astype(x.array.dtype), np.asarray(error))


def _mean(x: Shadow, axes: tuple[int, ...], keepdims: bool) -> Shadow:
    wide = cast(x, dt.float32) if x.dtype.bits < 32 else x
    found = _folded("sum", wide, axes, keepdims)
    count = prod([x.shape[a] for a in axes])
    scale = exact(np.asarray(1.0 / count, wide.array.dtype))
    found = binary("mul", found, scale)
    found = _bounded(found.array, found.error, 2.0)
    return cast(found, x.dtype)


def _folded(name: str, x: Shadow, axes: tuple[int, ...], keepdims: bool) -> Shadow:
    def fold(function: Any, array: Array) -> Array:
        return np.asarray(function(array, axis=axes, keepdims=keepdims))

    if not x.is_float:
        function = np.sum if name == "sum" else np.prod
        array = np.asarray(function(x.array, axis=axes, keepdims=keepdims, dtype=x.array.dtype))
        return Shadow(array, np.where(fold(np.max, x.error) > 0, np.inf, 0.0))
    count = prod([x.shape[a] for a in axes])
    wide = _wide(x.array)
    kind = x.dtype
    unit = EPSILON["float32" if kind.bits < 32 else kind.name]
    with np.errstate(all="ignore"):
        size = np.abs(wide)
        if name == "sum":
            array = cast_array(fold(np.sum, wide), kind)
            total = fold(np.sum, size)
            error = fold(np.sum, x.error) + (count + 2) * unit * total
            error = np.where(total + error > LARGEST[kind.name], np.inf, error)
        else:
            array = cast_array(fold(np.prod, wide), kind)
            low, high = fold(np.prod, np.minimum(size, 1.0)), fold(np.prod, np.maximum(size, 1.0))
            error = np.abs(_wide(array)) * (count + 2) * unit
            far = 1e30 if kind.bits <= 32 else 1e300  # partial products may leave the range
            narrow = (low < 1 / far) & (low != 0) | (high > far)
            error = np.where(narrow | (fold(np.max, x.error) > 0), np.inf, error)
        lost = ~np.isfinite(_wide(array)) & (fold(np.max, x.error) > 0)
    if count == 1 and not x.error.any():
        return exact(array)
    found = _bounded(array, np.where(lost, np.inf, error), 1.0)
    special = ~np.isfinite(fold(np.sum, np.where(np.isfinite(wide), 0.0, wide)))
    settled = special & np.isnan(_wide(array)) & (fold(np.max, x.error) == 0)
    return Shadow(array, np.where(settled, 0.0, found.error))


def matmul(a: Shadow, b: Shadow) -> Shadow:
    """The matrix product, from a multiplication and a sum."""
    common = promote(a.dtype, b.dtype)
    a, b = cast(a, common), cast(b, common)
    if common.kind == "f" and common.bits < 32:
        found = matmul(cast(a, dt.float32), cast(b, dt.float32))
        return cast(found, common)
    if common.kind != "f":
        array = np.matmul(a.array, b.array)
        lost = np.matmul((a.error > 0) * 1.0, np.ones(b.shape)) + np.matmul(
            np.ones(a.shape), (b.error > 0) * 1.0
        )
        return Shadow(array, np.where(lost > 0, np.inf, 0.0))
    with np.errstate(all="ignore"):
        x, y = _wide(a.array), _wide(b.array)
        array = cast_array(np.matmul(x, y), common)
        size = np.matmul(np.abs(x), np.abs(y))
        error = np.matmul(a.error, np.abs(y) + b.error) + np.matmul(np.abs(x), b.error)
        error = error + (a.shape[-1] + 2) * EPSILON[common.name] * size
        bad = ~np.isfinite(size) | (size > LARGEST[common.name])
    return _bounded(array, np.where(bad, np.inf, error), 1.0)


# -- checking -----------------------------------------------------------------------------------


def mismatch(got: Array, want: Shadow) -> str | None:
    """What differs between an array and what it should be, or None."""
    if got.shape != want.shape or got.dtype != want.array.dtype:
        return f"got {got.dtype}{list(got.shape)}, not {want.array.dtype}{list(want.shape)}"
    if got.dtype.kind in "biu":
        bad = (got != want.array) & (want.error == 0)
    else:
        a, b = _wide(got), _wide(want.array)
        with np.errstate(all="ignore"):
            near = (np.abs(a - b) <= want.error) | (a == b) | (np.isnan(a) & np.isnan(b))
        bad = ~(near | np.isinf(want.error))
    if not bad.any():
        return None
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{int(bad.sum())} of {bad.size} elements differ, first at {place}: got {got[place]!r}, "
        f"not {want.array[place]!r} within {want.error[place]:.3g}"
    )


__all__ = ["FUNCTIONS", "Shadow", "exact", "mismatch", "to_numpy"]
