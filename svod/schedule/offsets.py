"""Zero points of integer products, taken out of the sum so that bytes are what is multiplied.

``sum of (a[m, k] - c[m]) * b[k, n]`` is ``sum of a * b`` less ``c[m] * sum of b[k, n]``: the first
is a product of bytes where ``a`` and ``b`` are bytes, the second a sum for each column. Whole
numbers wrap, so both forms agree in every bit.
"""

from __future__ import annotations

from typing import NamedTuple

from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ReduceArg
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, make
from svod.ir.symbolic import TRUE
from svod.schedule.products import BYTES, exact_dtypes, tiled_product, with_operands
from svod.schedule.views import axis_range, output_indices, source_indices


class _Offset(NamedTuple):
    """A factor that is a value with something added, or taken off, that a sum does not move."""

    which: int  # of the factors
    value: UOp  # the factor without it
    added: UOp  # over all axes of the product
    op: int  # ADD or SUB


def without_offsets(
    sink: UOp, able: Capabilities, in_place: frozenset[UOp]
) -> tuple[UOp, frozenset[UOp]]:
    """The graph with products of bytes in place of those of bytes with zero points, but for
    products ``in_place``; and these products in it."""
    if not able.copies_tiles:
        return sink, in_place
    order = sink.toposort()
    found = {n for n in order if n not in in_place and _offset(n) is not None}
    if not found:
        return sink, in_place
    done: dict[UOp, UOp] = {}
    for node in order:
        new = node.with_sources(tuple([done[s] for s in node.src]))
        done[node] = without_offset(new) if node in found else new
    return done[sink], frozenset([done[n] for n in in_place])


def without_offset(node: UOp) -> UOp:
    """A sum of products over the factors without their offsets; the node where they have none."""
    found = _offset(node)
    if found is None:
        return node
    factors = list(node.src[0].src)
    other = _unrepeated(factors[1 - found.which], node.arg.axes)
    factors[found.which] = found.value
    product = without_offset(with_operands(node, factors))
    sums = make(O.REDUCE_AXIS, node.dtype, (other,), ReduceArg(O.ADD, node.arg.axes))
    bounds = [(0, 1) if a in node.arg.axes else (0, n) for a, n in enumerate(found.added.shape)]
    once = make(O.SHRINK, node.dtype, (found.added,), tuple(bounds))
    moved = make(O.MUL, node.dtype, (once, B.expand(sums, node.shape)))
    return make(found.op, node.dtype, (product, moved))


def _offset(node: UOp) -> _Offset | None:
    """An offset of a factor whose value is one of bytes."""
    if node.op != O.REDUCE_AXIS or node.dtype.kind not in "iu" or tiled_product(node) is None:
        return None
    for which, factor in enumerate(node.src[0].src):
        chain, below = [], factor
        while below.op in O.MOVEMENT:
            chain.append(below)
            below = below.src[0]
        if below.op not in (O.ADD, O.SUB):
            continue
        pairs = [below.src] if below.op == O.SUB else [below.src, below.src[::-1]]
        for value, added in pairs:
            if not set(BYTES).isdisjoint(exact_dtypes(value)) and value.dtype is node.dtype:
                spread = added if added.shape else B.expand(_as_array(added, value), value.shape)
                if _stays(chain, spread, node.arg.axes):
                    return _Offset(which, _moved(value, chain), _moved(spread, chain), below.op)
    return None


def _as_array(number: UOp, like: UOp) -> UOp:
    return B.reshape(number, (1,) * len(like.shape))


def _moved(value: UOp, chain: list[UOp]) -> UOp:
    for view in reversed(chain):
        value = make(view.op, value.dtype, (value,), view.arg)
    return value


def _stays(chain: list[UOp], added: UOp, summed: tuple[int, ...]) -> bool:
    """Whether a value below views is the same along summed axes, and everywhere there."""
    shape = chain[0].shape if chain else added.shape
    places = output_indices(shape)
    moving = {axis_range(a, shape[a]) for a in summed}
    views = list(chain)
    while added.op in O.MOVEMENT:
        views.append(added)
        added = added.src[0]
    for view in views:
        places, gate = source_indices(view, places)
        if gate is not TRUE:
            return False
    return all(moving.isdisjoint(place.ranges) for place in places)


def _unrepeated(factor: UOp, summed: tuple[int, ...]) -> UOp:
    """A factor without repeats along axes that are not summed."""
    repeated = factor.src[0] if factor.op == O.CAST else factor
    if repeated.op != O.EXPAND:
        return factor
    shape = repeated.src[0].shape
    sizes = tuple([factor.shape[a] if a in summed else n for a, n in enumerate(shape)])
    return B.cast(B.expand(repeated.src[0], sizes), factor.dtype)
