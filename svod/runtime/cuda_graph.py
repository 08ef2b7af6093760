"""A plan of GPU kernels as one graph: launched by one call, patched where values change.

In: prepared ops in their groups, and buffers. Out: a `CudaPlan`, which a plan uses like the flat
plan of native CPU kernels. Kernels and copies within one GPU are nodes; their order is that of the
bytes they touch. All arguments and launch sizes are words in one array; a run compares it with what
the graph has and patches the nodes that differ, so the graph stays. Everything else (copies from
and to the host, custom functions, CPU kernels) is a stop between two graphs.
The first run launches the kernels one by one: a graph pays from the second run on.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref
from typing import Any, TypeGuard

import numpy as np

from svod.base.errors import SvodError, UnsupportedError
from svod.device.buffer import Buffer
from svod.device.cuda.cuda_program import CudaProgram
from svod.device.cuda.driver import Context, KernelNodeParams, MemcpyParams
from svod.device.cuda.driver import context as context_of
from svod.device.cuda.maps import MapMemory
from svod.device.names import base_key, device_number
from svod.ir.guards import CHECK
from svod.runtime.cuda_checks import DeviceChecks
from svod.runtime.executor import check_view, kernel_accesses, launch_dims, memory_range, run_op
from svod.runtime.flat import FlatPlan
from svod.runtime.native import Stamps
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)
from svod.runtime.order import Access
from svod.runtime.profile import KernelProfile

_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE


class _Node:
    """One kernel or copy: its words, and the driver's handle once there is a graph."""

    __slots__ = (
        "block", "first", "handle", "index", "inputs", "kernel", "last", "maps", "nbytes", "params",
        "places", "program", "waits",
    )  # fmt: skip

    def __init__(self, index: int, first: int, inputs: int) -> None:
        self.index = index  # of the op
        self.first = first  # word of the first argument
        self.inputs = inputs  # how many of them are addresses
        self.last = first  # word after the grid
        self.kernel: PreparedKernel | None = None
        self.program: CudaProgram | None = None
        self.maps: MapMemory | None = None
        self.block = (1, 1, 1)
        self.nbytes = 0  # of a copy
        self.waits: list[_Node] = []
        self.handle = 0
        self.places: Any = None  # addresses of the words, as the driver wants them
        self.params: Any = None


class _Segment:
    """Nodes between two stops, and their graph."""

    __slots__ = ("executable", "graph", "nodes")

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.graph = 0
        self.executable = 0


