"""Everything a person may want to know of one kernel, as text."""

from __future__ import annotations

from svod.codegen.linearize import linearize
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import LOWERING, Choices, optimized, run_passes, work_of
from svod.codegen.render.c import render_c
from svod.codegen.render.nest import render_nest
from svod.ir.node import UOp
from svod.optimize.machine import Machine

ANY_MACHINE = Machine()


def explain(body: UOp, machine: Machine = ANY_MACHINE, *, with_c: bool = True) -> str:
    """Name, opts, work, loop nest and C text of the kernel that computes ``body``."""
    kernel, opts = optimized(body, machine)
    flops, moved = work_of(body, kernel)
    name = kernel_name(body)
    parts = [
        f"kernel {name}",
        f"opts   {', '.join(map(str, opts)) or 'none'}",
        f"work   {flops:,} flops, {moved:,} bytes at least",
        "loops",
        "\n".join([f"  {line}" for line in render_nest(kernel).split("\n")]),
    ]
    if with_c:
        lowered = run_passes(LOWERING, kernel, Choices(machine, opts))
        parts += ["code", render_c(name, lowered, linearize(lowered)).rstrip()]
    return "\n".join(parts) + "\n"
