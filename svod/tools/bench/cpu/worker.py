"""The process of one framework: it builds a work, checks it, and runs it when it is its turn.

Requests come as lines of JSON on standard input, answers go out the same way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from svod.tools.bench.cpu.peers import PEERS, Peer, Unsupported
from svod.tools.bench.cpu.work import WORKS

MARK = "svod worker:"  # frameworks print things of their own
FEWEST = 3  # calls of a turn


class Worker:
    """A framework, and the work it has prepared."""

    def __init__(self, name: str, threads: int) -> None:
        self.kind, self.threads = PEERS[name], threads
        self.run: Callable[[], Any] | None = None
        self.peer: Peer | None = None

    def build(self, work: str, folder: str) -> dict[str, Any]:
        """Prepare a work and compare its results with the references in the folder."""
        self.run = self.peer = None
        made = WORKS[work]()
        files = sorted(name for name in os.listdir(folder) if name.endswith(".npy"))
        wanted = [np.load(os.path.join(folder, name)) for name in files]
        self.peer = self.kind(self.threads)
        start = perf_counter()
        self.run = self.peer.build(made, [array.shape for array in wanted], folder)
        found = self.run()
        seconds = perf_counter() - start
        error = 0.0
        if self.peer.checks:
            pairs = zip(self.peer.arrays(found), wanted, strict=True)
            error = max([error_of(*pair) for pair in pairs])
        return {"seconds": seconds, "error": error, **self.peer.facts()}

    def turn(self, seconds: float) -> dict[str, Any]:
        """The best time of calls over so many seconds; the first call warms up."""
        assert self.run is not None
        self.run()
        best, calls, end = float("inf"), 0, perf_counter() + seconds
        while calls < FEWEST or perf_counter() < end:
            start = perf_counter()
            self.run()
            best = min(best, perf_counter() - start)
            calls += 1
        return {"best": best, "calls": calls}


def error_of(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest value; infinite where shapes differ."""
    if found.shape != wanted.shape:
        return float("inf")
    difference = np.abs(found.astype(np.float64) - wanted).max()
    return float(difference / np.abs(wanted).max())


def main() -> None:
    worker = Worker(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Unsupported as problem:
            answer = {"unsupported": str(problem)}
        except Exception as problem:  # the others go on without this one
            answer = {"failed": f"{type(problem).__name__}: {problem}".splitlines()[0][:200]}
        print(f"\n{MARK}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
