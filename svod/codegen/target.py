"""Target: all that differs between kinds of devices, in one record.

In: what a machine can do. Out: the tuples of passes that make a kernel for it, and the functions
that write its text. ``svod.codegen.pipeline`` runs any target's passes by the same loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

from svod.base.errors import CompileError
from svod.codegen.linearize import Loop
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.capabilities import Capabilities
from svod.ir.needs import Needs
from svod.ir.node import UOp
from svod.ir.passes import Pass
from svod.optimize.gpu_tile import is_tile
from svod.optimize.opts import Opt

M = TypeVar("M")  # the facts of a machine
NOTHING = Needs()


@dataclass(slots=True)
class Choices(Generic[M]):
    """What passes know beside the graph: the machine, and the opts that were applied."""

    machine: M
    opts: tuple[Opt, ...] = ()
    given: tuple[Opt, ...] | None = None  # opts to apply, where they are not to be chosen
    is_plain: bool = False  # take the plainest loops, since others could not be compiled
    unaligned: UOp | None = None  # the loops for arguments that are not aligned, where they differ


@dataclass(frozen=True, slots=True)
class KernelText:
    """The text of one kernel, and what a launch must provide."""

    function: str
    declarations: frozenset[str]
    join: Callable[[Sequence[KernelText]], str]
    memory: tuple[str, ...] = ()  # variables of the module
    needs: Needs = NOTHING

    @property
    def source(self) -> str:
        """The text as a module of its own."""
        return self.join([self])


class Arguments(NamedTuple):
    """What a kernel takes."""

    slots: list[int]
    variables: list[VarArg]
    writes: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(slots=True)
class KernelCode:
    """One kernel ready for its renderer."""

    target: Target[Any]
    name: str  # what people read
    symbol: str  # unique in a module
    body: UOp  # the tensor graph it was made from
    kernel: UOp  # the loop nest after the opts
    opts: tuple[Opt, ...]
    lowered: UOp  # machine operations
    loops: Loop  # those in order
    unaligned: Loop | None = None  # loops for arguments that are not aligned, where those differ

    def text(self, aligned: bool = True) -> KernelText:
        """The text for arguments that are aligned as it says, or for any."""
        return self.target.render(self, aligned)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        nodes = self.kernel.toposort()
        sizes = {n.arg: n.src[0].arg for n in nodes if n.op == O.SPECIAL and n.arg[0] == "l"}
        return prod(sizes.values())

    def arguments(self) -> Arguments:
        """Slots and variables that the lowered kernel still has."""
        nodes = self.lowered.toposort()
        slots = sorted({n.arg.slot for n in nodes if n.op == O.PARAM})
        variables = {n.arg for n in nodes if n.op == O.DEFINE_VAR}
        written = {_memory(n.src[0]).arg.slot for n in nodes if n.op == O.STORE}
        read = {_memory(n.src[0]).arg.slot for n in nodes if n.op == O.LOAD}
        read |= {s.arg.slot for n in nodes if is_tile(n) for s in n.src if s.op == O.PARAM}
        sorts = [n for n in nodes if n.op in (O.SORT, O.RADIX)]
        read |= {_memory(s).arg.slot for n in sorts for s in n.src}
        by_name = sorted(variables, key=lambda v: str(v.name))
        return Arguments(slots, by_name, tuple(sorted(written)), tuple(sorted(read)))


def _memory(place: UOp) -> UOp:
    """The argument that a place, or a view that a sort reads or writes, is in."""
    while place.op != O.PARAM:
        place = place.src[0]
    return place


def _no_compiler(source: str) -> bytes:
    raise CompileError("this target makes texts only: a device has one that compiles them")


@dataclass(frozen=True, slots=True)
class Target(Generic[M]):
    """Everything that differs between kinds of devices."""

    name: str  # "CPU", "CUDA": what a body is compiled for
    machine: M
    capabilities: Capabilities
    choosing: tuple[Pass[Choices[M]], ...]  # from a body to loops, and the opts that change them
    lowering: tuple[Pass[Choices[M]], ...]  # from there to machine operations
    sorting: tuple[Pass[Choices[M]], ...]  # all that is done to a sort, which is not made of loops
    render: Callable[[KernelCode, bool], KernelText]
    emit: Callable[[str], bytes] = _no_compiler  # the code of a module
