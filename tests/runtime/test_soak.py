"""Everything at once for ten seconds; Ctrl-C and the end of the process in the middle of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from svod.tools.soak import Soak

SECONDS = 10.0
GROWTH = 48 << 20  # bytes; caches of the first seconds still fill up
ROOT = Path(__file__).parents[2]

# A plan of many kernels that runs for some seconds, on one thread or on several.
LONG = """
import os, sys, threading, time
import numpy as np
import svod
from svod.runtime import ExecutionPlanBuilder
x, y = (svod.Tensor(np.ones(({side}, {side}), np.float32)) for _ in range(2))
plan = (x @ y).prepare()
(op,) = plan.prepared_kernels()
builder = ExecutionPlanBuilder("CPU")
for place, buffer in enumerate(plan.buffers()):
    builder.add_buffer(place, buffer)
for _ in range({count}):
    builder.add_kernel(op)
builder.set_output_buffers(plan.output_buffer_indices())
long = builder.build()
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LONG.format(side=256, count=20_000) + program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"the process hangs: {output} {errors}") from None
    return process.returncode, output, errors


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory through /proc")
def test_a_short_soak_finds_nothing() -> None:
    outcome = Soak(SECONDS).run()
    assert outcome.errors == []
    for what in ("runs", "prepared", "saved and loaded", "pool sizes", "children"):
        assert outcome.done[what] > 3, outcome
    assert outcome.growth < GROWTH, outcome


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_stops_a_long_run_and_the_plan_still_works(threads: int) -> None:
    process = start(
        f"""
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored
svod.set_threads({threads})
print("ready", flush=True)
try:
    long.execute()
    print("finished")
except KeyboardInterrupt:
    print("interrupted", flush=True)
plan.execute()
print(plan.output_buffer().numpy()[0], flush=True)
"""
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    status, output, errors = finish(process)
    assert (status, output) == (0, "interrupted\n256.0\n"), errors


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("os._exit(4)", 4),
    ],
)
def test_the_process_may_end_while_a_plan_runs(program: str, status: int) -> None:
    running = """
threading.Thread(target=long.execute, daemon=True).start()
time.sleep(0.2)
"""
    got, _, errors = finish(start(running + program))
    assert got == status, errors
    assert "Fatal" not in errors and "Segmentation" not in errors
