"""What a plan knows of where it comes from: lines of user code, modules, and why values are stored.

Nothing here is needed to run. It is kept as the schedule left it and looked up when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from svod.ir.node import UOp

if TYPE_CHECKING:  # a loaded plan runs without the scheduler
    from svod.schedule.reasons import CallFacts, Reason

Origin: TypeAlias = tuple[str, int, str]  # file, line, and the path of the module ("" for none)


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """By id of a prepared op; equal plans share what does not depend on lines."""

    calls: Mapping[int, CallFacts] = field(default_factory=dict)
    lines: Mapping[int, Any] = field(default_factory=dict)  # by number of a node

    def reason(self, op: int) -> Reason | None:
        """Why the result of an op is stored."""
        found = self.calls.get(op)
        return None if found is None else found.reason

    def kept(self, op: int) -> tuple[tuple[UOp, Reason], ...]:
        """Nodes of a kernel's body that could have been stored, and why they are not."""
        found = self.calls.get(op)
        return () if found is None else found.kept

    def origins(self, op: int) -> Iterator[tuple[UOp, Origin]]:
        """Nodes of a kernel's body whose origin is not that of the kernel."""
        found = self.calls.get(op)
        for node, mark in found.origins if found is not None else ():
            origin = self.lines.get(mark) if isinstance(mark, int) else mark
            if origin is not None:
                yield node, origin


NO_FACTS = PlanFacts()
