"""The buffers of a plan and everything that holds their addresses.

In: the ops, the buffer table and the named ports of one plan. Out: the same plan on other memory
and other values: kernels, records, views and ports all follow. The caller holds the plan's lock.
Binding an array to a native plan writes its address and makes no buffer; `settle` makes the
missing ones when somebody asks for the buffer table.
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import ExecutionError, ShapeError
from svod.device.buffer import Buffer
from svod.dtype.convert import from_numpy
from svod.runtime.executor import memory_range
from svod.runtime.flat import FlatPlan
from svod.runtime.ops import PreparedBufferView, PreparedKernel, PreparedOp
from svod.runtime.ports import (
    READABLE,
    WRITABLE,
    FixedMemory,
    Port,
    PortSpec,
    SortedRanges,
    as_array,
    buffer_for,
    check_element_count,
    clash,
    unknown_port,
    view_roots,
    written_places,
)
from svod.runtime.variables import Bindings, PlanVariables

Array: TypeAlias = NDArray[Any]
_ndarray = np.ndarray


# NumPy's array object as its binary interface lays it out, after the head of every object: data, 4
# words, dtype, flags. To read these here takes a tenth of the time of `array.ctypes.data`. A probe
# tells whether it holds for this interpreter and this NumPy; where not, binding takes the long way.
_HEAD = object.__basicsize__
_fields_at = Struct("=Q32xQi").unpack_from


def _memory_of_objects() -> Any:  # a buffer
    """What follows the head of an object, at its id; None where there can be no such buffer."""
    try:
        return memoryview((ctypes.c_char * (1 << 48)).from_address(_HEAD)).cast("B")
    except (OverflowError, MemoryError, ValueError):
        return None


_MEMORY = _memory_of_objects()


def _is_as_described() -> bool:
    if (
        sys.implementation.name != "cpython"
        or _MEMORY is None
        or ctypes.sizeof(ctypes.c_void_p) != 8
    ):
        return False
    probes = [np.zeros(3), np.zeros(4)[1:], np.zeros((2, 3)).T, np.zeros(6)[::2]]
    probes.append(np.frombuffer(b"read-only", np.uint8))
    found = [_fields_at(_MEMORY, id(probe)) for probe in probes]
    return found == [(p.ctypes.data, id(p.dtype), p.flags.num) for p in probes]


_IS_AS_DESCRIBED = _is_as_described()
# A port; what arrays need to be bound the short way: bytes, id of the dtype and flags; what they
# must keep clear of; the first and the other words that hold the address.
_Shortcut: TypeAlias = tuple[
    Port, int, int, int, tuple[Port, ...], tuple[SortedRanges, ...], int, tuple[int, ...]
]


# The same for buffers: a port, its device, the words with its address, what to keep clear of.
_Direct: TypeAlias = tuple[Port, str, tuple[int, ...], tuple[SortedRanges, ...]]


class Wiring:
    """Which memory a plan uses for what."""

    __slots__ = (
        "_direct", "_fixed", "_flat", "_ops", "_shortcuts", "_variables", "_views", "_words",
        "buffers", "has_sizes", "ports", "stale",
    )  # fmt: skip

    def __init__(
        self,
        ops: Sequence[PreparedOp],
        buffers: Sequence[Buffer],
        specs: Sequence[PortSpec],
        flat: FlatPlan | None,
        variables: PlanVariables,
    ) -> None:
        self._ops = ops
        self._flat = flat
        self._variables = variables
        self._words = flat.words if flat is not None else memoryview(b"")
        self._views = [op for op in ops if isinstance(op, PreparedBufferView)]
        self._fixed = FixedMemory()
        self.buffers = list(buffers)
        self.stale: list[Port] = []  # bound to arrays for which no buffer was made yet
        self._shortcuts: dict[str, _Shortcut] = {}
        self._direct: dict[str, _Direct] = {}
        self.ports = self._make_ports(specs)
        self.has_sizes = any(port.is_symbolic for port in self.ports.values())

    # -- binding memory -------------------------------------------------------------------------

    def bind(self, values: Mapping[str, object]) -> None:
        """See `ExecutionPlan.bind`; one after the other, until one is refused."""
        shortcuts, words = self._shortcuts, self._words
        fields_at, memory = _fields_at, _MEMORY
        for name, value in values.items():
            # The short way, all in one place: it is on the path of every call with new arrays.
            found = shortcuts.get(name)
            if found is not None and type(value) is _ndarray:
                port, nbytes, dtype, flags, rivals, fixed, word, others = found
                if value is port.value:
                    continue
                start, kind, has = fields_at(memory, id(value))
                if kind == dtype and has & flags == flags and value.nbytes == nbytes:
                    end = start + nbytes
                    for rival in rivals:
                        if start < rival.end and rival.start < end:
                            raise clash(port, repr(rival.name))
                    for starts, ends in fixed:
                        if starts[bisect_right(ends, start)] < end:
                            raise clash(port, "an intermediate or a constant")
                    words[word] = port.start = start
                    if others:
                        for other in others:
                            words[other] = start
                    port.end = end
                    port.value = value
                    if not port.is_stale:
                        port.is_stale = True
                        self.stale.append(port)
                    continue
            if name not in self.ports:
                raise unknown_port(name, self.ports)
            self._bind_buffer(self.ports[name], value)

    def rebind(self, values: Mapping[str, object]) -> None:
        """Bind many values at once: they must keep clear of each other, not of what was before."""
        words = self._words
        changed: list[tuple[Port, tuple[SortedRanges, ...]]] = []
        rest: dict[str, object] = {}
        for name, value in values.items():
            if type(value) is not Buffer or name not in self._direct:
                rest[name] = value
                continue
            port, device, held, fixed = self._direct[name]
            if value is port.value:
                continue
            storage = value.storage
            if (
                value.dtype is not port.dtype
                or value.size != port.size
                or storage.device != device
                or (storage.is_read_only and port.is_written)
            ):
                rest[name] = value
                continue
            port.start = start = value.address
            port.end = start + port.nbytes
            port.value = value
            for word in held:
                words[word] = start
            if not port.is_stale:
                port.is_stale = True
                self.stale.append(port)
            changed.append((port, fixed))
        if rest:
            self._bind_together(rest)
        for port, fixed in changed:
            start, end = port.start, port.end
            for rival in port.rivals:
                if start < rival.end and rival.start < end:
                    raise clash(port, repr(rival.name))
            for starts, ends in fixed:
                if starts[bisect_right(ends, start)] < end:
                    raise clash(port, "an intermediate or a constant")

    def implied(self, values: Mapping[str, object]) -> dict[str, int]:
        """The values of variables that the shapes of arrays say."""
        found: dict[str, int] = {}
        for name, value in values.items():
            port = self.ports[name]
            if port.is_output or not port.is_symbolic or isinstance(value, Buffer):
                continue
            for variable, size in port.infer(as_array(port, value).shape).items():
                if found.setdefault(variable, size) != size:
                    raise ShapeError(
                        f"{name!r} is {port.text()}: its array says {variable} is {size}, another "
                        f"one of this call says {found[variable]}"
                    )
        return self._variables.check(found)

    def is_small_output(self, name: str, value: object, sizes: Mapping[str, int]) -> bool:
        """Whether an array takes just the part of an output that variables of these values use."""
        port = self.ports[name]
        if not (port.is_output and port.is_symbolic and isinstance(value, np.ndarray)):
            return False
        shape = port.concrete_shape(sizes)
        shape = shape[:-1] if port.is_complex else shape
        return value.size != port.size and value.shape == shape

    def _bind_buffer(self, port: Port, value: object) -> None:
        buffer = self._buffer_for(port, value)
        self._check_range(port, buffer, {})
        self._replace(port.index, buffer)

    def _bind_together(self, values: Mapping[str, object]) -> None:
        """Memory may change hands between ports: what counts is where all of them are then."""
        found = {
            self.ports[name]: self._buffer_for(self.ports[name], v) for name, v in values.items()
        }
        for port, buffer in found.items():
            self._check_range(port, buffer, found)
        for port, buffer in found.items():
            self._replace(port.index, buffer)

    def _buffer_for(self, port: Port, value: object) -> Buffer:
        if port.obstacle:
            raise ExecutionError(f"cannot bind {port.name!r}: {port.obstacle}")
        self.settle()
        device = self.buffers[port.index].device
        if port.is_symbolic and not isinstance(value, Buffer):
            return self._symbolic_buffer(port, as_array(port, value), device).allocate()
        return buffer_for(port, value, device).allocate()

    def _check_range(self, port: Port, buffer: Buffer, others: Mapping[Port, Buffer]) -> None:
        """Refuse memory that another port or the plan itself uses; ``others`` are bound with it."""
        memory, start, end = memory_range(buffer)
        for rival in port.rivals:
            there = others.get(rival)
            found = (rival.memory, rival.start, rival.end) if there is None else memory_range(there)
            if memory == found[0] and start < found[2] and found[1] < end:
                raise clash(port, repr(rival.name))
        if self._fixed.meets(port.is_written, memory, start, end):
            raise clash(port, "an intermediate or a constant")

    def _symbolic_buffer(self, port: Port, array: Array, device: str) -> Buffer:
        """Memory of the largest size that starts with the array; sets the variables it implies."""
        implied = self._variables.check(port.infer(array.shape))
        values = {**self._variables.current(), **implied}
        shape = port.concrete_shape(values)
        check_element_count(port, array, shape)
        if array.size == port.size:
            buffer = buffer_for(port, array, device)
        elif port.is_written:
            raise ExecutionError(
                f"{port.name!r} is written by the plan, so it needs memory for its largest size, "
                f"{port.size} elements, got {array.size}"
            )
        else:
            if port.private is None:
                port.private = Buffer.new(device, port.size, port.dtype)
            buffer = port.private
            _write_part(port, buffer, array.reshape(shape))
        self.set_vars(implied)
        return buffer

    def _replace(self, place: int, buffer: Buffer) -> None:
        """Put another buffer into the table, into every view of it and into every use."""
        changed = {place}
        self.buffers[place] = buffer
        for view in self._views:  # in schedule order: the view of a view comes later
            if len(view.buffer_indices) > 1 and view.buffer_indices[1] in changed:
                out = view.buffer_indices[0]
                old, base = self.buffers[out], self.buffers[view.buffer_indices[1]]
                self.buffers[out] = base.view(view.byte_offset, old.size, old.dtype)
                changed.add(out)
        fill_pointers(self._ops, self.buffers, changed)
        if self._flat is not None:
            for slot in changed:
                address = self.buffers[slot].address
                for word in self._flat.buffer_words.get(slot, ()):
                    self._words[word] = address
        for port in self.ports.values():
            if port.index in changed:
                port.value = None
                port.place(self.buffers[port.index])

    def settle(self) -> None:
        """Make buffers for the arrays that were bound the short way."""
        stale, self.stale = self.stale, []
        for port in stale:
            array = port.value
            port.is_stale = False
            if isinstance(array, Buffer):
                self._replace(port.index, array)
            elif isinstance(array, np.ndarray):
                device = self.buffers[port.index].device
                self._replace(port.index, Buffer.from_numpy(array, device=device))
                port.value = array

    # -- values and results ---------------------------------------------------------------------

    def set_vars(self, values: Bindings) -> None:
        """Check all values, then write them where they are used; all or nothing."""
        checked = self._variables.check(values)
        sizes = self._flat.sizes_with(checked) if self._flat is not None else ()
        self._variables.update(checked)
        if self._flat is not None:
            self._flat.set_values(checked, sizes)

    def result(self, port: Port, given: object) -> Array:
        """What a run left in an output: the array it was given, or a copy in its shape."""
        if isinstance(given, np.ndarray):
            return given
        if self.stale:
            self.settle()
        shape = port.concrete_shape(self._variables.current() if port.is_symbolic else {})
        buffer = self.buffers[port.index]
        visible = shape[:-1] if port.is_complex else shape
        if port.is_prefix(shape):
            return port.given(buffer.view(0, prod(shape))).copyout().reshape(visible)
        stored = port.stored_shape[: len(visible)]
        whole = port.given(buffer)
        if whole.is_host_visible:  # the part that is used alone
            return whole.numpy().reshape(stored)[_corner(visible)].copy()
        return whole.copyout().reshape(stored)[_corner(visible)].copy()

    # -- ports ----------------------------------------------------------------------------------

    def _make_ports(self, specs: Sequence[PortSpec]) -> dict[str, Port]:
        roots = view_roots(self._ops, len(self.buffers))
        written = {roots[place] for place in written_places(self._ops) if place < len(roots)}
        ports = {
            spec.name: Port(spec, self.buffers[spec.index], roots[spec.index] in written)
            for spec in specs
        }
        bound = {roots[port.index] for port in ports.values()}
        for place, buffer in enumerate(self.buffers):
            if roots[place] not in bound:
                self._fixed.add(buffer, roots[place] in written)
        has_views = {root for place, root in enumerate(roots) if root != place}
        places = Counter([port.index for port in ports.values()])
        written_ports = [port for port in ports.values() if port.is_written]
        is_one_call = self._flat is not None and not self._flat.has_stops
        for port in ports.values():
            others = ports.values() if port.is_written else written_ports
            port.rivals = tuple([o for o in others if roots[o.index] != roots[port.index]])
            port.obstacle = self._obstacle(port, roots)
            is_direct = (
                self._flat is not None
                and is_one_call
                and not port.obstacle
                and port.memory == "host"
                and port.nbytes > 0
                and port.index in self._flat.buffer_words
                and port.index not in has_views
                and places[port.index] == 1
            )
            if is_direct and self._flat is not None:
                device = self.buffers[port.index].device
                self._direct[port.name] = (
                    port, device, tuple(self._flat.buffer_words[port.index]),
                    self._fixed.on_host(port.is_written),
                )  # fmt: skip
            port.is_direct = is_direct and not port.is_symbolic
            if port.is_direct and self._flat is not None and _IS_AS_DESCRIBED:
                word, *more = self._flat.buffer_words[port.index]
                self._shortcuts[port.name] = (
                    port, port.nbytes, id(port.array_dtype),
                    WRITABLE if port.is_written else READABLE, port.rivals,
                    self._fixed.on_host(port.is_written), word, tuple(more),
                )  # fmt: skip
        return ports

    def _obstacle(self, port: Port, roots: Sequence[int]) -> str:
        """Why a port shares memory in a way that rebinding would break, or nothing."""
        if roots[port.index] != port.index:
            return "it is a view of another buffer of the plan"
        if self._fixed.meets(port.is_written, port.memory, port.start, port.end):
            return "the plan uses its memory for something else as well"
        for other in port.rivals:
            if port.memory == other.memory and port.start < other.end and other.start < port.end:
                return f"it shares memory with {other.name!r}"
        return ""


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple([slice(0, size) for size in shape])


def _write_part(port: Port, buffer: Buffer, array: Array) -> None:
    """Put an array that is smaller than the port's memory where a run of its sizes looks for it."""
    if port.is_prefix(array.shape):
        buffer.view(0, array.size).copyin(array.reshape(-1))
        return
    array = np.asarray(array, array.dtype.newbyteorder("="))
    if buffer.is_host_visible and from_numpy(array.dtype) is buffer.dtype:
        buffer.allocate().numpy().reshape(port.stored_shape)[_corner(array.shape)] = array
        return
    whole = np.zeros(port.stored_shape, array.dtype)
    whole[_corner(array.shape)] = array
    buffer.copyin(whole.reshape(-1))


def fill_pointers(
    ops: Sequence[PreparedOp], buffers: Sequence[Buffer], places: Collection[int] | None = None
) -> None:
    """Write addresses and ids of buffers into the kernels that use them, of all or some places."""
    shared: dict[int, tuple[list[int], list[int]]] = {}  # turns of a loop use the same buffers
    for op in ops:
        if not isinstance(op, PreparedKernel):
            continue
        if places is None:
            known = shared.get(id(op.buffer_indices))
            if known is None:
                held = [buffers[place] for place in op.buffer_indices]
                known = shared[id(op.buffer_indices)] = (
                    [b.address for b in held],
                    [b.id for b in held],
                )
            op.buffer_ptrs, op.buffer_ids = known
            continue
        for position, place in enumerate(op.buffer_indices):
            if place in places:
                op.buffer_ptrs[position] = buffers[place].address
                op.buffer_ids[position] = buffers[place].id
