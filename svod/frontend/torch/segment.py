"""A part of a graph that one plan computes.

In: nodes of a graph, translated one after the other, and afterwards those whose values are needed.
Out: a callable from torch tensors to torch tensors. The plan is made at the first call, when frozen
parameters have values, and again where a size leaves the bounds it was made for. A call binds
addresses and runs; results are written where torch has allocated them, in torch's strides.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import torch
from torch.fx import Node

from svod.base.errors import ExecutionError
from svod.device.buffer import Buffer, Storage
from svod.dtype.types import DType
from svod.frontend.torch.dtypes import from_torch
from svod.frontend.torch.graph import Translation
from svod.frontend.torch.layout import Layout, dense_strides, layout_of, row_major
from svod.frontend.torch.options import Options
from svod.frontend.torch.report import report
from svod.frontend.torch.sizes import Bounds, Readings, Sizes, bounds_for, evaluated, symbols_of
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, elements, make
from svod.ir.scan import outer_order
from svod.runtime.addresses import AddressedPlan
from svod.runtime.assemble import PortNames
from svod.tensor.core import tensor_registry, tracing
from svod.tensor.core.tensor_core import wrap
from svod.tensor.random.threefry import Generator, default_generator
from svod.tensor.recording.realize import recorded_plan

_empty = torch._C._dynamo.guards._empty_strided_cpu


class Memory:
    """How a tensor of torch lies in memory, and its floats where it is complex."""

    __slots__ = ("dtype", "is_complex", "layout", "shape", "strides", "torch_dtype")

    def __init__(self, value: torch.Tensor, is_result: bool = False) -> None:
        self.torch_dtype = value.dtype
        self.is_complex = value.dtype.is_complex
        shape, strides = tuple(value.shape), tuple(value.stride())
        if is_result and not layout_of(shape, strides).is_dense:
            strides = dense_strides(row_major(shape))
        self.shape, self.strides = shape, strides
        if self.is_complex:
            shape, strides = (*shape, 2), (*[s * 2 for s in strides], 1)
        self.layout: Layout = layout_of(shape, strides)
        self.dtype: DType = from_torch(value.dtype.to_real() if self.is_complex else value.dtype)
        if is_result:  # what is allocated has strides for axes of size 1 too
            found = dense_strides(self.layout)
            self.strides = tuple([s // 2 for s in found[:-1]]) if self.is_complex else found

    def holds(self, given: torch.Tensor) -> bool:
        """Whether a tensor lies as it was said to; run-time strides are torch's to keep."""
        if given.device.type != "cpu" or given.dtype != self.torch_dtype:
            return False
        return all(
            type(s) is not int or s == have or n < 2
            for s, have, n in zip(self.strides, given.stride(), given.shape, strict=True)
        )

    def value(self, memory: UOp, sizes: Sizes) -> UOp:
        """A BUFFER as the value of the tensor."""
        shown = self.layout.view(memory, sizes)
        return B.complex_view(shown) if self.is_complex else shown


