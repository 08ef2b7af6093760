"""Arithmetic as GPUs have instructions for it.

In: a kernel, before or after its functions have become arithmetic. Out: the same kernel, dividing
in 32 bits wherever the numbers fit, since a 64-bit division costs a GPU some twenty instructions,
and rounding to bfloat16 by conversions.
"""

from __future__ import annotations

from svod.codegen.formula import TRUNCATE, Term
from svod.codegen.narrow import narrow
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const, make

UINT32_LIMIT = (1 << 32) - 1


def narrow_divisions(sink: UOp) -> UOp:
    """Divisions of index numbers below 2**32 as unsigned 32-bit divisions."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op in (O.IDIV, O.MOD) and node.dtype is dt.index and _fits(*node.src):
            small = tuple([_as_uint32(s) for s in src])
            found = make(node.op, dt.uint32, small, TRUNCATE)
            done[node] = make(O.CAST, dt.index, (found,))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def with_roundings(sink: UOp) -> UOp:
    """Roundings to bfloat16 as conversions, for which newer GPUs have an instruction."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        rounded = _rounded(node)
        if rounded is not None:
            done[node] = make(O.CAST, node.dtype, (done[rounded],))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _rounded(node: UOp) -> UOp | None:
    """The float32 of which a node is the formula for bfloat16."""
    if node.op != O.BITCAST or node.dtype.scalar is not dt.bfloat16:
        return None
    cut = node.src[0]
    if cut.op != O.CAST or cut.src[0].op != O.WHERE:
        return None
    x = cut.src[0].src[0].src[0]
    if x.dtype.scalar is not dt.float32:
        return None
    return x if narrow(Term(x), dt.bfloat16).node is node else None


def _fits(a: UOp, b: UOp) -> bool:
    small = all(n.vmin >= 0 and n.vmax <= UINT32_LIMIT for n in (a, b))
    return small and bool(b.vmin > 0)


def _as_uint32(node: UOp) -> UOp:
    if node.op == O.CONST:
        return const(node.arg, dt.uint32)
    return make(O.CAST, dt.uint32, (node,))
