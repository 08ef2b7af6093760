"""Named inputs and outputs of a plan, and the rules for giving them other memory.

A port is a place in the plan's buffer table with a name, a dtype and a shape, which may hold
variables. Rebinding changes addresses, never code. It is refused where it would change what the
plan computes: another dtype or size, or memory that the plan also uses for something else and at
least one of the two is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import (
    BufferNotFound,
    DeviceError,
    DTypeError,
    ExecutionError,
    ShapeError,
)
from svod.device.buffer import Buffer
from svod.device.launch import evaluate
from svod.dtype.convert import to_numpy
from svod.dtype.types import COMPLEX_OF, DType
from svod.ir import ops as O
from svod.ir.node import UOp, stored_shape, substitute
from svod.ir.symbolic import size_text
from svod.runtime.executor import memory_range
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int | UOp, ...]
SortedRanges: TypeAlias = tuple[list[int], list[int]]  # starts and ends

_BEYOND = 1 << 64  # after every address

# NumPy's flag bits, as in ndarray.flags.num.
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
READABLE = _C_CONTIGUOUS | _ALIGNED
WRITABLE = READABLE | _WRITEABLE


@dataclass(frozen=True, slots=True)
class PortSpec:
    """What the builder is told: a name for a place in the buffer table, and its shape."""

    name: str
    index: int
    shape: Shape | None = None  # None: one axis with all elements
    is_output: bool = False
    is_complex: bool = False  # its floats are pairs, the last axis of the shape


class Port:
    """A named place in the buffer table of one plan, and the memory bound to it now."""

    __slots__ = (
        "array_dtype", "dtype", "end", "index", "is_complex", "is_direct", "is_output", "is_stale",
        "is_written", "memory", "name", "nbytes", "obstacle", "private", "rivals", "shape",
        "size", "start", "value",
    )  # fmt: skip

    def __init__(self, spec: PortSpec, buffer: Buffer, is_written: bool) -> None:
        self.name = spec.name
        self.index = spec.index
        self.is_output = spec.is_output
        self.is_complex = spec.is_complex
        self.is_written = is_written
        self.dtype: DType = buffer.dtype
        self.array_dtype = to_numpy(buffer.dtype)
        self.size = buffer.size
        self.nbytes = buffer.nbytes
        self.shape: Shape = (buffer.size,) if spec.shape is None else _unbound(spec.shape)
        self.obstacle = ""  # why this port cannot be rebound
        self.rivals: tuple[Port, ...] = ()  # ports it must not share memory with
        self.is_direct = False  # writing its address into records is all that rebinding takes
        self.private: Buffer | None = None  # takes copies of inputs smaller than the largest size
        self.value: object = None  # the array that was bound the short way
        self.is_stale = False  # no Buffer was made for it yet
        self.place(buffer)

    def place(self, buffer: Buffer) -> None:
        """Note where the bound memory lies."""
        self.memory, self.start, self.end = memory_range(buffer)

    @property
    def is_symbolic(self) -> bool:
        return any(isinstance(size, UOp) for size in self.shape)

    def concrete_shape(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these values of variables."""
        return tuple(
            evaluate(size, values) if isinstance(size, UOp) else size for size in self.shape
        )

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape its memory is laid out for: run-time sizes at their largest."""
        return stored_shape(self.shape)

    def is_prefix(self, shape: Sequence[int]) -> bool:
        """Whether what a run uses of the memory lies in one piece at its beginning."""
        pairs = list(zip(shape, self.stored_shape, strict=True))
        first = next((i for i, (_, most) in enumerate(pairs) if most != 1), len(pairs))
        return all(size == most for size, most in pairs[first + 1 :])

    def infer(self, shape: Sequence[int]) -> dict[str, int]:
        """Values of the variables that are whole axes of this port, read off an array's shape."""
        if len(shape) != len(self.shape):
            raise ShapeError(
                f"{self.name!r} has {len(self.shape)} axes {self.text()}, "
                f"got an array of shape {tuple(shape)}"
            )
        found: dict[str, int] = {}
        for wanted, size in zip(self.shape, shape, strict=True):
            variable = wanted
            while isinstance(variable, UOp) and variable.op == O.CAST:
                variable = variable.src[0]
            if not isinstance(variable, UOp) or variable.op != O.DEFINE_VAR:
                continue
            if found.setdefault(variable.arg.name, size) != size:
                raise ShapeError(
                    f"{self.name!r} is {self.text()}, which an array of shape "
                    f"{tuple(shape)} is not for any {variable.arg.name}"
                )
        return found

    def text(self) -> str:
        """The printed form, such as `f32[n,512]`."""
        shape = self.shape[:-1] if self.is_complex else self.shape
        sizes = [size_text(size).replace(" ", "") for size in shape]
        kind = COMPLEX_OF[self.dtype] if self.is_complex else self.dtype
        return f"{kind!r}[{','.join(map(str, sizes))}]"

    def given(self, buffer: Buffer) -> Buffer:
        """What the outside sees of the memory: complex numbers where it holds such."""
        return buffer.cast_to(COMPLEX_OF[buffer.dtype]) if self.is_complex else buffer

    def __repr__(self) -> str:
        return f"Port({self.name!r}, {'output' if self.is_output else 'input'} {self.text()})"


