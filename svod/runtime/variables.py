"""The variables of a plan: their bounds, where their values go, and what was bound last.

In: the prepared ops, once; then names and values. Every value is checked against every op that
uses the name before anything changes. Values stay until they are given again. What the schedule
fixed in an op is never overridden, and `core_id` belongs to the runtime alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import TypeAlias

from svod.base.errors import VariableError
from svod.device.launch import check_bounds
from svod.runtime.executor import missing_values
from svod.runtime.ops import CORE_ID, PreparedCustomFunction, PreparedKernel, PreparedOp

Bindings: TypeAlias = Mapping[str, int] | Iterable[tuple[str, int]]


class PlanVariables:
    """Bounds, slots and current bindings of all variables of a plan."""

    __slots__ = ("bound", "bounds", "slots")

    def __init__(self, ops: Sequence[PreparedOp]) -> None:
        self.bound: dict[str, int] = {}  # what callers gave, also for names no op knows
        self.bounds: dict[str, list[tuple[int, int]]] = {}  # distinct ones of all ops
        self.slots: dict[str, list[tuple[PreparedKernel, int]]] = {}
        for op in ops:
            if not isinstance(op, PreparedKernel | PreparedCustomFunction):
                continue
            for variable in op.runtime_vars or ():
                if variable.name in op.fixedvars or variable.name == CORE_ID:
                    continue
                limits = (variable.min_val, variable.max_val)
                known = self.bounds.setdefault(variable.name, [])
                if limits not in known:
                    known.append(limits)
            if isinstance(op, PreparedKernel):
                for position, name in enumerate(op.kernel.var_names):
                    if name not in op.fixedvars and name != CORE_ID:
                        self.slots.setdefault(name, []).append((op, position))

    def check(self, given: Bindings) -> dict[str, int]:
        """The bindings as a dictionary, the last of a repeated name; refuses values out of bounds.

        Nothing changes here, so a refused call leaves the plan as it was.
        """
        pairs = given.items() if isinstance(given, Mapping) else given
        values: dict[str, int] = {}
        for name, value in pairs:
            try:
                values[name] = index(value)
            except TypeError:
                raise VariableError(
                    f"variable {name} takes a whole number, got {value!r}"
                ) from None
        values.pop(CORE_ID, None)
        for name, value in values.items():
            for low, high in self.bounds.get(name, ()):
                check_bounds(name, value, low, high)
            for kernel, position in self.slots.get(name, ()):
                if position >= len(kernel.vals):
                    raise missing_values(kernel)
        return values

    def current(self) -> dict[str, int]:
        """The value of every variable: as bound, else as the kernels hold it."""
        held = {
            name: kernel.vals[position]
            for name, slots in self.slots.items()
            for kernel, position in slots[:1]
            if position < len(kernel.vals)
        }
        return {**held, **self.bound}

    def update(self, values: Mapping[str, int]) -> None:
        """Remember checked values and write them into the kernels that use them."""
        self.bound.update(values)
        for name, value in values.items():
            for kernel, position in self.slots.get(name, ()):
                kernel.vals[position] = value
