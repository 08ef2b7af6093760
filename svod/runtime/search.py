"""Searching for the loops of kernels: compiled by worker processes, timed here on scratch memory.

In: kernel bodies, and values of variables where a schedule fixes them. Out: the loops of each.
Candidates never see a buffer of the user. They are bound and launched by the code that makes plans,
and what is found is kept in the tuned store, so that the next process does not search again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from svod.base.errors import SvodError
from svod.base.knobs import knobs
from svod.base.progress import step
from svod.codegen.choice import Chosen, plainer
from svod.codegen.compile import compacted
from svod.codegen.naming import kernel_name
from svod.codegen.plainer import may_fall_back
from svod.codegen.targets.cpu import plain_loops
from svod.device.buffer import Buffer
from svod.device.cpu.compiler import CpuProgram, load_image, object_for
from svod.device.launch import concrete_size, resolve_launch_dims
from svod.device.spec import CORE_VARIABLE, derive_metadata
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp, elements
from svod.ir.text import dump
from svod.optimize.actions import OptimizeError
from svod.optimize.beam import (
    BeamConfig,
    Candidate,
    Drop,
    SearchResult,
    beam_search,
    shrunk_grid,
)
from svod.optimize.machine import Machine
from svod.optimize.tuned import Entry, tuned_store
from svod.runtime.assemble import plan_of_kernels
from svod.runtime.config import PrepareConfig
from svod.runtime.instantiate import ScheduleItem, ScheduleResult
from svod.runtime.native import RecordArray, launcher
from svod.runtime.ops import CompiledKernel
from svod.runtime.plan import ExecutionPlan
from svod.runtime.search_pool import Job, WorkerPool
from svod.runtime.tuning import tuning_identity

MOST_RUNS = 20
RUN_SECONDS = 0.03  # of timing one candidate, once it has run twice
COMPARED_SECONDS = 1.0
SCRATCH_SEED = 7
NOOP = """define void @svod_noop(ptr %0, ptr %1, i64 %2) {
  ret void
}
"""

searches = {"done": 0}  # how many searches this process has made


def searched_loops(
    bodies: Sequence[UOp],
    machine: Machine,
    config: BeamConfig,
    values: Mapping[UOp, Mapping[str, int]] | None = None,
) -> dict[UOp, Chosen]:
    """The loops of each body, searched for one after the other."""
    given = values or {}
    found = {}
    with WorkerPool() as pool:
        for number, body in enumerate(bodies, 1):
            step(f"loops of {kernel_name(body)}", number, len(bodies))
            try:
                result = search_kernel(body, machine, config, given.get(body), pool)
            except OptimizeError as problem:
                if not may_fall_back(problem):
                    raise
                found[body] = next(plainer(body, machine, problem))
                continue
            by = "heuristics" if result.is_heuristic else "tuned"
            found[body] = Chosen(result.kernel, tuple(result.opts), by)
    return found


def search_kernel(
    body: UOp,
    machine: Machine,
    config: BeamConfig,
    fixed: Mapping[str, int] | None = None,
    pool: WorkerPool | None = None,
) -> SearchResult:
    """Search for the loops of one kernel and keep what was found."""
    kernel = plain_loops(body, machine)
    name = kernel_name(body)
    if pool is None:
        with WorkerPool() as own:
            return search_kernel(body, machine, config, fixed, own)
    try:
        warm_pool()
        bench = CandidateBench(body, kernel, config, pool, fixed or {})
        result = beam_search(kernel, machine, config, bench)
    except SvodError as problem:
        if isinstance(problem, OptimizeError):
            raise
        raise OptimizeError(f"the search for {name} failed: {problem}") from problem
    searches["done"] += 1
    if knobs.tuned:
        entry = Entry(result.opts, result.seconds, config.width, result.is_heuristic, name)
        tuned_store().put(body.content_hash, tuning_identity(machine), entry)
    return result


def warm_pool() -> None:
    """Start the threads that run kernels: the first candidate must not pay for it."""
    image = load_image(object_for(NOOP))
    records = RecordArray()
    records.append(image.symbol("svod_noop"), (), (), max(1, launcher().threads))
    launcher().run(records)


# -- timing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launchable:
    """A candidate as a plan over scratch memory."""

    plan: ExecutionPlan
    factor: float  # how much larger the real launch is


class CandidateBench:
    """Compiles candidates in a pool and times them on memory of its own."""

    def __init__(
        self,
        body: UOp,
        kernel: UOp,
        config: BeamConfig,
        pool: WorkerPool,
        fixed: Mapping[str, int],
    ) -> None:
        self.body, self.config, self.pool = body, config, pool
        self.name = kernel_name(body)
        self.variables = timing_variables(kernel)
        self.values = timing_values(self.variables, fixed)
        self.scratch = scratch_buffers(body)
        self.compiled: dict[str, Launchable | Drop] = {}  # by the content of the loops
        self.compiles = 0

    def compile(self, candidates: Sequence[Candidate]) -> list[Launchable | Drop]:
        """What can be timed, or why not; equal loops are compiled once in a search."""
        wanted = {c.key: c for c in candidates if c.key not in self.compiled}
        self.compiles += len(wanted)
        jobs, parts = [], []
        for candidate in wanted.values():
            sink, positions = compacted(candidate.kernel)
            symbol = f"{self.name}_{sink.content_hash[:10]}"
            jobs.append(Job(symbol, dump(sink), self.config.max_uops))
            parts.append((sink, positions, symbol))
        made = self.pool.compile_all(jobs, self.config.compile_seconds)
        for key, part, binary in zip(wanted, parts, made, strict=True):
            found = binary if isinstance(binary, Drop) else self._loaded(*part, binary)
            self.compiled[key] = found
        return [self.compiled[c.key] for c in candidates]

    def time(self, program: Launchable, limit: float | None) -> float | Drop:
        """The least time of some runs, scaled to the whole launch.

        Nothing happens between runs: a CPU keeps in its caches what the next run finds there.
        """
        stop = float("inf") if limit is None else limit / program.factor
        best, spent, runs = float("inf"), 0.0, 0
        while runs < MOST_RUNS and (runs < 3 or spent < RUN_SECONDS):
            try:
                seconds = _run(program.plan)
            except Exception:
                return Drop("")
            best, spent, runs = min(best, seconds), spent + seconds, runs + 1
            if seconds > stop:
                break
        return best * program.factor

    def compare(self, first: Launchable, second: Launchable) -> tuple[float, float]:
        """The least times of both, measured in turns so that both see the same machine."""
        best = [float("inf"), float("inf")]
        spent, runs = 0.0, 0
        while runs < 4 or (runs < 200 and spent < COMPARED_SECONDS):
            for place, each in enumerate((first, second)):
                seconds = _run(each.plan)
                best[place] = min(best[place], seconds * each.factor)
                spent += seconds
            runs += 1
        return best[0], best[1]

    def _loaded(
        self, sink: UOp, positions: tuple[int, ...], symbol: str, binary: bytes
    ) -> Launchable | Drop:
        try:
            image = load_image(binary)
            program = CpuProgram(symbol, image.symbol(symbol), image)
        except Exception as problem:
            return Drop("runtime_err", str(problem))
        known = derive_metadata(sink)
        kernel = CompiledKernel(
            program=program,
            device="CPU",
            source="",
            entry_point=self.name,
            var_names=known.var_names,
            globals=tuple([positions[slot] for slot in known.globals]),
            outs=tuple([positions[slot] for slot in known.outs]),
            ins=tuple([positions[slot] for slot in known.ins]),
            global_size=known.global_size,
            local_size=known.local_size,
            address=program.address,
        )
        try:
            return self._launchable(kernel)
        except Exception:
            return Drop("")

    def _launchable(self, kernel: CompiledKernel) -> Launchable:
        values = {CORE_VARIABLE: 0, **self.values}
        dims = resolve_launch_dims(kernel.global_size, kernel.local_size, values)
        grid, factor = shrunk_grid(dims.global_size)
        if factor > 1:
            kernel = replace(kernel, global_size=concrete_size((grid[0], grid[1], grid[2])))
        ids = list(range(len(self.scratch)))
        item = ScheduleItem(
            self.body, self.body, self.scratch, ids, self.values, variables=self.variables
        )
        schedule = ScheduleResult([item], [0], dict(zip(ids, self.scratch, strict=True)))
        return Launchable(plan_of_kernels(schedule, [kernel], PrepareConfig()), factor)


def _run(plan: ExecutionPlan) -> float:
    start = time.perf_counter()
    plan.execute()
    return time.perf_counter() - start


def timing_variables(kernel: UOp) -> tuple[VarArg, ...]:
    """The variables of a kernel's loops, one per name."""
    found = {n.arg.name: n.arg for n in kernel.toposort() if n.op == O.DEFINE_VAR}
    return tuple(found.values())


