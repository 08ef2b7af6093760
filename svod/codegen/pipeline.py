"""From one kernel's tensor graph to its text: the list of passes, run in order.

``PASSES`` is the only list; timing, dumping and the docs read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.expand import expand
from svod.codegen.lanes import vectorize
from svod.codegen.linearize import Loop, linearize
from svod.codegen.lower import lower
from svod.codegen.naming import kernel_name
from svod.codegen.order import order_offsets, separate_loops
from svod.codegen.render.cpu_sort import sort_text
from svod.codegen.render.llvm import LLVMRenderer, streaming_choice
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, elements, make, variable
from svod.optimize.dots import PARTS
from svod.optimize.graph import evaluations, renumber
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.opts import CORE, Opt
from svod.optimize.rows import place_rows
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort


@dataclass(slots=True)
class Choices:
    """What passes know beside the graph: the machine, and the opts that were applied to it."""

    machine: Machine
    opts: tuple[Opt, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the pipeline: graph in, graph out."""

    name: str
    run: Callable[[UOp, Choices], UOp]
    verify: Callable[[UOp, str], None]  # what must hold afterwards; takes the name of the pass
    why: str


@wraps(rangeify)
def _rangeify(body: UOp, choices: Choices) -> UOp:
    return renumber(rangeify(body))


@wraps(optimize)
def _optimize(kernel: UOp, choices: Choices) -> UOp:
    if knobs.optimize:
        kernel, choices.opts = optimize(kernel, choices.machine)
    return kernel


@wraps(vectorize)
def _vectorize(kernel: UOp, choices: Choices) -> UOp:
    return vectorize(kernel, choices.machine.vector_bytes, choices.machine.has_masks)


@wraps(lower)
def _lower(kernel: UOp, choices: Choices) -> UOp:
    return lower(kernel, choices.machine.has_parts, choices.machine.has_fma)


def _graph_only(run: Callable[[UOp], UOp]) -> Callable[[UOp, Choices], UOp]:
    @wraps(run)
    def step(kernel: UOp, choices: Choices) -> UOp:
        return run(kernel)

    return step


def _checks(**rules: bool) -> Callable[[UOp, str], None]:
    def verify(kernel: UOp, stage: str) -> None:
        from svod.ir.verify import verify_kernel  # loaded only where something is checked

        verify_kernel(kernel, stage, **rules)

    return verify


_loops = _checks()
_copied_loops = _checks(shared_loops=True)
_machine_ops = _checks(shared_loops=True, lowered=True)

PASSES: tuple[Pass, ...] = (
    Pass("rangeify", _rangeify, _loops, "movement ops become index arithmetic over loops"),
    Pass("optimize", _optimize, _copied_loops, "choose lanes, register tile, unrolling, threads"),
    Pass(
        "rows",
        _graph_only(place_rows),
        _copied_loops,
        "what a pass over a row keeps for the next lies where the result goes",
    ),
    Pass("expand", _graph_only(expand), _copied_loops, "UPCAST and UNROLL axes become copies"),
    Pass("vectorize", _vectorize, _copied_loops, "the LANE axis becomes real vectors"),
    Pass("separate", _graph_only(separate_loops), _copied_loops, "one loop is at one place"),
    Pass(
        "order",
        _graph_only(order_offsets),
        _copied_loops,
        "offsets add outer loops first, so loops hoist what they can",
    ),
    Pass(
        "lower",
        _lower,
        _machine_ops,
        "accumulators, sized indices, functions as arithmetic",
    ),
)
SORTED_BY_ONE = 1 << 14  # words that one core sorts before another one helps
LOWERING = PASSES[2:]  # the passes after the opts have been chosen


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


def generate(body: UOp, machine: Machine) -> KernelCode:
    """All passes for one kernel."""
    kernel, opts = optimized(body, machine)
    return generate_from(body, kernel, opts, machine)


def optimized(body: UOp, machine: Machine) -> tuple[UOp, tuple[Opt, ...]]:
    """The loop nest of a kernel after the opts, and the opts."""
    if knobs.verify:
        from svod.ir.verify import verify_tensor_graph

        verify_tensor_graph(body, "cut")
    if is_sort(body):
        return _on_cores(body, machine), ()
    choices = Choices(machine)
    return run_passes(PASSES[:2], body, choices), choices.opts


