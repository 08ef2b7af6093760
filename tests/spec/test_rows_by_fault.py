"""Rows that are shown by what would go wrong without them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import svod
import svod.codegen.compile as compiling
from svod import Tensor
from svod.base.errors import (
    AllocationError,
    CompileError,
    EmptySchedule,
    ExecutionError,
    GraphError,
    ShapeError,
    VerifyError,
)
from svod.base.knobs import knobs
from svod.codegen import pipeline as linearizing
from svod.device.buffer import Buffer
from svod.device.cpu.compiler import CpuRenderer
from svod.device.device import Device, Toolchain
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import make
from svod.ir.patterns import rule
from svod.ir.rewrite import compile_rules
from svod.optimize import beam
from svod.optimize.actions import apply_opts, chain
from svod.optimize.beam import BeamConfig, Drop
from svod.optimize.opts import Opt
from svod.runtime import builder as building
from svod.runtime import order, programs, search
from svod.runtime.caches import clear_kernel_cache, compiled_kernels
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.programs import CreateProgramError, RenderError
from svod.runtime.search_pool import WorkerPool
from svod.schedule import schedule as scheduling
from svod.schedule.dependencies import call_dependencies, walk_calls
from svod.tensor.core import tensor_registry
from svod.tensor.core.tensor_core import wrap
from svod.tensor.recording import realize as realizing
from tests.optimize.kernels import MACHINE, bench_of, body_of, candidates, loops_of
from tests.spec.call_parts import after, body, call, memory, param, plus, sink
from tests.spec.plan_parts import compiled, empty, launch, plan_of


def ops(*facts):
    return [SimpleNamespace(id=number, dependencies=waits) for number, waits in facts]


def both_ways(monkeypatch, facts):
    """Levels by the usual short way, and by the one for any order."""
    quick = order.execution_levels(facts)
    with monkeypatch.context() as patch:
        patch.setattr(order, "_depths", lambda *given: None)
        assert order.execution_levels(facts) == quick
    return quick


# -- order ---------------------------------------------------------------------------------------


@pytest.mark.row("S26")
def test_a_repeated_id_means_the_last_op_before_and_never_the_first(monkeypatch):
    levels = both_ways(monkeypatch, ops((42, []), (42, [42]), (9, [42])))
    assert levels == [[0], [1], [2]], "op 9 waits for the second op 42"
    levels = both_ways(monkeypatch, ops((42, []), (9, [42]), (42, [9]), (9, [42]), (7, [9])))
    assert levels == [[0], [1], [2], [3], [4]]


@pytest.mark.row("S26", "S27")
def test_an_op_that_waits_for_its_own_id_waits_for_the_one_before(monkeypatch):
    with pytest.raises(ExecutionError, match="unknown prior op id"):
        order.execution_levels(ops((42, [42]), (42, [])))
    with monkeypatch.context() as patch:
        patch.setattr(order, "_depths", lambda *given: None)
        with pytest.raises(ExecutionError, match="unknown prior op id"):
            order.execution_levels(ops((42, [42]), (42, [])))


@pytest.mark.row("S36")
def test_build_computes_order_and_levels_once_and_a_run_never(monkeypatch):
    real, count = building.order_and_levels, []

    def counted(*given):
        count.append(given)
        return real(*given)

    monkeypatch.setattr(building, "order_and_levels", counted)
    plan = plan_of([empty()], [launch(1, compiled(), [0]), launch(2, compiled(), [0], after=[1])])
    assert len(count) == 1
    for name in ("_depths", "_waves", "_link_unique", "_link_most_recent", "dependency_graph"):
        monkeypatch.setattr(order, name, lambda *given: pytest.fail("computed again"))
    plan.execute()
    plan.execute_profiled()
    assert plan.order is plan.order == (0, 1)
    assert plan.levels is plan.levels == ((0,), (1,))


# -- realising -----------------------------------------------------------------------------------


@pytest.mark.row("S103")
def test_outputs_that_do_not_fit_change_no_tensor(monkeypatch):
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    wrong = realizing._plan([x[:4] + 1], PrepareConfig(), "test")
    monkeypatch.setattr(realizing, "_make_plan", lambda *given: wrong)
    y = x.reshape(2, 3) * 2
    before = y.uop
    with pytest.raises(ShapeError, match=r"an output of 4 elements is no tensor of \(2, 3\)"):
        y.realize()
    assert y.uop is before
    monkeypatch.undo()
    np.testing.assert_array_equal(y.numpy(), np.arange(6).reshape(2, 3) * 2)


@pytest.mark.row("S103", "S102")
def test_a_result_of_run_time_size_keeps_its_symbolic_shape():
    n = svod.Variable("n", 1, 6).bind(4)
    y = (Tensor(np.arange(6, dtype=np.float32)).realize()[:n] * 2).realize()
    assert tensor_registry.buffer_of(y.uop).size == 6
    assert not isinstance(y.shape[0], int) and y.numpy().tolist() == [0, 2, 4, 6]
    with pytest.raises(ShapeError):
        B.reshape(tensor_registry.buffer_node(y.uop), (4, 4))


@pytest.mark.row("S104")
def test_prepare_uses_what_the_environment_says(monkeypatch):
    def kernel(number=104.0):
        (found,) = (Tensor(np.ones((64, 64), np.float32)).realize() * number).prepare().kernels()
        return found

    assert kernel().choice[1] != "nobody"
    with knobs.scope(OPTIMIZE=0):
        assert kernel().choice == ((), "nobody")
    with knobs.scope(DISABLE_SCHEDULE_CACHE=1):
        before = scheduling.schedules.info()
        kernel()
        assert scheduling.schedules.info() == before
    monkeypatch.setattr(search, "searched_loops", raising(LookupError("a search")))
    with knobs.scope(BEAM=2, TUNED=0), pytest.raises(LookupError, match="a search"):
        kernel(104.125)


@pytest.mark.row("S104")
def test_what_goes_wrong_in_prepare_is_typed(monkeypatch):
    x = Tensor(np.ones(4, np.float32)).realize()
    with pytest.raises(EmptySchedule):
        x.prepare()
    with pytest.raises(AllocationError, match="bytes"):
        (x.reshape(4, 1, 1).expand(4, 1 << 22, 1 << 32) + 1).contiguous().prepare()
    malformed = wrap(make(O.SHRINK, dt.float32, (x.uop,), ((2, 9),)), "CPU")
    with pytest.raises(VerifyError, match="is not inside"):
        (malformed + 1).prepare()
    with monkeypatch.context() as patch:
        patch.setattr(linearizing, "linearize", raising(ValueError("no ink")))
        with pytest.raises(CompileError, match=r"could not render .*no ink"):
            (x + 104.25).prepare()
    y = x + 104.25
    assert y.numpy()[0] == 105.25, "and afterwards all is well"


def raising(problem):
    def function(*given, **named):
        raise problem

    return function


# -- the schedule --------------------------------------------------------------------------------


@pytest.mark.row("S120")
def test_a_schedule_is_made_once_for_a_structure_and_a_compiler(monkeypatch):
    stock = get_device("CPU")

    class OtherCompiler(type(stock.compiler)):
        def cache_key(self):
            return "compiler of S120"

    pair = (stock.renderer, OtherCompiler())
    other = Device("CPU", stock.allocator, Toolchain((pair,), stock.runtime))
    real, made = scheduling._cut_into_calls, []

    def counted(*given):
        made.append(given)
        return real(*given)

    monkeypatch.setattr(scheduling, "_cut_into_calls", counted)
    scheduling.clear_schedule_cache()

    def total(config=None):
        x, y = (Tensor(np.full(120, value, np.float32)).realize() for value in (2, 3))
        return wrap((x * y + 120).uop, "CPU").realize(config=config).numpy()[0]

    elsewhere = PrepareConfig(device_resolver=lambda name: other)
    assert [total(), total()] == [126, 126] and len(made) == 1
    assert [total(elsewhere), total(elsewhere)] == [126, 126] and len(made) == 2
    x = Tensor(np.full(120, 2, np.float32)).realize()
    assert (x * x + 120).numpy()[0] == 124 and len(made) == 3, "one buffer twice is not two"


@pytest.mark.row("S206")
def test_who_wrote_a_buffer_last_does_not_matter():
    source, shared, out = memory(), memory(), memory()
    writer = call(plus(1), shared, source)
    reader = call(plus(3), out, shared)  # the buffer itself: as it is before the plan
    walked = walk_calls(sink(after(shared, writer), after(out, reader)))
    assert call_dependencies([writer, reader], walked) == [set(), set()]


@pytest.mark.row("S206")
def test_a_call_never_waits_for_itself():
    shared = memory()
    one = call(plus(1), shared, memory())
    again = after(shared, one, after(shared, one))
    assert call_dependencies([one], walk_calls(sink(again))) == [set()]


# -- preparing -----------------------------------------------------------------------------------


@pytest.mark.row("S139")
@pytest.mark.parametrize("mode", ["arena", "remap"])
def test_results_in_the_middle_of_a_plan_keep_their_values(mode):
    rng = np.random.default_rng(139)
    a, w = (rng.standard_normal((48, 48)).astype(np.float32) / 7 for _ in range(2))
    with knobs.scope(MEMORY_PLANNER=mode):
        x, y = Tensor(a).realize(), Tensor(w).realize()
        results, exact, here, there = [], [], x, a.astype(np.float64)
        for step in range(6):
            here, there = (here @ y).contiguous() + step, there @ w.astype(np.float64) + step
            results.append(here)
            exact.append(there)
            here, there = (here @ y).contiguous(), there @ w.astype(np.float64)
        plan = realizing.prepare(results)
        assert plan.memory.reused > 0, "there is something to share"
        plan.execute()
        for found, wanted in zip(results, exact, strict=True):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.row("S158")
def test_rules_of_the_cpu_are_applied_to_the_optimised_loops(monkeypatch):
    rules = compile_rules([rule("no SQRT", (O.SQRT, "x"), (O.MUL, "x", 2.0))], "no SQRT")

    class Lacking(CpuRenderer):
        def decompositor(self):
            return rules

    stock = get_device("CPU")

    class OtherCompiler(type(stock.compiler)):
        def cache_key(self):
            return "compiler of S158"

    toolchain = Toolchain(((Lacking(), OtherCompiler()),), stock.runtime)
    device = Device("CPU", stock.allocator, toolchain)
    real, seen = compiling.rewrite, []

    def spy(roots, given):
        seen.extend(roots)
        return real(roots, given)

    monkeypatch.setattr(compiling, "rewrite", spy)
    kernel = body(B.unary(O.SQRT, param(1)))
    config = PrepareConfig(device_resolver=lambda name: device)
    found = compiled_kernels([kernel], "CPU", config)[kernel]
    assert "llvm.sqrt" not in found.source and found.entry_point.startswith("sqrt")
    assert any(n.op == O.RANGE for root in seen for n in root.toposort()), "loops, not a graph"


@pytest.fixture
def no_fallback():
    """Errors that were planted are no reason to look for plainer loops."""
    with knobs.scope(OPTIMIZE=0):
        clear_kernel_cache()
        yield
    clear_kernel_cache()


def fresh(number):
    return body(B.binary(O.ADD, param(1), B.full((4,), float(number), dt.float32)))


@pytest.mark.row("S171")
def test_a_source_is_checked_before_it_is_compiled(monkeypatch):
    real = programs._to_source

    def broken(program, device):
        made = real(program, device)
        return make(O.PROGRAM, dt.void, made.src, 171)

    monkeypatch.setattr(programs, "_to_source", broken)
    monkeypatch.setattr(
        "svod.device.cpu.compiler.emit_object", raising(AssertionError("it was compiled"))
    )
    program = programs.program_of(fresh(171.5), "REF", "kernel")
    with pytest.raises(GraphError, match="invalid SOURCE stage"):
        programs.compile_program(program, get_device("REF"))


@pytest.mark.row("S172")
@pytest.mark.parametrize("problem", [RuntimeError("LLVM is out of memory"), OSError("no disk")])
def test_a_cpu_that_cannot_compile_names_the_kernels(problem, monkeypatch, no_fallback):
    monkeypatch.setattr("svod.device.cpu.compiler.object_for", raising(problem))
    with pytest.raises(CompileError, match=rf"CPU could not compile add\w*: .*{problem}") as found:
        compiled_kernels([fresh(172.5)], "CPU")
    assert not isinstance(found.value, CreateProgramError)
    with monkeypatch.context() as patch:
        patch.setattr(linearizing, "linearize", raising(problem))
        with pytest.raises(RenderError, match=rf"CPU could not render 'add\w*': .*{problem}"):
            compiled_kernels([fresh(172.25)], "CPU")


@pytest.mark.row("S174")
def test_code_of_the_cpu_that_cannot_be_loaded_names_the_kernels(monkeypatch, no_fallback):
    monkeypatch.setattr("svod.device.cpu.compiler.load_image", raising(OSError("no room")))
    with pytest.raises(CreateProgramError, match=r"CPU could not load '?add\w*'?: no room"):
        compiled_kernels([fresh(174.5)], "CPU")
    monkeypatch.undo()
    kernel = fresh(174.5)
    found = compiled_kernels([kernel], "CPU")[kernel]
    assert found.address, "nothing broken was kept"


# -- searching -----------------------------------------------------------------------------------


@pytest.mark.row("S177")
def test_threads_are_started_before_the_first_candidate_is_timed():
    """In a process of its own: here they may have been started by anything."""
    text = """
