"""A graph as plans and the calls of torch between them.

In: an FX graph of ATen operators. Out: a callable like it. Operators that are not translated stay
with torch; they split the graph into stages, each a plan that computes all it can, followed by the
calls of torch that wait for it. A graph without such operators is one plan.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map_only

from svod.base.errors import SvodWarning, UnsupportedError
from svod.frontend.torch.dtypes import is_known
from svod.frontend.torch.graph import GETITEM, is_size, is_translated, name_of
from svod.frontend.torch.options import Options
from svod.frontend.torch.report import report
from svod.frontend.torch.segment import Memory, Segment
from svod.frontend.torch.sizes import Readings, Sizes, evaluated, first_bounds

_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "permute.default", "t.default", "transpose.int", "expand.default",
        "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "alias.default",
        "detach.default", "select.int", "slice.Tensor", "_unsafe_view.default",
        "as_strided.default", "diagonal.default", "split_with_sizes.default", "unbind.int",
        "split.Tensor",
    )
)  # fmt: skip


@dataclass(slots=True)
class Stage:
    """A plan, and the calls of torch that come after it."""

    segment: Segment
    calls: list[Node] = field(default_factory=list)


class Compiled:
    """A graph that runs as plans, with torch for what is not translated."""

    def __init__(self, gm: GraphModule, options: Options, frozen: Sequence[int] = ()) -> None:
        report().graphs += 1
        self.gm = gm
        self.options = options
        nodes = list(gm.graph.nodes)
        self.placeholders = [n for n in nodes if n.op == "placeholder"]
        self.marked = [i for i, n in enumerate(self.placeholders) if _is_marked(n.meta["val"])]
        self.constants = {n: _attribute(gm, n.target) for n in nodes if n.op == "get_attr"}
        for node, value in self.constants.items():
            if _is_marked(value):
                self.constants[node] = _resolved(value)
        for node, value in self.constants.items():
            node.meta.setdefault("val", value)
        self.results: list[Any] = list(nodes[-1].args[0])
        self.bases = _bases(self.results)
        self.sizes = Sizes(first_bounds(_all_sizes(nodes)))
        self.refused: dict[Node, str] = {}
        self.stages: list[Stage] = []
        self.made: set[Node] = set()
        self._cut([n for n in nodes if n.op not in ("placeholder", "get_attr", "output")])
        self._say_refused()
        self._finish({self.placeholders[place] for place in frozen})

    # -- building -------------------------------------------------------------------------------

    def _cut(self, nodes: list[Node]) -> None:
        """Put every node into the first stage at which all it needs is there."""
        needed = self._needed(nodes)
        level: dict[Node, int] = dict.fromkeys((*self.placeholders, *self.constants), 0)
        calls: set[Node] = set()
        for node in nodes:
            if node not in needed:
                continue
            used = node.all_input_nodes
            level[node] = max([level[n] for n in used], default=0)
            if _is_plain_size(node):
                if any(n in calls for n in used):
                    level[node] += 1
                continue
            if name_of(node) == GETITEM and node.args[0] in calls:
                calls.add(node)
                self._stage(level[node]).calls.append(node)
                continue
            later = max([level[n] + (n in calls) for n in used], default=0)
            if self._is_added(node, later):
                level[node] = later
            else:
                calls.add(node)
                self._stage(level[node]).calls.append(node)
        self.calls = calls

    def _needed(self, nodes: list[Node]) -> set[Node]:
        """Nodes that results depend on, and those that do more than give a value."""
        found = self._wanted()
        for node in reversed(nodes):
            if node in found or node.is_impure():
                found.add(node)
                found.update(node.all_input_nodes)
        return found

    def _wanted(self) -> set[Node]:
        """Nodes whose values are needed for the results."""
        return {self.bases.get(n, n) for n in self.results if isinstance(n, Node)}

    def _is_added(self, node: Node, level: int) -> bool:
        if not is_translated(node):
            self.refused[node] = "not in the table"
            return False
        try:
            self._stage(level).segment.add(node)
        except UnsupportedError as error:
            self.refused[node] = str(error)
            return False
        self.made.add(node)
        return True

    def _stage(self, level: int) -> Stage:
        while len(self.stages) <= level:
            self.stages.append(Stage(Segment(self.sizes, self.options, self.made)))
        return self.stages[level]

    def _say_refused(self) -> None:
        if not self.refused:
            return
        reasons = {name_of(node): reason for node, reason in self.refused.items()}
        listed = ", ".join(f"{name} ({reason})" for name, reason in sorted(reasons.items()))
        if self.options.fallback == "error":
            raise UnsupportedError(
                f"Svod does not do {listed}; with options={{'fallback': 'warn'}} torch does"
            )
        report().fallbacks.update(Counter(name_of(node) for node in self.refused))
        warnings.warn(f"torch runs what Svod does not do: {listed}", SvodWarning, stacklevel=2)

    def _finish(self, frozen: set[Node]) -> None:
        wanted = self._wanted()
        for stage in self.stages:
            for node in (*stage.segment.buffers, *stage.calls):
                wanted.update([node] if node in stage.segment.buffers else node.all_input_nodes)
        symbolic = [n for n in (*self.placeholders, *self.calls) if is_size(n)]
        order = {n: i for i, n in enumerate(self.gm.graph.nodes)}
        for stage in self.stages:
            stage.segment.finish(wanted, sorted(symbolic, key=order.__getitem__),
                                 {*frozen, *self.constants})  # fmt: skip
        self.readings = Readings()
        for place, node in enumerate(self.placeholders):
            self.readings.note(place, node.meta["val"])
        self._note_results()

    def _note_results(self) -> None:
        """Where each result comes from, and whether one plan gives all of them."""
        places = {n: i for i, n in enumerate(self.placeholders)}
        self.is_single = len(self.stages) <= 1 and not self.calls
        only = self.stages[0].segment if self.stages else None
        made = {} if only is None else {n: i for i, (n, _) in enumerate(only.outputs)}
        self.taken = [] if only is None else [places.get(n, -1) for n in only.inputs]
        self.is_single = self.is_single and -1 not in self.taken
        self.sources: list[tuple[str, Any]] = []
        for node in self.results:
            if not isinstance(node, Node):
                self.sources.append(("value", node))
            elif node in self.bases:
                self.sources.append(("view", (self.bases[node], _window(node, self.bases[node]))))
            elif node in made:
                self.sources.append(("made", made[node]))
            else:
                self.sources.append(("node", node))
                self.is_single = self.is_single and is_size(node)
        kinds = [kind for kind, _ in self.sources]
        self.is_plain = self.is_single and kinds == ["made"] * len(made)
        self.is_plain = self.is_plain and [p for _, p in self.sources] == list(range(len(made)))
        self.positions, self.gives = places, made
        self.has_sizes = bool(self.readings.places)

    # -- calling --------------------------------------------------------------------------------

    def __call__(self, args: list[Any]) -> list[Any]:
        for place in self.marked:
            args[place] = _resolved(args[place])
        if not self.is_single:
            return self._run_stages(args)
        found: list[Any] = []
        if self.stages:
            found = self.stages[0].segment([args[place] for place in self.taken])
            if self.is_plain:
                args.clear()
                return found
        values = self.readings.read(self.readings.places, args) if self.has_sizes else {}
        results = []
        for kind, what in self.sources:
            if kind == "made":
                results.append(found[what])
            elif kind == "view":
                base, window = what
                if base in self.gives:
                    shown = found[self.gives[base]]
                else:
                    place = self.positions.get(base)
                    shown = self.constants[base] if place is None else args[place]
                results.append(_shown(shown, window, values))
            elif kind == "node":
                results.append(evaluated(what.meta["val"], values))
            else:
                results.append(what)
        args.clear()
        return results

    def _run_stages(self, args: list[Any]) -> list[Any]:
        known: dict[Node, Any] = dict(self.constants)
        known.update(zip(self.placeholders, args, strict=True))
        values = self.readings.read(self.readings.places, args)
        args.clear()
        for stage in self.stages:
            segment = stage.segment
            if segment.outputs:
                given = [self._expected(n, segment, known, values) for n in segment.inputs]
                for (node, _), found in zip(segment.outputs, segment(given), strict=True):
                    known[node] = found
            for node in stage.calls:
                known[node] = self._called(node, known, values)
                later = Readings()
                later.note(0, node.meta.get("val"))
                values.update(later.read(later.places, [known[node]]))
        return [self._result(kind, what, known, values) for kind, what in self.sources]

    def _expected(
        self, node: Node, segment: Segment, known: dict[Node, Any], values: dict[str, int]
    ) -> Any:
        """A value; what torch made, in the strides that were noted when the graph was recorded."""
        found = known.get(node)  # a size of a later call is not known, and not needed yet
        if node not in self.calls or node not in segment.memory:
            return found
        strides = tuple([evaluated(s, values) for s in segment.memory[node].strides])
        if found.stride() == strides or found.numel() < 2:
            return found
        return torch.empty_strided(found.shape, strides, dtype=found.dtype).copy_(found)

    def _called(self, node: Node, known: dict[Node, Any], values: dict[str, int]) -> Any:
        def value(used: Node) -> Any:
            return known[used] if used in known else evaluated(used.meta["val"], values)

        args, named = map_arg(node.args, value), map_arg(node.kwargs, value)
        return tree_map_only(torch.Tensor, _resolved, node.target(*args, **named))  # type: ignore[operator]

    def _result(self, kind: str, what: Any, known: dict[Node, Any], values: dict[str, int]) -> Any:
        if kind == "value":
            return what
        if kind == "view":
            return _shown(known[what[0]], what[1], values)
        if kind == "made":
            return known[self.stages[0].segment.outputs[what][0]]
        return known[what] if what in known else evaluated(what.meta["val"], values)


def _resolved(found: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory has its values: torch conjugates and negates by a mark, later."""
    if not (found.is_conj() or found.is_neg()):
        return found
    return torch.empty_strided(found.shape, found.stride(), dtype=found.dtype).copy_(found)


