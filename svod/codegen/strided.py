"""Vector loads and shuffles in place of loads that jump from lane to lane.

In: the loads of a kernel with LANE axes. Out: vector values for those that memory can give
together. Two forms:

    x[2*lane + c]           neighbours in memory are read whole, and every second one is taken
    x[n*lane + c], c = 0..  copies side by side (UPCAST, UNROLL) are columns of a block: its rows
                            are read whole and the block is transposed in registers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import (
    FALSE,
    TRUE,
    ZERO,
    add,
    and_,
    conjuncts,
    eq,
    from_terms,
    lt,
    mod,
    mul,
    num,
    rebuild,
    sub,
    terms_of,
)
from svod.optimize.graph import elements_of, extent
from svod.optimize.lane_steps import MAX_STEP, MIN_RUN

GROUP_BYTES = 16  # shuffles within groups of this size are cheap everywhere
POSITION = 1_000_000  # numbers of the ranges that count places in memory; they vanish here


class _Jump(NamedTuple):
    """A load at ``base + step*lane + start`` under a gate."""

    load: UOp
    lane: UOp
    step: int
    base: UOp
    start: int
    gate: UOp

    def place(self) -> tuple[UOp, UOp, int, UOp]:
        return self.load.src[0].src[0], self.lane, self.step, self.base


class ShuffledLoads:
    """The vectors of loads that need no gather, made when the first load of a group is asked for.

    By then what it depends on is a vector already: memory that stages fill, tables of indices.
    """

    def __init__(
        self,
        order: Iterable[UOp],
        vector_bytes: int,
        has_masks: bool,
        vector_value: Callable[[UOp], UOp],
    ) -> None:
        self._made = _Made(vector_bytes, has_masks, vector_value)
        self._near: dict[UOp, tuple[list[_Jump], UOp]] = {}
        self._far: dict[UOp, list[_Jump]] = {}
        near: dict[tuple[object, ...], tuple[list[_Jump], UOp]] = {}
        far: dict[tuple[object, ...], list[_Jump]] = {}
        for node in order:
            jump = _jump(node) if node.op == O.LOAD and len(node.src) == 1 else None
            if jump is None:
                continue
            if abs(jump.step) > MAX_STEP:
                self._far[node] = far.setdefault((*jump.place(), jump.gate), [])
                self._far[node].append(jump)
            elif (gate := _gate_of_places(jump)) is not None:
                self._near[node] = near.setdefault((*jump.place(), gate), ([], gate))
                self._near[node][0].append(jump)

    def vector(self, node: UOp) -> UOp | None:
        """What a load is as a vector; None for other nodes, and where a gather is as good."""
        if (near := self._near.get(node)) and near[0]:
            self._made.take_apart(*near)
            near[0].clear()
        elif far := self._far.get(node):
            self._made.transpose(far)
            far.clear()
        return self._made.vectors.get(node)


def _jump(load: UOp) -> _Jump | None:
    lanes = [r for r in load.ranges if r.arg.kind is AxisKind.LANE]
    if len(lanes) != 1 or lanes[0].vmax & (lanes[0].vmax + 1):
        return None
    (lane,) = lanes
    index = load.src[0]
    terms, start = terms_of(index.src[1])
    step, unit = terms.pop(lane, 0), elements_of(index)
    if step in (0, unit) or any(lane in t.ranges for t in terms):
        return None
    if unit > 1 and abs(step) <= MAX_STEP:  # words overlap
        return None
    gate = index.src[2] if len(index.src) == 3 else TRUE
    return _Jump(load, lane, step, from_terms(terms, 0), start, gate)


# -- gates ----------------------------------------------------------------------------------------

_FAR = 1 << 40
_PLACE = make(O.RANGE, dt.index, (num(2 * _FAR),), RangeArg(POSITION, AxisKind.LANE))


def _gate_of_places(jump: _Jump) -> UOp | None:
    """The gate as a condition on the place in memory, counted from the base; None if it is none."""
    gate = TRUE
    place = sub(sub(_PLACE, num(_FAR)), num(jump.start))  # step * lane
    for part in conjuncts(jump.gate):
        if jump.lane not in part.ranges:
            gate = and_(gate, part)
            continue
        if part.op != O.LT or part.src[1].op != O.CONST:
            return None
        terms, constant = terms_of(part.src[0])
        factor = terms.pop(jump.lane, 0)
        if not factor or jump.step % factor or any(jump.lane in t.ranges for t in terms):
            return None
        # factor * lane + rest < limit, times what makes the factor a step
        times = jump.step // factor
        sign = 1 if times > 0 else -1
        rest = mul(from_terms(terms, constant), abs(times))
        limit = abs(times) * (part.src[1].arg - 1) + 1
        gate = and_(gate, lt(add(mul(place, sign), rest), limit))
    return gate


def at(value: UOp, places: dict[UOp, UOp]) -> UOp:
    done = dict(places)
    for node in value.toposort():
        if node not in done:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else rebuild(node, src)
    return done[value]


# -- vectors --------------------------------------------------------------------------------------


class _Made:
    """Vectors made so far."""

    def __init__(
        self, vector_bytes: int, has_masks: bool, vector_value: Callable[[UOp], UOp]
    ) -> None:
        self.vector_bytes, self.has_masks, self.vector_value = vector_bytes, has_masks, vector_value
        self.vectors: dict[UOp, UOp] = {}

    def _width(self, jump: _Jump) -> int:
        """Lanes that are made together: one register."""
        return min(self.vector_bytes // jump.load.dtype.itemsize, extent(jump.lane))

    def take_apart(self, jumps: list[_Jump], gate: UOp) -> None:
        """Loads a few elements apart, from what lies between them too."""
        jumps.sort(key=lambda jump: jump.start)
        while jumps:
            last = jumps[0].start + abs(jumps[0].step)
            together = [jump for jump in jumps if jump.start < last]
            jumps = jumps[len(together) :]
            width = self._width(together[0])
            parts: dict[UOp, list[UOp]] = {jump.load: [] for jump in together}
            for first in range(0, extent(together[0].lane), width):
                self._take_part(together, gate, first, width, parts)
            for load, vectors in parts.items():
                self.vectors[load] = joined(vectors)

    def _take_part(
        self, jumps: list[_Jump], gate: UOp, first: int, width: int, parts: dict[UOp, list[UOp]]
    ) -> None:
        step = jumps[0].step
        places = {j.load: [j.start + step * (first + i) for i in range(width)] for j in jumps}
        wanted = {place for found in places.values() for place in found}
        low, high = min(wanted), max(wanted)
        starts = [*range(low, high - width + 1, width), high - width + 1]
        pieces = [self._piece(jumps, gate, start, width) for start in starts]
        for load, found in places.items():
            chosen = [max([i for i, start in enumerate(starts) if start <= p]) for p in found]
            lanes = [(c, p - starts[c]) for c, p in zip(chosen, found, strict=True)]
            parts[load].append(picked(pieces, lanes))

    def _piece(self, jumps: list[_Jump], gate: UOp, start: int, width: int) -> UOp:
        """Neighbours in memory, of which only those that some load needs are read under a gate."""
        jump = jumps[0]
        place = make(O.RANGE, dt.index, (num(width),), RangeArg(POSITION + 1, AxisKind.LANE))
        if gate is not TRUE:
            gate = at(gate, {_PLACE: add(place, num(start + _FAR))})
            step = abs(jump.step)
            if len({j.start % step for j in jumps}) < step:
                needed = [
                    eq(mod(add(place, num((start - j.start) % step)), step), ZERO) for j in jumps
                ]
                gate = and_(gate, reduce(_either, needed))
        return self._load(jump, add(add(jump.base, num(start)), place), gate)

    def _load(self, jump: _Jump, offset: UOp, gate: UOp) -> UOp:
        memory = jump.load.src[0].src[0]
        places = (memory, offset) if gate is TRUE else (memory, offset, gate)
        index = make(O.INDEX, jump.load.src[0].dtype, places)
        return self.vector_value(make(O.LOAD, jump.load.dtype, (index,)))

    def transpose(self, jumps: list[_Jump]) -> None:
        """Loads of neighbours for lanes that are far apart."""
        by_start = {jump.start: jump for jump in jumps}
        width = self._width(jumps[0])
        starts = sorted(by_start)
        while starts:
            run, unit = [starts[0]], elements_of(jumps[0].load.src[0])
            while len(run) < width and run[-1] + unit in by_start:
                run.append(run[-1] + unit)
            starts = [s for s in starts if s not in run]
            if len(run) < MIN_RUN:
                continue
            parts: list[list[UOp]] = [[] for _ in run]
            for first in range(0, extent(jumps[0].lane), width):
                columns = transposed(
                    [self._row(jumps[0], run, first + i, width) for i in range(width)]
                )
                for part, column in zip(parts, columns, strict=False):
                    assert column is not None
                    part.append(column)
            for start, part in zip(run, parts, strict=True):
                self.vectors[by_start[start].load] = joined(part)

    def _row(self, jump: _Jump, run: list[int], lane: int, width: int) -> UOp:
        """What one lane needs for all columns of a run, as a vector of the full width."""
        gate = at(jump.gate, {jump.lane: num(lane)})
        if gate is FALSE:
            return const(0, jump.load.dtype.vec(width))
        unit = elements_of(jump.load.src[0])
        is_masked = self.has_masks and unit == 1 and len(run) & (len(run) - 1)
        size = width if is_masked else len(run)
        place = make(O.RANGE, dt.index, (num(size),), RangeArg(POSITION + 1, AxisKind.LANE))
        if is_masked:
            gate = and_(gate, lt(place, len(run)))
        offset = add(add(jump.base, num(jump.step * lane + run[0])), mul(place, unit))
        row = self._load(jump, offset, gate)
        if size == width:
            return row
        return shuffle((row,), [*range(len(run)), *[-1] * (width - len(run))])


def _either(a: UOp, b: UOp) -> UOp:
    return make(O.OR, dt.bool_, (a, b))


def shuffle(sources: tuple[UOp, ...], lanes: Sequence[int]) -> UOp:
    dtype = sources[0].dtype.scalar.vec(len(lanes))
    return make(O.SHUFFLE, dtype, sources, tuple(lanes))


def picked(pieces: list[UOp], lanes: list[tuple[int, int]]) -> UOp:
    """A vector with each lane from a piece: two pieces at first, then one more at a time."""
    width = pieces[0].dtype.lanes
    first, *others = sorted({number for number, _ in lanes})
    value = pieces[first]
    at = [place if number == first else -1 for number, place in lanes]  # in the value so far
    if not others:
        return shuffle((value,), at)
    for other in others:
        both = [width + p if n == other else at[i] for i, (n, p) in enumerate(lanes)]
        value = shuffle((value, pieces[other]), both)
        at = [-1 if lane < 0 else i for i, lane in enumerate(both)]
    return value


def joined(vectors: list[UOp]) -> UOp:
    """Vectors of equal size one after the other."""
    while len(vectors) > 1:
        both = range(2 * vectors[0].dtype.lanes)
        vectors = [shuffle((a, b), both) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def transposed(rows: Sequence[UOp | None]) -> Sequence[UOp | None]:
    """The columns of a square of vectors: each step moves one bit of the row number into the lanes.

    The bits below 16 bytes are moved by interleaving two rows, those above by whole groups. The
    places of rows that do not exist may hold anything.
    """
    size = len(rows)
    itemsize = next(r for r in rows if r is not None).dtype.scalar.itemsize
    group = min(size, max(1, GROUP_BYTES // itemsize))
    low, bits = group.bit_length() - 1, size.bit_length() - 1
    for bit in range(low - 1, -1, -1):
        halves = [
            [
                _interleaved(lane % group, half * group // 2, size) + lane - lane % group
                for lane in range(size)
            ]
            for half in (0, 1)
        ]
        rows = _exchanged(rows, bit, halves)
    for bit in range(low, bits):
        groups = size // group
        halves = [
            [
                (2 * (g % (groups // 2)) + half) * group + (size if g >= groups // 2 else 0) + i
                for g in range(groups)
                for i in range(group)
            ]
            for half in (0, 1)
        ]
        rows = _exchanged(rows, bit, halves)
    return rows


def _interleaved(position: int, half: int, size: int) -> int:
    """a0 b0 a1 b1 ..: the lane that comes to a position of a group."""
    return (position >> 1) + half + (size if position & 1 else 0)


def _exchanged(
    rows: Sequence[UOp | None], bit: int, halves: list[list[int]]
) -> Sequence[UOp | None]:
    """Rows that differ in one bit of their number, combined in two ways."""
    found = list(rows)
    for i in range(len(rows)):
        first, second = rows[i], rows[i | 1 << bit]
        if i >> bit & 1 or (first is None and second is None):
            continue
        for place, lanes in zip((i, i | 1 << bit), halves, strict=True):
            found[place] = _pair(first, second, lanes)
    return found


def _pair(first: UOp | None, second: UOp | None, lanes: list[int]) -> UOp:
    """Lanes of two vectors, of which one may not exist."""
    if first is not None and second is not None:
        return shuffle((first, second), lanes)
    size = len(lanes)
    if first is not None:
        return shuffle((first,), [lane if lane < size else -1 for lane in lanes])
    assert second is not None
    return shuffle((second,), [lane - size if lane >= size else -1 for lane in lanes])
