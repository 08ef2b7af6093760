"""PROGRAM nodes: a kernel from its loops to machine code, one stage at a time.

    PROGRAM(SINK, DEVICE)                            0: the kernel
    PROGRAM(SINK, DEVICE, LINEAR)                    1: machine operations in one order
    PROGRAM(SINK, DEVICE, LINEAR, SOURCE)            2: text for the compiler
    PROGRAM(SINK, DEVICE, LINEAR, SOURCE, BINARY)    3: what the runtime loads

In: a PROGRAM at any stage. Out: the same one at a later stage; stages that are there are kept.
The argument is ProgramMetadata: the name, and what the kernel does not say by itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from svod.base.errors import (
    CompileError,
    CreateProgramError,
    GraphError,
    RenderError,
    SvodError,
)
from svod.base.hashing import digest
from svod.codegen.compile import brief
from svod.codegen.linearize import flat
from svod.codegen.pipeline import generate_from
from svod.codegen.target import KernelCode, Target
from svod.device.device import Device, Program
from svod.device.spec import (
    DEFAULT_NAME,
    CompiledSpec,
    ProgramMetadata,
    ProgramSpec,
)
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make


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


# -- stages ---------------------------------------------------------------------------------------


def _with_stage(program: UOp, stage: UOp) -> UOp:
    return make(O.PROGRAM, dt.void, (*program.src, stage), program.arg)


def _linear(program: UOp, device: Device) -> UOp:
    sink = program.src[0]
    if device.target is None:
        return make(O.LINEAR, dt.void, sink.src)  # its stores, in order
    return make(O.LINEAR, dt.void, tuple(flat(_code(program, device.target).loops)))


def _to_source(program: UOp, device: Device) -> UOp:
    if device.target is not None:
        text, metadata = _code(program, device.target).text().source, program.arg
    else:
        spec = device.renderer.render(program.src[0], _name(program))
        text, metadata = spec.src, metadata_of(spec)
    source = make(O.SOURCE, dt.void, (), text)
    return make(O.PROGRAM, dt.void, (*program.src, source), metadata)


def _code(program: UOp, target: Target[Any]) -> KernelCode:
    sink = program.src[0]
    return generate_from(sink, sink, (), target, _name(program))


def _name(program: UOp) -> str:
    arg = program.arg
    return arg.name if isinstance(arg, ProgramMetadata) else arg or DEFAULT_NAME


def metadata_of(spec: ProgramSpec) -> ProgramMetadata:
    """What a renderer said about a kernel, for its PROGRAM."""
    return ProgramMetadata(
        spec.name, tuple(spec.vars), tuple(spec.var_names), tuple(spec.globals), tuple(spec.outs),
        tuple(spec.ins), spec.global_size, spec.local_size, spec.buf_count, spec.needs,
    )  # fmt: skip
