"""Strips of rows, packed: what the register tile takes of the row operand, once per block.

In: a staged contraction whose rows have an UPCAST axis. Out: the same, with the row operand of
each tile computed into scratch memory before the panels of the block are gone through. Whatever
a row costs (conversions, words of narrow values, a function), it is paid once per block.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, idiv, lt, mod, mul, num
from svod.optimize.contraction import STRIP_LIMIT
from svod.optimize.dots import guarded, is_offset, whole_reads
from svod.optimize.graph import elements_of, extent, replace_all, stride
from svod.schedule.costs_cpu import CPU

LINE_BYTES = CPU.line
PAGE_BYTES = CPU.page  # rows at such a distance would meet in the same few places of a cache
LANE_BYTES = 64
FIRST_LOCAL = 16  # number of the first scratch memory of a strip


def strip_refusal(sink: UOp, r: UOp, copies: int) -> str:
    """Why the rows along r cannot be packed in strips; empty where they can."""
    for end in sink.src:
        operand = row_operand(end)
        if r not in end.src[1:]:
            continue
        if operand is None or r not in operand.ranges:
            return "STRIP takes a row axis of a contraction after its STAGE"
        depth = prod([extent(k) for k in operand.ranges if k not in end.ranges | {*end.src[1:]}])
        if copies * depth * operand.dtype.itemsize > STRIP_LIMIT:
            return f"strips hold up to {STRIP_LIMIT} bytes"
    return ""


def stage_rows(sink: UOp) -> UOp:
    """Every store's row operand read from a packed strip."""
    ends = []
    for number, end in enumerate(sink.src):
        operand = row_operand(end)
        if operand is None or operand.op == O.CONST:
            ends.append(end)
            continue
        fresh = 1 + max(
            [
                n.arg.id
                for n in make(O.SINK, dt.void, (*sink.src, *ends)).toposort()
                if n.op == O.RANGE
            ]
        )
        load = _Strip(end, operand, fresh, FIRST_LOCAL + number).load()
        ends.append(replace_all(end, {operand: load}))
    return make(O.SINK, dt.void, tuple(ends))


def row_operand(end: UOp) -> UOp | None:
    """The operand of the contraction that is the same for all lanes."""
    sums = [n for n in end.toposort() if n.op == O.REDUCE and not is_offset(n)]
    if len(sums) != 1 or sums[0].src[0].op not in (O.MUL, O.DOT):
        return None
    found = [s for s in sums[0].src[0].src if not any(_is_lane(r) for r in s.ranges)]
    return found[0] if len(found) == 1 else None


def _is_lane(r: UOp) -> bool:
    return r.op == O.RANGE and r.arg.kind is AxisKind.LANE


