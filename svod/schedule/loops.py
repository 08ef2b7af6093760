"""Schedule loops: calls that run once per value of a counter.

A RANGE is a schedule loop where an END closes it around a CALL. In: calls and their graph.
Out: the flat list of invocations, with the counters as numbers: loops are unrolled here, once.
On the way the loops are a linear control stream, RangeOp CallOp .. EndOp, that a small interpreter
runs. A call is inside every loop whose counter reaches it and that is not closed before it, so
calls that do not need a counter run before the loop, not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.schedule.dependencies import sort_calls


@dataclass(frozen=True, slots=True)
class BoundRangeRef:
    """A variable of a call that takes the values of a loop counter."""

    name: str
    range: UOp


@dataclass(slots=True)  # not frozen: long loops make thousands of these
class KernelInvocation:
    """One run of a call, with the loop counters it sees."""

    call: int  # id of the CALL
    fixedvars: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RangeOp:
    """Start counting."""

    range: UOp


@dataclass(frozen=True, slots=True)
class CallOp:
    """Run a call."""

    call: int


@dataclass(frozen=True, slots=True)
class EndOp:
    """Count on and go back, or fall through after the last value."""

    range: UOp
    call: int  # the one the END is around


ControlOp: TypeAlias = RangeOp | CallOp | EndOp


class Callable(Protocol):
    """What the loops must know of a call."""

    @property
    def call(self) -> UOp: ...
    @property
    def bound_ranges(self) -> tuple[BoundRangeRef, ...]: ...


def scheduled_ranges(order: Sequence[UOp]) -> dict[UOp, UOp]:
    """The RANGEs closed by an END around a CALL, each with the last such END."""
    found: dict[UOp, UOp] = {}
    for node in order:
        if node.op == O.END and node.src[0].op == O.CALL:
            ranges = [r for r in node.src[1:] if r.op == O.RANGE]
            if len(ranges) > 1:
                raise GraphError(
                    "END(CALL) must close at most one wrapper range, got "
                    f"{len(ranges)} around call {node.src[0].sn}"
                )
            found.update(dict.fromkeys(ranges, node))
    return found


def bound_ranges(call: UOp, scheduled: Mapping[UOp, UOp]) -> tuple[BoundRangeRef, ...]:
    """The variables of a call that are loop counters; other BINDs are the user's."""
    if call.op != O.CALL:
        raise GraphError(f"expected a CALL, got {O.NAMES[call.op]}")
    found = []
    for argument in call.src[1:]:
        if argument.op != O.BIND:
            continue
        variable, value = argument.src
        if variable.op != O.DEFINE_VAR:
            raise GraphError(f"CALL BIND source must wrap DEFINE_VAR, got {O.NAMES[variable.op]}")
        if value.op == O.RANGE and value in scheduled:
            found.append(BoundRangeRef(variable.arg.name, value))
    return tuple(found)


def range_bounds(node: UOp) -> tuple[int, int]:
    """First and last value of a loop counter; both must be known now."""
    if node.op != O.RANGE:
        raise GraphError(f"expected RANGE for schedule loop control, got {O.NAMES[node.op]}")
    size = node.src[0]
    if size.op != O.CONST:
        raise GraphError(f"schedule range size must be a concrete integer, got {size!r}")
    last = int(size.arg) - 1
    if last < 0:
        raise GraphError(f"invalid schedule range bounds: vmin=0, vmax={last}")
    return 0, last


def control_stream(
    calls: Sequence[UOp], before: Sequence[set[int]], order: Sequence[UOp]
) -> list[ControlOp]:
    """The calls as a linear program, producers first, loops opened late and closed early."""
    ends = scheduled_ranges(order)
    if not ends:
        stream: list[ControlOp] = [CallOp(calls[n].sn) for n in sort_calls(calls, before)]
    else:
        stream = _LoopTree(calls, before, ends).stream()
    if not stream:
        raise GraphError("the schedule has an empty control stream")
    return stream


