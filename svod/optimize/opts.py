"""The opts: each changes one axis of a kernel's loop nest and leaves its meaning as it was.

A kernel is ``SINK(END(STORE, *ranges), ...)``. The order of an END's ranges is the order of its
loops. Sizes that do not divide are peeled: the rest gets a smaller tile, or masked lanes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from svod.base.errors import ArgumentError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, const, make, toposort, variable
from svod.ir.reductions import identity
from svod.ir.symbolic import (
    ONE,
    TRUE,
    ZERO,
    add,
    and_,
    idiv,
    lt,
    mod,
    mul,
    num,
    rebuild,
    sub,
    terms_of,
)
from svod.optimize.graph import extent, new_range, replace_all

REST = 4  # copies of what a tile leaves of a run-time size
Piece = tuple[UOp, tuple[UOp, ...], UOp]  # value of the split range, its new ranges, gate


@dataclass(frozen=True, slots=True)
class Opt:
    """One applied opt, as it is printed and stored."""

    name: str
    axis: int
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.name}(axis={self.axis}, amount={self.amount})"


_WRITTEN = re.compile(r"([A-Z]+)\(axis=(-?\d+), amount=(-?\d+)\)")


def read_opts(text: str) -> tuple[Opt, ...]:
    """The opts of a text such as `explain` prints: ``LANE(axis=0, amount=8), THREAD(..)``."""
    found = [_WRITTEN.fullmatch(part) for part in re.split(r", (?=[A-Z])", text) if text]
    opts = [Opt(m[1], int(m[2]), int(m[3])) for m in found if m is not None]
    if len(opts) != len(found):
        raise ArgumentError(f"{text!r} is no list of opts such as LANE(axis=0, amount=8)")
    return tuple(opts)


def merge(order: list[UOp], a: UOp, b: UOp) -> UOp | None:
    """A kernel, given as its nodes, with one range for two that always appear as
    ``a * extent(b) + b``; None when they do not."""
    if b.src[0].op != O.CONST or a.arg.kind is not b.arg.kind:
        return None
    if a.arg.kind not in (AxisKind.LOOP, AxisKind.REDUCE) or not _meets(order, a, b):
        return None
    size = extent(b)
    merged = make(O.RANGE, dt.index, (mul(a.src[0], size),), RangeArg(a.arg.id, a.arg.kind))
    done: dict[UOp, UOp] = {a: idiv(merged, size), b: mod(merged, size)}
    for node in order:
        if node in done:
            continue
        src = node.src
        if node.op in (O.END, O.REDUCE) and b in src:
            loops = [merged if s is a else done[s] for s in src[1:] if s is not b]
            done[node] = make(node.op, node.dtype, (done[src[0]], *loops), node.arg)
            continue
        new = tuple([done[s] for s in src])
        done[node] = node if new == src else rebuild(node, new)
    result = done[order[-1]]
    for node in result.toposort():
        if node.op in (O.IDIV, O.MOD) and node.dtype is dt.index and merged in node.ranges:
            return None
    return result


def _meets(order: list[UOp], a: UOp, b: UOp) -> bool:
    """Whether a and b are closed side by side and appear only as ``a * extent(b) + b``."""
    size = extent(b)
    for node in order:
        op = node.op
        if op == O.END or op == O.REDUCE:
            ranges = node.src[1:]
            if (a in ranges) != (b in ranges):
                return False
            if a in ranges and ranges.index(b) != ranges.index(a) + 1:
                return False
            continue
        if op == O.INDEX:
            used: tuple[UOp, ...] = (node.src[1],)
        elif node.dtype is not dt.index:
            used = tuple([s for s in node.src if s.dtype is dt.index])
        elif op == O.RANGE or op == O.MAX or op == O.MIN or op == O.WHERE:
            used = node.src
        else:
            continue
        for place in used:
            ranges_here = place.ranges
            if a not in ranges_here and b not in ranges_here:
                continue
            terms, _ = terms_of(place)
            if terms.get(a, 0) != terms.get(b, 0) * size:
                return False
            for term in terms:
                if term is not a and term is not b and (a in term.ranges or b in term.ranges):
                    return False
    return True


def split(sink: UOp, r: UOp, factor: int, kind: AxisKind) -> UOp:
    """r as an outer loop and an inner axis of ``factor`` and ``kind``, with the rest peeled."""
    if r.src[0].op != O.CONST:
        return _replace_by_pieces(sink, r, _run_time_pieces(sink, r, factor, kind))
    size = extent(r)
    whole, rest = divmod(size, factor)
    pieces: list[Piece] = []
    if whole:
        inner = new_range(sink, factor, kind)
        if whole == 1:
            pieces.append((inner, (inner,), TRUE))
        else:
            outer = make(O.RANGE, dt.index, (num(whole),), RangeArg(inner.arg.id + 1, r.arg.kind))
            pieces.append((add(mul(outer, factor), inner), (outer, inner), TRUE))
    if rest:
        start = num(whole * factor)
        width = 1 << (rest - 1).bit_length() if kind is AxisKind.LANE else rest
        tail = new_range(sink, width, kind)
        tail = make(O.RANGE, dt.index, tail.src, RangeArg(tail.arg.id + 2, kind))
        gate = lt(tail, rest) if width != rest else TRUE
        value = add(tail, start) if whole else tail
        if width == 1:
            value, tail_ranges = start, ()
        else:
            tail_ranges = (tail,)  # type: ignore[assignment]
        pieces.append((value, tail_ranges, gate))
    return _replace_by_pieces(sink, r, pieces)


def _run_time_pieces(sink: UOp, r: UOp, factor: int, kind: AxisKind) -> list[Piece]:
    """Whole tiles, then the rest of a run-time size: masked lanes, or a few and one at a time."""
    size = r.src[0]
    whole, rest = idiv(size, factor), mod(size, factor)
    fresh = new_range(sink, 1, kind).arg.id
    inner = make(O.RANGE, dt.index, (num(factor),), RangeArg(fresh, kind))
    outer = make(O.RANGE, dt.index, (whole,), RangeArg(fresh + 1, r.arg.kind))
    pieces: list[Piece] = [(add(mul(outer, factor), inner), (outer, inner), TRUE)]
    start = mul(whole, factor)
    if kind is AxisKind.LANE:
        lane = make(O.RANGE, dt.index, (num(factor),), RangeArg(fresh + 2, kind))
        any_left = make(O.MIN, dt.index, (rest, num(1)))
        once = make(O.RANGE, dt.index, (any_left,), RangeArg(fresh + 3, r.arg.kind))
        place = add(add(start, once), lane)
        pieces.append((place, (once, lane), lt(lane, rest)))
        return pieces
    if kind is AxisKind.UPCAST and factor >= 2 * REST:  # most of the rest together as well
        few = make(O.RANGE, dt.index, (num(REST),), RangeArg(fresh + 4, kind))
        again = make(O.RANGE, dt.index, (idiv(rest, REST),), RangeArg(fresh + 3, r.arg.kind))
        pieces.append((add(add(start, mul(again, REST)), few), (again, few), TRUE))
        start, rest = add(start, mul(idiv(rest, REST), REST)), mod(rest, REST)
    one = make(O.RANGE, dt.index, (rest,), RangeArg(fresh + 2, r.arg.kind))
    pieces.append((add(start, one), (one,), TRUE))
    return pieces


def _replace_by_pieces(sink: UOp, r: UOp, pieces: list[Piece]) -> UOp:
    ends: list[UOp] = []
    for end in sink.src:
        body = _close_inside(end, r, pieces)
        ends.extend(_end_pieces(body, r, pieces) if r in body.src[1:] else [body])
    return make(O.SINK, dt.void, tuple(ends))


def _end_pieces(end: UOp, r: UOp, pieces: list[Piece]) -> list[UOp]:
    """One END per piece."""
    found = []
    for value, ranges, gate in pieces:
        store = _at(end.src[0], r, value, gate)
        found.append(make(O.END, dt.void, (store, *_with_pieces(end.src[1:], r, ranges))))
    return found


def _with_pieces(loops: tuple[UOp, ...], r: UOp, ranges: tuple[UOp, ...]) -> list[UOp]:
    found: list[UOp] = []
    for s in loops:
        found.extend(ranges if s is r else (s,))
    return found


def _close_inside(end: UOp, r: UOp, pieces: list[Piece]) -> UOp:
    """Reductions and inner stores over r, made of pieces; both keep sharing their loops."""
    done: dict[UOp, UOp] = {}
    stores: dict[UOp, list[UOp]] = {}
    for node in end.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else rebuild(node, src)
        if new.op == O.REDUCE and r in new.src[1:]:
            new = _reduce_pieces(new, r, pieces)
        elif new.op == O.END and node is not end and r in new.src[1:]:
            stores[node] = _end_pieces(new, r, pieces)
        elif new.op == O.AFTER:
            parts = [p for s in node.src for p in stores.get(s, [done[s]])]
            new = make(O.AFTER, new.dtype, tuple(parts))
        done[node] = new
    return done[end]


def _reduce_pieces(node: UOp, r: UOp, pieces: list[Piece]) -> UOp:
    op = node.arg
    total: UOp | None = None
    for value, ranges, gate in pieces:
        body = _at(node.src[0], r, value, gate)
        if gate is not TRUE:
            unit = const(identity(op, body.dtype), body.dtype)
            body = make(O.WHERE, body.dtype, (gate, body, unit))
        loops = _with_pieces(node.src[1:], r, ranges)
        part = make(O.REDUCE, node.dtype, (body, *loops), op) if loops else body
        total = part if total is None else make(op, node.dtype, (total, part))
    assert total is not None
    return total


def replace_by_pieces(
    sink: UOp, old: list[UOp], values: dict[UOp, UOp], ranges: list[UOp], gate: UOp
) -> UOp:
    """Several output axes in terms of others; accesses that move with them are guarded."""
    (end,) = sink.src
    store = _at_all(end.src[0], values, gate)
    loops = [s for s in end.src[1:] if s not in old]
    return make(O.SINK, dt.void, (make(O.END, dt.void, (store, *loops, *ranges)),))


def _at(value: UOp, r: UOp, place: UOp, gate: UOp) -> UOp:
    """The value at r = place, its memory accesses guarded by the gate where they move with r."""
    return _at_all(value, {r: place}, gate)


def _at_all(value: UOp, places: dict[UOp, UOp], gate: UOp) -> UOp:
    done: dict[UOp, UOp] = dict(places)
    for node in value.toposort():
        if node in done:
            continue
        src = tuple([done[s] for s in node.src])
        if src == node.src:
            done[node] = node
        elif node.op == O.INDEX and gate is not TRUE:
            new = and_(src[2], gate) if len(src) == 3 else gate
            done[node] = make(O.INDEX, node.dtype, (src[0], src[1], new))
        else:
            done[node] = rebuild(node, src)
    return done[value]


CORE = "core_id"


def thread(sink: UOp, r: UOp, cores: int) -> UOp:
    """Split r over the core axis in ``cores`` contiguous parts.

    Stores that have no such loop run once, on the last core.
    """
    size = extent(r)
    cores = min(cores, size)
    if cores < 2:
        return sink
    core = variable(CORE, 0, cores - 1)
    total = r.src[0]
    chunk = idiv(add(total, num(cores - 1)), cores)
    if total.op == O.CONST and size % cores == 0:
        count = chunk
    else:
        left = sub(total, mul(core, chunk))
        count = make(O.MAX, dt.index, (make(O.MIN, dt.index, (left, chunk)), ZERO))
    fresh = new_range(sink, 1, r.arg.kind).arg.id
    inner = make(O.RANGE, dt.index, (count,), RangeArg(fresh, r.arg.kind))
    # 1 on the last core, 0 on the others
    last = make(O.MAX, dt.index, (add(core, num(-(cores - 2))), ZERO))
    once = make(O.RANGE, dt.index, (last,), RangeArg(fresh + 1, r.arg.kind))
    place = core if count is ONE else add(mul(core, chunk), inner)
    apart = _apart([e for e in sink.src if r not in e.src[1:]], last, fresh + 2)
    ends = []
    for end in sink.src:
        if r in end.src[1:]:
            (store,) = [replace_all(end.src[0], {r: place})]
            loops = [inner if s is r else s for s in end.src[1:]]
            if place is core:
                loops = [s for s in loops if s is not inner]
            ends.append(make(O.END, dt.void, (store, *loops)))
        else:
            store, *loops = _with_own_ranges(end, apart).src
            ends.append(make(O.END, dt.void, (store, once, *loops)))
    return make(O.SINK, dt.void, tuple(ends))


def _with_own_ranges(end: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """An END over other ranges; stages before it that do not depend on them stay what they are,
    since stores into scratch memory are made once."""
    done: dict[UOp, UOp] = dict(mapping)
    for node in end.toposort():
        if node in done:
            continue
        if node.op == O.END and node is not end and node.ranges.isdisjoint(mapping):
            done[node] = node
            continue
        src = tuple([done[s] for s in node.src])
        done[node] = node if src == node.src else rebuild(node, src)
    return done[end]


def _apart(ends: list[UOp], flag: UOp, fresh: int) -> dict[UOp, UOp]:
    """Ranges of their own for stores that run once: a shared loop would take others with it.

    Reductions are not inside the loop that runs once: theirs are empty where the flag is 0.
    """
    mapping: dict[UOp, UOp] = {}
    closing = [n for n in toposort(ends) if n.op == O.REDUCE or n in ends]
    inner = [n for n in toposort(ends) if n.op == O.END and n not in ends]
    staged = {r for n in toposort(inner) if n.op in (O.REDUCE, O.END) for r in n.src[1:]}
    owned = {r for n in closing for r in n.src[1:] if r not in staged}
    for node in toposort(ends):
        if node in owned and node.arg.kind in (AxisKind.LOOP, AxisKind.REDUCE):
            size = replace_all(node.src[0], mapping)
            size = mul(flag, size) if node.arg.kind is AxisKind.REDUCE else size
            arg = RangeArg(fresh + len(mapping), node.arg.kind)
            mapping[node] = make(O.RANGE, dt.index, (size,), arg)
    return mapping
