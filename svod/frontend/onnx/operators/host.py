"""Operators on the host: arithmetic of shapes, over known numbers and run-time sizes.

Arrays of objects hold sizes, whole numbers or symbolic ones. A function that cannot say the result
(a comparison that depends on a variable) gives NotImplemented, and the plan computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from svod.base.errors import VariableError
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Array, host, host_table
from svod.frontend.onnx.types import element, is_sizes
from svod.ir.node import UOp
from svod.ir.symbolic import minimum, num, value_of


def settled(array: Any) -> Array:
    """An array of sizes as plain numbers where none of them varies."""
    array = np.asarray(array)
    if (
        array.dtype == object
        and is_sizes(array)
        and not any(isinstance(v, UOp) for v in array.flat)
    ):
        return array.astype(np.int64)
    return array


def _decided(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; NotImplemented where it depends on the value of a variable or on texts."""

    def call(*arrays: Array) -> Any:
        if any(a.dtype.kind == "O" and not is_sizes(a) for a in arrays):
            return NotImplemented
        try:
            with np.errstate(all="ignore"):
                return settled(function(*arrays))
        except (VariableError, TypeError):
            return NotImplemented

    return call


def _exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arithmetic in the type of the first operand; floats of one element only, else the plan."""

    def call(*arrays: Array) -> Any:
        if arrays[0].dtype.kind == "f" and max(a.size for a in arrays) > 16:
            return NotImplemented
        result = np.asarray(function(*arrays))
        is_size = any(a.dtype == object for a in arrays)
        return result if is_size else result.astype(arrays[0].dtype, copy=False)

    return _decided(call)


def _divide(a: Array, b: Array) -> Any:
    if a.dtype == object or b.dtype == object:
        if any(isinstance(v, UOp) and v.vmin < 0 for v in (*a.flat, *b.flat)):
            raise VariableError("the sign is not known")
        return a // b
    if a.dtype.kind in "iu":
        if not np.all(b):
            raise TypeError
        quotient = np.abs(a) // np.abs(b)
        return np.where((a < 0) != (b < 0), -quotient, quotient)
    return a / b


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers or sizes."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return a if a <= b else b
    found = minimum(*[n if isinstance(n, UOp) else num(int(n)) for n in (a, b)])
    known = value_of(found)
    return found if known is None else known


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers or sizes."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return a if a >= b else b
    return -smaller(-a, -b)


def _pick(choose: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *xs: reduce(np.frompyfunc(choose, 2, 1), xs)


host_table(
    {
        "Add": _exact(lambda a, b: a + b),
        "Sub": _exact(lambda a, b: a - b),
        "Mul": _exact(lambda a, b: a * b),
        "Div": _exact(_divide),
        "Neg": _exact(lambda a: -a),
        "Abs": _exact(np.abs),
        "Floor": _exact(np.floor),
        "Ceil": _exact(np.ceil),
        "Sqrt": _exact(np.sqrt),
        "Max": _exact(_pick(larger)),
        "Min": _exact(_pick(smaller)),
        "And": _decided(lambda a, b: a & b),
        "Or": _decided(lambda a, b: a | b),
        "Not": _decided(lambda a: ~a),
        "Where": _decided(lambda c, a, b: np.where(c, a, b)),
    }
)


def _same(a: Any, b: Any) -> bool:
    difference = a - b
    if isinstance(difference, UOp):
        if difference.vmin > 0 or difference.vmax < 0:
            return False
        raise VariableError("equality depends on a variable")
    return bool(difference == 0)


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    compare = np.frompyfunc(function, 2, 1)
    return _decided(lambda a, b: np.asarray(compare(a, b)).astype(np.bool_))


host_table(
    {
        "Equal": _decided(
            lambda a, b: (
                np.asarray(np.frompyfunc(_same, 2, 1)(a, b)).astype(np.bool_)
                if object in (a.dtype, b.dtype)
                else a == b
            )
        ),
        "Less": _comparison(lambda a, b: a < b),
        "Greater": _comparison(lambda a, b: a > b),
        "LessOrEqual": _comparison(lambda a, b: a <= b),
        "GreaterOrEqual": _comparison(lambda a, b: a >= b),
    },
    since=7,
)


@host("Mod")
def mod(a: Array, b: Array, *, fmod: int = 0) -> Any:
    if fmod or a.dtype.kind == "f":
        return NotImplemented
    return _exact(lambda x, y: x % y)(a, b)


@host("Identity")
def identity(x: Array) -> Array:
    return x


@host("Cast")
def cast(x: Array, *, to: Any, saturate: int = 1, round_mode: str = "up", node: NodeView) -> Any:
    return cast_array(x, to, node)


@host("CastLike")
def cast_like(
    x: Array, target: Array, *, saturate: int = 1, round_mode: str = "up", node: NodeView
) -> Any:
    return cast_array(x, node.element(1), node)


def cast_array(x: Array, to: Any, node: NodeView) -> Any:
    """Whole numbers to other types; the rest is computed."""
    kind = element(to) if isinstance(to, int) else None
    if kind is None or kind.is_narrow:
        return NotImplemented
    if x.dtype == object:
        return x if is_sizes(x) and kind.name in ("INT64", "INT32") else NotImplemented
    if kind.number == 8:
        return NotImplemented
    if x.dtype.kind in "iub" and kind.array.kind in "iubf" and x.dtype.itemsize <= 8:
        return x.astype(kind.array)
    if x.dtype == np.float32 and kind.name in ("INT64", "INT32", "DOUBLE", "FLOAT"):
        if not np.all(np.abs(x.astype(np.float64)) < 2**31):
            return NotImplemented
        return x.astype(kind.array)
    return NotImplemented


@host("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", since=13)
def fold(
    x: Array, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
    node: NodeView,
) -> Any:  # fmt: skip
    if x.dtype.kind not in "iO" or x.ndim != 1 or x.size == 0 or noop_with_empty_axes:
        return NotImplemented
    name = node.proto.op_type
    combine: Any = {
        "ReduceProd": lambda a, b: a * b, "ReduceSum": lambda a, b: a + b,
        "ReduceMax": larger, "ReduceMin": smaller,
    }[name]  # fmt: skip
    try:
        total = reduce(combine, list(x.flat))
    except VariableError:
        return NotImplemented
    array = settled(np.array(total, x.dtype))
    return array.reshape(1) if keepdims else array


@host("ReduceProd")
def fold_by_attribute(
    x: Array, *, axes: list[int] | None = None, keepdims: int = 1, node: NodeView
) -> Any:
    return fold(x, keepdims=keepdims, node=node)
