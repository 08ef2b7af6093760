"""A loop over time as nodes: SCAN(body, value, *inputs).

The body is a SINK of the carries after one step. It is a closed graph: it reads PARAMs only, one
per input: what a carry is before the step, the slice of a sequence at this time, a constant. A
SCAN node is one result of the loop: ``value``, a node of the body's graph, at every time, or with
``is_last`` a carry after the last step. Results with the same body and inputs are one loop, which
runs once. Walks over the graph outside do not enter the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg, ScanArg
from svod.ir.node import UOp, make


class Loop(NamedTuple):
    """What all results of one loop share."""

    body: UOp
    inputs: tuple[UOp, ...]  # starts of the carries, sequences, constants
    length: int
    carries: int
    sequences: int
    is_reverse: bool

    @property
    def starts(self) -> tuple[UOp, ...]:
        return self.inputs[: self.carries]

    @property
    def stacks(self) -> tuple[UOp, ...]:
        return self.inputs[self.carries : self.carries + self.sequences]

    @property
    def constants(self) -> tuple[UOp, ...]:
        return self.inputs[self.carries + self.sequences :]

    @property
    def parameters(self) -> tuple[UOp, ...]:
        """What the body reads for each input."""
        found = []
        for slot, source in enumerate(self.inputs):
            is_sliced = self.carries <= slot < self.carries + self.sequences
            shape = source.shape[1:] if is_sliced else source.shape
            found.append(parameter(slot, shape, source.dtype))
        return tuple(found)

    def last(self, carry: int) -> UOp:
        """A carry after the last step."""
        return self._result(self.parameters[carry], True)

    def stacked(self, value: UOp) -> UOp:
        """A value of the body at every time, the first time first."""
        parameters = self.parameters
        if value in parameters:
            slot = parameters.index(value)
            if slot >= self.carries + self.sequences:
                return self._repeated(self.inputs[slot])
            if slot >= self.carries:
                return self.inputs[slot]
        elif not any(n.op == O.PARAM for n in outer_order((value,))):
            return self._repeated(value)
        return self._result(value, False)

    def _repeated(self, value: UOp) -> UOp:
        return B.expand(B.reshape(value, (1, *value.shape)), (self.length, *value.shape))

    def _result(self, value: UOp, is_last: bool) -> UOp:
        arg = ScanArg(self.length, self.carries, self.sequences, self.is_reverse, is_last)
        return make(O.SCAN, value.dtype, (self.body, value, *self.inputs), arg)


def loop_of(node: UOp) -> Loop:
    """The loop a SCAN node is a result of."""
    length, carries, sequences, is_reverse, _ = node.arg
    return Loop(node.src[0], node.src[2:], length, carries, sequences, is_reverse)


def parameter(slot: int, shape: tuple[int, ...], dtype: DType) -> UOp:
    """What stands for an input inside a body."""
    return make(O.PARAM, dtype, (), ParamArg(slot, shape))


def outer_sources(node: UOp) -> tuple[UOp, ...]:
    """The sources of a node in its own graph: the body of a loop is another one."""
    return node.src[2:] if node.op == O.SCAN else node.src


def outer_order(roots: Iterable[UOp]) -> list[UOp]:
    """Sources first, left to right, as `depth_first`; bodies of loops are not entered."""
    order: list[UOp] = []
    seen: set[UOp] = set()
    done: set[UOp] = set()
    stack = list(roots)[::-1]
    while stack:
        node = stack[-1]
        if node in seen:  # its sources are done, or it was met twice before its turn came
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
            continue
        seen.add(node)
        for s in reversed(outer_sources(node)):
            if s not in seen:
                stack.append(s)
    return order


def replaced(roots: Sequence[UOp], mapping: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
    """The roots with nodes replaced; bodies of loops stay, for their PARAMs are their own."""
    done = dict(mapping)
    for node in outer_order(roots):
        if node in done:
            continue
        own = outer_sources(node)
        body = node.src[: len(node.src) - len(own)]
        done[node] = node.with_sources((*body, *[done[s] for s in own]))
    return tuple([done[r] for r in roots])


class Carry(NamedTuple):
    """A carry of a loop to be made: what its body reads, what it starts from, what it becomes."""

    leaf: UOp
    start: UOp
    new: UOp


class Given(NamedTuple):
    """A sequence or constant of a loop to be made: what its body reads, and its source."""

    leaf: UOp
    source: UOp


def closed(
    length: int,
    is_reverse: bool,
    carries: Sequence[Carry],
    sequences: Sequence[Given],
    constants: Sequence[Given],
    values: Sequence[UOp],
) -> tuple[Loop, tuple[UOp, ...]]:
    """The loop over some leaves, without the inputs it does not use, and the values inside it."""
    roots = (*[c.new for c in carries], *values)
    used = set(outer_order(roots))
    sliced = [s for s in sequences if s.leaf in used]
    fixed = [c for c in constants if c.leaf in used]
    leaves = [c.leaf for c in carries] + [s.leaf for s in sliced] + [c.leaf for c in fixed]
    mapping = {n: parameter(slot, n.shape, n.dtype) for slot, n in enumerate(leaves)}
    inside = replaced(roots, mapping)
    inputs = (*[c.start for c in carries], *[g.source for g in (*sliced, *fixed)])
    body = make(O.SINK, dt.void, inside[: len(carries)])
    loop = Loop(body, inputs, length, len(carries), len(sliced), is_reverse)
    return loop, inside[len(carries) :]
