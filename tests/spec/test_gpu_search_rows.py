"""The search for forms of GPU kernels, on a GPU that only takes notes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import svod
from svod.base.knobs import knobs
from svod.device.cuda.compiler import CudaCompiler, CudaRenderer
from svod.device.cuda.driver import DriverFault, GpuFacts
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import UOp, const, make
from svod.optimize.beam import BeamConfig
from svod.optimize.gpu_machine import GpuMachine
from svod.runtime import gpu_search
from svod.runtime.gpu_search import GpuSearch, search_on_gpu
from svod.runtime.search_pool import Job, WorkerPool
from tests.optimize.kernels import floats
from tests.schedule.graphs import bodies

L2 = 1 << 20
HANGS = """
import sys, time
from svod.runtime.search_worker import read_frame, write_frame
write_frame(sys.stdout.buffer, {"ready": True})
read_frame(sys.stdin.buffer)
time.sleep(600)
"""


class Gpu:
    """A device, its context and its driver: launches are noted and take as long as it is told."""

    def __init__(self, milliseconds: Callable[[int, Any], float]) -> None:
        self.facts = GpuFacts("notes", (9, 0), 132, 1 << 30, L2, 227 << 10, 13000)
        self.stream = 7
        self.milliseconds = milliseconds
        self.notes: list[tuple[Any, ...]] = []
        self.held: dict[int, int] = {}  # bytes by address
        self.number = 0
        self.renderer = CudaRenderer(GpuMachine())
        self.device: Any = SimpleNamespace(
            name="CUDA", renderer=self.renderer, compiler=CudaCompiler("sm_90a"), runtime=self.load
        )

    def use(self) -> Gpu:
        return self

    def handle(self, name: str, *arguments: Any) -> int:
        self.number += 1
        return self.number

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuMemAllocAsync":
            address, nbytes, _ = arguments
            address._obj.value = 4096 * (1 + len(self.held)) << 12
            self.held[address._obj.value] = nbytes
        elif name == "cuMemFreeAsync":
            del self.held[arguments[0]]
        self.notes.append((name, *arguments))

    def elapsed_ms(self, start: int, stop: int) -> float:
        program, grid = self.launched
        return self.milliseconds(program, grid)

    def load(self, compiled: Any) -> Any:
        assert b".entry" in compiled.bytes
        self.number += 1
        program = self.number

        def launch(buffers: Any, vals: Any, grid: Any, block: Any) -> None:
            self.launched = (program, grid)
            self.notes.append(("launch", program, list(buffers), list(vals), grid, block))

        return launch

    @property
    def launches(self) -> list[tuple[Any, ...]]:
        return [note for note in self.notes if note[0] == "launch"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_search, "WARM_SECONDS", 0.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as workers:
        yield workers


def alike(program: int, grid: Any) -> float:
    return 1.0


def search(gpu: Gpu, body: UOp, pool: WorkerPool, **given: Any) -> GpuMachine:
    fixed = given.pop("fixed", {})
    owner: Any = gpu
    return GpuSearch(body, gpu.device, owner, pool, BeamConfig(**given), fixed).run()


def body_of_sum() -> UOp:
    (body,) = bodies(floats(300, 512) * 2.5 + floats(300, 512))
    return body


def param(slot: int) -> UOp:
    return make(O.PARAM, dt.float32, (), ParamArg(slot, (4096,)))


@pytest.mark.row("Q1")
def test_arguments_are_bound_as_the_program_names_them(pool: WorkerPool) -> None:
    truth = make(
        O.EXPAND, dt.bool_, (make(O.RESHAPE, dt.bool_, (const(True, dt.bool_),), (1,)),), (4096,)
    )
    value = make(O.WHERE, dt.float32, (truth, param(2), param(1)))
    body = make(O.SINK, dt.void, (make(O.STORE, dt.void, (param(0), value)),))
    gpu = Gpu(alike)
    search(gpu, body, pool)
    addresses = [note[1]._obj.value for note in gpu.notes if note[0] == "cuMemAllocAsync"]
    assert len(addresses) == 4, "three arguments, and memory to clear the cache with"
    assert gpu.launches
    assert all(launch[2] == [addresses[0], addresses[2]] for launch in gpu.launches)
    assert gpu.held == {}


@pytest.mark.row("Q18", "S181")
def test_a_compile_that_hangs_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu(alike)
    start = time.monotonic()
    with WorkerPool(4, (sys.executable, "-c", HANGS)) as hanging:
        found = search(gpu, body_of_sum(), hanging, compile_seconds=0.2, log_drops=True)
        assert hanging.ended >= 3
    assert time.monotonic() - start < 30
    assert found is not None and found == gpu.renderer.machine
    assert gpu.launches == [] and gpu.held == {}
    assert "[BEAM drop] compile_timeout opts=[block=256" in capfd.readouterr().err


@pytest.mark.row("Q18")
def test_forms_are_compiled_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("compiled in the process that searches")

    monkeypatch.setattr("svod.device.cuda.compiler.emit_ptx", refuse)
    gpu = Gpu(alike)
    with WorkerPool(1) as workers:
        search(gpu, body_of_sum(), workers)
    assert len(gpu.launches) > 3


def test_a_module_that_llvm_refuses_is_dropped(pool: WorkerPool) -> None:
    (found,) = pool.compile_all([Job("k", "define void @k( {", 0, "sm_90a")], 60.0)
    assert getattr(found, "reason", "") == "compile_err"


@pytest.mark.row("S191", "Q3")
@pytest.mark.parametrize("fixed, value", [({}, 2500), ({"n": 77, "other": 3}, 77)])
def test_variables_are_timed_at_fixed_values_or_in_the_middle(
    fixed: dict[str, int], value: int, pool: WorkerPool
) -> None:
    n = svod.Variable("n", 1, 5000)
    (body,) = bodies((floats(5000)[: n.bind(10)] * 3.5).contiguous())
    gpu = Gpu(alike)
    search(gpu, body, pool, fixed=fixed)
    assert {tuple(launch[3]) for launch in gpu.launches} == {(value,)}


@pytest.mark.row("S193", "S194")
def test_large_grids_are_shrunk_and_their_times_scaled(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual launch is twice as large as what is timed, that of larger blocks is not."""
    whole: list[int] = []
    real = gpu_search.shrunk_grid

    def seen(grid: Any) -> Any:
        whole.append(grid[0] * grid[1] * grid[2])
        return real(grid)

    monkeypatch.setattr(gpu_search, "shrunk_grid", seen)
    big = [make(O.PARAM, dt.float32, (), ParamArg(slot, (1 << 27,))) for slot in range(2)]
    value = make(O.SQRT, dt.float32, (big[1],))
    body = make(O.SINK, dt.void, (make(O.STORE, dt.void, (big[0], value)),))
    gpu = Gpu(alike)
    found = search(gpu, body, pool)
    assert max(whole) > 65536
    for launch in gpu.launches:
        grid = launch[4]
        assert grid[0] * grid[1] * grid[2] <= 65536
    assert found.block == 512


