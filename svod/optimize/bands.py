"""Bands: two contractions in one kernel, with the rows between them in scratch memory.

``softmax(q @ k.T) @ v`` is a contraction whose row operand is made of another contraction and of
passes along its rows. The rows are taken a band at a time: one stage computes the scores of the
band, further stages pass over them, the last one contracts what they leave. Each stage is a loop
nest of its own; between them is memory of ``rows * columns`` elements, whatever the kernel's size.

A mask that rules out all columns from some point on ends the loops of a band there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, idiv, mul, num, sub, terms_of
from svod.optimize.graph import extent, replace_all, stride
from svod.schedule.costs_cpu import CPU

MEMORY_NUMBER = 200  # of the first band memory; panels and kept rows have lower ones
WIDEST_PASS = CPU.band_lanes  # lanes of a pass over a row, at most
FOLLOWED = frozenset({O.CAST, O.EXP, O.TANH, O.ADD, O.SUB, O.MUL, O.DIV})  # from scores of -inf
STAGE_IDS = 1000  # ranges of stage n have ids from n times this on


@dataclass(slots=True)
class Chain:
    """A kernel that is one contraction after another."""

    reduction: UOp
    rows: UOp  # the operand made of the other contraction
    column: UOp  # the axis that is contracted
    row: UOp | None  # the output axis a band goes along


def find_chain(sink: UOp) -> Chain | None:
    """The two contractions of a kernel, if that is what it is."""
    if len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return None
    outputs = sink.src[0].src[1:]
    if any(r.op != O.RANGE or r.src[0].op != O.CONST for r in outputs):
        return None
    for node in reversed(sink.toposort()):
        if node.op != O.REDUCE or node.arg != O.ADD or len(node.src) != 2:
            continue
        value, column = node.src
        if value.op != O.MUL or column.src[0].op != O.CONST:
            continue
        if not set(node.ranges) <= set(outputs):  # a part of another reduction
            continue
        if not all(column in s.ranges for s in value.src):  # a sum with a factor
            continue
        for rows, columns in (value.src, value.src[::-1]):
            if not _has_contraction(rows) or rows is columns:
                continue
            inside = {node, *rows.toposort()}
            apart = [n for n in sink.toposort() if n.op == O.REDUCE and n not in inside]
            apart = [n for n in apart if n.ranges <= set(outputs)]  # not a part of another one
            if any(not n.ranges <= rows.ranges for n in apart):
                continue  # a band has memory for one value per row
            if any(node in n.toposort() for n in apart):
                continue  # what is made of the result comes after the last stage
            if not _is_chain(rows, column, set(outputs)):
                continue
            own = [r for r in outputs if r in rows.ranges and r not in columns.ranges]
            return Chain(node, rows, column, own[-1] if own else None)
    return None


def _is_chain(rows: UOp, column: UOp, outputs: set[UOp]) -> bool:
    """Whether a row is made of one contraction's scores and passes along them, of nothing else."""
    passes = _row_passes(rows, column)
    places = {column, *[n.src[1] for n in passes]}
    scores: set[UOp] = set()
    for node in rows.toposort():
        if node.op != O.REDUCE:
            continue
        own = [r for r in node.ranges if r in places]
        if not set(node.ranges) <= {*outputs, *own}:
            if any(node in n.src[0].toposort() for n in rows.toposort() if _is_score(n, places)):
                continue  # a part of a score
            return False
        if not own:
            continue  # one value per row, or the same for all
        if node in passes or len(own) > 1 or not _is_score(node, places):
            return False
        scores.add(_with_plain_depth(node, {own[0]: column}))
    return bool(passes) and len(scores) == 1


def _is_score(node: UOp, places: set[UOp]) -> bool:
    """Whether a reduction is a contraction at one place of a row."""
    if node.op != O.REDUCE or node.src[0].op != O.MUL:
        return False
    return any(r in places for r in node.ranges)


def _has_contraction(value: UOp) -> bool:
    return any(n.op == O.REDUCE and n.src[0].op == O.MUL for n in value.toposort())


def _row_passes(value: UOp, column: UOp) -> list[UOp]:
    """Reductions along the row, inner ones first."""
    found = []
    for node in value.toposort():
        if node.op != O.REDUCE or len(node.src) != 2 or node.src[1] is column:
            continue
        if extent(node.src[1]) == extent(column) and _has_contraction(node.src[0]):
            found.append(node)
    return found


