"""A model from a file: called with arrays, it runs one prepared plan.

Sizes that the file names become Variables, and one plan serves all of their values. Where the graph
does not hold for a whole range, or where numbers of an input decide shapes (`Reshape` by an input),
there is a plan for each combination that is met. Where numbers computed inside decide what follows,
the plan is split there: few numbers (the condition of an If) have a plan of the rest for each value
of them, after others nodes are run as they are met. `model.notes` says which and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import AllocationError, VariableError
from svod.frontend.onnx import operators  # noqa: F401  # fills the registry
from svod.frontend.onnx.dimensions import Dimensions
from svod.frontend.onnx.errors import NeedsSize, NeedsValue, OnnxError, UnsupportedModel
from svod.frontend.onnx.file import File, ValueInfo, open_file
from svod.frontend.onnx.importer import Importer, names_used
from svod.frontend.onnx.registry import Array, Value
from svod.frontend.onnx.types import CARRIERS, STRING, element, from_carrier, to_carrier
from svod.ir import ops as O
from svod.ir.node import UOp, largest
from svod.ir.symbolic import value_of
from svod.schedule.sizes import reachable, replace_in_size
from svod.tensor.tensor import Tensor

FEW = 8  # elements of what decides, for a plan of the rest for each value
RESTS_LIMIT = 16  # such plans; values that come later have none
PLANS_LIMIT = 32  # plans kept where each combination of sizes has its own; the oldest goes first


def load(
    source: Any,
    dims: Mapping[str, Any] | None = None,
    device: str | None = None,
    freeze: bool = True,
) -> Model:
    """A model from a path, bytes or a file object.

    ``dims`` gives ranges, or numbers, to the sizes that the file names: ``{"batch": (1, 64)}``. One
    plan serves a whole range. With ``freeze`` the weights are constant and packed when the plan is
    made.

    >>> model = svod.onnx.load("model.onnx", dims={"batch": (1, 64)})
    >>> model(x=array)
    """
    return Model(open_file(source), dict(dims or {}), device, freeze)


class _Planned:
    """A plan with the way from arrays to it and back."""

    def __init__(
        self, plan: Any, ports: dict[str, str], results: list[Any], sizes: frozenset[str]
    ) -> None:
        self.plan = plan
        self.ports = ports  # port of each input
        self.sizes = sizes  # variables that no input of the plan shows
        self.results = results  # for each output: a position in the plan's results, or an array

    def run(self, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Value]:
        found: Any = ()
        if self.plan is not None:
            given = {port: feeds[name] for name, port in self.ports.items()}
            found = self.plan(**given, **{n: sizes[n] for n in self.sizes})
            found = found if isinstance(found, tuple) else (found,)
        return [found[r] if isinstance(r, int) else _numbers(r, sizes) for r in self.results]


class _Split:
    """A plan for the first nodes of a model, and what comes after it once its numbers are there.

    The node at which it ends needs the numbers of one value. Where these are few, the other nodes
    are a plan for each of their values, perhaps split again; else they run one by one.
    """

    def __init__(
        self, model: Model, first: _Planned, live: dict[str, Value], feeds: Mapping[str, Value],
        need: str, index: int,
    ) -> None:  # fmt: skip
        self.model = model
        self.first = first
        self.live = live  # what later nodes use: tensors, and known numbers
        self.names = [n for n in live if n not in feeds]  # of what the plan computes
        self.inputs = [n for n in live if n in feeds]
        self.need = need  # the name of what decides
        self.index = index  # of the first node after the plan
        self._rests: dict[bytes, _Planned | _Split | None] = {}

    @property
    def plan(self) -> Any:
        return self.first.plan

    def run(self, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Value]:
        values = dict(zip(self.names, self.first.run(feeds, sizes), strict=True))
        values |= {n: feeds[n] for n in self.inputs}
        rest = self._rest(values)
        if rest is not None:
            return rest.run(values, sizes)
        importer = self.model._new_importer(is_dynamic=True)
        given = {
            n: importer.tensor(v.copy()) if isinstance(self.live[n], Tensor) else v
            for n, v in values.items()
        }
        return _realized(importer.resume(self.index, given))

    def _rest(self, values: dict[str, Array]) -> _Planned | _Split | None:
        """The plan that follows for the numbers of a run; None where there is none."""
        found = values.get(self.need)
        if found is None or found.size > FEW:
            return None
        key = found.tobytes()
        if key not in self._rests:
            if len(self._rests) >= RESTS_LIMIT:
                return None
            known = {n: self.model._standing_for(v) for n, v in self.live.items()}
            self._rests[key] = self.model._rest(self.index, {**known, self.need: found})
        return self._rests[key]


class Model:
    """A model that is ready to be called; see `load`."""

    def __init__(self, file: File, dims: dict[str, Any], device: str | None, freeze: bool) -> None:
        self.file = file
        self.device = device
        self.freeze = freeze
        self.inputs, self.outputs = file.inputs, file.outputs
        self.notes: list[str] = []
        self._dims = Dimensions(file.inputs, file.outputs, dims)
        self._by_value: set[str] = set()  # inputs whose numbers decide shapes
        self._is_dynamic = False
        self._selects = False
        self._common: _Planned | _Split | None = None
        self._special: dict[Any, _Planned | _Split] = {}
        self._has_common = all(i.form == "tensor" and i.shape is not None for i in file.inputs)
        self._importer: Importer | None = None
        self._check()

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Run with arrays, by position or by name; one output as an array, several as a tuple."""
        found = self.run(self._named(args, values))
        return found[0] if len(found) == 1 else tuple(found)

    @property
    def plan(self) -> Any:
        """The plan that serves all sizes; an error where there is none."""
        self._dims.assume()
        planned = self._planned_for_all({})
        if isinstance(planned, _Split):  # perhaps there is one where each If computes both branches
            self._selects = True
            try:
                feeds = {i.name: self._placeholder(i, self._dims.shape(i)) for i in self.inputs}
                planned = self._prepared(feeds)
            except (NeedsSize, NeedsValue, AllocationError, VariableError):
                planned = None
            finally:
                self._selects = False
        if planned is None or isinstance(planned, _Split):
            raise OnnxError("the model has no single plan: " + "; ".join(self.notes))
        return planned.plan

    def view(self, *, title: str = "model", runs: int = 3, browser: bool = True) -> Any:
        """Serve a page about the plan, and open it in the browser."""
        return self.plan.view(title=title, runs=runs, browser=browser)

    def save(self, path: Any) -> None:
        """Write the plan; `svod.load_plan` reads it without this frontend."""
        self.plan.save(path)

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        """The outputs, in order, for values of the inputs by name."""
        arrays = {i.name: _checked(i, feeds.get(i.name)) for i in self.inputs}
        planned = None if self._is_dynamic else self._planned_for_all(arrays)
        if planned is not None:
            results = planned.run(arrays, self._dims.values(arrays))
        else:
            results = self._run_special(arrays)
        return [_outgoing(value, info) for value, info in zip(results, self.outputs, strict=True)]

    # -- plans ----------------------------------------------------------------------------------

    def _planned_for_all(self, arrays: dict[str, Value]) -> _Planned | _Split | None:
        """The plan for ranges of sizes that hold those of a call; None where there is none."""
        if not self._has_common or self._by_value:
            return None
        changed = self._dims.learn(arrays) if arrays else []
        if changed and self._common is not None:
            self._common = None
            self.notes.append(
                f"prepared again for {', '.join(changed)}: dims= gives ranges beforehand"
            )
        while self._common is None and self._has_common:
            try:
                feeds = {i.name: self._placeholder(i, self._dims.shape(i)) for i in self.inputs}
                self._common = self._prepared(feeds)
            except NeedsValue as need:
                self._note_need(need)
                self._has_common = False
            except (NeedsSize, AllocationError, VariableError) as reason:
                self._note_size(reason, arrays)
        return self._common

    def _note_size(self, reason: Exception, arrays: dict[str, Value]) -> None:
        """What to do about a plan that does not hold for all sizes: narrower ranges, or none."""
        if not self._dims.vary:
            raise reason.error if isinstance(reason, NeedsSize) else reason
        joined = self._dims.join(arrays) if arrays and isinstance(reason, NeedsSize) else ""
        narrowed = self._dims.narrow(arrays) if arrays and not joined else []
        if joined:
            self.notes.append(f"{joined}: {reason}")
        elif narrowed:
            self.notes.append(f"a plan for {', '.join(narrowed)} alone: {reason}")
        else:
            self._has_common = False
            self.notes.append(f"a plan for each combination of sizes: {reason}")

    def _run_special(self, arrays: dict[str, Value]) -> list[Value]:
        """Run where sizes, or numbers of inputs, are part of what is planned."""
        while not self._is_dynamic and all(_is_tensor(v) for v in arrays.values()):
            key = tuple([self._key(name, v) for name, v in arrays.items()])
            try:
                planned = self._special.get(key)
                if planned is None:
                    if len(self._special) >= PLANS_LIMIT:
                        del self._special[next(iter(self._special))]
                    planned = self._special[key] = self._prepared(self._special_feeds(arrays))
                return planned.run(arrays, {})
            except NeedsValue as need:
                self._note_need(need)
            except NeedsSize as reason:
                raise reason.error from reason.error.__cause__
        return self._run_dynamic(arrays)

    def _special_feeds(self, arrays: dict[str, Value]) -> dict[str, Value]:
        feeds: dict[str, Value] = {}
        for info in self.inputs:
            array = arrays[info.name]
            if info.name in self._by_value:
                feeds[info.name] = array
            else:
                feeds[info.name] = self._placeholder(info, array.shape)
        return feeds

    def _run_dynamic(self, arrays: dict[str, Value]) -> list[Value]:
        importer = self._new_importer(is_dynamic=True)
        feeds = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arrays.items()}
        feeds = {
            n: importer.tensor(v) if _is_tensor(v) and n not in self._by_value else v
            for n, v in feeds.items()
        }
        results = importer.run(feeds)
        self.notes += [n for n in importer.notes if n not in self.notes]
        return _realized(results)

    def _key(self, name: str, array: Array) -> Any:
        if name in self._by_value:
            return (array.shape, array.tobytes())
        return array.shape

    def _note_need(self, need: NeedsValue) -> None:
        """What to do about numbers that shapes depend on."""
        if need.name in {i.name for i in self.inputs} and need.name not in self._by_value:
            self._by_value.add(need.name)
            self.notes.append(f"a plan for each value of {need.name!r}, which {need.why} needs")
        else:
            self._is_dynamic = True
            self.notes.append(f"run node by node: {need.why} needs the numbers of {need.name!r}")

    def _new_importer(self, is_dynamic: bool = False) -> Importer:
        found = Importer(self.file.message, self.file.store, self.device, is_dynamic)
        if self._importer is not None:  # weights are made once
            found._initial = self._importer._initial
        self._importer = self._importer or found
        found.selects = self._selects
        return found

    def _rest(self, index: int, values: dict[str, Value]) -> _Planned | _Split | None:
        """A plan of all nodes from one on; None where there is none for all sizes."""
        try:
            return self._prepared(values, index)
        except (NeedsSize, NeedsValue, AllocationError, VariableError):
            return None

    def _prepared(self, feeds: dict[str, Value], index: int = 0) -> _Planned | _Split:
        importer = self._new_importer()
        try:
            found = importer.resume(index, feeds) if index else importer.run(feeds)
            results = [_without_elements(r) for r in found]
        except NeedsValue as need:
            is_input = need.name in feeds and not index
            split = None if is_input else self._split(importer, feeds, need)
            if split is None:
                raise
            return split
        self.notes += [n for n in importer.notes if n not in self.notes]
        if any(isinstance(r, (list, dict)) or r is None for r in results):
            raise NeedsValue("", "an output that is no tensor")
        return self._planned(results, [o.name for o in self.outputs], feeds)

    def _split(
        self, importer: Importer, feeds: dict[str, Value], need: NeedsValue
    ) -> _Split | None:
        """A plan for what comes before the node that needs numbers; None where that is little."""
        if importer.halted is None:
            return None
        index, scope = importer.halted
        graph = self.file.message.graph
        wanted = names_used(graph.nodes[index:]) | {o.name for o in graph.outputs}
        wanted.add(need.name)
        constant = {proto.name for proto in graph.initializers}
        live = {n: v for n, v in scope.values.items() if n in wanted and n not in constant}
        known = all(isinstance(v, (Tensor, np.ndarray)) for v in live.values())
        if not known or scope.kinds or not any(isinstance(v, Tensor) for v in live.values()):
            return None
        self.notes += [n for n in importer.notes if n not in self.notes]
        inner = [n for n in live if n not in feeds]
        first = self._planned([_without_elements(live[n]) for n in inner], inner, feeds)
        decides = live.get(need.name)
        few = isinstance(decides, Tensor) and _most_elements(decides) <= FEW
        note = f"a split plan: up to {need.why}, which needs the numbers of {need.name!r}, then "
        note += "a plan for each value of these" if few else "node by node"
        self.notes += [note] if note not in self.notes else []
        return _Split(self, first, live, feeds, need.name, index)

    def _planned(
        self, results: list[Value], results_names: list[str], feeds: dict[str, Value]
    ) -> _Planned:
        """The plan that computes some values from the inputs."""
        computed = [i for i, r in enumerate(results) if isinstance(r, Tensor)]
        places: list[Any] = [
            computed.index(i) if i in computed else r for i, r in enumerate(results)
        ]
        used = _memory([results[i] for i in computed])
        lazy = {
            n: v
            for n, v in feeds.items()
            if isinstance(v, Tensor) and 0 not in v.shape and used & _memory([v])
        }
        ports = {name: name for name in lazy}
        if not computed:
            return _Planned(None, {}, places, frozenset())
        names = [results_names[i] for i in computed]
        names = [
            n if n not in lazy and names.count(n) == 1 else f"{n}:{k}" for k, n in enumerate(names)
        ]
        tensors = [_own(results[i]) for i in computed]
        plan = svod.prepare(
            *tensors, inputs=lazy or None, outputs=names, freeze=self.freeze and bool(lazy)
        )
        shown = {n.arg.name for v in lazy.values() for n in _variables(v.shape)}
        inner = reachable([t.uop for t in tensors])
        held = {n.arg.name for n in inner if n.op == O.DEFINE_VAR}
        known = {n.arg.name for n in _variables(tuple(self._dims.variables.values()))}
        return _Planned(plan, ports, places, frozenset(held & known - shown))

    def _placeholder(self, info: ValueInfo, shape: tuple[Any, ...]) -> Tensor:
        """A tensor that stands for an input of these sizes."""
        if info.elem in (0, STRING) or info.form != "tensor":
            raise NeedsValue(info.name, f"input {info.name!r}, which is no tensor of numbers,")
        return _room(shape, element(info.elem).carrier, self.device)

    def _standing_for(self, value: Value) -> Value:
        """A tensor of its own for one that an earlier plan computes."""
        if not isinstance(value, Tensor):
            return value
        return _room(tuple(value.shape), value.dtype, self.device)

    def _check(self) -> None:
        """Report what is not supported now, not at the first call."""
        importer = self._new_importer()
        problems = importer.check()
        if problems:
            raise UnsupportedModel(problems)

    def _named(self, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        names = [i.name for i in self.inputs]
        if len(args) > len(names):
            raise OnnxError(f"the model takes {len(names)} inputs ({', '.join(names)})")
        feeds = dict(zip(names, args, strict=False)) | values
        unknown = [n for n in feeds if n not in names]
        if unknown:
            raise OnnxError(f"{unknown[0]!r} is no input of the model: {', '.join(names)}")
        return feeds

    def __repr__(self) -> str:
        shown = [
            f"{i.name}: {i.type}{list(i.shape) if i.shape is not None else ''}" for i in self.inputs
        ]
        return f"Model({', '.join(shown)} -> {', '.join(o.name for o in self.outputs)})"


def _realized(results: list[Value]) -> list[Value]:
    """Values as arrays, all tensors computed together."""
    lazy = [r for r in _leaves(results) if isinstance(r, Tensor)]
    if lazy:
        svod.realize(*lazy)
    return [_mapped(r, lambda t: t.numpy() if isinstance(t, Tensor) else t) for r in results]


def _room(shape: tuple[Any, ...], dtype: Any, device: str | None) -> Tensor:
    """A tensor in memory of its own, for the largest sizes that it has."""
    most = tuple([largest(n) for n in shape])
    whole = Tensor.empty(most, dtype=dtype, device=device).realize()
    if not any(isinstance(n, UOp) for n in shape):
        return whole
    return whole[tuple([slice(0, n) for n in shape])]


def _most_elements(tensor: Tensor) -> int:
    return prod([int(largest(n)) for n in tensor.shape])


def _memory(tensors: list[Tensor]) -> set[UOp]:
    """The buffers that tensors are made of."""
    return {n for n in reachable([t.uop for t in tensors]) if n.op == O.BUFFER}


def _without_elements(value: Value) -> Value:
    """An output without elements is known; a plan has no kernel for it."""
    if not isinstance(value, Tensor) or any(isinstance(n, UOp) for n in value.shape):
        return value
    return np.empty(value.shape, CARRIERS[value.dtype]) if 0 in value.shape else value


def _own(tensor: Tensor) -> Tensor:
    """A tensor to prepare that no other name shares, so that the graph stays as it was made."""
    return tensor.detach()


def _numbers(value: Array, sizes: Mapping[str, int]) -> Array:
    """An output that is known on the host, with the sizes of a call."""
    if value.dtype != object or all(isinstance(v, str) for v in value.flat):
        return value.copy()
    return np.array([_number(v, sizes) for v in value.flat], np.int64).reshape(value.shape)


def _number(size: Any, sizes: Mapping[str, int]) -> int:
    if not isinstance(size, UOp):
        return int(size)
    bound = {v: v.bind(sizes[v.arg.name]) for v in _free(size)}
    found = replace_in_size(size, bound)
    return int(value_of(found) if isinstance(found, UOp) else found)  # type: ignore[arg-type]


def _variables(shape: tuple[Any, ...]) -> list[UOp]:
    return [n for size in shape if isinstance(size, UOp) for n in _free(size)]


def _free(size: UOp) -> list[UOp]:
    return [n for n in size.toposort() if hasattr(n.arg, "lo") and hasattr(n.arg, "name")]


def _checked(info: ValueInfo, value: Any) -> Value:
    """An input as arrays of the type that the file says."""
    if info.form != "tensor":
        return _mapped(value, lambda v: v if v is None else np.asarray(v))
    if value is None:
        raise OnnxError(f"input {info.name!r} is missing")
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if info.elem == STRING:
        return array.astype(object)
    if info.elem and array.dtype != info.dtype:
        raise OnnxError(f"input {info.name!r} is {info.type}, got an array of {array.dtype}")
    if info.shape is not None and (
        len(info.shape) != array.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(info.shape, array.shape, strict=True))
    ):
        raise OnnxError(
            f"input {info.name!r} has shape {list(info.shape)}, got an array of shape "
            f"{list(array.shape)}"
        )
    return to_carrier(array)


def _outgoing(value: Value, info: ValueInfo) -> Value:
    def narrow(v: Value) -> Value:
        if isinstance(v, np.generic):  # of a dict, which holds Python's numbers
            return v.item()
        return from_carrier(v, info.elem) if info.elem and isinstance(v, np.ndarray) else v

    return _mapped(value, narrow)


def _is_tensor(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in CARRIERS.values()


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return [value]


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_mapped(v, change) for v in value]
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    return change(value)