class CudaPlan(FlatPlan):
    """Graphs and stops of a plan on one GPU."""

    __slots__ = (
        "_all_nodes",
        "_applied",
        "_kept_checks",
        "_last_profiles",
        "_memory",
        "_numbers",
        "_owner_of",
        "_runs",
        "_steps",
        "_word_list",
        "context",
    )  # fmt: skip

    def __init__(self, ops: Sequence[PreparedOp], owner: Context) -> None:
        super().__init__(ops)
        self.context = owner
        self._steps: list[_Segment | int] = []  # graphs, and the ops that are stops
        self._word_list: list[int] = []
        self._runs = 0
        self._kept_checks: DeviceChecks | None = None
        self._last_profiles: list[KernelProfile] = []
        self.buffer_words = {}
        self.value_words = {}

    # -- building -------------------------------------------------------------------------------

    def add_launch(self, index: int, kernel: PreparedKernel, program: CudaProgram) -> _Node:
        node = _Node(index, len(self._word_list), len(kernel.buffer_ptrs))
        node.kernel, node.program = kernel, program
        for place, address in zip(kernel.buffer_indices, kernel.buffer_ptrs, strict=True):
            self.buffer_words.setdefault(place, []).append(len(self._word_list))
            self._word_list.append(address)
        for name, value in zip(kernel.kernel.var_names, kernel.vals, strict=True):
            if name not in kernel.fixedvars:
                self.value_words.setdefault(name, []).append(len(self._word_list))
            self._word_list.append(value)
        dims = launch_dims(kernel)
        if kernel.kernel.dims is None:
            self._symbolic.append((len(self._word_list), kernel))
        self._word_list += dims.global_size
        node.block = dims.local_size or (1, 1, 1)
        node.last = len(self._word_list)
        return node

    def add_device_copy(self, index: int, copy: PreparedCopy, buffers: Sequence[Buffer]) -> _Node:
        node = _Node(index, len(self._word_list), 2)
        for place in copy.buffer_indices[:2]:
            self.buffer_words.setdefault(place, []).append(len(self._word_list))
            self._word_list.append(buffers[place].address)
        node.nbytes = buffers[copy.buffer_indices[0]].nbytes
        node.last = len(self._word_list)
        return node

    def add_node(self, node: _Node) -> None:
        if not self._steps or not isinstance(self._steps[-1], _Segment):
            self._steps.append(_Segment())
        segment = self._steps[-1]
        assert isinstance(segment, _Segment)
        segment.nodes.append(node)

    def add_stop(self, index: int, group: int = 0) -> None:
        self._steps.append(index)
        self.has_stops = True

    def add_checks(
        self, checks: Sequence[PreparedCustomFunction], buffers: Sequence[Buffer]
    ) -> None:
        """Keep the words of these checks after every run."""
        self._kept_checks = DeviceChecks(self.context, checks, buffers)

    def freeze(self) -> CudaPlan:
        """Lay the words out; from now on only they change."""
        self._memory = (ctypes.c_int64 * max(1, len(self._word_list)))(*self._word_list)
        self.words = memoryview(self._memory).cast("B").cast("q")
        self._numbers = np.frombuffer(self.words, np.int64)
        self._applied = self._numbers.copy()
        start = ctypes.addressof(self._memory)
        self._all_nodes: list[tuple[_Segment, _Node]] = []
        self._owner_of: list[int] = []  # word -> place of its node
        for step in self._steps:
            for node in step.nodes if isinstance(step, _Segment) else ():
                assert isinstance(step, _Segment)
                self._owner_of += [len(self._all_nodes)] * (node.last - node.first)
                self._all_nodes.append((step, node))
                if node.program is None:
                    continue
                count = node.last - node.first - 3
                addresses = [start + 8 * (node.first + i) for i in range(count)]
                if node.program.tensors:
                    node.maps = MapMemory(node.program.tensors)
                    addresses += node.maps.places
                node.places = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
                node.params = KernelNodeParams()
                node.params.shared = node.program.shared
                node.params.params = ctypes.addressof(node.places)
                node.params.block_x, node.params.block_y, node.params.block_z = node.block
        self.run = self._run_all
        return self

    # -- changing values ------------------------------------------------------------------------

    def sizes_with(self, values: Mapping[str, int]) -> list[tuple[int, int]]:
        found = []
        for word, kernel in self._symbolic:
            size = launch_dims(kernel, values).global_size
            found += [(word + axis, size[axis]) for axis in range(3)]
        return found

    # -- running --------------------------------------------------------------------------------

    def _run_all(self) -> int:
        """Start everything; where there are no stops."""
        self.context.use()
        self._settle()
        for step in self._steps:
            assert isinstance(step, _Segment)
            self._start(step)
        self._keep_words()
        return 0

    def run_with_stops(
        self, buffers: Sequence[Buffer], variables: Mapping[str, int], stamps: Stamps | None = None
    ) -> None:
        """Run, with Python at the stops; where stamps are wanted, kernels run one by one."""
        self.context.use()
        self._settle()
        if stamps is not None:
            self._last_profiles = self._run_profiled(buffers, variables)
            self._keep_words()
            return
        for step in self._steps:
            if isinstance(step, _Segment):
                self._start(step)
            else:
                self._finish_for(step, buffers)
                run_op(self._ops[step], buffers, variables)
        self._keep_words()

    def profiles(self, stamps: Stamps) -> list[KernelProfile]:
        """What the last run with stamps took; the times are those of the GPU's events."""
        return self._last_profiles

    def _keep_words(self) -> None:
        if self._kept_checks is not None:
            self._kept_checks.keep()

    def _finish_for(self, index: int, buffers: Sequence[Buffer]) -> None:
        """Host code that is not one of our copies must see finished work."""
        if not isinstance(self._ops[index], PreparedCopy):
            self.context.synchronize()

    def _run_profiled(
        self, buffers: Sequence[Buffer], variables: Mapping[str, int]
    ) -> list[KernelProfile]:
        """One by one, with events around each kernel."""
        driver, stream = self.context.driver, self.context.stream
        marks: list[tuple[_Node, int, int]] = []
        origin = driver.handle("cuEventCreate", 0)
        driver.call("cuEventRecord", origin, stream)
        for step in self._steps:
            if not isinstance(step, _Segment):
                self._finish_for(step, buffers)
                run_op(self._ops[step], buffers, variables)
                continue
            for node in step.nodes:
                start, stop = (driver.handle("cuEventCreate", 0) for _ in range(2))
                driver.call("cuEventRecord", start, stream)
                self._launch(node)
                driver.call("cuEventRecord", stop, stream)
                marks.append((node, start, stop))
        self.context.synchronize()
        profiles = []
        for node, start, stop in marks:
            began, ended = (int(1e6 * driver.elapsed_ms(origin, e)) for e in (start, stop))
            if node.kernel is not None:
                kernel = node.kernel
                profiles.append(
                    KernelProfile(
                        kernel.kernel,
                        kernel.device,
                        len(kernel.buffer_indices),
                        began,
                        ended,
                        0,
                        node.index,
                    )
                )
            for event in (start, stop):
                driver.call("cuEventDestroy_v2", event)
        driver.call("cuEventDestroy_v2", origin)
        return profiles

    # -- graphs ---------------------------------------------------------------------------------

    def _start(self, segment: _Segment) -> None:
        if not segment.executable:
            for node in segment.nodes:
                self._launch(node)
            return
        driver = self.context.driver
        code = driver.graph_launch(segment.executable, self.context.stream)
        if code:
            raise driver.fault("cuGraphLaunch", code)

    def _settle(self) -> None:
        """Graphs that exist get the words as they are now; the second run makes them."""
        self._runs += 1
        if self._runs == 2:
            self._applied = self._numbers.copy()
            for step in self._steps:
                if isinstance(step, _Segment) and len(step.nodes) > 1:
                    self._make_graph(step)
        elif self._runs > 2:
            changed = np.flatnonzero(self._numbers != self._applied)
            if len(changed):
                self._patch(changed.tolist())

    def _make_graph(self, segment: _Segment) -> None:
        driver = self.context.driver
        segment.graph = driver.handle("cuGraphCreate", 0)
        for node in segment.nodes:
            waits = (ctypes.c_void_p * max(1, len(node.waits)))(*[w.handle for w in node.waits])
            if node.program is not None:
                self._fill(node)
                node.handle = driver.handle(
                    "cuGraphAddKernelNode_v2", segment.graph, waits, len(node.waits),
                    byref(node.params),
                )  # fmt: skip
            else:
                node.handle = driver.handle(
                    "cuGraphAddMemcpyNode", segment.graph, waits, len(node.waits),
                    byref(self._copy_params(node)), self.context.handle,
                )  # fmt: skip
        segment.executable = driver.handle("cuGraphInstantiateWithFlags", segment.graph, 0)

    def _patch(self, words: list[int]) -> None:
        """Give every node whose words changed its new arguments and sizes."""
        driver = self.context.driver
        for place in dict.fromkeys([self._owner_of[word] for word in words]):
            segment, node = self._all_nodes[place]
            if not segment.executable:
                continue
            if node.program is not None:
                self._fill(node)
                driver.call(
                    "cuGraphExecKernelNodeSetParams_v2", segment.executable, node.handle,
                    byref(node.params),
                )  # fmt: skip
            else:
                driver.call(
                    "cuGraphExecMemcpyNodeSetParams", segment.executable, node.handle,
                    byref(self._copy_params(node)), self.context.handle,
                )  # fmt: skip
        self._applied = self._numbers.copy()

    def _fill(self, node: _Node) -> None:
        words, params = self.words, node.params
        params.func = self._function(node)
        params.grid_x, params.grid_y, params.grid_z = words[node.last - 3 : node.last]

    def _function(self, node: _Node) -> int:
        """The form of a kernel for its addresses, with the maps of them."""
        assert node.program is not None
        buffers = self.words[node.first : node.first + node.inputs]
        function = node.program.function_for(buffers)
        if node.maps is not None and function == node.program.function:
            node.maps.show(self.context.driver, buffers)
        return function

    def _copy_params(self, node: _Node) -> MemcpyParams:
        target, source = self.words[node.first : node.first + 2]
        return MemcpyParams(
            src_kind=_DEVICE_MEMORY, src_device=source, src_pitch=node.nbytes, src_height=1,
            dst_kind=_DEVICE_MEMORY, dst_device=target, dst_pitch=node.nbytes, dst_height=1,
            width=node.nbytes, height=1, depth=1,
        )  # fmt: skip

    def _launch(self, node: _Node) -> None:
        driver, stream, words = self.context.driver, self.context.stream, self.words
        if node.program is None:
            target, source = words[node.first : node.first + 2]
            driver.call("cuMemcpyDtoDAsync_v2", target, source, node.nbytes, stream)
            return
        function = self._function(node)
        grid = words[node.last - 3 : node.last]
        code = driver.launch(
            function, *grid, *node.block, node.program.shared, stream, node.places, None
        )
        if code:
            name = node.program.name
            raise driver.fault(f"launching {name} with grid {list(grid)}, block {node.block}", code)

    def __del__(self) -> None:
        for step in self._steps:
            if isinstance(step, _Segment) and step.graph:
                with contextlib.suppress(SvodError):
                    driver = self.context.use()
                    if step.executable:
                        driver.call("cuGraphExecDestroy", step.executable)
                    driver.call("cuGraphDestroy", step.graph)


