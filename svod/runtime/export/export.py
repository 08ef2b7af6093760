"""Exporting a plan: everything it needs in one object, and files that say how to call it.

In: a plan. Out: a folder with `NAME.o`, `NAME.h`, `NAME.weights`, `CMakeLists.txt` and `example.c`.
The object holds the kernels as this process has them, the launcher, the thread pool and three
functions; it needs a C library and nothing of Python. The kernels keep their code, so results keep
their bits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from svod.base.errors import ConfigError, UnsupportedError
from svod.base.hashing import digest
from svod.base.system import system
from svod.device.cpu.compiler import emit_linked
from svod.device.cpu.host import target_of
from svod.device.cpu.targets import Target
from svod.runtime.caches import compiled_kernels
from svod.runtime.config import PrepareConfig
from svod.runtime.content import content_of
from svod.runtime.export.c_files import cmake, example, header
from svod.runtime.export.contents import LINE, Exported, Launch, contents
from svod.runtime.export.helpers_ir import helpers_ir
from svod.runtime.export.module_ir import HEADER_BYTES, model_ir
from svod.runtime.native.ir import launcher_ir
from svod.runtime.native.machine import machine_of
from svod.runtime.ops import CompiledKernel, PreparedKernel
from svod.runtime.portable import target_of_programs

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan

_MAGIC = b"svod weights 1\0\0"
# Words of C and C++, and the name of the first parameter.
_TAKEN = """auto bool break case char class const continue default delete do double else enum
    export extern false float for friend goto if inline instance int long namespace new operator
    private protected public register restrict return short signed sizeof static struct switch
    template this throw true try typedef union unsigned using virtual void volatile while"""


def export_plan(
    plan: ExecutionPlan, folder: str, name: str, target: str | None, inputs: Collection[str] | None
) -> None:
    """Write a plan for programs without Python; see `ExecutionPlan.export`."""
    launches = _launches(plan, target)
    kernels = [launch.kernel for launch in launches if launch is not None]
    wanted = _target(kernels)
    machine = machine_of(wanted.system or system().name, wanted.architecture)
    if machine is None:
        raise UnsupportedError(f"nothing can be exported for {wanted.architecture}", "export")
    found = contents(plan, launches, inputs)
    _check_names(name, found)
    has_threads = machine.calls is not None
    sources = list(dict.fromkeys([kernel.source for kernel in kernels]))
    layout = repr((found.words, found.fixes, found.sizes, found.starts, found.memory_bytes))
    key = _MAGIC + digest(name, wanted.name, layout, *sources).encode()[:48]
    key = key.ljust(HEADER_BYTES, b"\0")
    text = launcher_ir(machine) + model_ir(name, found, key, has_threads) + helpers_ir(wanted)
    public = [f"{name}_{verb}" for verb in ("start", "run", "stop")]
    code = emit_linked([text, *sources], public, wanted)
    there = Path(folder)
    there.mkdir(parents=True, exist_ok=True)
    (there / f"{name}.o").write_bytes(code)
    with (there / f"{name}.weights").open("wb") as file:
        file.write(key)
        for piece in _weights(plan, found):
            file.write(piece)
    about = f"{wanted.architecture} as {wanted.name}" if wanted.name == "host" else wanted.name
    (there / f"{name}.h").write_text(header(name, found, about), encoding="utf-8")
    (there / "example.c").write_text(example(name, found), encoding="utf-8")
    (there / "CMakeLists.txt").write_text(cmake(name, has_threads), encoding="utf-8")


def _target(kernels: Sequence[CompiledKernel]) -> Target:
    found = target_of_programs([kernel.program for kernel in kernels])
    if len(found) > 1:
        names = ", ".join(sorted([wanted.name for wanted in found]))
        raise UnsupportedError(f"the plan has kernels for {names}: prepare it once more", "export")
    return found.pop() if found else target_of("host")


def _launches(plan: ExecutionPlan, target: str | None) -> list[Launch | None]:
    """What each op of the plan calls: its own kernel, or one compiled for another machine."""
    ops = plan.prepared_ops()
    kernels = [op for op in ops if isinstance(op, PreparedKernel)]
    for op in kernels:
        if not op.kernel.source or not op.ast.src:
            raise UnsupportedError(
                "the plan was loaded from a file, which holds no sources: export it from the "
                "process that prepared it, or load a portable file",
                "export",
            )
    made = {}
    if target is not None:
        config = PrepareConfig.from_environment().for_machine(target)
        values = {op.ast: op.fixedvars for op in reversed(kernels)}
        made = compiled_kernels([op.ast for op in kernels], "CPU", config, values)
    return [_launch(op, made.get(op.ast)) if isinstance(op, PreparedKernel) else None for op in ops]


def _launch(op: PreparedKernel, other: CompiledKernel | None) -> Launch:
    kernel = other or op.kernel
    given = dict(zip(op.kernel.globals, op.buffer_indices, strict=True))
    values = {**dict(zip(op.kernel.var_names, op.vals, strict=False)), **op.fixedvars}
    if not set(kernel.globals) <= given.keys() or not set(kernel.var_names) <= values.keys() | {
        "core_id"
    }:
        raise UnsupportedError(
            f"kernel {kernel.entry_point} takes other arguments on that machine: prepare the plan "
            "with target=... and export it without",
            "export",
        )
    return Launch(kernel, [given[slot] for slot in kernel.globals], values)


def _check_names(name: str, found: Exported) -> None:
    """Names become names of C: refuse what C would not take, or would take for the same."""
    words = [name, *[a.port.name for a in found.arguments], *[v.name for v in found.variables]]
    for word in words:
        is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)
        if not is_name or word in _TAKEN.split():
            raise ConfigError(
                f"{word!r} cannot be a name in C: prepare the plan with other names of inputs and "
                "outputs"
            )
    big = [word.upper() for word in words[1:]]
    if len(set(big)) < len(big):
        twice = next(word for word in words[1:] if big.count(word.upper()) > 1)
        raise ConfigError(f"{twice!r} and another name of the plan differ in case alone")


def _weights(plan: ExecutionPlan, found: Exported) -> Iterator[bytes | memoryview]:
    buffers = plan.buffers()
    at = 0
    for offset, region in found.weights:
        yield bytes(offset - at)
        yield from content_of(region, buffers)
        at = offset + region.nbytes
    yield bytes(-at % LINE)