def _is_marked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _is_plain_size(node: Node) -> bool:
    """Arithmetic of sizes, which torch has noted as an expression."""
    return is_size(node) and not name_of(node).startswith("aten._local_scalar")


def _attribute(gm: GraphModule, target: Any) -> Any:
    found: Any = gm
    for part in str(target).split("."):
        found = getattr(found, part)
    return found


def _all_sizes(nodes: Sequence[Node]) -> list[Any]:
    found: list[Any] = []
    for node in nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, torch.SymInt):
                found.append(part)
            elif isinstance(part, torch.Tensor):
                found += [n for n in (*part.shape, *part.stride()) if type(n) is not int]
    return found


def _bases(results: Sequence[Any]) -> dict[Node, Node]:
    """Results that show elements of an argument, or of a value that other results show too."""
    shown = {n: base for n in results if (base := _base(n)) is not None}
    uses = Counter([base for base in shown.values() if base.op == "call_function"])
    found = {}
    for node, base in shown.items():
        is_shared = node is not base and uses[base] > 1
        if base.op != "call_function" or (is_shared and Memory(base.meta["val"]).layout.is_dense):
            found[node] = base
    return found


def _base(node: Any) -> Node | None:
    """The argument or value that a node only shows elements of; a value may be the node itself."""
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    base = node
    while True:
        source = base.args[0] if base.args else None
        if not isinstance(source, Node):
            break
        is_part = name_of(base) == GETITEM and name_of(source) in _VIEWS
        if not (is_part or name_of(base) in _VIEWS):
            break
        base = source
    if not isinstance(base.meta.get("val"), torch.Tensor):
        return None
    shift = node.meta["val"].storage_offset() - base.meta["val"].storage_offset()
    return base if type(shift) is int and _is_plain(base.meta["val"]) else None


def _is_plain(value: torch.Tensor) -> bool:
    return is_known(value.dtype) and value.layout == torch.strided


def _window(node: Node, base: Node) -> tuple[Any, Any, int] | None:
    """Shape, strides and offset under which a result shows an argument; None for all of it."""
    if node is base:
        return None
    value, there = node.meta["val"], base.meta["val"]
    shift = value.storage_offset() - there.storage_offset()
    return tuple(value.shape), tuple(value.stride()), shift


def _shown(tensor: torch.Tensor, window: Any, values: dict[str, int] | None) -> torch.Tensor:
    if window is None:
        return tensor
    shape, strides, shift = window
    if values:
        shape = [evaluated(n, values) for n in shape]
        strides = [evaluated(n, values) for n in strides]
    return tensor.as_strided(shape, strides, tensor.storage_offset() + shift)
