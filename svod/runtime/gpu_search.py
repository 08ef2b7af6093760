"""BEAM on a GPU: every kernel is timed in a few forms, and the fastest is kept.

In: kernel bodies. Out: nothing; the renderer remembers what was chosen, and so does the object
store, under the kernel, the compiler and the GPU. Forms are compiled by worker processes within a
limit, and bound and launched as plans do it, on memory of their own. The clock is warmed first;
then all forms run in turn, round after round, each with a cold cache, and the best run of each
counts, so that a clock that drifts or a neighbour that interferes meets all of them alike.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_uint64
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from svod.base.errors import DeviceError
from svod.base.hashing import digest
from svod.base.log import debug
from svod.base.progress import step
from svod.base.timing import span
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import generate
from svod.codegen.targets.cuda import cuda_target
from svod.device.cpu.compiler import object_store
from svod.device.cuda.compiler import CudaCompiler, CudaRenderer, compiled_spec, spec_of
from svod.device.cuda.driver import Context, context
from svod.device.device import Program, Size3
from svod.device.launch import resolve_launch_dims
from svod.device.names import device_number
from svod.device.spec import ProgramSpec
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp
from svod.optimize.beam import EARLY_STOP, BeamConfig, Drop, say_drop, shrunk_grid
from svod.optimize.gpu_machine import GpuMachine
from svod.runtime.assemble import bind_arguments
from svod.runtime.instantiate import ScheduleItem
from svod.runtime.search import timing_values
from svod.runtime.search_pool import Job, WorkerPool

if TYPE_CHECKING:
    from svod.device.device import Device

WARM_SECONDS: Final = 0.05
ROUNDS: Final = 7
ROUND_SECONDS: Final = 2e-3  # of one form in one round, at least one run
MOST_RUNS: Final = 20  # of one form in one round
MARGIN: Final = 0.98  # another form must take less than this part of the usual one's time
AMOUNTS: Final = ("block", "row_vectors", "tile_columns")
FILL: Final = 0x3C  # a byte that makes ordinary numbers of floats


@dataclass(slots=True)
class _Form:
    """One way to run a kernel."""

    machine: GpuMachine
    program: Program
    arguments: list[int]  # addresses, as the program takes them
    values: list[int]
    grid: Size3
    block: Size3
    factor: float = 1.0  # how much larger the real launch is
    best: float = float("inf")  # milliseconds of the real launch


def search_on_gpu(
    bodies: Sequence[UOp],
    device: Device,
    values: Mapping[UOp, Mapping[str, int]] | None,
    config: BeamConfig,
) -> None:
    """Choose the form of every kernel that nothing was chosen for."""
    renderer = device.renderer
    assert isinstance(renderer, CudaRenderer)
    owner = context(device_number(device.name))
    store = object_store()
    with WorkerPool() as pool:
        wanted = dict.fromkeys(bodies)
        for number, body in enumerate(wanted, 1):
            step(f"forms of {kernel_name(body)}", number, len(wanted))
            if body.content_hash in renderer.chosen:
                continue
            compiler = device.compiler.cache_key()
            key = digest("gpu search", body.content_hash, compiler, owner.facts.name)
            known = store.get(key) if store is not None else None
            if known is not None:
                renderer.chosen[body.content_hash] = replace(renderer.machine, **json.loads(known))
                continue
            with span("search"):
                fixed = (values or {}).get(body, {})
                found = GpuSearch(body, device, owner, pool, config, fixed).run()
            renderer.chosen[body.content_hash] = found
            if store is not None:
                facts = asdict(found)
                store.put(key, json.dumps({name: facts[name] for name in AMOUNTS}).encode())


class GpuSearch:
    """The search for the form of one kernel."""

    def __init__(
        self,
        body: UOp,
        device: Device,
        owner: Context,
        pool: WorkerPool,
        config: BeamConfig,
        fixed: Mapping[str, int],
    ) -> None:
        assert isinstance(device.renderer, CudaRenderer)
        self.body, self.device, self.owner = body, device, owner
        self.machine = device.renderer.machine
        self.pool, self.config, self.fixed = pool, config, fixed

    def run(self) -> GpuMachine:
        """The machine with the amounts of the fastest form."""
        codes: dict[UOp, tuple[GpuMachine, ProgramSpec]] = {}
        for variant in (self.machine, *self.machine.variants()):
            code = generate(self.body, cuda_target(variant))
            if code.kernel not in codes:
                codes[code.kernel] = (variant, spec_of(code))
        if len(codes) == 1:
            return self.machine
        with _Memory(self.body, self.owner) as memory:
            forms = self._forms(list(codes.values()), memory)
            if len(forms) > 1:
                self._time(forms, memory)
        if not forms or forms[0].machine is not self.machine:
            return self.machine  # the usual form could not even be compiled: nothing to compare
        usual, fastest = forms[0], min(forms, key=lambda f: f.best)
        times = ", ".join([f"{f.best * 1e3:.1f}" for f in forms])
        debug(2, f"search: {next(iter(codes.values()))[1].name}: {times} us")
        return fastest.machine if fastest.best < MARGIN * usual.best else self.machine

    def _forms(
        self, codes: Sequence[tuple[GpuMachine, ProgramSpec]], memory: _Memory
    ) -> list[_Form]:
        """What can be run, compiled side by side and each within its time."""
        compiler = self.device.compiler
        assert isinstance(compiler, CudaCompiler)
        number = device_number(self.device.name)
        jobs = [Job(spec.name, spec.src, 0, compiler.arch, number) for _, spec in codes]
        made = self.pool.compile_all(jobs, self.config.compile_seconds)
        found = []
        for (variant, spec), ptx in zip(codes, made, strict=True):
            if isinstance(ptx, Drop):
                self._drop(ptx, variant)
                continue
            try:
                found.append(self._form(variant, spec, ptx, memory))
            except DeviceError as problem:
                self._drop(Drop("runtime_err", str(problem)), variant)
        return found

    def _form(self, variant: GpuMachine, spec: ProgramSpec, ptx: bytes, memory: _Memory) -> _Form:
        program = self.device.runtime(compiled_spec(spec, ptx))
        variables = [VarArg(v.name, v.min, v.max) for v in spec.vars]
        given = timing_values(variables, self.fixed)
        dims = resolve_launch_dims(spec.global_size, spec.local_size, given)
        grid, factor = shrunk_grid(dims.global_size)
        item = ScheduleItem(self.body, self.body, [], list(range(len(memory.addresses))), given)
        return _Form(
            variant, program, bind_arguments(item, memory.addresses, spec.globals),
            [given[name] for name in spec.var_names], (grid[0], grid[1], grid[2]),
            dims.local_size or (1, 1, 1), factor,
        )  # fmt: skip

    def _time(self, forms: list[_Form], memory: _Memory) -> None:
        """The best time of one run of each form; what fails or is hopeless runs once."""
        driver = self.owner.use()
        events = [driver.handle("cuEventCreate", 0) for _ in range(2)]

        def run(form: _Form) -> float:
            memory.clear_cache()
            driver.call("cuEventRecord", events[0], self.owner.stream)
            form.program(form.arguments, form.values, form.grid, form.block)
            driver.call("cuEventRecord", events[1], self.owner.stream)
            driver.call("cuEventSynchronize", events[1])
            form.best = min(form.best, driver.elapsed_ms(*events) * form.factor)
            return form.best

        deadline = time.perf_counter() + WARM_SECONDS
        run(forms[0])
        while time.perf_counter() < deadline:
            run(forms[0])
        racing = [forms[0]]
        for form in forms[1:]:
            try:
                if run(form) <= EARLY_STOP * min([f.best for f in racing]):
                    racing.append(form)
            except DeviceError as problem:
                self._drop(Drop("runtime_err", str(problem)), form.machine)
        once = min([f.best / f.factor for f in racing])
        count = max(1, min(MOST_RUNS, int(ROUND_SECONDS * 1e3 / max(once, 1e-3))))
        for _ in range(ROUNDS):
            for form in racing:
                for _ in range(count):
                    run(form)
        for event in events:
            driver.call("cuEventDestroy_v2", event)

    def _drop(self, drop: Drop, variant: GpuMachine) -> None:
        if self.config.log_drops:
            say_drop(drop, ", ".join([f"{name}={getattr(variant, name)}" for name in AMOUNTS]))


class _Memory:
    """Memory for the arguments of a kernel while it is timed, and for clearing the cache."""

    def __init__(self, body: UOp, owner: Context) -> None:
        self.context = owner
        self.sizes: dict[int, int] = {}  # by the position among the arguments of the call
        self.floats: set[int] = set()
        for node in body.toposort():
            if node.op == O.PARAM and not node.src:
                nbytes = node.dtype.itemsize
                for n in node.arg.shape:
                    nbytes *= n
                self.sizes[node.arg.slot] = max(nbytes, self.sizes.get(node.arg.slot, 0))
                if node.dtype.kind == "f":
                    self.floats.add(node.arg.slot)
        self.addresses: list[int] = []  # by position too
        self.cache_bytes = 2 * owner.facts.l2_bytes
        self.cache = 0

    def __enter__(self) -> _Memory:
        for position in range(max(self.sizes, default=-1) + 1):
            fill = FILL if position in self.floats else 0
            self.addresses.append(self._filled(self.sizes.get(position, 0), fill))
        if self.cache_bytes:
            self.cache = self._filled(self.cache_bytes, 0)
        return self

    def __exit__(self, *problem: object) -> None:
        for address in [*self.addresses, *([self.cache] if self.cache else [])]:
            self.context.use().call("cuMemFreeAsync", address, self.context.stream)

    def clear_cache(self) -> None:
        """Leave nothing of the arguments in the cache of the GPU: every run meets the same."""
        if self.cache:
            self._fill(self.cache, self.cache_bytes, 0)

    def _filled(self, nbytes: int, fill: int) -> int:
        address = c_uint64()
        driver, stream = self.context.use(), self.context.stream
        driver.call("cuMemAllocAsync", byref(address), max(nbytes, 16), stream)
        self._fill(int(address.value), max(nbytes, 16), fill)
        return int(address.value)

    def _fill(self, address: int, nbytes: int, fill: int) -> None:
        value = ctypes.c_ubyte(fill)
        self.context.use().call("cuMemsetD8Async", address, value, nbytes, self.context.stream)
