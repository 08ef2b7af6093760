"""A contest: every framework in a process of its own, prepared once, then timed in turn.

In: the name of a work. Out: for each framework its best time of every round, and how far its
results are from those of NumPy in float64. Rounds go over all frameworks, so other load and moving
clock rates meet all of them; a pause lets the threads of the last one come to rest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, Queue
from statistics import median
from threading import Thread
from typing import IO, Any

import numpy as np

from svod.tools.bench.cpu.operators import NumpyOperators
from svod.tools.bench.cpu.peers import PEERS, installed
from svod.tools.bench.cpu.work import WORKS, Work
from svod.tools.bench.cpu.worker import MARK

THREADS = 2
ROUNDS = 7
TURN = 0.04  # seconds of one turn
PAUSE = 0.01  # between turns
PATIENCE = 300.0  # seconds for one answer
OURS = "ours"


@dataclass(slots=True)
class Outcome:
    """What one framework did."""

    seconds: list[float] = field(default_factory=list)  # best of each round
    error: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def time(self) -> float:
        return median(self.seconds)


class Process:
    """One worker; it is started when it is first asked."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self.folder = name, folder
        self.process: subprocess.Popen[str] | None = None
        self.lines: Queue[str] = Queue()  # answers; an empty one is the end of the process

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; a worker that dies or hangs is a failed answer."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        process = self.process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self.lines.get(timeout=PATIENCE)
        except Empty:
            self.stop()
            return {"failed": f"no answer within {PATIENCE:.0f} s"}
        except BrokenPipeError:
            line = ""
        if not line:
            return {"failed": f"the process ended with status {process.wait()}"}
        found: dict[str, Any] = json.loads(line)
        return found

    def _start(self) -> None:
        variables = {k: v.format(threads=THREADS) for k, v in PEERS[self.name].variables.items()}
        cold = tempfile.mkdtemp(dir=self.folder)
        variables |= {"SVOD_CACHE_DIR": cold, "TORCHINDUCTOR_CACHE_DIR": cold}
        self.process = subprocess.Popen(
            [sys.executable, "-Pum", "svod.tools.bench.cpu.worker", self.name, str(THREADS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            bufsize=1, env={**os.environ, **variables},
        )  # fmt: skip
        self.lines = Queue()
        Thread(target=_read, args=(self.process.stdout, self.lines), daemon=True).start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _read(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        if line.startswith(MARK):
            lines.put(line.removeprefix(MARK))
    lines.put("")


@contextmanager
def arena() -> Iterator[dict[str, Process]]:
    """A worker for each framework that is installed, ours first."""
    with tempfile.TemporaryDirectory(prefix="svod-bench-", ignore_cleanup_errors=True) as folder:
        workers = {name: Process(name, folder) for name in installed()}
        try:
            yield workers
        finally:
            for worker in workers.values():
                worker.stop()


def compete(name: str, workers: dict[str, Process], rounds: int = ROUNDS) -> dict[str, Outcome]:
    """Everyone's times at one work; those who cannot do it say why."""
    found = {peer: Outcome() for peer in workers}
    work = WORKS[name]()
    with tempfile.TemporaryDirectory(prefix="svod-work-") as folder:
        for number, array in enumerate(reference(work)):
            np.save(os.path.join(folder, f"output{number:03}.npy"), array)
        for peer, worker in workers.items():
            answer = worker.ask(do="build", work=name, folder=folder)
            _note(found[peer], answer, work)
    for _ in range(rounds):
        for peer, worker in workers.items():
            outcome = found[peer]
            if not outcome.problem:
                answer = worker.ask(do="turn", seconds=TURN)
                outcome.problem = answer.get("failed", "")
                if not outcome.problem:
                    outcome.seconds.append(answer["best"])
                time.sleep(PAUSE)
    return found


def _note(outcome: Outcome, answer: dict[str, Any], work: Work) -> None:
    outcome.facts = answer
    outcome.problem = answer.get("failed", "") or answer.get("unsupported", "")
    if not outcome.problem:
        outcome.error = answer["error"]
        if not outcome.error <= work.tolerance:
            outcome.problem = f"its results are off by {outcome.error:.2g}"


def reference(work: Work) -> list[Any]:
    """The results in float64, by NumPy; sums of integers in int64."""
    wide = np.int64 if work.dtype == "int8" else np.float64
    inputs = work.inputs
    if work.dtype == "bfloat16":
        from ml_dtypes import bfloat16

        inputs = [a.astype(bfloat16) for a in inputs]
    given = [a if a.dtype == np.int64 else a.astype(wide) for a in inputs]
    weights = {name: a.astype(np.float64) for name, a in work.weights.items()}
    made = work.run(NumpyOperators(), weights, *given)
    return [np.asarray(part) for part in (made if isinstance(made, tuple) else (made,))]
