"""Compiled kernels: made once per distinct kernel, configuration and compiler; bounded, counted.

In: kernel bodies and the device they run on. Out: a compiled kernel for each. Two caches stand
behind it: optimised kernels by body and configuration, compiled programs by the loops that came
out, since different bodies may become the same program. What the CPU lacks is compiled together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from svod.base.errors import DeviceError
from svod.base.knobs import knobs
from svod.base.progress import step
from svod.base.threads import thread_budget
from svod.codegen import plainer
from svod.codegen.choice import PLAINER, Chosen
from svod.codegen.compile import Compiled, Kernel, compile, kernel_of
from svod.codegen.naming import kernel_name
from svod.codegen.target import Target
from svod.device.device import Device, Program
from svod.device.names import base_key
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec, ProgramSpec
from svod.ir.node import UOp
from svod.ir.rewrite import rewrite
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime.chosen import Values, chosen_loops, search_limits
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.ops import CompiledKernel
from svod.runtime.programs import (
    compile_program,
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


def optimizer_machine(device: str, config: PrepareConfig | None = None) -> Machine | GpuMachine:
    """What the optimizer must know of a device; one without facts of its own is a CPU."""
    from svod.device.cpu.host import host_machine

    where = get_device(device) if config is None else config.resolve_device(device)
    facts = where.target or where.planning
    return host_machine() if facts is None else facts.machine


# -- making kernels -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    """A kernel that its renderer turns into loops itself, and what a profile wants to know."""

    program: UOp
    name: str  # for people
    flops: int | None = None
    moved: int | None = None


def _make(
    bodies: list[UOp], device: Device, config: OptimizerConfig, values: Values | None
) -> list[CompiledKernel]:
    compiler = f"{base_key(device.name)} {device.compiler.cache_key()}"  # NULL runs other programs
    target = device.target
    if target is not None:
        chosen = chosen_loops(bodies, target.machine, _timed(config, device), values)
        return _made_for(target, bodies, chosen, device, compiler)
    if config.strategy is Strategy.BEAM and device.planning is not None:
        from svod.runtime.gpu_search import search_on_gpu

        search_on_gpu(bodies, device, values, search_limits(config))
    return _made_each(bodies, [_request(body, device) for body in bodies], device, compiler)


def _timed(config: OptimizerConfig, device: Device) -> OptimizerConfig:
    """The configuration without a search where nothing runs that could be timed."""
    if config.strategy is Strategy.BEAM and device.toolchain.load_module is None:
        return replace(config, strategy=Strategy.HEURISTIC)
    return config


# -- kernels that the compiler makes for a target -------------------------------------------------


def _made_for(
    target: Target[Any], bodies: list[UOp], chosen: list[Chosen], device: Device, compiler: str
) -> list[CompiledKernel]:
    """The kernels of bodies: known programs, and those that are missing compiled together."""
    rules = device.renderer.decompositor()
    wanted = [kernel_of(*pair, rules) for pair in zip(bodies, chosen, strict=True)]
    known = {key: programs.get((key, compiler)) for key in dict.fromkeys([k.key for k in wanted])}
    missing = {k.key: k for k in wanted if known[k.key] is None}
    made: dict[str, tuple[Kernel, CompiledKernel]] = {}
    if missing:
        compiled = compile(list(missing.values()), target, device.name, rules)
        loaded = _loaded(compiled, device)
        for key, each, program in zip(missing, compiled, loaded, strict=True):
            work = (each.kernel.flops, each.kernel.moved)
            record = _record(_spec(each, device), each.kernel.name, program, device, work)
            record.choice = _choice(each.kernel)
            made[key] = (each.kernel, programs.insert((each.kernel.key, compiler), record))
    result = []
    for kernel in wanted:
        taken, found = made.get(kernel.key) or (kernel, known[kernel.key])
        assert found is not None
        if taken.chosen.by.startswith(PLAINER):
            plainer.count(taken.name, taken.chosen.by.removeprefix(PLAINER))
        # The same program may read other arguments of this body than of the one it was made for.
        own = dict(zip(missing.get(kernel.key, kernel).positions, kernel.positions, strict=True))
        positions = tuple([own.get(place, place) for place in taken.positions])
        result.append(_as_asked(found, replace(taken, positions=positions)))
    return result


def _loaded(compiled: Sequence[Compiled], device: Device) -> list[Program]:
    """The programs of kernels; those of one module are loaded together where the device can."""
    load_module = device.toolchain.load_module
    if load_module is None:  # NULL, for one, loads nothing
        specs = [CompiledSpec.from_bytes(c.kernel.symbol, c.code, c.kernel.sink) for c in compiled]
        return [load(spec, device) for spec in specs]
    modules: dict[int, list[Compiled]] = {}
    for each in compiled:
        modules.setdefault(id(each.code), []).append(each)
    found: dict[str, Program] = {}
    for part in modules.values():
        names = [each.kernel.symbol for each in part]
        try:
            found.update(zip(names, load_module(part[0].code, names), strict=True))
        except Exception as problem:
            raise load_error(device, ", ".join(names), problem) from problem
    return [found[each.kernel.symbol] for each in compiled]


def _choice(kernel: Kernel) -> tuple[tuple[Opt, ...], str]:
    """The opts of a kernel, and whose they are."""
    return kernel.chosen.opts, kernel.chosen.by


def _spec(compiled: Compiled, device: Device) -> ProgramSpec:
    kernel = compiled.kernel
    spec = ProgramSpec(kernel.symbol, compiled.text.source, base_key(device.name), kernel.sink)
    spec.apply_derived_metadata_from_ast()
    return spec


def _as_asked(kernel: CompiledKernel, wanted: Kernel) -> CompiledKernel:
    """The kernel with its slots named by the positions of the call's arguments."""
    positions = wanted.positions
    if kernel.choice != _choice(wanted):  # made for another body, which became the same loops
        kernel = replace(kernel, choice=_choice(wanted))
    if not positions or positions == kernel.globals:
        return kernel
    return replace(
        kernel,
        globals=tuple([positions[slot] for slot in kernel.globals]),
        outs=tuple([positions[slot] for slot in kernel.outs]),
        ins=tuple([positions[slot] for slot in kernel.ins]),
    )