def timing_values(variables: Sequence[VarArg], fixed: Mapping[str, int]) -> dict[str, int]:
    """Values to time with: those a schedule fixes, else the middle of the bounds."""
    values = {v.name: (v.lo + v.hi) // 2 for v in variables if v.name != CORE_VARIABLE}
    return {**values, **{name: fixed[name] for name in values if name in fixed}}


def scratch_buffers(body: UOp) -> list[Buffer]:
    """Memory for every argument, with numbers in it that are safe as indices: 0 <= x < 1."""
    nodes = [n for n in body.toposort() if n.op == O.PARAM and not n.src]
    slots = {n.arg.slot: n for n in nodes}
    random = np.random.default_rng(SCRATCH_SEED)
    found = []
    for slot in range(max(slots, default=-1) + 1):
        node = slots.get(slot)
        if node is None:  # an argument that the body does not mention
            found.append(Buffer.new("CPU", 1, dt.uint8).allocate())
            continue
        buffer = Buffer.new("CPU", elements(node.arg.shape), node.dtype).allocate()
        if node.dtype is dt.float32 or node.dtype is dt.float64:
            buffer.copyin(random.random(buffer.size).astype(node.dtype.name))
        else:
            buffer.storage.host_bytes()[:] = 0
        found.append(buffer)
    return found