def cuda_plan(
    ops: Sequence[PreparedOp], groups: Sequence[Sequence[int]], buffers: Sequence[Buffer]
) -> CudaPlan | None:
    """The graphs of a plan whose GPU kernels are all on one GPU; None for any other plan."""
    devices = {op.device for op in ops if isinstance(op, PreparedKernel) and _is_launch(op)}
    if len(devices) > 1:
        raise UnsupportedError(
            f"a plan runs on one GPU, this one would use {', '.join(sorted(devices))}: "
            "realize the parts on each GPU on their own",
            "devices",
        )
    if not devices:
        return None
    (device,) = devices
    plan = CudaPlan(ops, context_of(device_number(device)))
    order = _Order()
    checks = []
    for group in groups:
        for index in group:
            op = ops[index]
            if _is_device_check(op, buffers, device):
                checks.append(op)
                continue
            node = _node_for(plan, op, index, buffers, device)
            if node is not None:
                node.waits = order.add(node, _accesses(op, buffers))
                plan.add_node(node)
            elif not _is_settled_view(op, buffers):
                plan.add_stop(index)
                order = _Order()  # a new graph starts behind it
    if checks:
        plan.add_checks(checks, buffers)
    return plan.freeze()


def _is_device_check(
    op: PreparedOp, buffers: Sequence[Buffer], device: str
) -> TypeGuard[PreparedCustomFunction]:
    """Whether the word of a check is on the GPU, so that it is looked at later."""
    is_check = isinstance(op, PreparedCustomFunction) and op.kind == CHECK
    return is_check and all(buffers[place].device == device for place in op.buffer_indices)