@dataclass(slots=True)
class Stage:
    """A loop nest that fills a memory, which later ones read."""

    sink: UOp
    place: UOp  # what later stages read it as
    memory: UOp  # where it is


@dataclass(slots=True)
class Bands:
    """The stages of a kernel, the one that stores the result last; and where a band ends."""

    stages: list[Stage] = field(default_factory=list)
    result: UOp | None = None
    end: UOp | None = None  # columns a band needs, where it is fewer than all
    columns: int = 0

    def attach(self, sinks: list[UOp]) -> UOp:
        """One kernel: every stage waits for what it reads."""
        ready: dict[UOp, UOp] = {}
        for stage, sink in zip(self.stages, sinks, strict=False):
            memory = stage.memory if len(sink.src) == 1 else stage.place
            sink = replace_all(self._ended(sink), {**ready, stage.place: memory})
            ready[stage.place] = make(O.AFTER, memory.dtype, (memory, *sink.src))
        return replace_all(self._ended(sinks[-1]), ready)

    def _ended(self, sink: UOp) -> UOp:
        """Loops over columns end where the band does."""
        mapping = self.endings(sink)
        return replace_all(sink, mapping) if mapping else sink

    def endings(self, sink: UOp) -> dict[UOp, UOp]:
        """The loops over columns, with those that end where the band does."""
        if self.end is None:
            return {}
        places = {s.place for s in self.stages}
        indices = [n for n in sink.toposort() if n.op == O.INDEX and n.src[0] in places]
        mapping: dict[UOp, UOp] = {}
        kinds = (AxisKind.LOOP, AxisKind.REDUCE)
        for r in {r for n in indices for r in n.ranges if r.arg.kind in kinds}:
            steps = {stride(n, r) or 0 for n in indices if r in n.src[1].ranges}
            if len(steps) != 1 or r.src[0].op != O.CONST or r in self.end.ranges:
                continue
            (step,) = steps
            if 0 < step < self.columns:
                # What is stored is there for whole vectors of the passes that read it.
                grain = WIDEST_PASS if r.arg.kind is AxisKind.LOOP else 1
                end = mul(idiv(add(self.end, num(grain - 1)), grain), grain)
                last = idiv(add(end, num(step - 1)), step)
                mapping[r] = make(O.RANGE, dt.index, (_smaller(last, r.src[0]),), r.arg)
        return mapping


def make_bands(sink: UOp, rows: int) -> Bands | None:
    """The kernel in stages, for bands of ``rows`` rows; None where it is no such kernel."""
    found = find_chain(sink)
    if found is None:
        return None
    builder = _Builder(sink, found, rows)
    return builder.build()


