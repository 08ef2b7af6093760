"""What the page shows: plans with a title, also those that a program ran while it was watched.

`collected` watches a block: every plan that runs in it is in the list it gives, with the number of
runs and the times of the last one. Plans are held, so that there is something to look at later; of
very many those that ran once go first.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from svod.runtime import plan as plans
from svod.runtime.ops import CompiledKernel, PreparedKernel
from svod.runtime.plan import ExecutionPlan
from svod.runtime.profile import KernelProfile

MOST_PLANS = 200  # a program that computes eagerly makes thousands, each with its memory


_numbers = itertools.count()


class Shown:
    """A plan with its title; ``runs`` and the times are those that were watched, if any."""

    def __init__(self, plan: ExecutionPlan, title: str) -> None:
        self.number = next(_numbers)  # names it for as long as the process lives
        self.plan = plan
        self.title = title
        self.runs = 0
        self.last: Any = None  # what the watcher of the last run was given
        self._known: tuple[Any, list[KernelProfile]] | None = None
        self._first: list[PreparedKernel] | None = None

    def profiles(self) -> list[KernelProfile] | None:
        """The launches of the last run that was watched."""
        if self.last is None:
            return None
        if self._known is None or self._known[0] is not self.last:  # clocks are read once for each
            self._known = self.last, self.plan.profiles_of(self.last)
        return self._known[1]

    def spent_ns(self) -> int:
        """About how long all runs took, if each was as long as the last one."""
        found = self.profiles() or []
        if not found:
            return 0
        wall = max(p.end_ns for p in found) - min(p.start_ns for p in found)
        return wall * self.runs

    def first_calls(self) -> list[PreparedKernel]:
        """The first call of each distinct kernel, in the order `plan_data` numbers them."""
        if self._first is None:
            found: dict[CompiledKernel, PreparedKernel] = {}
            for op in self.plan.prepared_kernels():
                found.setdefault(op.kernel, op)
            self._first = list(found.values())
        return self._first

    def summary(self) -> dict[str, Any]:
        """The plan in a list of plans."""
        return {
            "id": self.number,
            "title": self.title,
            "calls": len(self.plan.prepared_ops()),
            "runs": self.runs,
        }


@contextmanager
def collected(most: int = MOST_PLANS) -> Iterator[list[Shown]]:
    """The plans that run in the block, in the order of their first run."""
    found: list[Shown] = []
    by_plan: dict[int, Shown] = {}

    def note(plan: ExecutionPlan, run: Any) -> None:
        shown = by_plan.get(id(plan))
        if shown is None:
            shown = by_plan[id(plan)] = Shown(plan, title_of(plan))
            found.append(shown)
            if len(found) > most:
                gone = next((one for one in found if one.runs == 1), found[0])
                found.remove(gone)
                del by_plan[id(gone.plan)]
        shown.runs += 1
        shown.last = run

    plans.watchers.append(note)
    try:
        yield found
    finally:
        plans.watchers.remove(note)


def title_of(plan: ExecutionPlan) -> str:
    """The line and the module that a plan is mostly for, and how many calls it has."""
    lines: dict[str, int] = {}
    for op in plan.prepared_kernels():
        if op.origin is not None:
            file, line, module = op.origin
            name = module.partition(".")[0] or f"{os.path.basename(file)}:{line}"
            lines[name] = lines.get(name, 0) + 1
    calls = len(plan.prepared_ops())
    size = f"{calls} call{'' if calls == 1 else 's'}"
    return f"{max(lines, key=lambda name: lines[name])}, {size}" if lines else size
