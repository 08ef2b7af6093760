"""Rows S175-S199, S156, Q1, Q2, Q3, Q18: the search for better loops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import CompileError, ExecutionError
from svod.base.knobs import knobs
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.text import dump
from svod.optimize import beam
from svod.optimize.actions import OptimizeError, apply_opts, chain
from svod.optimize.beam import BeamConfig, Candidate, Drop, beam_search, shrunk_grid
from svod.optimize.graph import renumber
from svod.optimize.heuristics import optimize
from svod.optimize.opts import Opt
from svod.optimize.tuned import tuned_store
from svod.runtime import assemble, search
from svod.runtime.caches import clear_kernel_cache
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.native import launcher
from svod.runtime.search import Launchable, search_kernel, timing_values, warm_pool
from svod.runtime.search_pool import Job, WorkerPool
from svod.runtime.search_worker import compile_candidate
from tests.optimize.kernels import (
    LIMITS,
    MACHINE,
    bench_of,
    body_of,
    candidates,
    floats,
    loops_of,
)
from tests.schedule.graphs import bodies
from tests.spec import call_parts

BEAM = PrepareConfig(OptimizerConfig(Strategy.BEAM, width=1, seconds=1.0))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.scope(cache_dir=str(tmp_path)):
        clear_kernel_cache()
        yield tmp_path
    clear_kernel_cache()


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as workers:
        yield workers


class FakeBench:
    """Says how long a candidate takes without running anything."""

    def __init__(self, seconds: Callable[[Candidate], float | Drop]) -> None:
        self.seconds = seconds
        self.compiled: list[Candidate] = []
        self.limits: list[float | None] = []

    def compile(self, candidates: Sequence[Candidate]) -> list[Any]:
        self.compiled += candidates
        found = [(c, self.seconds(c)) for c in candidates]
        return [answer if isinstance(answer, Drop) else c for c, answer in found]

    def time(self, program: Any, limit: float | None) -> float | Drop:
        self.limits.append(limit)
        return self.seconds(program)

    def compare(self, first: Any, second: Any) -> tuple[float, float]:
        return float(self.seconds(first)), float(self.seconds(second))  # type: ignore[arg-type]


class FakePlan:
    """A plan whose runs take as long as it is told."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)
        self.runs = 0

    def execute(self) -> None:
        self.runs += 1
        time.sleep(self.left.pop(0) if len(self.left) > 1 else self.left[0])


def searched(seconds: Callable[[Candidate], float | Drop], **limits: Any) -> Any:
    bench = FakeBench(seconds)
    config = BeamConfig(**{"width": 2, "seconds": 60.0, "rounds": 2, **limits})
    return beam_search(loops_of(body_of("matmul")), MACHINE, config, bench), bench


# -- the strategy ----------------------------------------------------------------------------------


@pytest.mark.row("S156", "S175")
def test_a_strategy_is_one_of_three_and_only_beam_searches() -> None:
    a = np.ones((8, 24), np.float32)
    before = search.searches["done"]
    for strategy in (Strategy.NONE, Strategy.HEURISTIC):
        clear_kernel_cache()
        assert (Tensor(a) + 1).numpy().sum() == 2 * a.size
        config = PrepareConfig(OptimizerConfig(strategy))
        (Tensor(a) * 3).prepare(config=config).execute()
    assert search.searches["done"] == before
    product = Tensor(a) * 3
    product.prepare(config=BEAM).execute()
    assert search.searches["done"] == before + 1
    np.testing.assert_array_equal(product.numpy(), a * 3)


@pytest.mark.row("S175")
def test_the_search_starts_from_plain_loops_and_the_heuristic_plan() -> None:
    kernel = loops_of(body_of("matmul"))
    _, bench = searched(lambda c: 1e-3)
    heuristic, opts = optimize(kernel, MACHINE)
    assert bench.compiled[0].kernel is heuristic and bench.compiled[0].opts == opts
    assert bench.compiled[1].kernel is renumber(kernel) and bench.compiled[1].opts == ()


