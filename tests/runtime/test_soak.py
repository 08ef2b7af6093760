"""Everything at once for ten seconds; Ctrl-C and the end of the process in the middle of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.soak import forks, graphs, kill
from bench.soak.everything import Soak
from svod.base.knobs import knobs

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_forked_beside_compiling_threads_compile_and_run() -> None:
    outcome = forks.soak(8)
    assert outcome.children == 8 and outcome.compiled > 8
    assert outcome.errors == []


COLD_FORK = """
import os, signal, sys, threading, time
import svod
from bench.soak.fresh import is_right
ending = []
def compile_some(number):
    while not ending:
        is_right(number)
        number += 2
threads = [threading.Thread(target=compile_some, args=(n,)) for n in range(2)]
for thread in threads:
    thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if is_right(1 << 24) else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ending.append(True)
sys.exit(status != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1])
def test_a_child_forked_while_other_threads_load_modules_loads_them_too(seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLD_FORK, str(seconds)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_at_any_moment_leaves_whole_files_and_a_sound_cache() -> None:
    outcome = kill.soak(10)
    assert outcome.kills == 10
    assert outcome.errors == []


def test_memory_stays_flat_over_fresh_graphs_once_caches_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("svod.runtime.caches.PROGRAM_ENTRIES", 50)
    with knobs.scope(opt_cache_max=50):
        outcome = graphs.soak(160, first=4096)
    assert outcome.graphs == 160 and outcome.wrong == []
    assert outcome.growth < 12 << 20, outcome


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
