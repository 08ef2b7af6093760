"""PROGRAM nodes: a kernel from its loops to machine code, one stage at a time.

    PROGRAM(SINK, DEVICE)                            0: the kernel
    PROGRAM(SINK, DEVICE, LINEAR)                    1: machine operations in one order
    PROGRAM(SINK, DEVICE, LINEAR, SOURCE)            2: text for the compiler
    PROGRAM(SINK, DEVICE, LINEAR, SOURCE, BINARY)    3: what the runtime loads

In: a PROGRAM at any stage. Out: the same one at a later stage; stages that are there are kept.
The argument is ProgramMetadata: the name, and what the kernel does not say by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from svod.base.errors import (
    CompileError,
    CreateProgramError,
    GraphError,
    RenderError,
    SvodError,
)
from svod.base.hashing import digest
from svod.codegen.linearize import Loop
from svod.device.device import Device, Program
from svod.device.spec import (
    DEFAULT_NAME,
    CompiledSpec,
    ProgramMetadata,
    ProgramSpec,
)
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make, substitute


class ProgramStage(IntEnum):
    """How far a PROGRAM is."""

    KERNEL = 0
    LINEAR = 1
    SOURCE = 2
    BINARY = 3


_STAGES = ((O.SINK, O.DEVICE), (O.LINEAR,), (O.SOURCE,), (O.BINARY,))


def program_of(sink: UOp, device: str, name: str = DEFAULT_NAME) -> UOp:
    """The first stage of a kernel's program."""
    where = make(O.DEVICE, dt.void, (), device)
    return make(O.PROGRAM, dt.void, (sink, where), ProgramMetadata(name=name))


def program_key(program: UOp) -> str:
    """The content of a PROGRAM as a hash; parts that were hashed before are not walked again."""
    return digest(repr(program.arg), *[stage.content_hash for stage in program.src])


def stage_of(program: UOp) -> ProgramStage:
    """How far a PROGRAM is; refuses any other node and stages that do not follow each other."""
    if program.op != O.PROGRAM:
        raise GraphError(f"the program pipeline takes a PROGRAM, got {O.NAMES[program.op]}")
    wanted = [op for ops in _STAGES for op in ops]
    found = [s.op for s in program.src]
    if len(found) < 2 or found != wanted[: len(found)]:
        names = ", ".join([O.NAMES[op] for op in found])
        raise GraphError(f"malformed PROGRAM state: its stages are {names or 'none'}")
    return ProgramStage(len(found) - 2)


def complete(program: UOp, device: Device, target: ProgramStage = ProgramStage.BINARY) -> UOp:
    """The program at a later stage; one that is there already is returned as it is."""
    stage = stage_of(program)
    try:
        if stage < ProgramStage.LINEAR <= target:
            program = _with_stage(program, _linear(program, device))
        if stage < ProgramStage.SOURCE <= target:
            program = _to_source(program, device)
    except Exception as problem:
        # A malformed graph inside is a fault of the lowering; other errors of ours say what to do.
        if isinstance(problem, SvodError) and not isinstance(problem, GraphError):
            raise
        name = _name(program)
        raise RenderError(f"{device.name} could not render {name!r}: {brief(problem)}") from problem
    if stage < ProgramStage.BINARY <= target:
        program, _ = compile_source(program, device)
    return program


def compile_program(program: UOp, device: Device) -> tuple[ProgramSpec, CompiledSpec]:
    """Everything up to machine code, checked after rendering and again after compiling."""
    program = complete(program, device, ProgramStage.SOURCE)
    entry = checked_spec(program).name
    program, compiled = compile_source(program, device)
    try:
        return ProgramSpec.from_uop(program), compiled
    except GraphError as problem:
        raise GraphError(
            f"the program pipeline made an invalid ProgramSpec after compiling {entry!r}: {problem}"
        ) from problem


def checked_spec(program: UOp) -> ProgramSpec:
    """The spec of a PROGRAM that has its source."""
    try:
        return ProgramSpec.from_uop(program)
    except GraphError as problem:
        raise GraphError(
            f"the program pipeline made an invalid SOURCE stage: {problem}"
        ) from problem


def compile_source(program: UOp, device: Device) -> tuple[UOp, CompiledSpec]:
    """The last stage, and what the compiler of the device made."""
    spec = checked_spec(program)
    try:
        compiled = device.compiler.compile(spec)
    except SvodError:
        raise
    except Exception as problem:
        name = spec.name
        raise CompileError(
            f"{device.name} could not compile {name!r}: {brief(problem)}"
        ) from problem
    return _with_stage(program, make(O.BINARY, dt.void, (), compiled.bytes)), compiled


def load(compiled: CompiledSpec, device: Device) -> Program:
    """The runtime's part: code that can be called."""
    try:
        return device.runtime(compiled)
    except Exception as problem:
        raise load_error(device, compiled.name, problem) from problem


