"""From the nodes of a graph to tensors: each node calls its function from the registry.

In: a graph and the values of its inputs, tensors or arrays. Out: the values of its outputs. A value
whose numbers are known while importing, or are run-time sizes, is an array and stays on the host,
so shape arithmetic is done here and reshapes get sizes. Everything else is a lazy tensor. What is
not supported is collected over the whole graph and reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import svod
from svod.base.errors import SvodError, UnsupportedError
from svod.base.progress import step
from svod.frontend.onnx import registry
from svod.frontend.onnx.errors import NeedsSize, NeedsValue, OnnxError, UnsupportedModel
from svod.frontend.onnx.limits import (
    GROWN_LIMIT,
    check_expansion,
    check_results,
    check_size,
    check_turns,
)
from svod.frontend.onnx.registry import Array, Operator, Value
from svod.frontend.onnx.steps import Steps
from svod.frontend.onnx.tensors import Store, carried
from svod.frontend.onnx.types import (
    ELEMENTS,
    STRING,
    element,
    element_of_array,
    element_of_dtype,
    is_sizes,
    is_texts,
    to_carrier,
)
from svod.frontend.onnx.wire import Message
from svod.ir.node import UOp
from svod.tensor.core.module_paths import named
from svod.tensor.core.tensor_core import default_device
from svod.tensor.tensor import Tensor

DEPTH_LIMIT = 64  # functions and graphs inside each other
NODES_LIMIT = 2_000_000  # after functions are expanded
HOST_LIMIT = 1 << 16  # elements; larger results of known numbers are computed by the plan
_DEFAULT_DOMAINS = {"ai.onnx": ""}
# The fields of an attribute by the type that each is.
_ATTRIBUTES = {"f": 1, "i": 2, "s": 3, "t": 4, "g": 5, "floats": 6, "ints": 7, "strings": 8}
# What keeps its first input's type, for types that are carried by another dtype.
_MOVES = {
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather",
    "GatherElements", "GatherND", "Concat", "Expand", "Tile", "Pad", "Split", "DepthToSpace",
    "SpaceToDepth", "Compress", "ReverseSequence",
}  # fmt: skip


class _Poison:
    """Stands for a value that could not be made because something is not supported."""


POISON = _Poison()


class Scope:
    """Names of one graph, and those of the graphs around it."""

    def __init__(self, versions: dict[str, int], outer: Scope | None = None) -> None:
        self.versions = versions
        self.outer = outer
        self.values: dict[str, Value] = {}
        self.kinds: dict[str, int] = {}  # of narrow types
        self.references: dict[str, Message] = {}  # attributes of the function around
        self.depth: int = outer.depth + 1 if outer is not None else 0

    def find(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope


class Importer:
    """The state of one import."""

    def __init__(
        self,
        model: Message,
        store: Store,
        device: str | None = None,
        is_dynamic: bool = False,
        steps: Steps | None = None,
    ) -> None:
        self.model = model
        self.steps = Steps.of(model.graph) if steps is None else steps.copy()
        self.store = store
        self.device = device or default_device()
        self.is_dynamic = is_dynamic  # the numbers of tensors may be read
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.quantized: dict[int, Any] = {}  # what dequantised tensors were made of
        self.count = 0
        self.selects = False  # whether every If computes both branches, for one plan
        self.halted: tuple[int, Scope] | None = None  # the node that needed a number, names so far
        self._outermost: Scope | None = None
        self._initial: dict[int, Value] = {}
        self._tensors: dict[int, tuple[Array, Tensor]] = {}

    def run(self, feeds: dict[str, Value]) -> list[Value]:
        """The outputs of the model for values of its inputs."""
        return self.resume(0, feeds)

    def resume(self, index: int, values: dict[str, Value]) -> list[Value]:
        """The outputs of the model from a node on, with the values that it and later ones use."""
        graph = self.model.graph
        scope = self._scope(values)
        for info in graph.inputs:
            if info.name in values:
                self._note_kind(info, scope)
        self.nodes(self.steps.nodes, scope, index)
        found = [self.value(info.name, scope, "the graph's outputs") for info in graph.outputs]
        return self._declared(found, scope)

    def one(self, index: int, values: dict[str, Value]) -> list[Value]:
        """All results of one node of the model, those without a name too."""
        proto = self.steps.nodes[index]
        scope = self._scope(values)
        inputs = [self.value(n, scope, describe(proto)) if n else None for n in proto.inputs]
        results: list[Value] = self._apply(proto, inputs, scope)
        if self.problems:
            raise UnsupportedModel(_listed(self.problems))
        return results

    def _scope(self, values: dict[str, Value]) -> Scope:
        """The scope of the model's own graph."""
        scope = Scope(_versions(self.model.opset_import))
        for graph in self.steps.graphs:
            self._add_initializers(graph, scope)
        scope.values.update(values)
        self._outermost = scope
        return scope

    def _declared(self, outputs: list[Value], scope: Scope) -> list[Value]:
        """The outputs of the model, after all of them were found to have the file's types."""
        if self.problems:
            raise UnsupportedModel(_listed(self.problems))
        for info, value in zip(self.model.graph.outputs, outputs, strict=True):
            wanted = info.type.tensor_type.elem_type if info.type and info.type.tensor_type else 0
            if not wanted or not isinstance(value, (Tensor, np.ndarray)):
                continue
            if wanted == STRING and value.dtype == object and not value.size:
                continue  # no texts, and no sizes
            found = _kind(info.name, scope) or _number_of(value)
            if found != wanted:
                names = [ELEMENTS[n].name if n in ELEMENTS else str(n) for n in (wanted, found)]
                raise OnnxError(f"output {info.name!r} is declared {names[0]}, but is {names[1]}")
        return outputs

    def halted_view(self) -> NodeView:
        """The node of the model that needed numbers."""
        assert self.halted is not None
        index, scope = self.halted
        proto = self.steps.nodes[index]
        inputs = [self.value(n, scope, describe(proto)) if n else None for n in proto.inputs]
        return NodeView(self, proto, inputs, scope, scope.versions.get(_domain(proto.domain), 1))

    def check(self) -> str:
        """What the file has that is not supported, as far as that is seen without importing."""
        check_expansion(self.model.graph, self.functions, _key)
        problems = self.unsupported()
        return _listed(problems) if problems else ""

    def unsupported(self) -> list[str]:
        """Everything that `check` tells, one by one."""
        problems: list[str] = []
        versions = _versions(self.model.opset_import)
        self._check_nodes(self.model.graph.nodes, versions, problems, 0)
        for function in self.functions.values():
            own = _versions(function.opset_import) or versions
            self._check_nodes(function.nodes, own, problems, 0)
        return list(dict.fromkeys(problems))

    def _check_nodes(
        self, nodes: list[Message], versions: dict[str, int], problems: list[str], depth: int
    ) -> None:
        for proto in nodes:
            domain = _domain(proto.domain)
            if (domain, proto.op_type, proto.overload) in self.functions:
                continue
            found = registry.find(domain, proto.op_type, versions.get(domain, 1))
            if found is None:
                problems.append(self._unknown(proto, Scope(versions)))
                continue
            for attribute in proto.attributes:
                if attribute.name not in found.attributes:
                    problems.append(
                        f"{describe(proto)}: attribute {attribute.name!r} is not supported"
                    )
                for graph in [g for g in (attribute.g, *attribute.graphs) if g is not None]:
                    self._check_nodes(graph.nodes, versions, problems, depth + 1)

    def graph(self, graph: Message, feeds: dict[str, Value], scope: Scope) -> list[Value]:
        """The outputs of a graph, in a scope of its own that was made for it."""
        if scope.depth > DEPTH_LIMIT:
            raise OnnxError(f"graphs or functions are nested more than {DEPTH_LIMIT} deep")
        self._add_initializers(graph, scope)
        for info in graph.inputs:
            if info.name in feeds:
                scope.values[info.name] = feeds[info.name]
                self._note_kind(info, scope)
        self.nodes(graph.nodes, scope)
        return [self.value(info.name, scope, "the graph's outputs") for info in graph.outputs]

    def _add_initializers(self, graph: Message, scope: Scope) -> None:
        for proto in graph.initializers:
            scope.values[proto.name] = self.initializer(proto)
            if (found := ELEMENTS.get(proto.data_type)) is not None and found.is_narrow:
                scope.kinds[proto.name] = proto.data_type
        for sparse in graph.sparse_initializers:
            scope.values[sparse.values.name] = self.sparse(sparse)

    def nodes(self, nodes: list[Message], scope: Scope, first: int = 0) -> None:
        for index, proto in self._walk(nodes, scope, first):
            if scope is self._outermost:
                step(f"node {proto.op_type}", index - first + 1, len(nodes))
            self.count += 1
            if self.count > NODES_LIMIT:
                raise OnnxError(f"the model has more than {NODES_LIMIT} nodes")
            inputs = [self.value(n, scope, describe(proto)) if n else None for n in proto.inputs]
            if any(value is POISON for value in inputs):
                results: Any = [POISON] * len(proto.outputs)
                if not self._find(proto, scope):
                    self.problems.append(self._unknown(proto, scope))
            else:
                try:
                    with named(_path(proto)):
                        results = self._apply(proto, inputs, scope)
                except NeedsValue:
                    if scope is self._outermost:
                        self.halted = index, scope
                    raise
            for name, value in zip(proto.outputs, results, strict=False):
                if name:
                    scope.values[name] = value

    def _walk(
        self, nodes: list[Message], scope: Scope, first: int
    ) -> Iterator[tuple[int, Message]]:
        """Nodes with their places; of the model's own graph, with known branches in their place."""
        index = first
        while index < len(nodes):
            proto = nodes[index]
            if scope is self._outermost and proto.op_type == "If" and not _domain(proto.domain):
                name = next(iter(proto.inputs), "")
                known = scope.values.get(name)
                if name and nodes is self.steps.nodes and self.steps.take_branch(index, known):
                    self._add_initializers(self.steps.graphs[-1], scope)
                    continue
            yield index, proto
            index += 1

    def value(self, name: str, scope: Scope, where: str) -> Value:
        found = scope.find(name)
        if found is None:
            raise OnnxError(
                f"{where}: {name!r} is no input, no initialiser and no output of an earlier node: "
                "the graph is cyclic, unsorted or incomplete"
            )
        return found.values[name]

    def initializer(self, proto: Message) -> Value:
        found = self._initial.get(id(proto))
        if found is None:
            found = self.store.value(proto, self.device)
            if isinstance(found, np.ndarray):
                found = to_carrier(found)
            self._initial[id(proto)] = found
        return found

    def sparse(self, proto: Message) -> Array:
        """A sparse tensor with all of its zeros."""
        if proto.values is None or proto.indices is None:
            raise OnnxError("a sparse tensor has no values or no indices")
        values, indices = self.store.array(proto.values), self.store.array(proto.indices)
        shape = proto.dims.tolist()
        if any(n < 0 for n in shape):
            raise OnnxError(f"sparse tensor {proto.values.name!r} has the shape {shape}")
        check_size(shape, GROWN_LIMIT, f"sparse tensor {proto.values.name!r}")
        dense = np.zeros(shape, values.dtype)
        try:
            if indices.ndim == 1:
                dense.reshape(-1)[indices] = values
            else:
                dense[tuple(indices.T)] = values
        except (IndexError, ValueError) as error:
            raise OnnxError(f"sparse tensor {proto.values.name!r}: {error}") from None
        return dense

    # -- one node -------------------------------------------------------------------------------

    def _find(self, proto: Message, scope: Scope) -> bool:
        domain = _domain(proto.domain)
        key = (domain, proto.op_type, proto.overload)
        version = scope.versions.get(domain, 1)
        return key in self.functions or bool(registry.find(domain, proto.op_type, version))

    def _unknown(self, proto: Message, scope: Scope) -> str:
        domain = _domain(proto.domain)
        version = scope.versions.get(domain, 1)
        return f"{describe(proto)}: no such operator in {domain or 'ai.onnx'} {version}"

    def _apply(self, proto: Message, inputs: list[Value], scope: Scope) -> Any:
        domain = _domain(proto.domain)
        version = scope.versions.get(domain, 1)
        function = self.functions.get((domain, proto.op_type, proto.overload))
        try:
            if function is not None:
                return self._call(function, proto, inputs, scope)
            found = registry.find(domain, proto.op_type, version)
            if found is None:
                raise UnsupportedError(self._unknown(proto, scope))
            check_turns(proto, inputs, describe(proto))
            view = NodeView(self, proto, inputs, scope, version)
            result = self._on_host(view, domain, version)
            if result is None:
                result = self._computed(found, view)
        except UnsupportedError as error:
            text = error.message
            self.problems.append(text if proto.op_type in text else f"{describe(proto)}: {text}")
            return [POISON] * len(proto.outputs)
        except (OnnxError, NeedsSize, NeedsValue):
            raise
        except SvodError as error:
            found = OnnxError(f"{describe(proto)}: {error}")
            found.__cause__ = error
            raise (NeedsSize(found) if _vary(inputs) else found) from error
        except (
            ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError,
        ) as error:  # fmt: skip
            # Sizes, axes and types that no operator takes: the file is at fault.
            kind = type(error).__name__
            raise OnnxError(f"{describe(proto)}: {kind}: {error}") from error
        results = list(result) if isinstance(result, tuple) else [result]
        check_results(proto.op_type, results, describe(proto))
        self._move_kinds(proto, scope)
        return results

    def _on_host(self, view: NodeView, domain: str, version: int) -> Any:
        """The result where all inputs are known and the operator has a form for that."""
        inputs = view.inputs
        if any(is_texts(v) for v in inputs):
            known = registry.find_texts(domain, view.proto.op_type, version)
            return known.function(*inputs, **view.arguments(known)) if known is not None else None
        if not all(v is None or isinstance(v, np.ndarray) for v in inputs):
            return None
        known = registry.find_host(domain, view.proto.op_type, version)
        if known is None or any(v is not None and v.size > HOST_LIMIT for v in inputs):
            return None
        if any(view.kind(i) is not None for i in range(len(inputs))):
            return None
        result = known.function(*inputs, **view.arguments(known))
        return None if result is NotImplemented else result

    def _computed(self, found: Operator, view: NodeView) -> Any:
        given = view.inputs
        if len(given) < found.required or (len(given) > len(found.inputs) and not found.rest):
            raise OnnxError(f"{describe(view.proto)}: {len(given)} inputs are not what it takes")
        arguments = []
        for position, value in enumerate(given):
            wanted = found.inputs[position] if position < len(found.inputs) else found.rest
            if value is None and wanted != "value" and position < found.required:
                raise OnnxError(f"{describe(view.proto)}: input {position} is missing")
            if value is None or wanted == "value":
                arguments.append(value)
            elif wanted == "host":
                arguments.append(view.host(value))
            else:
                arguments.append(self.tensor(value))
        return found.function(*arguments, **view.arguments(found))

    def _call(
        self, function: Message, proto: Message, inputs: list[Value], scope: Scope
    ) -> list[Value]:
        """A function of the model, with its body in place of the node."""
        versions = _versions(function.opset_import) or scope.versions
        inner = Scope(versions)
        inner.depth = scope.depth + 1
        if inner.depth > DEPTH_LIMIT:
            raise OnnxError(f"function {function.name!r} calls itself, or calls go too deep")
        inner.references = {a.name: a for a in function.attribute_protos}
        for attribute in proto.attributes:
            inner.references[attribute.name] = _resolved(attribute, scope) or attribute
        for position, name in enumerate(function.inputs):
            inner.values[name] = inputs[position] if position < len(inputs) else None
            if position < len(inputs) and (kind := _kind(proto.inputs[position], scope)):
                inner.kinds[name] = kind
        self.nodes(function.nodes, inner)
        for name, outer in zip(function.outputs, proto.outputs, strict=False):
            if name in inner.kinds:
                scope.kinds[outer] = inner.kinds[name]
        return [
            self.value(n, inner, f"function {function.name!r}")
            for n in function.outputs[: len(proto.outputs)]
        ]

    # -- values ---------------------------------------------------------------------------------

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor; the same array gives the same tensor."""
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"a {type(value).__name__} where a tensor is needed")
        known = self._tensors.get(id(value))
        if known is None:
            known = self._tensors[id(value)] = (value, self._tensor(value))
        return known[1]

    def _tensor(self, array: Array) -> Tensor:
        if array.dtype == object:
            if not is_sizes(array):
                raise UnsupportedError("texts are no tensor on a device")
            parts = [size_tensor(size, self.device) for size in array.flat]
            whole = svod.stack(parts) if parts else svod.zeros((0,), dtype=svod.int64)
            return whole.reshape(array.shape)
        kind = element_of_array(array)
        if kind is None or kind.number == 8:
            raise UnsupportedError(f"arrays of {array.dtype} are not supported")
        array = carried(array, kind)
        if _is_one_number(array):
            fill = array.flat[0].item()
            return svod.full(array.shape, fill, dtype=kind.carrier, device=self.device)
        return Tensor(np.asarray(array, order="C"), device=self.device)

    def host(self, value: Value, name: str, why: str, most: int | None = None) -> Array:
        """The numbers of a value."""
        if isinstance(value, np.ndarray):
            return value
        if self.is_dynamic:
            return np.asarray(value.numpy())
        raise NeedsValue(name, why, most)

    def _note_kind(self, info: Message, scope: Scope) -> None:
        kind = info.type
        if kind is not None and kind.tensor_type is not None:
            found = ELEMENTS.get(kind.tensor_type.elem_type)
            if found is not None and found.is_narrow:
                scope.kinds[info.name] = found.number

    def _move_kinds(self, proto: Message, scope: Scope) -> None:
        if proto.op_type in _MOVES and proto.inputs and (k := _kind(proto.inputs[0], scope)):
            for name in proto.outputs:
                scope.kinds[name] = k


class NodeView:
    """One use of an operator: what its function may ask beyond inputs and attributes."""

    def __init__(
        self, importer: Importer, proto: Message, inputs: list[Value], scope: Scope, version: int
    ) -> None:
        self.importer = importer
        self.proto = proto
        self.inputs = inputs
        self.scope = scope
        self.version = version  # of the operator set

    @property
    def outputs(self) -> int:
        """How many outputs there are, up to the last one with a name."""
        names = list(self.proto.outputs)
        while names and not names[-1]:
            names.pop()
        return len(names)

    @property
    def device(self) -> str:
        return self.importer.device

    @property
    def is_dynamic(self) -> bool:
        return self.importer.is_dynamic

    @property
    def is_outermost(self) -> bool:
        """Whether the node is of the model's own graph, not of one inside of it."""
        return self.scope is self.importer._outermost

    def wants(self, position: int) -> bool:
        """Whether an output has a name."""
        names = self.proto.outputs
        return position < len(names) and bool(names[position])

    def kind(self, position: int) -> int | None:
        """The number of an input's type where another dtype carries it."""
        names = self.proto.inputs
        return _kind(names[position], self.scope) if position < len(names) else None

    def element(self, position: int) -> int:
        """The number of an input's type."""
        return self.kind(position) or _number_of(self.inputs[position])

    def set_kind(self, number: int, position: int = 0) -> None:
        """Say that an output has a type that its dtype only carries."""
        if element(number).is_narrow:
            self.scope.kinds[self.proto.outputs[position]] = number

    def host(self, value: Value, most: int | None = None) -> Array:
        """The numbers of an input: known ones and sizes, or those of a tensor while running.

        ``most`` says that an input is one size, from 0 up to that.
        """
        place = next((i for i, v in enumerate(self.inputs) if v is value), 0)
        return self.importer.host(value, self.proto.inputs[place], describe(self.proto), most)

    def tensor(self, value: Value) -> Tensor:
        return self.importer.tensor(value)

    def run(self, graph: Message, feeds: list[Value]) -> list[Value]:
        """The outputs of a graph attribute for values of its inputs; it sees the names around."""
        inner = Scope(self.scope.versions, self.scope)
        inner.references = self.scope.references
        names = [info.name for info in graph.inputs]
        return self.importer.graph(graph, dict(zip(names, feeds, strict=True)), inner)

    def arguments(self, found: Operator) -> dict[str, Any]:
        """The attributes as keyword arguments."""
        given: dict[str, Any] = {}
        for attribute in self.proto.attributes:
            source = _resolved(attribute, self.scope) if attribute.ref_attr_name else attribute
            if source is None:
                continue
            if attribute.name not in found.attributes:
                raise UnsupportedError(
                    f"{describe(self.proto)}: attribute {attribute.name!r} is not supported"
                )
            given[_keyword(attribute.name)] = self._attribute(source, attribute.name, found)
        missing = found.missing({n.removesuffix("_") for n in given})
        if missing:
            raise OnnxError(f"{describe(self.proto)}: attribute {missing[0]!r} is missing")
        if found.wants_node:
            given["node"] = self
        return given

    def _attribute(self, proto: Message, name: str, found: Operator) -> Any:
        value = attribute_value(proto, self.importer.store)
        default = found.attributes[name]
        if isinstance(default, float) and isinstance(value, int):
            value = float(value)
        if type(default) in (int, float, str) and type(value) is not type(default):
            raise OnnxError(
                f"{describe(self.proto)}: attribute {name!r} is {value!r:.40}, "
                f"not a {type(default).__name__}"
            )
        return value


