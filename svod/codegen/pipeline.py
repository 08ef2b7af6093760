"""From one kernel's tensor graph to its text: the list of passes, run in order.

``PASSES`` is the only list; timing, dumping and the docs read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.expand import expand
from svod.codegen.lanes import vectorize
from svod.codegen.linearize import Loop, linearize
from svod.codegen.lower import lower
from svod.codegen.naming import kernel_name
from svod.codegen.order import order_offsets, separate_loops
from svod.codegen.render.llvm import LLVMRenderer, streaming_choice
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp
from svod.optimize.graph import renumber
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.opts import CORE, Opt
from svod.schedule.rangeify import rangeify


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the pipeline: graph in, graph out."""

    name: str
    run: Callable[[UOp], UOp]
    why: str


LOWERING: tuple[Pass, ...] = (
    Pass("expand", expand, "UPCAST and UNROLL axes become copies"),
    Pass("vectorize", vectorize, "the LANE axis becomes real vectors"),
    Pass("separate", separate_loops, "one loop is at one place"),
    Pass("order", order_offsets, "offsets add outer loops first, so loops hoist what they can"),
    Pass("lower", lower, "accumulators, sized indices, functions as arithmetic"),
)


@dataclass(slots=True)
class KernelCode:
    """One kernel ready for the compiler of its device."""

    name: str  # what people read
    symbol: str  # unique in a module
    text: str
    declarations: set[str]
    body: UOp  # the tensor graph it was made from
    kernel: UOp  # the loop nest after the opts
    opts: tuple[Opt, ...]
    cores: int
    variables: list[VarArg]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    flops: int
    bytes: int


def generate(body: UOp, machine: Machine) -> KernelCode:
    """All passes for one kernel."""
    with span("rangeify"):
        kernel = renumber(rangeify(body))
    dump("rangeify", kernel)
    opts: tuple[Opt, ...] = ()
    with span("optimize"):
        if knobs.optimize:
            kernel, opts = optimize(kernel, machine)
    dump("optimize", kernel)
    return generate_from(body, kernel, opts, machine)


def generate_from(body: UOp, kernel: UOp, opts: tuple[Opt, ...], machine: Machine) -> KernelCode:
    """The passes after the opts have been chosen."""
    lowered = kernel
    for step in LOWERING:
        with span(step.name):
            lowered = step.run(lowered)
        dump(step.name, lowered)
    with span("linearize"):
        loops = linearize(lowered)
    nodes = lowered.toposort()
    variables = sorted(
        {n.arg for n in nodes if n.op == O.DEFINE_VAR and n.arg.name != CORE}, key=lambda v: v.name
    )
    cores = max([n.arg.hi + 1 for n in nodes if n.op == O.DEFINE_VAR and n.arg.name == CORE], default=1)
    writes = tuple(sorted({n.src[0].src[0].arg.slot for n in nodes if n.op == O.STORE}))
    reads = tuple(sorted({n.src[0].src[0].arg.slot for n in nodes if n.op == O.LOAD}))
    flops, moved = work_of(body, kernel)
    stream = moved > machine.stream_bytes and _streams(kernel)
    name = kernel_name(body)
    symbol = f"{name}_{kernel.content_hash[:10]}"
    with span("render"):
        text, declarations = _render(symbol, loops, [v.name for v in variables], stream, writes)
    debug(5, text)
    return KernelCode(
        name, symbol, text, declarations, body, kernel, opts, cores, list(variables),
        reads, writes, flops, moved,
    )  # fmt: skip


def _render(
    symbol: str, loops: Loop, variables: list[str], stream: bool, writes: tuple[int, ...]
) -> tuple[str, set[str]]:
    """The kernel's text; one that streams also has a form for outputs that are not aligned."""
    plain = LLVMRenderer()
    if not stream:
        return plain.render(symbol, loops, variables), plain.declarations
    fast = LLVMRenderer(stream=True)
    first = fast.render(f"{symbol}_stream", loops, variables)
    if not fast.streamed:
        return plain.render(symbol, loops, variables), plain.declarations
    second = plain.render(f"{symbol}_plain", loops, variables)
    choice = streaming_choice(symbol, f"{symbol}_stream", f"{symbol}_plain", writes[0])
    return "\n".join([first, second, choice]), fast.declarations | plain.declarations


def _streams(kernel: UOp) -> bool:
    """Only plain elementwise kernels write past the caches: others read what they wrote soon."""
    return not any(n.op == O.REDUCE or n.arg == "ordered" for n in kernel.toposort())


def work_of(body: UOp, kernel: UOp) -> tuple[int, int]:
    """Arithmetic operations and the bytes of every buffer touched once."""
    from math import prod

    from svod.optimize.graph import evaluations

    flops = 0
    for n in kernel.toposort():
        if n.op in O.ALU and n.dtype.kind == "f" and n.op != O.WHERE:
            flops += evaluations(n)
        elif n.op == O.REDUCE and n.dtype.kind == "f":
            flops += evaluations(n.src[0])
    moved = 0
    for n in body.toposort():
        if n.op == O.PARAM:
            moved += prod(n.arg.shape) * n.dtype.itemsize
    return flops, moved


def dump(stage: str, root: UOp) -> None:
    if knobs.debug >= 4:
        from svod.ir.text import dump as text

        debug(4, f"-- {stage}\n{text(root)}")


def pass_list() -> list[tuple[str, str]]:
    """Names and reasons, for the docs."""
    found: list[tuple[str, str]] = [
        ("rangeify", "movement ops become index arithmetic over loops"),
        ("optimize", "choose lanes, register tile, unrolling, threads"),
    ]
    found += [(p.name, p.why) for p in LOWERING]
    found += [
        ("linearize", "one order: loops opened and closed, invariants before them"),
        ("render", "LLVM IR text"),
    ]
    return found


