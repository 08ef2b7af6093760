"""One kernel's tensor graph becomes loops: movement ops turn into index arithmetic over RANGEs.

In: ``SINK(STORE(view of PARAM 0, value))`` over PARAMs. Out: ``SINK(END(STORE(INDEX, value),
*ranges))`` of scalar nodes: loads, arithmetic, REDUCE. First the places every node is needed at
are found from users to producers, then the values are built from producers to users; nothing
recurses but indices that are themselves data.
"""

from __future__ import annotations

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, const, make, serial
from svod.ir.reductions import accumulator_dtype, identity
from svod.ir.symbolic import FALSE, TRUE, ZERO, add, and_, conjuncts, lt, mul, num, sub
from svod.schedule.collapse import collapse_reduce
from svod.schedule.views import (
    Indices,
    Shape,
    axis_range,
    flatten,
    inside,
    is_stack,
    node_of,
    output_indices,
    source_indices,
)

Place = tuple[Indices, UOp]  # indices, and the gate under which they are inside the tensor
Demand = tuple[UOp, Indices, UOp]


def rangeify(body: UOp) -> UOp:
    """The loop form of one kernel."""
    lowering = _Lowering(any(n.op == O.REDUCE_AXIS for n in body.toposort()))
    ends = []
    for item in body.src:
        if item.op == O.SCATTER:
            ends.append(lowering.scatter(item))
        else:
            ends.append(lowering.store(item))
    return make(O.SINK, dt.void, tuple(ends))


_COUNTED = frozenset({O.IOTA, O.CONST, O.CAST}) | O.ALU | O.MOVEMENT
_FEW_NODES = 32


def counted_index(node: UOp, indices: Indices) -> UOp | None:
    """The value of a tensor at a place as index arithmetic; None where data have a say in it."""
    found = [node]
    for n in found:
        if n.op not in _COUNTED or len(found) > _FEW_NODES:
            return None
        found.extend([s for s in n.src if s not in found])
    (value,) = _Lowering(False).lower([(node, indices if node.shape else (), TRUE)])
    return _as_index(value)


