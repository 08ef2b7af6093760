"""Loops that can nest, and address sums in loop order.

What changes in the outer loops is added first:

``i*K + k`` with k innermost leaves one addition in the inner loop; the other way round both
would stay there. Runs on vectorised kernels, whose ranges are final.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import RangeArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import from_terms, terms_of

Place = tuple[frozenset[UOp], tuple[UOp, ...]]  # ranges around a node, loops around within it


def separate_loops(sink: UOp) -> UOp:
    """A range closed at different places gets a range of its own for each of them.

    Loops over one range are one loop, so all who share it must have the same loops around it: a
    loop that only some of them have would repeat the others, or leave them out when it is empty.
    """
    while True:
        owner: dict[UOp, Place] = {}
        order = sink.toposort()
        fresh = 1 + max([n.arg.id for n in order if n.op == O.RANGE], default=0)
        moved: dict[tuple[UOp, Place], UOp] = {}
        mappings: dict[UOp, dict[UOp, UOp]] = {}  # what closes ranges -> those it gets instead
        for node in reversed(order):
            if node.op != O.REDUCE and node.op != O.END:
                continue
            closed = tuple([s for s in node.src if s.op == O.RANGE])
            mapping: dict[UOp, UOp] = {}
            for i, r in enumerate(closed):
                place = (node.ranges, closed[:i])
                if owner.setdefault(r, place) == place:
                    continue
                if (r, place) not in moved:
                    arg = RangeArg(fresh + len(moved), r.arg.kind)
                    moved[r, place] = make(O.RANGE, r.dtype, r.src, arg)
                mapping[r] = moved[r, place]
            if mapping:
                mappings[node] = mapping
        if not mappings:
            return sink
        done: dict[UOp, UOp] = {}
        for node in order:
            src = tuple([done[s] for s in node.src])
            new = node if src == node.src else make(node.op, node.dtype, src, node.arg)
            done[node] = _closed_over(new, mappings[node]) if node in mappings else new
        sink = done[sink]


def _closed_over(closing: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """A node with other ranges for some it closes.

    What closes such a range itself, a stage before it for one, stays the very same node: two
    versions of a store would both run.
    """
    done: dict[UOp, UOp] = dict(mapping)
    old = mapping.keys()
    for node in closing.toposort():
        if node in done:
            continue
        if node is not closing and node.ranges.isdisjoint(old):
            done[node] = node
            continue
        src = tuple([done[s] for s in node.src])
        done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[closing]


def order_offsets(sink: UOp) -> UOp:
    """Every scalar offset with its terms sorted by the depth of the loops they need."""
    order = sink.toposort()
    depth = _depths(order)
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX and node.src[1].dtype is dt.index:
            src = (src[0], _sorted_sum(node.src[1], depth), *src[2:])
        done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _depths(order: list[UOp]) -> dict[UOp, int]:
    depth: dict[UOp, int] = {}
    for node in reversed(order):
        if node.op in (O.END, O.REDUCE):
            base = 1 + max([depth.get(r, 0) for r in node.ranges], default=0)
            for i, r in enumerate([s for s in node.src if s.op == O.RANGE]):
                depth[r] = max(depth.get(r, 0), base + i)
    return depth


def _sorted_sum(offset: UOp, depth: dict[UOp, int]) -> UOp:
    if offset.op != O.ADD:
        return offset
    terms, constant = terms_of(offset)
    order = sorted(
        terms.items(), key=lambda item: max([depth.get(r, 0) for r in item[0].ranges], default=0)
    )
    return from_terms(dict(order), constant)
