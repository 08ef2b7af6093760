"""Compiled kernels by body: made once per distinct kernel and device kind, bounded, counted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from svod.base.errors import DeviceError
from svod.base.knobs import codegen_key, knobs
from svod.device.names import base_key
from svod.device.registry import get_device
from svod.ir.node import UOp
from svod.runtime.ops import CompiledKernel

_kernels: OrderedDict[tuple[UOp, str, str], CompiledKernel] = OrderedDict()
_lock = threading.Lock()
statistics = {"hits": 0, "misses": 0}


def compiled_kernels(bodies: Sequence[UOp], device: str) -> dict[UOp, CompiledKernel]:
    """A compiled kernel for each body; the missing ones are made together."""
    kind = base_key(device)
    options = codegen_key()
    found: dict[UOp, CompiledKernel] = {}
    missing: list[UOp] = []
    for body in dict.fromkeys(bodies):
        kernel = _kernels.get((body, kind, options))
        if kernel is None:
            missing.append(body)
        else:
            found[body] = kernel
    statistics["hits"] += len(found)
    statistics["misses"] += len(missing)
    if missing:
        made = _compile(missing, kind)
        with _lock:
            for body, kernel in zip(missing, made, strict=True):
                found[body] = _kernels.setdefault((body, kind, options), kernel)
            while len(_kernels) > knobs.opt_cache_max:
                _kernels.popitem(last=False)
    return found


def clear_kernel_cache() -> None:
    with _lock:
        _kernels.clear()


def _compile(bodies: list[UOp], kind: str) -> list[CompiledKernel]:
    if kind in ("CPU", "NULL"):
        return _compile_cpu(bodies, kind)
    device = get_device(kind)
    if not device.runs_programs:
        raise DeviceError(f"{kind} holds memory only and runs no programs: copy to CPU")
    kernels = []
    for body in bodies:
        spec = device.renderer.render(body)
        program = device.runtime(device.compiler.compile(spec))
        kernels.append(
            CompiledKernel(
                program=program, device=kind, source=spec.src, entry_point=spec.name,
                var_names=tuple(spec.var_names), globals=tuple(spec.globals),
                outs=tuple(spec.outs), ins=tuple(spec.ins), global_size=spec.global_size,
                local_size=spec.local_size,
            )  # fmt: skip
        )
    return kernels


def _compile_cpu(bodies: list[UOp], kind: str) -> list[CompiledKernel]:
    from svod.codegen.pipeline import generate
    from svod.device.cpu.compiler import compile_kernels, launch_size
    from svod.device.cpu.host import host_machine
    from svod.device.null import NullProgram

    machine = host_machine()
    codes = [generate(body, machine) for body in bodies]
    programs = compile_kernels(codes)
    kernels = []
    for code, program in zip(codes, programs, strict=True):
        slots = tuple(sorted({*code.reads, *code.writes}))
        kernels.append(
            CompiledKernel(
                program=NullProgram(code.symbol) if kind == "NULL" else program,
                device=kind,
                source=code.text,
                entry_point=code.name,
                var_names=tuple([v.name for v in code.variables]),
                globals=tuple(range(slots[-1] + 1)),
                outs=code.writes,
                ins=code.reads,
                host_parallel_safe=True,
                global_size=launch_size(code),
                address=0 if kind == "NULL" else program.address,
                bytes_moved=code.bytes,
                flops=code.flops,
            )  # fmt: skip
        )
    return kernels
