"""When each kernel of a plan ran, on which thread; measured on a copy of what a run writes.

In: a plan. Out: slices per lane in nanoseconds from the start of the run. The fastest of a few runs
is shown: the others were disturbed.
"""

from __future__ import annotations

from typing import Any

from svod.runtime.plan import ExecutionPlan
from svod.runtime.profile import KernelProfile, LaneTime


def measured(plan: ExecutionPlan, runs: int) -> list[KernelProfile]:
    """The launches of the fastest run; weights and state of the plan stay what they are."""
    twin = plan.replicate()
    best: list[KernelProfile] = []
    for _ in range(runs + 1):  # the first one warms caches
        found = twin.execute_profiled()
        if not best or _wall(found) < _wall(best):
            best = found
    return best


def timeline(profiles: list[KernelProfile]) -> dict[str, Any]:
    """Lanes with their slices as flat lists: op, start, end, op, start, end, ..."""
    origin = min([p.start_ns for p in profiles], default=0)
    lanes: dict[int, list[tuple[int, int, int]]] = {}
    for profile in profiles:
        for part in profile.lanes or (LaneTime(profile.lane, profile.start_ns, profile.end_ns),):
            slices = lanes.setdefault(part.lane, [])
            slices.append((part.start_ns - origin, part.end_ns - origin, profile.index))
    return {
        "wall": _wall(profiles),
        "lanes": [
            {
                "name": "calling thread" if lane == 0 else f"worker {lane}",
                "slices": [n for start, end, op in sorted(found) for n in (op, start, end)],
            }
            for lane, found in sorted(lanes.items())
        ],
    }


def times_by_op(profiles: list[KernelProfile]) -> dict[int, int]:
    """Nanoseconds of each op."""
    found: dict[int, int] = {}
    for profile in profiles:
        found[profile.index] = found.get(profile.index, 0) + profile.elapsed_ns
    return found


def _wall(profiles: list[KernelProfile]) -> int:
    if not profiles:
        return 0
    return max(p.end_ns for p in profiles) - min(p.start_ns for p in profiles)
