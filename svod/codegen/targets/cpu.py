"""The CPU: its passes, and LLVM IR for a function that takes a table of pointers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.expand import expand
from svod.codegen.lanes import vectorize
from svod.codegen.linearize import Loop
from svod.codegen.lower import lower
from svod.codegen.order import order_offsets, separate_loops
from svod.codegen.pipeline import bytes_moved
from svod.codegen.render.cpu_sort import sort_text
from svod.codegen.render.llvm import LLVMRenderer, module, streaming_choice
from svod.codegen.target import Choices, KernelCode, KernelText, Target
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import BY_KIND
from svod.ir.node import UOp, elements, make, variable
from svod.ir.passes import Pass, graph_only, loops_hold, run_passes, tensors_hold
from svod.optimize.actions import apply_opts
from svod.optimize.graph import renumber
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.opts import CORE
from svod.optimize.rows import place_rows
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort

SORTED_BY_ONE = 1 << 14  # words that one core sorts before another one helps


def _rangeify(body: UOp, choices: Choices[Machine]) -> UOp:
    return renumber(rangeify(body))


def _optimize(kernel: UOp, choices: Choices[Machine]) -> UOp:
    if choices.given is not None:
        choices.opts = choices.given
        return apply_opts(kernel, choices.given, choices.machine)
    if knobs.optimize:
        kernel, choices.opts = optimize(kernel, choices.machine)
    return kernel


def _vectorize(kernel: UOp, choices: Choices[Machine]) -> UOp:
    return vectorize(kernel, choices.machine.vector_bytes, choices.machine.has_masks)


def _lower(kernel: UOp, choices: Choices[Machine]) -> UOp:
    return lower(kernel, choices.machine.has_parts, choices.machine.has_fma)


def _on_cores(body: UOp, choices: Choices[Machine]) -> UOp:
    """A body that sorts, over as many cores as it has work for."""
    source = body.src[0].src[1].src[0]
    cores = min(choices.machine.cores, elements(source.shape) // SORTED_BY_ONE)
    return body if cores < 2 else make(O.SINK, dt.void, (*body.src, variable(CORE, 0, cores - 1)))


_loops = loops_hold()
_copied_loops = loops_hold(shared_loops=True)
_machine_ops = loops_hold(shared_loops=True, lowered=True)

CHOOSING: tuple[Pass[Choices[Machine]], ...] = (
    Pass("rangeify", _rangeify, _loops, "movement ops become index arithmetic over loops",
         rangeify),
    Pass("optimize", _optimize, _copied_loops, "choose lanes, register tile, unrolling, threads",
         optimize),
)  # fmt: skip
LOWERING: tuple[Pass[Choices[Machine]], ...] = (
    Pass("rows", graph_only(place_rows), _copied_loops,
         "what a pass over a row keeps for the next lies where the result goes", place_rows),
    Pass("expand", graph_only(expand), _copied_loops, "UPCAST and UNROLL axes become copies",
         expand),
    Pass("vectorize", _vectorize, _copied_loops, "the LANE axis becomes real vectors", vectorize),
    Pass("separate", graph_only(separate_loops), _copied_loops, "one loop is at one place",
         separate_loops),
    Pass("order", graph_only(order_offsets), _copied_loops,
         "offsets add outer loops first, so loops hoist what they can", order_offsets),
    Pass("lower", _lower, _machine_ops, "accumulators, sized indices, functions as arithmetic",
         lower),
)  # fmt: skip
SORTING: tuple[Pass[Choices[Machine]], ...] = (
    Pass("cores", _on_cores, tensors_hold, "a sort gets the cores it has work for", _on_cores),
)


@cache
def cpu_target(machine: Machine) -> Target[Machine]:
    """The target of CPUs like this one."""
    return Target("CPU", machine, BY_KIND["CPU"], CHOOSING, LOWERING, SORTING, render)


def plain_loops(body: UOp, machine: Machine) -> UOp:
    """The kernel as loops, before any opt: what opts are applied to."""
    return run_passes(CHOOSING[:1], body, Choices(machine))


# -- text -----------------------------------------------------------------------------------------


def render(code: KernelCode, aligned: bool = True) -> KernelText:
    """The functions of a kernel and what they declare; its run-time integers come by name."""
    nodes = code.kernel.toposort()
    variables = sorted({n.arg.name for n in nodes if n.op == O.DEFINE_VAR})
    machine: Machine = code.target.machine
    declarations: set[str] = set()
    with span("render"):
        if is_sort(code.kernel):
            cores = max([n.arg.hi + 1 for n in nodes if n.op == O.DEFINE_VAR], default=1)
            text = sort_text(code.symbol, code.kernel.src[0].src[1], cores)
        elif bytes_moved(nodes) > machine.stream_bytes and _streams(nodes):
            text, declarations = _streaming(code.symbol, nodes, code.loops, variables, machine)
        else:
            text, declarations = _plain(code.symbol, code.loops, variables, machine)
    debug(5, text)
    return KernelText(text, frozenset(declarations), join)


def join(texts: Sequence[KernelText]) -> str:
    """Kernels as one module: functions one after the other, declarations once."""
    declarations = set[str]().union(*[t.declarations for t in texts])
    return module([t.function for t in texts], declarations)


def _plain(
    symbol: str, loops: Loop, variables: list[str], machine: Machine
) -> tuple[str, set[str]]:
    renderer = LLVMRenderer(has_fma=machine.has_fma, is_arm=machine.is_arm)
    return renderer.render(symbol, loops, variables), renderer.declarations


def _streaming(
    symbol: str, nodes: list[UOp], loops: Loop, variables: list[str], machine: Machine
) -> tuple[str, set[str]]:
    """Stores past the caches, and a second form for outputs that are not aligned."""
    fast = LLVMRenderer(True, machine.has_fma, machine.is_arm)
    first = fast.render(f"{symbol}_stream", loops, variables)
    if not fast.streamed:
        return _plain(symbol, loops, variables, machine)
    second, declarations = _plain(f"{symbol}_plain", loops, variables, machine)
    memories = [n.src[0].src[0] for n in nodes if n.op == O.STORE]
    written = min([m.arg.slot for m in memories if m.op == O.PARAM])
    choice = streaming_choice(symbol, f"{symbol}_stream", f"{symbol}_plain", written)
    return "\n".join([first, second, choice]), fast.declarations | declarations


def _streams(nodes: list[UOp]) -> bool:
    """Only plain elementwise kernels write past the caches: others read what they wrote soon."""
    return not any(n.op == O.REDUCE or n.arg == "ordered" for n in nodes)
