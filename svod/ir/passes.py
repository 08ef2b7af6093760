"""Passes as data: a list of steps from graph to graph, and the one loop that runs such a list.

Every stage of the compiler is a tuple of `Pass`. Timing, printing, checking and the documentation
read the tuple; nothing runs that is not in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.timing import span
from svod.ir.node import UOp

C = TypeVar("C")  # what the passes of a list know beside the graph
Watcher = Callable[[str, str, UOp], None]  # takes the name of a pass, why it is, and its graph
# Called after each pass that runs in this thread or task: how tools look at the graphs between.
watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@dataclass(frozen=True, slots=True)
class Pass(Generic[C]):
    """One step: graph in, graph out."""

    name: str
    run: Callable[[UOp, C], UOp]
    verify: Callable[[UOp, str], None]  # what must hold afterwards; takes the name of the pass
    why: str
    where: Callable[..., object]  # the function that does it, for the documentation


def run_passes(passes: Sequence[Pass[C]], graph: UOp, context: C) -> UOp:
    """The passes in order, each timed, printed with SVOD_DEBUG=4, checked with SVOD_VERIFY=1."""
    for step in passes:
        before = graph
        with span(step.name):
            graph = step.run(graph, context)
        if knobs.debug >= 4:
            _print(step.name, before, graph)
        for watch in watchers.get():
            watch(step.name, step.why, graph)
        if knobs.verify:
            step.verify(graph, step.name)
    return graph


def graph_only(run: Callable[[UOp], UOp]) -> Callable[[UOp, object], UOp]:
    """A function of the graph alone as the step of a pass."""

    def step(graph: UOp, context: object) -> UOp:
        return run(graph)

    return step


def loops_hold(
    *, shared_loops: bool = False, lowered: bool = False, rules: str = ""
) -> Callable[[UOp, str], None]:
    """The check that a graph is a well formed kernel of loops; ``rules`` names a table of those for
    threads of a GPU."""

    def verify(kernel: UOp, stage: str) -> None:
        from svod.ir.verify import verify_kernel  # loaded only where something is checked

        table = None
        if rules:
            from svod.ir.checks import threads

            table = getattr(threads, rules)
        verify_kernel(kernel, stage, shared_loops=shared_loops, lowered=lowered, table=table)

    return verify


def tensors_hold(sink: UOp, stage: str) -> None:
    """The check that a graph is a well formed graph of tensors."""
    from svod.ir.verify import verify_tensor_graph  # loaded only where something is checked

    verify_tensor_graph(sink, stage)


def calls_hold(sink: UOp, stage: str) -> None:
    """The check that a graph is results in memory, after the calls that write them."""
    from svod.ir.verify import verify_calls  # loaded only where something is checked

    verify_calls(sink, stage)


def _print(stage: str, before: UOp, after: UOp) -> None:
    from svod.ir.text import dump

    debug(4, f"-- {stage}: no change" if after is before else f"-- {stage}\n{dump(after)}")
