"""Rows that get another shape afterwards: what follows, and the store, see them before that.

A softmax or a norm is one kernel because its last loops are those of its sums. Behind a reshape the
loops are others (a group of channels is an axis of its own in its norm, and none in the image), so
the reshape goes behind what is done to each element, and behind the store, where it costs nothing.
"""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.build import is_dense
from svod.ir.node import UOp, make
from svod.schedule.whole_rows import is_row


def reshape_last(sink: UOp, order: list[UOp]) -> UOp:
    """The graph with reshapes of rows moved behind elementwise nodes and stores."""
    rows: set[UOp] = set()  # nodes over whose elements the result of a sum of their row lies
    if not _find_rows(order, rows):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        moved = _before_reshape(node, src, rows)
        if moved is not None:
            rows.add(moved)
            done[node] = make(O.RESHAPE, node.dtype, (moved,), node.shape)
            continue
        new = node.with_sources(src)
        if node in rows:
            rows.add(new)
        done[node] = new
    return done[sink]


def _find_rows(order: list[UOp], rows: set[UOp]) -> bool:
    """Note the rows; whether one of them is reshaped."""
    results: set[UOp] = set()
    is_reshaped = False
    for node in order:
        if node.op == O.REDUCE_AXIS:
            if is_row(node):
                results.add(node)
        elif node.op == O.EXPAND:
            if node.src[0] in results:
                rows.add(node)
        elif node.op in O.ELEMENTWISE:
            if any(s in rows for s in node.src):
                rows.add(node)
            elif any(s in results for s in node.src):
                results.add(node)
        elif node.op == O.RESHAPE:
            if node.src[0] in results:
                results.add(node)
            is_reshaped = is_reshaped or node.src[0] in rows
    return is_reshaped


def _before_reshape(node: UOp, src: tuple[UOp, ...], rows: set[UOp]) -> UOp | None:
    """The node over what its sources were before they were reshaped; None where that is unlike."""
    if node.op not in O.ELEMENTWISE and (node.op != O.CONTIGUOUS or node.arg is not None):
        return None
    arrays = [s for s in src if s.shape]
    if not arrays or any(s.op != O.RESHAPE for s in arrays):
        return None
    inner = [s.src[0] for s in arrays]
    if not any(x in rows for x in inner) or any(x.shape != inner[0].shape for x in inner):
        return None
    if node.op == O.CONTIGUOUS and not (is_dense(node.shape) and is_dense(inner[0].shape)):
        return None
    return make(node.op, node.dtype, tuple([s.src[0] if s.shape else s for s in src]), node.arg)
