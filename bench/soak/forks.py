"""`python -m bench.soak forks --count 100`: children forked while other threads compile.

Threads compile graphs that no cache has seen, at every moment of which the main thread forks. A
child runs a plan of its parent, compiles graphs of its own and draws random numbers; one that is
not done in time hangs. The first forks come at once, while the threads still load modules.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import svod
from bench.soak import parser
from bench.soak.fresh import is_right

COMPILING = 4
CHILD_SECONDS = 60  # a child that takes longer hangs; most need a second
OWN_GRAPHS = 2  # graphs each child compiles
BEFORE_ANY_PLAN = 5  # children
FAR = 1 << 24  # numbers of the children's graphs begin here, where the threads never come


@dataclass(slots=True)
class Outcome:
    """What happened."""

    children: int = 0
    compiled: int = 0
    slowest: float = 0.0  # seconds from the fork to the child's end
    longest_fork: float = 0.0  # seconds the fork itself took
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = f"{self.children} children beside {self.compiled:,} graphs compiled, the slowest "
        found += f"{self.slowest:.1f} s, the longest fork {self.longest_fork:.2f} s, "
        return "\n".join([f"{found}{len(self.errors)} errors", *self.errors[:5]])


def soak(count: int, seconds: float = 1e9) -> Outcome:
    """Fork so many children, or as many as the seconds allow."""
    outcome, ending = Outcome(), threading.Event()
    plan: svod.ExecutionPlan | None = None
    counts = [0] * COMPILING

    def compile_for_ever(lane: int) -> None:
        number = lane
        while not ending.is_set():
            try:
                if not is_right(number):
                    outcome.errors.append(f"graph {number}: another result than NumPy's")
            except Exception as error:
                outcome.errors.append(f"graph {number}: {error!r}")
            number += COMPILING
            counts[lane] += 1

    lanes = [threading.Thread(target=compile_for_ever, args=(n,)) for n in range(COMPILING)]
    for lane in lanes:
        lane.start()
    deadline = time.monotonic() + seconds
    chance = np.random.default_rng(0)
    try:
        while outcome.children < count and not outcome.errors and time.monotonic() < deadline:
            _one_child(outcome, plan)
            if outcome.children == BEFORE_ANY_PLAN:
                weights = svod.Tensor(np.ones((64, 64), np.float32))
                plan = (weights @ weights).softmax(-1).prepare()
            time.sleep(float(chance.uniform(0, 0.03)))
    finally:
        ending.set()
        for lane in lanes:
            lane.join()
    outcome.compiled = sum(counts)
    return outcome


def _one_child(outcome: Outcome, plan: svod.ExecutionPlan | None) -> None:
    first = FAR + outcome.children * OWN_GRAPHS
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)  # a hanging child ends by a signal
        status = 1
        try:
            if plan is not None:
                plan.execute()
            drawn = svod.rand(4).numpy()
            right = all(is_right(number) for number in range(first, first + OWN_GRAPHS))
            status = 0 if right and ((drawn >= 0) & (drawn < 1)).all() else 2
        finally:
            os._exit(status)
    outcome.longest_fork = max(outcome.longest_fork, time.monotonic() - start)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcome.slowest = max(outcome.slowest, time.monotonic() - start)
    outcome.children += 1
    if status == -signal.SIGALRM:
        outcome.errors.append(f"child {outcome.children} hangs")
    elif status:
        outcome.errors.append(f"child {outcome.children} ended with {status}")


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = parser("forks", __doc__, count=100, minutes=15).parse_args(arguments)
    outcome = soak(options.count, options.minutes * 60)
    print(outcome)
    return 0 if outcome.children == options.count and not outcome.errors else 1
