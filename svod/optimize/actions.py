"""One language of opts: heuristics, search, tuned store and users' lists all speak it.

In: a kernel as rangeify made it and a list of opts. Out: the kernel after them. An axis is the id
of a range of the kernel whose adjacent axes have been merged; an opt takes what the opts before it
left of that axis. Loops that opts made are named by their position, counted from the outside.

    KEEP(axis)             heavy values along the axis are kept for a later pass over the row
    BAND(axis, n)          a contraction of a contraction, n rows of the inner one at a time
    FINISH(axis, n)        sums of n columns at a time, what follows them in a pass of its own
    UNROLL(axis, n)        n steps of a reduced axis are written out
    UPCAST(axis, n)        n steps of an output axis are side by side in registers
    LANE(axis, n)          n steps are the lanes of vectors
    BLOCK(axis, n)         the loop is cut in blocks of n, inside the loops over lanes
    DOT(axis, n)           n narrow steps of a reduced axis are one word, multiplied at once
    DEPTH(axis, n)         n steps of a reduced axis at a time, for all outputs of a block
    TILE(axis, n)          the columns of a contraction are cut in panels of n for STAGE,
    STAGE(axis, n)         which packs n panels at a time into scratch memory
    WINDOW(axis, n)        or which packs the lines that a window reads for n panels
    IMAGE(axis, n)         the image that n lines of rows read through a window is copied
    SWEEP(axis, n)         sums down n columns wait in scratch memory while rows are read whole
    STRIP(axis, n)         UPCAST of rows that are packed too, for all panels of a block
    MOVE(position, to)     a loop goes outside the one at another position
    THREAD(position, n)    a loop is split over n cores
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from svod.base.errors import CompileError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, make
from svod.optimize.apart import steps_stay_apart
from svod.optimize.bands import WIDEST_PASS, Bands, find_chain, make_bands, make_finish
from svod.optimize.columns import sweep_columns, sweep_refusal
from svod.optimize.contraction import group_depth, stage_columns
from svod.optimize.depth import cut_depth, depth_refusal
from svod.optimize.graph import evaluations, extent, renumber, stride
from svod.optimize.images import stage_image
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, merge, split, thread
from svod.optimize.rows import keep_rows
from svod.optimize.strips import stage_rows, strip_refusal
from svod.optimize.windows import stage_windows

MAX_LANES = 1024
MAX_COPIES = 256  # of one kernel's body; more only grows the code


class OptimizeError(CompileError):
    """An opt that does not fit its kernel, or a search that failed."""


def apply_opts(kernel: UOp, opts: Iterable[Opt], machine: Machine) -> UOp:
    """The kernel after the opts; OptimizeError where one does not fit."""
    nest = Nest(merge_adjacent(kernel), machine)
    for opt in opts:
        reason = nest.refusal(opt)
        if reason:
            raise OptimizeError(f"{opt} does not fit after {chain(nest.opts)}: {reason}")
        nest.apply(opt)
    waiting = nest.waiting()
    if waiting:
        raise OptimizeError(f"{chain(nest.opts)} has a {waiting} without a STAGE")
    return renumber(nest.sink)


def chain(opts: Sequence[Opt]) -> str:
    """Opts as people read them."""
    return ", ".join(map(str, opts)) or "no opts"


def merge_adjacent(sink: UOp) -> UOp:
    """Axes that memory holds next to each other everywhere become one.

    One that some memory holds in pieces is cut into them first.
    """
    return _merged(_cut_pieces(sink))


def _merged(sink: UOp) -> UOp:
    merged: UOp | None = sink
    while merged is not None:
        sink, order = merged, merged.toposort()
        merged = next((m for a, b in _neighbours(order) if (m := merge(order, a, b))), None)
    return sink


def _neighbours(order: list[UOp]) -> dict[tuple[UOp, UOp], None]:
    """Loops that are closed one inside the other, in the order of what closes them."""
    found: dict[tuple[UOp, UOp], None] = {}
    for node in order:
        if node.op in (O.END, O.REDUCE):
            ranges = [s for s in node.src[1:] if s.op == O.RANGE]
            found.update(dict.fromkeys(itertools.pairwise(ranges)))
    return found


def _cut_pieces(sink: UOp) -> UOp:
    """Axes that appear divided by one size, as outer and inner ones."""
    pieces: dict[UOp, set[int]] = {}
    for node in sink.toposort():
        if node.op not in (O.IDIV, O.MOD) or node.dtype is not dt.index:
            continue
        r, size = node.src
        if r.op == O.RANGE and size.op == O.CONST:
            pieces.setdefault(r, set()).add(size.arg)
    for r, sizes in pieces.items():
        if len(sizes) == 1 and r.src[0].op == O.CONST and extent(r) % min(sizes) == 0:
            sink = split(sink, r, min(sizes), r.arg.kind)
    return sink


class Nest:
    """A kernel with merged axes, and what has been applied to it."""

    __slots__ = (
        "bands", "blocks", "is_grouped", "loops", "machine", "offered", "opts", "panels", "parts",
        "sink",
    )  # fmt: skip

    def __init__(self, sink: UOp, machine: Machine) -> None:
        self.sink, self.machine = sink, machine
        self.bands: Bands | None = None
        self.offered: tuple[Opt, Bands | None] | None = None  # bands that were asked about
        self.parts: list[Nest] = []  # the stages of a kernel in bands
        self.opts: list[Opt] = []
        self.blocks: list[int] = []  # sizes of the blocks of loops
        self.panels: dict[int, int] = {}  # columns of the panels that wait for a STAGE
        self.is_grouped = False  # words wait for a STAGE: their instructions need its lanes
        self.loops: dict[int, UOp] = {}  # what is left of each axis
        self._find_loops([n.arg.id for n in sink.toposort() if n.op == O.RANGE])

    def apply(self, *opts: Opt) -> None:
        """Apply opts that fit."""
        for opt in opts:
            part = self._part_of(opt)
            if part is not None:
                _ACTIONS[opt.name](part, opt)
                self.join()
            else:
                _ACTIONS[opt.name](self, opt)
            self.opts.append(opt)

    def join(self) -> None:
        """The kernel anew from its stages."""
        assert self.bands is not None
        self.sink = self.bands.attach([p.sink for p in self.parts])

    def _part_of(self, opt: Opt) -> Nest | None:
        """The stage of a kernel in bands that an opt is about."""
        if opt.name in ("THREAD", "BAND", "FINISH"):
            return None
        if opt.name == "MOVE":
            return self.parts[-1] if self.parts else None
        return next((p for p in self.parts if opt.axis in p.loops), None)

    def main(self) -> UOp:
        """The store that most of the work is in."""
        return max(self.sink.src, key=lambda e: evaluations(e.src[0]))

    def waiting(self) -> str:
        """The opt that needs a STAGE after it and has none yet; empty where there is none."""
        return "DOT" if self.is_grouped else "TILE" if self.panels else ""

    def refusal(self, opt: Opt) -> str:
        """Why an opt does not fit; empty where it does."""
        if opt.name not in _ACTIONS:
            return f"there is no such opt: use one of {', '.join(_ACTIONS)}"
        if opt.name in ("BAND", "FINISH"):
            return self._band_refusal(opt)
        part = self._part_of(opt)
        if part is not None:
            if opt.name in ("KEEP", "BLOCK") or (opt.name == "TILE" and part is not self.parts[0]):
                return f"a kernel in bands takes no {opt.name} there"
            if opt.name == "LANE" and part in self.parts[1:-1] and WIDEST_PASS % opt.amount:
                return f"lanes of a pass over a band divide {WIDEST_PASS}"
            if opt.name == "UNROLL" and part is not self.parts[0]:
                return "a band may end between two steps"
            return part.refusal(opt)
        if opt.name in ("MOVE", "THREAD"):
            return self._position_refusal(opt)
        if opt.axis not in self.loops:
            return f"nothing is left of axis {opt.axis}: there is {sorted(self.loops)}"
        if opt.name in ("KEEP", "SWEEP") and any(o.name == "DEPTH" for o in self.opts):
            return f"{opt.name} does not go with DEPTH"
        if opt.name == "KEEP":
            return "" if keep_rows(self.sink) is not self.sink else "there is nothing to keep"
        if opt.name == "IMAGE":
            fits = stage_image(self.sink, opt.axis, opt.amount) is not None
            return "" if fits else "IMAGE takes lines, after STAGE, of rows that read an image"
        if opt.amount < 1:
            return "the amount is below one"
        if opt.name == "SWEEP":
            return sweep_refusal(self.sink, opt.axis)
        if opt.name in ("STAGE", "WINDOW"):
            width = self.panels.get(opt.axis, 0)
            if not width:
                return f"{opt.name} needs a TILE of the same axis before it"
            stage = stage_columns if opt.name == "STAGE" else stage_windows
            staged = stage(self.sink, opt.axis, width, opt.amount, self.machine)
            return "" if staged is not None else "the kernel is no contraction with these columns"
        if self.is_grouped and opt.name not in ("DEPTH", "TILE"):
            return "after DOT come DEPTH, TILE and STAGE"
        if opt.name == "DEPTH":
            if any(o.name != "DOT" for o in self.opts):
                return "DEPTH comes before all others but DOT"
            return depth_refusal(self.sink, opt.axis, opt.amount)
        if opt.name == "DOT":
            if self.opts:
                return "DOT comes before all others"
            grouped = group_depth(self.sink, opt.axis, opt.amount, self.machine)
            return "" if grouped is not None else "no instruction multiplies such words"
        return _axis_refusal(self, opt, self.loops[opt.axis])

    def _band_refusal(self, opt: Opt) -> str:
        if self.opts:
            return f"{opt.name} comes first"
        if opt.name == "FINISH":
            fits = opt.amount > 0 and self.in_bands(opt) is not None
            return "" if fits else "the kernel is no sum with as many columns at a time"
        found = find_chain(self.sink)
        if found is None:
            return "the kernel is no contraction of a contraction"
        if found.row is not None and found.row.arg.id != opt.axis:
            return f"bands go along axis {found.row.arg.id}"
        if opt.amount < 1:
            return "the amount is below one"
        return "" if self.in_bands(opt) else "in bands of this size it is no chain"

    def in_bands(self, opt: Opt) -> Bands | None:
        """The stages BAND or FINISH makes, as the first opt; built once for asking and doing."""
        if self.offered is None or self.offered[0] != opt:
            if opt.name == "FINISH":
                found = make_finish(self.sink, opt.axis, opt.amount)
            else:
                found = make_bands(self.sink, opt.amount)
            self.offered = opt, found
        return self.offered[1]

    def _position_refusal(self, opt: Opt) -> str:
        loops = self.main().src[1:]
        positions = (opt.axis, opt.amount) if opt.name == "MOVE" else (opt.axis,)
        for position in positions:
            if not 0 <= position < len(loops):
                return f"there are {len(loops)} loops"
            if loops[position].op != O.RANGE or loops[position].arg.kind is not AxisKind.LOOP:
                return f"loop {position} is no plain loop"
        ordered = [e.src[0] for e in self.sink.src if e.src[0].arg == "ordered"]
        shared = loops[opt.axis]
        is_apart = all(steps_stay_apart(s, shared) for s in ordered) and opt.name == "THREAD"
        if ordered and not is_apart:
            return "the stores have an order"
        if opt.name == "MOVE":
            return "" if opt.amount < opt.axis else "the loop is outside already"
        return "" if 2 <= opt.amount <= extent(loops[opt.axis]) else "the loop is too short"

    def _find_loops(self, axes: Iterable[int]) -> None:
        kinds = (AxisKind.LOOP, AxisKind.REDUCE)
        ranges = [n for n in self.sink.toposort() if n.op == O.RANGE and n.arg.kind in kinds]
        found = {r.arg.id: r for r in ranges}
        self.loops = {axis: found[axis] for axis in axes if axis in found}


def _axis_refusal(nest: Nest, opt: Opt, r: UOp) -> str:
    nodes = nest.sink.toposort()
    is_output = r.arg.kind is AxisKind.LOOP
    ordered = any(e.src[0].arg == "ordered" for e in nest.sink.src)
    # Axes whose values share one scratch memory: copies side by side would overwrite it.
    inner = [n for n in nodes if n.op == O.END and n not in nest.sink.src]
    shares = any(r in n.ranges for n in inner)
    if opt.name == "UNROLL" and is_output:
        return "UNROLL takes a reduced axis"
    if opt.name in ("UPCAST", "BLOCK", "TILE", "STRIP") and not is_output:
        return f"{opt.name} takes an output axis"
    if opt.name == "LANE":
        if not 2 <= opt.amount <= MAX_LANES:
            return f"use 2 to {MAX_LANES} lanes"
        if any(r in n.ranges and _has_lane(n) for n in nodes):
            return "some values have lanes already"
        if is_output and shares:
            return "lanes would meet in scratch memory"
        if is_output and ordered and not _lanes_stay_apart(nest.sink, r):
            return "lanes of an ordered store could meet"
        return ""
    if ordered and is_output:
        return "the stores have an order"
    if opt.name != "TILE" and opt.amount > extent(r):
        return f"the axis has {extent(r)} steps"
    if opt.name == "STRIP" and (reason := strip_refusal(nest.sink, r, opt.amount)):
        return reason
    if opt.name in ("UPCAST", "UNROLL", "STRIP"):
        if is_output and shares:
            return "copies would meet in scratch memory"
        if _copies(nest.sink) * opt.amount > MAX_COPIES:
            return f"there would be more than {MAX_COPIES} copies"
    if opt.name in ("BLOCK", "TILE") and (inner or r.src[0].op != O.CONST):
        return "the kernel has scratch memory or a run-time size"
    return ""


def _has_lane(node: UOp) -> bool:
    return any(r.arg.kind is AxisKind.LANE for r in node.ranges if r.op == O.RANGE)


def _lanes_stay_apart(sink: UOp, r: UOp) -> bool:
    for end in sink.src:
        place = end.src[0].src[0]
        loads = [n for n in place.src[1].toposort() if n.op == O.LOAD]
        if r in end.src[1:] and (stride(place, r) != 1 or any(r in n.ranges for n in loads)):
            return False
    return True


def _copies(sink: UOp) -> int:
    """Copies of the body; those of packing into scratch memory are another body."""
    total = 1
    copied = (AxisKind.UPCAST, AxisKind.UNROLL)
    nodes = sink.toposort()
    inner = {r for n in nodes if n.op == O.END and n not in sink.src for r in n.src[1:]}
    ranges = [r for r in nodes if _is_kind(r, copied) and r not in inner]
    for size in {r.arg.id: extent(r) for r in ranges}.values():
        total *= size
    return total


def _is_kind(node: UOp, kinds: tuple[AxisKind, ...]) -> bool:
    return node.op == O.RANGE and node.arg.kind in kinds


# -- the actions ----------------------------------------------------------------------------------


def _band(nest: Nest, opt: Opt) -> None:
    nest.bands = nest.in_bands(opt)
    assert nest.bands is not None and nest.bands.result is not None
    sinks = [*[s.sink for s in nest.bands.stages], nest.bands.result]
    nest.parts = [Nest(sink, nest.machine) for sink in sinks]
    nest.join()


def _keep(nest: Nest, opt: Opt) -> None:
    nest.sink = keep_rows(nest.sink)
    nest._find_loops(nest.loops)


def _cut(nest: Nest, opt: Opt, kind: AxisKind | None = None) -> None:
    r = nest.loops.pop(opt.axis)
    outer = 2 + max([n.arg.id for n in nest.sink.toposort() if n.op == O.RANGE])
    nest.sink = split(nest.sink, r, opt.amount, kind or r.arg.kind)
    for node in nest.sink.toposort():
        if node.op == O.RANGE and node.arg.id == outer and node.arg.kind is r.arg.kind:
            nest.loops[opt.axis] = node


def _lane(nest: Nest, opt: Opt) -> None:
    _cut(nest, opt, AxisKind.LANE)
    if nest.blocks:
        nest.sink = _block_last(nest.sink, nest.blocks[-1])


def _block(nest: Nest, opt: Opt) -> None:
    _cut(nest, opt)
    nest.blocks.append(opt.amount)


def _tile(nest: Nest, opt: Opt) -> None:
    nest.panels[opt.axis] = opt.amount


def _stage(nest: Nest, opt: Opt) -> None:
    width = nest.panels.pop(opt.axis)
    stage = stage_columns if opt.name == "STAGE" else stage_windows
    staged = stage(nest.sink, opt.axis, width, opt.amount, nest.machine)
    assert staged is not None
    nest.sink, nest.is_grouped = _merged(staged), False
    nest._find_loops(nest.loops)


def _dot(nest: Nest, opt: Opt) -> None:
    grouped = group_depth(nest.sink, opt.axis, opt.amount, nest.machine)
    assert grouped is not None
    nest.sink, nest.is_grouped = grouped, True
    nest._find_loops(nest.loops)


def _depth(nest: Nest, opt: Opt) -> None:
    nest.sink = cut_depth(nest.sink, opt.axis, opt.amount)
    nest._find_loops(nest.loops)


def _strip(nest: Nest, opt: Opt) -> None:
    _cut(nest, opt, AxisKind.UPCAST)
    nest.sink = stage_rows(nest.sink)
    nest._find_loops(nest.loops)


def _image(nest: Nest, opt: Opt) -> None:
    staged = stage_image(nest.sink, opt.axis, opt.amount)
    assert staged is not None
    nest.sink = staged
    nest._find_loops(nest.loops)


def _sweep(nest: Nest, opt: Opt) -> None:
    nest.sink = sweep_columns(nest.sink, opt.amount, nest.machine)
    nest._find_loops(nest.loops)


def _thread(nest: Nest, opt: Opt) -> None:
    nest.sink = thread(nest.sink, nest.main().src[1 + opt.axis], opt.amount)
    nest._find_loops(nest.loops)


def _move(nest: Nest, opt: Opt) -> None:
    """Loops that several stores share keep one order in all of them."""
    loops = list(nest.main().src[1:])
    loops.insert(opt.amount, loops.pop(opt.axis))
    place = {r: i for i, r in enumerate(loops)}
    ends = []
    for end in nest.sink.src:
        order = list(end.src[1:])
        mixed = iter(sorted([r for r in order if r in place], key=lambda r: place[r]))
        ends.append(
            make(O.END, dt.void, (end.src[0], *[next(mixed) if r in place else r for r in order]))
        )
    nest.sink = make(O.SINK, dt.void, tuple(ends))


def _block_last(sink: UOp, size: int) -> UOp:
    """The block of a loop goes inside the loop over groups of lanes."""
    ends = []
    for end in sink.src:
        loops = list(end.src[1:])
        block = [r for r in loops if extent(r) <= size and r.arg.kind is AxisKind.LOOP]
        lanes = [r for r in loops if r.arg.kind is AxisKind.LANE]
        if block and lanes:
            rest = [r for r in loops if r not in block[-1:] and r not in lanes]
            loops = [*rest, block[-1], *lanes]
        ends.append(make(O.END, dt.void, (end.src[0], *loops)))
    return make(O.SINK, dt.void, tuple(ends))


_ACTIONS: dict[str, Callable[[Nest, Opt], None]] = {
    "KEEP": _keep,
    "BAND": _band,
    "FINISH": _band,
    "UNROLL": lambda nest, opt: _cut(nest, opt, AxisKind.UNROLL),
    "UPCAST": lambda nest, opt: _cut(nest, opt, AxisKind.UPCAST),
    "LANE": _lane,
    "BLOCK": _block,
    "DOT": _dot,
    "DEPTH": _depth,
    "TILE": _tile,
    "STAGE": _stage,
    "WINDOW": _stage,
    "IMAGE": _image,
    "SWEEP": _sweep,
    "STRIP": _strip,
    "MOVE": _move,
    "THREAD": _thread,
}
