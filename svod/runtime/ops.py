"""The four prepared operations of an execution plan, and the compiled kernel they share.

In: what preparation decided (compiled code, places in the plan's buffer table, values).
Out: plain records that the plan walks. They hold no schedule and no graph logic; a kernel keeps
its body only so that people can look at it and so that its variables can be found once.
A record is changed after `build()` in two ways only: values of variables and rebound buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from svod.base.errors import SvodError
from svod.device.launch import (
    LaunchDims,
    LaunchSize,
    Size3,
    default_size,
    resolve_launch_dims,
)
from svod.device.spec import CORE_VARIABLE
from svod.ir import ops as O
from svod.ir.node import UOp, toposort
from svod.optimize.opts import Opt

CORE_ID = CORE_VARIABLE  # the runtime gives it to each worker; never set from outside


class Program(Protocol):
    """Loaded machine code. Stateless and reentrant: several threads may call it at once."""

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None,
        local_size: Size3 | None,
        /,
    ) -> object: ...


@dataclass(slots=True, eq=False)
class CompiledKernel:
    """A compiled kernel as the cache holds it; shared by every plan that launches it (S160)."""

    program: Program
    device: str  # the device key the code was made for: "CPU", also for a kernel on "CPU:1"
    source: str
    entry_point: str
    var_names: tuple[str, ...] = ()  # the order of `vals`
    globals: tuple[int, ...] = ()  # positions in the call's buffer list, in argument order
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()  # every slot that is read, in-place ones included
    host_parallel_safe: bool = False  # may run beside other kernels of its level
    global_size: LaunchSize = field(default_factory=default_size)
    local_size: LaunchSize | None = field(default_factory=default_size)  # None: the grid alone
    address: int = 0  # function pointer of `void kernel(ptr bufs, ptr vals, i64 core)`, or 0
    bytes_moved: int | None = None  # estimates for the profile, at the largest sizes
    flops: int | None = None
    choice: tuple[tuple[Opt, ...], str] | None = None  # the opts of its loops, and whose they are
    dims: LaunchDims | None = field(default=None, init=False)  # evaluated, where all are constants

    def __post_init__(self) -> None:
        sizes = self.global_size + (self.local_size or ())
        if all(size.op == O.CONST for size in sizes):
            with suppress(SvodError):  # a launch reports it, with the kernel's id
                self.dims = resolve_launch_dims(self.global_size, self.local_size, {})

    def __repr__(self) -> str:
        return f"CompiledKernel({self.entry_point}, device={self.device})"


@dataclass(frozen=True, slots=True)
class RuntimeVar:
    """The bounds of one variable, both included."""

    name: str
    min_val: int
    max_val: int


def collect_runtime_vars(root: UOp | Iterable[object]) -> tuple[RuntimeVar, ...]:
    """The variables reachable from a node or from the nodes of a list, one per name.

    The first occurrence in topological order wins, and that order is kept.
    """
    roots = (root,) if isinstance(root, UOp) else [r for r in root if isinstance(r, UOp)]
    found: dict[str, RuntimeVar] = {}
    for node in toposort(roots):
        if node.op == O.DEFINE_VAR and node.arg.name not in found:
            found[node.arg.name] = RuntimeVar(node.arg.name, node.arg.lo, node.arg.hi)
    return tuple(found.values())


@dataclass(slots=True, eq=False)
class PreparedKernel:
    """One launch of a compiled kernel."""

    id: int  # of the CALL node it came from; the name other ops depend on
    ast: UOp
    kernel: CompiledKernel
    device: str  # where this launch runs, whatever the plan's primary device is
    buffer_indices: list[int]  # places in the plan's buffer table, in argument order
    output_indices: list[int]  # positions within `buffer_indices` that are written
    vals: list[int] = field(default_factory=list)  # aligned with `kernel.var_names`
    fixedvars: dict[str, int] = field(default_factory=dict)  # never overridden at run time
    dependencies: list[int] = field(default_factory=list)  # ids
    buffer_ptrs: list[int] = field(default_factory=list)  # filled by `build()`
    buffer_ids: list[int] = field(default_factory=list)  # filled by `build()`
    runtime_vars: tuple[RuntimeVar, ...] | None = None  # found in `ast` where not given
    origin: tuple[str, int, str] | None = (
        None  # file, line and module of the user's code it computes
    )

    def __post_init__(self) -> None:
        if self.runtime_vars is None:
            self.runtime_vars = collect_runtime_vars(self.ast)

    def __repr__(self) -> str:
        return (
            f"PreparedKernel(id={self.id}, device={self.device}, "
            f"buffer_indices={self.buffer_indices}, output_indices={self.output_indices}, "
            f"vals={self.vals}, fixedvars={self.fixedvars}, dependencies={self.dependencies})"
        )


@dataclass(slots=True, eq=False)
class PreparedCopy:
    """The bytes of one buffer into another, between devices or on one."""

    id: int
    buffer_indices: list[int]  # [destination, source]
    dependencies: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PreparedBufferView:
    """A part of a buffer under another name; running it moves nothing and checks the wiring."""

    id: int
    buffer_indices: list[int]  # [view, base]
    byte_offset: int  # expected, within the base
    byte_size: int
    dependencies: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PreparedCustomFunction:
    """A call of a registered function that Svod did not compile."""

    id: int
    kind: str  # the name under which an implementation is registered, for example "EncDec"
    attrs: tuple[object, ...]  # descriptors of the IR node: numbers, texts, nodes
    buffer_indices: list[int]
    fixedvars: dict[str, int] = field(default_factory=dict)
    dependencies: list[int] = field(default_factory=list)
    runtime_vars: tuple[RuntimeVar, ...] | None = None  # found in `attrs` where not given
    values: dict[str, int] = field(default_factory=dict)  # to start with; callers may change them
    origin: tuple[str, int, str] | None = None  # file, line and module of the user's code

    def __post_init__(self) -> None:
        if self.runtime_vars is None:
            self.runtime_vars = collect_runtime_vars(self.attrs)


PreparedOp: TypeAlias = PreparedKernel | PreparedCopy | PreparedBufferView | PreparedCustomFunction


def op_identity(op: PreparedOp) -> tuple[int, list[int]]:
    """The id of an op and the ids it depends on: the same for all four kinds."""
    return op.id, op.dependencies


def requires_serial(op: PreparedOp) -> bool:
    """Whether an op must not run beside others: all but kernels that are declared safe."""
    return not (isinstance(op, PreparedKernel) and op.kernel.host_parallel_safe)
