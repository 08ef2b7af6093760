"""`python -m bench.soak threads --minutes 10`: 32 threads run one plan and its replicas.

Half of the threads share one plan and change a variable of it, the others run replicas. Every
result is compared with NumPy's. A thread that does not come back in time is a deadlock, memory
that grows after the first part of the time is a leak; both end the tool with status 1.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

import svod
from bench.soak import parser
from bench.soak.everything import resident_bytes
from svod.runtime.plan import ExecutionPlan

THREADS = 32
REPLICAS = 4
ROWS, COLUMNS = 64, 16
PATIENCE = 60.0  # seconds after the end until a thread counts as stuck
GROWTH = 32 << 20  # bytes of resident memory that are no leak
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Outcome:
    """What the threads did and found."""

    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    stuck: int = 0
    growth: int = 0  # bytes

    @property
    def is_good(self) -> bool:
        return not self.wrong and not self.stuck and self.growth <= GROWTH

    def __str__(self) -> str:
        found = f"{self.runs:,} runs, {len(self.wrong)} wrong, {self.stuck} threads stuck, "
        found += f"{self.growth / 1e6:.1f} MB of growth"
        return "\n".join([found, *self.wrong[:5]])


def soak(seconds: float, threads: int = THREADS) -> Outcome:
    """Run for some seconds."""
    n = svod.Variable("n", 1, ROWS)
    data = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    plan = (svod.Tensor(data)[: n.bind(ROWS)].tanh() @ svod.Tensor(data.T)).sum(0).prepare()
    wanted = [np.tanh(data[:rows]) @ data.T for rows in range(1, ROWS + 1)]
    expected = [found.sum(0) for found in wanted]
    outcome = Outcome()
    counts = [0] * threads
    end = monotonic() + seconds
    plans = [plan, *[plan.replicate() for _ in range(REPLICAS)]]

    def work(number: int) -> None:
        mine = plans[0 if number % 2 else 1 + number // 2 % REPLICAS]
        rows = number
        try:
            while monotonic() < end and not outcome.wrong:
                rows = rows % ROWS + 1
                if not _is_right(mine, rows, expected[rows - 1]):
                    outcome.wrong.append(f"thread {number}: another result for {rows} rows")
                counts[number] += 1
        except Exception as error:
            outcome.wrong.append(f"thread {number}: {error!r}")

    workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(threads)]
    for worker in workers:
        worker.start()
    workers[0].join(0.4 * seconds)
    gc.collect()
    before = resident_bytes()
    for worker in workers:
        worker.join(max(0.0, end - monotonic()) + PATIENCE)
    gc.collect()
    outcome.growth = max(0, resident_bytes() - before)
    outcome.stuck = sum(worker.is_alive() for worker in workers)
    outcome.runs = sum(counts)
    return outcome


def _is_right(plan: ExecutionPlan, rows: int, expected: Array) -> bool:
    with plan._lock:  # the value, the run and reading the result belong together
        plan.execute_with_vars({"n": rows})
        buffer = plan.output_buffer()
        assert buffer is not None
        found = buffer.copyout()
    return bool(np.allclose(found, expected, atol=1e-3))


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = parser("threads", __doc__, count=THREADS, minutes=10).parse_args(arguments)
    outcome = soak(options.minutes * 60, options.count)
    print(outcome)
    return 0 if outcome.is_good else 1
