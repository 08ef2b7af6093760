"""Masks: those known when a kernel is compiled (lane numbers compared with constants), and parts
that are the same for all lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svod.codegen.formula import TRUNCATE
from svod.dtype.convert import to_numpy
from svod.ir import ops as O
from svod.ir.evaluate import Array, apply_alu
from svod.ir.facts import index_bounds
from svod.ir.node import UOp


class Bounds(NamedTuple):
    vmin: int
    vmax: int


def only_lane(index: UOp, lanes: int) -> int | None:
    """The lane that an access is for, where its gate is known to hold for exactly one."""
    if len(index.src) < 3 or lanes == 1:
        return None
    mask = _known(index.src[2])
    if mask is None or mask.shape != (lanes,) or int(mask.sum()) != 1:
        return None
    return int(mask.argmax())


def uniform(gate: UOp) -> list[UOp]:
    """The conditions a gate is made of that do not depend on the lane."""
    if gate.dtype.lanes == 1:
        return [gate]
    if gate.op == O.BROADCAST:
        return [gate.src[0]]
    if gate.op == O.AND:
        return [found for part in gate.src for found in uniform(part)]
    return []


def bounds_of(node: UOp) -> tuple[int, int]:
    """Bounds of an offset that was lowered to machine integers, which do not tell theirs."""
    found: dict[UOp, tuple[int, int]] = {}
    for each in node.toposort():
        parts = [Bounds(*found[s]) for s in each.src]
        found[each] = index_bounds(each.op, tuple(parts), each.arg)  # type: ignore[arg-type]
    return found[node]


def _known(node: UOp) -> Array | None:
    """The value of a node that depends on lane numbers alone."""
    values: dict[UOp, Array] = {}
    for each in node.toposort():
        if each.op == O.CONST:
            values[each] = np.full(each.dtype.lanes, each.arg, to_numpy(each.dtype.scalar))
        elif each.op == O.LANES:
            values[each] = np.arange(each.dtype.lanes, dtype=to_numpy(each.dtype.scalar))
        elif each.op == O.BROADCAST:
            values[each] = np.repeat(values[each.src[0]], each.dtype.lanes)
        elif each.op in O.ALU and each.arg != TRUNCATE:
            values[each] = apply_alu(each.op, each.dtype.scalar, [values[s] for s in each.src])
        elif each.op == O.CAST:
            values[each] = values[each.src[0]].astype(to_numpy(each.dtype.scalar))
        else:
            return None
    return values[node]
