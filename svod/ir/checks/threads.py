"""Checks of kernels that threads of blocks run: hardware indices, and values of other threads."""

from __future__ import annotations

from typing import Final

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.checks.kernels import COPIED, stored
from svod.ir.checks.lowered import LOWERED, lowered_alu
from svod.ir.checks.values import Table, alu, dtypes_of, keeps_dtype
from svod.ir.node import UOp


def _exchange(node: UOp) -> str | None:
    """A BARRIER is a value that other threads had a part in; its first argument says which."""
    kind = node.arg[0] if isinstance(node.arg, tuple) and node.arg else ""
    rule = _KINDS.get(kind)
    if rule is None:
        return f"{node.arg!r} is no exchange: the kinds are {', '.join(_KINDS)}"
    return rule(node)


def _one_value(node: UOp) -> str | None:
    return keeps_dtype(node) if len(node.src) == 1 else f"it takes {len(node.src)} values, not one"


def _decision(node: UOp) -> str | None:
    return None if node.dtype.scalar is dt.bool_ else f"it decides, so it is no {node.dtype!r}"


def _piece(node: UOp) -> str | None:
    tile = node.src[0].src[0] if node.src[0].op == O.BROADCAST else node.src[0]
    if tile.op != O.BARRIER or tile.arg[0] != "tile" or len(node.src) != 2:
        return "it is a part of a tile, at a lane"
    scalar = node.dtype.scalar is tile.dtype.scalar
    return None if scalar else f"it is {node.dtype!r} of a tile of {tile.dtype!r}"


def _tile(node: UOp) -> str | None:
    if node.src[0].op != O.PARAM:
        return "a tile reads arguments of the kernel"
    counts = (dt.index, dt.int64, dt.int32, dt.bool_)  # places and gates
    others = [s for s in node.src if s.op != O.PARAM and s.dtype.scalar not in counts]
    return f"it takes places, not {dtypes_of(tuple(others))}" if others else None


def _store(node: UOp) -> str | None:
    """Four threads store their columns at once, or a block counts in shared memory first."""
    arg = node.arg
    if arg not in (None, "ordered", "add", "max") and arg[0] not in ("quad", "tally"):
        return f"{arg!r} is no way to store: it is one of ordered, add, max, quad, tally"
    return stored(node)


def _lowered_special(node: UOp) -> str | None:
    if type(node.arg) is not str or node.dtype is not dt.int64:
        return "its argument must be the name of a hardware index, its dtype int64"
    return None


def _divided(node: UOp) -> str | None:
    """A division whose numbers are known to fit is a machine operation before all others."""
    return alu(node) if node.arg is None else lowered_alu(node)


_KINDS: Final = {
    "shuffle": _one_value, "warp": _one_value, "group": _one_value, "vote": _decision,
    "turn": _decision, "tile": _tile, "piece": _piece,
}  # fmt: skip
_OWN: Final[Table] = {O.BARRIER: (1, None, _exchange), O.STORE: (2, 2, _store)}
THREADS: Final[Table] = {**COPIED, **_OWN}
DIVIDED: Final[Table] = {**THREADS, O.IDIV: (2, 2, _divided), O.MOD: (2, 2, _divided)}
LOWERED_THREADS: Final[Table] = {**LOWERED, **_OWN, O.SPECIAL: (1, 1, _lowered_special)}
