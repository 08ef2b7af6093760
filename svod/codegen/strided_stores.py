"""Shuffles and vector stores in place of stores that jump from lane to lane.

In: the stores of a kernel, with their values as vectors. Out: stores of neighbours, for those
that fill memory together. Two forms, as for loads (svod.codegen.strided):

    x[2*lane] = a, x[2*lane + 1] = b   the values are interleaved
    x[n*lane + c], c = 0..             copies side by side are columns of a block: it is transposed
                                       in registers and its rows are written whole
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from svod.codegen.strided import POSITION, at, picked, shuffle, transposed
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import (
    FALSE,
    TRUE,
    add,
    and_,
    conjuncts,
    from_terms,
    lt,
    mul,
    num,
    sub,
    terms_of,
)
from svod.optimize.graph import elements_of, extent
from svod.optimize.lane_steps import MAX_STEP, MIN_RUN


class _Jump(NamedTuple):
    """A store at ``base + step*lane + start``, and its place among the ends of the kernel."""

    position: int
    store: UOp
    lane: UOp
    step: int
    base: UOp
    start: int
    gate: UOp


def shuffled_stores(
    ends: Sequence[UOp],
    done: dict[UOp, UOp],
    vector_bytes: int,
    has_masks: bool,
    vector_value: Callable[[UOp], UOp],
) -> list[UOp]:
    """The ends of a kernel as vectors, with stores that jump replaced where memory is filled."""
    groups: dict[tuple[object, ...], list[_Jump]] = {}
    for position, end in enumerate(ends):
        jump = _jump(position, end)
        if jump is not None:
            loops = tuple([r for r in end.src[1:] if r is not jump.lane])
            memory = jump.store.src[0].src[0]
            key = memory, jump[2:5], jump.gate, jump.store.src[1].dtype, loops
            groups.setdefault(key, []).append(jump)
    found: dict[int, list[UOp]] = {}
    for jumps in groups.values():
        jumps.sort(key=lambda jump: jump.start)
        for run in _runs(jumps, vector_bytes):
            around = [r for r in ends[run[0].position].src[1:] if r is not run[0].lane]
            values = [_full(done[jump.store.src[1]], run[0].lane) for jump in run]
            if run[0].step <= MAX_STEP:
                stores = _interleaved(run, values)
            else:
                stores = _transposed(run, values, vector_bytes, has_masks)
            for jump in run:
                found[jump.position] = []
            for place, vector in stores:
                store = make(O.STORE, dt.void, (vector_value(place), vector), run[0].store.arg)
                found[run[0].position].append(make(O.END, dt.void, (store, *around)))
    return [e for i, end in enumerate(ends) for e in found.get(i, (done[end],))]


def _jump(position: int, end: UOp) -> _Jump | None:
    store = end.src[0] if end.op == O.END else end
    if store.op != O.STORE or store.arg == "ordered":
        return None
    index = store.src[0]
    lanes = [r for r in end.src[1:] if r.op == O.RANGE and r.arg.kind is AxisKind.LANE]
    if len(lanes) != 1 or elements_of(index) != 1:
        return None
    (lane,) = lanes
    terms, start = terms_of(index.src[1])
    step = terms.pop(lane, 0)
    size = extent(lane)
    if step < 2 or size & (size - 1) or any(lane in t.ranges for t in terms):
        return None
    gate = index.src[2] if len(index.src) == 3 else TRUE
    if step <= MAX_STEP and any(_bounded_lane(part, lane) is None for part in conjuncts(gate)):
        return None
    return _Jump(position, store, lane, step, from_terms(terms, 0), start, gate)


def _bounded_lane(part: UOp, lane: UOp) -> tuple[int, UOp, int] | None:
    """A condition as ``factor * lane + rest < limit`` with a factor of 1, -1 or 0; None if it is
    another."""
    if lane not in part.ranges:
        return 0, part, 0
    if part.op != O.LT or part.src[1].op != O.CONST:
        return None
    terms, constant = terms_of(part.src[0])
    factor = terms.pop(lane, 0)
    if abs(factor) != 1 or any(lane in t.ranges for t in terms):
        return None
    return factor, from_terms(terms, constant), part.src[1].arg


def _gate_of_places(jump: _Jump, place: UOp) -> UOp:
    """The gate of the element at ``step * lane + any``, given this sum."""
    gate = TRUE
    for part in conjuncts(jump.gate):
        bounded = _bounded_lane(part, jump.lane)
        assert bounded is not None, "such stores were left out"
        factor, rest, limit = bounded
        if factor == 0:
            gate = and_(gate, part)
        elif factor > 0:  # lane < limit - rest
            gate = and_(gate, lt(add(mul(rest, jump.step), place), jump.step * limit))
        else:  # rest - limit < lane
            first = mul(sub(rest, num(limit - 1)), jump.step)
            gate = and_(gate, lt(sub(first, place), 1))
    return gate


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


def _interleaved(run: list[_Jump], values: list[UOp]) -> list[tuple[UOp, UOp]]:
    """Places in memory and what goes there."""
    width, step = extent(run[0].lane), run[0].step
    stores = []
    for part in range(step):
        places = [divmod(part * width + i, step) for i in range(width)]
        vector = picked(values, [(number, lane) for lane, number in places])
        place = add(_counter(width), num(part * width))
        stores.append((_index(run[0], place, _gate_of_places(run[0], place)), vector))
    return stores


def _transposed(
    run: list[_Jump], values: list[UOp], vector_bytes: int, has_masks: bool
) -> list[tuple[UOp, UOp]]:
    """Blocks of as many lanes as a register has, and as many columns."""
    lanes = extent(run[0].lane)
    side = min(lanes, vector_bytes // values[0].dtype.scalar.itemsize)
    while side < len(run):
        side *= 2
    stores = []
    for first in range(0, lanes, side):
        columns: list[UOp | None] = [_cut(v, first, side) for v in values]
        columns += [None] * (side - len(columns))
        for lane, row in enumerate(transposed(columns)[: lanes - first], first):
            gate = at(run[0].gate, {run[0].lane: num(lane)})
            if gate is FALSE:
                continue
            assert row is not None
            place = _counter(len(run))
            if len(run) & (len(run) - 1) and has_masks:
                place = _counter(side)
                gate = and_(gate, lt(place, len(run)))
            elif len(run) < side:
                row = shuffle((row,), range(len(run)))
            stores.append((_index(run[0], add(place, num(lane * run[0].step)), gate), row))
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


def _counter(size: int) -> UOp:
    return make(O.RANGE, dt.index, (num(size),), RangeArg(POSITION, AxisKind.LANE))


def _index(jump: _Jump, place: UOp, gate: UOp) -> UOp:
    index = jump.store.src[0]
    offset = add(add(jump.base, num(jump.start)), place)
    sources = (index.src[0], offset) if gate is TRUE else (index.src[0], offset, gate)
    return make(O.INDEX, index.dtype, sources)
