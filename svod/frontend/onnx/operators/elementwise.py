"""Operators element by element: arithmetic, comparison, bits, functions, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.narrow import cast_to
from svod.frontend.onnx.operators.strings import as_texts
from svod.frontend.onnx.registry import Tensor, Value, operator, table
from svod.frontend.onnx.types import STRING, element


def divide(a: Tensor, b: Tensor) -> Tensor:
    """Division; of whole numbers towards zero."""
    return a.div(b, rounding_mode="trunc") if a.dtype.is_int else a / b


def power(a: Tensor, b: Tensor) -> Tensor:
    """A power in the type of the base."""
    if a.dtype.is_int and b.dtype.is_float:
        return (a.cast(dt.float64) ** b.cast(dt.float64)).cast(a.dtype)
    return a ** b.cast(a.dtype)


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": divide,
    "Pow": power,
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: a ^ b,
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "Greater": lambda a, b: a > b,
}
table(_BINARY, since=7)
table(
    {
        "LessOrEqual": lambda a, b: a <= b,
        "GreaterOrEqual": lambda a, b: a >= b,
        "BitwiseAnd": lambda a, b: a & b,
        "BitwiseOr": lambda a, b: a | b,
        "BitwiseXor": lambda a, b: a ^ b,
        "BitwiseNot": lambda x: x.bitwise_not(),
        "Not": lambda x: x.logical_not(),
        "IsNaN": lambda x: x.isnan(),
        "Sign": lambda x: x.sign(),
        "Round": lambda x: x.round(),
        "Erf": lambda x: x.erf(),
        "Where": lambda c, a, b: svod.where(c, a, b),
    }
)


def _old_broadcast(a: Tensor, b: Tensor, axis: int | None, broadcast: int) -> Tensor:
    """Before version 7 the second operand lines up with an axis of the first."""
    if not broadcast or axis is None or a.ndim == b.ndim:
        return b
    axis += a.ndim if axis < 0 else 0
    return b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))


def _old(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def call(
        a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0,
        consumed_inputs: Any = None,
    ) -> Tensor:  # fmt: skip
        return function(a, _old_broadcast(a, b, axis, broadcast))

    return call


for _name, _function in _BINARY.items():
    operator(_name)(_old(_function))

_UNARY = (
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Reciprocal", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Sigmoid", "Relu",
)  # fmt: skip


def _unary(name: str) -> Callable[..., Tensor]:
    def call(x: Tensor, *, consumed_inputs: Any = None) -> Tensor:
        result: Tensor = getattr(x, name)()
        return result

    return call


for _name in _UNARY:
    operator(_name)(_unary(_name.lower()))


@operator("Max", "Min", "Sum", "Mean")
def fold_all(*xs: Tensor, node: NodeView, consumed_inputs: Any = None) -> Tensor:
    kind = node.proto.op_type
    if kind == "Max":
        return reduce(svod.maximum, xs)
    if kind == "Min":
        return reduce(svod.minimum, xs)
    total = reduce(lambda a, b: a + b, xs)
    return total / len(xs) if kind == "Mean" else total


@operator("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return a.fmod(b) if fmod else a.remainder(b)


@operator("BitShift")
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    return a.bitwise_left_shift(b) if direction == "LEFT" else a.bitwise_right_shift(b)


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return x.isinf()
    if detect_negative:
        return x.isneginf()
    return x.isposinf() if detect_positive else svod.zeros(x.shape, dtype=dt.bool_)


@operator("Clip", since=11)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = svod.maximum(x, low)
    return svod.minimum(x, high) if high is not None else x


@operator("Clip")
def clip_by_attributes(
    x: Tensor, *, min: float | None = None, max: float | None = None, consumed_inputs: Any = None
) -> Tensor:
    return x if min is None and max is None else x.clamp(min, max)


@operator("Cast")
def cast(x: Tensor, *, to: Any, saturate: int = 1, round_mode: str = "up", node: NodeView) -> Value:
    if isinstance(to, str):  # version 1
        to = next((n for n in range(1, 27) if element(n).name == to), 0)
    if to == STRING:
        return as_texts(node.importer.host(x, "", "a cast to texts"))
    node.set_kind(to)
    return cast_to(x, to, bool(saturate), round_mode, node.kind(0))


@operator("CastLike")
def cast_like(
    x: Tensor, target: Value, *, saturate: int = 1, round_mode: str = "up", node: NodeView
) -> Tensor:
    to = node.element(1)
    node.set_kind(to)
    return cast_to(x, to, bool(saturate), round_mode, node.kind(0))


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int, node: NodeView) -> Tensor:
    wanted = element(to)
    if wanted.is_narrow or node.kind(0) is not None:
        raise UnsupportedError(f"BitCast from or to {wanted.name} is not supported")
    if x.dtype is dt.bool_ or wanted.carrier is dt.bool_:
        return x.cast(dt.uint8).bitcast(wanted.carrier) if x.dtype is dt.bool_ else x != 0
    return x.bitcast(wanted.carrier)