def _is_launch(kernel: PreparedKernel) -> bool:
    if base_key(kernel.device) != "CUDA" or not isinstance(kernel.kernel.program, CudaProgram):
        return False
    try:
        launch_dims(kernel)
    except SvodError:
        return False
    return True


def _node_for(
    plan: CudaPlan, op: PreparedOp, index: int, buffers: Sequence[Buffer], device: str
) -> _Node | None:
    if isinstance(op, PreparedKernel) and _is_launch(op):
        program = op.kernel.program
        assert isinstance(program, CudaProgram)
        return plan.add_launch(index, op, program.on(plan.context))
    if isinstance(op, PreparedCopy) and len(op.buffer_indices) > 1:
        places = op.buffer_indices[:2]
        if all(0 <= place < len(buffers) for place in places):
            target, source = (buffers[place] for place in places)
            same = target.device == source.device == device
            if same and target.nbytes == source.nbytes:
                return plan.add_device_copy(index, op, buffers)
    return None


def _is_settled_view(op: PreparedOp, buffers: Sequence[Buffer]) -> bool:
    if not isinstance(op, PreparedBufferView):
        return False
    try:
        check_view(op, buffers)
    except SvodError:
        return False
    return True


def _accesses(op: PreparedOp, buffers: Sequence[Buffer]) -> list[Access]:
    if isinstance(op, PreparedKernel):
        return kernel_accesses(op, buffers)
    target, source = (buffers[place] for place in op.buffer_indices[:2])
    return [Access(*memory_range(target), True), Access(*memory_range(source), False)]


class _Order:
    """Who touched which bytes last, so that a node waits for what it must and no more."""

    def __init__(self) -> None:
        self._touched: dict[object, list[tuple[int, int, bool, _Node]]] = {}

    def add(self, node: _Node, accesses: Sequence[Access]) -> list[_Node]:
        """The nodes this one waits for."""
        waits: dict[int, _Node] = {}
        for memory, start, end, is_write in accesses:
            kept = []
            for entry in self._touched.get(memory, ()):
                first, last, was_write, other = entry
                meets = start < last and first < end
                if meets and (is_write or was_write) and other is not node:
                    waits[other.index] = other
                if not (is_write and start <= first and last <= end):
                    kept.append(entry)  # else everyone after waits for this node
            kept.append((start, end, is_write, node))
            self._touched[memory] = kept
        return list(waits.values())
