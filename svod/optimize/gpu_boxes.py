"""Convolutions on Hopper's tensor cores: the copy engine reads windows where they are.

A window operand is memory whose places are sums: a row of outputs and a tap of the kernel share one
axis of an image, and places outside the image are zeros. The copy engine takes boxes of up to five
axes and fills what lies outside with zeros, which is that. Neighbours in memory are 128 bytes of
channels. Where these are summed, a tile's rows or columns are a box of outputs, ``8 x 8`` pixels of
two images say, and a step of the sum is a tap and some channels. Where they are not, as in the
gradient of a weight, they are the rows or columns, and a step of the sum is a box of pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, conjuncts, idiv, lt, mod, mul, num, terms_of
from svod.optimize.contraction import Contraction, find_contraction
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special, unflatten
from svod.optimize.gpu_tile import (
    COPYING,
    LINE,
    MAP_AXES,
    THREADS,
    Piece,
    TileShape,
    choose_shape,
    gated,
    in_rounds,
    joins_quads,
    kind_of,
    load_of,
    store_lanes,
    store_pieces,
    tile_order,
)
from svod.optimize.graph import extent, renumber, replace_all, stride
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

MOST_BOX = 256  # places of an axis that one box may span
MOST_STRIDE = 8  # of the copy engine along an axis
LEAST_USED = GPU.used_products  # of a tile's products that must be wanted ones
MIN_WORK = GPU.box_work
STORED = GPU.box_stored  # neighbours that a box has where they are stored as neighbours


@dataclass(frozen=True, slots=True)
class BoxAxis:
    """An axis of memory, and the loops whose sum is the place along it."""

    step: int  # elements from one place to the next
    size: int
    terms: tuple[tuple[UOp, int], ...]
    shift: int = 0  # what is taken off the sum


@dataclass(slots=True)
class _Boxes:
    """One operand as the copy engine sees it: axes by their steps, the channels first."""

    memory: UOp
    offset: int
    axes: list[BoxAxis]
    own: list[UOp]  # its rows or columns, in the order of the axes they move along
    line: int  # neighbours that are copied at once
    along_depth: bool  # whether channels are summed
    least: int = 1  # neighbours along the first of its own in a box

    @property
    def mixes(self) -> bool:
        """Whether an axis has both outputs and taps: these are windows."""
        return any(len(axis.terms) > 1 or axis.shift for axis in self.axes)

    def parts(self, tile: int) -> dict[UOp, int]:
        """How a tile is shared out among its own axes."""
        least = self.least if self.along_depth else self.line
        parts = box_of(tuple(map(extent, self.own)), tile, least)
        return dict(zip(self.own, parts, strict=True))

    def tiles(self, tile: int) -> int:
        return prod([-(-extent(r) // part) for r, part in self.parts(tile).items()])

    def order(self, ranges: dict[UOp, int]) -> list[UOp]:
        """Loops that a box has several steps of, as they follow each other in it."""
        return [r for axis in self.axes for r, _ in axis.terms if ranges.get(r, 1) > 1]

    def boxes(self, parts: dict[UOp, int], steps: dict[UOp, int]) -> list[tuple[int, int]] | None:
        """Per axis the places in a box and the stride between them; None where that is too much."""
        wide = parts if self.along_depth else steps
        found = [(self.line, 1)]
        for axis in self.axes[1:]:
            step, count = next(((f, wide[r]) for r, f in axis.terms if r in wide), (1, 1))
            found.append((count, step if count > 1 else 1))
            if step > MOST_STRIDE or (count - 1) * step + 1 > MOST_BOX:
                return None
        return found

    def pieces(self, parts: dict[UOp, int]) -> tuple[tuple[int, ...], ...]:
        """How far each box of a tile is from its first, along every axis."""
        if self.along_depth:
            return (tuple([0] * len(self.axes)),)
        found = []
        for number in range(prod(parts.values()) // self.line):
            moved: dict[UOp, int] = {}
            for r, part in parts.items():
                size = part // self.line if r is self.own[0] else part
                moved[r] = number % size * (self.line if r is self.own[0] else 1)
                number //= size
            found.append(tuple([_total(axis.terms, moved) for axis in self.axes]))
        return tuple(found)

    def described(self, parts: dict[UOp, int], steps: dict[UOp, int]) -> tuple[object, ...]:
        """Per axis: size, step, box, stride in the box, and the loops of the sum along it."""
        boxes = self.boxes(parts, steps)
        assert boxes is not None
        numbers = list(steps)
        found = []
        for axis, (count, apart) in zip(self.axes, boxes, strict=True):
            moved = [(numbers.index(r), f * steps[r]) for r, f in axis.terms if r in steps]
            span = (count - 1) * apart + 1
            found.append((axis.size, axis.step, span, apart, tuple(moved)))
        return (self.offset, self.along_depth, tuple(found), self.pieces(parts))

    def corner(self, places: dict[UOp, UOp]) -> list[UOp]:
        """Where a tile begins along each axis."""
        found = []
        for axis in self.axes:
            place = num(-axis.shift)
            for r, factor in axis.terms:
                if r in places:
                    place = add(place, mul(places[r], factor))
            found.append(place)
        return found


def _total(terms: tuple[tuple[UOp, int], ...], moved: dict[UOp, int]) -> int:
    return sum([factor * moved.get(r, 0) for r, factor in terms])


def optimize_boxes(sink: UOp, machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The kernel as stores of a tile's pieces; None where it is no product with windows."""
    found = find_contraction(sink) if machine.has_wgmma else None
    if found is None or not found.m:
        return None
    work = prod([extent(r) for r in (*sink.src[0].src[1:], *found.k)])
    kind = kind_of(found, sink, machine)
    if work < MIN_WORK or kind is None or not kind.startswith("wgmma"):
        return None
    operands = _operands(found)
    if operands is None:
        return None
    a, b = operands
    if stride(sink.src[0].src[0].src[0], b.own[0]) == 1:
        b.least = STORED
    steps = _steps(a, b, found.k)
    if steps is None:
        return None
    batch = [r for r in sink.src[0].src[1:] if r not in (*found.m, *found.n)]
    count = prod(map(extent, batch))

    def tiles(rows: int, columns: int) -> int:
        return a.tiles(rows) * b.tiles(columns) * count

    depth = found.sizes.k
    itemsize = load_of(found.rows).dtype.itemsize
    shape = choose_shape(kind, False, itemsize, work // depth, tiles, machine)
    parts = [a.parts(shape.rows), b.parts(shape.columns)]
    done = tiles(shape.rows, shape.columns) * shape.rows * shape.columns * shape.depth
    done *= prod([-(-extent(r) // part) for r, part in steps.items()])
    if work < LEAST_USED * done or None in (a.boxes(parts[0], steps), b.boxes(parts[1], steps)):
        return None
    return _stores(sink, found, machine, shape, operands, parts, steps, batch, kind, applied)


def _stores(
    sink: UOp,
    found: Contraction,
    machine: GpuMachine,
    shape: TileShape,
    operands: tuple[_Boxes, _Boxes],
    parts: list[dict[UOp, int]],
    steps: dict[UOp, int],
    batch: list[UOp],
    kind: str,
    applied: list[Opt],
) -> UOp:
    a, b = operands
    (end,) = sink.src
    counts = [[-(-extent(r) // p) for r, p in part.items()] for part in parts]
    down, across = map(prod, counts)
    number, rounds = in_rounds(down * across * prod(map(extent, batch)), machine)
    number, which = mod(number, down * across), idiv(number, down * across)
    values = unflatten(which, batch)
    starts = dict(values)
    for place, part, sizes in zip(tile_order(number, down, across), parts, counts, strict=True):
        for (r, size), tiles in zip(part.items(), sizes, strict=True):
            starts[r] = mul(place if r is list(part)[-1] else mod(place, tiles), size)
            place = idiv(place, tiles)
    arg = (
        "tile", f"boxes.{kind.partition('.')[2]}", shape.rows, shape.columns, shape.depth,
        shape.stages, tuple([-(-extent(r) // part) for r, part in steps.items()]),
        a.described(parts[0], steps), b.described(parts[1], steps),
    )  # fmt: skip
    total = dt.int32 if found.reduction.dtype.kind in "iu" else dt.float32
    sources = (a.memory, b.memory, rounds, *a.corner(starts), *b.corner(starts))
    tile = make(O.BARRIER, total, sources, arg)
    applied += [
        Opt("TILE", found.m[-1].arg.id, shape.rows),
        Opt("TILE", found.n[-1].arg.id, shape.columns),
        Opt("TC", max(steps, key=lambda r: steps[r]).arg.id, shape.depth),
    ]
    index, last = end.src[0].src[0], b.own[0]
    lanes = store_lanes(index, last, shape)
    lanes = lanes if parts[1][last] % lanes == 0 else 1
    joins = lanes == 2 and parts[1][last] % 32 == 0 and joins_quads(index, last, shape)

    def locate(piece: Piece) -> tuple[dict[UOp, UOp], UOp]:
        places, gate = dict(values), TRUE
        for place, part in ((piece.m, parts[0]), (piece.n, parts[1])):
            for r, size in part.items():
                inner = place if r is list(part)[-1] else mod(place, size)
                places[r] = add(starts[r], inner)
                gate = and_(gate, lt(places[r], extent(r)))
                place = idiv(place, size)
        if lanes > 1:
            places[last] = add(places[last], piece.lane)
        return places, gate

    threads = THREADS + COPYING
    return store_pieces(end, found.reduction, tile, shape, (lanes, joins), threads, locate, rounds)


def _steps(a: _Boxes, b: _Boxes, summed: Sequence[UOp]) -> dict[UOp, int] | None:
    """How many steps of each loop of the sum a step of the tile is; None where there is no way.

    What lies past the end of a loop must be nothing in both operands: zeros times anything is
    nothing only where that is finite. So a loop ends with a box, unless both have zeros there.
    """
    if a.along_depth or b.along_depth:
        one = (a if a.along_depth else b).axes[0].terms[0][0]
        splits = [{one: a.line}]
    else:
        ordered = [r for axis in a.axes for r, _ in axis.terms if r in summed]
        splits = [dict(zip(ordered, s, strict=True)) for s in _splits(a.line, len(ordered))]
        splits.reverse()  # neighbours first
    best: tuple[int, dict[UOp, int]] | None = None
    for parts in splits:
        if any(extent(r) % n and not (_ends(a, r) and _ends(b, r)) for r, n in parts.items()):
            continue
        if a.order(parts) != b.order(parts):
            continue
        count = prod([-(-extent(r) // parts.get(r, 1)) for r in summed])
        if best is None or count < best[0]:
            best = (count, {r: parts.get(r, 1) for r in summed})
    return best and best[1]


def _ends(o: _Boxes, r: UOp) -> bool:
    """Whether memory ends, for the copy engine, where a loop does."""
    (axis,) = [axis for axis in o.axes if any(term is r for term, _ in axis.terms)]
    ((_, factor), *others) = axis.terms
    return not others and not axis.shift and axis.size == (extent(r) - 1) * factor + 1


@cache
def box_of(extents: tuple[int, ...], tile: int, least: int = 1) -> tuple[int, ...]:
    """Powers of two whose product is the tile, so that few boxes cover all; the first is not below
    what is wanted of it, and they are as large as that allows."""

    def cost(parts: tuple[int, ...]) -> tuple[int, ...]:
        boxes = prod([-(-size // part) for size, part in zip(extents, parts, strict=True)])
        return (max(least - parts[0], 0), boxes, *[-part for part in parts])

    return min(_splits(tile, len(extents)), key=cost)


def _splits(tile: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (tile,)
        return
    part = 1
    while part <= tile:
        for rest in _splits(tile // part, count - 1):
            yield (part, *rest)
        part *= 2


# -- what the copy engine would have to read ------------------------------------------------------


def _operands(found: Contraction) -> tuple[_Boxes, _Boxes] | None:
    """Both operands; None where neither has windows."""
    operands = []
    for factor, own in ((found.rows, found.m), (found.columns, found.n)):
        load = load_of(factor)
        if load.op != O.LOAD or load.src[0].src[0].op != O.PARAM:
            return None
        read = _axes(load, own, found.k)
        if read is None:
            return None
        offset, axes = read
        moved = [[r for r, _ in axis.terms if r in own] for axis in axes]
        ordered = [r for ranges in moved for r in ranges]
        if any(len(ranges) > 1 for ranges in moved) or len(ordered) != len(own):
            return None
        first = axes[0].terms[0][0]
        if first not in (*found.k, *own) or (first in own and load.dtype.itemsize != 2):
            return None
        line = LINE // load.dtype.itemsize
        memory = load.src[0].src[0]
        operands.append(_Boxes(memory, offset, axes, ordered, line, first in found.k))
    a, b = operands
    if a.along_depth and b.along_depth and a.axes[0].terms != b.axes[0].terms:
        return None
    return (a, b) if a.mixes or b.mixes else None


def _axes(load: UOp, own: Sequence[UOp], summed: Sequence[UOp]) -> tuple[int, list[BoxAxis]] | None:
    """The elements before the first place, and the axes of memory; None where they are not such
    that the copy engine reads zeros exactly where there is nothing to load."""
    index = load.src[0]
    terms, constant = terms_of(index.src[1])
    if any(r.op != O.RANGE or step < 1 for r, step in terms.items()):
        return None
    bounds = bounds_of(index.src[2]) if len(index.src) > 2 else {}
    if bounds is None:
        return None
    left = dict(terms)
    axes = []
    for group, (low, high) in bounds.items():
        steps = {left.pop(r, 0) / factor for r, factor in group}
        (step, *others) = steps
        if others or step < 1 or step != int(step):
            return None
        axes.append(_axis(int(step), group, low, high))
        constant += axes[-1].shift * int(step)
    axes += _free_axes(left, own, summed)
    axes.sort(key=lambda axis: axis.step)
    itemsize = load.dtype.itemsize
    steps_fit = all(axis.step * itemsize % 16 == 0 for axis in axes[1:])
    one = axes[0]
    is_row = one.step == 1 and len(one.terms) == 1 and one.terms[0][1] == 1 and not one.shift
    if not is_row or not steps_fit or len(axes) > MAP_AXES:
        return None
    if len(axes) < 2 or constant < 0 or constant * itemsize % 16:
        return None
    return constant, axes


def _axis(
    step: int, group: tuple[tuple[UOp, int], ...], low: int | None, high: int | None
) -> BoxAxis:
    """An axis whose places are between bounds, or go as far as the loops do."""
    low = 0 if low is None else low
    if high is None:
        high = sum([(extent(r) - 1) * factor for r, factor in group]) + 1
    return BoxAxis(step, high - low, group, low)


def _free_axes(left: dict[UOp, int], own: Sequence[UOp], summed: Sequence[UOp]) -> list[BoxAxis]:
    """Axes of loops that no gate ties: a tap that steps over an output goes along with those."""
    axes = []
    outputs = [r for r in left if r in own]
    for tap in sorted([r for r in left if r in summed and left[r] > 1], key=lambda r: left[r]):
        meets = {r: left[r] < left[tap] * extent(tap) for r in outputs}
        over = [r for r in outputs if meets[r] and left[tap] < left[r] * extent(r)]
        partner = min(over, key=lambda r: _distance(left[r], left[tap]), default=None)
        if partner is None or _distance(left[partner], left[tap]) > MOST_STRIDE:
            continue
        step = gcd(left[tap], left[partner])
        group = tuple([(r, left.pop(r) // step) for r in (partner, tap)])
        outputs.remove(partner)
        axes.append(_axis(step, group, None, None))
    return axes + [BoxAxis(step, extent(r), ((r, 1),)) for r, step in left.items()]


def _distance(one: int, other: int) -> int:
    """The larger of the two factors that two steps have over their common divisor."""
    return max(one, other) // gcd(one, other)


def bounds_of(
    gate: UOp,
) -> dict[tuple[tuple[UOp, int], ...], tuple[int | None, int | None]] | None:
    """The sums of loops that a gate bounds, each with its least value and the first past it."""
    found: dict[tuple[tuple[UOp, int], ...], tuple[int | None, int | None]] = {}
    tied: dict[UOp, tuple[tuple[UOp, int], ...]] = {}
    for test in conjuncts(gate):
        if test.op != O.LT or test.src[1].op != O.CONST:
            return None
        terms, constant = terms_of(test.src[0])
        limit = test.src[1].arg - constant
        if not terms or any(r.op != O.RANGE for r in terms):
            return None
        is_upper = next(iter(terms.values())) > 0
        if any((factor > 0) is not is_upper for factor in terms.values()):
            return None
        group = tuple(sorted([(r, abs(f)) for r, f in terms.items()], key=lambda t: t[0].arg.id))
        if any(tied.setdefault(r, group) != group for r, _ in group):
            return None
        low, high = found.get(group, (None, None))
        if is_upper:
            high = limit if high is None else min(high, limit)
        else:
            low = 1 - limit if low is None else max(low, 1 - limit)
        found[group] = (low, high)
    return found


# -- where arguments are not aligned --------------------------------------------------------------


def strided_outputs(sink: UOp, kernel: UOp) -> UOp:
    """The kernel as plain loops in the grid of another form of it: the copy engine needs aligned
    memory, and this form does not."""
    sizes = {n.arg: extent(n) for n in kernel.toposort() if n.op == O.SPECIAL}
    (end,) = sink.src
    store, *loops = end.src
    place = ZERO
    for name in ("g0", "l0"):
        size = sizes.get(name, 1)
        place = add(mul(place, size), special(name, size))
    at_once, total = prod(sizes.values()), prod(map(extent, loops))
    rounds = make(O.RANGE, dt.index, (num(-(-total // at_once)),), RangeArg(99, AxisKind.LOOP))
    place = add(mul(rounds, at_once), place)
    moved = gated(replace_all(store, unflatten(place, loops)), lt(place, total))
    return renumber(make(O.SINK, dt.void, (make(O.END, dt.void, (moved, rounds)),)))
