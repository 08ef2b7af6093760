"""Taking times: contenders in turn within one process, and functions in fresh processes.

Other load and moving clock rates disturb neighbours in time alike, so what is compared runs in
alternating rounds, and a comparison is the median over the rounds of the ratio in each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep
from typing import Any

MARK = "svod bench result:"
SPINNING = 0.15  # seconds that NumPy's threads keep a core after they have worked
PATIENCE = 1800  # seconds for one fresh process: it may hold a group of contests


@dataclass(frozen=True, slots=True)
class Rounds:
    """The best time of each round, in seconds, by contender."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """The middle round of a contender."""
        return median(self.seconds[name])

    def speed(self, ours: str, theirs: str) -> float:
        """How many times as fast as theirs ours is."""
        pairs = zip(self.seconds[ours], self.seconds[theirs], strict=True)
        return median([other / own for own, other in pairs])


def alternate(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 15, calls: int = 3
) -> Rounds:
    """Each contender runs `calls` times per round; the first round is not counted.

    NumPy's threads go on spinning after a product: the next contender waits until they sleep.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            best = min(timed(run) for _ in range(calls))
            if number:
                found[name].append(best)
            if name.lower() == "numpy":
                sleep(SPINNING)
    return Rounds(found)


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = perf_counter()
    run()
    return perf_counter() - start


def fresh(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """What a module's function returns in a process of its own; all values are JSON values."""
    program = (
        f"import json; from {function.__module__} import {function.__name__} as run\n"
        f"found = run(*json.loads({json.dumps(json.dumps(arguments))}))\n"
        f"print('\\n' + {MARK!r} + json.dumps(found))"
    )
    output = run_program(program, **variables)
    return json.loads(output.rsplit(MARK, 1)[1])


def run_program(program: str, **variables: str) -> str:
    """The output of a Python program in a fresh process, with these environment variables."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=PATIENCE,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"a fresh process ended with status {done.returncode}: {last}")
    return done.stdout


def empty_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for caches that is gone after the `with` block."""
    return tempfile.TemporaryDirectory(prefix="svod-bench-", ignore_cleanup_errors=True)