class _Lowering:
    def __init__(self, reduces: bool) -> None:
        self.values: dict[Demand, UOp] = {}
        self.reduces = reduces
        self.reduce_count = 0

    def store(self, item: UOp) -> UOp:
        target, value = item.src
        indices = output_indices(target.shape)
        place = _target_offset(target, indices)
        (result,) = self.lower([(value, indices if value.shape else (), TRUE)])
        store = make(O.STORE, dt.void, (place, result))
        ranges = [i for i in indices if i.op == O.RANGE]
        return make(O.END, dt.void, (store, *ranges))

    def scatter(self, item: UOp) -> UOp:
        target, values = item.src[0], item.src[1]
        indices = output_indices(values.shape)
        lead = len(item.src[2].shape)
        places = self.lower([(s, indices[:lead], TRUE) for s in item.src[2:]])
        inner, gate = _data_indices(places, target.shape)
        memory, offset = _target_offset(target, (*inner, *indices[lead:])).src
        (value,) = self.lower([(values, indices, TRUE)])
        index = _index(memory, offset, gate)
        if item.arg != "set":
            old = make(O.LOAD, value.dtype, (index,))
            value = make(O.ADD if item.arg == "add" else O.MAX, value.dtype, (old, value))
        store = make(O.STORE, dt.void, (index, value), "ordered")
        ranges = [i for i in indices if i.op == O.RANGE]
        return make(O.END, dt.void, (store, *ranges))

    def lower(self, demands: list[Demand]) -> list[UOp]:
        """The values of tensor nodes at places."""
        values = self.values
        needed: dict[UOp, list[Place]] = {}
        links: dict[Demand, list[Demand]] = {}
        extra: dict[Demand, tuple[UOp, ...]] = {}

        nodes = _reachable([d[0] for d in demands])
        for node, indices, gate in demands:
            needed.setdefault(node, []).append((indices, gate))
        for node in reversed(nodes):
            places = needed.get(node)
            if places is None:
                continue
            for place in dict.fromkeys(places):
                demand = (node, *place)
                if demand in values:
                    continue
                children = self._children(node, place[0], place[1], extra)
                links[demand] = children
                for child, child_indices, child_gate in children:
                    needed.setdefault(child, []).append((child_indices, child_gate))
        for demand in sorted(links, key=lambda d: d[0].sn):
            parts = [values[c] for c in links[demand]]
            values[demand] = self._value(demand, parts, extra.get(demand, ()))
        return [values[d] for d in demands]

    def _children(
        self, node: UOp, indices: Indices, gate: UOp, extra: dict[Demand, tuple[UOp, ...]]
    ) -> list[Demand]:
        op = node.op
        if op in O.ALU or op == O.CAST or op == O.BITCAST or op == O.CONTIGUOUS:
            return [(s, indices if s.shape else (), gate) for s in node.src]
        if op in O.MOVEMENT:
            inner, valid = source_indices(node, indices)
            if valid is not TRUE:
                extra[node, indices, gate] = (valid,)
                gate = and_(gate, valid)
                if gate is FALSE:
                    return []
            return [(node.src[0], inner, gate)]
        if op == O.REDUCE_AXIS:
            places = list(indices)
            ranges = []
            for axis in node.arg.axes:
                size = node.src[0].shape[axis]
                if size == 0:
                    return []
                places[axis] = axis_range(100 + self.reduce_count, size, AxisKind.REDUCE)
                self.reduce_count += 1
                if size != 1:
                    ranges.append(places[axis])
            extra[node, indices, gate] = tuple(ranges)
            return [(node.src[0], tuple(places), gate)]
        if op == O.GATHER:
            lead = len(node.src[1].shape)
            found = self.lower([(s, indices[:lead], gate) for s in node.src[1:]])
            inner, valid = _data_indices(found, node.src[0].shape)
            extra[node, indices, gate] = (valid,)
            return [(node.src[0], (*inner, *indices[lead:]), and_(gate, valid))]
        if op == O.CAT:
            return self._cat_children(node, indices, gate, extra)
        if op in (O.CONST, O.PARAM, O.IOTA, O.DEFINE_VAR, O.BIND):
            return []
        raise GraphError(f"{O.NAMES[op]} cannot be part of a kernel: {node!r}")

    def _cat_children(
        self, node: UOp, indices: Indices, gate: UOp, extra: dict[Demand, tuple[UOp, ...]]
    ) -> list[Demand]:
        axis = node.arg
        children = []
        gates = []
        start = 0
        # Single elements are inside wherever the loop stands. Many are read only where they are
        # chosen, unless the loop will be written out.
        are_single = all(s.shape[axis] == 1 for s in node.src)
        is_free = not are_single or (not self.reduces and is_stack(node, indices))
        for s in node.src:
            stop = start + s.shape[axis]
            first, end = node_of(start), node_of(stop)
            valid = and_(lt(sub(first, indices[axis]), 1), lt(indices[axis], end))
            if s.shape[axis] != 0 and valid is not FALSE:
                place = list(indices)
                is_single = s.shape[axis] == 1
                place[axis] = ZERO if is_single else sub(indices[axis], first)
                needed = gate if is_single and is_free else and_(gate, valid)
                children.append((s, tuple(place), needed))
                gates.append(lt(indices[axis], end))
            start = stop
        extra[node, indices, gate] = tuple(gates)
        return children

    def _value(self, demand: Demand, parts: list[UOp], extra: tuple[UOp, ...]) -> UOp:
        node, indices, gate = demand
        op, dtype = node.op, node.dtype
        if op in O.ALU or op == O.CAST or op == O.BITCAST:
            return simplify_value(op, dtype, tuple(parts), node.arg)
        if op == O.CONTIGUOUS:
            return parts[0]
        if op == O.PARAM:
            return _load(node, flatten(indices, node.arg.shape), gate)
        if op == O.CONST or op == O.DEFINE_VAR or op == O.BIND:
            return node
        if op == O.IOTA:
            return simplify_value(O.CAST, dtype, (indices[0],), None)
        if op in O.MOVEMENT or op == O.GATHER:
            if not extra:
                return parts[0]
            if not parts or extra[0] is FALSE:
                return const(0, dtype)
            return gated(extra[0], parts[0])
        if op == O.CAT:
            value = parts[-1]
            for test, part in zip(reversed(extra[:-1]), reversed(parts[:-1]), strict=True):
                value = make(O.WHERE, dtype, (test, part, value))
            return value
        if op == O.REDUCE_AXIS:
            if not parts:
                return const(identity(node.arg.op, dtype), dtype)
            return _reduce(node.arg.op, dtype, parts[0], extra)
        raise GraphError(f"{O.NAMES[op]} has no value in a kernel")


