"""Scatters that need no memory of their own: each element of the result looks for its value.

A SCATTER is stored, and its writes have an order. Where index tensors are positions along axes of
their own, as in the gradient of ``x[arange(n), t]``, they say which value an element may get; what
is left to find out is whether the other indices point at it. Written as a choice it is elementwise
and fuses with what is around it, a softmax for example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import Capable, capabilities_of
from svod.ir.node import UOp, is_symbolic
from svod.ir.symbolic import terms_of
from svod.schedule.costs_gpu import GPU
from svod.schedule.cut import devices
from svod.schedule.rangeify import counted_index
from svod.schedule.scatter_runs import sums_by_runs
from svod.schedule.views import Shape, output_indices

FEW = 4  # values an element of a constant looks at, at most
MANY, MOST = 512, 1 << 31  # steps whose numbers are compared to find the last
ROWS = GPU.scatter_rows  # that never meet, from which on each is written in its own order
SHORT = GPU.short_scatter  # steps of a row that take no longer than to begin anything else


def choices_for_scatters(sink: UOp, device: str, capable: Capable = capabilities_of) -> UOp:
    """The graph with scatters as choices where that can be; ``device`` is the one by default.

    Where many steps are made at once, memory finds out which write is the last, and sums are made
    after a sort, which brings those of a place together.
    """
    order = sink.toposort()
    if not any(node.op == O.SCATTER for node in order):
        return sink
    wanted, where = set(sink.src), devices(order)
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node.with_sources(src)
        if node.op == O.SCATTER:
            at_once = capable(where.get(node, device)).scatters_at_once
            choice = _choice(new, at_once)
            if choice is not None:
                new = B.contiguous(choice) if node in wanted else choice
        done[node] = new
    return done[sink]


@dataclass(frozen=True, slots=True)
class _Lines:
    """Index tensors that are positions along an axis of their own."""

    axis: dict[int, int]  # of the indices, by axis of the target
    start: dict[int, int]  # the first position on the target's axis
    rest: tuple[int, ...]  # the axes of the indices that no line runs along


def _choice(node: UOp, at_once: bool) -> UOp | None:
    """The result of a SCATTER as a choice for every element; None where that costs too much."""
    x, values, *indices = node.src
    shape = indices[0].shape
    if is_symbolic(x.shape) or is_symbolic(values.shape) or node.arg == "max":
        return None
    lines = _lines(x, indices)
    if prod([shape[a] for a in lines.rest]) > _looks(x, lines):
        rows = prod([shape[a] for a in lines.axis.values()])
        if not at_once or _has_short_rows(rows, prod(shape)) or not MANY <= prod(shape) <= MOST:
            return None
        return _by_winners(node) if node.arg == "set" else sums_by_runs(node)
    found = x
    for place in product(*[range(shape[a]) for a in lines.rest]):  # in the order of the writes
        hit = _hits(x, indices, lines, place)
        value = _padded(_aligned(values, x.shape, lines, place), x.shape, lines)
        if node.arg == "add":
            value = B.binary(O.ADD, found, value)
        found = B.where(hit, value, found)
    return found


def _has_short_rows(rows: int, steps: int) -> bool:
    """Whether rows are better written one step after the other: 25 ns each, as long as a sort of
    all takes for 256."""
    return rows >= ROWS and steps // rows <= SHORT + steps // 256


def _looks(x: UOp, lines: _Lines) -> int:
    """How many values an element looks at, at most: what is stored anyway is copied faster."""
    while x.op in O.MOVEMENT:
        x = x.src[0]
    if x.op == O.CONST:
        return FEW if lines.axis else 1
    return 1 if lines.axis else 0


def _by_winners(node: UOp) -> UOp:
    """Each place gets the value of the last step that writes to it."""
    x, values, *indices = node.src
    lead, count = indices[0].shape, len(indices)
    steps = prod(lead)
    turn = B.reshape(B.iota(steps, dt.int32), lead)
    nobody = B.full(x.shape[:count], -1, dt.int32)
    last = B.scatter(nobody, turn, indices, "max")
    flat = B.reshape(values, (steps, *x.shape[count:]))
    is_written = B.binary(O.LE, B.full(last.shape, 0, dt.int32), last)
    wide = B.reshape(is_written, (*last.shape, *[1] * (len(x.shape) - count)))
    return B.where(B.broadcast_to(wide, x.shape), B.gather(flat, [last]), x)


def _lines(x: UOp, indices: Sequence[UOp]) -> _Lines:
    shape = indices[0].shape
    places = output_indices(shape)
    axis: dict[int, int] = {}
    start: dict[int, int] = {}
    for target, index in enumerate(indices):
        counted = counted_index(index, places)
        terms, first = terms_of(counted) if counted is not None else ({}, 0)
        if list(terms.values()) != [1]:
            continue
        (counter,) = terms
        if counter not in places or places.index(counter) in axis.values():
            continue
        along = places.index(counter)
        if 0 <= first <= x.shape[target] - shape[along]:  # else some writes are dropped
            axis[target], start[target] = along, first
    return _Lines(axis, start, tuple([a for a in range(len(shape)) if a not in axis.values()]))


def _hits(x: UOp, indices: Sequence[UOp], lines: _Lines, place: tuple[int, ...]) -> UOp:
    """Whether the indices point at an element of x, at one place of the axes without lines."""
    shape = x.shape
    tests = []
    for target, index in enumerate(indices):
        if target in lines.axis:
            continue
        if shape[target] - 1 > dt.integer_limits(index.dtype)[1]:
            index = B.cast(index, dt.int64)
        own = tuple([n if a == target else 1 for a, n in enumerate(shape)])
        positions = B.reshape(B.iota(shape[target], index.dtype), own)
        tests.append(B.binary(O.EQ, _aligned(index, shape, lines, place), positions))
    every = B.full(indices[0].shape, True, dt.bool_)
    hit = tests[0] if tests else _aligned(every, shape, lines, place)
    for test in tests[1:]:
        hit = B.binary(O.AND, hit, test)
    return _padded(hit, shape, lines)


def _aligned(node: UOp, shape: Shape, lines: _Lines, place: tuple[int, ...]) -> UOp:
    """What stands over the axes of the indices, at a place of those without lines, over the axes
    of the target."""
    at = dict(zip(lines.rest, place, strict=True))
    have = node.shape
    node = B.shrink(node, tuple([(at.get(a, 0), at.get(a, n - 1) + 1) for a, n in enumerate(have)]))
    count = len(lines.axis) + len(lines.rest)
    along = [lines.axis[a] for a in sorted(lines.axis)]
    after = range(count, len(have))
    node = B.permute(node, (*along, *lines.rest, *after))
    first = len(shape) - len(after) if after else len(shape)
    wide = [have[lines.axis[a]] if a in lines.axis else 1 for a in range(len(shape))]
    wide[first:] = [have[a] for a in after]
    return B.reshape(node, tuple(wide))


def _padded(node: UOp, shape: Shape, lines: _Lines) -> UOp:
    """Over the whole target: zeros before and after the lines."""
    pairs = [(0, 0)] * len(shape)
    for axis, start in lines.start.items():
        pairs[axis] = (start, shape[axis] - start - node.shape[axis])
    return B.pad(node, tuple(pairs))