class FixedMemory:
    """The bytes a plan uses outside its ports: what a newly bound range must keep clear of."""

    __slots__ = ("read", "written")

    def __init__(self) -> None:
        self.read: dict[object, _Ranges] = {}
        self.written: dict[object, _Ranges] = {}

    def add(self, buffer: Buffer, is_written: bool) -> None:
        memory, start, end = memory_range(buffer)
        ranges = self.written if is_written else self.read
        ranges.setdefault(memory, _Ranges()).add(start, end)

    def on_host(self, is_written: bool) -> tuple[SortedRanges, ...]:
        """The ranges of host memory that memory of a port must not meet, ended by an empty one."""
        kinds = (self.written, self.read) if is_written else (self.written,)
        found = [kind["host"] for kind in kinds if "host" in kind]
        return tuple([([*r.starts, _BEYOND], [*r.ends, _BEYOND]) for r in found])

    def meets(self, is_written: bool, memory: object, start: int, end: int) -> bool:
        """Whether a range, written or only read by the plan, is not free."""
        written = self.written.get(memory)
        if written is not None and written.meets(start, end):
            return True
        read = self.read.get(memory) if is_written else None
        return read is not None and read.meets(start, end)


class _Ranges:
    """Sorted ranges that do not touch."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self.ends, start)
        last = first
        while last < len(self.starts) and self.starts[last] <= end:
            start, end = min(start, self.starts[last]), max(end, self.ends[last])
            last += 1
        self.starts[first:last] = [start]
        self.ends[first:last] = [end]

    def meets(self, start: int, end: int) -> bool:
        place = bisect_left(self.ends, start + 1)
        return place < len(self.starts) and self.starts[place] < end


def view_roots(ops: Sequence[PreparedOp], count: int) -> list[int]:
    """For each place in the buffer table the place whose memory it is a view of, else itself."""
    roots = list(range(count))
    base_of = {
        op.buffer_indices[0]: op.buffer_indices[1]
        for op in ops
        if isinstance(op, PreparedBufferView)
        and len(op.buffer_indices) > 1
        and max(op.buffer_indices[:2]) < count
    }
    for place in base_of:
        root, seen = place, {place}
        while root in base_of and base_of[root] not in seen:
            root = base_of[root]
            seen.add(root)
        roots[place] = root
    return roots


def written_places(ops: Sequence[PreparedOp]) -> set[int]:
    """Places in the buffer table that some op writes; custom functions may write all of theirs."""
    written: set[int] = set()
    for op in ops:
        if isinstance(op, PreparedKernel):
            written.update(op.buffer_indices[position] for position in op.output_indices)
        elif isinstance(op, PreparedCopy):
            written.update(op.buffer_indices[:1])
        elif isinstance(op, PreparedCustomFunction):
            written.update(op.buffer_indices)
    return written


def buffer_for(port: Port, value: object, device: str) -> Buffer:
    """The memory of a value as a buffer that fits a port of a fixed shape."""
    if isinstance(value, Buffer):
        buffer = value
        if port.is_complex and buffer.dtype is COMPLEX_OF[port.dtype]:
            buffer = buffer.cast_to(port.dtype)
        if buffer.dtype is not port.dtype:
            raise DTypeError(f"{port.name!r} is {port.text()}, got a buffer of {buffer.dtype!r}")
        if buffer.device != device:
            raise DeviceError(
                f"{port.name!r} is on {device}, got a buffer on {buffer.device}: copy it first"
            )
    else:
        array = as_array(port, value)
        if port.is_written and array.flags.num & READABLE != READABLE:
            raise ShapeError(
                f"{port.name!r} is written by the plan and needs an aligned, contiguous array, "
                f"got strides {array.strides} for shape {array.shape}"
            )
        buffer = Buffer.from_numpy(array, device=device)
    if buffer.size != port.size:
        raise ShapeError(
            f"{port.name!r} is {port.text()} with {port.size} elements, got {buffer.size}"
        )
    if port.is_written:
        buffer.allocate().require_writable()
    return buffer


def as_array(port: Port, value: object) -> Array:
    """A NumPy array on the same memory where that is possible, of the port's dtype."""
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    elif hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        raise DTypeError(f"{port.name!r} takes an array or a buffer, got {type(value).__name__}")
    if port.is_complex and array.dtype == to_numpy(COMPLEX_OF[port.dtype]):
        return _pairs(port, array)
    if array.dtype != port.array_dtype:
        raise DTypeError(
            f"{port.name!r} is {port.text()}, got an array of {array.dtype}: cast it first"
        )
    return array


def _pairs(port: Port, array: Array) -> Array:
    """Complex numbers as pairs of floats, in the same memory where it is contiguous."""
    if port.is_written and array.flags.num & READABLE != READABLE:
        raise ShapeError(
            f"{port.name!r} is written by the plan and needs an aligned, contiguous array, "
            f"got strides {array.strides} for shape {array.shape}"
        )
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(port.array_dtype).reshape(*array.shape, 2)


def check_element_count(port: Port, array: Array, shape: Sequence[int]) -> None:
    if array.size != prod(shape):
        raise ShapeError(
            f"{port.name!r} is {port.text()}, here of shape {tuple(shape)}, "
            f"got an array of shape {array.shape}"
        )


def unknown_port(name: str, ports: Mapping[str, Port]) -> BufferNotFound:
    known = ", ".join(ports) or "none"
    return BufferNotFound(repr(name), f"the named inputs and outputs of the plan ({known})")


def clash(port: Port, other: str) -> ExecutionError:
    return ExecutionError(
        f"cannot bind {port.name!r} to memory that the plan also uses as {other}: "
        "one of the two is written during a run; give it memory of its own"
    )


def _unbound(shape: Shape) -> Shape:
    """The shape over variables alone: what they were bound to is only where a plan starts."""
    return tuple([_without_binds(size) if isinstance(size, UOp) else size for size in shape])


def _without_binds(size: UOp) -> UOp:
    binds = {node: node.src[0] for node in size.toposort() if node.op == O.BIND}
    return substitute((size,), binds)[0]
