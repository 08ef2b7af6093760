"""The launcher: records, groups, splits, several threads, times."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import itertools

from native_kernels import kernel, turns_in, zeros

from svod.base.errors import ConfigError, ExecutionError
from svod.base.knobs import knobs
from svod.runtime.native import (
    Kind,
    RecordArray,
    launcher,
    launcher_ir,
    set_threads,
    thread_budget,
)
from svod.runtime.native.code import load_code
from svod.runtime.native.pool import share_processors
from tests.arm import not_emulated

MASK = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
two_processors = pytest.mark.skipif(len(MASK) < 2, reason="needs two processors")


@pytest.fixture(autouse=True)
def automatic_threads() -> Iterator[None]:
    yield
    set_threads(0)


def best_time(records: RecordArray, repeats: int) -> float:
    best = 1e9
    for _ in range(repeats):
        start = time.perf_counter()
        launcher().run(records)
        best = min(best, time.perf_counter() - start)
    return best


def test_a_chain_runs_in_order() -> None:
    values = np.zeros(16, dtype=np.float32)
    records = RecordArray()
    for _ in range(1000):
        records.append(kernel("add_one"), [values.ctypes.data, values.ctypes.data])
    assert launcher().run(records) == 1000
    assert (values == 1000).all()
    assert launcher().run(records, start=990) == 1000
    assert (values == 1010).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_core_of_every_record_runs_once(threads: int) -> None:
    set_threads(threads)
    rng = random.Random(threads)
    records, outputs = RecordArray(), []
    for group in range(60):
        for _ in range(rng.choice([1, 1, 2, 7])):
            cores = rng.choice([1, 1, 2, 3, 17, 100])
            outputs.append(zeros(cores))
            records.append(kernel("count"), [outputs[-1].ctypes.data], [], cores, group=group)
    for repeat in range(1, 51):
        assert launcher().run(records) == records.count
        assert all((output == repeat).all() for output in outputs)
    assert launcher().threads == threads and launcher().workers == threads - 1


def test_results_are_the_same_for_every_number_of_threads() -> None:
    results = []
    for threads in (1, 2, 4):
        set_threads(threads)
        one, two = zeros(8), zeros(8)
        records = RecordArray()
        for step in range(200):
            pair = [two.ctypes.data, one.ctypes.data][:: 1 if step % 2 else -1]
            records.append(kernel("mix"), pair, [step], 8)
        launcher().run(records)
        results.append((one.tobytes(), two.tobytes()))
    assert results[0] == results[1] == results[2]


def test_groups_are_separated_by_barriers() -> None:
    set_threads(4)
    wide, sums = zeros(32), zeros(32)
    records = RecordArray()
    for step in range(100):
        for core in range(32):  # 32 records side by side, then one that reads what they wrote
            place = wide.ctypes.data + core * 8
            records.append(kernel("count"), [place], group=2 * step)
        places = [sums.ctypes.data, wide.ctypes.data]
        records.append(kernel("mix"), places, [0], 32, group=2 * step + 1)
    for step in range(1, 4):
        launcher().run(records)
        assert (wide == 100 * step).all()
        assert (sums == 300 * step + np.arange(32)).all()


def test_copies_views_and_stops_for_python() -> None:
    set_threads(2)
    source = np.random.default_rng(0).integers(0, 255, 10_007, dtype=np.uint8)
    copies = [np.zeros_like(source) for _ in range(3)]
    records = RecordArray()
    records.append(0, [], kind=Kind.NOTHING)
    for copy, cores in zip(copies, (1, 2, 5), strict=True):
        places = [copy.ctypes.data, source.ctypes.data]
        records.append(0, places, [source.size], cores, Kind.COPY, 1)
    stop = records.append(0, [], kind=Kind.PYTHON, group=1)
    total = zeros(1)
    records.append(kernel("count"), [total.ctypes.data], group=1)
    assert launcher().run(records) == stop
    assert all((copy == source).all() for copy in copies) and total[0] == 0
    assert launcher().run(records, stop) == stop and total[0] == 0
    assert launcher().run(records, stop + 1) == records.count and total[0] == 1


def test_buffers_and_values_are_patched_in_place() -> None:
    first, second, source = zeros(4), zeros(4), np.arange(4)
    records = RecordArray()
    record = records.append(kernel("mix"), [first.ctypes.data, source.ctypes.data], [5], 4)
    launcher().run(records)
    records.set_buffer(record, 0, second.ctypes.data)
    records.set_val(record, 0, 70)
    launcher().run(records)
    assert (first == np.arange(4) * 4 + 5).all() and (second == np.arange(4) * 4 + 70).all()
    records.words[records.buffer_word(record, 0)] = first.ctypes.data
    launcher().run(records)
    assert (first == second).all()


def test_records_that_make_no_sense_are_refused() -> None:
    records = RecordArray()
    with pytest.raises(ExecutionError, match="kernel record 0 has no function address"):
        records.append(0, [])
    with pytest.raises(ExecutionError, match="has 0 cores"):
        records.append(1, [], cores=0)
    with pytest.raises(ExecutionError, match="copy record 0 needs two buffers and a size"):
        records.append(0, [1], kind=Kind.COPY)
    assert launcher().run(records) == 0
    with pytest.raises(ExecutionError, match="cannot be added after the first run"):
        records.append(1, [])
    with pytest.raises(ExecutionError, match="cannot start at record 3 of 0"):
        launcher().run(records, 3)
    ordered = RecordArray()
    ordered.append(0, [], kind=Kind.NOTHING, group=4)
    with pytest.raises(ExecutionError, match="record 1 of group 3 comes after group 4"):
        ordered.append(0, [], kind=Kind.NOTHING, group=3)
    with pytest.raises(ExecutionError, match="record 0 has no buffer 0"):
        ordered.set_buffer(0, 0, 1)


def test_the_number_of_threads_follows_the_budget() -> None:
    with pytest.raises(ConfigError, match="-1 threads asked for"):
        set_threads(-1)
    out = zeros(4)
    records = RecordArray()
    records.append(kernel("count"), [out.ctypes.data], [], 4)
    for repeat, threads in enumerate([3, 1, 2, 4, 2] * 4):
        set_threads(threads)
        assert thread_budget() == threads
        launcher().run(records)
        assert launcher().threads == threads and (out == repeat + 1).all()
    with knobs.scope(THREADS=3):
        launcher().run(records)
        assert launcher().threads == 3
    launcher().run(records)
    assert launcher().threads == 2


def test_retired_workers_end() -> None:
    def tasks() -> int:
        return len(os.listdir("/proc/self/task"))

    out = zeros(8)
    records = RecordArray()
    records.append(kernel("count"), [out.ctypes.data], [], 8)
    set_threads(1)
    time.sleep(0.05)
    before = tasks()
    for _ in range(10):
        set_threads(4)
        launcher().run(records)
        set_threads(1)
    deadline = time.monotonic() + 5
    while tasks() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tasks() <= before


def test_many_forks_and_joins_with_pauses_between_them() -> None:
    rng = random.Random(0)
    outputs = [zeros(5), zeros(2), zeros(1)]
    records = RecordArray()
    for output in outputs:
        records.append(kernel("count"), [output.ctypes.data], [], len(output))
    for group in range(3, 50):
        for output in outputs:
            place = [output.ctypes.data]
            records.append(kernel("count"), place, [], len(output), group=group)
    for threads in (2, 4):
        set_threads(threads)
        for output in outputs:
            output[:] = 0
        deadline, runs = time.monotonic() + 1.0, 0
        while time.monotonic() < deadline:
            for _ in range(20):
                launcher().run(records)
            runs += 20
            time.sleep(rng.choice([0, 0, 1e-5, 1e-4, 3e-4, 2e-3]))
        assert all((output == 48 * runs).all() for output in outputs)


def test_python_threads_run_at_once_and_share_the_pool() -> None:
    set_threads(2)
    wrong: list[str] = []

    def plan(number: int) -> None:
        own, busy = zeros(7), zeros(3)
        records = RecordArray()
        for _ in range(20):
            records.append(kernel("count"), [own.ctypes.data], [], 7)
            records.append(kernel("busy"), [busy.ctypes.data], [300], 3)
        for repeat in range(1, 200):
            launcher().run(records)
            if not ((own == 20 * repeat).all() and (busy == 20 * repeat).all()):
                wrong.append(f"thread {number}, run {repeat}")

    threads = [threading.Thread(target=plan, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for size in (3, 1, 2, 4):
        time.sleep(0.02)
        set_threads(size)
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupted_launcher_stops_between_groups() -> None:
    set_threads(2)
    out = zeros(2)
    records = RecordArray()
    for _ in range(2000):
        records.append(kernel("busy"), [out.ctypes.data], [turns_in(1000)], 2)

    def interrupt() -> None:
        launcher().interrupted = True

    timer = threading.Timer(0.05, interrupt)
    timer.start()
    start = time.perf_counter()
    with pytest.raises(ExecutionError, match="interrupted before record"):
        launcher().run(records)
    assert time.perf_counter() - start < 1.5
    with pytest.raises(ExecutionError, match="interrupted before record 0 of 2000"):
        launcher().run(records)
    launcher().interrupted = False
    before = int(out[0])
    assert launcher().run(records, 1990) == 2000 and (out == before + 10).all()


@two_processors
def test_the_callers_affinity_comes_back_and_others_keep_theirs() -> None:
    set_threads(2)
    assert os.sched_getaffinity(0) == MASK  # after all the runs of the tests before
    out = zeros(2)
    records = RecordArray()
    for _ in range(50):
        records.append(kernel("busy"), [out.ctypes.data], [turns_in(20)], 2)
    stop = records.append(0, [], kind=Kind.PYTHON)
    try:
        for own in (MASK, {max(MASK)}, {min(MASK)}, MASK):
            os.sched_setaffinity(0, own)
            assert launcher().run(records) == stop
            assert os.sched_getaffinity(0) == own
    finally:
        os.sched_setaffinity(0, MASK)
    launcher().interrupted = True
    try:
        with pytest.raises(ExecutionError):
            launcher().run(records)
    finally:
        launcher().interrupted = False
    assert os.sched_getaffinity(0) == MASK
    thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
    seen: list[set[int]] = []
    thread.start()
    thread.join()
    assert seen == [MASK]


@two_processors
def test_idle_workers_use_no_processor() -> None:
    set_threads(2)
    out = zeros(2)
    records = RecordArray()
    records.append(kernel("count"), [out.ctypes.data], [], 2)
    used = 1.0
    for _ in range(3):
        launcher().run(records)
        time.sleep(0.1)
        before = time.process_time()
        time.sleep(0.4)
        used = min(used, time.process_time() - before)
    assert used < 0.004


def test_times_are_exact_and_slices_of_a_lane_do_not_overlap() -> None:
    set_threads(2)
    out = zeros(64)
    records = RecordArray()
    for group in range(10):
        for record in range(3):
            place = [out.ctypes.data + record * 64]
            records.append(kernel("busy"), place, [turns_in(30)], 1 + record, group=group)
    launcher().run(records)
    stamps = launcher().stamps_for(records)
    begin = time.perf_counter_ns()
    launcher().run(records, 0, stamps)
    end = time.perf_counter_ns()
    slices = launcher().slices(stamps)
    assert {piece.record for piece in slices} == set(range(records.count))
    margin = 20_000  # ns: the two clocks agree to much less over this time
    assert all(begin - margin < piece.start <= piece.end < end + margin for piece in slices)
    for lane in (0, 1):
        own = [piece for piece in slices if piece.lane == lane]
        assert all(a.end <= b.start for a, b in itertools.pairwise(own))
    spans = [
        (
            min(piece.start for piece in slices if piece.record // 3 == group),
            max(piece.end for piece in slices if piece.record // 3 == group),
        )
        for group in range(10)
    ]
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    stamps.clear()
    assert launcher().slices(stamps) == []


def test_the_callers_float_mode_changes_no_result() -> None:
    libm = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint8 * 64)()
    is_x86 = os.uname().machine == "x86_64"
    # Where the C library keeps the mode, and the bits that flush subnormal numbers both ways.
    word, flushes = (slice(28, 32), 0x8040) if is_x86 else (slice(0, 4), 1 << 24)
    set_threads(2)
    results = []
    for flush in (False, True):
        values = np.full(64, 2**-20, dtype=np.float32)
        records = RecordArray()
        records.append(kernel("subnormal"), [values.ctypes.data], [], 64)
        libm.fegetenv(environment)
        before = bytes(environment)
        try:
            if flush:
                mode = int.from_bytes(before[word], "little") | flushes
                environment[word] = list(mode.to_bytes(4, "little"))
                libm.fesetenv(environment)
            launcher().run(records)
            libm.fegetenv(environment)
            after = bytes(environment)
        finally:
            libm.fesetenv((ctypes.c_uint8 * 64)(*before))
        assert (int.from_bytes(after[word], "little") & flushes == flushes) == flush
        results.append(values.tobytes())
    assert results[0] == results[1] != bytes(256)


def test_lanes_get_their_own_processors() -> None:
    assert share_processors([0, 1], 2) == [[0], [1]]
    assert share_processors([4, 5, 6, 7], 2) == [[4, 5], [6, 7]]
    assert share_processors([0, 1, 2, 3, 4], 3) == [[0], [1, 2], [3, 4]]
    assert share_processors([0, 1], 5) == [[0], [1], [0], [1], [0]]


def test_the_code_comes_from_a_store_and_a_damaged_entry_is_a_miss() -> None:
    store: dict[str, bytes] = {}
    load_code(store.get, store.__setitem__)
    ((key, data),) = store.items()
    assert key.startswith("launcher-") and data[:4] == b"\x7fELF"
    assert "define i64 @run(" in launcher_ir()
    best = 1.0
    for _ in range(10):
        start = time.perf_counter()
        load_code(store.get, store.__setitem__)
        best = min(best, time.perf_counter() - start)
    assert best < 0.005
    store[key] = data[: len(data) // 2]
    load_code(store.get, store.__setitem__)
    assert store[key] == data


def test_a_thousand_dependent_kernels_cost_what_the_kernels_cost() -> None:
    values = np.zeros(16, dtype=np.float32)
    records = RecordArray()
    for _ in range(1000):
        records.append(kernel("add_one"), [values.ctypes.data, values.ctypes.data])
    assert best_time(records, 500) / 1000 < 50e-9


@not_emulated
@two_processors
def test_fork_and_join_are_cheap_and_the_second_processor_counts() -> None:
    set_threads(2)
    out = zeros(64)
    split = RecordArray()
    for _ in range(1000):
        split.append(kernel("count"), [out.ctypes.data], [], 2)
    assert best_time(split, 200) / 1000 < 0.4e-6
    wide = RecordArray()
    for place in range(64):
        address = out.ctypes.data + place * 8
        wide.append(kernel("busy"), [address], [turns_in(20)], group=0)
    deadline, ratio, alone, together = time.monotonic() + 4, 0.0, 1e9, 1e9
    while ratio < 1.8 and time.monotonic() < deadline:  # others may be using the machine
        set_threads(1)
        alone = min(alone, best_time(wide, 5))
        set_threads(2)
        together = min(together, best_time(wide, 20))
        ratio = alone / together
    assert ratio >= 1.8
