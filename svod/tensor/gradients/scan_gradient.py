"""The gradient of a scan: a scan over the steps in reverse.

In: gradients of the results of one loop. Out: gradients of its inputs. The carry of the backward
loop is the gradient of the forward carry. It reads the carries of the forward loop from their
history, and products and sums of the forward body from memory; what is cheap it computes again.
The gradient of a constant is a sum over time: where it comes from products (weights, biases), the
factors are stored and the sum is one large product after the loop, else the loop adds it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const, elements, make
from svod.ir.scan import (
    Carry,
    Given,
    closed,
    loop_of,
    outer_order,
    outer_sources,
    parameter,
    replaced,
)

Gradients: TypeAlias = Callable[
    [Sequence[tuple[UOp, UOp]], Sequence[UOp]], "list[UOp | None]"
]  # of values with their own gradients, with respect to targets
_FRESH = 1 << 20  # slots of leaves that are no inputs of the forward loop
_SAVED = frozenset({O.REDUCE_AXIS, O.SCAN, O.CUSTOM_FUNCTION, O.SCATTER, O.SORT})


def loop_gradients(
    seeds: Sequence[tuple[UOp, UOp]], needed: set[UOp], gradients: Gradients
) -> list[tuple[UOp, UOp]]:
    """Inputs of a loop and what they receive, given its results and their gradients."""
    back = _Backward(seeds)
    wanted = [
        i
        for i, (source, own) in enumerate(zip(back.loop.inputs, back.parameters, strict=True))
        if own.dtype.kind == "f" and (i in back.carried or source in needed)
    ]
    found = gradients(back.roots, [back.parameters[i] for i in wanted])
    parts = back.assembled(dict(zip(wanted, back.with_saved(found), strict=True)))
    return [(back.loop.inputs[i], g) for i, g in parts if back.loop.inputs[i] in needed]


class _Backward:
    """The backward loop while it is put together."""

    def __init__(self, seeds: Sequence[tuple[UOp, UOp]]) -> None:
        self.loop = loop = loop_of(seeds[0][0])
        self.parameters = parameters = loop.parameters
        self.slot = _FRESH
        self.ends: dict[int, UOp] = {}  # gradients of carries after the last step
        self.sequences: list[Given] = []
        self.roots: list[tuple[UOp, UOp]] = []  # values of the forward body, and their gradients
        for node, own in seeds:
            value = node.src[1]
            if node.arg.is_last:
                self.ends[parameters.index(value)] = own
            else:
                self.roots.append((value, self._sequence(value, own)))
        self.carried = {
            i: self._leaf(p)
            for i, p in enumerate(parameters[: loop.carries])
            if p.dtype.kind == "f"
        }
        self.roots += [(loop.body.src[i], leaf) for i, leaf in self.carried.items()]

    def _leaf(self, like: UOp) -> UOp:
        self.slot += 1
        return parameter(self.slot, like.shape, like.dtype)

    def _sequence(self, like: UOp, source: UOp) -> UOp:
        leaf = self._leaf(like)
        self.sequences.append(Given(leaf, source))
        return leaf

    def with_saved(self, found: Sequence[UOp | None]) -> list[UOp | None]:
        """What the forward body computed at some cost is stored there and read here."""
        forward = set(outer_order([*self.loop.body.src, *[v for v, _ in self.roots]]))
        roots = [g for g in found if g is not None]
        mapping: dict[UOp, UOp] = {}
        reached, seen = list(roots), set(roots)
        for node in reached:  # grows while it is read
            if node in forward and node.op in _SAVED:
                mapping[node] = self._sequence(node, self.loop.stacked(node))
                continue
            for s in outer_sources(node):
                if s not in seen:
                    seen.add(s)
                    reached.append(s)
        moved = iter(replaced(roots, mapping))
        return [None if g is None else next(moved) for g in found]

    def assembled(self, given: dict[int, UOp | None]) -> list[tuple[int, UOp]]:
        """The gradients of inputs by position, from what one backward step gives for each."""
        loop, parameters = self.loop, self.parameters
        first, count = loop.carries + loop.sequences, len(parameters)
        sliced = {i: g for i, g in given.items() if loop.carries <= i < first and g is not None}
        fixed = {i: g for i, g in given.items() if i >= first and g is not None}
        added = {i: g for i, g in fixed.items() if not _is_product(g)}
        carries = []
        for i, leaf in self.carried.items():
            zero = B.full(leaf.shape, 0, leaf.dtype)
            new = given[i]
            carries.append(Carry(leaf, self.ends.get(i, zero), zero if new is None else new))
        for g in added.values():
            leaf = self._leaf(g)
            total = B.binary(O.ADD, leaf, g)
            carries.append(Carry(leaf, B.full(g.shape, 0, g.dtype), total))
        for i, own in enumerate(parameters[:first]):
            source = loop.stacked(own) if i < loop.carries else loop.inputs[i]
            self.sequences.append(Given(own, source))
        constants = [Given(parameters[i], loop.inputs[i]) for i in range(first, count)]
        over_time = _OverTime(loop.length, self.sequences, constants, self._leaf)
        sums = {i: over_time.summed(g) for i, g in fixed.items() if i not in added}
        values = (*sliced.values(), *over_time.factors)
        back, inside = closed(
            loop.length, not loop.is_reverse, carries, self.sequences, constants, values
        )
        stacks = [back.stacked(v) for v in inside]
        result = [(i, back.last(place)) for place, i in enumerate((*self.carried, *added))]
        result += zip(sliced, stacks, strict=False)
        factors = zip(over_time.factors.values(), stacks[len(sliced) :], strict=True)
        return result + list(zip(sums, replaced(tuple(sums.values()), dict(factors)), strict=True))


def _is_wide(node: UOp) -> bool:
    """Whether an elementwise value has more elements than what it is computed from."""
    if node.op not in O.ELEMENTWISE:
        return False
    count = 0
    for s in node.src:
        while s.op in O.MOVEMENT:
            s = s.src[0]
        count += elements(s.shape)
    return elements(node.shape) > count


def _is_product(node: UOp) -> bool:
    """Whether a sum over time of this is better taken of its factors, after the loop."""
    while node.op in O.MOVEMENT or node.op in (O.CAST, O.NEG):
        node = node.src[0]
    if node.op == O.ADD:
        return all(_is_product(s) for s in node.src)
    return _is_wide(node) or (node.op == O.REDUCE_AXIS and node.arg.op == O.ADD)


class _OverTime:
    """Values of a body at all times at once, with time as the first axis.

    ``factors`` are the values that only the loop can give, each with what stands for it.
    """

    def __init__(
        self,
        length: int,
        sequences: Sequence[Given],
        constants: Sequence[Given],
        leaf: Callable[[UOp], UOp],
    ) -> None:
        self.length = length
        self.known = {g.leaf: g.source for g in sequences}
        self.known |= {g.leaf: _timeless(g.source) for g in constants}
        self.leaf = leaf
        self.factors: dict[UOp, UOp] = {}

    def summed(self, node: UOp) -> UOp:
        """The sum over time."""
        op = node.op
        if op in O.MOVEMENT or op in (O.CAST, O.NEG, O.ADD):
            src = tuple([self.summed(s) for s in node.src])
            if all(s.shape == own.shape for s, own in zip(src, node.src, strict=True)):
                return make(op, node.dtype, src, node.arg)
        axes: tuple[int, ...] = ()
        source = node
        if op == O.REDUCE_AXIS and node.arg.op == O.ADD:
            source, axes = node.src[0], tuple([a + 1 for a in node.arg.axes])
        found = self.at_all_times(source)
        if found.shape[0] != self.length:  # the same at every time
            scale = const(self.length, found.dtype)
            return B.reshape(B.binary(O.MUL, B.reduce(found, O.ADD, axes), scale), node.shape)
        return B.reshape(B.reduce(found, O.ADD, (0, *axes)), node.shape)

    def at_all_times(self, node: UOp) -> UOp:
        """The value with an axis of time, of size 1 where it does not change."""
        found = self.known.get(node)
        if found is None:
            found = self.known[node] = self._made(node)
        return found

    def _made(self, node: UOp) -> UOp:
        if not any(n.op == O.PARAM for n in outer_order((node,))):
            return _timeless(node)
        if node.op in O.MOVEMENT:
            return moved(node, self.at_all_times(node.src[0]))
        if not _is_wide(node):
            shape = (self.length, *node.shape)
            stand_in = self.leaf(B.full(shape, 0, node.dtype))
            self.factors[node] = stand_in
            return stand_in
        sources = [self.at_all_times(s) for s in node.src]
        rank = len(node.shape)
        sources = [
            B.reshape(s, (s.shape[0], *(1,) * rank)) if len(s.shape) == 1 else s for s in sources
        ]
        shape = (max([s.shape[0] for s in sources]), *node.shape)
        return make(
            node.op, node.dtype, tuple([B.broadcast_to(s, shape) for s in sources]), node.arg
        )


def _timeless(node: UOp) -> UOp:
    return B.reshape(node, (1, *node.shape))


def moved(node: UOp, x: UOp) -> UOp:
    """The movement that a node is, of everything in x but its first axis."""
    op, arg, size = node.op, node.arg, x.shape[0]
    if op == O.RESHAPE:
        return B.reshape(x, (size, *arg))
    if op == O.EXPAND:
        return B.expand(x, (size, *arg))
    if op == O.PERMUTE:
        return B.permute(x, (0, *[a + 1 for a in arg]))
    if op == O.PAD:
        return B.pad(x, ((0, 0), *arg))
    if op == O.SHRINK:
        return B.shrink(x, ((0, size), *arg))
    return B.flip(x, tuple([a + 1 for a in arg]))
