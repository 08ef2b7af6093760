"""`svod.explain`: what a tensor or a plan turns into, kernel by kernel, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ArgumentError, EmptySchedule
from svod.codegen.explain import explain as explain_kernel
from svod.device.cpu.host import host_machine
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.plan import ExecutionPlan
from svod.tensor.core import Core
from svod.tensor.realize import schedule_of
from svod.tensor.registry import buffer_node

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def explain(*things: Tensor | ExecutionPlan, code: bool = False) -> None:
    """Print every kernel that tensors or a plan need: name, opts, estimated work, loops.

    With ``code=True`` also the C-like text. Tensors that share work are best given together.
    """
    print(explanation(*things, code=code), end="")


def explanation(*things: Tensor | ExecutionPlan, code: bool = False) -> str:
    """The text that `explain` prints."""
    bodies: list[UOp] = []
    for plan in [t for t in things if isinstance(t, ExecutionPlan)]:
        bodies += [kernel.ast for kernel in plan.prepared_kernels()]
    tensors: list[Any] = [t for t in things if not isinstance(t, ExecutionPlan)]
    for t in tensors:
        if not isinstance(t, Core):
            raise ArgumentError(f"explain takes tensors and plans, not a {type(t).__name__}")
    pending = [t for t in tensors if buffer_node(t.uop) is None]
    if pending:
        schedule, _ = schedule_of(pending)
        bodies += [item.body for item in schedule.items if item.body.op == O.SINK]
    if not bodies and len(pending) < len(tensors):
        raise EmptySchedule("nothing to explain: every tensor is realised")
    machine = host_machine()
    parts = []
    for body, calls in _counted(bodies).items():
        text = explain_kernel(body, machine, with_c=code)
        parts.append(text if calls == 1 else f"{calls} calls of\n{text}")
    return "\n".join([_summary(bodies), *parts])


def _counted(bodies: list[UOp]) -> dict[UOp, int]:
    """How often each distinct kernel is called, in the order of the first call."""
    found: dict[UOp, int] = {}
    for body in bodies:
        found[body] = found.get(body, 0) + 1
    return found


def _summary(bodies: list[UOp]) -> str:
    distinct = len(set(bodies))
    calls = "1 call" if len(bodies) == 1 else f"{len(bodies)} calls"
    return f"{calls} of {distinct} distinct {'kernel' if distinct == 1 else 'kernels'}\n"
