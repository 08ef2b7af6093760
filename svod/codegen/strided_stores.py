"""Shuffles and vector stores in place of stores that jump from lane to lane.

In: the stores of a kernel, with their values as vectors. Out: stores of neighbours, for those
that fill memory together. Two forms, as for loads (svod.codegen.strided):

    x[2*lane] = a, x[2*lane + 1] = b   the values are interleaved
    x[n*lane + c], c = 0..             copies side by side are columns of a block: it is transposed
                                       in registers and its rows are written whole
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from svod.codegen.strided import picked, shuffle, transposed
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import add, from_terms, num, terms_of
from svod.optimize.graph import elements_of, extent
from svod.optimize.machine import MAX_STEP, MIN_RUN


class _Jump(NamedTuple):
    """A store at ``base + step*lane + start``, and its place among the ends of the kernel."""

    position: int
    store: UOp
    lane: UOp
    step: int
    base: UOp
    start: int


def shuffled_stores(ends: Sequence[UOp], done: dict[UOp, UOp], vector_bytes: int) -> list[UOp]:
    """The ends of a kernel as vectors, with stores that jump replaced where memory is filled."""
    groups: dict[tuple[object, ...], list[_Jump]] = {}
    for position, end in enumerate(ends):
        jump = _jump(position, end)
        if jump is not None:
            loops = tuple([r for r in end.src[1:] if r is not jump.lane])
            memory = jump.store.src[0].src[0]
            key = memory, jump.lane, jump.step, jump.base, jump.store.src[1].dtype, loops
            groups.setdefault(key, []).append(jump)
    found: dict[int, list[UOp]] = {}
    for jumps in groups.values():
        jumps.sort(key=lambda jump: jump.start)
        for run in _runs(jumps, vector_bytes):
            around = [r for r in ends[run[0].position].src[1:] if r is not run[0].lane]
            values = [done[jump.store.src[1]] for jump in run]
            write = _interleaved if len(run) == run[0].step else _transposed
            stores = write(run, [_full(v, run[0].lane) for v in values], vector_bytes)
            for jump in run:
                found[jump.position] = []
            found[run[0].position] = [make(O.END, dt.void, (s, *around)) for s in stores]
    return [e for i, end in enumerate(ends) for e in found.get(i, (done[end],))]


def _jump(position: int, end: UOp) -> _Jump | None:
    store = end.src[0] if end.op == O.END else end
    if store.op != O.STORE or store.arg == "ordered":
        return None
    index = store.src[0]
    lanes = [r for r in end.src[1:] if r.op == O.RANGE and r.arg.kind is AxisKind.LANE]
    if len(lanes) != 1 or len(index.src) != 2 or elements_of(index) != 1:
        return None
    (lane,) = lanes
    terms, start = terms_of(index.src[1])
    step = terms.pop(lane, 0)
    size = extent(lane)
    if step < 2 or size & (size - 1) or any(lane in t.ranges for t in terms):
        return None
    return _Jump(position, store, lane, step, from_terms(terms, 0), start)


def _runs(jumps: list[_Jump], vector_bytes: int) -> list[list[_Jump]]:
    """Stores of neighbours: all between two lanes when those are near, else a row of a block."""
    step = jumps[0].step
    itemsize = jumps[0].store.src[1].dtype.itemsize
    most = step if step <= MAX_STEP else min(vector_bytes // itemsize, step)
    found: list[list[_Jump]] = []
    for jump in jumps:
        last = found[-1] if found else []
        if last and jump.start == last[-1].start + 1 and len(last) < most:
            last.append(jump)
        else:
            found.append([jump])
    least = step if step <= MAX_STEP else MIN_RUN
    return [run for run in found if len(run) >= least]


def _interleaved(run: list[_Jump], values: list[UOp], vector_bytes: int) -> list[UOp]:
    width, step = extent(run[0].lane), run[0].step
    stores = []
    for part in range(step):
        places = [divmod(part * width + i, step) for i in range(width)]
        vector = picked(values, [(number, lane) for lane, number in places])
        stores.append(_store(run[0], part * width, vector))
    return stores


def _transposed(run: list[_Jump], values: list[UOp], vector_bytes: int) -> list[UOp]:
    """Blocks of as many lanes as a register has, and as many columns."""
    lanes = extent(run[0].lane)
    side = min(lanes, vector_bytes // values[0].dtype.scalar.itemsize)
    while side < len(run):
        side *= 2
    stores = []
    for first in range(0, lanes, side):
        columns = [_cut(v, first, side) for v in values]
        columns += [columns[0]] * (side - len(columns))
        for i, row in enumerate(transposed(columns)[: lanes - first]):
            vector = row if len(run) == side else shuffle((row,), range(len(run)))
            stores.append(_store(run[0], (first + i) * run[0].step, vector))
    return stores


def _cut(value: UOp, first: int, count: int) -> UOp:
    """Some lanes of a vector; past its end, any."""
    lanes = value.dtype.lanes
    if lanes == count:
        return value
    return shuffle((value,), [p if p < lanes else -1 for p in range(first, first + count)])


def _full(value: UOp, lane: UOp) -> UOp:
    lanes = extent(lane)
    if value.dtype.lanes == lanes:
        return value
    if value.op == O.CONST:
        return const(value.arg, value.dtype.vec(lanes))
    return make(O.BROADCAST, value.dtype.vec(lanes), (value,))


def _store(jump: _Jump, offset: int, vector: UOp) -> UOp:
    index = jump.store.src[0]
    place = add(jump.base, num(jump.start + offset))
    where = make(O.INDEX, index.dtype, (index.src[0], place), "vector")
    return make(O.STORE, dt.void, (where, vector), jump.store.arg)
