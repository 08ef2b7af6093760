"""ExecutionPlan: everything a computation needs, prepared once and run many times.

In: prepared ops, buffers and order from the builder. Out: results in the output buffers.
A plan owns its buffers and shares compiled kernels. It runs under its own lock, so any number of
threads may use it; `replicate()` gives another plan with memory of its own. Values of variables
and bound buffers stay until they are changed. Plans of native CPU kernels run in one native call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakSet

from numpy.typing import NDArray

from svod.base.above import above
from svod.base.errors import ExecutionError, VariableError
from svod.base.knobs import knobs
from svod.device.buffer import Buffer, Storage
from svod.dtype import types as dt
from svod.runtime.executor import group_ops, run_groups
from svod.runtime.flat import FlatPlan
from svod.runtime.flatten import flatten
from svod.runtime.kept import KeptPlan, kept_plan
from svod.runtime.memory import MemoryReport
from svod.runtime.native import Stamps, launcher
from svod.runtime.ops import (
    CompiledKernel,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)
from svod.runtime.plan_facts import NO_FACTS, PlanFacts
from svod.runtime.ports import Port, PortSpec, unknown_port, written_places
from svod.runtime.profile import KernelProfile, ProfileTable, Roofline, profile_table
from svod.runtime.variables import Bindings, PlanVariables
from svod.runtime.wiring import Wiring, fill_pointers

Array: TypeAlias = NDArray[Any]
# Called after every run of every plan with what `ExecutionPlan.profiles_of` makes profiles of.
Watcher: TypeAlias = Callable[["ExecutionPlan", Stamps | list[KernelProfile]], object]
watchers: list[Watcher] = []


class ExecutionPlan:
    """A prepared computation. Made by `ExecutionPlanBuilder.build()`, never by hand."""

    __slots__ = (
        "__weakref__", "_alias_ids", "_ast_to_buffer", "_bind", "_device", "_flat", "_groups",
        "_instance_dependencies", "_is_running", "_levels", "_lock", "_ops", "_order",
        "_outputs", "_ports", "_run", "_specs", "_variables", "_wiring", "facts", "memory",
    )  # fmt: skip

    def __init__(
        self,
        ops: Sequence[PreparedOp],
        instance_dependencies: Sequence[Sequence[int]],
        order: Sequence[int],
        levels: Sequence[Sequence[int]],
        buffers: Sequence[Buffer],
        ast_to_buffer: Mapping[int, int],
        outputs: Sequence[int],
        device: str,
        alias_ids: Sequence[int],
        ports: Sequence[PortSpec],
        memory: MemoryReport,
    ) -> None:
        self._ops = tuple(ops)
        self._instance_dependencies = tuple(tuple(row) for row in instance_dependencies)
        self._order = tuple(order)
        self._levels = tuple(tuple(level) for level in levels)
        self._ast_to_buffer = dict(ast_to_buffer)
        self._outputs = tuple(outputs)
        self._device = device
        self._alias_ids = tuple(alias_ids)
        self._specs = tuple(ports)
        self.memory = memory
        self.facts: PlanFacts = NO_FACTS
        self._variables = PlanVariables(self._ops)
        self._lock = threading.RLock()
        self._is_running = False
        fill_pointers(self._ops, buffers)
        self._groups = group_ops(self._ops, self._levels, buffers)
        self._flat = flatten(self._ops, self._groups, buffers)
        is_one_call = self._flat is not None and not self._flat.has_stops
        self._run = self._flat.run if self._flat is not None and is_one_call else None
        self._wiring = Wiring(self._ops, buffers, self._specs, self._flat, self._variables)
        self._bind = self._wiring.bind
        self._ports = self._wiring.ports
        _plans.add(self)
        if knobs.top:
            above("publishing").publish()

    # -- running --------------------------------------------------------------------------------

    def execute(self) -> None:
        """Run everything once, with the values and buffers bound now."""
        run = self._run
        if run is None or watchers:
            self._execute_watched()
            return
        with self._lock:
            run()

    def execute_profiled(self) -> list[KernelProfile]:
        """Run once and return a profile per compiled kernel, in the order of execution."""
        flat = self._flat
        if flat is None:
            profiles: list[KernelProfile] = []
            self._execute_with_python(profiles)
            return profiles
        return flat.profiles(self._execute_stamped(flat))

    def profiles_of(self, found: Stamps | list[KernelProfile]) -> list[KernelProfile]:
        """The profiles of a run, from what a watcher was given."""
        if isinstance(found, Stamps):
            assert self._flat is not None, "only native runs have stamps"
            return self._flat.profiles(found)
        return found

    def execute_with_vars(self, values: Bindings) -> None:
        """Give variables other values, then run; nothing is compiled.

        The values stay for later runs. Each must lie within the bounds its variable was declared
        with: buffers were sized for the maximum, so a value outside them is refused and the plan
        is left as it was.
        """
        with self._lock:
            self.set_vars(values)
            self.execute()

    def execute_with_vars_profiled(self, values: Bindings) -> list[KernelProfile]:
        """`execute_with_vars`, with a profile per compiled kernel."""
        with self._lock:
            self.set_vars(values)
            return self.execute_profiled()

    def set_vars(self, values: Bindings) -> None:
        """Give variables other values, for the next and all later runs."""
        with self._lock:
            self._wiring.set_vars(values)

    def __call__(self, **values: Any) -> Array | tuple[Array, ...]:
        """Bind inputs, outputs and variables by name, run, and return the outputs as arrays.

        The arrays are copies, so they stay what they are; an output that was given an array in
        this call is written in place and that array is returned. Where the shape of an input holds
        variables, they take the values the array's shape says. Variables given by name have their
        values in this call only.
        """
        with self._lock:
            variables = {name: v for name, v in values.items() if name not in self._ports}
            unknown = variables.keys() - self._variables.bounds.keys()
            if unknown:
                raise unknown_port(sorted(unknown)[0], self._ports)
            if not variables and not self._wiring.has_sizes:
                self.bind(**values)
                self.execute()
                return self._results(values, {})
            return self._call_with_sizes(values, variables)

    def _call_with_sizes(
        self, values: Mapping[str, Any], variables: Mapping[str, int]
    ) -> Array | tuple[Array, ...]:
        """A call where variables change: those that are named go back to what they were."""
        wiring = self._wiring
        before = self._variables.current()
        bound = {name: v for name, v in values.items() if name in self._ports}
        implied = wiring.implied(bound)
        for name, value in self._variables.check(variables).items():
            if implied.get(name, value) != value:
                raise VariableError(
                    f"variable {name} is {value} in this call, but the shape of an array that is "
                    f"bound says {implied[name]}"
                )
        sizes = {**before, **implied, **variables}
        small = {name: v for name, v in bound.items() if wiring.is_small_output(name, v, sizes)}
        changed = set(variables) | set(implied)
        self.set_vars({name: sizes[name] for name in changed})
        try:
            self.bind(**{name: v for name, v in bound.items() if name not in small})
            changed -= set(implied)  # what is bound now has these sizes
            self.execute()
            return self._results(bound, small)
        finally:
            self.set_vars({name: before[name] for name in changed if name in before})

    def _results(
        self, given: Mapping[str, Any], small: Mapping[str, Any]
    ) -> Array | tuple[Array, ...]:
        """The outputs as arrays; ``small`` are those that take a copy of the part that is used."""
        found = []
        for port in self._ports.values():
            if not port.is_output:
                continue
            target = small.get(port.name)
            array = self._wiring.result(port, None if target is not None else given.get(port.name))
            if target is not None:
                target[...] = array
                array = target
            found.append(array)
        return found[0] if len(found) == 1 else tuple(found)

    def without_memory(self, inputs: Sequence[int]) -> KeptPlan | None:
        """The plan for runs over other memory, given the ids of its inputs' nodes; None where it
        is more than one native call of kernels, or has variables."""
        flat = self._flat
        if self._run is None or flat is None or flat.has_checks or self._variables.bounds:
            return None
        places = [self._ast_to_buffer.get(node) for node in inputs]
        return kept_plan(self._ops, flat, self._buffers(), places, self._outputs)

    def profile(self, runs: int = 1, roofline: Roofline | None = None) -> ProfileTable:
        """Run and show the time per kernel, with rates where the kernels carry estimates.

        The last column is the share of what this machine can do at best, which is measured once
        and then kept; `roofline` takes its place.
        """
        profiles = [profile for _ in range(runs) for profile in self.execute_profiled()]
        if roofline is None and any(p.kernel.bytes_moved is not None for p in profiles):
            from svod.runtime.roofline import measured_roofline

            roofline = measured_roofline()
        return profile_table(profiles, roofline)

    def save(
        self,
        path: str | os.PathLike[str],
        weights: bool = True,
        without: Collection[str] = (),
        portable: bool = False,
    ) -> None:
        """Write the plan to a file that `svod.load_plan` turns into a plan again.

        The file holds the machine code and the content of everything a run needs but does not
        make: weights, and what is bound to the inputs now. `without` names inputs to leave out,
        `weights=False` leaves out all of it; what is left out must be bound after loading.
        With `portable=True` it holds graphs instead of machine code: it loads on every machine
        and needs no trust, but is compiled there.
        """
        from svod.runtime.save import save_plan

        save_plan(self, os.fspath(path), weights, without, portable)

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "model",
        target: str | None = None,
        inputs: Collection[str] | None = None,
    ) -> None:
        """Write the plan for programs without Python: an object, a C header, the weights.

        The folder gets ``name.o``, ``name.h``, ``name.weights``, a ``CMakeLists.txt`` and
        ``example.c``. Results have the same bits as here. ``inputs`` names what every run is
        given; the content of other inputs is stored with the weights. ``target`` compiles the
        kernels once more for another machine; `prepare` with a target chooses better loops.
        """
        with self._lock:
            above("export").export_plan(self, os.fspath(folder), name, target, inputs)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        before: ExecutionPlan | None = None,
        title: str = "plan",
        runs: int = 3,
        paths: bool = False,
    ) -> None:
        """Write all that is known of the plan as one HTML file that needs no network.

        It is run a few times on a copy of what it writes, for the times; ``runs=0`` leaves them
        out. ``before`` is another plan to show beside it. Files of user code are named without
        their folders unless ``paths`` is set.
        """
        above("viz").write_report(self, path, before=before, title=title, runs=runs, paths=paths)

    def view(
        self,
        *,
        before: ExecutionPlan | None = None,
        title: str = "plan",
        runs: int = 3,
        browser: bool = True,
    ) -> Any:
        """Serve the same page on the loopback address, and open it in the browser.

        The server ends with the process, or with ``close()`` of what is returned.
        """
        return above("viz").view(self, before=before, title=title, runs=runs, browser=browser)

    # -- inputs and outputs by name -------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, Buffer]:
        """The buffers bound to the named inputs."""
        buffers = self._buffers()
        return {p.name: p.given(buffers[p.index]) for p in self._ports.values() if not p.is_output}

    @property
    def outputs(self) -> dict[str, Buffer]:
        """The buffers bound to the named outputs."""
        buffers = self._buffers()
        return {p.name: p.given(buffers[p.index]) for p in self._ports.values() if p.is_output}

    @property
    def ports(self) -> tuple[Port, ...]:
        """Names, dtypes and shapes of inputs and outputs."""
        return tuple(self._ports.values())

    def bind(self, name: str | None = None, value: object = None, /, **values: object) -> None:
        """Let named inputs or outputs use other memory, without a copy where that is possible.

        `plan.bind(x=first, y=second)`, or `plan.bind("x", first)` for one. A value is a buffer,
        a NumPy array or anything with DLPack. An input that is not contiguous is copied. Where
        the shape of the port holds variables, they take the values the array's shape says.
        """
        if name is not None:
            values[name] = value
        with self._lock:
            self._bind(values)

    # -- looking at a plan ----------------------------------------------------------------------

    def output_buffer(self) -> Buffer | None:
        """The first output, or None where there is none."""
        return self.output_buffer_at(0)

    def output_buffer_at(self, position: int) -> Buffer | None:
        """An output by its position among the roots that were asked for, or None."""
        if not 0 <= position < len(self._outputs):
            return None
        return self._buffers()[self._outputs[position]]

    def output_buffers(self) -> list[Buffer]:
        return [self._buffers()[place] for place in self._outputs]

    def num_outputs(self) -> int:
        return len(self._outputs)

    def output_buffer_idx(self) -> int:
        """The place of the first output in the buffer table."""
        if not self._outputs:
            raise ExecutionError("the plan has no output buffers")
        return self._outputs[0]

    def output_buffer_indices(self) -> tuple[int, ...]:
        return self._outputs

    def buffer(self, ast_id: int) -> Buffer | None:
        """A buffer by the id of its graph node, also to copy new input data in; or None."""
        place = self._ast_to_buffer.get(ast_id)
        return None if place is None else self._buffers()[place]

    def buffer_at(self, index: int) -> Buffer | None:
        """A buffer by its place in the table, or None."""
        buffers = self._buffers()
        return buffers[index] if 0 <= index < len(buffers) else None

    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers: inputs, intermediates and outputs."""
        return tuple(self._buffers())

    def ast_to_buffer_map(self) -> dict[int, int]:
        """Ids of graph nodes to places in the buffer table."""
        return dict(self._ast_to_buffer)

    def device(self) -> str:
        """The primary device; single kernels may run elsewhere."""
        return self._device

    def prepared_ops(self) -> tuple[PreparedOp, ...]:
        """All ops, in schedule order."""
        return self._ops

    def prepared_kernels(self) -> list[PreparedKernel]:
        return [op for op in self._ops if isinstance(op, PreparedKernel)]

    def kernels(self) -> Iterator[CompiledKernel]:
        """The compiled kernel of every launch, to read its source."""
        return (kernel.kernel for kernel in self.prepared_kernels())

    @property
    def order(self) -> tuple[int, ...]:
        """Indices of the ops in an order that respects all dependencies."""
        return self._order

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops in waves: the ops of a level depend only on earlier levels."""
        return self._levels

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops as they run: the ops of a group may run side by side."""
        return tuple(tuple(group) for group in self._groups)

    @property
    def instance_dependencies(self) -> tuple[tuple[int, ...], ...]:
        """Per op, the indices of ops it waits for beyond its id dependencies."""
        return self._instance_dependencies

    @property
    def alias_ids(self) -> tuple[int, ...]:
        return self._alias_ids

    @property
    def variables(self) -> dict[str, int]:
        """What callers bound last, by name."""
        return dict(self._variables.bound)

    @property
    def bounds(self) -> dict[str, list[tuple[int, int]]]:
        """The bounds of every variable, both included; each kernel that uses it has its own."""
        return {name: list(limits) for name, limits in self._variables.bounds.items()}

    @property
    def flat(self) -> FlatPlan | None:
        """The records of a plan that native code runs."""
        return self._flat

    @property
    def is_native(self) -> bool:
        """Whether a run is one native call."""
        return self._run is not None

    def __repr__(self) -> str:
        return (
            f"ExecutionPlan(ops={len(self._ops)}, "
            f"op_instance_dependencies={len(self._instance_dependencies)}, "
            f"op_order={len(self._order)}, kernels={len(self.prepared_kernels())}, "
            f"buffers={len(self._wiring.buffers)}, device={self._device})"
        )

    def _repr_html_(self) -> str:
        return str(above("notebook").plan_html(self))

    # -- releasing and copying ------------------------------------------------------------------

    def release_intermediate_buffers(self, remove: Callable[[int], object]) -> None:
        """Call `remove` with every graph id the plan holds, except those of output buffers."""
        self._release(remove, {buffer.id for buffer in self.output_buffers()})

    def release_all_buffers(self, remove: Callable[[int], object]) -> None:
        """Call `remove` with every graph id the plan holds."""
        self._release(remove, set())

    def replicate(self) -> ExecutionPlan:
        """A second plan that shares compiled kernels and whatever is only read.

        Everything a run writes is memory of the new plan, with a copy of what is there now.
        """
        with self._lock:
            held = self._buffers()
            places = [place for place in written_places(self._ops) if place < len(held)]
            written = {held[place].storage for place in places}
            written |= {port.private.storage for port in self.ports if port.private is not None}
            fresh = {storage: _copy_storage(storage) for storage in written}
            buffers = [
                Buffer(fresh[b.storage], b.size, b.dtype, b.offset) if b.storage in fresh else b
                for b in held
            ]
            twin = ExecutionPlan(
                [_copy_op(op) for op in self._ops], self._instance_dependencies, self._order,
                self._levels, buffers, self._ast_to_buffer, self._outputs, self._device,
                self._alias_ids, self._specs, self.memory,
            )  # fmt: skip
            twin.facts = self.facts
            twin._variables.bound.update(self._variables.bound)
            return twin

    # -- helpers --------------------------------------------------------------------------------

    def _execute_watched(self) -> None:
        """Run, and hand what is known of the run to those who watch."""
        if not watchers:
            self._execute_with_python(None)
        elif self._flat is not None:
            stamps = self._execute_stamped(self._flat)
            for watch in tuple(watchers):
                watch(self, stamps)
        else:
            profiles: list[KernelProfile] = []
            self._execute_with_python(profiles)
            for watch in tuple(watchers):
                watch(self, profiles)

    def _execute_stamped(self, flat: FlatPlan) -> Stamps:
        """Run with times taken in native code."""
        with self._lock:
            self._enter()
            try:
                stamps = launcher().stamps_for(flat.records)
                flat.run_with_stops(self._buffers(), self._variables.bound, stamps)
                return stamps
            finally:
                self._is_running = False

    def _execute_with_python(self, profiles: list[KernelProfile] | None) -> None:
        with self._lock:
            self._enter()
            try:
                bound = self._variables.bound
                if self._flat is None:
                    run_groups(self._ops, self._buffers(), self._groups, bound, profiles)
                else:
                    self._flat.run_with_stops(self._buffers(), bound)
            finally:
                self._is_running = False

    def _buffers(self) -> list[Buffer]:
        """The buffer table, with a buffer also for what was just bound."""
        if self._wiring.stale:
            with self._lock:
                self._wiring.settle()
        return self._wiring.buffers

    def _enter(self) -> None:
        """A custom function must not run the plan it is a part of."""
        if self._is_running:
            raise ExecutionError("a plan cannot run again while it is running in the same thread")
        self._is_running = True

    def _release(self, remove: Callable[[int], object], kept: set[int]) -> None:
        for ast_id, place in self._ast_to_buffer.items():
            if self._buffers()[place].id not in kept:
                remove(ast_id)
        for alias in self._alias_ids:
            remove(alias)


def _copy_storage(storage: Storage) -> Storage:
    """Fresh memory with the same bytes."""
    twin = Storage(storage.device, storage.nbytes)
    if storage.is_allocated and storage.nbytes:
        whole = Buffer(twin, storage.nbytes, dt.uint8)
        whole.copy_from(Buffer(storage, storage.nbytes, dt.uint8))
    return twin


def _copy_op(op: PreparedOp) -> PreparedOp:
    """The same op with lists of its own; code and graph are shared."""
    if isinstance(op, PreparedKernel):
        return replace(op, vals=list(op.vals), buffer_ptrs=[], buffer_ids=[])
    if isinstance(op, PreparedCustomFunction):
        return replace(op, fixedvars=dict(op.fixedvars))
    return replace(op)


_plans: WeakSet[ExecutionPlan] = WeakSet()


def _fresh_locks() -> None:
    """In a forked child no other thread exists that could release a lock."""
    for plan in _plans:
        plan._lock = threading.RLock()
        plan._is_running = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_locks)
