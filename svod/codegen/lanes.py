"""The LANE axis becomes real vectors.

What depends on a lane range gets a vector dtype; the rest stays scalar and is broadcast where it
meets vectors. A memory access that moves by one element per lane keeps a scalar offset and is
one vector access; any other has a vector of offsets (gather, scatter).
"""

from __future__ import annotations

from math import prod

from svod.base.errors import GraphError
from svod.codegen.strided import ShuffledLoads
from svod.codegen.strided_stores import shuffled_stores
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import from_terms, rebuild, terms_of
from svod.optimize.graph import elements_of


def is_lane(node: UOp) -> bool:
    return node.op == O.RANGE and node.arg.kind is AxisKind.LANE


def vectorize(sink: UOp, vector_bytes: int = 0, has_masks: bool = False) -> UOp:
    """The kernel with vector values and no LANE ranges.

    With registers of a known size, loads and stores that jump from lane to lane become vector
    accesses and shuffles where that is possible; with masks, those of parts of registers too.
    """
    done: dict[UOp, UOp] = {}

    def vector_value(value: UOp) -> UOp:
        for node in value.toposort():
            if node not in done:
                done[node] = _vector_form(node, done)
        return done[value]

    order = sink.toposort()
    shuffled = ShuffledLoads(order if vector_bytes else (), vector_bytes, has_masks, vector_value)
    for node in order:
        done[node] = shuffled.vector(node) or _vector_form(node, done)
    if not vector_bytes:
        return done[sink]
    stores = shuffled_stores(sink.src, done, vector_bytes, has_masks, vector_value)
    return make(O.SINK, dt.void, tuple(stores))


def broadcast(node: UOp, lanes: int) -> UOp:
    if node.dtype.lanes == lanes:
        return node
    if node.op == O.CONST:
        return const(node.arg, node.dtype.vec(lanes))
    return make(O.BROADCAST, node.dtype.vec(lanes), (node,))


def _vector_form(node: UOp, done: dict[UOp, UOp]) -> UOp:
    op = node.op
    if is_lane(node):
        lanes = node.vmax + 1
        return make(O.LANES, dt.index.vec(lanes), (), lanes)
    src = tuple([done[s] for s in node.src])
    if op == O.INDEX:
        return _index(node, src)
    if op == O.END:
        loops = [r for r in node.src[1:] if not is_lane(r)]
        return make(O.END, dt.void, (src[0], *loops))
    if op == O.REDUCE:
        return _reduce(node, src)
    lanes = max([s.dtype.lanes for s in src], default=1)
    if op == O.STORE:
        lanes = _lanes_of(node)
        value = broadcast(src[1], lanes)
        return make(O.STORE, dt.void, (src[0], value), node.arg)
    if op == O.LOAD:
        lanes = _lanes_of(node)
        if lanes == 1:
            return make(O.LOAD, node.dtype, src)
        if not _moves(node.src[0].src[1]) and not _moves_gate(node.src[0]):
            return broadcast(make(O.LOAD, node.dtype, src), lanes)
        if not _moves(node.src[0].src[1]) and _always_exists(node.src[0]):
            return _one_value(node, lanes, done)
        return make(O.LOAD, node.dtype.vec(lanes), src)
    if lanes == 1:
        return node if src == node.src else rebuild(node, src)
    src = tuple([broadcast(s, lanes) for s in src])
    return make(op, node.dtype.vec(lanes), src, node.arg)


def _lane_of(node: UOp) -> UOp | None:
    lanes = [r for r in node.ranges if is_lane(r)]
    if len(lanes) > 1:
        raise GraphError(f"a value depends on two lane axes: {node!r}")
    return lanes[0] if lanes else None


def _lanes_of(node: UOp) -> int:
    lane = _lane_of(node)
    return 1 if lane is None else lane.vmax + 1


def _moves(node: UOp) -> bool:
    return any(is_lane(r) for r in node.ranges)


def _moves_gate(index: UOp) -> bool:
    return len(index.src) == 3 and _moves(index.src[2])


def _always_exists(index: UOp) -> bool:
    """Whether a place is inside its memory whatever its gate says."""
    memory, place = index.src[:2]
    return memory.op == O.PARAM and place.vmin >= 0 and place.vmax < prod(memory.arg.shape)


def _one_value(load: UOp, lanes: int, done: dict[UOp, UOp]) -> UOp:
    """A value that all lanes share where they have it: read once, without the gate."""
    memory, place, gate = [done[s] for s in load.src[0].src]
    index = make(O.INDEX, load.src[0].dtype, (memory, place))
    value = broadcast(make(O.LOAD, load.dtype, (index,)), lanes)
    nothing = const(False if load.dtype.kind == "b" else 0, value.dtype)
    return make(O.WHERE, value.dtype, (broadcast(gate, lanes), value, nothing))


def _index(node: UOp, src: tuple[UOp, ...]) -> UOp:
    lane = _lane_of(node)
    if lane is None:
        return node if src == node.src else make(O.INDEX, node.dtype, src)
    lanes = lane.vmax + 1
    terms, constant = terms_of(node.src[1])
    factor = terms.pop(lane, 0)
    if factor == elements_of(node) and not any(lane in t.ranges for t in terms):
        base = from_terms(terms, constant)
        return make(O.INDEX, node.dtype, (src[0], base, *src[2:]), "vector")
    if not _moves(node.src[1]) and not _moves_gate(node):
        return make(O.INDEX, node.dtype, src)
    offsets = broadcast(src[1], lanes)
    gate = [broadcast(s, lanes) for s in src[2:]]
    return make(O.INDEX, node.dtype, (src[0], offsets, *gate), "each")


def _reduce(node: UOp, src: tuple[UOp, ...]) -> UOp:
    values = [s for s, old in zip(src, node.src, strict=True) if old.op != O.RANGE]
    ranges = [s for s in node.src if s.op == O.RANGE]
    lanes = [r for r in ranges if is_lane(r)]
    loops = [r for r in ranges if not is_lane(r)]
    width = max([v.dtype.lanes for v in values])
    if lanes:
        width = max(width, lanes[0].vmax + 1)
    values = [broadcast(v, width) for v in values]
    dtype = values[0].dtype
    result = make(O.REDUCE, dtype, (*values, *loops), node.arg)
    if lanes:
        result = make(O.LANE_REDUCE, node.dtype, (result,), node.arg)
    return result
