"""A model from a file: called with arrays, it runs one prepared plan.

Sizes that the file names become Variables, and one plan serves all of their values. Where the graph
does not hold for a whole range, or where numbers of an input decide shapes (`Reshape` by an input),
there is a plan for each combination that is met. Where numbers computed inside decide what follows,
the plan is split there (`stages.py`). `model.notes` says which and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import VariableError
from svod.frontend.onnx import operators  # noqa: F401  # fills the registry
from svod.frontend.onnx.counted import counted
from svod.frontend.onnx.dimensions import Dimensions, plain_name
from svod.frontend.onnx.errors import NeedsSize, NeedsValue, OnnxError, UnsupportedModel
from svod.frontend.onnx.file import File, ValueInfo, open_file
from svod.frontend.onnx.importer import Importer, names_used
from svod.frontend.onnx.registry import Array, Value
from svod.frontend.onnx.stages import (
    FEW,
    NO_PLAN,
    Explained,
    Numbers,
    Planned,
    Split,
    Stage,
    free_variables,
    mapped,
    realized,
    reason_text,
)
from svod.frontend.onnx.steps import Steps
from svod.frontend.onnx.types import CARRIERS, STRING, element, from_carrier, to_carrier
from svod.ir import ops as O
from svod.ir.node import UOp, largest
from svod.schedule.sizes import reachable
from svod.tensor.tensor import Tensor

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
    """
    return Model(open_file(source), dict(dims or {}), device, freeze)