def attribute_value(proto: Message, store: Store) -> Any:
    """An attribute as a Python value."""
    present = [kind for name, kind in _ATTRIBUTES.items() if proto.has(name)]
    kind = proto.type or (present[0] if present else 0)
    if present and kind not in present and kind in _ATTRIBUTES.values():
        raise OnnxError(f"attribute {proto.name!r} holds another type than it says")
    if kind == 1:
        return float(proto.f)
    if kind == 2:
        return int(proto.i)
    if kind == 3:
        return bytes(proto.s).decode("utf-8", "surrogateescape")
    if kind == 4:
        if proto.t is None:
            raise OnnxError(f"attribute {proto.name!r} has no tensor")
        return store.array(proto.t)
    if kind == 5:
        if proto.g is None:
            raise OnnxError(f"attribute {proto.name!r} has no graph")
        return proto.g
    if kind in (6, 7):
        return (proto.floats if kind == 6 else proto.ints).tolist()
    if kind == 8:
        return [bytes(s).decode("utf-8", "surrogateescape") for s in proto.strings]
    if kind == 9:
        return [store.array(t) for t in proto.tensors]
    if kind == 10:
        return proto.graphs
    if kind in (11, 13):
        return proto.sparse_tensor if kind == 11 else proto.tp
    raise UnsupportedError(f"attribute {proto.name!r} of type {kind} is not supported")


