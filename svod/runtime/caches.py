"""Compiled kernels: made once per distinct kernel, configuration and compiler; bounded, counted.

In: kernel bodies and the device they run on. Out: a compiled kernel for each. Two caches stand
behind it: optimised kernels by body and configuration, compiled programs by the loops that came
out, since different bodies may become the same program. What the CPU lacks is compiled together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from svod.base.errors import CompileError, CreateProgramError, DeviceError
from svod.base.knobs import knobs
from svod.base.threads import thread_budget
from svod.device.device import Device
from svod.device.names import base_key
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec, ProgramSpec
from svod.ir.node import UOp
from svod.ir.rewrite import rewrite
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime import plainer
from svod.runtime.chosen import (
    PLAINER,
    Chosen,
    Values,
    chosen_loops,
    compilable,
    search_limits,
)
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.ops import CompiledKernel
from svod.runtime.programs import (
    ProgramStage,
    brief,
    checked_spec,
    compacted,
    compile_program,
    complete,
    joined_modules,
    load,
    load_error,
    program_key,
    program_of,
)
from svod.schedule.cache import Cache

PROGRAM_ENTRIES = 8192  # loaded code; twice what the optimised kernels may hold by default

# body, device kind, compiler, configuration
KernelKey = tuple[str, str, str, str]
kernels: Cache[KernelKey, CompiledKernel] = Cache("kernels", lambda: knobs.opt_cache_max)
ProgramKey = tuple[str, str]  # loops, compiler
programs: Cache[ProgramKey, CompiledKernel] = Cache("programs", lambda: PROGRAM_ENTRIES)


def compiled_kernels(
    bodies: Sequence[UOp],
    device: str,
    config: PrepareConfig | None = None,
    values: Values | None = None,
) -> dict[UOp, CompiledKernel]:
    """A compiled kernel for each body; the missing ones are made together.

    ``values`` of variables that a schedule fixes are what a search times candidates with.
    """
    config = config or PrepareConfig.from_environment()
    where = config.resolve_device(device)
    if not where.runs_programs:
        raise DeviceError(f"{where.name} holds memory only and runs no programs: copy to CPU")
    compiler, options = where.compiler.cache_key(), config.optimizer.fingerprint()
    kind = base_key(where.name)
    found: dict[UOp, CompiledKernel] = {}
    missing: dict[UOp, KernelKey] = {}
    for body in dict.fromkeys(bodies):
        key = (body.content_hash, kind, compiler, options)
        kernel = kernels.get(key)
        if kernel is None:
            missing[body] = key
        else:
            found[body] = kernel
    if missing:
        made = _make(list(missing), where, config.optimizer, values)
        for (body, key), kernel in zip(missing.items(), made, strict=True):
            found[body] = kernels.insert(key, kernel)
    return found


def clear_kernel_cache() -> None:
    """Forget every compiled kernel; plans keep theirs."""
    kernels.clear()
    programs.clear()


def optimizer_machine(device: str) -> Machine | GpuMachine:
    """What the optimizer must know of a device; a kind without facts of its own is a CPU."""
    from svod.device.cpu.host import host_machine

    if base_key(device) == "CUDA":
        from svod.device.cuda.compiler import CudaRenderer

        renderer = get_device(device).renderer
        assert isinstance(renderer, CudaRenderer)
        return renderer.machine
    return host_machine()


def _cpu_machine(device: str) -> Machine:
    found = optimizer_machine(device)
    assert isinstance(found, Machine)
    return found


# -- making kernels -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    """A kernel to make: its program at the first stage, and what a profile wants to know."""

    program: UOp
    name: str  # for people
    positions: tuple[int, ...]  # which argument each slot of the program is
    flops: int | None = None
    moved: int | None = None
    choice: tuple[tuple[Opt, ...], str] | None = None  # opts, and whose they are
    body: UOp | None = None  # what the loops were chosen for, where others may be taken
    source: UOp | None = None  # the program with its source, where that is made already


def _make(
    bodies: list[UOp], device: Device, config: OptimizerConfig, values: Values | None
) -> list[CompiledKernel]:
    from svod.device.cpu.compiler import CpuRenderer

    on_cpu = isinstance(device.renderer, CpuRenderer)
    compiler = device.compiler.cache_key()
    if on_cpu:
        requests = _cpu_requests(bodies, device, config, values)
    else:
        if config.strategy is Strategy.BEAM and base_key(device.name) == "CUDA":
            from svod.runtime.gpu_search import search_on_gpu

            search_on_gpu(bodies, device, values, search_limits(config))
        requests = [_request(body, device) for body in bodies]
    if on_cpu:
        requests = _rendered(requests, device, compiler)
        try:
            return _made(bodies, requests, device, compiler, _compile_on_cpu)
        except CompileError as problem:
            if isinstance(problem, CreateProgramError) or not plainer.may_fall_back(problem):
                raise
            requests = _rendered(requests, device, compiler, emits=True)
            return _made(bodies, requests, device, compiler, _compile_on_cpu)
    return _made(bodies, requests, device, compiler, _compile_each)


def _made(
    bodies: list[UOp],
    requests: list[_Request],
    device: Device,
    compiler: str,
    compile_all: Callable[[list[_Request], Device], list[CompiledKernel]],
) -> list[CompiledKernel]:
    """The kernels of requests: known programs, and those that are missing compiled together."""
    choice = getattr(device.renderer, "choice_of", None)
    compiler = f"{base_key(device.name)} {compiler}"  # NULL and REF run other programs than the CPU
    keys = [
        (program_key(r.program), compiler if choice is None else f"{compiler} {choice(body)}")
        for body, r in zip(bodies, requests, strict=True)
    ]
    found = {key: programs.get(key) for key in dict.fromkeys(keys)}
    wanted = {k: r for k, r in zip(keys, requests, strict=True) if found[k] is None}
    if wanted:
        for key, made in zip(wanted, compile_all(list(wanted.values()), device), strict=True):
            found[key] = programs.insert(key, made)
    result = []
    for key, request in zip(keys, requests, strict=True):
        kernel = found[key]
        assert kernel is not None
        if request.choice is not None and request.choice[1].startswith(PLAINER):
            plainer.count(request.name, request.choice[1].removeprefix(PLAINER))
        result.append(_as_asked(kernel, request))
    return result


def _request(body: UOp, device: Device) -> _Request:
    """A kernel that its renderer turns into loops itself, with what it lacks taken apart."""
    name = _kernel_name(body)
    rules = device.renderer.decompositor()
    sink = body if rules is None else rewrite((body,), rules)[0]
    estimate = getattr(device.renderer, "work", None)
    flops, moved = estimate(body) if estimate is not None else (None, None)
    return _Request(program_of(sink, base_key(device.name), name), name, (), flops, moved)


def _cpu_requests(
    bodies: list[UOp], device: Device, config: OptimizerConfig, values: Values | None
) -> list[_Request]:
    from svod.device.cpu.compiler import load_program

    if config.strategy is Strategy.BEAM and device.runtime is not load_program:
        config = replace(config, strategy=Strategy.HEURISTIC)  # nothing runs that could be timed
    chosen = chosen_loops(bodies, _cpu_machine(device.name), config, values)
    return [_cpu_request(*pair, device) for pair in zip(bodies, chosen, strict=True)]


def _rendered(
    requests: list[_Request], device: Device, compiler: str, *, emits: bool = False
) -> list[_Request]:
    """Requests with their source, or with that of the first plainer loops that have one.

    Loops must not only have a source but compile where ``emits`` says so. Programs that are
    compiled already need neither.
    """
    from svod.device.cpu.compiler import object_for

    def attempt(request: _Request, body: UOp, first: Chosen, chosen: Chosen) -> _Request:
        found = request if chosen is first else _cpu_request(body, chosen, device)
        source = found.source or complete(found.program, device, ProgramStage.SOURCE)
        if emits:
            try:
                object_for(checked_spec(source).src)
            except CompileError as problem:
                text = f"{device.name} could not compile {found.name}: {problem}"
                raise CompileError(text) from problem
        return replace(found, source=source)

    machine = _cpu_machine(device.name)
    result: list[_Request] = []
    known: dict[ProgramKey, UOp | None] = {}
    for request in requests:
        key = (program_key(request.program), compiler)
        if key in programs or key in known:
            result.append(replace(request, source=known.get(key)))
            continue
        body = request.body
        assert body is not None and request.choice is not None
        first = Chosen(request.program.src[0], *request.choice)
        result.append(compilable(body, first, machine, partial(attempt, request, body, first)))
        known[(program_key(result[-1].program), compiler)] = result[-1].source
    return result


def _cpu_request(body: UOp, chosen: Chosen, device: Device) -> _Request:
    from svod.codegen.pipeline import work_of

    name, loops = _kernel_name(body), chosen.loops
    flops, moved = work_of(body, loops)
    rules = device.renderer.decompositor()
    if rules is not None:
        (loops,) = rewrite((loops,), rules)
    sink, positions = compacted(loops)
    symbol = f"{name}_{sink.content_hash[:10]}"
    program = program_of(sink, "CPU", symbol)
    choice = (chosen.opts, chosen.by)
    return _Request(program, name, positions, flops, moved, choice, body)


def _kernel_name(body: UOp) -> str:
    from svod.codegen.naming import kernel_name

    return kernel_name(body)


def _compile_on_cpu(requests: list[_Request], device: Device) -> list[CompiledKernel]:
    """All kernels as one module: one verification, one code generation, one object."""
    from svod.device.cpu.compiler import CpuProgram, load_image, load_program, object_for

    sources = [r.source or complete(r.program, device, ProgramStage.SOURCE) for r in requests]
    specs = [checked_spec(program) for program in sources]
    names = ", ".join([spec.name for spec in specs])
    try:
        binary = object_for(joined_modules([spec.src for spec in specs]))
    except Exception as problem:
        if len(requests) > 1:  # too much at once, or one of them is the fault
            half = len(requests) // 2
            parts = (requests[:half], requests[half:])
            return [kernel for part in parts for kernel in _compile_on_cpu(part, device)]
        raise CompileError(
            f"{device.name} could not compile {names}: {brief(problem)}"
        ) from problem
    if device.runtime is not load_program:  # NULL, for one, loads nothing
        compiled = [CompiledSpec.from_bytes(s.name, binary, s.ast) for s in specs]
        held = [load(c, device) for c in compiled]
        return [_record(*found, device) for found in zip(requests, specs, held, strict=True)]
    try:
        image = load_image(binary)
        loaded = [CpuProgram(s.name, image.symbol(s.name), image) for s in specs]
    except Exception as problem:
        raise load_error(device, names, problem) from problem
    return [
        _record(r, s, p, device, p.address) for r, s, p in zip(requests, specs, loaded, strict=True)
    ]


def _compile_each(requests: list[_Request], device: Device) -> list[CompiledKernel]:
    if len(requests) > 1 and base_key(device.name) == "CUDA":
        # The driver assembles while it loads, tenths of a second for a large kernel: it does so
        # while the next ones are compiled.
        with ThreadPoolExecutor(min(len(requests), thread_budget().threads)) as pool:
            made, loads = [], []
            for request in requests:
                made.append(_compiled(request, device))
                loads.append(pool.submit(load, made[-1][1], device))
            loaded = [future.result() for future in loads]
    else:
        made = [_compiled(request, device) for request in requests]
        loaded = [load(compiled, device) for _, compiled in made]
    return [
        _record(request, spec, program, device)
        for request, (spec, _), program in zip(requests, made, loaded, strict=True)
    ]


def _compiled(request: _Request, device: Device) -> tuple[ProgramSpec, CompiledSpec]:
    """A program for a device that chooses loops itself: plainer ones where those fail."""
    try:
        return compile_program(request.program, device)
    except Exception as problem:
        take_plainer = getattr(device.renderer, "take_plainer", None)
        if take_plainer is None or not plainer.may_fall_back(problem):
            raise
        if not take_plainer(request.program.src[0]):
            raise
        found = compile_program(request.program, device)
        plainer.count(request.name, plainer.reason_of(problem))
        return found


def _record(
    request: _Request, spec: ProgramSpec, program: object, device: Device, address: int = 0
) -> CompiledKernel:
    return CompiledKernel(
        program=program,  # type: ignore[arg-type]  # the two protocols differ in defaults only
        device=base_key(device.name),
        source=spec.src,
        entry_point=request.name,
        var_names=tuple(spec.var_names),
        globals=tuple(spec.globals),
        outs=tuple(spec.outs),
        ins=tuple(spec.ins),
        host_parallel_safe=is_host_parallel_safe(program, spec.src),
        global_size=spec.global_size,
        local_size=spec.local_size,
        address=address,
        bytes_moved=request.moved,
        flops=request.flops,
        choice=request.choice,
    )


def is_host_parallel_safe(program: object, source: str) -> bool:
    """Whether a kernel may run beside others: its program may be entered by several threads, and
    its code writes no memory but that of its arguments."""
    return bool(getattr(program, "is_reentrant", False)) and not _OWN_MEMORY.search(source)


# A variable of a module of LLVM IR, as against a constant.
_OWN_MEMORY = re.compile(r"^@\S+ = (?:[a-z_]+ )*global ", re.MULTILINE)


def _as_asked(kernel: CompiledKernel, request: _Request) -> CompiledKernel:
    """The kernel with its slots named by the positions of the call's arguments."""
    positions = request.positions
    if kernel.choice != request.choice:  # made for another body, which became the same loops
        kernel = replace(kernel, choice=request.choice)
    if not positions or positions == kernel.globals:
        return kernel
    return replace(
        kernel,
        globals=tuple([positions[slot] for slot in kernel.globals]),
        outs=tuple([positions[slot] for slot in kernel.outs]),
        ins=tuple([positions[slot] for slot in kernel.ins]),
    )
