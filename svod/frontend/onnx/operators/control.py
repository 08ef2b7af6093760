"""If, Loop and Scan: graphs inside of nodes, which see the names around them.

A Scan is a `svod.scan`, a loop of the schedule. So is a Loop whose number of turns is known, or is
a run-time size, or has a bound while a condition ends it earlier: turns after the last one then
keep what there is. Where carried values change their shape, or the body needs the number of its
turn, turns are written out. An If takes one branch where its condition is known. Where it is not,
small branches are both computed and selected from; others split the plan: it ends at the condition,
and each branch has a plan with all that follows, of which a run takes one. Inside of loops both are
computed. `model.notes` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError, VariableError
from svod.dtype import types as dt
from svod.frontend.onnx.errors import NeedsValue
from svod.frontend.onnx.importer import NodeView, describe
from svod.frontend.onnx.operators.host import settled
from svod.frontend.onnx.registry import Tensor, Value, operator
from svod.frontend.onnx.wire import Message
from svod.ir.node import UOp, largest

# An If of more nodes, or with one of these, is worth a plan for each branch.
SMALL_BRANCHES = 16
_HEAVY = {
    "Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "Loop", "MatMul", "RNN",
    "Scan",
}  # fmt: skip
MOST_TURNS = 4096  # of a loop that a condition may end


@operator("If")
def if_(condition: Value, *, then_branch: Any, else_branch: Any, node: NodeView) -> Any:
    if isinstance(condition, np.ndarray) or node.is_dynamic:
        is_true = bool(node.host(condition).reshape(-1)[0])
        return tuple(node.run(then_branch if is_true else else_branch, []))
    if node.is_outermost and not node.importer.selects and _are_large(then_branch, else_branch):
        node.host(condition)
    first, second = node.run(then_branch, []), node.run(else_branch, [])
    node.importer.notes.append(f"{describe(node.proto)}: both branches are computed")
    found = []
    for a, b in zip(first, second, strict=True):
        if not _is_tensor(a) or not _is_tensor(b) or tuple(a.shape) != tuple(b.shape):
            node.host(condition)  # the branches differ: the condition must be known
        found.append(svod.where(condition.reshape(()), node.tensor(a), node.tensor(b)))
    return tuple(found)


def _are_large(*branches: Message) -> bool:
    """Whether branches cost more than the end of a plan does."""
    nodes = [n for graph in branches for n in graph.nodes]
    return len(nodes) > SMALL_BRANCHES or any(
        n.op_type in _HEAVY or any(a.g is not None for a in n.attributes) for n in nodes
    )


def _is_tensor(value: Value) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


@operator("Loop")
def loop(count: Value, condition: Value, *carried: Value, body: Any, node: NodeView) -> Any:
    limit = None if count is None else node.host(count).reshape(-1)[0]
    start: Any = True
    if isinstance(condition, np.ndarray) or (condition is not None and node.is_dynamic):
        start = bool(node.host(condition).reshape(-1)[0])
    elif condition is not None:
        start = condition.reshape(()).cast(dt.bool_)
    if start is False:
        limit = 0
    turns = _Turns(limit, start, _keeps_condition(body))
    if turns.most and all(_is_tensor(c) for c in carried):
        try:
            return _looped(turns, carried, body, node)
        except _NoLoop as reason:
            node.importer.notes.append(f"{describe(node.proto)}: turns are written out: {reason}")
        except NeedsValue as need:
            node.importer.notes.append(
                f"{describe(node.proto)}: turns are written out: {need.why} needs numbers"
            )
    if isinstance(start, Tensor):
        node.host(condition)
    return _unrolled(limit, list(carried), body, node)


class _NoLoop(Exception):
    """Why a Loop is no loop of the schedule."""


@dataclass(frozen=True)
class _Turns:
    """How often a Loop goes round."""

    limit: Any  # a number, a run-time size, or None
    start: Any  # True, False, or a tensor
    is_steady: bool  # whether the condition stays what it was

    @property
    def most(self) -> int:
        """The turns of the schedule's loop; 0 where there is no bound to them."""
        if self.limit is None:
            return 0
        found = int(largest(self.limit))
        return 0 if found > MOST_TURNS and not self.is_steady else max(found, 0)

    @property
    def are_all(self) -> bool:
        """Whether every turn is made."""
        return self.is_steady and self.start is True and not isinstance(self.limit, UOp)


