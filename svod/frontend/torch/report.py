"""What the frontend did in this process: ``svod.torch.report()``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """Counters since the start of the process, or since ``clear()``."""

    graphs: int = 0  # graphs that torch handed over, forward and backward counted apart
    plans: int = 0  # plans that were prepared; one per graph, more where fallbacks split it
    regrown: int = 0  # of these, plans made again because a run-time size left its bounds
    fallbacks: Counter[str] = field(default_factory=Counter)  # operators that torch runs, by name
    faults: Counter[str] = field(default_factory=Counter)  # of these, where a translation failed

    def clear(self) -> None:
        self.graphs = self.plans = self.regrown = 0
        self.fallbacks.clear()
        self.faults.clear()

    def __str__(self) -> str:
        lines = [f"{self.graphs} graphs, {self.plans} plans ({self.regrown} made again for sizes)"]
        lines += [f"  torch runs {name}: {count}" for name, count in self.fallbacks.most_common()]
        lines += [f"  at fault, {fault}: {count}" for fault, count in self.faults.most_common()]
        return "\n".join(lines)


_report = Report()


def report() -> Report:
    """Graphs, plans, and the operators that were left to torch."""
    return _report
