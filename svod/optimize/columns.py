"""Sums down columns: rows are read whole, the sums of a block of columns wait in scratch memory.

``x.sum(0)`` with the sums in registers reads a few cache lines of every row and comes back for
the next ones: memory is asked for small pieces far apart. Swept, each step adds a few rows to the
sums of a block of columns, and memory is read in order.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, const, make
from svod.ir.reductions import identity
from svod.ir.symbolic import rebuild
from svod.optimize.graph import extent, replace_all, stride
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, split
from svod.schedule.costs_cpu import CPU

FIRST_MEMORY = 200  # number of the first scratch memory
SWEPT_ROWS = CPU.swept_rows  # added in one step: as many streams as hardware follows
SWEPT_BYTES = CPU.swept_bytes  # of sums
SWEPT_VECTORS = CPU.swept_vectors


def choose_sweep(sink: UOp, lane: UOp, itemsize: int, machine: Machine) -> list[Opt]:
    """Sweep where the rows do not stay in cache until their next columns are read."""
    if sweep_refusal(sink, lane.arg.id):
        return []
    found = reductions_down(sink, lane)
    for node in found:
        row = node.src[1]
        loads = [n.src[0] for n in node.src[0].toposort() if n.op == O.LOAD]
        moving = [index for index in loads if row in index.ranges and lane in index.ranges]
        in_rows = [stride(i, lane) == 1 and (stride(i, row) or 0) >= extent(lane) for i in moving]
        if not moving or not all(in_rows) or row.src[0].op != O.CONST:
            return []
        if any(r not in index.ranges for index in moving for r in sink.src[0].src[1:]):
            return []  # rows that other outputs need as well
        if (
            extent(row) < 2 * SWEPT_ROWS
            or extent(row) * extent(lane) * itemsize <= machine.l2_bytes
        ):
            return []
    return swept_opts(sink, found, machine, itemsize, SWEPT_ROWS)


def swept_opts(
    sink: UOp, found: list[UOp], machine: Machine, itemsize: int, rows: int
) -> list[Opt]:
    """A sweep that adds some rows in a step, in equal blocks of columns: some for each core where
    cores cannot share the other loops."""
    *others, lane = sink.src[0].src[1:]
    blocks = 1 if prod(map(extent, others)) % machine.cores == 0 else machine.cores
    while extent(lane) * itemsize > blocks * SWEPT_BYTES:
        blocks *= 2
    axes = dict.fromkeys([node.src[1].arg.id for node in found])
    steps = [Opt("UNROLL", axis, rows) for axis in axes]
    return [*steps, Opt("SWEEP", lane.arg.id, max(1, extent(lane) // blocks))]


def sweep_refusal(sink: UOp, axis: int) -> str:
    """Why the columns along an axis cannot be swept; empty where they can."""
    end = sink.src[0]
    if len(sink.src) > 1 or end.src[0].arg == "ordered":
        return "the kernel has several stores, or one with an order"
    if any(n.op == O.DEFINE_LOCAL for n in sink.toposort()):
        return "the kernel has scratch memory"
    column = end.src[-1]
    if len(end.src) < 2 or column.arg.id != axis or column.arg.kind is not AxisKind.LOOP:
        return "SWEEP takes the innermost output axis"
    if column.src[0].op != O.CONST:
        return "the axis has a run-time size"
    found = reductions_down(sink, column)
    if not found:
        return "nothing is reduced along columns of this axis"
    outputs = frozenset(end.src[1:])
    if any(len(_rows(n)) > 1 or not n.ranges <= outputs for n in found):
        return "a reduction has several loops or is inside another loop"
    return ""


def sweep_columns(sink: UOp, columns: int, machine: Machine) -> UOp:
    """Blocks of columns, each swept row by row."""
    *others, column = sink.src[0].src[1:]
    itemsize = max([n.dtype.itemsize for n in reductions_down(sink, column)])
    width = machine.lanes(itemsize)
    sink = split(sink, column, columns, AxisKind.LOOP)
    fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
    sweep = _Sweep(fresh, SWEPT_VECTORS * width)
    sink = make(O.SINK, dt.void, tuple([sweep.apply(e, others) for e in sink.src]))
    for r in sweep.columns:
        vectors = 1
        while vectors < SWEPT_VECTORS and 2 * vectors * width <= extent(r):
            vectors *= 2
        sink = split(sink, r, min(vectors * width, extent(r)), AxisKind.LANE)
    return sink


def reductions_down(sink: UOp, column: UOp) -> list[UOp]:
    """The reductions whose results lie along a column axis."""
    return [n for n in sink.toposort() if _is_swept(n, column)]


def _rows(node: UOp) -> list[UOp]:
    return [r for r in node.src if r.op == O.RANGE and r.arg.kind is AxisKind.REDUCE]


def _is_swept(node: UOp, column: UOp) -> bool:
    return node.op == O.REDUCE and column in node.ranges and bool(_rows(node))


class _Sweep:
    """Reductions as loops over rows and columns of scratch memory."""

    def __init__(self, fresh: int, few: int) -> None:
        self.fresh = fresh
        self.few = few  # columns whose sums fit in registers
        self.memories = FIRST_MEMORY
        self.columns: list[UOp] = []  # loops over columns, to be made of lanes

    def apply(self, end: UOp, others: list[UOp]) -> UOp:
        """One block of columns, inner reductions first; sums of few columns stay in registers."""
        column = end.src[-1]
        if column.op != O.RANGE or column in others:
            return _stepped(end)  # a single column that was left over
        self.columns.append(column)
        if extent(column) <= self.few:
            return _stepped(end)
        done: dict[UOp, UOp] = {}
        # Reductions over the same rows share their loops, unless one needs the other.
        loops: dict[tuple[UOp, int], tuple[UOp, UOp, UOp]] = {}
        depth: dict[UOp, int] = {}
        for node in end.toposort():
            depth[node] = max([depth[s] for s in node.src], default=0)
            src = tuple([done[s] for s in node.src])
            new = node if src == node.src else rebuild(node, src)
            if _is_swept(node, column):
                depth[node] += 1
                (row,) = _rows(node)
                key = row, depth[node]
                if key not in loops:
                    loops[key] = self._loops(row, column)
                new = self._reduced(new, row, column, *loops[key])
            done[node] = new
        return done[end]

    def _loops(self, row: UOp, column: UOp) -> tuple[UOp, UOp, UOp]:
        """Loops over the columns at the start, over the rows, and over the columns of a row."""
        sizes = (column.src, row.src, column.src)
        args = [RangeArg(self.fresh + i, AxisKind.LOOP) for i in range(3)]
        self.fresh += 3
        pairs = zip(sizes, args, strict=True)
        start, rows, columns = [make(O.RANGE, dt.index, size, arg) for size, arg in pairs]
        self.columns += [start, columns]
        return start, rows, columns

    def _reduced(
        self, node: UOp, row: UOp, column: UOp, start: UOp, rows: UOp, columns: UOp
    ) -> UOp:
        """The value of a reduction at a column, read from memory that its loops have filled."""
        dtype = node.dtype
        memory = make(O.DEFINE_LOCAL, dtype, (), LocalArg(extent(column), self.memories))
        self.memories += 1
        around = [r for r in node.ranges if r is not column]  # a block begins anew in each step
        empty = const(identity(node.arg, dtype), dtype)
        cleared = _stored(_waiting(memory, *around), start, empty, start)
        sums = _waiting(memory, cleared, rows)
        body = replace_all(node.src[0], {row: rows, column: columns})
        steps = [r for r in node.src[1:] if r is not row]
        if steps:
            body = make(O.REDUCE, dtype, (body, *steps), node.arg)
        total = make(node.arg, dtype, (_read(sums, columns), body))
        return _read(_waiting(memory, _stored(sums, columns, total, rows, columns)), column)


def _stepped(end: UOp) -> UOp:
    """Reductions that add the rows of a step first, as a sweep does: every column is one sum."""
    done: dict[UOp, UOp] = {}
    for node in end.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else rebuild(node, src)
        rows = _rows(node)
        if node.op == O.REDUCE and rows and len(rows) < len(node.src) - 1:
            steps = [r for r in node.src[1:] if r not in rows]
            inner = make(O.REDUCE, node.dtype, (src[0], *steps), node.arg)
            new = make(O.REDUCE, node.dtype, (inner, *rows), node.arg)
        done[node] = new
    return done[end]


def _waiting(memory: UOp, *events: UOp) -> UOp:
    """Memory after stores, and in this step of the loops."""
    return make(O.AFTER, memory.dtype, (memory, *events)) if events else memory


def _stored(memory: UOp, place: UOp, value: UOp, *loops: UOp) -> UOp:
    store = make(O.STORE, dt.void, (make(O.INDEX, memory.dtype, (memory, place)), value))
    return make(O.END, dt.void, (store, *loops))


def _read(memory: UOp, place: UOp) -> UOp:
    return make(O.LOAD, memory.dtype, (make(O.INDEX, memory.dtype, (memory, place)),))
