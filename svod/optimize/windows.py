"""Convolutions over lines that are packed once for all steps of their window.

A column of a convolution's operand is a pixel; the steps of the window read its neighbours. Packed
for each step, as panels are, every pixel is copied once per step. Here lines are packed once, with
their borders: the window then reads them at other places. Columns are counted along these longer
lines, so that neighbours stay neighbours; those that fall on a border are computed and dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, and_, ge, idiv, lt, mul, num, sub
from svod.optimize.contraction import (
    MIN_DEPTH,
    MIN_ROWS,
    SCRATCH_LIMIT,
    Contraction,
    choose_dot,
    find_contraction,
    joined_columns,
    reads_along,
    row_count,
    tile_of,
)
from svod.optimize.dots import guarded, is_offset
from svod.optimize.graph import extent, replace_all, stride
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, replace_by_pieces
from svod.schedule.costs_cpu import CPU

MAX_WINDOW = 16  # steps along a line, and lines
LANES = 64  # of packing
LEAST_USED = CPU.used_columns  # of the columns along packed lines are no borders


@dataclass(frozen=True, slots=True)
class _Axis:
    """A column axis and the steps of a window along it."""

    column: UOp
    steps: UOp | None
    apart: int  # columns from step to step

    def more(self) -> int:
        """Columns beyond the last that the window reads."""
        return 0 if self.steps is None else self.apart * (extent(self.steps) - 1)

    def before(self, place: UOp) -> UOp:
        """The column whose first step reads a place, written for any step."""
        return place if self.steps is None else sub(place, mul(self.steps, self.apart))

    def offset(self) -> UOp:
        return ZERO if self.steps is None else mul(self.steps, self.apart)


@dataclass(frozen=True, slots=True)
class Window:
    """Lines and places on a line that a contraction's columns are, with what is read there."""

    found: Contraction
    line: _Axis
    place: _Axis

    def pitch(self) -> int:
        """Places of a packed line."""
        return extent(self.place.column) + self.place.more()

    def positions(self) -> int:
        """Columns, counted along packed lines."""
        return (extent(self.line.column) - 1) * self.pitch() + extent(self.place.column)

    def depth(self) -> list[UOp]:
        """The reduced axes that are no steps of the window."""
        steps = (self.line.steps, self.place.steps)
        return [k for k in self.found.k if k not in steps]


def find_window(sink: UOp, axis: int | None = None) -> Window | None:
    """The window of a contraction, if it reads through one."""
    found = find_contraction(sink, axis)
    if found is None or not found.m or found.reduction.src[0].op != O.MUL:
        return None
    if any(n.op == O.REDUCE and is_offset(n) for n in sink.toposort()):
        return None
    joined = joined_columns(sink.src[0], found)
    if len(joined) != 2:
        return None
    line, place = [_steps_along(found, r) for r in joined]
    if line.steps is None and place.steps is None:
        return None
    window = Window(found, line, place)
    return window if _packed_value(window, ZERO, ZERO) is not None else None


def _steps_along(found: Contraction, column: UOp) -> _Axis:
    """The reduced axis that goes on where a column axis does."""
    for n in found.columns.toposort():
        if n.op != O.LOAD or not (step := stride(n.src[0], column)):
            continue
        for k in found.k:
            other = stride(n.src[0], k) or 0
            apart = other // step
            if other % step or apart < 1 or not 2 <= extent(k) <= MAX_WINDOW:
                continue
            if apart * (extent(k) - 1) < extent(column):
                return _Axis(column, k, apart)
    return _Axis(column, None, 0)


def _packed_value(window: Window, line: UOp, place: UOp) -> UOp | None:
    """The operand at a place of a packed line; None where it is not the same for all steps."""
    columns = {window.line.column: window.line.before(line)}
    columns[window.place.column] = window.place.before(place)
    value = replace_all(window.found.columns, columns)
    steps = [s for s in (window.line.steps, window.place.steps) if s is not None]
    return None if any(s in value.ranges for s in steps) else value


