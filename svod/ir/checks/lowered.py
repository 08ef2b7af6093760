"""Checks of lowered kernels: machine integers, and operations in the forms a renderer knows."""

from __future__ import annotations

from typing import Final

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import RangeArg
from svod.ir.checks.kernels import COPIED, OFFSETS, memory_and_gate
from svod.ir.checks.values import Table, alu, constant
from svod.ir.node import UOp


def lowered_alu(node: UOp) -> str | None:
    if node.arg in _FORMS.get(node.op, _NO_FORM) or _is_harmless(node):
        return alu(node)
    return f"{node.arg!r} is no form of {O.NAMES[node.op]}"


def _is_harmless(node: UOp) -> bool:
    """A shift whose amount is below the width, whatever happens."""
    amount = node.src[-1]
    if node.op not in (O.SHL, O.SHR) or node.arg is not None:
        return False
    return bool(amount.vmin >= 0 and amount.vmax < node.dtype.scalar.bits)


def _lowered_constant(node: UOp) -> str | None:
    """Integers stand for their bits, so -1 is a constant of every machine type."""
    if type(node.arg) is int and node.dtype.kind == "u" and -(1 << 63) <= node.arg < 0:
        return None
    return constant(node)


def _lowered_range(node: UOp) -> str | None:
    if type(node.arg) is not RangeArg or node.dtype is not dt.int64:
        return f"a lowered loop counter is int64, not {node.dtype!r}"
    return None if node.src[0].dtype is dt.int64 else f"its size is {node.src[0].dtype!r}"


def _lowered_index(node: UOp) -> str | None:
    offset = node.src[1].dtype
    if offset is not dt.int64 and (offset.lanes == 1 or offset.scalar not in OFFSETS):
        return f"its offset is {offset!r}, not int64 or a vector of int32 or int64"
    return memory_and_gate(node)


def _lowered_lanes(node: UOp) -> str | None:
    if node.dtype.scalar not in OFFSETS or node.arg != node.dtype.lanes:
        return f"it counts {node.arg!r} lanes in {node.dtype!r}"
    return None


_NO_FORM: Final[tuple[str | None, ...]] = (None,)
# What the argument of a lowered operation may say; the renderer has one form for each.
_FORMS: Final[dict[int, tuple[str | None, ...]]] = {
    O.IDIV: ("trunc", "nonneg"),
    O.MOD: ("trunc", "nonneg"),
    O.SHL: ("inrange",),
    O.SHR: ("inrange",),
    O.WHERE: (None, "rare"),
}
LOWERED: Final[Table] = {
    **COPIED,
    **dict.fromkeys(O.UNARY, (1, 1, lowered_alu)),
    **dict.fromkeys(O.BINARY_OPS, (2, 2, lowered_alu)),
    **dict.fromkeys(O.TERNARY, (3, 3, lowered_alu)),
    O.CONST: (0, 0, _lowered_constant),
    O.RANGE: (1, 1, _lowered_range),
    O.INDEX: (2, 3, _lowered_index),
    O.LANES: (0, 0, _lowered_lanes),
}
del LOWERED[O.LANE_REDUCE]  # folded in halves by now
