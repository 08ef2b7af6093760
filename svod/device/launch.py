"""Launch sizes: how many work items a program gets, as expressions over run-time variables.

In: three expressions for the grid, three or none for the workgroup, and values by variable name.
Out: plain numbers, all positive. Only integer arithmetic that cannot surprise is allowed, every
step must fit 64 bits, and every variable must be inside its bounds: the sizes of buffers rest on
them. Division and modulo round toward minus infinity, as everywhere in the IR; dividing by zero is
an error here, although kernels define it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from svod.base.errors import ExecutionError, VariableError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const

LaunchSize: TypeAlias = tuple[UOp, UOp, UOp]
Size3: TypeAlias = tuple[int, int, int]

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class LaunchError(ExecutionError):
    """A launch size that cannot be evaluated; ``axis`` and ``value`` where they are known."""

    def __init__(self, message: str, axis: int | None = None, value: object = None) -> None:
        super().__init__(message, axis, value)
        self.message, self.axis, self.value = message, axis, value

    def __str__(self) -> str:
        return self.message


class MissingVariableError(VariableError):
    """A launch size needs a variable that has no value."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable

    def __str__(self) -> str:
        return f"missing runtime value for launch-size variable {self.variable}"


class BoundsError(VariableError):
    """A variable got a value outside its inclusive bounds."""

    def __init__(self, variable: str, value: int, low: int, high: int) -> None:
        super().__init__(variable, value, low, high)
        self.variable, self.value, self.low, self.high = variable, value, low, high

    def __str__(self) -> str:
        return f"variable {self.variable}={self.value} is outside bounds [{self.low}, {self.high}]"


class LaunchDims(NamedTuple):
    """Evaluated sizes. ``local_size`` None: work items are numbered by the grid alone."""

    global_size: Size3
    local_size: Size3 | None


def concrete_size(size: tuple[int, int, int]) -> LaunchSize:
    """Numbers as launch-size expressions."""
    x, y, z = size
    return const(x, dt.index), const(y, dt.index), const(z, dt.index)


def default_size() -> LaunchSize:
    """One work item."""
    return concrete_size((1, 1, 1))


def is_default(global_size: LaunchSize, local_size: LaunchSize | None) -> bool:
    """Whether both sizes are the constants 1, 1, 1."""
    if local_size is None:
        return False
    return all(_is_one(e) for e in global_size + local_size)


def check_bounds(variable: str, value: int, low: int, high: int) -> None:
    """Refuse a value outside the inclusive bounds of its variable."""
    if value < low or value > high:
        raise BoundsError(variable, value, low, high)


def resolve_launch_dims(
    global_size: LaunchSize, local_size: LaunchSize | None, values: Mapping[str, int]
) -> LaunchDims:
    """Both sizes as numbers."""
    local = None if local_size is None else _evaluate_size(local_size, values)
    return LaunchDims(_evaluate_size(global_size, values), local)


def evaluate(root: UOp, values: Mapping[str, int]) -> int:
    """The value of one launch-size expression."""
    if root.op == O.CONST:
        return _constant(root)
    known: dict[UOp, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
            continue
        waiting = [s for s in _operands(node) if s not in known]
        if waiting:
            stack.extend(waiting)
            continue
        known[node] = _value(node, known, values)
        stack.pop()
    return known[root]


def _is_one(expression: UOp) -> bool:
    return expression.op == O.CONST and type(expression.arg) is int and expression.arg == 1


def _evaluate_size(size: LaunchSize, values: Mapping[str, int]) -> Size3:
    found = []
    for axis, expression in enumerate(size):
        value = evaluate(expression, values)
        if value <= 0:
            raise LaunchError(
                f"launch dimension {axis} evaluated to non-positive value {value}", axis, value
            )
        found.append(value)
    return found[0], found[1], found[2]


_BINARY: Final[dict[int, Callable[[int, int], int]]] = {
    O.ADD: operator.add,
    O.SUB: operator.sub,
    O.MUL: operator.mul,
    O.IDIV: operator.floordiv,
    O.MOD: operator.mod,
    O.MAX: max,
}
_UNARY: Final[dict[int, Callable[[int], int]]] = {O.NEG: operator.neg, O.ABS: abs}
_TRANSPARENT: Final = frozenset({O.CAST, O.BITCAST, O.AFTER})


def _operands(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values the value of a node needs."""
    op = node.op
    if op in _BINARY:
        return node.src
    if op in _UNARY or op in _TRANSPARENT:
        return node.src[:1]
    if op == O.BIND:
        return node.src[1:]
    return ()


def _value(node: UOp, known: dict[UOp, int], values: Mapping[str, int]) -> int:
    op = node.op
    if op == O.CONST:
        return _constant(node)
    if op == O.DEFINE_VAR:
        name, low, high = node.arg
        if name not in values:
            raise MissingVariableError(name)
        value = values[name]
        check_bounds(name, value, low, high)
        return value
    if op == O.BIND:
        bound = known[node.src[1]]
        if node.src[0].op == O.DEFINE_VAR:
            name, low, high = node.src[0].arg
            check_bounds(name, bound, low, high)
        return bound
    if op in _TRANSPARENT:
        return known[node.src[0]]
    if op in _UNARY:
        return _unary(op, known[node.src[0]])
    if op in _BINARY:
        return _binary(op, known[node.src[0]], known[node.src[1]])
    what = "launch-size expression op"
    if op in O.BINARY_OPS:
        what = "binary op in launch-size expression"
    raise LaunchError(f"unsupported {what}: {O.NAMES[op]}", value=O.NAMES[op])


def _constant(node: UOp) -> int:
    value = node.arg
    if isinstance(value, float):
        raise LaunchError(
            f"launch-size expression must be integer, got float constant {value}", value=value
        )
    number = int(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise LaunchError(f"launch-size constant {number} does not fit i64", value=number)
    return number


def _unary(op: int, value: int) -> int:
    result = _UNARY[op](value)
    if result > INT64_MAX:
        word = "negation" if op == O.NEG else "abs"
        raise LaunchError(f"invalid launch-size {word} overflow: {value}", value=value)
    return result


def _binary(op: int, left: int, right: int) -> int:
    if right or op not in (O.IDIV, O.MOD):
        result = _BINARY[op](left, right)
        if INT64_MIN <= result <= INT64_MAX:
            return result
    raise LaunchError(
        f"invalid launch-size arithmetic: {left} {O.NAMES[op]} {right}", value=(left, right)
    )
