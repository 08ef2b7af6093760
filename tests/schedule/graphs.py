"""From lazy tensors to what the compiler makes of them, without running anything."""

from __future__ import annotations

from math import prod

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cpu import cpu_target
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.graph import renumber
from svod.optimize.machine import Machine
from svod.schedule.normalize import normalization
from svod.schedule.rangeify import rangeify
from svod.schedule.schedule import PreSchedule, kernel_bodies, pre_schedule

ROOTS = (O.ASSIGN, O.COPY, O.SCATTER, O.CONTIGUOUS)
MACHINE = Machine(vector_bytes=64, registers=32, cores=2)


def schedule(*tensors: Tensor) -> PreSchedule:
    """The schedule of tensors, made anew."""
    roots = []
    for t in tensors:
        node = t.uop
        roots.append(node if node.op in ROOTS else make(O.CONTIGUOUS, node.dtype, (node,)))
    found = normalization(make(O.SINK, dt.void, tuple(roots)))
    own = found.sink.src[len(found.checks) :]  # without the checks of indices
    return pre_schedule(make(O.SINK, dt.void, own), "CPU", cached=False)


def bodies(*tensors: Tensor) -> list[UOp]:
    """The distinct kernels that compute tensors."""
    return kernel_bodies(schedule(*tensors))


def kernel_count(*tensors: Tensor) -> int:
    """How many kernels run."""
    return len([i for i in schedule(*tensors).items if i.body.op == O.SINK])


def stored_elements(*tensors: Tensor) -> list[int]:
    """Sizes of what the kernels write, in order."""
    return [prod(i.arguments[0].shape) for i in schedule(*tensors).items]


def loop_nest(body: UOp) -> UOp:
    """The kernel as loops, before any opt."""
    return renumber(rangeify(body))


def code(body: UOp, machine: Machine = MACHINE) -> KernelCode:
    """The kernel as text, with the opts that were chosen."""
    return generate(body, cpu_target(machine))


def opt_names(*tensors: Tensor) -> set[str]:
    """The names of the opts in all kernels of some tensors."""
    return {opt.name for body in bodies(*tensors) for opt in code(body).opts}


def reduced_sizes(body: UOp) -> list[int]:
    """The lengths of the reduced loops of a kernel."""
    nest = loop_nest(body)
    return sorted(
        r.vmax + 1
        for node in nest.toposort()
        if node.op == O.REDUCE
        for r in node.src
        if r.op == O.RANGE
    )
