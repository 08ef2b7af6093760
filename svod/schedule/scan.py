"""Loops over time become schedule loops: the body is cut into calls once, and runs once per step.

In: the SCAN nodes of one loop, in a graph that is being cut. Out: calls that carry
BIND(DEFINE_VAR, RANGE) as an argument, closed by END(CALL, RANGE), and a place for every result.
A carry lives in a buffer of several slots: step s reads slot s and writes slot s + 1, modulo two
where nobody wants its history. So a step never overwrites what it still reads, and the history of
a carry, which gradients and most outputs are, costs no further store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import AxisKind, BufferArg, ParamArg, RangeArg
from svod.ir.node import UOp, const, elements, is_symbolic, make, stored_shape, variable
from svod.ir.scan import loop_of, outer_order, outer_sources, replaced
from svod.schedule.views import movement_chain
from svod.schedule.work import LEAVES

if TYPE_CHECKING:
    from svod.schedule.cut import Cutter


def emit_loop(outer: Cutter, node: UOp) -> None:
    """Emit the calls of the loop this SCAN node is a result of; all its results get a place."""
    if node not in outer.place:
        _Opened(outer, node).emit()


class _Memory(NamedTuple):
    """A buffer of equal slots, with room for the largest sizes."""

    buffer: UOp
    slots: int
    shape: tuple[UOp | int, ...]  # of what is in one slot

    @property
    def base(self) -> UOp:
        """The buffer as a kernel's output."""
        return self.stand_in(0)

    def stand_in(self, slot: int) -> UOp:
        return make(O.PARAM, self.buffer.dtype, (), ParamArg(slot, (self.buffer.arg.size,)))

    def at(self, base: UOp, index: UOp | int) -> UOp:
        """One slot of the memory that ``base`` stands for."""
        return _used(_slice(self.whole(base), index), self.shape)

    def whole(self, base: UOp) -> UOp:
        """All slots of the memory, with the room that is not used."""
        return B.reshape(base, (self.slots, *stored_shape(self.shape)))


class Target(NamedTuple):
    """Where a value of the body goes."""

    memory: _Memory
    slot: UOp | int
    place: UOp  # the buffer, after it was started


