"""`python -m bench.soak kill --count 500`: processes killed with SIGKILL at any moment.

A child compiles fresh graphs into a shared cache, and again and again replaces a file of weights
and a saved plan, whose numbers say the turn. It reports each turn when it is done. After a kill
both files must be whole and not older than what was reported, and what the cache has must be right.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import svod
from bench.soak import parser
from bench.soak.fresh import is_right
from svod.nn.state import load_file, save_file
from svod.runtime.caches import clear_kernel_cache

LONGEST = 0.4  # seconds a child lives at most
STUCK = 60.0  # seconds a check may take
WEIGHTS = 20_000


@dataclass(slots=True)
class Outcome:
    """What happened."""

    kills: int = 0
    turns: int = 0  # of all children
    left_over: int = 0  # files written aside that a killed child left
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = f"{self.kills} kills in {self.turns:,} turns, {self.left_over} files left aside, "
        return "\n".join([f"{found}{len(self.errors)} errors", *self.errors[:5]])


def soak(count: int, seconds: float = 1e9) -> Outcome:
    """Kill so many children, or as many as the seconds allow."""
    outcome, chance = Outcome(), random.Random(0)
    deadline = time.monotonic() + seconds
    with TemporaryDirectory(prefix="svod-kill-") as name:
        folder = Path(name)
        _turn(folder, 0)
        reported = 0
        while outcome.kills < count and not outcome.errors and time.monotonic() < deadline:
            start = outcome.turns + 1  # a turn that was begun is not begun again
            reported = max(reported, _child(folder, start, chance.uniform(0, LONGEST)))
            outcome.kills += 1
            try:
                outcome.turns = _check(folder, reported, start)
            except Exception as error:
                outcome.errors.append(f"after kill {outcome.kills}: {error!r}")
        outcome.left_over = sum(".tmp" in each.name for each in folder.iterdir())
    return outcome


def _turn(folder: Path, turn: int) -> None:
    """What a child does over and over."""
    if not is_right(turn):
        raise AssertionError(f"graph {turn} has another result than NumPy's")
    weights = np.full(WEIGHTS, turn, np.float32)
    save_file({"weights": svod.Tensor(weights)}, folder / "weights.safetensors")
    (svod.Tensor(weights) + 0).prepare().save(folder / "plan.svod")


def _child(folder: Path, start: int, seconds: float) -> int:
    """Let a child work for some time and kill it; returns the last turn it reported."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            for turn in range(start, start + 1_000_000):
                _turn(folder, turn)
                os.write(writer, turn.to_bytes(8, "little"))
        finally:
            os._exit(1)
    os.close(writer)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reader, "rb") as reports:
        said = reports.read()
    if status != -signal.SIGKILL:
        raise AssertionError(f"a child ended by itself with {status}")
    return int.from_bytes(said[-8:], "little") if said else 0


def _check(folder: Path, reported: int, start: int) -> int:
    """Both files are whole and new enough; the cache is right. Returns the newest turn."""
    begun = time.monotonic()
    weights = load_file(folder / "weights.safetensors")["weights"].numpy()
    plan = svod.load_plan(folder / "plan.svod", verify=True)
    plan.execute()
    buffer = plan.output_buffer()
    assert buffer is not None
    newest = reported
    for what, values in (("weights", weights), ("plan", buffer.copyout())):
        found = int(values[0])
        if len(values) != WEIGHTS or (values != found).any():
            raise AssertionError(f"the {what} are a mixture")
        if found < reported:
            raise AssertionError(f"turn {reported} was reported, the {what} are of turn {found}")
        newest = max(newest, found)
    clear_kernel_cache()
    for turn in range(max(start, newest - 2), newest + 2):  # what the child stored, or had begun
        if not is_right(turn):
            raise AssertionError(f"graph {turn} from the cache has another result than NumPy's")
    if time.monotonic() - begun > STUCK:
        raise AssertionError("the check took too long")
    return newest


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = parser("kill", __doc__, count=500, minutes=30).parse_args(arguments)
    outcome = soak(options.count, options.minutes * 60)
    print(outcome)
    return 0 if outcome.kills == options.count and not outcome.errors else 1
