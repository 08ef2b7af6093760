"""`python -m bench.soak ranks --count 100`: ranks of a training run killed at any moment.

Four ranks train with everything split and write a checkpoint every few steps. One of them is killed
with SIGKILL at a random moment. All others have to end with an error that names it within ten
seconds, and the last checkpoint has to load in a run with two ranks, which follows the losses of a
run that nobody killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.soak import parser

PROGRAM = Path(__file__).resolve().parents[2] / "tests" / "distributed" / "faults.py"
RANKS = 4
LONGEST = 10.0  # seconds the others may take to end


@dataclass(slots=True)
class Outcome:
    """What happened."""

    kills: int = 0
    slowest: float = 0.0
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = f"{self.kills} kills, the others ended after {self.slowest:.1f} s at most, "
        return "\n".join([f"{found}{len(self.errors)} errors", *self.errors[:5]])


def kill_one(folder: Path, victim: int, seconds: float, patience: float = LONGEST) -> float:
    """Start the ranks, kill one so long after its first step, and check what the others say.

    Returns how long the slowest of the others took to end.
    """
    from svod.tools.launching import command

    started = command(RANKS, str(PROGRAM), str(folder), "train")
    run = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        number = int(_wait_for(folder / f"{victim}.pid", 300.0))
        _wait_for(folder / f"{victim}.step", 300.0)
        time.sleep(seconds)
        os.kill(number, signal.SIGKILL)
        killed = time.time()
        others = [r for r in range(RANKS) if r != victim]
        found = [json.loads(_wait_for(folder / f"{r}.json", patience + 30.0)) for r in others]
    finally:
        run.terminate()
        run.wait()
    for rank, said in zip(others, found, strict=True):
        if f"rank {victim} ended" not in said["error"]:
            raise AssertionError(f"rank {rank} says {said['error']!r} where {victim} was killed")
    slowest = max([said["time"] - killed for said in found])
    if slowest > patience:
        raise AssertionError(f"a rank ended {slowest:.1f} s after rank {victim} was killed")
    return float(slowest)


def goes_on(folder: Path, wanted: Sequence[float]) -> None:
    """Check that a run of two ranks in one process goes on from the checkpoint that was left."""
    command = [sys.executable, str(PROGRAM), str(folder), "go on"]
    subprocess.run(command, check=True, timeout=300)
    found = json.loads((folder / "after.json").read_text())
    first = found["step"]
    for step, loss in enumerate(found["losses"], first):
        if abs(loss - wanted[step]) > 1e-5 * abs(wanted[step]):
            raise AssertionError(f"step {step}: loss {loss}, without a kill {wanted[step]}")


def losses_alone(folder: Path) -> list[float]:
    """The losses of a run that nobody kills."""
    subprocess.run([sys.executable, str(PROGRAM), str(folder), "alone"], check=True, timeout=300)
    found: list[float] = json.loads((folder / "alone.json").read_text())
    return found


def _wait_for(path: Path, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.is_file() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path.name} was not written within {seconds:g} s")


def soak(count: int, seconds: float = 1e9) -> Outcome:
    """Kill so many ranks, each at another moment, or as many as the seconds allow."""
    outcome, chance = Outcome(), random.Random(0)
    deadline = time.monotonic() + seconds
    with TemporaryDirectory(prefix="svod-ranks-") as name:
        wanted = losses_alone(Path(name))
        while outcome.kills < count and time.monotonic() < deadline:
            folder = Path(name) / str(outcome.kills)
            folder.mkdir()
            victim = chance.randrange(RANKS)
            try:
                slowest = kill_one(folder, victim, chance.uniform(0.0, 2.0))
                goes_on(folder, wanted)
                outcome.slowest = max(outcome.slowest, slowest)
            except Exception as error:
                outcome.errors.append(f"kill {outcome.kills} of rank {victim}: {error!r}")
            outcome.kills += 1
    return outcome


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = parser("ranks", __doc__, count=100, minutes=120).parse_args(arguments)
    outcome = soak(options.count, options.minutes * 60)
    print(outcome)
    return 0 if outcome.kills == options.count and not outcome.errors else 1
