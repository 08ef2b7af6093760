"""Operands of products as matrices in memory, for devices whose tiles copy boxes of those.

A tile steps along one axis of each operand, and copies neighbours. An operand that is something
else is stored first: rows that are gathered or joined, slices with a step, borders of zeros, and
sums over several axes that do not follow each other in memory, as heads and their columns, or
images and their pixels. Overlapping windows are for `windows` and `channels`.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, terms_of
from svod.schedule.channels import KINDS, narrow_view
from svod.schedule.operands import TILING_DEVICES, moving_axes, tiled_factors
from svod.schedule.views import axis_range, flatten, output_indices, source_indices

NARROW = (*KINDS, dt.int8, dt.uint8, dt.float8_e4m3, dt.float8_e5m2)  # what tensor cores multiply
MIN_WORK = 1 << 20  # multiplications
LINE = 128  # bytes of an operand that are one step


def plain_operands(sink: UOp, device: str, in_place: frozenset[UOp]) -> tuple[UOp, frozenset[UOp]]:
    """The graph with such operands stored anew, but for those of products ``in_place``; and these
    products in it."""
    if device.partition(":")[0] not in TILING_DEVICES:
        return sink, in_place
    order = sink.toposort()
    found = {n: _changed(n) for n in order if n.op == O.REDUCE_AXIS and n not in in_place}
    if not any(found.values()):
        return sink, in_place
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else make(node.op, node.dtype, src, node.arg)
        for which in found.get(node, ()):
            new = _with_stored(new, which)
        done[node] = new
    return done[sink], frozenset([done[n] for n in in_place])


def _changed(node: UOp) -> list[int]:
    """Which factors of a product must be stored."""
    factors = tiled_factors(node)
    if not factors or prod(factors[0].shape) < MIN_WORK:
        return []
    first, second = map(moving_axes, factors)
    apart = (first - second, second - first)
    return [i for i, factor in enumerate(factors) if not _is_plain(factor, node.arg.axes, apart[i])]


def _is_plain(factor: UOp, summed: tuple[int, ...], apart: set[int]) -> bool:
    """Whether a tile can read a factor from memory, or others see to it; it moves ``apart`` from
    the other factor along some axes. Along those of both there are products of their own."""
    view = _unrepeated(factor)
    places, shape = output_indices(view.shape), view.shape
    is_whole, seen = True, set()
    while view.op in O.MOVEMENT:
        seen.add(view.op)
        places, gate = source_indices(view, places)
        is_whole = is_whole and gate is TRUE
        view = view.src[0]
    if {O.EXPAND, O.SHRINK} <= seen or view.op == O.CONST:
        return True
    if not is_whole or view.op in (O.CAT, O.GATHER):
        return False
    terms, _ = terms_of(flatten(places, view.shape))
    along = [axis_range(a, shape[a]) for a in summed if shape[a] != 1]
    own = [axis_range(a, shape[a]) for a in sorted(apart - set(summed))]
    moved = {r: step for r, step in terms.items() if any(x in r.ranges for x in (*own, *along))}
    if any(step < 1 for step in moved.values()):
        return False
    if along and own and 1 not in (_row(own[-1], terms)[0], _row(along[-1], terms)[0]):
        return False
    return _is_joined(along, terms, _step(view.dtype.itemsize))


def _step(itemsize: int) -> int:
    """Of a sum in one step of a tile."""
    return 16 if itemsize == 4 else LINE // itemsize


def _is_joined(along: list[UOp], terms: dict[UOp, int], least: int) -> bool:
    """Whether loops are one piece of memory, or end with a piece that steps of a tile divide."""
    if not along:
        return True
    step, size = _row(along[-1], terms)
    if along[-1] not in terms:
        return size % least == 0
    for r in reversed(along[:-1]):
        if r not in terms or terms[r] != step * size:
            return size % least == 0
        size *= r.vmax + 1
    return True


def _row(r: UOp, terms: dict[UOp, int]) -> tuple[int, int]:
    """The step of a loop and for how many it holds: all, or as many as it is divided by."""
    if r in terms:
        return terms[r], int(r.vmax) + 1
    parts = {t.op: (step, t.src[1].arg) for t, step in terms.items() if r in t.ranges and t.src}
    (step, size), (_, divided) = (parts.get(op, (0, 0)) for op in (O.MOD, O.IDIV))
    return (step, size) if size == divided != 0 else (0, 1)


def _unrepeated(factor: UOp) -> UOp:
    view = narrow_view(factor, NARROW)
    return view.src[0] if view.op == O.EXPAND else view


def _with_stored(node: UOp, which: int) -> UOp:
    """A product one of whose factors is stored, in its own order if its summed axes follow each
    other there."""
    factors = list(node.src[0].src)
    factor = factors[which]
    view = _unrepeated(factor)
    axes, summed = range(len(view.shape)), node.arg.axes
    places = [i for i, a in enumerate([a for a in axes if view.shape[a] != 1]) if a in summed]
    order = tuple(axes)
    if places != list(range(min(places, default=0), min(places, default=0) + len(places))):
        order = (*[a for a in axes if a not in summed], *summed)
    stored = make(O.CONTIGUOUS, view.dtype, (B.permute(view, order),))
    back = B.permute(stored, tuple([order.index(a) for a in axes]))
    factors[which] = B.cast(B.expand(back, factor.shape), factor.dtype)
    product = make(O.MUL, node.src[0].dtype, tuple(factors))
    return make(O.REDUCE_AXIS, node.dtype, (product,), node.arg)
