"""Operands of products as matrices in memory, for devices whose tiles copy boxes of those.

A tile steps along one axis of each operand, and copies neighbours. An operand that is something
else is stored first: rows that are gathered or joined, slices with a step, borders of zeros, and
sums over several axes that do not follow each other in memory, as heads and their columns, or
images and their pixels. Overlapping windows are for `operands` and `channels`.
"""

from __future__ import annotations

from math import prod

from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE, terms_of
from svod.schedule.costs_gpu import GPU
from svod.schedule.operands import MIN_WORK
from svod.schedule.products import Operand, operands_of, product_of, tiled_product, with_operands
from svod.schedule.views import axis_range, flatten, output_indices, source_indices

LINE = GPU.line  # bytes of an operand that are one step


def plain_operands(
    sink: UOp, able: Capabilities, in_place: frozenset[UOp]
) -> tuple[UOp, frozenset[UOp]]:
    """The graph with such operands stored anew, but for those of products ``in_place``; and these
    products in it."""
    if not able.copies_tiles:
        return sink, in_place
    order = sink.toposort()
    found = {n: _changed(n) for n in order if n.op == O.REDUCE_AXIS and n not in in_place}
    if not any(found.values()):
        return sink, in_place
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node.with_sources(src)
        for which in found.get(node, ()):
            new = _with_stored(new, which)
        done[node] = new
    return done[sink], frozenset([done[n] for n in in_place])


def _changed(node: UOp) -> list[int]:
    """Which factors of a product must be stored."""
    product = tiled_product(node)
    if product is None or prod(product.sizes) < MIN_WORK:
        return []
    sides = zip(operands_of(product), (product.m, product.n), strict=True)
    return [i for i, (o, own) in enumerate(sides) if not _is_plain(o, product.k, own)]


def _is_plain(operand: Operand, summed: tuple[int, ...], apart: tuple[int, ...]) -> bool:
    """Whether a tile can read an operand from memory once that holds what it is a view of, or
    others see to it; it moves ``apart`` from the other operand along some axes. Along those of both
    there are products of their own."""
    if operand.base not in operand.value.toposort():
        return False  # it is converted where it repeats: that would be done for every repeat
    view = operand.view
    places, shape = output_indices(view.shape), view.shape
    is_whole, seen = True, set()
    while view.op in O.MOVEMENT:
        seen.add(view.op)
        places, gate = source_indices(view, places)
        is_whole = is_whole and gate is TRUE
        view = view.src[0]
    if {O.EXPAND, O.SHRINK} <= seen:
        return True
    if not is_whole or view.op in (O.CAT, O.GATHER, O.IOTA):
        return False
    terms, _ = terms_of(flatten(places, view.shape))
    along = [axis_range(a, shape[a]) for a in summed if shape[a] != 1]
    own = [axis_range(a, shape[a]) for a in apart]
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


def _with_stored(node: UOp, which: int) -> UOp:
    """A product one of whose factors is stored, in its own order if its summed axes follow each
    other there."""
    product = product_of(node)
    assert product is not None
    factors = list(product.operands)
    factor = factors[which]
    view = operands_of(product)[which].view
    axes, summed = range(len(view.shape)), node.arg.axes
    places = [i for i, a in enumerate([a for a in axes if view.shape[a] != 1]) if a in summed]
    order = tuple(axes)
    if places != list(range(min(places, default=0), min(places, default=0) + len(places))):
        order = (*[a for a in axes if a not in summed], *summed)
    stored = make(O.CONTIGUOUS, view.dtype, (B.permute(view, order),))
    back = B.permute(stored, tuple([order.index(a) for a in axes]))
    factors[which] = B.cast(B.expand(back, factor.shape), factor.dtype)
    return with_operands(node, factors)
