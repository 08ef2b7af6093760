"""realize and prepare: from tensors to a plan, and from a plan back to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import BatchOutputMismatch, BufferNotFound, EmptySchedule
from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make, maybe_sweep
from svod.runtime.plan import ExecutionPlan
from svod.runtime.prepare import prepare_plan
from svod.schedule.normalize import normalize
from svod.schedule.schedule import PreSchedule, pre_schedule
from svod.tensor import registry

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def realize(tensors: Sequence[Tensor], config: Any = None) -> None:
    """Compute the values of tensors; shared parts are computed once."""
    pending = _pending(tensors)
    if not pending:
        return
    plan = _plan(pending, run=True)
    _wire(pending, plan)
    maybe_sweep()


def prepare(tensors: Sequence[Tensor], config: Any = None) -> ExecutionPlan:
    """The plan that computes the tensors; they point at its outputs at once."""
    pending = _pending(tensors)
    if not pending:
        raise EmptySchedule("nothing to prepare: every tensor is realised, constant or empty")
    plan = _plan(pending)
    _wire(pending, plan)
    return plan


def schedule_of(tensors: Sequence[Tensor]) -> tuple[PreSchedule, list[UOp]]:
    """The schedule of tensors that are not realised, and the BUFFER of each of its inputs."""
    roots = []
    for t in tensors:
        node = t.uop
        if node.op not in (O.ASSIGN, O.COPY, O.SCATTER, O.CONTIGUOUS):
            node = make(O.CONTIGUOUS, node.dtype, (node,))
        roots.append(node)
    normal, buffers = normalize(make(O.SINK, dt.void, tuple(roots)))
    return pre_schedule(normal, tensors[0].device), buffers


def _pending(tensors: Sequence[Tensor]) -> list[Tensor]:
    found = []
    for t in tensors:
        if registry.buffer_node(t.uop) is not None:
            _ensure_memory(t.uop)
        elif prod(t.uop.shape) == 0:
            _empty(t)
        else:
            found.append(t)
    return found


def _ensure_memory(node: UOp) -> None:
    base = registry.buffer_node(node)
    if base is not None and base.op == O.BUFFER and base.arg.buffer is None:
        base.arg.buffer = Buffer.new(base.src[-1].arg, base.arg.size, base.dtype)


def _empty(tensor: Tensor) -> None:
    device = tensor.device
    buffer = Buffer.new(device, 0, tensor.dtype)
    node = B.reshape(B.new_buffer(0, tensor.dtype, device, buffer), tensor.shape)
    registry.replace_nodes({tensor.uop: node})


def _plan(pending: Sequence[Tensor], run: bool = False) -> ExecutionPlan:
    if knobs.debug:
        return _watched_plan(pending, run)
    plan = prepare_plan(*_instance(pending))
    if run:
        plan.execute()
    return plan


def _watched_plan(pending: Sequence[Tensor], run: bool) -> ExecutionPlan:
    from svod.tensor.debug import Watch, say_schedule

    watch = Watch("realize" if run else "prepare", len(pending))
    schedule, inputs = _instance(pending)
    if knobs.debug >= 3:
        say_schedule(schedule)
    plan = prepare_plan(schedule, inputs)
    watch.prepared(plan)
    if run:
        watch.execute(plan)
    return plan


def _instance(pending: Sequence[Tensor]) -> tuple[PreSchedule, list[Buffer]]:
    """The schedule and the memory of its inputs."""
    schedule, buffers = schedule_of(pending)
    inputs = []
    for node in buffers:
        _ensure_memory(node)
        buffer = node.arg.buffer
        if buffer is None:
            raise BufferNotFound(node.arg.id, "an input of the graph")
        inputs.append(buffer)
    return schedule, inputs


def _wire(pending: Sequence[Tensor], plan: ExecutionPlan) -> None:
    """Point the tensors, and every live tensor built on them, at the plan's outputs."""
    outputs = plan.output_buffers()
    if len(outputs) < len(pending):
        raise BatchOutputMismatch(len(pending), len(outputs))
    mapping: dict[UOp, UOp] = {}
    for tensor, buffer in zip(pending, outputs, strict=False):
        old = tensor.uop
        if old.op == O.ASSIGN:
            mapping[old] = _assigned(old)
            continue
        base = B.new_buffer(buffer.size, buffer.dtype, buffer.device, buffer)
        mapping[old] = B.view_as(base, old.shape)
    registry.replace_nodes(mapping)


def _assigned(node: UOp) -> UOp:
    """After an assignment has run, its value is what its target shows."""
    while node.op == O.ASSIGN:
        node = node.src[0]
    if node.op in O.MOVEMENT:
        inner = _assigned(node.src[0])
        return node if inner is node.src[0] else make(node.op, node.dtype, (inner,), node.arg)
    return node
