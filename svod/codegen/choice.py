"""The loops of one kernel: plain ones, those that a list of opts or the heuristics make, and what
is tried in place of loops that cannot be compiled.

In: the body of a kernel and a machine. Out: loops, the opts that made them, and whose choice it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from svod.base.errors import VerifyError
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import optimized
from svod.codegen.plainer import may_fall_back, plainer_loops, reason_of
from svod.codegen.targets.cpu import cpu_target, plain_loops
from svod.ir.node import UOp
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt

T = TypeVar("T")
PLAINER = "plainer: "  # how the choice of plainer loops is named, before the reason


@dataclass(frozen=True, slots=True)
class Chosen:
    """The loops of a kernel, the opts that made them, and whose choice they are."""

    loops: UOp
    opts: tuple[Opt, ...]
    by: str  # "given", "tuned", "heuristics", "nobody"; "plainer: " and why the others failed


def explicit_loops(body: UOp, opts: Sequence[Opt], machine: Machine) -> UOp:
    """The loops a user's own list makes."""
    try:
        return apply_opts(plain_loops(body, machine), opts, machine)
    except OptimizeError as problem:
        raise OptimizeError(f"kernel {kernel_name(body)}: {problem}") from None


def heuristic_loops(body: UOp, machine: Machine) -> Chosen:
    try:
        return Chosen(*optimized(body, cpu_target(machine)), "heuristics")
    except Exception as problem:
        if isinstance(problem, VerifyError | MemoryError):
            raise
        reason = f"the heuristics failed for {kernel_name(body)}: {reason_of(problem)}"
        failure = OptimizeError(reason)
        if not may_fall_back(problem):
            raise failure from problem
        return next(plainer(body, machine, failure))


def plainer(body: UOp, machine: Machine, problem: Exception) -> Iterator[Chosen]:
    """Ever plainer loops of a body whose chosen ones failed with a problem."""
    for loops, opts in plainer_loops(body, machine):
        yield Chosen(loops, opts, f"{PLAINER}{reason_of(problem)}")


def compilable(body: UOp, chosen: Chosen, machine: Machine, attempt: Callable[[Chosen], T]) -> T:
    """What an attempt makes of the chosen loops, or of the first plainer ones it can."""
    try:
        return attempt(chosen)
    except Exception as problem:
        if chosen.by in ("given", "nobody") or not may_fall_back(problem):
            raise
        first = problem
    for found in plainer(body, machine, first):
        try:
            return attempt(found)
        except Exception as problem:
            if not may_fall_back(problem):
                raise
    raise first