def make_finish(sink: UOp, axis: int, count: int) -> Bands | None:
    """Sums into scratch memory, ``count`` columns at a time, and what follows them in a pass over
    it: lanes of the sums lie along the depth, those of the pass along the columns."""
    reductions = [n for n in sink.toposort() if n.op == O.REDUCE]
    if len(sink.src) != 1 or len(reductions) != 1 or sink.src[0].src[0].arg == "ordered":
        return None
    (end,), (total,) = sink.src, reductions
    outputs = end.src[1:]
    column = outputs[-1]
    if any(r.src[0].op != O.CONST for r in outputs) or column.arg.id != axis:
        return None
    if column not in total.ranges or extent(column) % count:
        return None
    fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
    outer = make(O.RANGE, dt.index, (num(extent(column) // count),), RangeArg(fresh, AxisKind.LOOP))
    inner = make(O.RANGE, dt.index, (num(count),), RangeArg(fresh + 1, AxisKind.LOOP))
    store = replace_all(end.src[0], {column: add(mul(outer, count), inner)})
    (total,) = [n for n in store.toposort() if n.op == O.REDUCE]
    rows = [r for r in outputs[:-1] if r in total.ranges]
    offset = ZERO
    for r in [*rows, inner]:
        offset = add(mul(offset, extent(r)), r)
    size = prod([extent(r) for r in rows]) * count
    place = make(O.DEFINE_LOCAL, total.dtype, (), LocalArg(size, MEMORY_NUMBER))
    index = make(O.INDEX, total.dtype, (place, offset))
    sums = make(O.END, dt.void, (make(O.STORE, dt.void, (index, total)), *rows, inner))
    finished = replace_all(store, {total: make(O.LOAD, total.dtype, (index,))})
    result = make(O.END, dt.void, (finished, outer, *outputs[:-1], inner))
    bands = Bands(result=make(O.SINK, dt.void, (result,)))
    bands.stages.append(Stage(_own_ranges(sums, STAGE_IDS), place, place))
    return bands


def _own_ranges(end: UOp, first: int) -> UOp:
    """A stage with ranges of its own for all it closes."""
    closed = [s for n in end.toposort() if n.op in (O.REDUCE, O.END) for s in n.src[1:]]
    mapping = {
        r: make(O.RANGE, dt.index, r.src, RangeArg(first + i, r.arg.kind))
        for i, r in enumerate(dict.fromkeys(closed))
    }
    return make(O.SINK, dt.void, (replace_all(end, mapping),))


class _Builder:
    def __init__(self, sink: UOp, chain: Chain, rows: int) -> None:
        self.bands = Bands(columns=extent(chain.column))
        self.fresh = 1 + max([n.arg.id for n in sink.toposort() if n.op == O.RANGE])
        self.column = chain.column
        self.places: list[UOp] = []  # the loops of passes along the row
        sink = _factors_outside(sink, chain)
        self.row, self.start = ZERO, ZERO
        self.rows = 1
        if chain.row is not None:
            self.rows = min(rows, extent(chain.row))
            sink = self._band_axis(sink, chain.row)
        self.sink = sink

    def _band_axis(self, sink: UOp, axis: UOp) -> UOp:
        """The row axis as bands and rows in them; the last band ends with the axis."""
        total, rows = extent(axis), self.rows
        count = -(-total // rows)
        band = self._range(count) if count > 1 else ZERO
        self.row = self._range(rows) if rows > 1 else ZERO
        start = mul(band, rows)
        self.start = start if total % rows == 0 else _smaller(start, num(total - rows))
        loops: list[UOp] = []
        for r in sink.src[0].src[1:]:
            loops.extend([n for n in (band, self.row) if n.op == O.RANGE] if r is axis else [r])
        store = replace_all(sink.src[0].src[0], {axis: add(self.start, self.row)})
        return make(O.SINK, dt.void, (make(O.END, dt.void, (store, *loops)),))

    def _range(self, size: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
        self.fresh += 1
        return make(O.RANGE, dt.index, (num(size),), RangeArg(self.fresh, kind))

    def build(self) -> Bands | None:
        chain = find_chain(self.sink)
        if chain is None:  # cut into bands, it is a chain no more
            return None
        self.column = chain.column
        self.places = [n.src[1] for n in _row_passes(self.sink, self.column)]
        self.sink = _shared_depth(self.sink, dict.fromkeys(self.places, self.column))
        for own in self.places:
            (node,) = [n for n in self.sink.toposort() if n.op == O.REDUCE and own in n.src[1:]]
            self.sink = replace_all(self.sink, self._stage_of(node))
        if _contraction_over(self.sink, self.column) is None:
            return None  # what it reads was kept with a pass over the row
        for node in self._scalars():
            self.sink = replace_all(self.sink, {node: self._row_value(node)})
        chain_rows = self._row_operand()
        if chain_rows is None:
            return None
        if chain_rows.op != O.LOAD:
            load = self._keep(chain_rows, self.column)
            self.sink = replace_all(self.sink, {chain_rows: load(self.column)})
        self.bands.result = self.sink
        if not self._ends_early():
            self.bands.end = None
        self._end_passes()
        self._share_memory()
        return self.bands

    # -- stages ------------------------------------------------------------------------------------

    def _stage_of(self, node: UOp) -> dict[UOp, UOp]:
        """Keep what a pass along the row reads, unless it is read from memory already."""
        value, own = node.src
        has_work = any(n.op == O.REDUCE and own in n.ranges for n in value.toposort())
        heavy = any(n.op in O.HEAVY and own in n.ranges for n in value.toposort())
        if not has_work and not heavy:
            return {}
        if not self.bands.stages:
            self.bands.end = _last_column(value, own, self.row)
        load = self._keep(value, own)
        places = {self.column, *self.places}
        return {replace_all(value, {own: x}): load(x) for x in places}

    def _keep(self, value: UOp, own: UOp):  # type: ignore[no-untyped-def]
        """A stage that stores a value along the rows of the band, and how it is read."""
        columns = self.bands.columns
        number = MEMORY_NUMBER + len(self.bands.stages)
        place = make(O.DEFINE_LOCAL, value.dtype, (), LocalArg(self.rows * columns, number))

        def at(column: UOp) -> UOp:
            offset = add(mul(self.row, columns), column)
            return make(O.INDEX, value.dtype, (place, offset))

        column = self._range(columns)
        store = make(O.STORE, dt.void, (at(column), replace_all(value, {own: column})))
        loops = [r for r in (self.row, column) if r.op == O.RANGE]
        self._add(make(O.END, dt.void, (store, *loops)), place)
        return lambda column: make(O.LOAD, value.dtype, (at(column),))

    def _row_value(self, value: UOp) -> UOp:
        """One value per row of the band, computed by a stage."""
        number = MEMORY_NUMBER + len(self.bands.stages)
        place = make(O.DEFINE_LOCAL, value.dtype, (), LocalArg(self.rows, number))
        index = make(O.INDEX, value.dtype, (place, self.row))
        loops = [self.row] if self.row.op == O.RANGE else [self._range(1)]
        end = make(O.END, dt.void, (make(O.STORE, dt.void, (index, value)), *loops))
        self._add(end, place)
        return make(O.LOAD, value.dtype, (index,))

    def _add(self, end: UOp, place: UOp) -> None:
        sink = _own_ranges(end, STAGE_IDS * (1 + len(self.bands.stages)))
        self.bands.stages.append(Stage(sink, place, place))

    def _row_operand(self) -> UOp | None:
        """What the contraction reads of a row; None where nothing depends on it."""
        chain = _contraction_over(self.sink, self.column)
        for s in chain.src[0].src if chain is not None else ():
            if self.row in s.ranges or (self.row.op != O.RANGE and _reads_band(s)):
                return s
        return None

    def _scalars(self) -> list[UOp]:
        """Reductions of the last stage other than the contraction, outer ones first."""
        main = _contraction_over(self.sink, self.column)
        found = [n for n in self.sink.toposort() if n.op == O.REDUCE and n is not main]
        return [n for n in found if not any(n in m.src[0].toposort() for m in found if m is not n)]

    def _ends_early(self) -> bool:
        """Whether columns that the mask rules out change no maximum and no sum."""
        if self.bands.end is None:
            return False
        left: dict[UOp, float | None] = {}  # what a memory holds for such columns
        for stage in self.bands.stages:
            store = stage.sink.src[0].src[0]
            if not all(_is_neutral(n, left) for n in store.toposort() if n.op == O.REDUCE):
                return False
            first = stage is self.bands.stages[0]
            left[stage.place] = -inf if first else _left_of(store.src[1], left)
        return all(_is_neutral(n, left) for n in self.sink.toposort() if n.op == O.REDUCE)

    def _end_passes(self) -> None:
        """Passes whose lanes would leave a rest end where the band does, to the element."""
        end, columns = self.bands.end, self.bands.columns
        if end is None or columns % WIDEST_PASS == 0:
            return
        for stage in self.bands.stages[1:]:
            stage.sink = replace_all(stage.sink, self.bands.endings(stage.sink))

    def _share_memory(self) -> None:
        """A stage that reads one memory element by element writes its result there."""
        stages = self.bands.stages
        sinks = [*[s.sink for s in stages], self.sink]
        for i, stage in enumerate(stages):
            for before in stages[:i]:
                if before.place.dtype is not stage.place.dtype:
                    continue
                if before.place.arg.size != stage.place.arg.size:
                    continue
                readers = [
                    j
                    for j, s in enumerate(sinks)
                    if j != stages.index(before) and before.place in s.toposort()
                ]
                if readers == [i] and before.memory is before.place:
                    stage.memory = before.memory


def _shared_depth(sink: UOp, same: dict[UOp, UOp]) -> UOp:
    """Scores at different places of the row sum over one range, so they are the same value."""
    known: dict[UOp, tuple[UOp, ...]] = {}
    mapping: dict[UOp, UOp] = {}
    for node in sink.toposort():
        if node.op != O.REDUCE or any(n.op == O.REDUCE for n in node.src[0].toposort()):
            continue
        ranges = node.src[1:]
        first = known.setdefault(_with_plain_depth(node, same), ranges)
        mapping.update(zip(ranges, first, strict=True))
    return replace_all(sink, mapping)


def _with_plain_depth(node: UOp, same: dict[UOp, UOp]) -> UOp:
    """A reduction whose own ranges are numbered, so that equal ones are one node."""
    plain = {
        r: make(O.RANGE, dt.index, r.src, RangeArg(-1 - i, r.arg.kind))
        for i, r in enumerate(node.src[1:])
    }
    return replace_all(node, {**same, **plain})


def _smaller(a: UOp, b: UOp) -> UOp:
    if a.vmax <= b.vmin:
        return a
    return b if b.vmax <= a.vmin else make(O.MIN, dt.index, (a, b))


def _reads_band(value: UOp) -> bool:
    return any(n.op == O.DEFINE_LOCAL for n in value.toposort())


def _contraction_over(sink: UOp, column: UOp) -> UOp | None:
    """The one contraction of this axis; None where there are more or none."""
    found = [
        n for n in sink.toposort()
        if n.op == O.REDUCE and n.src[1:] == (column,) and n.src[0].op == O.MUL
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _factors_outside(sink: UOp, chain: Chain) -> UOp:
    """A divisor that is the same along the row divides the sum once; so does its reciprocal."""
    rows, node = chain.rows, chain.reduction
    if rows.op not in (O.MUL, O.DIV):
        return sink
    is_turned = rows.op == O.MUL and rows.src[0].op == O.RECIP
    value, factor = rows.src[::-1] if is_turned else rows.src
    if chain.column in factor.ranges or (rows.op == O.MUL and factor.op != O.RECIP):
        return sink
    (other,) = [s for s in node.src[0].src if s is not rows]
    product = make(O.MUL, node.src[0].dtype, (value, other))
    total = make(O.REDUCE, node.dtype, (product, *node.src[1:]), node.arg)
    return replace_all(sink, {node: make(rows.op, node.dtype, (total, factor))})


def _last_column(value: UOp, column: UOp, row: UOp) -> UOp | None:
    """Columns before which all of a band's rows end; None where the mask does not tell."""
    if value.op != O.WHERE or value.src[2].op != O.CONST or value.src[2].arg != float("-inf"):
        return None
    test = value.src[0]
    if test.op not in (O.LE, O.LT):
        return None
    a, b = _index_of(test.src[0]), _index_of(test.src[1])
    if a is None or b is None:
        return None
    room = sub(b, a)  # the mask holds where this is at least 0, or 1
    terms, _ = terms_of(room)
    if terms.get(column, 0) != -1 or any(column in t.ranges for t in terms if t is not column):
        return None
    last = replace_all(room, {column: ZERO})
    if row.op == O.RANGE:
        if terms.get(row, 0) < 0 or any(row in t.ranges for t in terms if t is not row):
            return None
        last = replace_all(last, {row: num(extent(row) - 1)})
    end = add(last, num(1 if test.op == O.LE else 0))
    return end if end.vmin >= 0 else make(O.MAX, dt.index, (end, ZERO))


def _is_neutral(node: UOp, left: dict[UOp, float | None]) -> bool:
    """Whether a reduction along a row may leave out the columns that the mask rules out."""
    if not any(n.op == O.DEFINE_LOCAL for n in node.src[0].toposort()):
        return True  # the sum of a score, not one along the row
    found = _left_of(node.src[0], left)
    return found is not None and found == {O.MAX: -inf, O.ADD: 0.0}.get(node.arg)


def _left_of(value: UOp, left: dict[UOp, float | None]) -> float | None:
    """What a value is where scores are -inf, for finite other values: -inf, 0, or unknown."""
    op = value.op
    if op == O.LOAD:
        return left.get(value.src[0].src[0])
    if op not in FOLLOWED:
        return None
    first, *others = [_left_of(s, left) for s in value.src]
    if op == O.CAST or (op in (O.SUB, O.ADD) and first == -inf):
        return first
    if op == O.EXP:
        return 0.0 if first == -inf else None
    zero = first == 0.0 or (op == O.MUL and 0.0 in others)
    return 0.0 if zero and op in (O.MUL, O.DIV, O.TANH) else None


def _index_of(value: UOp) -> UOp | None:
    if value.op == O.CAST and value.src[0].dtype is dt.index:
        return value.src[0]
    return num(int(value.arg)) if value.op == O.CONST and value.dtype.kind in "iu" else None
