"""Images with their borders: what rows of a contraction read through a window, copied once.

In: a staged contraction whose rows are places of an image, and whose lanes are channels. Out: the
same, with the image and its borders in scratch memory; a row reads there what it needs at every
step of the window, without a condition, and no step is stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, lt, mul, num, sub
from svod.optimize.dots import guarded
from svod.optimize.graph import extent, replace_all, stride
from svod.optimize.strips import FIRST_LOCAL, row_operand

MAX_WINDOW = 16  # steps along an axis
LANES = 64  # of copying


@dataclass(frozen=True, slots=True)
class _Axis:
    """A row axis and the steps of a window along it: ``apart * row + dilation * step``."""

    row: UOp
    steps: UOp | None = None
    apart: int = 1  # places from row to row
    dilation: int = 0  # places from step to step

    def size(self, rows: int) -> int:
        """Places that some rows read."""
        more = 0 if self.steps is None else self.dilation * (extent(self.steps) - 1)
        return self.apart * (rows - 1) + more + 1

    def place(self) -> UOp:
        more = ZERO if self.steps is None else mul(self.steps, self.dilation)
        return add(mul(self.row, self.apart), more)

    def at(self, place: UOp) -> dict[UOp, UOp]:
        """One of the two loops, given the place and the other."""
        if self.steps is None:
            return {self.row: place}
        if self.apart == 1:
            return {self.row: sub(place, mul(self.steps, self.dilation))}
        return {self.steps: sub(place, mul(self.row, self.apart))}

    def loops(self) -> list[UOp]:
        return [self.row] if self.steps is None else [self.row, self.steps]


class Image:
    """A row operand as an image: where its places lie, and what is there."""

    def __init__(self, operand: UOp, rows: Sequence[UOp], depth: Sequence[UOp]) -> None:
        self.operand = operand
        self.axes = _axes(operand, rows, depth)
        steps = [a.steps for a in self.axes]
        self.depth = [k for k in depth if k in operand.ranges and k not in steps]

    def rows(self) -> list[UOp]:
        return [axis.row for axis in self.axes]

    def sizes(self, lines: int) -> list[int]:
        """Places along each axis, for some steps of the first."""
        first, *others = self.axes
        return [first.size(lines), *[axis.size(extent(axis.row)) for axis in others]]

    def nbytes(self, lines: int) -> int:
        elements = prod(self.sizes(lines)) * prod(map(extent, self.depth))
        return elements * self.operand.dtype.itemsize

    def value(self, places: list[UOp]) -> UOp | None:
        """The operand at a place of the image; None where it depends on more than that."""
        value = self.operand
        for axis, place in zip(self.axes, places, strict=True):
            value = replace_all(value, axis.at(place))
        gone = [r for axis in self.axes for r in axis.loops()]
        return None if any(r in value.ranges for r in gone) else value


def _axes(operand: UOp, rows: Sequence[UOp], depth: Sequence[UOp]) -> list[_Axis]:
    """Row axes, each with the reduced axis that goes on where the rows do, from the first one that
    has such a window on: outside of it, every step has an image of its own."""
    pairs: dict[tuple[UOp, UOp], _Axis] = {}
    for index in [n.src[0] for n in operand.toposort() if n.op == O.LOAD]:
        for row, steps in product(rows, depth):
            own, other = stride(index, row) or 0, stride(index, steps) or 0
            if min(own, other) < 1 or not 2 <= extent(steps) <= MAX_WINDOW:
                continue
            unit = min(own, other)
            if own % unit == other % unit == 0 and max(own, other) <= MAX_WINDOW * unit:
                pairs[row, steps] = _Axis(row, steps, own // unit, other // unit)
    found: dict[UOp, _Axis] = {}
    for axis in sorted(pairs.values(), key=lambda a: max(a.apart, a.dilation)):
        if axis.row not in found and all(axis.steps is not a.steps for a in found.values()):
            found[axis.row] = axis
    first = next((i for i, r in enumerate(rows) if r in found), len(rows))
    return [found.get(r, _Axis(r)) for r in rows[first:]]


def find_image(operand: UOp, rows: Sequence[UOp], depth: Sequence[UOp]) -> Image | None:
    """The image that some rows read through a window, if they do."""
    if any(r.src[0].op != O.CONST for r in operand.ranges):
        return None
    image = Image(operand, [r for r in rows if r in operand.ranges], depth)
    if not image.axes or image.value([ZERO] * len(image.axes)) is None:
        return None
    return image


def _image_of(end: UOp) -> Image | None:
    operand = row_operand(end)
    if operand is None:
        return None
    (sums,) = [n for n in end.toposort() if n.op == O.REDUCE and operand in n.src[0].src]
    return find_image(operand, list(end.src[1:]), list(sums.src[1:]))


def stage_image(sink: UOp, axis: int, lines: int) -> UOp | None:
    """The row operand read from a copy of its image, some lines of the output at a time; None
    where it reads none, or its lines cannot be cut like that."""
    (end, *others) = sink.src
    image = _image_of(end) if not others else None
    if image is None or image.axes[0].row.arg.id != axis:
        return None
    if lines < 1 or extent(image.axes[0].row) % lines:
        return None
    return _Copy(sink, image, lines).apply(end)


class _Copy:
    """An image in scratch memory: its loops, and what is read from it."""

    def __init__(self, sink: UOp, image: Image, lines: int) -> None:
        self.fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
        self.image, self.lines = image, lines
        first = image.axes[0]
        self.band = self._loop(extent(first.row) // lines)
        arg = RangeArg(first.row.arg.id, AxisKind.LOOP)
        self.line = make(O.RANGE, dt.index, (num(lines),), arg) if lines > 1 else ZERO
        self.axes = [replace(first, row=self.line), *image.axes[1:]]
        self.sizes = [*map(extent, image.depth), *image.sizes(lines)]

    def _loop(self, size: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
        self.fresh += 1
        arg = RangeArg(self.fresh, kind)
        return ZERO if size == 1 else make(O.RANGE, dt.index, (num(size),), arg)

    def apply(self, end: UOp) -> UOp:
        """The store over bands of lines, each with its own copy."""
        image, row = self.image, self.image.axes[0].row
        dtype = image.operand.dtype
        read = self._flat([*image.depth, *[a.place() for a in self.axes]])
        load = make(O.LOAD, dtype, (make(O.INDEX, dtype, (self._copied(), read)),))
        place = add(mul(self.band, self.lines), self.line)
        store = replace_all(end.src[0], {image.operand: load, row: place})
        loops = [self.line if r is row else r for r in end.src[1:]]
        if self.band is not ZERO:
            outer = [r for r in end.src[1:] if r in image.operand.ranges and r not in image.rows()]
            loops = [*outer, self.band, *[r for r in loops if r not in outer]]
        loops = [r for r in loops if r is not ZERO]
        return make(O.SINK, dt.void, (make(O.END, dt.void, (store, *loops)),))

    def _copied(self) -> UOp:
        """The memory of the image, after the stores that fill it."""
        image = self.image
        depth = [self._loop(extent(k)) for k in image.depth]
        *outer, last = image.sizes(self.lines)
        lines = [self._loop(n) for n in outer]
        lanes = min(LANES, 1 << (last - 1).bit_length())
        piece, lane = self._loop(-(-last // lanes)), self._loop(lanes, AxisKind.LANE)
        place = add(mul(piece, lanes), lane)
        places = [*lines, place]
        start = mul(self.band, self.lines * image.axes[0].apart)
        value = image.value([add(start, places[0]), *places[1:]])
        assert value is not None
        value = replace_all(value, dict(zip(image.depth, depth, strict=True)))
        dtype = image.operand.dtype
        memory = make(O.DEFINE_LOCAL, dtype, (), LocalArg(prod(self.sizes), FIRST_LOCAL))
        target: tuple[UOp, ...] = (memory, self._flat([*depth, *places]))
        if last % lanes:
            gate = lt(place, last)
            value, target = guarded(value, gate), (*target, gate)
        store = make(O.STORE, dt.void, (make(O.INDEX, dtype, target), value))
        loops = [r for r in (*depth, *lines, piece, lane) if r is not ZERO]
        return make(O.AFTER, dtype, (memory, make(O.END, dt.void, (store, *loops))))

    def _flat(self, places: list[UOp]) -> UOp:
        total = ZERO
        for size, place in zip(self.sizes, places, strict=True):
            total = add(mul(total, size), place)
        return total