class _Opened:
    """One loop: its counter, its memory, and its body over stand-ins for what is outside."""

    def __init__(self, outer: Cutter, node: UOp) -> None:
        self.outer = outer
        self.loop = loop = loop_of(node)
        self.results = outer.loops[loop]
        self.device = outer.device.get(node, outer.default_device)
        self.step = variable(f"scan_t{len(outer.binds)}", 0, loop.length - 1)
        number = RangeArg(outer.numbers.next_loop(), AxisKind.OUTER)
        self.range = make(O.RANGE, dt.index, (const(loop.length, dt.index),), number)
        self.time: UOp | int = loop.length - 1 - self.step if loop.is_reverse else self.step
        self.places: dict[UOp, UOp] = {}  # stand-in -> what a call is given
        self.carries = [self._carry(i) for i in range(loop.carries)]
        self.stacks: dict[UOp, _Memory] = {}  # value of the body -> one slot per time
        self.targets: dict[UOp, Target] = {}  # stored node of the opened body -> where it goes

    def emit(self) -> None:
        """Cut the body and give every result of the loop its place."""
        sink = self._body()
        bind = make(O.BIND, dt.index, (self.step, self.range))
        inner = self.outer.inside_loop(sink, self.device, bind, self.targets)
        inner.place.update(self.places)
        inner.run()
        calls = [inner.place[node].src[1] for node in self.targets]
        ends = tuple([make(O.END, dt.void, (call, self.range)) for call in calls])
        for result in self.results:
            self._place(result, ends)
        for base in inner.readers:  # the loop is one thing to whoever comes after it
            self.outer.readers.setdefault(base, []).append(ends[0])

    def _memory(self, slots: int, shape: tuple[UOp | int, ...], dtype: dt.DType) -> _Memory:
        device = make(O.DEVICE, dt.void, (), self.device)
        unique = make(O.LUNIQUE, dt.void, (), self.outer.numbers.next_local())
        arg = BufferArg(slots * elements(shape))
        return _Memory(make(O.BUFFER, dtype, (unique, device), arg), slots, shape)

    def _carry(self, number: int) -> _Memory:
        """Memory of a carry, with what it starts from in slot 0."""
        loop, outer = self.loop, self.outer
        start, own, new = loop.starts[number], loop.parameters[number], loop.body.src[number]
        is_kept = any(not r.arg.is_last and r.src[1] in (own, new) for r in self.results)
        memory = self._memory(loop.length + 1 if is_kept else 2, start.shape, start.dtype)
        body, arguments = outer.body(memory.at(memory.base, 0), start)
        call = outer.call(body, memory.buffer, arguments)
        self.places[memory.stand_in(number)] = make(O.AFTER, start.dtype, (memory.buffer, call))
        return memory

    def _inputs(self) -> dict[UOp, UOp]:
        """For each PARAM of the body what it is here: parts of stand-ins for memory."""
        loop, parameters = self.loop, self.loop.parameters
        found: dict[UOp, UOp] = {}
        for slot, memory in enumerate(self.carries):
            found[parameters[slot]] = memory.at(memory.stand_in(slot), self.step % memory.slots)
        slot = loop.carries
        for position, source in enumerate(loop.inputs[loop.carries :], loop.carries):
            value, arguments = self.outer.substitute(source, {}, slot)
            for node in outer_order((value,)):
                if node.op == O.PARAM:
                    self.places[node] = arguments[node.arg.slot - slot]
            slot += len(arguments)
            is_sliced = position < loop.carries + loop.sequences
            found[parameters[position]] = _slice(value, self.time) if is_sliced else value
        return found

    def _body(self) -> UOp:
        """A SINK of what one step writes; whoever needs a written value reads it there."""
        loop = self.loop
        wanted: dict[UOp, list[Target]] = {}
        for slot, memory in enumerate(self.carries):
            index = (self.step + 1) % memory.slots
            target = Target(memory, index, self.places[memory.stand_in(slot)])
            wanted.setdefault(loop.body.src[slot], []).append(target)
        for result in self.results:
            value = result.src[1]
            if not result.arg.is_last and value not in loop.parameters and value not in wanted:
                memory = self.stacks[value] = self._memory(loop.length, value.shape, value.dtype)
                wanted[value] = [Target(memory, self.time, memory.buffer)]
        goals: dict[UOp, list[Target]] = {}
        for node, found in zip(
            replaced(tuple(wanted), self._inputs()), wanted.values(), strict=True
        ):
            goals.setdefault(node, []).extend(found)
        done: dict[UOp, UOp] = {}
        for node in outer_order(goals):
            if node.op == O.ASSIGN:
                raise GraphError("a tensor cannot be assigned to inside a scan: make it a carry")
            own = outer_sources(node)
            src = (*node.src[: len(node.src) - len(own)], *[done[s] for s in own])
            value = node.with_sources(src)
            done[node] = value
            for target in goals.get(node, ()):
                store = make(O.CONTIGUOUS, node.dtype, (value,), len(self.targets))
                self.targets[store] = target
                if node.op not in O.MOVEMENT and node.op not in LEAVES:
                    done[node] = store
        return make(O.SINK, dt.void, tuple(self.targets))

    def _place(self, result: UOp, ends: tuple[UOp, ...]) -> None:
        loop, outer, value = self.loop, self.outer, result.src[1]
        start = -1
        if value in loop.parameters:
            memory = self.carries[loop.parameters.index(value)]
            start = loop.length % memory.slots if result.arg.is_last else 0
        elif value in loop.body.src:
            memory, start = self.carries[loop.body.src.index(value)], 1
        else:
            memory = self.stacks[value]
        outer.place[result] = make(O.AFTER, result.dtype, (memory.buffer, *ends))
        if start >= 0:
            outer.views[result] = (movement_chain(_part(memory, start, result)), memory.base)


def _slice(x: UOp, index: UOp | int) -> UOp:
    """One slice along the first axis, without it."""
    inner = x.shape[1:]
    pairs = ((index, index + 1), *[(0, n) for n in inner])
    return B.reshape(B.shrink(x, pairs), inner)  # type: ignore[arg-type]


def _used(slot: UOp, shape: tuple[UOp | int, ...]) -> UOp:
    """The part of a slot that run-time sizes leave."""
    pairs: Any = tuple([(0, n) for n in shape])
    return B.shrink(slot, pairs) if is_symbolic(shape) else slot


def _part(memory: _Memory, start: int, result: UOp) -> UOp:
    """The slots that are a result of the loop, in the order of time."""
    if result.arg.is_last:
        return memory.at(memory.base, start)
    pairs = ((start, start + result.arg.length), *[(0, n) for n in memory.shape])
    found = B.shrink(memory.whole(memory.base), pairs)
    return B.flip(found, (0,)) if result.arg.is_reverse else found
