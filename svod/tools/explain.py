"""`svod.explain`: what a tensor or a plan turns into, kernel by kernel, without running it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import ArgumentError, EmptySchedule
from svod.codegen.explain import explain_loops
from svod.codegen.pipeline import ordered_loops
from svod.device.cpu.host import host_machine
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime.chosen import (
    PLAINER,
    Chosen,
    compilable,
    explicit_loops,
    known_loops,
    plain_loops,
)
from svod.runtime.config import OptimizerConfig, PrepareConfig
from svod.runtime.plan import ExecutionPlan
from svod.tensor.core import Core
from svod.tensor.realize import schedule_of
from svod.tensor.registry import buffer_node

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class _Kernel(NamedTuple):
    """A kernel to explain; the opts of its loops where they are chosen already."""

    body: UOp
    choice: tuple[tuple[Opt, ...], str] | None = None


def explain(*things: Tensor | ExecutionPlan, code: bool = False, config: Any = None) -> None:
    """Print every kernel that tensors or a plan need: name, opts, estimated work, loops.

    With ``code=True`` also the C-like text. Tensors that share work are best given together. The
    opts are those of the plan; for tensors, those that ``prepare`` with this ``config`` takes: a
    given list, the tuned store, or the heuristics. Nothing is searched for.
    """
    print(explanation(*things, code=code, config=config), end="")


def explanation(*things: Tensor | ExecutionPlan, code: bool = False, config: Any = None) -> str:
    """The text that `explain` prints."""
    settings = PrepareConfig.of(config)
    kernels: list[_Kernel] = []
    for plan in [t for t in things if isinstance(t, ExecutionPlan)]:
        kernels += [_Kernel(op.ast, op.kernel.choice) for op in plan.prepared_kernels()]
    tensors: list[Any] = [t for t in things if not isinstance(t, ExecutionPlan)]
    for t in tensors:
        if not isinstance(t, Core):
            raise ArgumentError(f"explain takes tensors and plans, not a {type(t).__name__}")
    pending = [t for t in tensors if buffer_node(t.uop) is None]
    if pending:
        schedule, _ = schedule_of(pending, settings)
        kernels += [_Kernel(item.body) for item in schedule.items if item.body.op == O.SINK]
    if not kernels and len(pending) < len(tensors):
        raise EmptySchedule("nothing to explain: every tensor is realised")
    machine = host_machine()
    parts = []
    for kernel, calls in Counter(kernels).items():  # in the order of the first call
        found = _chosen(kernel, machine, settings.optimizer)
        text = compilable(kernel.body, found, machine, partial(_text, kernel, machine, code))
        parts.append(text if calls == 1 else f"{calls} calls of\n{text}")
    return "\n".join([_summary(kernels), *parts])


def _text(kernel: _Kernel, machine: Machine, code: bool, found: Chosen) -> str:
    """What one kernel turns into, if these loops can be lowered."""
    by = "" if found.by == "heuristics" else found.by
    if not code and kernel.choice is None:
        ordered_loops(found.loops, machine, found.opts)
    return explain_loops(kernel.body, found.loops, found.opts, machine, by=by, with_c=code)


def _chosen(kernel: _Kernel, machine: Machine, config: OptimizerConfig) -> Chosen:
    """The loops of a kernel: those of its plan, else those a plan would have now."""
    if kernel.choice is None:
        return known_loops(kernel.body, machine, config)
    opts, by = kernel.choice
    if by == "nobody" or (by.startswith(PLAINER) and not opts):
        return Chosen(plain_loops(kernel.body, machine), opts, by)
    return Chosen(explicit_loops(kernel.body, opts, machine), opts, by)


def _summary(kernels: list[_Kernel]) -> str:
    distinct = len(set(kernels))
    calls = "1 call" if len(kernels) == 1 else f"{len(kernels)} calls"
    return f"{calls} of {distinct} distinct {'kernel' if distinct == 1 else 'kernels'}\n"
