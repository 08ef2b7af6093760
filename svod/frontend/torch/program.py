"""Exported programs as Svod models: made once with torch, prepared, saved and run without it.

In: a program of ``torch.export``, or a module and example inputs. Out: a `Model`. Its inputs have
torch's names, its weights the keys of torch's state dict, and its run-time sizes are Variables with
the ranges that were exported. Results are called as their containers call them. There is no torch
when a plan runs, so an operator that the table does not have is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from math import prod
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from svod.base.errors import ConfigError, UnsupportedError
from svod.device.buffer import Buffer, Storage
from svod.frontend.torch.aot import decompositions
from svod.frontend.torch.graph import is_size, is_translated, name_of
from svod.frontend.torch.options import Options
from svod.frontend.torch.segment import Memory, Segment
from svod.frontend.torch.sizes import Sizes, symbols_of
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make, stored_shape
from svod.runtime.assemble import PortNames
from svod.runtime.plan import ExecutionPlan
from svod.tensor.core import tracing
from svod.tensor.core.tensor_core import wrap
from svod.tensor.recording.realize import recorded_plan
from svod.tensor.tensor import Tensor

_ROWS = torch.contiguous_format
_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def from_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    limits: Mapping[str, int] | None = None,
) -> Model:
    """A module of torch as a Svod model, recorded in evaluation mode with example inputs.

    ``dynamic_shapes`` is what ``torch.export.export`` takes; give each ``Dim`` a ``max``, or name
    the largest values of its symbols in ``limits``.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            found = torch.export.export(
                module, tuple(example_inputs), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
            )
    finally:
        module.train(was_training)
    return import_program(found, limits=limits)


def import_program(program: ExportedProgram, *, limits: Mapping[str, int] | None = None) -> Model:
    """An exported program as a Svod model."""
    return Model(program.run_decompositions(decompositions()), limits or {})