def test_the_width_comes_from_the_environment() -> None:
    with knobs.scope(beam=3):
        config = OptimizerConfig.from_environment()
    assert config.strategy is Strategy.BEAM and config.width == 3
    assert config.fingerprint() != OptimizerConfig().fingerprint()


def test_a_faster_candidate_wins_and_a_slower_one_never_does() -> None:
    result, _ = searched(lambda c: 1.0 if any(o.name == "UNROLL" for o in c.opts) else 2.0)
    assert "UNROLL" in {o.name for o in result.opts} and not result.is_heuristic
    assert result.seconds == 1.0 and result.heuristic_seconds == 2.0
    kernel = loops_of(body_of("matmul"))
    assert apply_opts(kernel, result.opts, MACHINE) is result.kernel
    heuristic, _ = optimize(kernel, MACHINE)
    result, _ = searched(lambda c: 1.0 if c.kernel is heuristic else 1.5)
    assert result.is_heuristic and result.kernel is heuristic


def test_a_winner_that_loses_side_by_side_is_not_believed() -> None:
    heuristic, _ = optimize(loops_of(body_of("matmul")), MACHINE)
    bench = FakeBench(lambda c: 2.0 if c.kernel is heuristic else 1.0)
    bench.compare = lambda first, second: (2.0, 2.0)  # type: ignore[method-assign]
    result = beam_search(loops_of(body_of("matmul")), MACHINE, BeamConfig(rounds=1), bench)
    assert result.is_heuristic and result.seconds == 2.0


def test_a_search_ends_when_its_time_is_up() -> None:
    now = [0.0]

    def seconds(candidate: Candidate) -> float:
        now[0] += 1.0
        return 100.0 - now[0]  # always better than before

    bench = FakeBench(seconds)
    config = BeamConfig(seconds=40.0, rounds=1000)
    result = beam_search(loops_of(body_of("matmul")), MACHINE, config, bench, clock=lambda: now[0])
    assert now[0] < 80 and result.tried < 60


# -- memory and arguments --------------------------------------------------------------------------


@pytest.mark.row("S176", "Q2")
def test_candidates_have_memory_of_their_own_before_they_run(pool: WorkerPool) -> None:
    bench = bench_of(body_of("matmul"), pool)
    assert len(bench.scratch) == 3
    assert all(buffer.is_allocated for buffer in bench.scratch)
    (program,) = bench.compile(candidates(loops_of(body_of("matmul")), [()]))
    assert {b.id for b in program.plan.buffers()} <= {b.id for b in bench.scratch}


@pytest.mark.row("Q2")
def test_a_search_changes_no_byte_of_the_user() -> None:
    """In-place kernels run many times during a search, and once for the user."""
    x = Tensor(np.arange(50, dtype=np.float32)).realize()
    y = Tensor(np.arange(50, dtype=np.float32)).realize()
    before = search.searches["done"]
    svod.realize(x.assign(x * 2 + y), config=BEAM)
    assert search.searches["done"] == before + 1
    np.testing.assert_array_equal(x.numpy(), np.arange(50) * 3)
    np.testing.assert_array_equal(y.numpy(), np.arange(50))