def _resolved(attribute: Message, scope: Scope) -> Message | None:
    """What an attribute that refers to one of the function around stands for."""
    return scope.references.get(attribute.ref_attr_name) if attribute.ref_attr_name else None


def size_tensor(size: Any, device: str) -> Tensor:
    """A size as a tensor of int64; a run-time size takes its value from the call."""
    if isinstance(size, UOp):
        return svod.full((), 0, dtype=svod.int64, device=device) + size
    return svod.full((), int(size), dtype=svod.int64, device=device)


def names_used(nodes: list[Message]) -> set[str]:
    """The names that nodes read, those in their graphs included."""
    found: set[str] = set()
    for proto in nodes:
        found.update(proto.inputs)
        for attribute in proto.attributes:
            for graph in [g for g in (attribute.g, *attribute.graphs) if g is not None]:
                found |= names_used(graph.nodes) | {o.name for o in graph.outputs}
    return found


def _vary(values: list[Value]) -> bool:
    """Whether some values have run-time sizes, or are such."""
    for value in values:
        held = value.flat if isinstance(value, np.ndarray) and value.dtype == object else ()
        if any(isinstance(n, UOp) for n in (*getattr(value, "shape", ()), *held)):
            return True
    return False


def describe(proto: Message) -> str:
    """A node in words: its operator, and its name or that of its output."""
    name = proto.name or next((o for o in proto.outputs if o), "")
    return f"{proto.op_type} {name!r}" if name else proto.op_type