# -- kernels of renderers that choose loops themselves --------------------------------------------


def _made_each(
    bodies: list[UOp], requests: list[_Request], device: Device, compiler: str
) -> list[CompiledKernel]:
    plans = device.planning
    keys = [
        (program_key(r.program), f"{compiler} {plans.choice_of(body)}" if plans else compiler)
        for body, r in zip(bodies, requests, strict=True)
    ]
    found = {key: programs.get(key) for key in dict.fromkeys(keys)}
    wanted = {k: r for k, r in zip(keys, requests, strict=True) if found[k] is None}
    if wanted:
        for key, made in zip(wanted, _compile_each(list(wanted.values()), device), strict=True):
            found[key] = programs.insert(key, made)
    return [known for key in keys if (known := found[key]) is not None]


def _request(body: UOp, device: Device) -> _Request:
    """A kernel with what its renderer lacks taken apart."""
    name = kernel_name(body)
    rules = device.renderer.decompositor()
    sink = body if rules is None else rewrite((body,), rules)[0]
    flops, moved = device.planning.work(body) if device.planning else (None, None)
    return _Request(program_of(sink, base_key(device.name), name), name, flops, moved)


def _compile_each(requests: list[_Request], device: Device) -> list[CompiledKernel]:
    if len(requests) > 1 and device.planning is not None:
        # The driver assembles while it loads, tenths of a second for a large kernel: it does so
        # while the next ones are compiled.
        with ThreadPoolExecutor(min(len(requests), thread_budget().threads)) as pool:
            made, loads = [], []
            for request in requests:
                made.append(_compiled(request, device))
                loads.append(pool.submit(load, made[-1][1], device))
            loaded = [future.result() for future in loads]
    else:
        made = []
        for place, request in enumerate(requests):
            step(f"machine code of {request.name}", place + 1, len(requests))
            made.append(_compiled(request, device))
        loaded = [load(compiled, device) for _, compiled in made]
    return [
        _record(spec, request.name, program, device, (request.flops, request.moved))
        for request, (spec, _), program in zip(requests, made, loaded, strict=True)
    ]


def _compiled(request: _Request, device: Device) -> tuple[ProgramSpec, CompiledSpec]:
    """A program for a device that chooses loops itself: plainer ones where those fail."""
    try:
        return compile_program(request.program, device)
    except Exception as problem:
        plans = device.planning
        if plans is None or not plainer.may_fall_back(problem):
            raise
        if not plans.take_plainer(request.program.src[0]):
            raise
        found = compile_program(request.program, device)
        plainer.count(request.name, plainer.reason_of(problem))
        return found


def _record(
    spec: ProgramSpec,
    name: str,
    program: Program,
    device: Device,
    work: tuple[int | None, int | None],
) -> CompiledKernel:
    return CompiledKernel(
        program=program,
        device=base_key(device.name),
        source=spec.src,
        entry_point=name,
        var_names=tuple(spec.var_names),
        globals=tuple(spec.globals),
        outs=tuple(spec.outs),
        ins=tuple(spec.ins),
        host_parallel_safe=is_host_parallel_safe(program, spec.src),
        global_size=spec.global_size,
        local_size=spec.local_size,
        address=getattr(program, "address", 0),
        flops=work[0],
        bytes_moved=work[1],
    )


def is_host_parallel_safe(program: object, source: str) -> bool:
    """Whether a kernel may run beside others: its program may be entered by several threads, and
    its code writes no memory but that of its arguments."""
    return bool(getattr(program, "is_reentrant", False)) and not _OWN_MEMORY.search(source)


# A variable of a module of LLVM IR, as against a constant.
_OWN_MEMORY = re.compile(r"^@\S+ = (?:[a-z_]+ )*global ", re.MULTILINE)