@pytest.mark.row("Q1")
def test_one_function_binds_arguments_for_searches_and_launches(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []
    real = assemble.bind_arguments

    def spy(item: Any, indices: Any, slots: Any) -> Any:
        bound.append(list(slots))
        return real(item, indices, slots)

    monkeypatch.setattr(assemble, "bind_arguments", spy)
    a, b = floats(17, 33), floats(33, 65)
    (body,) = bodies(a @ b)
    bench = bench_of(body, pool)
    (program,) = bench.compile(candidates(loops_of(body), [()]))
    assert bound == [[0, 1, 2]]
    (launch,) = program.plan.prepared_kernels()
    assert launch.buffer_indices == [0, 1, 2] and launch.output_indices == [0]
    (a @ b).prepare()
    assert bound[1:] == [[0, 1, 2]]


@pytest.mark.row("Q1")
def test_a_candidate_gets_the_arguments_it_names_where_one_is_not_used(pool: WorkerPool) -> None:
    kernel = call_parts.body(B.unary(O.SQRT, call_parts.param(2)))
    bench = bench_of(kernel, pool)
    (program,) = bench.compile(candidates(loops_of(kernel), [()]))
    (launch,) = program.plan.prepared_kernels()
    assert launch.buffer_indices == [0, 2] and launch.output_indices == [0]


@pytest.mark.row("S191", "Q3")
def test_fixed_values_come_first_then_the_middle_of_the_bounds(pool: WorkerPool) -> None:
    body = body_of("run-time size")
    bench = bench_of(body, pool)
    assert bench.values == {"n": 20}
    assert timing_values(bench.variables, {"n": 7, "other": 1}) == {"n": 7}
    opts = [Opt("THREAD", 0, 2)]
    (program,) = bench.compile(candidates(loops_of(body), [opts]))
    (launch,) = program.plan.prepared_kernels()
    values = dict(zip(launch.kernel.var_names, launch.vals, strict=True))
    assert values["n"] == 20 and values.get("core_id", 0) == 0


@pytest.mark.row("Q3")
def test_a_search_is_given_the_values_a_schedule_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = search.search_kernel

    def spy(body: Any, machine: Any, config: Any, fixed: Any = None, pool: Any = None) -> Any:
        seen.append(dict(fixed or {}))
        return real(body, machine, config, fixed, pool)

    monkeypatch.setattr(search, "search_kernel", spy)
    n = svod.Variable("n", 1, 30).bind(9)
    total = (floats(30, 8)[:n] * 2).sum()
    plan = total.prepare(config=BEAM)
    assert {"n": 9} in seen
    plan.execute()
    assert total.item() == 144


# -- compiling -------------------------------------------------------------------------------------


@pytest.mark.row("S177")
def test_the_threads_that_run_kernels_are_there_before_the_search() -> None:
    warm_pool()
    assert launcher().workers == launcher().threads - 1


@pytest.mark.row("S178")
@pytest.mark.parametrize("text, seconds", [(None, 10.0), ("2.5", 2.5), ("soon", 10.0), ("0", 10.0)])
def test_the_environment_limits_compiling(
    text: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEAM_TIMEOUT_SEC", raising=False)
    if text is not None:
        monkeypatch.setenv("BEAM_TIMEOUT_SEC", text)
    assert BeamConfig.from_environment().compile_seconds == seconds


@pytest.mark.row("S178", "S179")
def test_running_has_no_limit_but_the_early_stop(pool: WorkerPool) -> None:
    bench = bench_of(body_of("rows"), pool, BeamConfig(compile_seconds=0.01))
    measured = bench.time(Launchable(FakePlan(0.05), 1.0), None)  # type: ignore[arg-type]
    assert not isinstance(measured, Drop) and measured >= 0.05


FAKE = """
import sys, time
from svod.runtime.search_worker import read_frame, write_frame
out = sys.stdout.buffer
write_frame(out, {"ready": True})
while (frame := read_frame(sys.stdin.buffer)) is not None:
    head, text = frame
    name = head["name"]
    if name == "hangs":
        time.sleep(600)
    if name == "dies":
        sys.exit(3)
    if name == "fails":
        write_frame(out, {"job": head["job"], "drop": "linearize_err", "detail": "bad loops"})
        continue
    if name == "babbles":
        write_frame(out, {"job": head["job"] - 1}, b"too late")
    write_frame(out, {"job": head["job"]}, text)
"""


@pytest.fixture
def fake() -> Iterator[WorkerPool]:
    with WorkerPool(2, (sys.executable, "-c", FAKE)) as workers:
        yield workers


def jobs(*names: str) -> list[Job]:
    return [Job(name, f"text of {name}", 10) for name in names]


@pytest.mark.row("S179", "S180", "S182")
def test_answers_come_in_order_and_failures_are_answers(fake: WorkerPool) -> None:
    """Code or a failure ends the first stage; late answers are ignored."""
    found = fake.compile_all(jobs("a", "fails", "babbles", "b"), 10.0)
    assert found[0] == b"text of a" and found[3] == b"text of b"
    assert found[1] == Drop("linearize_err", "bad loops")
    assert found[2] == b"text of babbles"


@pytest.mark.row("S181", "Q18")
def test_a_compile_that_hangs_is_dropped_and_its_process_ended(fake: WorkerPool) -> None:
    fake.compile_all(jobs("a", "b"), 10.0)  # both workers are there
    processes = [worker._process for worker in fake._idle]
    start = time.monotonic()
    found = fake.compile_all(jobs("hangs", "c", "d"), 0.3)
    assert time.monotonic() - start < 5
    assert found == [Drop("compile_timeout"), b"text of c", b"text of d"]
    assert fake.ended == 1
    assert sorted(p.poll() is not None for p in processes) == [False, True]
    assert fake.compile_all(jobs("e", "f"), 10.0) == [b"text of e", b"text of f"]


@pytest.mark.row("Q18")
def test_no_process_outlives_its_pool() -> None:
    with WorkerPool(1, (sys.executable, "-c", FAKE)) as workers:
        workers.compile_all(jobs("a"), 10.0)
        (process,) = [worker._process for worker in workers._idle]
    assert process.poll() is not None


@pytest.mark.row("S183")
def test_a_candidate_that_breaks_its_worker_is_dropped(
    fake: WorkerPool, capfd: pytest.CaptureFixture[str]
) -> None:
    found = fake.compile_all(jobs("dies", "a"), 10.0)
    assert found == [Drop("panic_in_worker", "the worker process ended"), b"text of a"]
    assert capfd.readouterr().err == ""


@pytest.mark.row("S183")
def test_nothing_a_candidate_raises_ends_the_search(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (found,) = pool.compile_all([Job("x", "this is no kernel", 10)], 10.0)
    assert isinstance(found, Drop) and found.reason == "panic_in_worker"
    calls = [0]

    def unstable(kernel: Any, opts: Any, machine: Any) -> Any:
        calls[0] += 1
        if calls[0] % 2:
            raise RecursionError("too deep")
        return apply_opts(kernel, opts, machine)

    monkeypatch.setattr(beam, "apply_opts", unstable)
    result, _ = searched(lambda c: 1.0)
    assert result.dropped["panic_in_worker"] > 3 and result.tried > 3
    assert capfd.readouterr().err == ""


REASONS = (
    "linearize_err", "too_many_uops", "compile_err", "runtime_err", "panic_in_worker",
    "compile_timeout",
)  # fmt: skip


@pytest.mark.row("S184")
def test_every_dropped_candidate_is_one_line_with_its_opts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BEAM_LOG_SURPASS_MAX", "1")
    assert BeamConfig.from_environment().log_drops
    count = [0]

    def seconds(candidate: Candidate) -> float | Drop:
        count[0] += 1
        return 1e-3 if count[0] <= 2 else Drop(REASONS[count[0] % 6], "some detail")

    result, bench = searched(seconds, log_drops=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == sum(result.dropped.values()) == len(bench.compiled) - 1
    for reason in REASONS:
        assert any(line.startswith(f"[BEAM drop] {reason}: some detail") for line in lines)
    dropped = [chain(c.opts) for c in bench.compiled[1:]]
    assert [line.split(" opts=")[1] for line in lines] == [f"[{opts}]" for opts in dropped]
    monkeypatch.delenv("BEAM_LOG_SURPASS_MAX")
    assert not BeamConfig.from_environment().log_drops


def compiled_text(opts: list[Opt], limit: int) -> tuple[dict[str, Any], bytes]:
    kernel = apply_opts(loops_of(body_of("matmul")), opts, MACHINE)
    return compile_candidate({"name": "kernel", "max_uops": limit}, dump(kernel))


@pytest.mark.row("S185", "S189")
def test_operations_are_counted_after_linearising() -> None:
    opts = [Opt("UPCAST", 0, 4), Opt("LANE", 1, 16)]
    head, binary = compiled_text(opts, 100_000)
    count = head["uops"]
    assert binary and count > 0
    assert compiled_text(opts, count)[1] == binary
    head, binary = compiled_text(opts, count - 1)
    assert not binary and head["drop"] == "too_many_uops"
    assert head["detail"].startswith(f"linear={count} max={count - 1} top_ops=[")
    kinds = head["detail"].split("top_ops=[")[1].rstrip("]").split(", ")
    amounts = [int(kind.split("=")[1]) for kind in kinds]
    assert len(kinds) == 8 and amounts == sorted(amounts, reverse=True)
    graph = apply_opts(loops_of(body_of("matmul")), opts, MACHINE).toposort()
    assert count > len(graph)  # copies are counted, which the graph does not show


@pytest.mark.row("S185")
def test_the_eight_most_frequent_kinds() -> None:
    names = [name for number, name in enumerate("ABCDEFGHIJ", 1) for _ in range(number)]
    assert beam.top_operations(names) == "J=10, I=9, H=8, G=7, F=6, E=5, D=4, C=3"


@pytest.mark.row("S186")
def test_equal_loops_are_compiled_once_in_a_search(pool: WorkerPool) -> None:
    body = body_of("elementwise")
    kernel = loops_of(body)
    first, second, other = candidates(kernel, [[Opt("LANE", 0, 16)]] * 2 + [[]])
    bench = bench_of(body, pool)
    programs = bench.compile([first, second, other])
    assert bench.compiles == 2 and programs[0] is programs[1]
    assert bench.compile([second]) == [programs[0]] and bench.compiles == 2
    assert bench_of(body, pool).compiled == {}


@pytest.mark.row("S187")
def test_threads_are_real_while_candidates_are_timed(pool: WorkerPool) -> None:
    body = body_of("rows")
    bench = bench_of(body, pool)
    one, two = bench.compile(candidates(loops_of(body), [[], [Opt("THREAD", 0, 2)]]))
    sizes = [p.plan.prepared_kernels()[0].kernel.dims.global_size for p in (one, two)]
    assert sizes == [(1, 1, 1), (2, 1, 1)]


@pytest.mark.row("S188")
def test_equal_loops_are_one_candidate() -> None:
    kernel = loops_of(body_of("matmul"))
    opts = [Opt("UPCAST", 0, 2), Opt("LANE", 1, 16)]
    one, two, other = candidates(kernel, [opts, list(opts), opts[:1]])
    assert one.key == two.key != other.key
    _, bench = searched(lambda c: 1.0)
    keys = [c.key for c in bench.compiled]
    assert len(keys) == len(set(keys))


@pytest.mark.row("S188")
def test_bloated_candidates_are_not_even_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, vectors = candidates(loops_of(body_of("matmul")), [[], [Opt("LANE", 1, 16)]])
    assert 1 < plain.operations / vectors.operations <= 16
    heuristic, _ = optimize(loops_of(body_of("matmul")), MACHINE)
    monkeypatch.setattr(
        beam, "compute_operations", lambda kernel: 1.0 if kernel is heuristic else 1001.0
    )
    result, bench = searched(lambda c: 1e-6)
    assert [c.kernel for c in bench.compiled] == [heuristic]
    assert result.dropped["too_many_operations"] > 10
    monkeypatch.setattr(
        beam, "compute_operations", lambda kernel: 1.0 if kernel is heuristic else 999.0
    )
    assert len(searched(lambda c: 1e-6)[1].compiled) > 10


def test_a_run_that_would_take_seconds_and_lose_is_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heuristic, _ = optimize(loops_of(body_of("matmul")), MACHINE)
    monkeypatch.setattr(
        beam, "compute_operations", lambda kernel: 1.0 if kernel is heuristic else 50.0
    )
    result, bench = searched(lambda c: 0.1)
    assert len(bench.compiled) == 1 and result.dropped["too_slow"] > 10


# -- timing ----------------------------------------------------------------------------------------


@pytest.mark.row("S190")
def test_compiling_is_not_timed(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = WorkerPool.compile_all

    def slow(self: WorkerPool, jobs: Any, seconds: float) -> Any:
        time.sleep(0.2)
        return real(self, jobs, seconds)

    monkeypatch.setattr(WorkerPool, "compile_all", slow)
    config = BeamConfig(width=1, seconds=0.3, compile_seconds=30.0)
    result = search_kernel(body_of("rows"), MACHINE, config, None, pool)
    assert result.seconds < 0.1


def timed(*seconds: float, limit: float | None = None, factor: float = 1.0) -> tuple[Any, int]:
    plan = FakePlan(*seconds)
    with WorkerPool(1) as unused:  # starts no process
        bench = bench_of(body_of("rows"), unused)
    return bench.time(Launchable(plan, factor), limit), plan.runs  # type: ignore[arg-type]


@pytest.mark.row("S192")
def test_a_failing_run_drops_its_candidate_silently(
    pool: WorkerPool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def execute(self) -> None:
            raise ExecutionError("launch failed")

    bench = bench_of(body_of("rows"), pool)
    assert bench.time(Launchable(Broken(), 1.0), None) == Drop("")  # type: ignore[arg-type]
    heuristic, _ = optimize(loops_of(body_of("matmul")), MACHINE)
    result, _ = searched(lambda c: 1e-3 if c.kernel is heuristic else Drop(""), log_drops=True)
    assert not result.dropped and capsys.readouterr().err == ""


@pytest.mark.row("S193")
@pytest.mark.parametrize(
    "grid, shrunk, factor",
    [
        ((2, 1, 1), [2, 1, 1], 1.0),
        ((65536, 1, 1), [65536, 1, 1], 1.0),
        ((1 << 20, 1, 1), [65536, 1, 1], 16.0),
        ((1024, 1024, 16), [256, 16, 16], 256.0),
        ((256, 64, 64), [256, 16, 16], 16.0),
        ((16, 16, 1024), [16, 16, 256], 4.0),
        ((65536, 16, 16), [256, 16, 16], 256.0),
        ((16, 16, 16, 16, 16), [16] * 5, 1.0),
        ((0, 1, 1), [0, 1, 1], 1.0),
    ],
)
def test_large_grids_are_halved_along_the_last_long_axis(
    grid: tuple[int, ...], shrunk: list[int], factor: float
) -> None:
    assert shrunk_grid(grid) == (shrunk, factor)


@pytest.mark.row("S194")
def test_times_of_shrunk_grids_are_scaled_and_so_is_the_early_stop() -> None:
    seconds, _ = timed(0.01, factor=4.0)
    assert 0.04 <= seconds < 0.2
    _, runs = timed(0.01, limit=0.02, factor=4.0)
    assert runs == 1
    _, runs = timed(0.01, limit=4.0, factor=4.0)
    assert runs >= 3


@pytest.mark.row("S195")
def test_a_run_beyond_three_times_the_incumbent_is_the_last() -> None:
    assert timed(0.02, limit=0.01)[1] == 1
    assert timed(0.001, 0.001, 0.03, limit=0.02)[1] == 3
    heuristic, _ = optimize(loops_of(body_of("matmul")), MACHINE)
    result, bench = searched(lambda c: 1e-3 if c.kernel is heuristic else 3.1e-3)
    assert bench.limits[0] is None and set(bench.limits[1:]) == {3e-3}
    assert result.dropped["early_stop"] == len(bench.limits) - 1


@pytest.mark.row("S196")
def test_the_caches_of_a_cpu_stay_warm_between_runs(pool: WorkerPool) -> None:
    """Nothing is touched between the runs of a candidate, so its data stays in cache."""
    bench = bench_of(body_of("rows"), pool)
    memory = bench.scratch[0].numpy()

    class Counting:
        def execute(self) -> None:
            memory[0] += 1

    memory[0] = 0
    bench.time(Launchable(Counting(), 1.0), None)  # type: ignore[arg-type]
    assert memory[0] == search.MOST_RUNS


@pytest.mark.row("S197")
def test_the_score_is_the_least_of_the_runs() -> None:
    seconds, runs = timed(0.02, 0.005, 0.02, 0.02)
    assert runs >= 3 and 0.005 <= seconds < 0.015


# -- the result ------------------------------------------------------------------------------------


@pytest.mark.row("S198")
def test_the_result_is_logged_and_the_winner_compiled_as_usual(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = np.arange(12 * 40, dtype=np.float32).reshape(12, 40)
    total = Tensor(a).sum(1)
    with knobs.scope(debug=1):
        plan = total.prepare(config=BEAM)
    text = capsys.readouterr().err
    (line,) = [line for line in text.splitlines() if "beam: " in line]
    for part in (" us, ", "x the heuristics", " candidates in ", " rounds: "):
        assert part in line
    plan.execute()
    np.testing.assert_allclose(total.numpy(), a.sum(1), rtol=1e-5)
    (kernel,) = plan.kernels()
    assert kernel.source and kernel.address


@pytest.mark.row("S199")
def test_errors_of_a_search_are_errors_of_the_optimizer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert issubclass(OptimizeError, CompileError)
    with pytest.raises(OptimizeError, match="could not be timed: compile_err"):
        searched(lambda c: Drop("compile_err", "no"))

    def broken(body: Any) -> Any:
        raise ExecutionError("out of scratch memory")

    monkeypatch.setattr(search, "scratch_buffers", broken)
    with pytest.raises(OptimizeError, match=r"the search for sum_.* failed: out of scratch"):
        search_kernel(body_of("rows"), MACHINE, LIMITS, None, pool)


PROGRAM = """
import numpy as np
from svod import Tensor
from svod.runtime import search
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
a = np.ones((48, 32), np.float32)
total = Tensor(a) @ Tensor(a.T.copy())
config = PrepareConfig(OptimizerConfig(Strategy.BEAM, width=1, seconds=2.0))
total.prepare(config=config).execute()
assert (total.numpy() == 32).all()
print(search.searches["done"])
"""


def test_a_second_process_uses_the_result_without_searching(folder: Path) -> None:
    environment = {**os.environ, "SVOD_CACHE_DIR": str(folder)}

    def run() -> str:
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run() == "1"
    assert run() == "0"


def test_nothing_is_kept_where_the_tuned_store_is_off(pool: WorkerPool) -> None:
    config = BeamConfig(width=1, seconds=0.2)
    with knobs.scope(tuned=False):
        search_kernel(body_of("rows"), MACHINE, config, None, pool)
    assert tuned_store().entries() == {}
    search_kernel(body_of("rows"), MACHINE, config, None, pool)
    assert len(tuned_store().entries()) == 1


def test_every_op_of_a_kernel_survives_the_way_to_a_worker(pool: WorkerPool) -> None:
    i = Tensor(np.array([0, 4, 2]))
    (body,) = bodies(floats(5, 8)[i] + 1)
    assert any(n.op == O.PARAM and n.dtype.kind == "i" for n in body.toposort())
    bench = bench_of(body, pool)
    (program,) = bench.compile(candidates(loops_of(body), [()]))
    assert not isinstance(program, Drop)
    assert not isinstance(bench.time(program, None), Drop)
