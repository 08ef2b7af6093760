"""The reference for the array API tests: the consortium's own strict implementation.

A case is made as NumPy arrays. ``ours`` and ``theirs`` turn them into tensors and into strict
arrays, and ``same`` compares what a function gives for both: dtype, shape, and values.
"""

from __future__ import annotations

import os
from typing import Any

import array_api_strict as strict
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import svod
from svod import Tensor

strict.set_array_api_strict_flags(api_version="2025.12")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
NUMBERS = INTEGERS + FLOATS
DTYPES = ("bool", *NUMBERS)

# Every run draws the same cases; SVOD_ARRAY_API_EXAMPLES asks for more of them.
EXAMPLES = int(os.environ.get("SVOD_ARRAY_API_EXAMPLES", "12"))
quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def names(text: str) -> list[str]:
    """Words as a list."""
    return text.split()


shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
filled = npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def elements(
    dtype: str, bound: float | None = None, special: bool = True
) -> st.SearchStrategy[Any]:
    """Values of a dtype: bounded, or any, with NaN and infinities where there are some."""
    if dtype == "bool":
        return st.booleans()
    if dtype in COMPLEX:
        part = elements("float32" if dtype == "complex64" else "float64", bound, special)
        return st.builds(complex, part, part)
    if dtype in FLOATS:
        width = int(dtype[-2:])
        if bound is None:
            return st.floats(width=width, allow_nan=special, allow_infinity=special)
        top = float(np.float32(bound))
        return st.floats(-top, top, width=width, allow_subnormal=False)
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if bound is not None:
        low, high = max(low, -int(bound)), min(high, int(bound))
    return st.integers(low, high)


def arrays(
    dtype: str, shape: Any = shapes, bound: float | None = None, special: bool = True
) -> st.SearchStrategy[Any]:
    """NumPy arrays of a dtype."""
    return npst.arrays(np.dtype(dtype), shape, elements=elements(dtype, bound, special))


@st.composite
def any_array(
    draw: Any, dtypes: tuple[str, ...] = DTYPES, shape: Any = shapes, bound: float | None = None
) -> Any:
    """An array of one of the dtypes."""
    return draw(arrays(draw(st.sampled_from(dtypes)), shape, bound))


@st.composite
def pairs(
    draw: Any, dtypes: tuple[str, ...] = NUMBERS, bound: float | None = None
) -> tuple[Any, Any]:
    """Two arrays whose shapes broadcast and whose dtypes the standard promotes."""
    first = draw(st.sampled_from(dtypes))
    second = draw(st.sampled_from([d for d in dtypes if promotes(first, d)]))
    found = draw(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    a, b = found.input_shapes
    return draw(arrays(first, a, bound)), draw(arrays(second, b, bound))


def promotes(a: str, b: str) -> bool:
    """Whether the standard names a common dtype."""
    kinds = {np.dtype(a).kind, np.dtype(b).kind}
    if kinds <= {"i", "u"}:
        return not ("uint64" in (a, b) and len(kinds) == 2)
    return len(kinds) == 1


def ours(value: Any) -> Any:
    """NumPy arrays, also inside lists and tuples, as tensors."""
    return _converted(value, lambda a: Tensor(a))


def theirs(value: Any) -> Any:
    """NumPy arrays, also inside lists and tuples, as strict arrays."""
    return _converted(value, lambda a: strict.asarray(a.copy()))


def _converted(value: Any, change: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return change(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)([_converted(v, change) for v in value])
    if isinstance(value, dict):
        return {k: _converted(v, change) for k, v in value.items()}
    return value


def array_of(value: Any) -> Any:
    """The values of a tensor or of a strict array."""
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value._array)


def same(mine: Any, wanted: Any, what: str, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Fail unless both results have one structure, dtype, shape and values."""
    if isinstance(wanted, (list, tuple)):
        assert len(mine) == len(wanted), what
        for a, b in zip(mine, wanted, strict=True):
            same(a, b, what, rtol, atol)
        return
    assert isinstance(mine, Tensor), f"{what}: {type(mine)}"
    values, expected = array_of(mine), array_of(wanted)
    assert values.dtype == expected.dtype, f"{what}: {values.dtype}, expected {expected.dtype}"
    assert mine.shape == wanted.shape, f"{what}: {mine.shape}, expected {wanted.shape}"
    if values.dtype.kind in "fc" and rtol:
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=atol, err_msg=what)
    else:
        np.testing.assert_array_equal(values, expected, err_msg=what)


def check(name: str, *args: Any, rtol: float = 0.0, atol: float = 0.0, **options: Any) -> None:
    """Call the function of both namespaces and compare."""
    with np.errstate(all="ignore"):
        wanted = _named(strict, name)(*theirs(args), **theirs(_dtypes(options, strict)))
    mine = _named(svod, name)(*ours(args), **ours(_dtypes(options, svod)))
    same(mine, wanted, f"{name}({args}, {options})", rtol, atol)


def _named(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def _dtypes(options: dict[str, Any], namespace: Any) -> dict[str, Any]:
    """Options with dtypes given by name, as the namespace has them."""
    dtype = options.get("dtype")
    if dtype is None:
        return options
    return options | {"dtype": getattr(namespace, dtype)}
