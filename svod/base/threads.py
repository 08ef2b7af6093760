"""How many threads this process may use: one budget for compiling and running."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from svod.base.knobs import knobs
from svod.base.system import system


@dataclass(frozen=True, slots=True)
class ThreadBudget:
    """The limits that were found (None where there is none) and what follows from them."""

    cpus: int  # processors of the machine
    affinity: int  # processors this process may run on
    cgroup: float | None  # processors' worth of time the container allows
    omp: int | None  # OMP_NUM_THREADS
    knob: int  # SVOD_THREADS, 0 for automatic
    threads: int  # the answer


def thread_budget() -> ThreadBudget:
    """`SVOD_THREADS` where it is set, else the smallest of affinity, container and OMP limits."""
    cpus = os.cpu_count() or 1
    affinity = len(system().processors())
    cgroup, omp, knob = cgroup_limit(), _omp_limit(), knobs.threads
    automatic = affinity
    if cgroup is not None:
        automatic = min(automatic, max(1, round(cgroup)))
    if omp is not None:
        automatic = min(automatic, omp)
    return ThreadBudget(cpus, affinity, cgroup, omp, knob, knob or automatic)


def cgroup_limit(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> float | None:
    """The processor time the control group and its parents allow, in processors (both versions)."""
    limits = []
    for line in _text(own).splitlines() or ["0::/"]:
        _, controllers, place = (*line.split(":", 2), "", "", "")[:3]
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        base = root / "cpu" if controllers else root
        parts = Path(place.lstrip("/")).parts
        for depth in range(len(parts) + 1):
            limits.append(_quota(base.joinpath(*parts[:depth])))
    return min((limit for limit in limits if limit is not None), default=None)


def _quota(group: Path) -> float | None:
    words = _text(group / "cpu.max").split()
    if not words:
        words = [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):
        return None  # "max", or no such file
    return quota / period if quota > 0 and period > 0 else None


def _omp_limit() -> int | None:
    first = (
        os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    )  # a list gives one per level
    return int(first) if first.isdigit() and int(first) > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
