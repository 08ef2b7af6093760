"""Checks for tests: values within the tolerance of their dtype, gradients by finite differences.

``gradcheck`` differentiates the NumPy meaning of the graph numerically, so it needs no compiled
kernel for every step; the gradient it is compared with is compiled unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from svod.base.errors import DTypeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.evaluate import evaluate
from svod.ir.node import UOp
from svod.reference.docstrings import describe
from svod.tensor.core.tensor_core import wrap
from svod.tensor.core.tensor_registry import buffer_of
from svod.tensor.gradients.reverse_mode import gradient
from svod.tensor.tensor import Tensor

__all__ = ["TOLERANCES", "assert_close", "gradcheck"]

Array = np.ndarray[Any, Any]

# dtype name: relative and absolute tolerance, as in torch.testing
TOLERANCES: dict[str, tuple[float, float]] = {
    "float8_e4m3": (1.3e-1, 1e-2),
    "float8_e5m2": (2.6e-1, 1e-2),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    check_dtype: bool = True,
    name: str = "values",
) -> None:
    """Both are equal within the tolerance of their dtype; lists and dicts are gone through.

    Without ``rtol`` and ``atol`` the wider tolerance of the two dtypes counts. Integers and bools
    must be equal.
    """
    if isinstance(expected, Mapping):
        assert set(actual) == set(expected), f"{name}: keys {sorted(actual)}, {sorted(expected)}"
        for key in expected:
            assert_close(actual[key], expected[key], rtol=rtol, atol=atol, equal_nan=equal_nan,
                         check_dtype=check_dtype, name=f"{name}[{key!r}]")  # fmt: skip
        return
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), f"{name}: {len(actual)} of {len(expected)} values"
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan,
                         check_dtype=check_dtype, name=f"{name}[{i}]")  # fmt: skip
        return
    found, wanted = _array(actual), _array(expected)
    assert found.shape == wanted.shape, f"{name}: shape {found.shape}, expected {wanted.shape}"
    if check_dtype and not isinstance(expected, (int, float)):
        assert found.dtype == wanted.dtype, f"{name}: {found.dtype}, expected {wanted.dtype}"
    kinds = (str(found.dtype), str(wanted.dtype))
    limits = [TOLERANCES.get(k, (0.0, 0.0)) for k in kinds if k in TOLERANCES or k == kinds[0]]
    relative = max(t[0] for t in limits) if rtol is None else rtol
    absolute = max(t[1] for t in limits) if atol is None else atol
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    near = np.isclose(a, b, rtol=relative, atol=absolute, equal_nan=equal_nan)
    if near.all():
        return
    worst = int(np.argmax(np.where(near, -1.0, np.nan_to_num(np.abs(a - b), nan=np.inf))))
    place = tuple(int(i) for i in np.unravel_index(worst, near.shape))
    raise AssertionError(
        f"{name}: {int((~near).sum())} of {near.size} differ; at {place}: {a[place]:.9g}, expected "
        f"{b[place]:.9g} (rtol {relative:g}, atol {absolute:g})"
    )


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        return value.numpy()
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach()
    return np.asarray(value)


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    compiled: bool = True,
) -> bool:
    """Compare the gradients of a function with finite differences; an AssertionError says where.

    Float inputs are taken in float64 and differentiated. All outputs are folded with fixed
    random weights into one number. ``compiled=False`` evaluates gradients without the compiler.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    args = [_as_float64(x) for x in given]
    total = _folded(function(*args))
    places = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.dtype.kind == "f"]
    seed = B.full((), 1.0, total.dtype)
    found = gradient(total, seed, [args[i].uop for i in places])
    memory = _memory(total, *[n for n in found if n is not None])
    for place, node in zip(places, found, strict=True):
        x = args[place]
        if node is None:
            analytic = np.zeros(x.shape)
        elif compiled:
            analytic = wrap(node, x._device).numpy()
        else:
            analytic = evaluate(node, memory)
        numeric = _differences(total, x, memory, eps)
        assert_close(analytic, numeric, rtol=rtol, atol=atol, name=f"gradient of input {place}")
    return True


def _as_float64(x: Any) -> Any:
    if isinstance(x, (int, bool, str)) or x is None:
        return x
    array = np.array(_array(x))
    if array.dtype.kind in "biu":
        return Tensor(array)
    found = Tensor(array.astype(np.float64).reshape(-1)).reshape(array.shape)
    if buffer_of(found.uop) is None:
        found = found.contiguous().realize()
    return found.requires_grad_()


def _folded(result: Any) -> UOp:
    """One number from all float outputs."""
    outputs = [result] if isinstance(result, Tensor) else list(result)
    total: Tensor | None = None
    random = np.random.default_rng(1)
    for output in outputs:
        if output.dtype.kind != "f":
            continue
        weights = Tensor(random.uniform(0.5, 1.5, output.shape))
        part = (output.double() * weights).sum()
        total = part if total is None else total + part
    if total is None:
        raise DTypeError("gradcheck: the function returned no floats")
    return total.uop


def _memory(*roots: UOp) -> dict[UOp, Array]:
    found: dict[UOp, Array] = {}
    for root in roots:
        for node in root.toposort():
            if node.op == O.BUFFER:
                buffer = buffer_of(node)
                assert buffer is not None, "inputs are realised"
                found[node] = buffer.numpy()
    return found


def _differences(total: UOp, x: Tensor, memory: dict[UOp, Array], eps: float) -> Array:
    """Central differences over the elements of one input."""
    base = x.uop
    while base.op == O.RESHAPE:
        base = base.src[0]
    start = memory.get(base)
    found = np.zeros(x.shape)
    if start is None:
        return found
    flat = found.reshape(-1)
    for i in range(flat.size):
        values = []
        for step in (eps, -eps):
            moved = np.array(start)
            moved.reshape(-1)[i] += step
            values.append(float(evaluate(total, {**memory, base: moved})))
        flat[i] = (values[0] - values[1]) / (2 * eps)
    return found


describe(globals(), "svod.testing")
