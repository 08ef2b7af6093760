"""The pre-schedule: everything about a run but its buffers and values.

In: a graph of kernel calls. Out: the calls sorted, with their arguments and dependencies, and the
flat list of invocations after loops were unrolled. It holds placeholders only, so it is cached and
serves every graph of the same structure; ``restored`` puts one call's nodes in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp
from svod.schedule.dependencies import (
    base_buffer,
    call_dependencies,
    canonical_source,
    primary_buffer,
    walk_calls,
)
from svod.schedule.loops import (
    BoundRangeRef,
    CallOp,
    KernelInvocation,
    bound_ranges,
    control_stream,
    scheduled_ranges,
    unroll,
)
from svod.schedule.normalize import Normalization, restore
from svod.schedule.reasons import CallFacts
from svod.schedule.sizes import variables_of


class NoKernelsFound(GraphError):
    """A graph without a single kernel call."""


@dataclass(frozen=True, slots=True)
class PreScheduleItem:
    """One call: what it runs, what it is given, what it waits for."""

    call: UOp
    body: UOp
    arguments: tuple[UOp, ...]  # the buffer behind each argument, the output first
    required: tuple[bool, ...]  # per argument: something before must have made the buffer
    aliases: tuple[int, ...]  # ids of nodes through which a buffer was reached
    dependencies: tuple[int, ...]  # ids of calls, ascending
    bound_ranges: tuple[BoundRangeRef, ...] = ()
    variables: tuple[VarArg, ...] = ()  # that the body mentions

    @property
    def id(self) -> int:
        return self.call.sn


@dataclass(frozen=True, slots=True)
class PreSchedule:
    """Calls, the order of their invocations, and where the results are."""

    items: tuple[PreScheduleItem, ...]
    invocations: tuple[KernelInvocation, ...]
    outputs: tuple[UOp, ...]  # in SINK order
    facts: Mapping[int, CallFacts] = field(default_factory=dict)  # by id of a call, for people


def create_pre_schedule(graph: UOp, facts: Mapping[UOp, CallFacts] | None = None) -> PreSchedule:
    """The pre-schedule of a graph of calls, whose root is a SINK or one result."""
    order = walk_calls(graph)
    calls = [node for node in order if node.op == O.CALL]
    if not calls:
        raise NoKernelsFound("there is no kernel call in the graph")
    before = call_dependencies(calls, order)
    scheduled = scheduled_ranges(order)
    stream = control_stream(calls, before, order)
    place = {call.sn: number for number, call in enumerate(calls)}
    sequence = [place[step.call] for step in stream if isinstance(step, CallOp)]
    variables: dict[UOp, tuple[VarArg, ...]] = {}
    items = []
    for number in sequence:
        call = calls[number]
        body = call.src[0]
        if body not in variables:
            variables[body] = variables_of(body)
        waits = tuple(sorted([calls[n].sn for n in before[number]]))
        ranges = bound_ranges(call, scheduled)
        items.append(_item(call, waits, ranges, variables[body]))
    roots = graph.src if graph.op == O.SINK else (graph,)
    outputs = tuple([base_buffer(root) for root in roots])
    known = {call.sn: found for call, found in (facts or {}).items()}
    return PreSchedule(tuple(items), tuple(unroll(stream, items)), outputs, known)


def restored(schedule: PreSchedule, found: Normalization) -> PreSchedule:
    """The schedule over this call's buffers; bodies, identities and order are shared.

    All argument and output lists are restored together, so one buffer stays one buffer.
    """
    flat: list[UOp] = []
    for item in schedule.items:
        flat.extend(item.arguments)
    flat.extend(schedule.outputs)
    distinct = tuple(dict.fromkeys(flat))
    mapping = dict(zip(distinct, restore(distinct, found), strict=True))
    items = tuple(
        [
            PreScheduleItem(
                i.call,
                i.body,
                tuple([mapping[a] for a in i.arguments]),
                i.required,
                i.aliases,
                i.dependencies,
                i.bound_ranges,
                i.variables,
            )
            for i in schedule.items
        ]
    )
    outputs = tuple([mapping[o] for o in schedule.outputs])
    return replace(schedule, items=items, outputs=outputs)


def kernel_bodies(schedule: PreSchedule) -> list[UOp]:
    """The distinct kernels, in order of first use."""
    return list(dict.fromkeys([i.body for i in schedule.items if i.body.op == O.SINK]))


def _item(
    call: UOp,
    waits: tuple[int, ...],
    ranges: tuple[BoundRangeRef, ...],
    variables: tuple[VarArg, ...],
) -> PreScheduleItem:
    arguments: list[UOp] = []
    required: list[bool] = []
    aliases: set[int] = set()
    for source in call.src[1:]:
        found = canonical_source(source)
        if found.op == O.BIND:
            continue  # a value, not memory
        base = _argument_buffer(call, found)
        aliases.update(_path_ids(source, base))
        arguments.append(base)
        required.append(found.op in (O.AFTER, O.MSELECT, O.MSTACK))
    return PreScheduleItem(
        call, call.src[0], tuple(arguments), tuple(required), tuple(sorted(aliases)), waits,
        ranges, variables,
    )  # fmt: skip


def _argument_buffer(call: UOp, source: UOp) -> UOp:
    if source.op == O.DEFINE_LOCAL:
        return source
    found = primary_buffer(source)
    if found is None:
        what = O.NAMES[source.op]
        if source.op in (O.MSELECT, O.MSTACK):
            raise GraphError(
                f"multi-device source {source.sn} ({what}) of call {call.sn} has no primary buffer"
            )
        raise GraphError(f"unsupported callable source op for buffer collection: {what}")
    return found


def _path_ids(source: UOp, base: UOp) -> Sequence[int]:
    """Ids of the nodes between an argument and its buffer."""
    found = []
    node = source
    while node is not base and node.src:
        found.append(node.sn)
        if node.op == O.MSELECT and node.src[0].op == O.MSTACK:
            stack = node.src[0]
            found.append(stack.sn)
            node = stack.src[node.arg if 0 <= node.arg < len(stack.src) else 0]
        else:
            node = node.src[0]
    return found


__all__ = [
    "KernelInvocation",
    "NoKernelsFound",
    "PreSchedule",
    "PreScheduleItem",
    "create_pre_schedule",
    "kernel_bodies",
    "restored",
]
