"""Numbers of the cost models, as fields of one frozen record per target.

``cost`` is a field with its unit and its origin beside the value, so that a table can be printed,
checked and compared with what a machine measures. `svod.schedule.costs_cpu` and `costs_gpu` are
the tables; they lie this low because schedule and optimize both read them.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, NamedTuple, Self

from svod.base.errors import ConfigError

ORIGINS = ("hardware", "measured", "estimate")


class Cost(NamedTuple):
    """One number of a table."""

    name: str
    value: float
    unit: str
    origin: str  # one of ORIGINS, a colon, and what it rests on

    @property
    def measurement(self) -> str | None:
        """The name under which `svod tune machine` measures it."""
        kind, _, text = self.origin.partition(": ")
        return text if kind == "measured" else None


class Costs:
    """What tables share: they are equal where their numbers are."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and costs_of(self) == costs_of(other)

    def __hash__(self) -> int:
        return hash(tuple(costs_of(self)))

    def replaced(self, **changes: float) -> Self:
        """The table with other numbers, as a measurement may give them."""
        unknown = changes.keys() - {c.name for c in costs_of(self)}
        if unknown:
            raise ConfigError(f"{type(self).__name__} has no {sorted(unknown)[0]}")
        table = object.__new__(type(self))
        for name, value in {**vars(self), **changes}.items():
            object.__setattr__(table, name, value)  # a frozen record, filled once
        return table


def cost(value: float, unit: str, origin: str) -> Any:  # the field has the type it is given
    """A field of a table."""
    return field(default=value, metadata={"unit": unit, "origin": origin})


def costs_of(table: Any) -> list[Cost]:
    """The numbers of a table, in its order."""
    return [
        Cost(f.name, getattr(table, f.name), f.metadata["unit"], f.metadata["origin"])
        for f in fields(table)
    ]
