"""Every buffer of a plan: what it is for, where it lies, and between which steps it is alive.

In: a plan. Out: plain values for JSON. A step is a place in the order of execution.
"""

from __future__ import annotations

from typing import Any

from svod.runtime.ops import PreparedKernel, PreparedOp
from svod.runtime.plan import ExecutionPlan


def written_of(op: PreparedOp) -> list[int]:
    """The places of the buffer table that an op writes."""
    if isinstance(op, PreparedKernel):
        return [op.buffer_indices[p] for p in op.output_indices]
    return op.buffer_indices[:1]


def read_of(op: PreparedOp) -> list[int]:
    """The places of the buffer table that an op reads."""
    if not isinstance(op, PreparedKernel):
        return op.buffer_indices[1:]
    reads = set(op.kernel.ins)
    slots = op.kernel.globals
    if len(slots) != len(op.buffer_indices):
        return [place for place in op.buffer_indices if place not in written_of(op)]
    return [place for slot, place in zip(slots, op.buffer_indices, strict=True) if slot in reads]


def buffers(plan: ExecutionPlan) -> list[dict[str, Any]]:
    """One entry per place of the buffer table."""
    ops = plan.prepared_ops()
    written: dict[int, list[int]] = {}
    read: dict[int, list[int]] = {}
    for step, index in enumerate(plan.order):
        for place in written_of(ops[index]):
            written.setdefault(place, []).append(step)
        for place in read_of(ops[index]):
            read.setdefault(place, []).append(step)
    names = {port.index: port for port in plan.ports}
    outputs = set(plan.output_buffer_indices())
    storages: dict[int, int] = {}
    found = []
    for place, buffer in enumerate(plan.buffers()):
        writes, reads = written.get(place, []), read.get(place, [])
        role = _role(place, bool(writes), not reads or (writes and writes[0] < reads[0]), outputs)
        port = names.get(place)
        if port is not None and not port.is_output:
            role = "input"
        steps = writes + reads
        found.append(
            {
                "bytes": buffer.nbytes,
                "dtype": buffer.dtype.name,
                "device": buffer.device,
                "role": role,
                "name": "" if port is None else port.name,
                "shape": [] if port is None else [str(n) for n in port.shape],
                "storage": storages.setdefault(buffer.storage.id, len(storages)),
                "offset": buffer.offset,
                "first": min(steps, default=0) if role == "intermediate" else 0,
                "last": max(steps, default=0) if role == "intermediate" else len(ops) - 1,
                "writes": writes,
                "reads": reads,
            }
        )
    return found


def _role(place: int, is_written: bool, is_made: bool, outputs: set[int]) -> str:
    if place in outputs:
        return "output"
    if not is_written:
        return "constant"
    return "intermediate" if is_made else "state"