def unroll(stream: Sequence[ControlOp], items: Sequence[Callable]) -> list[KernelInvocation]:
    """Run the control stream: every call with every combination of its counters."""
    bound = {item.call.sn: item.bound_ranges for item in items}
    _check_stream(stream, bound)
    found: list[KernelInvocation] = []
    counters: dict[UOp, int] = {}
    targets: dict[UOp, int] = {}
    place = 0
    while place < len(stream):
        step = stream[place]
        place += 1
        if isinstance(step, RangeOp):
            counters[step.range] = range_bounds(step.range)[0]
            targets[step.range] = place
        elif isinstance(step, EndOp):
            if step.call not in bound:
                raise GraphError(f"linear END names unknown CALL id {step.call}")
            if step.range not in counters:
                raise GraphError(f"END names schedule range {step.range.sn} that is not active")
            if counters[step.range] < range_bounds(step.range)[1]:
                counters[step.range] += 1
                place = targets[step.range]
            else:
                del counters[step.range], targets[step.range]
        else:
            if step.call not in bound:
                raise GraphError(f"linear CALL names unknown kernel id {step.call}")
            found.append(KernelInvocation(step.call, _counters(step.call, bound, counters)))
    return found


def _counters(
    call: int, bound: Mapping[int, Sequence[BoundRangeRef]], counters: Mapping[UOp, int]
) -> dict[str, int]:
    values = {}
    for reference in bound[call]:
        if reference.range not in counters:
            raise GraphError(
                f"CALL {call} bound variable {reference.name!r} refers to inactive schedule "
                f"range {reference.range.sn}"
            )
        values[reference.name] = counters[reference.range]
    return values


def _check_stream(
    stream: Sequence[ControlOp], bound: Mapping[int, Sequence[BoundRangeRef]]
) -> None:
    declared = {step.range for step in stream if isinstance(step, RangeOp)}
    ended = {step.range for step in stream if isinstance(step, EndOp)}
    for missing in declared - ended:
        raise GraphError(f"schedule range {missing.sn} is missing its END")
    for call, references in bound.items():
        for reference in references:
            if reference.range not in declared:
                raise GraphError(
                    f"CALL {call} bound variable {reference.name!r} refers to schedule range "
                    f"{reference.range.sn}, which is missing from the schedule"
                )


class _LoopTree:
    """Loops and what is directly inside each; None is the whole schedule."""

    def __init__(
        self, calls: Sequence[UOp], before: Sequence[set[int]], ends: Mapping[UOp, UOp]
    ) -> None:
        self.calls = calls
        self.before = before
        self.ends = ends
        around = {r: self._around(r, end) for r, end in ends.items()}
        self.parent = {r: self._innermost(open_, around) for r, open_ in around.items()}
        wrapped = {end.src[0]: r for r, end in ends.items()}
        self.home: list[UOp | None] = []
        for call in calls:
            open_ = {r for r in call.ranges if r in ends}
            if call in wrapped:
                open_.add(wrapped[call])
            self.home.append(self._innermost(open_, around))

    def stream(self) -> list[ControlOp]:
        return self._emit(None)

    def _around(self, r: UOp, end: UOp) -> set[UOp]:
        """The loops that are open around a loop."""
        return {o for o in end.ranges | r.src[0].ranges if o in self.ends and o is not r}

    def _innermost(self, open_: set[UOp], around: Mapping[UOp, set[UOp]]) -> UOp | None:
        if not open_:
            return None
        deepest = max(open_, key=lambda r: (len(around[r]), r.sn))
        if not open_ <= around[deepest] | {deepest}:
            numbers = sorted(r.sn for r in open_)
            raise GraphError(f"schedule ranges {numbers} are open together but do not nest")
        return deepest

    def _path(self, number: int, inside: UOp | None) -> UOp | int | None:
        """The item directly inside a loop that holds a call: the call, or a loop around it."""
        item: UOp | int = number
        where = self.home[number]
        while where is not inside:
            if where is None:
                return None
            item, where = where, self.parent[where]
        return item

    def _emit(self, inside: UOp | None) -> list[ControlOp]:
        items: list[UOp | int] = []
        holder: dict[int, int] = {}  # call -> place of its item
        for number in range(len(self.calls)):
            item = self._path(number, inside)
            if item is not None:
                if item not in items:
                    items.append(item)
                holder[number] = items.index(item)
        waits: list[set[int]] = [set() for _ in items]
        for number, place in holder.items():
            for producer in self.before[number]:
                other = holder.get(producer)
                if other is not None and other != place:
                    waits[place].add(other)
        names = [self.calls[i] if isinstance(i, int) else i for i in items]
        stream: list[ControlOp] = []
        for place in sort_calls(names, waits):
            item = items[place]
            if isinstance(item, int):
                stream.append(CallOp(self.calls[item].sn))
            else:
                last = self.ends[item].src[0].sn
                stream += [RangeOp(item), *self._emit(item), EndOp(item, last)]
        return stream
