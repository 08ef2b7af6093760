"""Everything a person may want to know of one kernel, as text."""

from __future__ import annotations

from collections.abc import Sequence

from svod.codegen.linearize import linearize
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import LOWERING, Choices, optimized, run_passes, work_of
from svod.codegen.render.c import render_c
from svod.codegen.render.nest import render_nest
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.schedule.sorts import is_sort

ANY_MACHINE = Machine()


def explain(body: UOp, machine: Machine = ANY_MACHINE, *, with_c: bool = True) -> str:
    """Name, opts, work, loop nest and C text of the kernel that computes ``body``."""
    return explain_loops(body, *optimized(body, machine), machine, with_c=with_c)


def explain_loops(
    body: UOp,
    kernel: UOp,
    opts: Sequence[Opt],
    machine: Machine = ANY_MACHINE,
    *,
    by: str = "",
    with_c: bool = True,
) -> str:
    """The same for loops that opts made of the body; ``by`` says whose choice they are."""
    flops, moved = work_of(body, kernel)
    name = kernel_name(body)
    parts = [
        f"kernel {name}",
        f"opts   {', '.join(map(str, opts)) or 'none'}{f' ({by})' if by else ''}",
        f"work   {flops:,} flops, {moved:,} bytes at least",
    ]
    if is_sort(kernel):
        return "\n".join(parts) + "\n"
    parts += [
        "loops",
        "\n".join([f"  {line}" for line in render_nest(kernel).split("\n")]),
    ]
    if with_c:
        lowered = run_passes(LOWERING, kernel, Choices(machine, tuple(opts)))
        parts += ["code", render_c(name, lowered, linearize(lowered)).rstrip()]
    return "\n".join(parts) + "\n"
