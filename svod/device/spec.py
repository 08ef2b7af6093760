"""ProgramSpec: a rendered kernel and its metadata. CompiledSpec: what a runtime loads.

A ProgramSpec comes out of a renderer (or of a PROGRAM node) and goes into a compiler. Its metadata
follows from the kernel: which argument slots it has, which it writes and reads, which variables it
takes and how many work items it needs. ``ins`` is every slot that is read, also those that are
written as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from svod.base.errors import GraphError, VariableError
from svod.device.launch import (
    INT64_MAX,
    LaunchDims,
    LaunchSize,
    check_bounds,
    concrete_size,
    default_size,
    is_default,
    resolve_launch_dims,
)
from svod.device.names import canonical
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.needs import Needs
from svod.ir.node import UOp, const, depth_first

Binary: TypeAlias = bytes  # a field below is called bytes

DEFAULT_NAME = "kernel"
NOTHING = Needs()
CORE_VARIABLE = "core_id"  # which part of a threaded kernel to run; the runtime gives it


class Variable(NamedTuple):
    """A run-time integer of a kernel: a unique name and inclusive bounds."""

    name: str
    min: int
    max: int

    def check(self, value: int) -> None:
        """Refuse a value outside the bounds."""
        check_bounds(self.name, value, self.min, self.max)


@dataclass(frozen=True, slots=True)
class ProgramMetadata:
    """What is known about a program beside its source; the optional argument of a PROGRAM node.

    Empty fields say nothing and leave the derived value in place.
    """

    name: str = DEFAULT_NAME
    vars: tuple[Variable, ...] = ()
    var_names: tuple[str, ...] = ()
    globals: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()
    global_size: LaunchSize = field(default_factory=default_size)
    local_size: LaunchSize | None = field(default_factory=default_size)
    buf_count: int = 0
    needs: Needs = NOTHING

    @property
    def has_launch_dims(self) -> bool:
        """Whether the launch sizes say more than the default."""
        return not is_default(self.global_size, self.local_size)

    def __repr__(self) -> str:
        # Part of the structural hash of a PROGRAM, so sizes are given by their own hash.
        sizes = [e.content_hash for e in self.global_size + (self.local_size or ())]
        return (
            f"ProgramMetadata({self.name!r}, {self.vars!r}, {self.var_names!r}, {self.globals!r}, "
            f"{self.outs!r}, {self.ins!r}, {sizes!r}, {self.buf_count}, {self.needs!r})"
        )


@dataclass(frozen=True, slots=True)
class CompiledSpec:
    """A compiled kernel: source for a runtime that compiles, bytes for one that loads."""

    name: str
    ast: UOp
    src: str | None = None
    bytes: Binary = b""
    var_names: tuple[str, ...] = ()  # the order of the values; holds run-time names as core_id too
    global_size: LaunchSize = field(default_factory=default_size)
    local_size: LaunchSize | None = field(default_factory=default_size)
    buf_count: int = 0
    needs: Needs = NOTHING

    @classmethod
    def from_source(cls, name: str, src: str, ast: UOp, buf_count: int) -> CompiledSpec:
        """Source that the runtime compiles."""
        return cls(name, ast, src=src, buf_count=buf_count)

    @classmethod
    def from_bytes(cls, name: str, binary: Binary, ast: UOp) -> CompiledSpec:
        """Machine code that the runtime loads."""
        return cls(name, ast, bytes=binary)

    @classmethod
    def from_source_with_sizes(
        cls,
        name: str,
        src: str,
        ast: UOp,
        global_size: tuple[int, int, int],
        local_size: tuple[int, int, int] | None,
        buf_count: int,
    ) -> CompiledSpec:
        """Source with launch sizes that are plain numbers."""
        local = None if local_size is None else concrete_size(local_size)
        return cls(
            name,
            ast,
            src=src,
            global_size=concrete_size(global_size),
            local_size=local,
            buf_count=buf_count,
        )


@dataclass(slots=True)
class ProgramSpec:
    """A rendered kernel. ``local_size`` None: work items are numbered by the grid alone."""

    name: str
    src: str
    device: str
    ast: UOp
    global_size: LaunchSize = field(default_factory=default_size)
    local_size: LaunchSize | None = field(default_factory=default_size)
    vars: list[Variable] = field(default_factory=list)
    var_names: list[str] = field(default_factory=list)  # the order of the values at run time
    globals: list[int] = field(default_factory=list)  # argument slots
    outs: list[int] = field(default_factory=list)  # slots written
    ins: list[int] = field(default_factory=list)  # slots read, also those that are written as well
    buf_count: int = 0
    needs: Needs = NOTHING  # of a launch

    def add_var(self, variable: Variable) -> None:
        """Add a variable; its name must be new."""
        if any(v.name == variable.name for v in self.vars):
            raise VariableError(f"kernel {self.name} already has a variable {variable.name}")
        self.vars.append(variable)

    def set_work_sizes(self, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        """Launch sizes that are plain numbers."""
        self.global_size = concrete_size(_three(global_size))
        self.local_size = concrete_size(_three(local_size))

    def set_launch_dims(self, global_size: LaunchSize, local_size: LaunchSize | None) -> None:
        """Launch sizes that are expressions over variables."""
        self.global_size, self.local_size = global_size, local_size

    def set_var_names(self, var_names: Sequence[str]) -> None:
        """The order in which values are passed at run time."""
        self.var_names = list(var_names)

    def set_buffer_metadata(
        self, global_slots: Sequence[int], outs: Sequence[int], ins: Sequence[int]
    ) -> None:
        """Argument slots: all, those written, and those read."""
        self.globals, self.outs, self.ins = list(global_slots), list(outs), list(ins)

    def launch_dims(self, values: Mapping[str, int]) -> LaunchDims:
        """The launch sizes for these variable values."""
        return resolve_launch_dims(self.global_size, self.local_size, values)

    @staticmethod
    def resolve_launch_dims(
        global_size: LaunchSize, local_size: LaunchSize | None, values: Mapping[str, int]
    ) -> LaunchDims:
        """Launch sizes that are kept outside a spec."""
        return resolve_launch_dims(global_size, local_size, values)

    @property
    def has_launch_dims(self) -> bool:
        """Whether the launch sizes say more than the default."""
        return not is_default(self.global_size, self.local_size)

    def apply_derived_metadata_from_ast(self) -> None:
        """Take slots and sizes from the kernel; variables and counts only where none are set."""
        derived = derive_metadata(self.ast)
        self.set_buffer_metadata(derived.globals, derived.outs, derived.ins)
        self.set_launch_dims(derived.global_size, derived.local_size)
        self.vars = self.vars or list(derived.vars)
        self.var_names = self.var_names or list(derived.var_names)
        self.buf_count = self.buf_count or len(self.globals)

    @classmethod
    def from_uop(cls, program: UOp) -> ProgramSpec:
        """The spec of a PROGRAM node.

        Its sources are SINK, DEVICE, LINEAR, SOURCE and perhaps BINARY, its argument is None, a
        name or a ProgramMetadata. Metadata wins over what the kernel says, where it says anything.
        """
        sink, device, source = _stages(program)
        derived = derive_metadata(sink)
        given = _given_metadata(program.arg)
        launch = given if given.has_launch_dims else derived
        slots = given.globals or derived.globals
        return cls(
            name=given.name or DEFAULT_NAME,
            src=source.arg,
            device=canonical(device.arg),
            ast=sink,
            global_size=launch.global_size,
            local_size=launch.local_size,
            vars=list(given.vars or derived.vars),
            var_names=list(given.var_names or derived.var_names),
            globals=list(slots),
            outs=list(given.outs or derived.outs),
            ins=list(given.ins or derived.ins),
            buf_count=given.buf_count or len(slots),
            needs=given.needs,
        )


def derive_metadata(sink: UOp) -> ProgramMetadata:
    """What a kernel says about itself: variables, argument slots, launch sizes."""
    variables: dict[str, Variable] = {}
    slots: set[int] = set()
    outs: set[int] = set()
    ins: set[int] = set()
    grid = list(default_size())
    group: list[UOp] | None = list(default_size())
    for node in depth_first(sink):
        op = node.op
        if op == O.DEFINE_VAR:
            variable = Variable(*node.arg)
            _add_variable(variables, variable)
            if variable.name == CORE_VARIABLE:
                grid[0] = const(min(variable.max + 1, INT64_MAX), dt.index)
        elif op == O.PARAM and not node.src:
            slots.add(node.arg.slot)
        elif op == O.SPECIAL:
            kind, axis = special_axis(node.arg)
            if kind == "g":
                grid[axis] = node.src[0]
            elif kind == "l":
                group = group or list(default_size())
                group[axis] = node.src[0]
            elif kind == "i":
                grid[axis] = node.src[0]
                group = None
        elif op == O.STORE or op == O.LOAD:
            slot = _accessed_slot(node.src[0])
            if slot is not None:
                (outs if op == O.STORE else ins).add(slot)
            elif node.src[0].op == O.PARAM or node.src[0].op in O.MOVEMENT:  # of a whole tensor
                outs.update(_parameters(node.src[0]))
                ins.update(_parameters(node.src[1]))
    ordered = tuple(sorted(variables.values()))
    return ProgramMetadata(
        vars=ordered,
        var_names=tuple([v.name for v in ordered]),
        globals=tuple(sorted(slots)),
        outs=tuple(sorted(outs)),
        ins=tuple(sorted(ins)),
        global_size=(grid[0], grid[1], grid[2]),
        local_size=None if group is None else (group[0], group[1], group[2]),
        buf_count=len(slots),
    )


def special_axis(name: str) -> tuple[str, int]:
    """Kind and axis a hardware index stands for; ("", 0) for a name that stands for none.

    The first letter is g (grid), l (workgroup) or i (the grid alone); trailing digits are the axis.
    """
    digits = name[len(name.rstrip("0123456789")) :]
    if name[:1] not in ("g", "l", "i") or not digits or int(digits) >= 3:
        return "", 0
    return name[0], int(digits)


def _add_variable(variables: dict[str, Variable], variable: Variable) -> None:
    known = variables.setdefault(variable.name, variable)
    if known != variable:
        raise VariableError(
            f"one kernel uses variable {variable.name} with bounds [{known.min}, {known.max}] and "
            f"[{variable.min}, {variable.max}]: give one of them another name"
        )


def _accessed_slot(place: UOp) -> int | None:
    """The argument slot of an access through INDEX, or CAST of INDEX, of a kernel argument."""
    if place.op == O.CAST:
        place = place.src[0]
    if place.op != O.INDEX:
        return None
    memory = place.src[0]
    return memory.arg.slot if memory.op == O.PARAM and not memory.src else None


def _parameters(value: UOp) -> set[int]:
    return {n.arg.slot for n in depth_first(value) if n.op == O.PARAM and not n.src}


def _given_metadata(arg: object) -> ProgramMetadata:
    if isinstance(arg, ProgramMetadata):
        return arg
    if arg is None or isinstance(arg, str):
        return ProgramMetadata(name=arg or DEFAULT_NAME)
    raise GraphError(f"PROGRAM argument must be a name or ProgramMetadata, got {arg!r}")


def _stages(program: UOp) -> tuple[UOp, UOp, UOp]:
    """Sink, device and source of a PROGRAM whose stages are all as they should be."""
    if program.op != O.PROGRAM:
        raise GraphError(f"expected PROGRAM op, got {O.NAMES[program.op]}")
    stages = (("sink", O.SINK), ("device", O.DEVICE), ("linear", O.LINEAR), ("source", O.SOURCE))
    for place, (stage, op) in enumerate(stages):
        if place >= len(program.src):
            raise GraphError(f"PROGRAM missing {O.NAMES[op]} stage")
        _require_stage(program.src[place], stage, op)
    if len(program.src) > 4:
        _require_stage(program.src[4], "binary", O.BINARY)
    return program.src[0], program.src[1], program.src[3]


def _require_stage(node: UOp, stage: str, op: int) -> None:
    if node.op != op:
        raise GraphError(f"PROGRAM {stage} stage must be {O.NAMES[op]} op, got {O.NAMES[node.op]}")


def _three(size: Sequence[int]) -> tuple[int, int, int]:
    if len(size) != 3:
        raise GraphError(f"a launch size has three numbers, got {tuple(size)}")
    return size[0], size[1], size[2]
