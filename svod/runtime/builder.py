"""ExecutionPlanBuilder: collects ops and buffers, checks them, and makes an ExecutionPlan.

In: buffers and ops in schedule order. Out: a plan with order, levels, groups and addresses fixed.
What compiled kernels get wrong is an error here; a faulty copy, view or custom function is one
when the plan runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from svod.base.errors import DeviceError, ExecutionError
from svod.device.buffer import Buffer
from svod.device.names import can_use, canonical
from svod.runtime.failures import OpError
from svod.runtime.memory import MemoryReport
from svod.runtime.ops import PreparedCopy, PreparedKernel, PreparedOp
from svod.runtime.order import order_and_levels
from svod.runtime.plan import ExecutionPlan
from svod.runtime.ports import PortSpec, Shape, written_places


class ExecutionPlanBuilder:
    """Starts empty, for a device."""

    __slots__ = (
        "_alias_ids", "_ast_to_buffer", "_buffers", "_device", "_instance_dependencies",
        "_memory", "_ops", "_outputs", "_ports",
    )  # fmt: skip

    def __init__(self, device: str = "CPU") -> None:
        self._device = canonical(device)
        self._ops: list[PreparedOp] = []
        self._instance_dependencies: list[list[int]] = []
        self._buffers: list[Buffer] = []
        self._ast_to_buffer: dict[int, int] = {}
        self._outputs: list[int] = []
        self._alias_ids: list[int] = []
        self._ports: list[PortSpec] = []
        self._memory = MemoryReport()

    # -- buffers --------------------------------------------------------------------------------

    def add_buffer(self, ast_id: int, buffer: Buffer) -> int:
        """Append a buffer under the id of its graph node; returns its place in the table."""
        self._ast_to_buffer[ast_id] = place = self.append_buffer(buffer)
        return place

    def append_buffer(self, buffer: Buffer) -> int:
        """Append a buffer that belongs to no graph node; returns its place in the table."""
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def map_buffer(self, ast_id: int, index: int) -> None:
        """Let a further graph id name a buffer that is already there."""
        self._ast_to_buffer[ast_id] = index

    def replace_buffer(self, index: int, buffer: Buffer) -> None:
        """Put another buffer into a place, such as a view of its base."""
        self._buffers[index] = buffer

    def buffer_at(self, index: int) -> Buffer:
        """The buffer in a place."""
        return self._buffers[index]

    def add_alias_ids(self, ids: Iterable[int]) -> None:
        """Further graph ids to release with the plan."""
        self._alias_ids.extend(ids)

    # -- inputs and outputs ---------------------------------------------------------------------

    def set_output_buffer(self, index: int) -> None:
        """One output, in place of all that were set before."""
        self._outputs = [index]

    def set_output_buffers(self, indices: Sequence[int]) -> None:
        """The outputs in the order of the roots, in place of all that were set before."""
        self._outputs = list(indices)

    def name_input(
        self, name: str, index: int, shape: Shape | None = None, is_complex: bool = False
    ) -> None:
        """Give an input a name, to bind other memory to it; the shape may hold variables."""
        self._ports.append(PortSpec(name, index, shape, False, is_complex))

    def name_output(
        self, name: str, index: int, shape: Shape | None = None, is_complex: bool = False
    ) -> None:
        """Give an output a name."""
        self._ports.append(PortSpec(name, index, shape, True, is_complex))

    def set_memory_report(self, report: MemoryReport) -> None:
        """What the memory planner decided; `build()` adds what lies outside its arenas."""
        self._memory = report

    # -- ops ------------------------------------------------------------------------------------

    def add_op_with_instance_dependencies(
        self, op: PreparedOp, instance_dependencies: Sequence[int]
    ) -> None:
        """Append an op in schedule order, with the indices of further ops it waits for."""
        self._ops.append(op)
        self._instance_dependencies.append(list(instance_dependencies))

    def add_op(self, op: PreparedOp) -> None:
        """Append an op without instance dependencies."""
        self.add_op_with_instance_dependencies(op, ())

    def add_kernel(self, kernel: PreparedKernel) -> None:
        """Append a compiled kernel."""
        self.add_op(kernel)

    def add_copy(self, place: int) -> int:
        """Copy what the ops so far leave in a place to new memory; returns the place of that."""
        value = self._buffers[place]
        twin = self.append_buffer(Buffer.new(value.device, value.size, value.dtype))
        before = [n for n, op in enumerate(self._ops) if place in written_places((op,))]
        copy = PreparedCopy(max(op.id for op in self._ops) + 1, [twin, place])
        self.add_op_with_instance_dependencies(copy, before)
        return twin

    # -- building -------------------------------------------------------------------------------

    def build(self) -> ExecutionPlan:
        """Check everything and make the plan; buffers take their memory now."""
        checked: set[tuple[int, int]] = set()  # turns of a loop share these lists
        for op in self._ops:
            if isinstance(op, PreparedKernel):
                wires = id(op.buffer_indices), id(op.output_indices)
                if wires not in checked:
                    self._check_kernel(op)
                    checked.add(wires)
        self._check_outputs()
        order, levels = order_and_levels(self._ops, self._instance_dependencies)
        for buffer in self._buffers:
            buffer.allocate()
        return ExecutionPlan(
            self._ops,
            self._instance_dependencies,
            order,
            levels,
            self._buffers,
            self._ast_to_buffer,
            self._outputs,
            self._device,
            self._alias_ids,
            self._ports,
            self._memory.with_fixed(max(0, self._held_bytes() - self._memory.planned_bytes)),
        )

    def _check_kernel(self, kernel: PreparedKernel) -> None:
        if not kernel.output_indices:
            raise _build_error(kernel, "has no output indices")
        for output in kernel.output_indices:
            if not 0 <= output < len(kernel.buffer_indices):
                raise _build_error(
                    kernel,
                    f"output index out of range: output_idx={output}, "
                    f"kernel_buffers={len(kernel.buffer_indices)}",
                )
        for index in kernel.buffer_indices:
            if not 0 <= index < len(self._buffers):
                raise _build_error(
                    kernel,
                    f"buffer index out of range: idx={index}, total_buffers={len(self._buffers)}",
                )
        for index in kernel.buffer_indices:
            if not can_use(kernel.device, self._buffers[index].device):
                raise self._elsewhere(kernel, index)
        for output in kernel.output_indices:
            written = self._buffers[kernel.buffer_indices[output]]
            if written.is_read_only:
                raise _build_error(kernel, f"writes {written!r}, which is read-only")

    def _elsewhere(self, kernel: PreparedKernel, index: int) -> DeviceError:
        """A kernel was about to be given memory of another device."""
        buffer = self._buffers[index]
        names = [port.name for port in self._ports if port.index == index]
        what = f"{names[0]!r}, " if names else ""
        return DeviceError(
            f"kernel {kernel.kernel.entry_point} runs on {kernel.device}, but {what}a tensor of "
            f"{buffer.size} {buffer.dtype.name} that it uses is on {buffer.device}: move it with "
            f".to({kernel.device!r})"
        )

    def _check_outputs(self) -> None:
        total = len(self._buffers)
        if not self._outputs and total:
            raise ExecutionError("execution plan output buffers must be set explicitly")
        for index in self._outputs:
            if not 0 <= index < total:
                raise ExecutionError(
                    f"execution plan output buffer index out of range: idx={index}, "
                    f"total_buffers={total}"
                )
        for ast_id, index in self._ast_to_buffer.items():
            if not 0 <= index < total:
                raise ExecutionError(
                    f"graph id {ast_id} is mapped to a buffer index out of range: idx={index}, "
                    f"total_buffers={total}"
                )
        names: set[str] = set()
        for port in self._ports:
            if not 0 <= port.index < total:
                raise ExecutionError(
                    f"{port.name!r} names a buffer index out of range: idx={port.index}, "
                    f"total_buffers={total}"
                )
            if port.name in names:
                raise ExecutionError(f"two inputs or outputs of the plan are called {port.name!r}")
            names.add(port.name)

    def _held_bytes(self) -> int:
        """Bytes of all distinct storages of the plan."""
        return sum({b.storage: b.storage.nbytes for b in self._buffers}.values())


def _build_error(kernel: PreparedKernel, what: str) -> OpError:
    return OpError(f"CompiledProgram {kernel.id} {what}", kernel.id, "kernel")