def _on_cores(body: UOp, machine: Machine) -> UOp:
    """A body that sorts, over as many cores as it has work for."""
    source = body.src[0].src[1].src[0]
    cores = min(machine.cores, elements(source.shape) // SORTED_BY_ONE)
    return body if cores < 2 else make(O.SINK, dt.void, (*body.src, variable(CORE, 0, cores - 1)))


def run_passes(passes: tuple[Pass, ...], graph: UOp, choices: Choices) -> UOp:
    """The passes in order, each timed, printed with SVOD_DEBUG=4, checked with SVOD_VERIFY=1."""
    for step in passes:
        before = graph
        with span(step.name):
            graph = step.run(graph, choices)
        if knobs.debug >= 4:
            dump(step.name, before, graph)
        if knobs.verify:
            step.verify(graph, step.name)
    return graph


def generate_from(body: UOp, kernel: UOp, opts: tuple[Opt, ...], machine: Machine) -> KernelCode:
    """The passes after the opts have been chosen."""
    name = kernel_name(body)
    symbol = f"{name}_{kernel.content_hash[:10]}"
    loops = ordered_loops(kernel, machine, opts)
    return KernelCode(
        name, symbol, *kernel_text(symbol, kernel, loops, machine), body, kernel, opts
    )


def ordered_loops(kernel: UOp, machine: Machine, opts: tuple[Opt, ...] = ()) -> Loop:
    """What is left to do after the opts, up to the tree that a renderer reads."""
    if is_sort(kernel):
        return Loop(None, items=[kernel.src[0]])
    lowered = run_passes(LOWERING, kernel, Choices(machine, opts))
    with span("linearize"):
        return linearize(lowered)


def kernel_text(symbol: str, kernel: UOp, loops: Loop, machine: Machine) -> tuple[str, set[str]]:
    """The functions of a kernel and what they declare; its run-time integers come by name."""
    nodes = kernel.toposort()
    variables = sorted({n.arg.name for n in nodes if n.op == O.DEFINE_VAR})
    declarations: set[str] = set()
    with span("render"):
        if is_sort(kernel):
            cores = max([n.arg.hi + 1 for n in nodes if n.op == O.DEFINE_VAR], default=1)
            text = sort_text(symbol, kernel.src[0].src[1], cores)
        elif bytes_moved(nodes) > machine.stream_bytes and _streams(nodes):
            text, declarations = _streaming_text(symbol, nodes, loops, variables, machine)
        else:
            text, declarations = _plain_text(symbol, loops, variables, machine)
    debug(5, text)
    return text, declarations


def _plain_text(
    symbol: str, loops: Loop, variables: list[str], machine: Machine
) -> tuple[str, set[str]]:
    renderer = LLVMRenderer(has_fma=machine.has_fma)
    return renderer.render(symbol, loops, variables), renderer.declarations


def _streaming_text(
    symbol: str, nodes: list[UOp], loops: Loop, variables: list[str], machine: Machine
) -> tuple[str, set[str]]:
    """Stores past the caches, and a second form for outputs that are not aligned."""
    fast = LLVMRenderer(stream=True, has_fma=machine.has_fma)
    first = fast.render(f"{symbol}_stream", loops, variables)
    if not fast.streamed:
        return _plain_text(symbol, loops, variables, machine)
    second, declarations = _plain_text(f"{symbol}_plain", loops, variables, machine)
    memories = [n.src[0].src[0] for n in nodes if n.op == O.STORE]
    written = min([m.arg.slot for m in memories if m.op == O.PARAM])
    choice = streaming_choice(symbol, f"{symbol}_stream", f"{symbol}_plain", written)
    return "\n".join([first, second, choice]), fast.declarations | declarations


def _streams(nodes: list[UOp]) -> bool:
    """Only plain elementwise kernels write past the caches: others read what they wrote soon."""
    return not any(n.op == O.REDUCE or n.arg == "ordered" for n in nodes)


def work_of(body: UOp, kernel: UOp) -> tuple[int, int]:
    """Arithmetic operations on all cores, and the bytes of every buffer touched once."""
    flops = 0
    cores = 1
    for n in kernel.toposort():
        if n.op == O.DEFINE_VAR and n.arg.name == CORE:
            cores = n.arg.hi + 1
        elif n.op in O.ALU and n.dtype.kind == "f" and n.op != O.WHERE:
            flops += evaluations(n)
        elif n.op == O.DOT:  # and one more in the sum, where sums are counted
            flops += evaluations(n) * (2 * PARTS[n.arg] - (n.dtype.kind == "f"))
        elif n.op == O.REDUCE and n.dtype.kind == "f":
            flops += evaluations(n.src[0])
    return flops * cores, bytes_moved(body.toposort())


def bytes_moved(nodes: list[UOp]) -> int:
    """The bytes of all arguments."""
    return sum([elements(n.arg.shape) * n.dtype.itemsize for n in nodes if n.op == O.PARAM])


def dump(stage: str, before: UOp, after: UOp) -> None:
    """Print the graph after a pass."""
    from svod.ir.text import dump as text

    debug(4, f"-- {stage}: no change" if after is before else f"-- {stage}\n{text(after)}")