class Segment:
    """Nodes that one plan computes."""

    def __init__(self, sizes: Sizes, options: Options, made: Set[Node] = frozenset()) -> None:
        self.options = options
        self.made = made  # nodes of all segments: what they give lies densely
        self.translation = Translation(sizes)
        self.nodes: list[Node] = []
        self.inputs: list[Node] = []
        self.memory: dict[Node, Memory] = {}
        self.buffers: dict[Node, UOp] = {}
        self.outputs: list[tuple[Node, Memory]] = []
        self.readings = Readings()
        self.symbols: list[str] = []
        self.frozen: dict[Node, bool] = {}
        self.effects = tracing.Effects()
        self.is_ready = False
        self.run: AddressedPlan | None = None

    # -- building -------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """One more node, over values of this segment and of others; may be refused."""
        drawn, count = default_generator.drawn, len(self.effects.draws)
        with tracing.recording("torch.compile", self.buffers.values(), effects=self.effects):
            for used in node.all_input_nodes:
                if used not in self.translation.values:
                    self._take(used)
            try:
                self.translation.add(node)
            except BaseException:
                del self.effects.draws[count:]
                raise
            finally:
                default_generator.drawn = drawn
        self.nodes.append(node)

    def _take(self, node: Node) -> None:
        """A value from outside: a BUFFER stands for it."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return
        memory = Memory(value, is_result=node in self.made)
        room = elements((memory.layout.count(self.translation.sizes),))
        if not room:
            shape = self.translation.sizes.shape(value.shape)
            self.translation.values[node] = wrap(B.full(shape, 0, from_torch(value.dtype)), "CPU")
            return
        buffer = B.new_buffer(room, memory.dtype, "CPU")
        tracing.state.stand_ins |= {buffer}
        shown = memory.value(buffer, self.translation.sizes)
        self.translation.values[node] = wrap(shown, "CPU")
        self.memory[node], self.buffers[node] = memory, buffer

    def finish(self, wanted: set[Node], sizes: Sequence[Node], frozen: set[Node]) -> None:
        """Which values are needed outside, and which arguments say what sizes are."""
        self.outputs = [
            (n, Memory(n.meta["val"], is_result=True))
            for n in self.nodes
            if n in wanted and isinstance(n.meta["val"], torch.Tensor)
        ]
        self.inputs = [*self.buffers, *sizes]
        self.frozen = {n: self.options.freeze and n in frozen for n in self.inputs}
        for place, node in enumerate(self.inputs):
            self.readings.note(place, node.meta["val"])
        self.symbols = sorted(self._symbols())

    def _symbols(self) -> set[str]:
        found: set[str] = set()
        for node in [*self.inputs, *self.nodes]:
            value = node.meta["val"]
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, torch.SymInt):
                    found |= symbols_of(part)
                elif isinstance(part, torch.Tensor):
                    for size in (*part.shape, *part.stride()):
                        found |= symbols_of(size)
        return found

    # -- calling --------------------------------------------------------------------------------

    def __call__(self, args: Sequence[Any]) -> list[torch.Tensor]:
        values = self.readings.read(self.symbols, args) if self.symbols else None
        if not self.is_ready or not self._fits(values, args):
            self._prepare(values, args)
        if values:
            results = [_allocated(memory, values) for _, memory in self.outputs]
        else:
            results = [_empty(*maker) for maker in self.makers]
        if self.run is not None:
            self._run(self.run, args, results, values)
        for place, source in self.repeats:
            results[place].copy_(results[source])
        return results

    def _run(
        self,
        run: AddressedPlan,
        args: Sequence[Any],
        results: list[torch.Tensor],
        values: dict[str, int] | None,
    ) -> None:
        addresses = [args[place].data_ptr() for place in self.ports]
        kept = []  # copies, alive until the run is over
        for position, place in self.copied:
            kept.append(args[place].contiguous())
            addresses[position] = kept[-1].data_ptr()
        addresses += [results[place].data_ptr() for place in self.stored]
        if not self.draws:
            run(addresses, values)
            return
        with run.plan._lock:
            self._draw()
            run(addresses, values)

    def _fits(self, values: dict[str, int] | None, args: Sequence[Any]) -> bool:
        """Whether the plan was made for these sizes and these constants."""
        for place, known in self.constants:
            if args[place] is not known:
                return False
        if values:
            bounds = self.translation.sizes.bounds
            return all(bounds[name][0] <= n <= bounds[name][1] for name, n in values.items())
        return True

    def _draw(self) -> None:
        """A new key for every run, from torch's generator: manual_seed repeats it."""
        generator = Generator(int(torch.empty((), dtype=torch.int64).random_().item()))
        for count, words in self.draws:
            words.copyin(generator.words(count))

    # -- making the plan ------------------------------------------------------------------------

    def _prepare(self, values: dict[str, int] | None, args: Sequence[Any]) -> None:
        if values and not self._fits_bounds(values):
            self._translate_again(values)
        for node, given in zip(self.inputs, args, strict=True):
            if node in self.buffers:
                self._put_memory(node, given)
        self.makers = [(m.shape, m.strides, m.torch_dtype) for _, m in self.outputs]
        self.constants = [
            (p, args[p]) for p, n in enumerate(self.inputs) if n in self.buffers and self.frozen[n]
        ]
        self.draws = [(count, _held(node)) for _, count, node in self.effects.draws]
        roots = self._roots()
        self.run, self.is_ready = None, True
        self.ports: list[int] = []
        self.copied: list[tuple[int, int]] = []
        if roots:
            self._plan(roots)

    def _fits_bounds(self, values: dict[str, int]) -> bool:
        bounds = self.translation.sizes.bounds
        return all(bounds[name][0] <= n <= bounds[name][1] for name, n in values.items())

    def _translate_again(self, values: dict[str, int]) -> None:
        """The same nodes under bounds that have room for these sizes."""
        report().regrown += self.is_ready
        old = self.translation.sizes.bounds
        bounds: Bounds = {
            name: bounds_for(n, *self.readings.ranges.get(name, (0, None)), old.get(name))
            for name, n in values.items()
        }
        nodes, self.nodes = self.nodes, []
        self.translation = Translation(Sizes({**old, **bounds}))
        self.buffers, self.effects = {}, tracing.Effects()
        for node in nodes:
            self.add(node)

    def _put_memory(self, node: Node, given: torch.Tensor) -> None:
        """The memory of this call stands behind the BUFFER while the plan is made."""
        reference, memory = self.buffers[node].arg, self.memory[node]
        if memory.layout.is_copied:
            given = given.contiguous()
        elif not memory.holds(given):
            raise ExecutionError(
                f"argument {node.name} of a compiled graph has strides {given.stride()} for shape "
                f"{tuple(given.shape)}, but the graph was recorded for {memory.strides}"
            )
        kind = memory.dtype
        storage = Storage.wrap("CPU", reference.size * kind.itemsize, given.data_ptr(), given)
        reference.buffer = Buffer(storage, reference.size, kind)

    def _roots(self) -> list[UOp]:
        """What the plan stores, in the order of memory; notes results that repeat others."""
        self.stored: list[int] = []
        self.repeats: list[tuple[int, int]] = []
        roots: dict[UOp, int] = {}
        for place, (node, memory) in enumerate(self.outputs):
            value = B.floats_of(self.translation.values[node].uop)
            if any(isinstance(n, int) and n == 0 for n in value.shape):
                continue
            root = make(O.CONTIGUOUS, value.dtype, (memory.layout.line(value),))
            if root in roots:
                self.repeats.append((place, roots[root]))
                continue
            roots[root] = place
            self.stored.append(place)
        return list(roots)

    def _plan(self, roots: list[UOp]) -> None:
        places = {node: place for place, node in enumerate(self.inputs)}
        read = {node for node in outer_order(roots) if node.op == O.BUFFER}
        held = {n: b for n, b in self.buffers.items() if b in read}
        names = {b: f"input{places[n]}" for n, b in held.items() if not self.frozen[n]}
        outputs = [f"output{place}" for place in self.stored]
        shapes = [(name, root.shape) for name, root in zip(outputs, roots, strict=True)]
        live = None
        if len(names) < len(held):
            words = [tensor_registry.buffer_node(n) for _, _, n in self.effects.draws]
            live = frozenset([*names, *[w for w in words if w is not None]])
        ports = PortNames({b.sn: (name, None) for b, name in names.items()}, shapes)
        tensors = [wrap(root, "CPU") for root in roots]
        plan, _ = recorded_plan(tensors, self.options.config, ports, live)
        report().plans += 1
        known = {port.name for port in plan.ports}
        self.ports = [p for p in range(len(self.inputs)) if f"input{p}" in known]
        for position, place in enumerate(self.ports):
            if self.memory[self.inputs[place]].layout.is_copied:
                self.copied.append((position, place))
        self.run = AddressedPlan(plan, [*[f"input{p}" for p in self.ports], *outputs])


def _held(node: UOp) -> Buffer:
    found = tensor_registry.buffer_of(node)
    assert found is not None, "random words are data"
    return found


def _allocated(memory: Memory, values: dict[str, int]) -> torch.Tensor:
    shape = [evaluated(n, values) for n in memory.shape]
    strides = [evaluated(n, values) for n in memory.strides]
    return torch.empty_strided(shape, strides, dtype=memory.torch_dtype)
