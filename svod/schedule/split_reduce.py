"""Large reductions in two stages, so that every core has work and no sum is one long chain.

A reduction to few elements over many is rewritten as partial results over fixed pieces, stored,
and reduced again. The split depends on sizes only, so results do not change with the machine's
number of threads.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ReduceArg
from svod.ir.node import UOp, elements, is_symbolic, make

SPLIT_FROM = 1 << 16  # elements per result from which splitting pays
FEW_RESULTS = 256
PIECES = 64  # partial results wanted in all


def split_reductions(sink: UOp, order: list[UOp] | None = None) -> UOp:
    """The graph with large reductions split; ``order`` is its toposort where that is known."""
    order = sink.toposort() if order is None else order
    if not any(node.op == O.REDUCE_AXIS and _is_large(node) for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else make(node.op, node.dtype, src, node.arg)
        if new.op == O.REDUCE_AXIS:
            new = _split(new)
        done[node] = new
    return done[sink]


def _is_large(node: UOp) -> bool:
    """Few results, each of many elements."""
    shape = node.src[0].shape
    total = elements(shape)
    if total < SPLIT_FROM or is_symbolic(shape):
        return False
    results = prod(node.shape)
    return results <= FEW_RESULTS and total // max(1, results) >= SPLIT_FROM


def _split(node: UOp) -> UOp:
    if not _is_large(node):
        return node
    source = node.src[0]
    shape = source.shape
    axes = sorted(node.arg.axes)
    results = prod(node.shape)
    axis = max(axes, key=lambda a: (shape[a] >= PIECES, -a))
    pieces = _pieces(shape[axis], max(8, PIECES // results))
    if pieces < 2:
        return node
    if node.dtype.kind == "f" and node.dtype.bits < 32 and node.arg.op in (O.ADD, O.MUL):
        # Partial results of small floats are kept wide, as one kernel would keep them.
        f32 = make(O.CAST, dt.float32, (source,))
        whole = _split(make(O.REDUCE_AXIS, dt.float32, (f32,), node.arg))
        return make(O.CAST, node.dtype, (whole,))
    wide = (*shape[:axis], pieces, shape[axis] // pieces, *shape[axis + 1 :])
    moved = make(O.RESHAPE, source.dtype, (source,), wide)
    # The outer half of the split axis stays; everything else that was reduced goes first.
    inner = tuple([a if a < axis else a + 1 for a in axes if a != axis] + [axis + 1])
    partial = make(
        O.REDUCE_AXIS, node.dtype, (moved,), ReduceArg(node.arg.op, tuple(sorted(inner)))
    )
    stored = make(O.CONTIGUOUS, node.dtype, (partial,))
    last = make(O.REDUCE_AXIS, node.dtype, (stored,), ReduceArg(node.arg.op, (axis,)))
    return make(O.RESHAPE, node.dtype, (last,), node.shape)


def _pieces(size: int, wanted: int) -> int:
    """The divisor of an axis nearest above what is wanted, within a factor of eight."""
    for pieces in range(wanted, min(size, 8 * wanted) + 1):
        if size % pieces == 0:
            return pieces
    for pieces in range(wanted, 1, -1):
        if size % pieces == 0:
            return pieces
    return 1
