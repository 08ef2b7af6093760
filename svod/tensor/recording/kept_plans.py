"""The plans of graphs that were computed more than once, by graph and settings.

In: a key. Out: a `KeptPlan` for one thread at a time. Where a cache of schedules or kernels was
cleared, nothing is found: the plans were made from these.
"""

from __future__ import annotations

from collections.abc import Hashable

from svod.runtime.kept import KeptPlan
from svod.schedule.cache import forgotten

KEPT = 512  # plans

_plans: dict[Hashable, KeptPlan] = {}  # those that nobody runs now


def take(key: Hashable) -> KeptPlan | None:
    """The plan of a graph, for this thread alone until it is put back."""
    return _plans.pop((forgotten[0], key), None)


def put(key: Hashable, plan: KeptPlan) -> None:
    """Keep a plan for the next run of its graph; the oldest goes where there are too many."""
    _plans[forgotten[0], key] = plan
    while len(_plans) > KEPT:
        _plans.pop(next(iter(_plans)), None)
