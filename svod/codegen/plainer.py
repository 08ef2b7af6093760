"""Plainer loops for a kernel whose chosen ones cannot be compiled.

In: a kernel body and why its loops failed. Out: the loops of the next plainer choice, down to those
without any opt. That this is needed is a fault of the choice, so it is counted, said by `explain`
and with SVOD_DEBUG=1, and refused with SVOD_FALLBACK=0; but the graph runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from svod.base.errors import SvodError, VerifyError
from svod.base.knobs import knobs
from svod.base.log import debug
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt

REMEMBERED = 64
counters = {"kernels": 0}  # compiled with plainer loops than were chosen
latest: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)  # their names, and the reasons

Loops = tuple[UOp, tuple[Opt, ...]]


def may_fall_back(problem: Exception) -> bool:
    """Whether plainer loops may help: not where a check was asked for or memory has run out."""
    return knobs.fallback and not isinstance(problem, VerifyError | MemoryError)


def plainer_loops(body: UOp, machine: Machine) -> Iterator[Loops]:
    """The loops of ever plainer choices; one that cannot be made is left out."""
    from svod.schedule.sorts import is_sort

    if is_sort(body):
        return  # it has no loops to choose
    for choose in (_without_stages, _without_lanes):
        try:
            yield choose(body, machine)
        except Exception as problem:
            if not may_fall_back(problem):
                raise
            debug(1, f"plainer loops: {choose.__name__} failed: {reason_of(problem)}")
    yield _nest(body, machine), ()


def count(name: str, reason: str) -> None:
    """A kernel was compiled with plainer loops."""
    counters["kernels"] += 1
    latest.append((name, reason))
    debug(1, f"plainer loops for {name}: {reason}")


def reason_of(problem: Exception) -> str:
    """Why loops could not be compiled, in one line."""
    text = str(problem).splitlines()[0] if str(problem) else ""
    return text if isinstance(problem, SvodError) else f"{text} ({type(problem).__name__})"


def _without_stages(body: UOp, machine: Machine) -> Loops:
    """Lanes, a register tile and cores; no scratch memory, nothing packed."""
    from svod.optimize.heuristics import choose_plain

    return _chosen(body, machine, choose_plain)


def _without_lanes(body: UOp, machine: Machine) -> Loops:
    """Plain loops, on all cores."""
    return _chosen(body, machine, lambda nest: None)


def _chosen(body: UOp, machine: Machine, choose: Callable[..., None]) -> Loops:
    from svod.optimize.actions import Nest, merge_adjacent
    from svod.optimize.heuristics import choose_threads

    nest = Nest(merge_adjacent(_nest(body, machine)), machine)
    if len(nest.sink.src) == 1 and machine.vector_bytes:
        choose(nest)
    choose_threads(nest)
    return nest.finished(), tuple(nest.opts)


def _nest(body: UOp, machine: Machine) -> UOp:
    from svod.codegen.targets.cpu import plain_loops

    return plain_loops(body, machine)