class Model:
    """A translated program: weights, and the graph from inputs to outputs."""

    def __init__(self, program: ExportedProgram, limits: Mapping[str, int]) -> None:
        self._nodes = {n.name: n for n in program.graph.nodes}
        signature = program.graph_signature
        changed = [s for s in signature.output_specs if s.kind != OutputKind.USER_OUTPUT]
        if changed:
            raise UnsupportedError(
                f"the program writes {changed[0].target or changed[0].arg.name}: export it in "
                "evaluation mode, or return the new value"
            )
        self._weights = {
            spec.arg.name: str(spec.target)
            for spec in signature.input_specs
            if spec.kind in _WEIGHTS
        }
        self._segment = _Program(Sizes(_bounds(program, limits)), set(self._weights))
        users = [s for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
        self._leaves = [getattr(s.arg, "name", "") for s in users]  # in the order of the pytree
        self.inputs = [n for n in self._leaves if _is_tensor(self._nodes.get(n))]
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        given = [self._nodes.get(getattr(s.arg, "name", "")) for s in signature.output_specs]
        names = output_names(self._out_spec, {*self.inputs, *self._weights.values()})
        self._given: list[Any] = []  # results in the order of the pytree: their place, or a value
        self._results, self.outputs = [], []
        for spec, node, name in zip(signature.output_specs, given, names, strict=True):
            if _is_tensor(node):
                self._given.append(_Place(len(self._results)))
                self._results.append(node)
                self.outputs.append(name)
            elif node is None:
                self._given.append(getattr(spec.arg, "value", None))
            else:
                raise UnsupportedError(f"the program returns the size {name}: return a tensor")
        self._translate(program)
        self._plan: ExecutionPlan | None = None

    def _translate(self, program: ExportedProgram) -> None:
        refused = {}
        for node in program.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr") or is_size(node):
                continue
            if not is_translated(node) and node.op == "call_function":
                if node.meta.get("val") is None:  # a check of torch's about sizes
                    continue
                refused[name_of(node)] = "not in the table"
                continue
            if not refused:
                try:
                    self._segment.add(node)
                except UnsupportedError as error:
                    refused[name_of(node)] = str(error)
        if refused:
            listed = ", ".join(f"{name} ({why})" for name, why in sorted(refused.items()))
            raise UnsupportedError(f"the program needs what Svod does not do: {listed}")
        for node in self._results:
            if node.op == "placeholder":
                self._segment._take(node)
        self._put_weights(program)

    def _put_weights(self, program: ExportedProgram) -> None:
        """Weights stay where torch has put them, and alive."""
        held = {**program.state_dict, **program.constants}
        self.weights: dict[str, Tensor] = {}
        for node, buffer in self._segment.buffers.items():
            key = self._weights.get(node.name)
            if key is None:
                continue
            given = held[key].detach()
            memory = self._segment.memory[node]
            if not memory.holds(given) or memory.layout.is_copied:
                raise UnsupportedError(f"weight {key} lies in memory with strides {given.stride()}")
            size = buffer.arg.size
            storage = Storage.wrap("CPU", size * memory.dtype.itemsize, given.data_ptr(), given)
            buffer.arg.buffer = Buffer(storage, size, memory.dtype)
            self.weights[key] = self._segment.translation.values[node]

    @property
    def variables(self) -> dict[str, tuple[int, int]]:
        """The run-time sizes and their bounds."""
        return dict(self._segment.translation.sizes.bounds)

    def plan(self, *, freeze: bool = True, config: Any = None) -> ExecutionPlan:
        """A plan from the inputs to the outputs, by their names.

        With ``freeze`` weights are folded and packed now; without it they are ports that are
        called as torch's state dict calls them.
        """
        inputs: dict[int, tuple[str, Any]] = {}
        live: list[UOp] = []
        pairs: set[str] = set()  # ports of complex numbers
        sizes = self._segment.translation.sizes
        for node, buffer in self._segment.buffers.items():
            key = self._weights.get(node.name)
            memory = self._segment.memory[node]
            shape = sizes.shape(memory.shape)
            if memory.is_complex:
                shape = (*shape, 2)
                pairs.add(key or node.name)
            if key is None or not freeze:
                inputs[buffer.sn] = (key or node.name, shape)
            if key is None:
                live.append(buffer)
        outputs = []
        roots = []
        for name, node in zip(self.outputs, self._results, strict=True):
            value = B.floats_of(self._segment.translation.values[node].uop)
            outputs.append((name, value.shape))
            roots.append(make(O.CONTIGUOUS, value.dtype, (value,), name))
        pairs |= {n for n, r in zip(self.outputs, self._results, strict=True) if _is_complex(r)}
        ports = PortNames(inputs, outputs, frozenset(pairs))
        tensors = [wrap(root, "CPU") for root in roots]
        plan, _ = recorded_plan(tensors, config, ports, frozenset(live) if freeze else None)
        return plan

    def view(self, *, title: str = "program", runs: int = 3, browser: bool = True) -> Any:
        """Serve a page about the frozen plan, and open it in the browser."""
        return self.plan().view(title=title, runs=runs, browser=browser)

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a frozen plan to a file that ``svod.load_plan`` reads, without torch."""
        self.plan().save(path, **options)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run with arrays, given as the module takes them, in the order of the inputs, or by
        their names; results are arrays, in the containers that the module returns."""
        given = self._by_name(args, named)
        if self._plan is None:
            self._plan = self.plan()
        known = {port.name for port in self._plan.ports}
        found = self._plan(**{name: a for name, a in given.items() if name in known})
        arrays = found if isinstance(found, tuple) else (found,)
        leaves = [arrays[g.index] if isinstance(g, _Place) else g for g in self._given]
        return pytree.tree_unflatten(leaves, self._out_spec)

    def _by_name(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by the names of inputs, given as the module takes them or one by one."""
        leaves, spec = pytree.tree_flatten((args, named))
        if spec == self._in_spec:
            return {n: a for n, a in zip(self._leaves, leaves, strict=True) if n in self.inputs}
        if len(args) > len(self.inputs):
            raise ConfigError(f"the model takes {len(self.inputs)} inputs, got {len(args)}")
        given = dict(zip(self.inputs, args, strict=False), **named)
        odd = [name for name in given if name not in self.inputs]
        if odd:
            raise ConfigError(f"there is no input {odd[0]!r}: use {', '.join(self.inputs)}")
        return given


def output_names(spec: Any, taken: Set[str]) -> list[str]:
    """Names of results: the keys that lead to them, or ``output`` and a number."""
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))[0]
    found = []
    for path, _ in paths:
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
        name = ".".join(keys) or "0"
        found.append(f"output{name}" if name[0].isdigit() else name)
    return [f"output.{name}" if name in taken else name for name in found]


class _Place(NamedTuple):
    index: int  # among the outputs of the plan


class _Program(Segment):
    """A segment whose inputs are arrays in row-major order, as plans lay them out."""

    def __init__(self, sizes: Sizes, weights: Set[str]) -> None:
        super().__init__(sizes, Options(fallback="error"))
        self.weights = weights  # names of nodes that are held by torch, in torch's strides

    def _take(self, node: Node) -> None:
        value = node.meta["val"]
        super()._take(node)
        if node.name in self.weights or node not in self.buffers:
            return
        memory = self.memory[node] = Memory(torch.empty_like(value, memory_format=_ROWS))
        shape = self.translation.sizes.shape(value.shape)
        if memory.is_complex:
            shape = (*shape, 2)
        room = stored_shape(shape)
        buffer = B.new_buffer(prod(room), memory.dtype, "CPU")
        tracing.state.stand_ins |= {buffer}
        shown = B.shrink(B.reshape(buffer, room), tuple([(0, n) for n in shape]))
        shown = B.complex_view(shown) if memory.is_complex else shown
        self.translation.values[node], self.buffers[node] = wrap(shown, "CPU"), buffer


def _bounds(program: ExportedProgram, limits: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    used: set[str] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, torch.Tensor):
                for size in part.shape:
                    used |= symbols_of(size)
    found: dict[str, tuple[int, int]] = {}
    for symbol, limit in program.range_constraints.items():
        name = str(symbol)
        most = limits.get(name, limit.upper)
        if name not in used:
            continue
        if not isinstance(most, int) and not getattr(most, "is_Integer", False):
            raise ConfigError(
                f"the size {name} has no upper bound, and memory has room for the largest: export "
                f"with Dim(.., max=..), or give limits={{{name!r}: ..}}"
            )
        found[name] = (max(0, int(limit.lower)), int(most))
    return found


def _is_tensor(node: Node | None) -> bool:
    return node is not None and isinstance(node.meta.get("val"), torch.Tensor)


def _is_complex(node: Node) -> bool:
    return bool(node.meta["val"].dtype.is_complex)