class Model:
    """A model that is ready to be called; see `load`."""

    def __init__(self, file: File, dims: dict[str, Any], device: str | None, freeze: bool) -> None:
        self.file = file
        self.device = device
        self.freeze = freeze
        self.inputs, self.outputs = file.inputs, file.outputs
        self.notes: list[str] = []
        self._dims = Dimensions(file.inputs, file.outputs, dims)
        self._by_value: set[str] = set()  # inputs whose numbers decide shapes, a plan for each
        self._numbers: dict[str, Numbers] = {}  # inputs whose numbers are variables
        self._names: set[str] = set()  # of variables that no size of an input has
        self._is_dynamic = False
        self._selects = False
        self._common: dict[Any, Stage] = {}  # by the numbers of inputs that are no variables
        self._special: dict[Any, Stage] = {}
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
        planned = self._planned_for_all({})[0]
        if isinstance(planned, Split):  # perhaps there is one where each If computes both branches
            self._selects = True
            try:
                planned = self.prepared(self._placeholders())
            except NO_PLAN:
                planned = None
            finally:
                self._selects = False
        if not isinstance(planned, Planned):
            raise OnnxError("the model has no single plan: " + "; ".join(self.notes))
        return planned.plan

    def view(self, *, title: str = "model", runs: int = 3, browser: bool = True) -> Any:
        """Serve a page about the plan, and open it in the browser."""
        return self.plan.view(title=title, runs=runs, browser=browser)

    def explained(self) -> Iterator[Explained]:
        """The plans that serve all sizes: several where the model is split, with the reasons."""
        self._dims.assume()
        planned = self._planned_for_all({})[0]
        if planned is not None:
            yield from planned.explained()

    def save(self, path: Any) -> None:
        """Write the plan; `svod.load_plan` reads it without this frontend."""
        self.plan.save(path)

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        """The outputs, in order, for values of the inputs by name."""
        arrays = {i.name: _checked(i, feeds.get(i.name)) for i in self.inputs}
        planned, bound = self._planned_for_all(arrays)
        if planned is not None:
            results = planned.run(arrays, self._dims.values(arrays) | bound)
        else:
            results = self._run_special(arrays)
        return [_outgoing(value, info) for value, info in zip(results, self.outputs, strict=True)]

    # -- plans ----------------------------------------------------------------------------------

    def _planned_for_all(self, arrays: dict[str, Value]) -> tuple[Stage | None, dict[str, int]]:
        """The plan for ranges of sizes that hold those of a call, and numbers of inputs as values
        of variables; None where there is none."""
        if self._is_dynamic or not self._has_common or self._by_value:
            return None, {}
        changed = self._dims.learn(arrays) if arrays else []
        if changed and self._common:
            self._common = {}
            self.notes.append(
                f"prepared again for {', '.join(changed)}: dims= gives ranges beforehand"
            )
        while self._has_common and not self._by_value:
            if not arrays and any(n.are_exact for n in self._numbers.values()):
                break
            key, symbols, bound = self._symbols(arrays)
            try:
                if key not in self._common:
                    if len(self._common) >= PLANS_LIMIT:
                        del self._common[next(iter(self._common))]
                    self._common[key] = self.prepared(self._placeholders() | symbols)
                return self._common[key], bound
            except (*NO_PLAN, OnnxError) as reason:
                if isinstance(reason, NeedsValue) and self._made_numbers(reason):
                    continue
                if any(not n.are_exact for n in self._numbers.values()):
                    self._make_exact(reason)
                elif isinstance(reason, NeedsValue):
                    self._has_common = False
                    self._note_need(reason)
                elif isinstance(reason, OnnxError):
                    raise
                else:
                    self._note_size(reason, arrays)
        return None, {}

    def _placeholders(self) -> dict[str, Value]:
        return {i.name: self._placeholder(i, self._dims.shape(i)) for i in self.inputs}

    def _symbols(self, arrays: dict[str, Value]) -> tuple[Any, dict[str, Value], dict[str, int]]:
        """Inputs whose numbers are variables: what a plan depends on, arrays, and values."""
        keys, symbols, bound = [], {}, {}
        for info in self.inputs:
            if info.name in self._numbers:
                found = arrays.get(info.name)
                found = np.full(info.shape, 2, info.dtype) if found is None else found
                key, symbols[info.name], values = self._numbers[info.name].symbols(found)
                keys.append(key)
                bound |= values
        return tuple(keys), symbols, bound

    def _made_numbers(self, need: NeedsValue) -> bool:
        """Make what an operator needs variables; whether that can be, and is new."""
        info = next((i for i in self.inputs if i.name == need.name), None)
        count = self._few(info) if info is not None else 0
        if not count:
            return False
        names = [self.variable_name(f"n_{need.name}") for _ in range(count)]
        self._numbers[need.name] = Numbers(names, need)
        self.notes.append(f"numbers of {need.name!r} are variables: {need.why} needs them")
        return True

    def _make_exact(self, reason: Exception) -> None:
        """A plan for each value of the numbers that became variables last."""
        name = [n for n, numbers in self._numbers.items() if not numbers.are_exact][-1]
        numbers = self._numbers[name]
        if numbers.low == 0:  # 0 and 1 mean something else than a size, to some
            numbers.low = 2
            return
        numbers.are_exact = True
        self.notes.remove(f"numbers of {name!r} are variables: {numbers.why} needs them")
        self.notes.append(f"a plan for each value of {name!r}: {reason_text(reason)}")

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
                    planned = self._special[key] = self.prepared(self._special_feeds(arrays))
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
        importer = self.importer(is_dynamic=True)
        feeds = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arrays.items()}
        feeds = {
            n: importer.tensor(v) if _is_tensor(v) and n not in self._by_value else v
            for n, v in feeds.items()
        }
        results = importer.run(feeds)
        self.notes += [n for n in importer.notes if n not in self.notes]
        return realized(results)

    def _key(self, name: str, array: Array) -> Any:
        if name in self._by_value:
            return (array.shape, array.tobytes())
        return array.shape

    def _note_need(self, need: NeedsValue) -> None:
        """What to do about numbers that shapes depend on."""
        info = next((i for i in self.inputs if i.name == need.name), None)
        if info is not None and need.name not in self._by_value:
            self._by_value.add(need.name)
            self.notes.append(f"a plan for each value of {need.name!r}, which {need.why} needs")
        else:
            self._is_dynamic = True
            self.notes.append(f"run node by node: {need.why} needs the numbers of {need.name!r}")

    def _few(self, info: ValueInfo) -> int:
        """How many numbers an input has that may be variables of a plan; 0 for none."""
        shape = [n for n in info.shape or () if isinstance(n, int)]
        is_known = info.shape is not None and len(shape) == len(info.shape)
        is_new = info.name not in self._numbers and info.name not in self._by_value
        is_few = is_known and is_new and info.elem in (6, 7) and prod(shape) <= FEW
        return prod(shape) if is_few else 0

    def variable_name(self, wanted: str) -> str:
        """A name for a variable of a plan, like nothing else."""
        name = plain_name(wanted, self._dims.taken)
        self._names.add(name)
        return name

    def importer(self, is_dynamic: bool = False, steps: Steps | None = None) -> Importer:
        found = Importer(self.file.message, self.file.store, self.device, is_dynamic, steps)
        if self._importer is not None:  # weights are made once
            found._initial = self._importer._initial
        self._importer = self._importer or found
        found.selects = self._selects
        return found

    def prepared(
        self, values: dict[str, Value], index: int = 0, steps: Steps | None = None
    ) -> Stage:
        """What runs the nodes from one on, for values that come before it."""
        importer = self.importer(steps=steps)
        try:
            found = importer.resume(index, values)
            results = [_without_elements(r) for r in found]
        except NeedsValue as need:
            split = None
            if index or need.name not in values or self._counts_first(importer):
                split = self._split(importer, values, need)
            if split is None:
                raise
            return split
        self._add_notes(importer)
        if any(isinstance(r, (list, dict)) or r is None for r in results):
            raise NeedsValue("", "an output that is no tensor")
        return self._planned(results, [o.name for o in self.outputs], values)

    def _counts_first(self, importer: Importer) -> bool:
        """Whether numbers of an input decide how many results a node has, and no shape directly."""
        if importer.halted is None:
            return False
        view = importer.halted_view()
        return view.proto.op_type != "Range" and counted(view) is not None

    def _add_notes(self, importer: Importer) -> None:
        self.notes += [n for n in importer.notes if n not in self.notes]

    def _split(self, importer: Importer, feeds: dict[str, Value], need: NeedsValue) -> Split | None:
        """A plan for what comes before the node that needs numbers; None where that is little."""
        if importer.halted is None:
            return None
        index, scope = importer.halted
        steps = importer.steps
        wanted = names_used(steps.nodes[index:]) | {o.name for o in self.outputs}
        wanted.add(need.name)
        constant = steps.initializers()
        live = {n: v for n, v in scope.values.items() if n in wanted and n not in constant}
        known = all(isinstance(v, (Tensor, np.ndarray)) for v in live.values())
        if not known or scope.kinds or not any(isinstance(v, Tensor) for v in live.values()):
            return None
        self._add_notes(importer)
        inner = [n for n in live if n not in feeds]
        first = self._planned([_without_elements(live[n]) for n in inner], inner, feeds)
        found = counted(importer.halted_view())
        split = Split(self, first, live, feeds, need, index, found, steps)
        note = f"a split plan: {split.why()}, then {split.follows()}"
        self.notes += [note] if note not in self.notes else []
        return split

    def _planned(
        self, results: list[Value], results_names: list[str], feeds: dict[str, Value]
    ) -> Planned:
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
            return Planned(None, {}, places, frozenset())
        names = [results_names[i] for i in computed]
        names = [
            n if n not in lazy and names.count(n) == 1 else f"{n}:{k}" for k, n in enumerate(names)
        ]
        tensors = [_own(results[i]) for i in computed]
        held = {n.arg.name for n in reachable([t.uop for t in tensors]) if n.op == O.DEFINE_VAR}
        plan = svod.prepare(
            *tensors, inputs=lazy or None, outputs=names, freeze=self.freeze and bool(lazy)
        )
        plain = {n for v in lazy.values() for n in v.shape if isinstance(n, UOp)}
        shown = {n.arg.name for n in plain if n.op == O.DEFINE_VAR}
        known = {n.arg.name for n in _variables(tuple(self._dims.variables.values()))}
        known |= self._names
        return Planned(plan, ports, places, frozenset(held & known - shown))

    def _placeholder(self, info: ValueInfo, shape: tuple[Any, ...]) -> Tensor:
        """A tensor that stands for an input of these sizes."""
        if info.elem in (0, STRING) or info.form != "tensor":
            raise NeedsValue(info.name, f"input {info.name!r}, which is no tensor of numbers,")
        return _room(shape, element(info.elem).carrier, self.device)

    def standing_for(self, value: Value) -> Value:
        """A tensor of its own for one that an earlier plan computes."""
        if not isinstance(value, Tensor):
            return value
        return self.room(tuple(value.shape), value.dtype)

    def room(self, shape: tuple[Any, ...], dtype: Any) -> Tensor:
        """A tensor in memory of its own, for the largest sizes that it has."""
        return _room(shape, dtype, self.device)

    def _check(self) -> None:
        """Report what is not supported now, not at the first call."""
        importer = self.importer()
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