def stage_windows(sink: UOp, axis: int, tile: int, block: int, machine: Machine) -> UOp | None:
    """Columns in panels of ``tile``, the lines of ``block`` panels packed at a time; None where
    that does not fit."""
    window = find_window(sink, axis)
    if window is None or window.place.column.arg.id != axis:
        return None
    width = machine.lanes(max(4, window.found.columns.dtype.itemsize))
    panels = -(-window.positions() // tile)
    if tile % width or panels % block or window.pitch() < width:
        return None
    lines = _Lines(sink, window, tile, width, block)
    if lines.size * window.found.columns.dtype.itemsize > SCRATCH_LIMIT:
        return None
    return lines.apply(sink)


def packed_bytes(window: Window, tile: int, block: int) -> int:
    """Of the lines that a block of panels reads."""
    return (
        _lines_of(window, tile * block)
        * window.pitch()
        * _deep(window)
        * window.found.columns.dtype.itemsize
    )


def _lines_of(window: Window, count: int) -> int:
    """Lines that some columns, from anywhere in a line on, are on or read."""
    own = min(extent(window.line.column), (count + window.pitch() - 2) // window.pitch() + 1)
    return own + window.line.more()


def _deep(window: Window) -> int:
    return prod(map(extent, window.depth()))


class _Lines:
    """The columns as panels along packed lines, and the memory of these lines."""

    def __init__(self, sink: UOp, window: Window, tile: int, width: int, block: int) -> None:
        self.fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
        self.window, self.pitch = window, window.pitch()
        panels = -(-window.positions() // tile)
        self.outer, self.panel = self._range(panels // block), self._range(block)
        part = self._range(tile // width, AxisKind.UPCAST)
        lane = self._range(width, AxisKind.LANE)
        pieces = (width + self.pitch - 2) // self.pitch + 1  # lines that a vector may be on
        self.piece = self._range(pieces, AxisKind.UPCAST)
        self.start = mul(self.outer, block * tile)
        self.vector = add(add(self.start, mul(self.panel, tile)), mul(part, width))
        self.position = add(self.vector, lane)
        self.loops = [r for r in (part, lane, self.piece) if r is not ZERO]
        self.first = idiv(self.start, self.pitch)  # line of the block
        self.lines = _lines_of(window, tile * block)
        beyond = window.line.more() * self.pitch + window.place.more()
        last = self.pitch - 1 + tile * block + beyond  # what lanes past the end read is dropped
        self.line_size = max(self.lines * self.pitch, last + 1)
        self.size = _deep(window) * self.line_size

    def _range(self, size: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
        if size == 1:
            return ZERO
        self.fresh += 1
        return make(O.RANGE, dt.index, (num(size),), RangeArg(self.fresh, kind))

    def apply(self, sink: UOp) -> UOp:
        """The kernel over panels; every vector is stored in pieces of lines."""
        window = self.window
        (end,) = sink.src
        packed = make(O.AFTER, window.found.columns.dtype, self._packed())
        place = sub(self.position, mul(self.first, self.pitch))
        place = add(place, mul(window.line.offset(), self.pitch))
        place = add(add(place, window.place.offset()), mul(self._flat({}), self.line_size))
        load = make(O.LOAD, packed.dtype, (make(O.INDEX, packed.dtype, (packed, place)),))
        whole = make(O.SINK, dt.void, (replace_all(end, {window.found.columns: load}),))
        line = add(idiv(self.vector, self.pitch), self.piece)
        column = sub(self.position, mul(line, self.pitch))
        gate = and_(ge(column, 0), lt(column, extent(window.place.column)))
        gate = and_(gate, lt(line, extent(window.line.column)))
        values = {window.line.column: line, window.place.column: column}
        joined = [window.line.column, window.place.column]
        loops = [r for r in (self.outer, self.panel) if r is not ZERO] + self.loops
        return self._ordered(replace_by_pieces(whole, joined, values, loops, gate))

    def _ordered(self, sink: UOp) -> UOp:
        """Blocks, rows, panels, registers."""
        (end,) = sink.src
        loops = end.src[1:]
        rows = [r for r in loops if r in self.window.found.m]
        inner = [r for r in (self.panel, *self.loops) if r in loops]
        rest = [r for r in loops if r not in rows and r not in inner]
        order = (*rest, *rows, *inner)
        return make(O.SINK, dt.void, (make(O.END, dt.void, (end.src[0], *order)),))

    def _flat(self, mapping: dict[UOp, UOp]) -> UOp:
        total = ZERO
        for k in self.window.depth():
            total = add(mul(total, extent(k)), mapping.get(k, k))
        return total

    def _packed(self) -> tuple[UOp, UOp]:
        """The memory of the lines, and the stores that fill it."""
        window = self.window
        dtype = window.found.columns.dtype
        memory = make(O.DEFINE_LOCAL, dtype, (), LocalArg(self.size, 0))
        mapping = {k: self._range(extent(k)) for k in window.depth()}
        line = self._range(self.lines)
        lanes = min(LANES, 1 << (self.pitch - 1).bit_length())
        piece, lane = self._range(-(-self.pitch // lanes)), self._range(lanes, AxisKind.LANE)
        place, at = add(mul(piece, lanes), lane), add(self.first, line)
        value = _packed_value(window, at, place)
        assert value is not None
        value = replace_all(value, mapping)
        gate = lt(at, extent(window.line.column) + window.line.more())
        gate = and_(gate, lt(place, self.pitch))
        target = add(mul(self._flat(mapping), self.line_size), add(mul(line, self.pitch), place))
        index = make(O.INDEX, dtype, (memory, target, gate))
        store = make(O.STORE, dt.void, (index, guarded(value, gate)))
        loops = [r for r in (*mapping.values(), line, piece, lane) if r is not ZERO]
        return memory, make(O.END, dt.void, (store, *loops))


def choose_window(sink: UOp, machine: Machine) -> list[Opt]:
    """The plan over packed lines; empty where too many columns would fall on borders."""
    window = find_window(sink)
    if window is None or stride(sink.src[0].src[0].src[0], window.place.column) != 1:
        return []
    found = window.found
    if not reads_along(found.rows, found.k) or choose_dot(found, machine) is not None:
        return []
    itemsize = max(4, found.columns.dtype.itemsize)
    width = machine.lanes(itemsize)
    count = row_count(found)
    if count < MIN_ROWS or found.sizes.k < MIN_DEPTH or window.pitch() < width:
        return []
    positions = window.positions()
    vectors, rows = tile_of(positions, count, machine, width)
    tile = vectors * width
    panels = -(-positions // tile)
    used = extent(window.line.column) * extent(window.place.column) / (panels * tile)
    fitting = [
        n
        for n in range(panels, 0, -1)
        if panels % n == 0 and packed_bytes(window, tile, n) <= machine.l2_bytes // 2
    ]
    if used < LEAST_USED or not fitting:
        return []
    axis, row = window.place.column.arg.id, max(found.m, key=extent)
    return [
        Opt("TILE", axis, tile),
        Opt("WINDOW", axis, fitting[0]),
        Opt("UPCAST", row.arg.id, min(rows, extent(row))),
    ]
