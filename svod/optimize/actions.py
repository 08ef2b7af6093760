"""One language of opts: heuristics, search, tuned store and users' lists all speak it.

In: a kernel as rangeify made it and a list of opts. Out: the kernel after them. An axis is the id
of a range of the kernel whose adjacent axes have been merged; an opt takes what the opts before it
left of that axis. Loops that opts made are named by their position, counted from the outside.

    OUTER(axis)            the loop goes around all others, for which it stands still
    KEEP(axis)             heavy values along the axis are kept for a later pass over the row
    BAND(axis, n)          a contraction of a contraction, n rows of the inner one at a time
    FINISH(axis, n)        sums of n columns at a time, what follows them in a pass of its own
    UNROLL(axis, n)        n steps of a reduced axis are written out
    UPCAST(axis, n)        n steps of an output axis are side by side in registers
    LANE(axis, n)          n steps are the lanes of vectors
    BLOCK(axis, n)         the loop is cut in blocks of n, inside the loops over lanes
    DOT(axis, n)           n narrow steps of a reduced axis are one word, multiplied at once
    DEPTH(axis, n)         n steps of a reduced axis at a time, for all outputs of a block
    WORDS(axis, n)         n narrow steps of a sum inside a sum are one word, after LANE
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
from math import prod
from typing import NamedTuple

from svod.base.errors import CompileError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, make
from svod.optimize.apart import steps_stay_apart
from svod.optimize.bands import WIDEST_PASS, Bands, find_chain, make_bands, make_finish
from svod.optimize.block_sums import make_words, words_refusal
from svod.optimize.columns import sweep_columns, sweep_refusal
from svod.optimize.contraction import group_depth, stage_columns
from svod.optimize.depth import cut_depth, depth_refusal
from svod.optimize.graph import evaluations, extent, renumber, stride
from svod.optimize.images import stage_image
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt, merge, split, thread
from svod.optimize.outside import around, one_member, run_time_axes
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
    return nest.finished()


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
        "bands", "blocks", "is_grouped", "loops", "machine", "offered", "opts", "outer", "panels",
        "parts", "sink",
    )  # fmt: skip

    def __init__(self, sink: UOp, machine: Machine) -> None:
        self.sink, self.machine = sink, machine
        self.bands: Bands | None = None
        self.offered: tuple[Opt, Bands | None] | None = None  # bands that were asked about
        self.outer: list[UOp] = []  # loops around the kernel
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
                _ACTIONS[opt.name].apply(part, opt)
                self.join()
            else:
                _ACTIONS[opt.name].apply(self, opt)
            self.opts.append(opt)

    def finished(self) -> UOp:
        """The kernel with all of its loops."""
        return renumber(around(self.sink, self.outer))

    def inner_opts(self) -> list[Opt]:
        """What has been applied inside the loops that stand still."""
        return [o for o in self.opts if o.name != "OUTER"]

    def join(self) -> None:
        """The kernel anew from its stages."""
        assert self.bands is not None
        self.sink = self.bands.attach([p.sink for p in self.parts])

    def _part_of(self, opt: Opt) -> Nest | None:
        """The stage of a kernel in bands that an opt is about."""
        if opt.name in ("OUTER", "THREAD", "BAND", "FINISH"):
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
        action = _ACTIONS.get(opt.name)
        if action is None:
            return f"there is no such opt: use one of {', '.join(_ACTIONS)}"
        if opt.name in ("BAND", "FINISH", "OUTER"):
            return action.refusal(self, opt)
        part = self._part_of(opt)
        if part is not None:
            return self._part_refusal(part, opt)
        if opt.axis not in self.loops and opt.name not in ("MOVE", "THREAD"):  # by position
            return f"nothing is left of axis {opt.axis}: there is {sorted(self.loops)}"
        return action.refusal(self, opt)

    def _part_refusal(self, part: Nest, opt: Opt) -> str:
        if opt.name in ("KEEP", "BLOCK") or (opt.name == "TILE" and part is not self.parts[0]):
            return f"a kernel in bands takes no {opt.name} there"
        if opt.name == "LANE" and part in self.parts[1:-1] and WIDEST_PASS % opt.amount:
            return f"lanes of a pass over a band divide {WIDEST_PASS}"
        if opt.name == "UNROLL" and part is not self.parts[0]:
            return "a band may end between two steps"
        return part.refusal(opt)

    def in_bands(self, opt: Opt) -> Bands | None:
        """The stages BAND or FINISH makes, as the first opt; built once for asking and doing."""
        if self.offered is None or self.offered[0] != opt:
            if opt.name == "FINISH":
                found = make_finish(self.sink, opt.axis, opt.amount)
            else:
                found = make_bands(self.sink, opt.amount)
            self.offered = opt, found
        return self.offered[1]

    def _find_loops(self, axes: Iterable[int]) -> None:
        kinds = (AxisKind.LOOP, AxisKind.REDUCE)
        ranges = [n for n in self.sink.toposort() if n.op == O.RANGE and n.arg.kind in kinds]
        found = {r.arg.id: r for r in ranges}
        self.loops = {axis: found[axis] for axis in axes if axis in found}


# -- why an action does not fit -------------------------------------------------------------------


def _outer_refusal(nest: Nest, opt: Opt) -> str:
    if nest.inner_opts():
        return "OUTER comes first"
    fits = any(r.arg.id == opt.axis for r in run_time_axes(nest.sink))
    return "" if fits else "OUTER takes an output axis of a run-time size"


def _band_refusal(nest: Nest, opt: Opt) -> str:
    if nest.inner_opts():
        return f"{opt.name} comes first"
    if opt.name == "FINISH":
        fits = opt.amount > 0 and nest.in_bands(opt) is not None
        return "" if fits else "the kernel is no sum with as many columns at a time"
    found = find_chain(nest.sink)
    if found is None:
        return "the kernel is no contraction of a contraction"
    if found.row is not None and found.row.arg.id != opt.axis:
        return f"bands go along axis {found.row.arg.id}"
    if opt.amount < 1:
        return "the amount is below one"
    return "" if nest.in_bands(opt) else "in bands of this size it is no chain"


def _position_refusal(nest: Nest, opt: Opt) -> str:
    loops = nest.main().src[1:]
    positions = (opt.axis, opt.amount) if opt.name == "MOVE" else (opt.axis,)
    for position in positions:
        if not 0 <= position < len(loops):
            return f"there are {len(loops)} loops"
        if loops[position].op != O.RANGE or loops[position].arg.kind is not AxisKind.LOOP:
            return f"loop {position} is no plain loop"
    ordered = [e.src[0] for e in nest.sink.src if e.src[0].arg == "ordered"]
    shared = loops[opt.axis]
    is_apart = all(steps_stay_apart(s, shared) for s in ordered) and opt.name == "THREAD"
    if ordered and not is_apart:
        return "the stores have an order"
    if opt.name == "MOVE":
        return "" if opt.amount < opt.axis else "the loop is outside already"
    return "" if 2 <= opt.amount <= extent(loops[opt.axis]) else "the loop is too short"


def _keep_refusal(nest: Nest, opt: Opt) -> str:
    if _has_depth(nest):
        return f"{opt.name} does not go with DEPTH"
    return "" if keep_rows(nest.sink) is not nest.sink else "there is nothing to keep"


def _image_refusal(nest: Nest, opt: Opt) -> str:
    fits = stage_image(nest.sink, opt.axis, opt.amount) is not None
    return "" if fits else "IMAGE takes lines, after STAGE, of rows that read an image"


def _sweep_refusal(nest: Nest, opt: Opt) -> str:
    if _has_depth(nest):
        return f"{opt.name} does not go with DEPTH"
    return _amount_refusal(opt) or sweep_refusal(nest.sink, opt.axis)


def _stage_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt):
        return reason
    width = nest.panels.get(opt.axis, 0)
    if not width:
        return f"{opt.name} needs a TILE of the same axis before it"
    stage = stage_columns if opt.name == "STAGE" else stage_windows
    staged = stage(nest.sink, opt.axis, width, opt.amount, nest.machine)
    return "" if staged is not None else "the kernel is no contraction with these columns"


def _depth_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt):
        return reason
    if any(o.name != "DOT" for o in nest.inner_opts()):
        return "DEPTH comes before all others but DOT"
    return depth_refusal(nest.sink, opt.axis, opt.amount)


def _dot_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt) or _word_refusal(nest):
        return reason
    if nest.inner_opts():
        return "DOT comes before all others"
    grouped = group_depth(nest.sink, opt.axis, opt.amount, nest.machine)
    return "" if grouped is not None else "no instruction multiplies such words"


def _words_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt) or _word_refusal(nest):
        return reason
    return words_refusal(nest.sink, nest.loops[opt.axis], opt.amount, nest.machine)


def _lane_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt) or _word_refusal(nest):
        return reason
    r = nest.loops[opt.axis]
    is_output = r.arg.kind is AxisKind.LOOP
    if not 2 <= opt.amount <= MAX_LANES:
        return f"use 2 to {MAX_LANES} lanes"
    if any(r in n.ranges and _has_lane(n) for n in nest.sink.toposort()):
        return "some values have lanes already"
    if is_output and _shares_scratch(nest, r):
        return "lanes would meet in scratch memory"
    if is_output and _has_order(nest) and not _lanes_stay_apart(nest.sink, r):
        return "lanes of an ordered store could meet"
    return ""


def _unroll_refusal(nest: Nest, opt: Opt) -> str:
    if reason := _amount_refusal(opt) or _word_refusal(nest):
        return reason
    r = nest.loops[opt.axis]
    if r.arg.kind is AxisKind.LOOP:
        return "UNROLL takes a reduced axis"
    return _length_refusal(opt, r) or _copies_refusal(nest, opt)


def _upcast_refusal(nest: Nest, opt: Opt) -> str:
    """Of UPCAST and STRIP."""
    if reason := _amount_refusal(opt) or _word_refusal(nest) or _output_refusal(nest, opt):
        return reason
    r = nest.loops[opt.axis]
    if reason := _length_refusal(opt, r):
        return reason
    if opt.name == "STRIP" and (reason := strip_refusal(nest.sink, r, opt.amount)):
        return reason
    if _shares_scratch(nest, r):
        return "copies would meet in scratch memory"
    return _copies_refusal(nest, opt)


def _block_refusal(nest: Nest, opt: Opt) -> str:
    """Of BLOCK and TILE, which may be wider than the axis, and come after DOT."""
    reason = _amount_refusal(opt) or (_word_refusal(nest) if opt.name == "BLOCK" else "")
    if reason := reason or _output_refusal(nest, opt):
        return reason
    r = nest.loops[opt.axis]
    if opt.name == "BLOCK" and (reason := _length_refusal(opt, r)):
        return reason
    if _scratch(nest) or r.src[0].op != O.CONST:
        return "the kernel has scratch memory or a run-time size"
    return ""


def _amount_refusal(opt: Opt) -> str:
    return "the amount is below one" if opt.amount < 1 else ""


def _word_refusal(nest: Nest) -> str:
    return "after DOT come DEPTH, TILE and STAGE" if nest.is_grouped else ""


def _output_refusal(nest: Nest, opt: Opt) -> str:
    if nest.loops[opt.axis].arg.kind is not AxisKind.LOOP:
        return f"{opt.name} takes an output axis"
    return "the stores have an order" if _has_order(nest) else ""


def _length_refusal(opt: Opt, r: UOp) -> str:
    return f"the axis has {extent(r)} steps" if opt.amount > extent(r) else ""


def _copies_refusal(nest: Nest, opt: Opt) -> str:
    is_most = _copies(nest.sink) * opt.amount > MAX_COPIES
    return f"there would be more than {MAX_COPIES} copies" if is_most else ""


def _has_depth(nest: Nest) -> bool:
    return any(o.name == "DEPTH" for o in nest.opts)


def _has_order(nest: Nest) -> bool:
    return any(e.src[0].arg == "ordered" for e in nest.sink.src)


def _scratch(nest: Nest) -> list[UOp]:
    """The stores into scratch memory, with their loops."""
    return [n for n in nest.sink.toposort() if n.op == O.END and n not in nest.sink.src]


def _shares_scratch(nest: Nest, r: UOp) -> bool:
    """Whether values of an axis share one scratch memory, which copies side by side overwrite."""
    return any(r in n.ranges for n in _scratch(nest))


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
    """Copies of the body of a store, at most; those of packing into scratch memory are another."""
    copied = (AxisKind.UPCAST, AxisKind.UNROLL)
    most = 1
    for end in sink.src:
        nodes = end.toposort()
        inner = {r for n in nodes if n.op == O.END and n is not end for r in n.src[1:]}
        ranges = [r for r in nodes if _is_kind(r, copied) and r not in inner]
        most = max(most, prod({r.arg.id: extent(r) for r in ranges}.values()))
    return most


def _is_kind(node: UOp, kinds: tuple[AxisKind, ...]) -> bool:
    return node.op == O.RANGE and node.arg.kind in kinds


# -- the actions ----------------------------------------------------------------------------------


def _band(nest: Nest, opt: Opt) -> None:
    nest.bands = nest.in_bands(opt)
    assert nest.bands is not None and nest.bands.result is not None
    sinks = [*[s.sink for s in nest.bands.stages], nest.bands.result]
    nest.parts = [Nest(sink, nest.machine) for sink in sinks]
    nest.join()


def _outer(nest: Nest, opt: Opt) -> None:
    r = nest.loops.pop(opt.axis)
    nest.outer.append(r)
    nest.sink = one_member(nest.sink, r)


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


def _words(nest: Nest, opt: Opt) -> None:
    nest.sink = make_words(nest.sink, nest.loops[opt.axis], nest.machine)
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


class Action(NamedTuple):
    """What an opt does to a kernel, and why it may not."""

    apply: Callable[[Nest, Opt], None]
    refusal: Callable[[Nest, Opt], str]  # empty where the opt fits


_ACTIONS: dict[str, Action] = {
    "OUTER": Action(_outer, _outer_refusal),
    "KEEP": Action(_keep, _keep_refusal),
    "BAND": Action(_band, _band_refusal),
    "FINISH": Action(_band, _band_refusal),
    "UNROLL": Action(lambda nest, opt: _cut(nest, opt, AxisKind.UNROLL), _unroll_refusal),
    "UPCAST": Action(lambda nest, opt: _cut(nest, opt, AxisKind.UPCAST), _upcast_refusal),
    "LANE": Action(_lane, _lane_refusal),
    "BLOCK": Action(_block, _block_refusal),
    "DOT": Action(_dot, _dot_refusal),
    "WORDS": Action(_words, _words_refusal),
    "DEPTH": Action(_depth, _depth_refusal),
    "TILE": Action(_tile, _block_refusal),
    "STAGE": Action(_stage, _stage_refusal),
    "WINDOW": Action(_stage, _stage_refusal),
    "IMAGE": Action(_image, _image_refusal),
    "SWEEP": Action(_sweep, _sweep_refusal),
    "STRIP": Action(_strip, _upcast_refusal),
    "MOVE": Action(_move, _position_refusal),
    "THREAD": Action(_thread, _position_refusal),
}