def _reduce(op: int, dtype: dt.DType, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    if not ranges:
        return value
    value = simplify_value(O.CAST, accumulator_dtype(op, dtype), (value,), None)
    return simplify_value(O.CAST, dtype, (collapse_reduce(op, value, ranges),), None)


def gated(valid: UOp, value: UOp) -> UOp:
    """The value where valid, else zero. A gated load already gives zero outside."""
    if valid is TRUE:
        return value
    if value.op == O.LOAD and len(value.src[0].src) == 3:
        have = conjuncts(value.src[0].src[2])
        if all(c in have for c in conjuncts(valid)):
            return value
    if value.op == O.CONST and value.arg == 0 and str(value.arg) != "-0.0":
        return value
    return make(O.WHERE, value.dtype, (valid, value, const(0, value.dtype)))


def simplify_value(op: int, dtype: dt.DType, src: tuple[UOp, ...], arg: object) -> UOp:
    """An arithmetic node; casts of casts between index and wide integers fold."""
    if op == O.CAST:
        value = src[0]
        if value.dtype is dtype:
            return value
        if value.op == O.CONST and dtype.kind in "iux" and value.dtype.kind in "iuxb":
            lo, hi = dt.integer_limits(dtype)
            if lo <= int(value.arg) <= hi:
                return const(int(value.arg), dtype)
    elif op == O.WHERE:
        if src[0] is TRUE:
            return src[1]
        if src[0] is FALSE:
            return src[2]
    elif op == O.LT and src[0].dtype.kind in "iu":
        a, b = _as_index(src[0]), _as_index(src[1])
        test = None if a is None or b is None else lt(a, b)
        if test is TRUE or test is FALSE:  # as of counters that are never negative
            return test
    elif len(src) == 2 and dtype.kind in "iu":
        lifted = _lift_index(op, dtype, src)
        if lifted is not None:
            return lifted
    return make(op, dtype, src, arg)


def _lift_index(op: int, dtype: dt.DType, src: tuple[UOp, ...]) -> UOp | None:
    """Integer arithmetic on loop counters is index arithmetic when it cannot wrap."""
    a, b = _as_index(src[0]), _as_index(src[1])
    if a is None or b is None or (a.op == O.CONST and b.op == O.CONST):
        return None
    if op == O.ADD:
        value = add(a, b)
    elif op == O.SUB:
        value = sub(a, b)
    elif op == O.MUL and (a.op == O.CONST or b.op == O.CONST):
        value = mul(a, b)
    else:
        return None
    lo, hi = dt.integer_limits(dtype)
    if value.vmin < lo or value.vmax > hi:
        return None
    return make(O.CAST, dtype, (value,)) if value.op != O.CONST else const(value.arg, dtype)


def _as_index(node: UOp) -> UOp | None:
    if node.op == O.CONST:
        return num(int(node.arg))
    if node.op == O.CAST and node.src[0].dtype is dt.index and node.dtype.kind in "iu":
        lo, hi = dt.integer_limits(node.dtype)
        if lo <= node.src[0].vmin and node.src[0].vmax <= hi:  # else it wraps
            return node.src[0]
    return None


def _data_indices(found: list[UOp], shape: Shape) -> tuple[Indices, UOp]:
    """Index values read from tensors as index nodes, with the gate that keeps them inside."""
    inner = []
    gate = TRUE
    for value, size in zip(found, shape, strict=False):
        counted = _as_index(value)
        index = make(O.CAST, dt.index, (value,)) if counted is None else counted
        gate = and_(gate, inside(counted or value, index, node_of(size)))
        inner.append(ZERO if size == 1 else index)
    return tuple(inner), gate


def _index(memory: UOp, offset: UOp, gate: UOp) -> UOp:
    src = (memory, offset) if gate is TRUE else (memory, offset, gate)
    return make(O.INDEX, memory.dtype, src)


def _load(memory: UOp, offset: UOp, gate: UOp) -> UOp:
    if gate is FALSE:
        return const(0, memory.dtype)
    return make(O.LOAD, memory.dtype, (_index(memory, offset, gate),))


def _target_offset(target: UOp, indices: Indices) -> UOp:
    while target.op in O.MOVEMENT:
        indices, valid = source_indices(target, indices)
        if valid is not TRUE:
            raise GraphError("a store cannot go through PAD")
        target = target.src[0]
    return _index(target, flatten(indices, target.arg.shape), TRUE)


def _reachable(roots: list[UOp]) -> list[UOp]:
    """Nodes by creation order, not entering the index sources of gathers."""
    seen = set(roots)
    found = list(seen)
    for node in found:
        for s in node.src[:1] if node.op == O.GATHER else node.src:
            if s not in seen:
                seen.add(s)
                found.append(s)
    found.sort(key=serial)
    return found
