"""One kernel for the page: its body, loops, graph after every pass, LLVM IR and machine code.

In: a prepared kernel. Out: plain values for JSON. The passes are run again, as for `svod.explain`,
so that a plan holds nothing for this; machine code is what LLVM makes of the kernel's own text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from svod.base.errors import SvodError
from svod.codegen.choice import Chosen, compilable
from svod.codegen.pipeline import generate_from, work_of
from svod.codegen.render.nest import render_nest
from svod.codegen.targets.cpu import cpu_target
from svod.device.names import base_key
from svod.ir import ops as O
from svod.ir import passes
from svod.ir.node import UOp
from svod.ir.text import brief, dump
from svod.optimize.graph import renumber
from svod.optimize.untiled import why_plain
from svod.runtime.config import PrepareConfig
from svod.runtime.ops import PreparedKernel
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort
from svod.tools.explain import chosen_loops, machine_for

MOST_LINES = 1500  # of one text; what is longer says how much is left out
MOST_NODES = 300  # of a body in the graph


def kernel_details(op: PreparedKernel) -> dict[str, Any]:
    """Everything about one kernel that takes time to find out."""
    found: dict[str, Any] = {"llvm": _shortened(op.kernel.source), "passes": [], "loops": ""}
    if not op.ast.src or is_sort(op.ast):
        found["asm"] = _assembly(op)
        return found
    try:
        found.update(_passes(op))
    except SvodError as problem:  # loops that another machine chose need not be possible here
        found["problem"] = f"{type(problem).__name__}: {problem}"
    found["asm"] = _assembly(op)
    return found


def body_nodes(body: UOp) -> list[dict[str, Any]]:
    """The body as a list of nodes, sources first: what the graph shows inside a kernel."""
    order = [n for n in body.toposort() if n.op not in _HIDDEN]
    if len(order) > MOST_NODES:
        order = order[-MOST_NODES:]
    place = {node: number for number, node in enumerate(order)}
    return [
        {
            "op": O.NAMES[n.op],
            "text": brief(n),
            "src": [place[s] for s in _visible(n) if s in place],
            **({"slot": n.arg.slot} if n.op == O.PARAM else {}),
        }
        for n in order
    ]


_HIDDEN = O.MOVEMENT | {O.CONST, O.SINK, O.STORE, O.DEVICE, O.UNIQUE, O.LUNIQUE}


def body_order(body: UOp) -> dict[UOp, int]:
    """The number that each node has in `body_nodes`."""
    order = [n for n in body.toposort() if n.op not in _HIDDEN][-MOST_NODES:]
    return {node: number for number, node in enumerate(order)}


def _visible(node: UOp) -> Iterator[UOp]:
    """The sources of a node, seen through movement, which moves no data."""
    for source in node.src:
        while source.op in O.MOVEMENT:
            source = source.src[0]
        yield source


def _passes(op: PreparedKernel) -> dict[str, Any]:
    """The graph after each pass, and the loops that were chosen."""
    device = PrepareConfig.of(None).resolve_device(base_key(op.device))
    if device.runs_programs and device.planning is not None:  # the device chooses its loops itself
        with _watched(steps := []):
            code = device.planning.code(op.ast)
        loops, opts, by, machine = code.kernel, code.opts, device.name, code.target.machine
    else:
        machine = machine_for(device)
        chosen = chosen_loops(op.ast, op.kernel.choice, machine, PrepareConfig.of(None).optimizer)

        def lowered(found: Chosen) -> tuple[Chosen, list[_Step]]:
            with _watched(noted := []):
                generate_from(op.ast, found.loops, found.opts, cpu_target(machine))
            return found, noted

        found, noted = compilable(op.ast, chosen, machine, lowered)
        plain = renumber(rangeify(op.ast))
        steps = [
            ("rangeify", "movement ops become index arithmetic over loops", plain),
            ("optimize", "choose lanes, register tile, unrolling, threads", found.loops),
            *noted,
        ]
        loops, opts, by = found.loops, found.opts, found.by
    flops, moved = work_of(op.ast, rangeify(op.ast))
    return {
        "loops": render_nest(loops),
        "opts": [str(o) for o in opts],
        "by": by,
        "plain": why_plain(renumber(rangeify(op.ast)), loops, opts, machine) or "",
        "work": [flops, moved],
        "passes": [
            {"name": "body", "why": "the tensor graph of the kernel", "text": _graph(op.ast)},
            *[{"name": name, "why": why, "text": _graph(graph)} for name, why, graph in steps],
        ],
    }


_Step = tuple[str, str, UOp]


@contextmanager
def _watched(found: list[_Step]) -> Iterator[None]:
    """Note the graph after each pass that runs in the block."""

    def note(name: str, why: str, graph: UOp) -> None:
        found.append((name, why, graph))

    token = passes.watchers.set((*passes.watchers.get(), note))
    try:
        yield
    finally:
        passes.watchers.reset(token)


def _graph(graph: UOp) -> str:
    return _shortened(dump(graph))


def _assembly(op: PreparedKernel) -> str:
    """Machine code in words; empty where there is no text to make it from."""
    if base_key(op.device) != "CPU" or "define" not in op.kernel.source:
        return ""
    from svod.device.cpu.compiler import assembly

    lines = [line for line in assembly(op.kernel.source).split("\n") if not _is_noise(line)]
    return _shortened("\n".join(lines))


def _is_noise(line: str) -> bool:
    word = line.strip()
    return not word or word.startswith((".cfi", ".type", ".size", ".section", ".file", ".ident"))


def _shortened(text: str) -> str:
    lines = text.rstrip().split("\n")
    if len(lines) <= MOST_LINES:
        return text.rstrip()
    left = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"... {left:,} more lines"])