def _looped(turns: _Turns, carried: tuple[Value, ...], body: Message, node: NodeView) -> Any:
    """A Loop as a scan; turns after the last one change nothing."""
    kept = len(body.outputs) - 1 - len(carried)
    if kept and not turns.is_steady:
        raise _NoLoop("a condition decides how many outputs there are")
    if kept and isinstance(turns.start, Tensor):
        raise _NoLoop("the first condition decides how many outputs there are")
    init = tuple([node.tensor(c) for c in carried])
    true = svod.full((), True, dtype=dt.bool_)
    active = turns.start if isinstance(turns.start, Tensor) else true

    def step(state: Any, turn: Tensor) -> tuple[Any, Any]:
        is_on, *values = state
        if isinstance(turns.limit, UOp):
            is_on = is_on & (turn < turns.limit)
        results = [node.tensor(v) for v in node.run(body, [turn, true, *values])]
        news = results[1 : 1 + len(values)]
        for old, new in zip(values, news, strict=True):
            if tuple(old.shape) != tuple(new.shape) or old.dtype is not new.dtype:
                raise _NoLoop("values change their shape or type from turn to turn")
        if not turns.are_all:
            news = [svod.where(is_on, new, old) for old, new in zip(values, news, strict=True)]
        goes_on = is_on if turns.is_steady else is_on & results[0].reshape(()).cast(dt.bool_)
        return (goes_on, *news), tuple(results[1 + len(values) :])

    steps = svod.arange(turns.most, dtype=dt.int64)
    last, outs = svod.scan(step, (active, *init), steps)
    if isinstance(turns.limit, UOp):
        outs = tuple([out[: turns.limit] for out in outs])
    return (*last[1:], *outs)


def _keeps_condition(body: Message) -> bool:
    """Whether the condition of a loop is what it was, by the names in its body."""
    given, wanted = body.inputs[1].name, body.outputs[0].name
    sources = {o: n for n in body.nodes for o in n.outputs}
    while wanted in sources and sources[wanted].op_type == "Identity":
        wanted = sources[wanted].inputs[0]
    if wanted == given:
        return True
    node = sources.get(wanted)
    if node is None or node.op_type != "Constant":
        return False
    value = next((a.t for a in node.attributes if a.name == "value" and a.t is not None), None)
    if value is None:
        return False
    return bool(bytes(value.raw_data)[:1] == b"\1" or value.int32_data.tolist() == [1])


def _unrolled(limit: Any, carried: list[Value], body: Message, node: NodeView) -> Any:
    """A loop turn by turn while importing: its condition must be known in every turn."""
    if isinstance(limit, UOp):
        raise VariableError("a run-time number of turns, each written out")
    state = carried
    kept: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    turn, goes_on = 0, True
    while goes_on and (limit is None or turn < int(limit)):
        results = node.run(body, [np.array(turn, np.int64), np.array(True), *state])
        state = results[1 : 1 + len(carried)]
        for place, value in zip(kept, results[1 + len(carried) :], strict=True):
            place.append(value)
        goes_on = bool(
            node.importer.host(results[0], body.outputs[0].name, "a Loop").reshape(-1)[0]
        )
        turn += 1
        if turn > 10_000:
            raise UnsupportedError("a Loop of more than 10,000 turns that cannot be a scan")
    return (*state, *[_stacked(values, node) for values in kept])


def _stacked(values: list[Value], node: NodeView) -> Value:
    if values and all(isinstance(v, np.ndarray) for v in values):
        return settled(np.stack(values))
    if not values:
        raise UnsupportedError("a Loop without turns has outputs of unknown shape")
    return svod.stack([node.tensor(v) for v in values], dim=0)


@operator("Scan", since=9)
def scan(
    *xs: Tensor, body: Any, num_scan_inputs: int, scan_input_axes: Any = None,
    scan_input_directions: Any = None, scan_output_axes: Any = None,
    scan_output_directions: Any = None, node: NodeView,
) -> Any:  # fmt: skip
    held = len(xs) - num_scan_inputs
    axes = scan_input_axes or [0] * num_scan_inputs
    ways = scan_input_directions or [0] * num_scan_inputs
    slices = []
    for x, axis, is_back in zip(xs[held:], axes, ways, strict=True):
        x = x.movedim(axis, 0)
        slices.append(x.flip(0) if is_back else x)

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        values = [node.tensor(v) for v in node.run(body, [*state, *now])]
        return tuple(values[:held]), tuple(values[held:])

    last, outs = svod.scan(step, tuple(xs[:held]), tuple(slices))
    found = []
    for number, y in enumerate(outs):
        y = y.flip(0) if scan_output_directions and scan_output_directions[number] else y
        found.append(y.movedim(0, scan_output_axes[number]) if scan_output_axes else y)
    return (*last, *found)


@operator("Scan", since=8)
def scan_of_batches(
    lengths: Value, *xs: Tensor, body: Any, num_scan_inputs: int, directions: Any = None,
    node: NodeView,
) -> Any:  # fmt: skip
    if lengths is not None or any(directions or []):
        raise UnsupportedError("a Scan of version 8 with lengths or directions is not supported")
    found = []
    for number in range(xs[0].shape[0]):
        one = [x[number] for x in xs]
        found.append(scan(*one, body=body, num_scan_inputs=num_scan_inputs, node=node))
    return tuple([svod.stack(list(parts), dim=0) for parts in zip(*found, strict=True)])