def load_error(device: Device, name: str, problem: Exception) -> CreateProgramError:
    """What is raised for code that could not be loaded."""
    return CreateProgramError(f"{device.name} could not load {name!r}: {brief(problem)}")


def brief(problem: Exception) -> str:
    """A cause as part of a message; errors that are not ours say their kind."""
    return (
        str(problem) if isinstance(problem, SvodError) else f"{problem} ({type(problem).__name__})"
    )


def compacted(kernel: UOp) -> tuple[UOp, tuple[int, ...]]:
    """The kernel over slots 0, 1, .. and the argument positions they stand for.

    Arguments that were optimised away are not passed at all.
    """
    used = sorted({n.arg.slot for n in kernel.toposort() if n.op == O.PARAM and not n.src})
    if used == list(range(len(used))):
        return kernel, tuple(used)
    place = {slot: number for number, slot in enumerate(used)}
    mapping = {
        n: make(O.PARAM, n.dtype, (), n.arg._replace(slot=place[n.arg.slot]))
        for n in kernel.toposort()
        if n.op == O.PARAM and not n.src
    }
    return substitute((kernel,), mapping)[0], tuple(used)


# -- stages ---------------------------------------------------------------------------------------


def _with_stage(program: UOp, stage: UOp) -> UOp:
    return make(O.PROGRAM, dt.void, (*program.src, stage), program.arg)


def _linear(program: UOp, device: Device) -> UOp:
    from svod.device.cpu.compiler import CpuRenderer

    sink = program.src[0]
    if not isinstance(device.renderer, CpuRenderer):
        return make(O.LINEAR, dt.void, sink.src)  # its stores, in order
    from svod.codegen.pipeline import ordered_loops
    from svod.device.cpu.host import host_machine

    return make(O.LINEAR, dt.void, tuple(flatten_loops(ordered_loops(sink, host_machine()))))


def _to_source(program: UOp, device: Device) -> UOp:
    from svod.device.cpu.compiler import CpuRenderer

    name = _name(program)
    if isinstance(device.renderer, CpuRenderer):
        text, metadata = _cpu_source(program, name), program.arg
    else:
        spec = device.renderer.render(program.src[0], name)
        text, metadata = spec.src, metadata_of(spec)
    source = make(O.SOURCE, dt.void, (), text)
    return make(O.PROGRAM, dt.void, (*program.src, source), metadata)


def _name(program: UOp) -> str:
    arg = program.arg
    return arg.name if isinstance(arg, ProgramMetadata) else arg or DEFAULT_NAME


def metadata_of(spec: ProgramSpec) -> ProgramMetadata:
    """What a renderer said about a kernel, for its PROGRAM."""
    return ProgramMetadata(
        spec.name, tuple(spec.vars), tuple(spec.var_names), tuple(spec.globals), tuple(spec.outs),
        tuple(spec.ins), spec.global_size, spec.local_size, spec.buf_count,
    )  # fmt: skip


def _cpu_source(program: UOp, name: str) -> str:
    from svod.codegen.pipeline import kernel_text
    from svod.codegen.render.llvm import module
    from svod.device.cpu.host import host_machine

    sink, _, linear = program.src[:3]
    text, declarations = kernel_text(name, sink, loops_of(linear.src), host_machine())
    return module([text], declarations)


def joined_modules(sources: Sequence[str]) -> str:
    """Several modules as one: functions one after the other, declarations and attributes once."""
    from svod.codegen.render.llvm import ATTRIBUTES, module

    functions: list[str] = []
    declarations: set[str] = set()
    for source in dict.fromkeys(sources):
        lines = source.removesuffix(ATTRIBUTES).split("\n")
        declarations.update([line for line in lines if line.startswith("declare ")])
        functions.append("\n".join([line for line in lines if not line.startswith("declare ")]))
    return module(functions, declarations)


def flatten_loops(loop: Loop) -> list[UOp]:
    """One list: a RANGE opens a loop, the reductions it carries follow, END(RANGE) closes it."""
    found: list[UOp] = []
    for item in loop.items:
        if not isinstance(item, Loop):
            found.append(item)
            continue
        assert item.range is not None
        end = make(O.END, dt.void, (item.range,))
        found += [item.range, *item.carried, *flatten_loops(item), end]
    return found


def loops_of(items: Sequence[UOp]) -> Loop:
    """The loops of a list made by ``flatten_loops``."""
    here = root = Loop(None)
    for item in items:
        if item.op == O.RANGE:
            inner = Loop(item, here.depth + 1, here)
            here.items.append(inner)
            here = inner
        elif item.op == O.REDUCE:
            here.carried.append(item)
        elif item.op == O.END and item.src[0].op == O.RANGE:
            if here.range is not item.src[0] or here.parent is None:
                raise GraphError(f"a LINEAR closes {item.src[0]!r}, which is not the inner loop")
            here = here.parent
        else:
            here.items.append(item)
    if here is not root:
        raise GraphError(f"a LINEAR leaves {here.range!r} open")
    return root
