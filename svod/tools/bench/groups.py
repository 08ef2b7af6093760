"""All cases by group, the choice among them, and running one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from svod.base.errors import ConfigError
from svod.tools.bench import (
    contractions,
    kernels,
    launch,
    matmul,
    memory,
    narrow,
    plans,
    preparation,
    rewriting,
    startup,
    stress,
    training,
)
from svod.tools.bench.bar import Case, Line, failure
from svod.tools.bench.cpu import bars as cpu
from svod.tools.bench.measure import empty_folder, fresh

GROUPS: dict[str, tuple[Case, ...]] = {
    "startup": startup.CASES,
    "preparation": preparation.CASES,
    "plans": plans.CASES,
    "kernels": kernels.CASES,
    "launch": launch.CASES,
    "memory": memory.CASES,
    "matmul": matmul.CASES,
    "contractions": contractions.CASES,
    "cpu": cpu.CASES,
    "narrow": narrow.CASES,
    "training": training.CASES,
    "stress": stress.CASES,
    "rewriting": rewriting.CASES,
}


def choose(patterns: Sequence[str]) -> list[tuple[str, Case]]:
    """Cases with their groups; a pattern is a name or a glob of a case or a group."""
    every = [(group, case) for group, cases in GROUPS.items() for case in cases]
    for pattern in patterns:
        if not any(
            fnmatchcase(name, pattern) for group, case in every for name in (group, case.name)
        ):
            known = ", ".join([*GROUPS, *[case.name for _, case in every]])
            raise ConfigError(f"no case or group is called {pattern!r}; there are: {known}")
    if not patterns:
        return every
    return [
        (group, case)
        for group, case in every
        if any(fnmatchcase(name, p) for p in patterns for name in (group, case.name))
    ]


def run_case(name: str) -> list[dict[str, Any]]:
    """The lines of one case, as JSON values; a case that fails gives a line that says so."""
    (case,) = [case for cases in GROUPS.values() for case in cases if case.name == name]
    return [line.data() for line in lines_of(case)]


def lines_of(case: Case) -> Iterator[Line]:
    """The lines of one case, run in this process."""
    try:
        yield from case.run()
    except Exception as error:  # one failed case must not cost the others
        yield failure(case.name, error)


def run_all(
    chosen: Sequence[tuple[str, Case]], show: Callable[[str, Line], None]
) -> dict[str, list[Line]]:
    """Run every case in a process of its own; lines are shown as they come."""
    found: dict[str, list[Line]] = {}
    with empty_folder() as folder:
        variables = {"SVOD_CACHE_DIR": os.environ.get("SVOD_CACHE_DIR") or folder}
        for group, case in chosen:
            try:
                lines = [Line(**data) for data in fresh(run_case, case.name, **variables)]
            except Exception as error:  # such as the end of the process by a signal
                lines = [failure(case.name, error)]
            for line in lines:
                show(group, line)
            found.setdefault(group, []).extend(lines)
    return found