class _Strip:
    """The packed rows of one tile: where each value lies, and the loops that fill it."""

    def __init__(self, end: UOp, operand: UOp, fresh: int, number: int) -> None:
        (self.sum,) = [n for n in end.toposort() if n.op == O.REDUCE and operand in n.src[0].src]
        self.operand, self.fresh, self.number = operand, fresh, number
        self.depth = [r for r in self.sum.src[1:] if r in operand.ranges]
        self.rows = [
            r for r in end.src[1:] if r in operand.ranges and r.arg.kind is AxisKind.UPCAST
        ]
        indices = [n for n in operand.toposort() if n.op == O.INDEX]
        # Rows that are neighbours in memory stay neighbours, else the steps along the depth do.
        self.across = bool(self.rows) and any(stride(i, self.rows[-1]) == 1 for i in indices)

    def load(self) -> UOp:
        """A read of what the strip holds."""
        dtype = self.operand.dtype
        inner, outer = self.depth, self.rows
        if self.across:
            inner, outer = outer, inner
        pitch = _pitch(prod(map(extent, inner)), dtype.itemsize, self.across)
        lines = prod(map(extent, outer))
        memory = make(O.DEFINE_LOCAL, dtype, (), LocalArg(lines * pitch, self.number))
        place = add(mul(_flat(outer), pitch), _flat(inner))
        stores = self._stores(make(O.INDEX, dtype, (memory, place)))
        packed = make(O.AFTER, dtype, (memory, *stores))
        return make(O.LOAD, dtype, (make(O.INDEX, dtype, (packed, place)),))

    def _stores(self, target: UOp) -> list[UOp]:
        """All values of the strip; where only the last step has a border, it is done apart."""
        for r in self.depth:
            steps = extent(r)
            if steps < 3 or r.src[0].op != O.CONST:
                continue
            most = self._range(steps - 1, AxisKind.LOOP)
            body = whole_reads(replace_all(self.operand, {r: most}))
            if _borders(body) < _borders(self.operand):
                first = self._store(body, replace_all(target, {r: most}), {r: most})
                end = {r: num(steps - 1)}
                last = self._store(replace_all(self.operand, end), replace_all(target, end), end)
                return [first, last]
        return [self._store(self.operand, target, {})]

    def _store(self, value: UOp, target: UOp, changed: dict[UOp, UOp]) -> UOp:
        """Values in lanes along the axes they are neighbours on, in loops along the others."""
        axes = [changed.get(r, r) for r in self.depth]
        axes = [r for r in axes if r.op == O.RANGE]
        axes = [*axes, *self.rows] if self.across else [*self.rows, *axes]
        count = _neighbours(axes, value, self.rows if self.across else self.depth, changed)
        inner, outer = axes[len(axes) - count :], axes[: len(axes) - count]
        values = {r: self._loop(r) for r in outer}
        loops = [r for r in values.values() if r is not ZERO]
        size = prod(map(extent, inner))
        lanes = min(LANE_BYTES // value.dtype.itemsize, 1 << (size - 1).bit_length())
        place, gate = ZERO, TRUE
        if size > 1:
            blocks = self._range(-(-size // lanes), AxisKind.LOOP)
            lane = self._range(lanes, AxisKind.LANE)
            loops += [r for r in (blocks, lane) if r is not ZERO]
            place = add(mul(blocks, lanes), lane)
            # An axis may have fewer steps in the last part of the depth.
            whole = reduce(mul, [r.src[0] for r in inner])
            if whole.op != O.CONST or size % lanes:
                gate = lt(place, whole)
        rest = place
        for r in reversed(inner):
            values[r] = rest if r is inner[0] else mod(rest, extent(r))
            rest = idiv(rest, extent(r))
        value, index = replace_all(value, values), replace_all(target, values)
        if gate is not TRUE:
            value = guarded(value, gate)
            index = make(O.INDEX, index.dtype, (*index.src, gate))
        return make(O.END, dt.void, (make(O.STORE, dt.void, (index, value)), *loops))

    def _loop(self, r: UOp) -> UOp:
        """A loop of its own over the steps of another."""
        if r.src[0].op == O.CONST:
            return self._range(extent(r), AxisKind.LOOP)
        self.fresh += 1
        return make(O.RANGE, dt.index, r.src, RangeArg(self.fresh, AxisKind.LOOP))

    def _range(self, size: int, kind: AxisKind) -> UOp:
        if size == 1:
            return ZERO
        self.fresh += 1
        return make(O.RANGE, dt.index, (num(size),), RangeArg(self.fresh, kind))


def _borders(value: UOp) -> int:
    """Reads that depend on a condition."""
    return sum([1 for n in value.toposort() if n.op == O.INDEX and len(n.src) == 3])


def _neighbours(axes: list[UOp], value: UOp, depth: list[UOp], changed: dict[UOp, UOp]) -> int:
    """How many of the last axes are one axis in all memory that is read along them."""
    allowed = [changed.get(r, r) for r in depth]
    indices = [n for n in value.toposort() if n.op == O.INDEX]
    count, size = 0, 1
    for r in reversed(axes):
        moving = [i for i in indices if r in i.ranges]
        steps = [size * elements_of(i) for i in moving]
        if r not in allowed or (count and [stride(i, r) for i in moving] != steps):
            break
        count, size = count + 1, size * extent(r)
    return count


def _pitch(size: int, itemsize: int, across: bool) -> int:
    """Elements from line to line: not a power of two apart, where lines are long."""
    line = LINE_BYTES // itemsize
    if across or size < line:
        return size
    whole = -(-size // line) * line
    return whole + line if whole * itemsize % (PAGE_BYTES // 4) == 0 else whole


def _flat(ranges: list[UOp]) -> UOp:
    total = ZERO
    for r in ranges:
        total = add(mul(total, extent(r) if r.op == O.RANGE else 1), r)
    return total