from svod.runtime import search
from svod.runtime.native import launcher
from tests.optimize.kernels import LIMITS, MACHINE, body_of
started = []
real = search.CandidateBench.time
def timed(self, program, limit):
    started.append(launcher().workers)
    return real(self, program, limit)
search.CandidateBench.time = timed
assert launcher().threads == 3 and launcher().workers == 0
search.search_kernel(body_of("rows"), MACHINE, LIMITS)
print("workers", started[0])
"""
    environment = {**os.environ, "SVOD_THREADS": "3", "SVOD_TUNED": "0"}
    run = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "workers 2", run.stderr


@pytest.mark.row("S178")
def test_the_limit_of_the_environment_reaches_the_workers(monkeypatch):
    limits = []

    def compile_all(self, jobs, seconds):
        limits.append(seconds)
        return [Drop("compile_timeout")] * len(jobs)

    monkeypatch.setattr(WorkerPool, "compile_all", compile_all)
    monkeypatch.setenv("BEAM_TIMEOUT_SEC", "2.75")
    searched = PrepareConfig(OptimizerConfig(Strategy.BEAM, width=1, seconds=1.0))
    with knobs.scope(TUNED=0), pytest.raises(svod.errors.SvodError, match="compile_timeout"):
        (Tensor(np.ones(178, np.float32)).realize() * 178).prepare(config=searched)
    assert set(limits) == {2.75}


@pytest.mark.row("S184")
def test_lines_about_dropped_candidates_come_from_a_real_search(monkeypatch, capsys):
    """The limit on operations drops all but the plainest; without the knob nothing is printed."""
    monkeypatch.setenv("BEAM_UOPS_MAX", "60")
    for value, expected in ((None, False), ("1", True)):
        monkeypatch.delenv("BEAM_LOG_SURPASS_MAX", raising=False)
        if value is not None:
            monkeypatch.setenv("BEAM_LOG_SURPASS_MAX", value)
        config = BeamConfig.from_environment(1, 2.0)
        assert config.max_uops == 60
        kernel = loops_of(body_of("matmul"))
        with WorkerPool(1) as pool:
            bench = bench_of(body_of("matmul"), pool, config)
            wide = candidates(kernel, [(Opt("UPCAST", 0, 4), Opt("LANE", 1, 16))])
            found = beam._Search(kernel, MACHINE, config, bench, lambda: 0.0)
            assert list(found._measured(wide)) == []
        lines = capsys.readouterr().err.splitlines()
        assert bool(lines) is expected
        if expected:
            (line,) = lines
            assert line.startswith("[BEAM drop] too_many_uops: linear=")
            assert line.endswith(f"opts=[{chain(wide[0].opts)}]")


@pytest.mark.row("S189")
def test_the_limit_counts_the_linear_program_and_not_the_graph():
    kernel = loops_of(body_of("matmul"))
    opts = (Opt("UPCAST", 0, 4), Opt("LANE", 1, 16))
    nodes = len(apply_opts(kernel, opts, MACHINE).toposort())
    with WorkerPool(1) as pool:
        bench = bench_of(body_of("matmul"), pool, BeamConfig(max_uops=nodes + 1))
        (found,) = bench.compile(candidates(kernel, [opts]))
        assert isinstance(found, Drop) and found.reason == "too_many_uops"
        roomy = bench_of(body_of("matmul"), pool, BeamConfig(max_uops=100 * nodes))
        assert not isinstance(roomy.compile(candidates(kernel, [opts]))[0], Drop)


@pytest.mark.row("S193", "S194")
def test_candidates_are_launched_on_shrunk_grids(monkeypatch):
    monkeypatch.setattr("svod.optimize.beam.MAX_TEST_GLOBAL_SIZE", 64)
    with WorkerPool(1) as pool:
        bench = bench_of(body_of("matmul"), pool)
        real = search.resolve_launch_dims

        def large(*given):
            found = real(*given)
            return found._replace(global_size=(4, 8, 256))

        monkeypatch.setattr(search, "resolve_launch_dims", large)
        (program,) = bench.compile(candidates(loops_of(body_of("matmul")), [()]))
    assert program.factor == 16
    (launched,) = program.plan.prepared_kernels()
    sizes = [int(size.arg) for size in launched.kernel.global_size]
    assert np.prod(sizes) * program.factor == 4 * 8 * 256


# -- programs and plans --------------------------------------------------------------------------


@pytest.mark.row("S244")
@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_a_program_may_be_entered_by_several_threads(device):
    """Each thread has memory of its own; nothing may pass between them."""
    x = Tensor(np.zeros(64, np.float32), device=device).realize()
    (kernel,) = (x + 1).prepare().kernels()
    problems = []

    def work(number):
        out = Buffer.new(device, 64, dt.float32).allocate()
        given = Buffer.new(device, 64, dt.float32).allocate()
        for turn in range(200):
            given.numpy()[:] = number * 1000 + turn
            kernel.program([out.address, given.address], [], (1, 1, 1), None)
            if not (out.numpy() == number * 1000 + turn + 1).all():
                problems.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.row("T18")
def test_a_prepared_sum_is_safe_beside_others_and_is_computed_by_every_run():
    x = Tensor(np.array([1, 2, 3], np.float32)).realize()
    total = x + Tensor(np.array([4, 5, 6], np.float32)).realize()
    plan = total.prepare()
    assert [kernel.host_parallel_safe for kernel in plan.kernels()] == [True]
    for _ in range(2):
        plan.output_buffer().copyin(np.zeros(3, np.float32))
        plan.execute()
        assert total.numpy().tolist() == [5, 7, 9]


@pytest.mark.row("T19")
def test_runs_of_a_prepared_plan_leave_nothing_behind():
    x = Tensor(np.ones((32, 32), np.float32)).realize()
    total = (x @ x).softmax(1).sum()
    plan = total.prepare()
    plan.execute()

    def held():
        gc.collect()
        allocator = get_device("CPU").allocator
        found = plan.ast_to_buffer_map()
        return (
            len(tensor_registry.live_tensors()),
            allocator.counters.live,
            len(found),
            len(plan.buffers()),
        )

    before = held()
    for _ in range(100):
        plan.execute()
    assert held() == before