def _is_one_number(array: Array) -> bool:
    """Whether all elements are the same, zeros with the same sign: a constant of the kernels."""
    if not array.size or array.dtype.kind not in "fiub":
        return False
    first = array.flat[0]
    is_same = bool((array == first).all())
    if is_same and array.dtype.kind == "f" and first == 0:
        return bool((np.signbit(array) == np.signbit(first)).all())
    return is_same


def _keyword(name: str) -> str:
    return f"{name}_" if name in ("is", "in", "lambda", "else") else name


def _number_of(value: Value) -> int:
    """The number of the type that a value has by its dtype."""
    if isinstance(value, Tensor):
        return element_of_dtype(value.dtype).number
    found = element_of_array(value)
    if found is None:
        raise UnsupportedError(f"arrays of {value.dtype} are not supported")
    return found.number


def _kind(name: str, scope: Scope) -> int | None:
    found: Scope | None = scope
    while found is not None:
        if name in found.kinds:
            return found.kinds[name]
        found = found.outer
    return None


def _domain(name: str) -> str:
    return _DEFAULT_DOMAINS.get(name, name)


def _key(proto: Message) -> tuple[str, str, str]:
    return _domain(proto.domain), proto.op_type, proto.overload


def _versions(opsets: list[Message]) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in opsets}


def _listed(problems: list[str]) -> str:
    unique = list(dict.fromkeys(problems))
    lines = "\n".join([f"  {p}" for p in unique[:100]])
    more = f"\n  and {len(unique) - 100} more" if len(unique) > 100 else ""
    return (
        f"the model needs {len(unique)} things that are not supported:\n{lines}{more}\n"
        "Leave these nodes out of the export, or add them with svod.onnx.operator."
    )


def _path(proto: Message) -> str:
    """The name of a node as a path of modules, which exporters write with slashes."""
    return str(proto.name).strip("/").replace("/", ".") or str(proto.op_type)
