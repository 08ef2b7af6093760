"""`python -m bench.soak everything --minutes 10`: everything at once, for a long time.

Four threads run three plans, a fifth prepares new ones, a sixth saves plans and loads them, while
the number of threads changes and children are forked. Every result is compared with what it was at
the start, bit for bit. Memory is measured once everything is warm and must not grow from there.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

import svod
from svod.runtime.caches import clear_kernel_cache
from svod.runtime.load import load_plan
from svod.runtime.native import set_threads
from svod.runtime.plan import ExecutionPlan
from svod.tensor.recording.realize import prepare

RUNNERS = 4
INPUTS = 4  # different inputs per plan
SHAPES = tuple((rows, columns) for rows in (1, 3, 8, 17) for columns in (5, 16, 33, 64))
CHILD_SECONDS = 20  # a child that takes longer hangs
WARM_SHARE = 0.4  # of the time, before memory is measured
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan with inputs and the results they must give."""

    name: str
    plan: ExecutionPlan
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]

    def check(self, plan: Any = None, number: int = 0) -> bool:
        """Whether one input gives the same bits as at the start."""
        found = (plan or self.plan)(x=self.inputs[number])
        return bool((found == self.expected[number]).all())


@dataclass(slots=True)
class Outcome:
    """What a soak did and found."""

    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    warm_bytes: int = 0
    end_bytes: int = 0

    @property
    def growth(self) -> int:
        return self.end_bytes - self.warm_bytes

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.done.items()))
        memory = f"memory {self.warm_bytes >> 20} MB warm, {self.end_bytes >> 20} MB at the end"
        problems = f"{len(self.errors)} errors" + "".join(f"\n{e}" for e in self.errors[:5])
        return f"{counts}; {memory}; {problems}"


class Soak:
    """All threads of one soak."""

    def __init__(self, seconds: float, has_forks: bool = True, has_resizing: bool = True) -> None:
        self.seconds = seconds
        self.has_forks = has_forks and hasattr(os, "fork")
        self.has_resizing = has_resizing
        self.outcome = Outcome()
        self.ending = threading.Event()
        self.subjects = subjects()

    def run(self) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="svod-soak-") as folder:
            jobs: list[Callable[[], None]] = [self._runner(n) for n in range(RUNNERS)]
            jobs += [self._prepare, self._saver(Path(folder))]
            threads = [threading.Thread(target=self._keep, args=(job,)) for job in jobs]
            for thread in threads:
                thread.start()
            try:
                self._disturb()
            finally:
                self.ending.set()
                for thread in threads:
                    thread.join()
                set_threads(0)
        gc.collect()
        self.outcome.end_bytes = resident_bytes()
        return self.outcome

    # -- jobs: each is repeated until the end ---------------------------------------------------

    def _keep(self, job: Callable[[], None]) -> None:
        while not self.ending.is_set():
            try:
                job()
            except Exception:
                self.outcome.errors.append(traceback.format_exc())
                self.ending.set()

    def _runner(self, number: int) -> Callable[[], None]:
        chance = random.Random(number)

        def run() -> None:
            subject = chance.choice(self.subjects)
            self._require(subject.check(number=chance.randrange(INPUTS)), f"run {subject.name}")
            self.outcome.done["runs"] += 1

        return run

    def _prepare(self) -> None:
        rows, columns = random.choice(SHAPES)
        if self.outcome.done["prepared"] % 200 == 199:
            clear_kernel_cache()
        a, b = normal(rows, columns), normal(columns, rows)
        found = (svod.Tensor(a) @ svod.Tensor(b) + 1).relu().sum(1).numpy()
        expected = np.maximum(a.astype(np.float64) @ b + 1, 0).sum(1)
        self._require(bool(np.allclose(found, expected, rtol=1e-3, atol=1e-3)), "prepare")
        self.outcome.done["prepared"] += 1

    def _saver(self, folder: Path) -> Callable[[], None]:
        def save_and_load() -> None:
            subject = random.choice(self.subjects)
            path = folder / f"{subject.name}.svod"
            subject.plan.save(path)
            loaded = load_plan(path)
            for number in range(INPUTS):
                self._require(subject.check(loaded, number), f"load {subject.name}")
            self.outcome.done["saved and loaded"] += 1

        return save_and_load

    def _disturb(self) -> None:
        """On the main thread: other thread counts, children, and the first look at memory."""
        start = monotonic()
        while (passed := monotonic() - start) < self.seconds and not self.ending.is_set():
            sleep(min(0.2, self.seconds / 20))
            if not self.outcome.warm_bytes and passed > self.seconds * WARM_SHARE:
                gc.collect()
                self.outcome.warm_bytes = resident_bytes()
            if self.has_resizing:
                set_threads(random.choice((1, 2, 3, 4)))
                self.outcome.done["pool sizes"] += 1
            if self.has_forks:
                self._fork()

    def _fork(self) -> None:
        child = os.fork()
        if child == 0:
            signal.alarm(CHILD_SECONDS)  # a hanging child ends by a signal
            is_right = False
            try:
                is_right = all(s.check(number=n) for s in self.subjects for n in range(INPUTS))
            finally:
                os._exit(0 if is_right else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._require(status == 0, f"a forked child, which ended with {status}")
        self.outcome.done["children"] += 1

    def _require(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.outcome.errors.append(f"wrong result: {what}")
            self.ending.set()


def subjects() -> list[Subject]:
    """A network whose kernels are spread over threads, a long chain, and reductions."""
    weights = [svod.Tensor(normal(256, 256, seed=n)) for n in range(2)]

    def network(x: Any) -> Any:
        return ((x @ weights[0]).relu() @ weights[1]).softmax(-1)

    def chain(x: Any) -> Any:
        for number in range(20):
            x = (x * 1.01 + number).sin()
        return x

    def reductions(x: Any) -> Any:
        return (x.sum(0) + x.max(0)) * x.mean(1).sum()

    return [
        _subject("network", network, (64, 256)),
        _subject("chain", chain, (1000,)),
        _subject("reductions", reductions, (128, 48)),
    ]


def _subject(name: str, formula: Callable[[Any], Any], shape: Sequence[int]) -> Subject:
    inputs = tuple([normal(*shape, seed=n) for n in range(INPUTS)])
    x = svod.Tensor(inputs[0])
    plan = prepare([formula(x)], inputs={"x": x}, outputs=["y"])
    return Subject(name, plan, inputs, tuple([np.array(plan(x=array)) for array in inputs]))


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def resident_bytes() -> int:
    """Memory this process occupies now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: Sequence[str]) -> int:
    """The exit status is 1 after a wrong result, an error, or growth beyond the limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak everything", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--growth", type=int, default=64, help="megabytes that are allowed")
    parser.add_argument("--no-fork", action="store_true", help="fork no children")
    options = parser.parse_args(arguments)
    outcome = Soak(options.minutes * 60, not options.no_fork).run()
    print(outcome)
    return 1 if outcome.errors or outcome.growth > options.growth << 20 else 0
