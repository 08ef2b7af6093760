"""Checks of values: arithmetic, casts, constants, variables, parameters; in every kind of graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg, VarArg
from svod.ir.evaluate import takes_dtype
from svod.ir.node import UOp

Check: TypeAlias = Callable[[UOp], "str | None"]  # why the node is wrong, or None
# Op to the least and largest number of sources (None: any) and the check.
Table: TypeAlias = dict[int, tuple[int, int | None, Check]]


def alu(node: UOp) -> str | None:
    op, dtype, src = node.op, node.dtype, node.src
    operand = src[-1].dtype
    if any(s.dtype is not operand for s in src[1 if op == O.WHERE else 0 :]):
        return f"its operands have different dtypes: {dtypes_of(src)}"
    if op == O.WHERE and src[0].dtype is not dt.bool_.vec(operand.lanes):
        return f"the condition is {src[0].dtype!r}, not {dt.bool_.vec(operand.lanes)!r}"
    if not takes_dtype(op, operand):
        return f"{O.NAMES[op]} does not take {operand!r}"
    wanted = dt.bool_.vec(operand.lanes) if op in O.COMPARE else operand
    if dtype is not wanted:
        return f"its dtype is {dtype!r}, but its operands make it {wanted!r}"
    return _same_shapes(node)


def _plain_alu(node: UOp) -> str | None:
    return alu(node) if node.arg is None else "it takes no argument"


def dtypes_of(src: tuple[UOp, ...]) -> str:
    return ", ".join([repr(s.dtype) for s in src])


def _same_shapes(node: UOp) -> str | None:
    shapes = {s.shape for s in node.src if s.shape}
    if len(shapes) > 1:
        return f"its operands have different shapes: {', '.join(sorted(map(str, shapes)))}"
    return None


def _cast(node: UOp) -> str | None:
    if node.dtype.kind == "v" or node.src[0].dtype.kind == "v":
        return "void has no values to cast"
    if node.dtype.lanes != node.src[0].dtype.lanes:
        return f"it changes the lanes of {node.src[0].dtype!r}"
    return None


def _bitcast(node: UOp) -> str | None:
    source = node.src[0].dtype
    if "v" in (node.dtype.kind, source.kind) or node.dtype.bits != source.bits:
        return f"a BITCAST keeps the width, but {source!r} and {node.dtype!r} differ"
    if node.dtype.kind == "b" and source is not node.dtype:
        return "bits other than 0 and 1 are no bool; compare with zero instead"
    return _cast(node)


def constant(node: UOp) -> str | None:
    kinds = {"b": bool, "f": float, "u": int, "i": int, "x": int}
    if type(node.arg) is not kinds.get(node.dtype.kind):
        return f"a constant of {node.dtype!r} cannot be {node.arg!r}"
    if type(node.arg) is int:
        lo, hi = dt.integer_limits(node.dtype)
        if not lo <= node.arg <= hi:
            return f"{node.arg} is outside {node.dtype!r}"
    return None


def _variable(node: UOp) -> str | None:
    if type(node.arg) is not VarArg or not node.arg.lo <= node.arg.hi:
        return "its argument must be VarArg(name, lo, hi) with lo <= hi"
    return None


def _bind(node: UOp) -> str | None:
    variable, value = node.src
    if variable.op != O.DEFINE_VAR or value.op not in (O.CONST, O.RANGE):
        return "it binds a DEFINE_VAR to a CONST or a RANGE"
    if value.vmin < variable.arg.lo or value.vmax > variable.arg.hi:
        lo, hi = variable.arg.lo, variable.arg.hi
        return f"the value {value.vmin}..{value.vmax} is outside {variable.arg.name} = {lo}..{hi}"
    return keeps_dtype(node)


def _param(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not ParamArg or type(arg.slot) is not int or not is_shape(arg.shape):
        return "its argument must be ParamArg(slot, shape)"
    if node.dtype.kind == "v" or arg.slot < 0:
        return f"slot {arg.slot} of {node.dtype!r} is no parameter"
    if node.src and node.src[0].op != O.DEVICE:
        return "its source must be a DEVICE"
    return None


def effect(node: UOp) -> str | None:
    return (
        None
        if node.dtype is dt.void
        else f"it has no value, so its dtype is void, not {node.dtype!r}"
    )


def keeps_dtype(node: UOp) -> str | None:
    if node.dtype is not node.src[0].dtype:
        return f"it changes the dtype from {node.src[0].dtype!r} to {node.dtype!r}"
    return None


def is_size(value: Any) -> bool:
    """A number, or an index expression of variables."""
    return type(value) is int or (type(value) is UOp and value.dtype is dt.index)


def is_shape(value: Any) -> bool:
    return type(value) is tuple and all(is_size(n) and may_be(n, 0) for n in value)


def may_be(size: Any, least: Any) -> bool:
    """Whether some values of the variables make the size at least so large."""
    difference = size - least
    return bool((difference.vmax if isinstance(difference, UOp) else difference) >= 0)


def _device(node: UOp) -> str | None:
    return None if type(node.arg) is str else f"its argument must be a name, not {node.arg!r}"


VALUES: Final[Table] = {
    **dict.fromkeys(O.UNARY, (1, 1, _plain_alu)),
    **dict.fromkeys(O.BINARY_OPS, (2, 2, _plain_alu)),
    **dict.fromkeys(O.TERNARY, (3, 3, _plain_alu)),
    O.CONST: (0, 0, constant),
    O.CAST: (1, 1, _cast),
    O.BITCAST: (1, 1, _bitcast),
    O.DEFINE_VAR: (0, 0, _variable),
    O.BIND: (2, 2, _bind),
    O.PARAM: (0, 1, _param),
    O.SINK: (0, None, effect),
    O.DEVICE: (0, 0, _device),
}
