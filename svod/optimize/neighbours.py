"""The next opts to try: lists that differ from a given one in one choice.

In: a kernel as rangeify made it, the opts of one candidate, the machine. Out: lists of opts that
all fit. A list has two parts: opts that name axes, and after them MOVE and THREAD, which name
positions. Where the first part changes, the second is chosen anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp
from svod.optimize.actions import Nest, merge_adjacent
from svod.optimize.columns import reductions_down, sweep_refusal, swept_opts
from svod.optimize.contraction import choose_dot, find_contraction, joined_columns
from svod.optimize.graph import extent
from svod.optimize.heuristics import choose_plain, choose_threads, lane_first
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.windows import find_window

VECTORS = (1, 2, 4, 8)  # registers along the lanes
COPIES = (2, 3, 4, 6, 8)  # of an output axis
STEPS = (2, 4, 8)  # of a reduced axis
BLOCKS = (16, 32, 64, 128)
PANEL_VECTORS = (1, 2, 3, 4)
PANEL_ROWS = (4, 6, 8)
BANDS = (8, 16, 32, 64)  # rows of a band, columns that are finished together
SWEPT = (2, 4, 8, 16)  # rows of a sweep
PARTS = (128, 256, 512, 1024)  # steps of the depth
SHARES = (1, 2, 4)  # parts per core, for cores that are not equally fast

# Opts of axes are applied in this order, lanes of reduced axes before those of outputs.
_ORDER = {
    "KEEP": 0, "DOT": 0, "DEPTH": 0, "TILE": 1, "STAGE": 2, "WINDOW": 2, "IMAGE": 2,
    "UNROLL": 3, "UPCAST": 4, "STRIP": 4, "BLOCK": 6, "LANE": 7, "SWEEP": 8,
    "WORDS": 9,
}  # fmt: skip
_STAGED = ("TILE", "STAGE", "WINDOW")


def neighbours(kernel: UOp, opts: Sequence[Opt], machine: Machine) -> list[list[Opt]]:
    """Lists one choice away from ``opts``, each once, the most promising first."""
    ahead = [o for o in opts if o.name == "OUTER"]
    if ahead:
        nest = Nest(merge_adjacent(kernel), machine)
        nest.apply(*ahead)
        inner = [o for o in opts if o.name != "OUTER"]
        return [[*ahead, *each] for each in _inner_neighbours(nest.sink, inner, machine)]
    return _inner_neighbours(merge_adjacent(kernel), opts, machine)


def _inner_neighbours(base: UOp, opts: Sequence[Opt], machine: Machine) -> list[list[Opt]]:
    found: dict[tuple[Opt, ...], None] = {}
    for body in _bodies(base, opts, machine):
        nest = _applied(base, body, machine)
        if nest is not None:
            _choose_positions(nest)
            found[tuple(nest.opts)] = None
    for changed in _positions(base, opts, machine):
        found[tuple(changed)] = None
    found.pop(tuple(opts), None)
    return [list(each) for each in found]


def _applied(base: UOp, opts: Iterable[Opt], machine: Machine) -> Nest | None:
    """The nest after opts; None where one of them does not fit."""
    nest = Nest(base, machine)
    for opt in opts:
        if nest.refusal(opt):
            return None
        nest.apply(opt)
    return None if nest.waiting() else nest


def _choose_positions(nest: Nest) -> None:
    nest.apply(*[move for move in lane_first(nest.main()) if not nest.refusal(move)])
    choose_threads(nest)


# -- opts of axes ---------------------------------------------------------------------------------


def _bodies(base: UOp, opts: Sequence[Opt], machine: Machine) -> Iterator[list[Opt]]:
    body = [o for o in opts if o.name not in ("MOVE", "THREAD")]
    if body and body[0].name in ("BAND", "FINISH"):
        yield from _stages(base, body, machine)
        return
    reduced = {n.arg.id for n in _axes(base) if n.arg.kind is AxisKind.REDUCE}
    staged = any(o.name in _STAGED for o in body)
    yield from _panels(base, body, machine)
    yield from _sweeps(base, body, machine)
    for place, opt in enumerate(body):
        rest = body[:place] + body[place + 1 :]
        for amount in _amounts(base, opt.name, opt.axis, machine):
            if opt.name not in ("KEEP", "SWEEP", *_STAGED) and amount != opt.amount:
                yield [*body[:place], replace(opt, amount=amount), *body[place + 1 :]]
        if opt.name == "LANE" and opt.axis not in reduced:
            for r in _axes(base):
                if r.arg.id not in reduced and r.arg.id != opt.axis:
                    yield _ordered([*rest, replace(opt, axis=r.arg.id)], reduced)
        if opt.name not in _STAGED:
            yield rest
    used = {(o.name, o.axis) for o in body}
    for r in _axes(base):
        names = ("UNROLL", "LANE") if r.arg.id in reduced else ("LANE", "UPCAST", "BLOCK")
        for name in names:
            if (name, r.arg.id) in used or (staged and name in ("LANE", "BLOCK")):
                continue
            for amount in _amounts(base, name, r.arg.id, machine):
                yield _ordered([*body, Opt(name, r.arg.id, amount)], reduced)
    if not any(o.name == "KEEP" for o in body) and not staged:
        yield [Opt("KEEP", base.src[0].src[-1].arg.id), *body] if base.src[0].src[1:] else body


def _stages(base: UOp, body: list[Opt], machine: Machine) -> Iterator[list[Opt]]:
    """Other bands, and other amounts in the loops of one stage."""
    first = body[0]
    for rows in BANDS:
        if rows != first.amount:
            yield [replace(first, amount=rows), *body[1:]]
    nest = Nest(base, machine)
    nest.apply(first)
    sizes = {axis: extent(r) for part in nest.parts for axis, r in part.loops.items()}
    width = machine.lanes(_itemsize(base))
    choices = {"LANE": [width * n for n in VECTORS], "UPCAST": list(COPIES)}
    for place, opt in enumerate(body):
        for amount in choices.get(opt.name, ()):
            if amount != opt.amount and amount <= sizes[opt.axis]:
                yield [*body[:place], replace(opt, amount=amount), *body[place + 1 :]]


def _ordered(opts: list[Opt], reduced: set[int]) -> list[Opt]:
    def rank(opt: Opt) -> int:
        return 5 if opt.name == "LANE" and opt.axis in reduced else _ORDER[opt.name]

    return sorted(opts, key=rank)


def _axes(base: UOp) -> list[UOp]:
    return [n for n in base.toposort() if n.op == O.RANGE]


def _amounts(base: UOp, name: str, axis: int, machine: Machine) -> list[int]:
    """What an opt of this axis may be given."""
    sizes = [extent(r) for r in _axes(base) if r.arg.id == axis]
    if not sizes:
        return []
    size = sizes[0]
    if name == "LANE":
        width = machine.lanes(_itemsize(base)) if machine.vector_bytes else 0
        wide = [width * n for n in VECTORS if width * n <= size]
        return wide or ([1 << (size - 1).bit_length()] if 2 <= size < width else [])
    if name == "UNROLL":
        full = [size] if 2 <= size <= 16 else []
        return sorted({*[n for n in STEPS if n <= size], *full})
    if name in ("UPCAST", "STRIP"):
        return [n for n in COPIES if n <= size]
    if name == "DEPTH":
        return [n for n in PARTS if n < size]
    return [n for n in BLOCKS if 2 * n <= size] if name == "BLOCK" else []


def _itemsize(base: UOp) -> int:
    """Bytes of the widest value in memory; small floats are computed as f32."""
    sizes = [1]
    for n in base.toposort():
        if n.op in (O.LOAD, O.STORE):
            value = n if n.op == O.LOAD else n.src[1]
            sizes.append(max(4, value.dtype.itemsize) if value.dtype.kind == "f" else 1)
            sizes.append(value.dtype.itemsize)
    return max(sizes)


def _panels(base: UOp, body: list[Opt], machine: Machine) -> Iterator[list[Opt]]:
    """Staged plans with other panels, blocks and rows; the plain plan beside a staged one."""
    used = [o.axis for o in body if o.name == "TILE"]
    found = find_contraction(base, *used[:1])
    if found is None or not found.m or not machine.vector_bytes:
        return
    joined = joined_columns(base.src[0], found)
    axis = joined[-1].arg.id
    total = prod(map(extent, joined))
    width = machine.lanes(max(4, found.columns.dtype.itemsize))
    row = max(found.m, key=extent)
    tile = {o.name: o.amount for o in body if o.axis == axis}
    first = [o for o in body if o.name in ("DOT", "DEPTH")]
    rest = [o for o in body if o.name not in ("DOT", "DEPTH", "TILE", "STAGE")]
    words = choose_dot(found, machine)
    if "WINDOW" in tile or "TILE" not in tile:
        yield from _windows(base, machine)
    if "STAGE" in tile:
        columns = tile["TILE"] * tile["STAGE"]
        for vectors in PANEL_VECTORS:
            panels = -(-total // (vectors * width))
            wanted = max(1, columns // (vectors * width))
            near = _divisor(panels, wanted)
            for block in sorted({1, near, _divisor(panels, 2 * near), _divisor(panels, near // 2)}):
                panel = [Opt("TILE", axis, vectors * width), Opt("STAGE", axis, block)]
                yield [*first, *panel, *rest]
        yield from _other_rows(body)
        yield from _parts(found.k, body)
        if words is not None and not first:
            yield [words, *body]
        plain = Nest(base, machine)
        choose_plain(plain)
        yield plain.opts
        return
    first = [] if words is None else [words]
    for other in (axis, row.arg.id):  # the rows as columns, too
        turned = find_contraction(base, other)
        if turned is None or not turned.m or (first and other != axis):
            continue
        total = prod(map(extent, joined_columns(base.src[0], turned)))
        own = max(turned.m, key=extent)
        for vectors in PANEL_VECTORS:
            panels = -(-total // (vectors * width))
            for rows in PANEL_ROWS:
                yield [
                    *first,
                    Opt("TILE", other, vectors * width),
                    Opt("STAGE", other, _divisor(panels, max(1, panels // machine.cores))),
                    Opt("UPCAST", own.arg.id, min(rows, extent(own))),
                ]


def _windows(base: UOp, machine: Machine) -> Iterator[list[Opt]]:
    """Plans over lines that are packed for all steps of a window."""
    window = find_window(base)
    if window is None:
        return
    axis, row = window.place.column.arg.id, max(window.found.m, key=extent)
    width = machine.lanes(max(4, window.found.columns.dtype.itemsize))
    for vectors in PANEL_VECTORS:
        panels = -(-window.positions() // (vectors * width))
        for block in sorted({1, _divisor(panels, panels // 2), panels}):
            for rows in PANEL_ROWS:
                yield [
                    Opt("TILE", axis, vectors * width),
                    Opt("WINDOW", axis, block),
                    Opt("UPCAST", row.arg.id, min(rows, extent(row))),
                ]


def _parts(depth: Sequence[UOp], body: list[Opt]) -> Iterator[list[Opt]]:
    """The depth in parts, where it is not."""
    words = [o for o in body if o.name == "DOT"]
    if any(o.name == "DEPTH" for o in body):
        return
    k = max(depth, key=extent)
    for steps in PARTS:
        if steps < extent(k):
            yield [*words, Opt("DEPTH", k.arg.id, steps), *body[len(words) :]]


def _other_rows(body: list[Opt]) -> Iterator[list[Opt]]:
    """Rows packed in strips instead of read where they are, and the other way round."""
    other = {"UPCAST": "STRIP", "STRIP": "UPCAST"}
    for place, opt in enumerate(body):
        if opt.name in other:
            yield [*body[:place], replace(opt, name=other[opt.name]), *body[place + 1 :]]


def _sweeps(base: UOp, body: list[Opt], machine: Machine) -> Iterator[list[Opt]]:
    """Sums down columns, some rows at a time; the plain plan beside a sweep."""
    if not machine.vector_bytes or not base.src[0].src[1:]:
        return
    column = base.src[0].src[-1]
    if sweep_refusal(base, column.arg.id):
        return
    found = reductions_down(base, column)
    for rows in SWEPT:
        if all(extent(r) >= 2 * rows for node in found for r in node.src[1:]):
            yield swept_opts(base, found, machine, _itemsize(base), rows)
    if any(o.name == "SWEEP" for o in body):
        plain = [o for o in body if o.name != "SWEEP"]
        yield [*plain, Opt("LANE", column.arg.id, machine.lanes(_itemsize(base)))]


def _divisor(number: int, limit: int) -> int:
    """The largest divisor up to a limit."""
    return max([n for n in range(1, max(1, min(limit, number)) + 1) if number % n == 0])


# -- opts of positions ----------------------------------------------------------------------------


def _positions(base: UOp, opts: Sequence[Opt], machine: Machine) -> Iterator[list[Opt]]:
    """Other threads and orders for the same axes."""
    body = [o for o in opts if o.name not in ("MOVE", "THREAD")]
    moves = [o for o in opts if o.name == "MOVE"]
    nest = _applied(base, [*body, *moves], machine)
    if nest is None:
        return
    for opt in _threads(nest):
        yield [*body, *moves, opt]
    if any(o.name == "THREAD" for o in opts):
        yield [*body, *moves]
    threads = [o for o in opts if o.name == "THREAD"]
    if moves:
        orders: list[list[Opt]] = [[]]
    else:
        loops = nest.main().src[1:]
        places = [i for i, r in enumerate(loops) if r.arg.kind is AxisKind.LOOP]
        orders = [[Opt("MOVE", b, a)] for a, b in itertools.pairwise(places)]
    for order in orders:
        changed = [*body, *order, *threads]
        if _applied(base, changed, machine) is not None:
            yield changed


def _threads(nest: Nest) -> list[Opt]:
    cores = nest.machine.cores
    if cores < 2:
        return []
    count = len(nest.main().src) - 1
    wanted = [Opt("THREAD", i, cores * n) for n in SHARES for i in range(count)]
    return [opt for opt in wanted if not nest.refusal(opt)]