def _room(shape: tuple[Any, ...], dtype: Any, device: str | None) -> Tensor:
    """A tensor in memory of its own, for the largest sizes that it has."""
    most = tuple([largest(n) for n in shape])
    whole = Tensor.empty(most, dtype=dtype, device=device).realize()
    if not any(isinstance(n, UOp) for n in shape):
        return whole
    return whole[tuple([slice(0, n) for n in shape])]


def _memory(tensors: list[Tensor]) -> set[UOp]:
    """The buffers that tensors are made of."""
    return {n for n in reachable([t.uop for t in tensors]) if n.op == O.BUFFER}


def _without_elements(value: Value) -> Value:
    """An output without elements is known; a plan has no kernel for it."""
    if not isinstance(value, Tensor) or not any(isinstance(n, int) and n == 0 for n in value.shape):
        return value
    if any(isinstance(n, UOp) for n in value.shape):
        raise VariableError("a result without elements has a run-time size")
    return np.empty(value.shape, CARRIERS[value.dtype])


def _own(tensor: Tensor) -> Tensor:
    """A tensor to prepare that no other name shares, so that the graph stays as it was made."""
    return tensor.detach()


def _variables(shape: tuple[Any, ...]) -> list[UOp]:
    return [n for size in shape if isinstance(size, UOp) for n in free_variables(size)]


def _checked(info: ValueInfo, value: Any) -> Value:
    """An input as arrays of the type that the file says."""
    if info.form != "tensor":
        return mapped(value, lambda v: v if v is None else np.asarray(v))
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

    return mapped(value, narrow)


def _is_tensor(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in CARRIERS.values()