@pytest.mark.row("S195")
def test_a_form_three_times_as_slow_runs_once(pool: WorkerPool) -> None:
    gpu = Gpu(lambda program, grid: 1.0 if program == gpu.launches[0][1] else 3.5)
    found = search(gpu, body_of_sum(), pool)
    assert found == gpu.renderer.machine
    usual = gpu.launches[0][1]
    runs = [launch[1] for launch in gpu.launches]
    assert runs.count(usual) > gpu_search.ROUNDS
    assert all(runs.count(program) == 1 for program in set(runs) - {usual})


@pytest.mark.row("S196")
def test_the_cache_is_cleared_before_every_run(pool: WorkerPool) -> None:
    gpu = Gpu(alike)
    search(gpu, body_of_sum(), pool)
    steps = [
        note for note in gpu.notes if note[0] in ("launch", "cuMemsetD8Async", "cuEventRecord")
    ]
    places = [i for i, note in enumerate(steps) if note[0] == "launch"]
    assert len(places) > gpu_search.ROUNDS
    for place in places:
        before = [note[0] for note in steps[place - 2 : place + 2]]
        assert before == ["cuMemsetD8Async", "cuEventRecord", "launch", "cuEventRecord"]
        address, nbytes = steps[place - 2][1], steps[place - 2][3]
        assert nbytes >= 2 * L2 and address not in steps[place][2]


@pytest.mark.row("S192", "S184")
def test_a_form_that_cannot_be_launched_is_dropped(
    pool: WorkerPool, capsys: pytest.CaptureFixture[str]
) -> None:
    def time_of(program: int, grid: Any) -> float:
        if program != gpu.launches[0][1]:
            raise DriverFault("too many resources")
        return 1.0

    gpu = Gpu(time_of)
    assert search(gpu, body_of_sum(), pool, log_drops=True) == gpu.renderer.machine
    assert "[BEAM drop] runtime_err: too many resources opts=[block=128" in capsys.readouterr().err


def test_the_fastest_form_is_kept_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of the forms is the fastest; the next process takes it from the store."""
    gpu = Gpu(lambda program, grid: 0.5 if program == gpu.launches[0][1] + 2 else 1.0)
    monkeypatch.setattr(gpu_search, "context", lambda number: gpu)
    body = body_of_sum()
    with knobs.scope(cache_dir=str(tmp_path)):
        search_on_gpu([body, body], gpu.device, None, BeamConfig())
        found = gpu.renderer.chosen[body.content_hash]
        assert found != gpu.renderer.machine
        count = len(gpu.launches)
        gpu.renderer.chosen.clear()
        search_on_gpu([body], gpu.device, None, BeamConfig())
        assert gpu.renderer.chosen[body.content_hash] == found
        assert len(gpu.launches) == count
