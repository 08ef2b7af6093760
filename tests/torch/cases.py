"""All cases, from the tables of the families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.torch import (  # noqa: F401
    table_elementwise,
    table_extensions,
    table_functional,
    table_indexing,
    table_losses,
    table_reductions,
    table_shapes,
    table_special,
)
from tests.torch.case import Case
from tests.torch.table import BAD, CASES

__all__ = ["BAD", "CASES", "places"]


def places(cases: Sequence[Case]) -> list[int]:
    """The number of each case among those of its name."""
    seen: Counter[str] = Counter()
    found = []
    for case in cases:
        found.append(seen[case.name])
        seen[case.name] += 1
    return found
