"""Row kernels: what one pass over a row computes and a later pass needs again is kept.

``softmax`` needs exp(x - max) for its sum and again for its result. The pass that sums also
stores it in scratch memory of the row; the last pass reads it back instead of computing it.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import LocalArg
from svod.ir.node import UOp, make
from svod.optimize.graph import extent, replace_all

HEAVY = frozenset(range(O.EXP, O.ERF + 1)) | frozenset(range(O.EXPM1, O.ATANH + 1)) | {O.POW}
ROW_LIMIT = 64 << 10  # bytes of a row that is kept: it must stay in the nearest caches
SHORT_ROW = 8  # elements; shorter rows are written out and need no memory


def keep_rows(sink: UOp) -> UOp:
    """The kernel with heavy values of a row computed once."""
    if len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return sink
    end = sink.src[0]
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
    number = 0
    # Only the innermost loop: the memory of a row is filled anew for each step of the others.
    for column in end.src[-1:]:
        if column.op != O.RANGE or extent(column) < SHORT_ROW:
            continue
        for node in reductions:
            if len(node.src) != 2 or extent(node.src[1]) != extent(column):
                continue
            if column.src[0].op != O.CONST or column in node.ranges:
                continue
            found = _shared(end.src[0].src[1], node, column)
            if found is None or extent(column) * found.dtype.itemsize > ROW_LIMIT:
                continue
            store = replace_all(end.src[0], {found: _kept(found, node.src[1], column, number)})
            end = make(O.END, dt.void, (store, *end.src[1:]))
            number += 1
    return make(O.SINK, dt.void, (end,))


def _shared(result: UOp, reduction: UOp, column: UOp) -> UOp | None:
    """The largest heavy value of the result that the reduction computes too, along its own loop."""
    row = reduction.src[1]
    below = set(reduction.src[0].toposort())
    for node in reversed(result.toposort()):
        if node.op not in O.ELEMENTWISE or column not in node.ranges or node.dtype.kind != "f":
            continue
        if not any(n.op in HEAVY and column in n.ranges for n in node.toposort()):
            continue
        if replace_all(node, {column: row}) in below:
            return node
    return None


def _kept(value: UOp, row: UOp, column: UOp, number: int) -> UOp:
    """A read of the value from scratch memory, filled by the loop of the reduction."""
    memory = make(O.DEFINE_LOCAL, value.dtype, (), LocalArg(extent(row), 100 + number))
    place = make(O.INDEX, value.dtype, (memory, row))
    store = make(O.STORE, dt.void, (place, replace_all(value, {column: row})))
    kept = make(O.AFTER, value.dtype, (memory, make(O.END, dt.void, (store, row))))
    return make(O.LOAD, value.dtype, (make(O.INDEX, value.dtype, (kept, column)),))
