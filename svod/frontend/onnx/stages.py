"""What runs a model: one plan, or a plan up to a node that needs numbers and what comes after it.

A `Split` ends at such a node. Where the node's data say how many results there are (`counted.py`),
the node runs on the host and one plan of the rest has that number as a Variable. Where few whole
numbers decide, they are Variables of the rest (`Numbers`). Where neither holds, there is a plan of
the rest for each value of few numbers; else later nodes run as they are met. Each plan of a rest
may be split again. All plans are kept, and there is a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import svod
from svod.base.errors import AllocationError, VariableError
from svod.frontend.onnx.counted import Counted
from svod.frontend.onnx.errors import NeedsSize, NeedsValue, OnnxError
from svod.frontend.onnx.importer import Importer
from svod.frontend.onnx.registry import Array, Value
from svod.frontend.onnx.steps import Steps
from svod.ir.node import UOp
from svod.ir.symbolic import value_of
from svod.schedule.sizes import replace_in_size
from svod.tensor.tensor import Tensor

FEW = 8  # elements of what decides, for a plan of the rest for each value
RESTS_LIMIT = 16  # such plans; values that come later have none
LEARNT = 128  # the least end of a range that nothing bounds
NO_PLAN = (NeedsSize, NeedsValue, AllocationError, VariableError)
Rest = tuple["Stage", dict[str, int]]  # a plan of the rest, and the values of its variables


@dataclass(frozen=True)
class Explained:
    """A part of a model in words, with its plan where it has one."""

    text: str
    plan: Any = None


class Planned:
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

    def explained(self) -> Iterator[Explained]:
        yield Explained("", self.plan)


class Numbers:
    """Few whole numbers that decide shapes, as Variables.

    Numbers below `low` stay as they are: some operators take 0 and 1 for something else than a
    size, a copy or an axis to spread, and all take negative ones so.
    """

    def __init__(self, names: list[str], need: NeedsValue) -> None:
        self.names = names  # of the variables
        self.why = need.why
        self.most = need.most if len(names) == 1 else None
        self.low = 2 if need.why.startswith("Reshape") else 0
        self.are_exact = False  # whether all stay as they are
        self._ends = [LEARNT if self.most is None else max(self.most, 1)] * len(names)

    def symbols(self, found: Array) -> tuple[tuple[Any, ...], Array, dict[str, int]]:
        """What a plan depends on, the numbers with variables in them, and values of these."""
        flat = [int(v) for v in found.reshape(-1)]
        values = np.empty(len(flat), object)
        values[:] = flat
        bound = {}
        for i, number in enumerate(flat):
            if number < self.low or self.are_exact:
                continue
            if number > self._ends[i]:
                self._ends[i] = 1 << (number - 1).bit_length()
            values[i] = svod.Variable(self.names[i], self.low, self._ends[i])
            bound[self.names[i]] = number
        key = tuple([(v.vmin, v.vmax) if isinstance(v, UOp) else v for v in values])
        return key, (values.reshape(found.shape) if bound else found), bound


class Stage(Protocol):
    """What runs a model, or the rest of one."""

    def run(self, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Value]: ...

    def explained(self) -> Iterator[Explained]: ...


class Owner(Protocol):
    """What a split asks of its model."""

    notes: list[str]

    def importer(self, is_dynamic: bool = False, steps: Steps | None = None) -> Importer: ...

    def variable_name(self, wanted: str) -> str: ...

    def standing_for(self, value: Value) -> Value: ...

    def room(self, shape: tuple[Any, ...], dtype: Any) -> Tensor: ...

    def prepared(self, values: dict[str, Value], index: int, steps: Steps | None) -> Stage: ...


class Split:
    """A plan for the first nodes of a model, and what comes after it once its numbers are there."""

    def __init__(
        self, model: Owner, first: Planned, live: dict[str, Value], feeds: Mapping[str, Value],
        need: NeedsValue, index: int, counted: Counted | None, steps: Steps,
    ) -> None:  # fmt: skip
        self.model = model
        self.first = first
        self.live = live  # what later nodes use: tensors, and known numbers
        self.names = [n for n in live if n not in feeds]  # of what the plan computes
        self.inputs = [n for n in live if n in feeds]
        self.need = need  # what decides, and why
        self.index = index  # of the first node after the plan
        self.counted = counted  # that node, where its data say how many results it has
        self.steps = steps  # the model's nodes
        self.outputs: list[str] = steps.nodes[index].outputs  # names of that node's results
        self._variables: list[str] = []
        self._rests: dict[Any, Stage | None] = {}
        self._reason = ""  # why there is no plan of the rest
        self._end = 0  # of the range of results that is learnt
        self._numbers: Numbers | None = None

    @property
    def plan(self) -> Any:
        return self.first.plan

    def run(self, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Value]:
        values = dict(zip(self.names, self.first.run(feeds, sizes), strict=True))
        values |= {n: feeds[n] for n in self.inputs}
        if self.counted is not None:
            results = self._results(values)
            values |= {n: v for n, v in zip(self.outputs, results, strict=False) if n}
            rest = self._after_count(self.counted, self.counted.number(results))
        else:
            rest = self._after_numbers(values.get(self.need.name))
        if rest is not None:
            return rest[0].run(values, {**sizes, **rest[1]})
        return self._node_by_node(values)

    def _results(self, values: dict[str, Value]) -> list[Value]:
        """The results of the counted node, which runs on the host."""
        importer = self.model.importer(is_dynamic=True, steps=self.steps)
        used = set(self.steps.nodes[self.index].inputs)
        found = importer.one(self.index, {n: v for n, v in values.items() if n in used})
        return realized(found)

    def _node_by_node(self, values: dict[str, Value]) -> list[Value]:
        importer = self.model.importer(is_dynamic=True, steps=self.steps)
        given = {
            n: importer.tensor(v.copy()) if isinstance(self.live.get(n), Tensor) else v
            for n, v in values.items()
        }
        index = self.index + (self.counted is not None)
        found = realized(importer.resume(index, given))
        self._note(f"run node by node from node {index} on: {self._reason}")
        return found

    # -- plans of the rest ----------------------------------------------------------------------

    def _after_count(self, counted: Counted, number: int) -> Rest | None:
        """The plan that follows for a number of results."""
        name = self._names(1)[0]
        for low, high in self._ranges(counted, number):
            if not low <= number <= high:
                continue
            size = svod.Variable(name, low, high) if low < high else low
            rest = self._made(("to", low, high), lambda s=size: self._counted_values(counted, s))
            if rest is not None:
                return rest, {name: number}
        return None

    def _ranges(self, counted: Counted, number: int) -> Iterator[tuple[int, int]]:
        """Ranges to try: all numbers, all but none, then as far as runs have shown.

        What has no plan for 0 results, as an extreme of them has none, gets one of its own for
        that. A range up to the bound may need more memory than there is.
        """
        if counted.most is not None:
            yield from ((0, counted.most), (1, counted.most))
        if number > self._end:
            self._end = max(LEARNT, 1 << (number - 1).bit_length())
        end = max(self._end, LEARNT)
        if counted.most is None or end < counted.most:
            yield from ((0, end), (1, end))
        if number == 0:
            yield (0, 0)

    def _counted_values(self, counted: Counted, size: Any) -> dict[str, Value]:
        return {
            name: self.model.room(shape, dtype)
            for name, (shape, dtype) in zip(self.outputs, counted.shapes(size), strict=False)
            if name
        }

    def _after_numbers(self, found: Array | None) -> Rest | None:
        """The plan that follows for few numbers: as variables, else for just these."""
        need = self.need.name
        if found is None or found.size > FEW:
            self._reason = f"{self.need.why} needs the numbers of {need!r}"
            return None
        if found.dtype.kind == "i":
            if self._numbers is None:
                self._numbers = Numbers(self._names(found.size), self.need)
            for low in sorted({self._numbers.low, 2}):
                self._numbers.low = low
                key, symbols, bound = self._numbers.symbols(found)
                rest = self._made(key, lambda s=symbols: {need: s}) if bound else None
                if rest is not None:
                    return rest, bound
        exact = found.tobytes()
        if exact not in self._rests and sum(isinstance(k, bytes) for k in self._rests) >= (
            RESTS_LIMIT
        ):
            self._reason = f"{need!r} had more than {RESTS_LIMIT} different values"
            return None
        rest = self._made(exact, lambda: {need: found})
        return (rest, {}) if rest is not None else None

    def _made(self, key: Any, changes: Callable[[], dict[str, Value]]) -> Stage | None:
        """The plan of the rest for a key, made when it is asked for first; None for none."""
        if key not in self._rests:
            self._rests[key] = None
            index = self.index + (self.counted is not None)
            try:
                known = {n: self.model.standing_for(v) for n, v in self.live.items()}
                self._rests[key] = self.model.prepared({**known, **changes()}, index, self.steps)
            except NO_PLAN as reason:
                self._reason = reason_text(reason)
            except OnnxError as reason:  # numbers in place of variables say whether it is one
                if isinstance(key, bytes):
                    del self._rests[key]
                    raise
                self._reason = reason_text(reason)
        return self._rests[key]

    def _names(self, count: int) -> list[str]:
        """Names of variables: one for each number that decides."""
        is_counted = self.counted is not None
        wanted = next(filter(None, self.outputs), "") if is_counted else self.need.name
        while len(self._variables) < count:
            self._variables.append(self.model.variable_name(f"n_{wanted}"))
        return self._variables[:count]

    def _note(self, text: str) -> None:
        if text not in self.model.notes:
            self.model.notes.append(text)

    # -- in words -------------------------------------------------------------------------------

    def why(self) -> str:
        """Where the plan ends, and why."""
        if self.counted is None:
            return f"up to {self.need.why}, which needs the numbers of {self.need.name!r}"
        return f"up to {self.need.why}, whose data say how many results it has"

    def follows(self) -> str:
        """What comes after the plan, as far as that is known before."""
        if self.counted is not None:
            return "a plan with that number as a variable"
        known = self.live.get(self.need.name)
        if isinstance(known, Tensor) and known.dtype.kind == "i":
            return "a plan with these as variables"
        return "a plan for each value of these"

    def explained(self) -> Iterator[Explained]:
        """This plan and those that follow, for all numbers or for some that stand for others."""
        yield Explained(f"a plan {self.why()}", self.plan)
        known = self.live.get(self.need.name)
        if self.counted is not None:
            self._after_count(self.counted, 2)
        elif isinstance(known, (Tensor, np.ndarray)) and not any(
            isinstance(n, UOp) for n in known.shape
        ):
            kind = known.dtype.kind
            for example in (0, 1) if kind == "b" else (2,) if kind == "i" else ():
                self._after_numbers(np.full(known.shape, example, f"{kind}{known.dtype.itemsize}"))
        is_none = True
        for key, rest in self._rests.items():
            if rest is None:
                continue
            is_none = False
            for number, part in enumerate(rest.explained()):
                told = f"then {self._key_text(key)}" if number == 0 else ""
                yield Explained("; ".join([t for t in (told, part.text) if t]), part.plan)
        if is_none:
            yield Explained("then " + self._otherwise())

    def _key_text(self, key: Any) -> str:
        if isinstance(key, bytes):
            return f"a plan for one value of {self.need.name!r}"
        if self.counted is not None:
            _, low, high = key
            return f"a plan for {low} to {high} results of {', '.join(filter(None, self.outputs))}"
        ranges = [f"{k[0]} to {k[1]}" if isinstance(k, tuple) else str(k) for k in key]
        return f"a plan for {self.need.name!r} of {', '.join(ranges)}"

    def _otherwise(self) -> str:
        return f"node by node: {self._reason}" if self._reason else "a plan for each value"


def realized(results: list[Value]) -> list[Value]:
    """Values as arrays, all tensors computed together."""
    lazy = [r for r in _leaves(results) if isinstance(r, Tensor)]
    if lazy:
        svod.realize(*lazy)
    return [mapped(r, lambda t: t.numpy() if isinstance(t, Tensor) else t) for r in results]


def mapped(value: Any, change: Any) -> Any:
    """A value with every leaf of its lists and dicts changed."""
    if isinstance(value, (list, tuple)):
        return [mapped(v, change) for v in value]
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    return change(value)


def free_variables(size: UOp) -> list[UOp]:
    return [n for n in size.toposort() if hasattr(n.arg, "lo") and hasattr(n.arg, "name")]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return [value]


def _numbers(value: Array, sizes: Mapping[str, int]) -> Array:
    """An output that is known on the host, with the sizes of a call."""
    if value.dtype != object or all(isinstance(v, str) for v in value.flat):
        return value.copy()
    return np.array([_number(v, sizes) for v in value.flat], np.int64).reshape(value.shape)


def _number(size: Any, sizes: Mapping[str, int]) -> int:
    if not isinstance(size, UOp):
        return int(size)
    bound = {v: v.bind(sizes[v.arg.name]) for v in free_variables(size)}
    found = replace_in_size(size, bound)
    return int(value_of(found) if isinstance(found, UOp) else found)  # type: ignore[arg-type]


def reason_text(error: Exception) -> str:
    """Why there is no plan."""
    if isinstance(error, NeedsValue):
        return f"{error.why} needs the numbers of {error.name!r}"
    return str(error)
