"""Helpers over kernel graphs: substitution in normal form, accesses, strides, extents."""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, depth_first, make, substitute, toposort
from svod.ir.symbolic import num, rebuild, terms_of


def new_range(nodes: UOp, size: int, kind: AxisKind) -> UOp:
    """A range with an id no range below ``nodes`` has."""
    used = [n.arg.id for n in nodes.toposort() if n.op == O.RANGE]
    return make(O.RANGE, dt.index, (num(size),), RangeArg(max(used, default=-1) + 1, kind))


def with_kind(r: UOp, kind: AxisKind) -> UOp:
    return make(O.RANGE, dt.index, r.src, RangeArg(r.arg.id, kind))


def extent(r: UOp) -> int:
    return r.vmax + 1  # type: ignore[no-any-return]


def evaluations(node: UOp) -> int:
    """How often a node is computed when every loop it needs runs, and no other."""
    return prod([extent(r) for r in node.ranges])


def stride(index: UOp, r: UOp) -> int | None:
    """Elements between neighbours along r; None when it is not a constant."""
    total = 0
    terms, _ = terms_of(index.src[1])
    for term, factor in terms.items():
        if term is r:
            total += factor
        elif r in term.ranges:
            return None
    return total


def elements_of(index: UOp) -> int:
    """Elements of memory that one value at a place takes: several where it is a word of them."""
    return max(1, index.dtype.itemsize // index.src[0].dtype.itemsize)


def renumber(sink: UOp) -> UOp:
    """Ranges numbered by structure alone, so equal kernels are the same node.

    Only numbers change, so sums that are in normal form stay so.
    """
    ranges = [n for n in depth_first(sink) if n.op == O.RANGE]
    mapping: dict[UOp, UOp] = {}
    for i, r in enumerate(ranges):
        (size,) = substitute(r.src, mapping)
        mapping[r] = make(O.RANGE, dt.index, (size,), RangeArg(i, r.arg.kind))
    if all(a is b for a, b in mapping.items()):
        return sink
    return substitute((sink,), mapping)[0]


def replace_all(root: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """Every occurrence of the keys replaced, closed ranges included; sums are simplified again.

    A replacement is not searched again.
    """
    done = dict(mapping)  # changed nodes only
    for node in toposort((root,)):
        if node not in done:
            for s in node.src:
                if s in done:
                    done[node] = rebuild(node, tuple([done.get(x, x) for x in node.src]))
                    break
    return done.get(root, root)
