"""Row kernels: what one pass over a row computes and a later pass needs again is kept.

``softmax`` needs exp(x - max) for its sum and again for its result. The pass that sums also
stores it in scratch memory of the row; the last pass reads it back instead of computing it.
Once all opts are applied, the memory of the result may serve as that scratch memory. There even
light values are kept, as in ``log_softmax``: the result is fetched while a sum of functions waits
for arithmetic, not for memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import LocalArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import add, sub
from svod.optimize.graph import extent, replace_all
from svod.schedule.costs_cpu import CPU

ROW_LIMIT = CPU.kept_row  # bytes of a row that is kept: it must stay in the second cache
# of a row that is kept where the result goes, which is written anyway
PLACED_LIMIT = CPU.placed_row
SHORT_ROW = CPU.short_row  # elements; shorter rows are written out and need no memory


def keep_rows(sink: UOp) -> UOp:
    """The kernel with values of a row that a heavy reduction computes kept for the result."""
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
            size = extent(column) * found.dtype.itemsize if found is not None else 0
            if found is None or size > PLACED_LIMIT:
                continue
            store = replace_all(end.src[0], {found: _kept(found, node.src[1], column, number)})
            kept = make(O.END, dt.void, (store, *end.src[1:]))
            in_scratch = size <= ROW_LIMIT and _is_heavy(found, column)
            if not in_scratch and not _is_placed(make(O.SINK, dt.void, (kept,))):
                continue
            end = kept
            number += 1
    return make(O.SINK, dt.void, (end,))


def _is_placed(sink: UOp) -> bool:
    """Whether the result has room for the row; opts that follow may still prevent it."""
    return place_rows(sink) is not sink


def place_rows(sink: UOp) -> UOp:
    """The kernel with rows kept where the result goes, if the last pass reads nothing else there.

    Memory is then fetched while there is much to compute, not in a pass that only stores.
    """
    nodes = sink.toposort()
    memories = [n for n in nodes if n.op == O.DEFINE_LOCAL]
    if len(memories) != 1:
        return sink
    (memory,) = memories
    ready = [n for n in nodes if n.op == O.AFTER and n.src[0] is memory]
    row = _row_of(sink, ready[0]) if len(ready) == 1 else None
    if row is None:
        return sink
    places = [n for n in nodes if n.op == O.INDEX and n.src[0] is memory]
    filled = replace_all(ready[0], {p: _moved(p, row.memory, row) for p in places})
    full = make(O.AFTER, row.memory.dtype, (row.memory, *filled.src[1:]))
    reads = [n for n in nodes if n.op == O.INDEX and n.src[0] is ready[0]]
    return replace_all(sink, {r: _moved(r, full, row) for r in reads})


@dataclass(frozen=True, slots=True)
class _Row:
    """Where the row of a result is."""

    memory: UOp
    start: UOp  # offset of its first element
    outer: tuple[UOp, ...]  # the loops around it


def _moved(place: UOp, memory: UOp, row: _Row) -> UOp:
    offset = add(row.start, place.src[1])
    return make(O.INDEX, place.dtype, (memory, offset, *place.src[2:]), place.arg)


def _row_of(sink: UOp, ready: UOp) -> _Row | None:
    """The row that all stores finish and that ``ready`` waits for.

    Every step of the loops around it must fill it once and finish all of it: a row that is filled
    again overwrites results.
    """
    found = {_row_finished(end, ready) for end in sink.src}
    row = found.pop()
    if found or row is None:
        return None
    return row if all(fill.ranges <= set(row.outer) for fill in ready.src[1:]) else None


def _row_finished(end: UOp, ready: UOp) -> _Row | None:
    store, *loops = end.src
    if store.op != O.STORE or store.arg is not None:
        return None
    place, value = store.src
    loads = [n for n in value.toposort() if n.op == O.LOAD]
    kept = [n for n in loads if n.src[0].src[0] is ready]
    columns = {n.src[0].src[1] for n in kept}
    if len(columns) != 1 or len(place.src) != 2 or place.src[0].op != O.PARAM:
        return None
    (column,) = columns
    start = sub(place.src[1], column)
    outer = tuple([r for r in loops if r in start.ranges])
    inner = set(loops[len(outer) :])
    # A core that finishes a part of the row would fill all of it.
    is_whole = not any(n.op == O.DEFINE_VAR for n in column.toposort())
    is_inside = is_whole and tuple(loops[: len(outer)]) == outer and column.ranges <= inner
    # Of what else is read here, the result may be replacing the element.
    others = any(not n.ranges.isdisjoint(inner) for n in loads if n not in kept)
    if not is_inside or others or ready.dtype is not value.dtype:
        return None
    return _Row(place.src[0], start, outer)


def _shared(result: UOp, reduction: UOp, column: UOp) -> UOp | None:
    """The largest value of the result that a heavy reduction computes too, along its own loop."""
    row = reduction.src[1]
    if not _is_heavy(reduction.src[0], row):
        return None
    below = set(reduction.src[0].toposort())
    for node in reversed(result.toposort()):
        if node.op not in O.ELEMENTWISE or column not in node.ranges or node.dtype.kind != "f":
            continue
        if replace_all(node, {column: row}) in below:
            return node
    return None


def _is_heavy(value: UOp, along: UOp) -> bool:
    """Whether functions are computed anew in every step of a loop."""
    return any(n.op in O.HEAVY and along in n.ranges for n in value.toposort())


def _kept(value: UOp, row: UOp, column: UOp, number: int) -> UOp:
    """A read of the value from scratch memory, filled by the loop of the reduction."""
    memory = make(O.DEFINE_LOCAL, value.dtype, (), LocalArg(extent(row), 100 + number))
    place = make(O.INDEX, value.dtype, (memory, row))
    store = make(O.STORE, dt.void, (place, replace_all(value, {column: row})))
    kept = make(O.AFTER, value.dtype, (memory, make(O.END, dt.void, (store, row))))
    return make(O.LOAD, value.dtype, (make(O.INDEX, value.dtype, (kept, column)),))
