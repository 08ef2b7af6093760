"""Compare tensors with NumPy, many at a time.

``value`` runs the compiler; with SVOD_TENSOR_TESTS=evaluate in the environment it runs the NumPy
meaning of the graph instead, which tells a wrong graph from a wrong kernel.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.dtype.convert import dtype_of, to_numpy
from svod.ir import ops as O
from svod.ir.evaluate import evaluate
from svod.tensor.core.tensor_registry import buffer_of

USES_EVALUATE = os.environ.get("SVOD_TENSOR_TESTS") == "evaluate"
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = INTEGERS + FLOATS
ALL = ("bool", *NUMBERS)
EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-13}


def evaluated(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The value by the meaning of the graph."""
    leaves = {
        n: buffer_of(n).numpy() for n in tensor.uop.toposort() if n.op in (O.BUFFER, O.BUFFER_VIEW)
    }
    return evaluate(tensor.uop, leaves)


def value(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The value of a tensor."""
    return evaluated(tensor) if USES_EVALUATE else tensor.numpy()


class Cases:
    """Named pairs of a tensor and what NumPy says; all are computed in one plan."""

    def __init__(self) -> None:
        self.cases: list[tuple[str, Tensor, Any, float, float, bool]] = []

    def add(
        self,
        name: str,
        tensor: Tensor,
        expected: Any,
        rtol: float | None = None,
        atol: float = 0.0,
        dtype: bool = True,
    ) -> None:
        """Expect these values; shapes and dtypes must agree too."""
        wanted = np.asarray(expected)
        if rtol is None:
            rtol = EPSILON.get(tensor.dtype.name, 0.0)
        self.cases.append((name, tensor, wanted, rtol, atol, dtype))

    def run(self) -> None:
        """Compute and compare."""
        assert self.cases, "a test without cases"
        tensors = [c[1] for c in self.cases]
        if not USES_EVALUATE:
            svod.realize(*[t for t in tensors if t.numel()])
        for name, tensor, wanted, rtol, atol, dtype in self.cases:
            found = value(tensor)
            assert found.shape == wanted.shape, f"{name}: {found.shape}, not {wanted.shape}"
            if dtype:
                assert found.dtype == wanted.dtype, f"{name}: {found.dtype}, not {wanted.dtype}"
            close(name, found, wanted, rtol, atol)


def close(name: str, found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Equal up to rounding; NaN equals NaN, infinities must agree."""
    if wanted.dtype.kind in "biu" and found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    kind = np.float64 if wanted.dtype.kind in "biu" or wanted.dtype.itemsize >= 4 else np.float32
    np.testing.assert_allclose(
        found.astype(kind), wanted.astype(kind), rtol=rtol, atol=atol, err_msg=name
    )


def array(
    shape: Any, dtype: str = "float32", seed: int = 0, low: float = -4, high: float = 4
) -> Any:
    """Reproducible values that fit every dtype: small, with both signs where there are any."""
    random = np.random.default_rng([seed, *(shape if isinstance(shape, tuple) else (shape,))])
    kind = to_numpy(dtype_of(dtype))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        start = 0 if dtype.startswith("u") else int(low)
        return random.integers(start, int(high) + 1, shape).astype(kind)
    return random.uniform(low, high, shape).astype(kind)


def pair(shape: Any, dtype: str = "float32", **options: Any) -> tuple[Tensor, Any]:
    """A tensor and the array it was made from."""
    found = array(shape, dtype, **options)
    return Tensor(found), found
