"""Loops and branches: as loops of the schedule where shapes allow, with what the notes say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod
from svod.device.cpu.compiler import counters

node = helper.make_node


def info(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def number(name: str) -> Any:
    return info(name, [], TensorProto.INT64)


def truth(name: str) -> Any:
    return info(name, [], TensorProto.BOOL)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **weights: Any) -> Any:
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return svod.onnx.load(made.SerializeToString())


def doubling(until: bool = False, keep: bool = False) -> Any:
    """A body that doubles a vector and adds a captured one, perhaps until its sum is above 100."""
    nodes = [
        node("Add", ["s_in", "s_in"], ["twice"]),
        node("Add", ["twice", "captured"], ["s_out"]),
    ]
    if until:
        nodes += [
            node("ReduceSum", ["s_out"], ["sum"], keepdims=0),
            node("Less", ["sum", "hundred"], ["c_out"]),
        ]
    else:
        nodes.append(node("Identity", ["c_in"], ["c_out"]))
    outputs = [truth("c_out"), info("s_out", [2])]
    if keep:
        nodes.append(node("Identity", ["s_out"], ["kept"]))
        outputs.append(info("kept", [2]))
    return helper.make_graph(
        nodes, "body", [number("i"), truth("c_in"), info("s_in", [2])], outputs
    )


def turned(x: Any, times: int, until: bool = False) -> Any:
    found = []
    for _ in range(times):
        x = 2 * x + np.array([1, 2], np.float32)
        found.append(x)
        if until and x.sum() >= 100:
            break
    return x, np.array(found).reshape(-1, 2)


CONSTANTS = {
    "captured": np.array([1, 2], np.float32), "hundred": np.float32(100), "yes": np.array(True),
}  # fmt: skip
START = np.array([1, 3], np.float32)


def test_a_loop_of_known_length() -> None:
    made = model(
        [node("Loop", ["five", "yes", "x"], ["y", "all"], body=doubling(keep=True))],
        [info("x", [2])], [info("y", [2]), info("all", [5, 2])], five=np.int64(5), **CONSTANTS,
    )  # fmt: skip
    y, kept = made(START)
    np.testing.assert_array_equal(y, turned(START, 5)[0])
    np.testing.assert_array_equal(kept, turned(START, 5)[1])
    assert made.notes == []


def test_a_condition_ends_a_loop_with_a_bound() -> None:
    made = model(
        [node("Loop", ["fifty", "yes", "x"], ["y"], body=doubling(until=True))],
        [info("x", [2])], [info("y", [2])], fifty=np.int64(50), **CONSTANTS,
    )  # fmt: skip
    made(START)
    before = dict(counters)
    for scale in (1, 5, 40):
        x = START * np.float32(scale)
        np.testing.assert_array_equal(made(x), turned(x, 50, until=True)[0])
    assert counters == before
    assert made.notes == []


def test_as_many_turns_as_an_input_has_rows() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Loop", ["count", "", "start"], ["y", "all"], body=doubling(keep=True)),
    ]
    outputs = [info("y", [2]), info("all", ["n", 2])]
    made = model(
        nodes, [info("x", ["n", 3]), info("start", [2])], outputs, zero=np.int64(0), **CONSTANTS
    )
    made(np.zeros((2, 3), np.float32), START)
    before = dict(counters)
    for count in (1, 4, 9):
        y, kept = made(np.zeros((count, 3), np.float32), START)
        np.testing.assert_array_equal(y, turned(START, count)[0])
        np.testing.assert_array_equal(kept, turned(START, count)[1])
    assert counters == before
    assert made.notes == []


def test_a_loop_in_a_loop_sees_names_of_both() -> None:
    inner = doubling()
    outer = helper.make_graph(
        [
            node("Add", ["s", "far"], ["captured"]),
            node("Loop", ["two", "", "s"], ["t"], body=inner),
            node("Identity", ["c"], ["d"]),
        ],
        "outer", [number("j"), truth("c"), info("s", [2])], [truth("d"), info("t", [2])],
    )  # fmt: skip
    weights = {"two": np.int64(2), "three": np.int64(3), "far": np.array([5, 7], np.float32)}
    made = model(
        [node("Loop", ["three", "", "x"], ["y"], body=outer)],
        [info("x", [2])], [info("y", [2])], **weights,
    )  # fmt: skip
    x = START
    for _ in range(3):
        captured = x + weights["far"]
        for _ in range(2):
            x = 2 * x + captured
    np.testing.assert_array_equal(made(START), x)
    assert made.notes == []


def test_values_that_grow_are_written_out_and_the_notes_say_so() -> None:
    body = helper.make_graph(
        [node("Concat", ["s", "x"], ["t"], axis=0), node("Identity", ["c"], ["d"])],
        "body", [number("i"), truth("c"), info("s", None)], [truth("d"), info("t", None)],
    )  # fmt: skip
    made = model(
        [node("Loop", ["two", "", "x"], ["y"], body=body, name="grow")],
        [info("x", [2])], [info("y", [6])], two=np.int64(2),
    )  # fmt: skip
    np.testing.assert_array_equal(made(START), np.tile(START, 3))
    assert made.notes == [
        "Loop 'grow': turns are written out: values change their shape or type from turn to turn"
    ]


def test_mistakes_in_a_body_are_errors() -> None:
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["t"]), node("Identity", ["c"], ["d"])],
        "body", [number("i"), truth("c"), info("s", None)], [truth("d"), info("t", None)],
    )  # fmt: skip
    made = model(
        [node("Loop", ["two", "", "x"], ["y"], body=body)],
        [info("x", [2])], [info("y", [2])], two=np.int64(2), w=np.zeros((3, 3), np.float32),
    )  # fmt: skip
    with pytest.raises(svod.onnx.OnnxError, match="MatMul 't'"):
        made(START)


def test_a_branch_of_an_unknown_condition() -> None:
    branches = {
        name: helper.make_graph([node(op, ["x", "x"], ["o"])], name, [], [info("o", [2])])
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    made = model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Less", ["sum", "hundred"], ["small"]),
            node("If", ["small"], ["y"], name="choice", **branches),
        ],
        [info("x", [2])], [info("y", [2])], hundred=np.float32(100),
    )  # fmt: skip
    np.testing.assert_array_equal(made(START), START + START)
    np.testing.assert_array_equal(made(START * 50), START * 50 * START * 50)
    assert made.notes == ["If 'choice': both branches are computed"]


def _branching(batch: Any) -> Any:
    """A product by one of two matrices, as the sum of the input says, and what follows it."""
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((4, 3)).astype(np.float32) for n in ("w_then", "w_else")}
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("MatMul", ["h", f"w_{name}"], ["o"])], name, [], [info("o", ["batch", 3])]
        )
        for name in ("then", "else")
    }
    made = model(
        [
            node("Mul", ["x", "x"], ["h"]),
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Less", ["sum", "zero"], ["is_less"]),
            node("If", ["is_less"], ["b"], name="choice", **branches),
            node("Relu", ["b"], ["y"]),
        ],
        [info("x", [batch, 4])], [info("y", [batch, 3])], zero=np.float32(0), **weights,
    )  # fmt: skip
    return made, weights


def test_large_branches_split_the_plan_and_one_of_them_runs() -> None:
    made, weights = _branching("batch")
    x = np.random.default_rng(1).uniform(0.5, 1, (3, 4)).astype(np.float32)

    def wanted(x: Any) -> Any:
        return np.maximum(x * x @ weights["w_then" if x.sum() < 0 else "w_else"], 0)

    for sign in (1, -1):
        np.testing.assert_allclose(made(x * sign), wanted(x * sign), rtol=1e-5)
    before = dict(counters)
    for rows in (1, 2, 3):
        for sign in (1, -1):
            part = x[:rows] * np.float32(sign)
            np.testing.assert_allclose(made(part), wanted(part), rtol=1e-5)
    assert counters == before  # a plan for each branch serves all batches
    assert made.notes == [
        "a split plan: up to If 'choice', which needs the numbers of 'is_less', then a plan for "
        "each value of these"
    ]
    plan = made.plan  # one plan to save computes both
    np.testing.assert_allclose(plan(x=x), wanted(x), rtol=1e-5)


def test_branches_of_different_shapes_are_plans_of_their_own() -> None:
    graphs = {
        "then_branch": helper.make_graph(
            [node("Concat", ["x", "x"], ["o"], axis=0)], "then", [], [info("o", [4])]
        ),
        "else_branch": helper.make_graph([node("Neg", ["x"], ["o"])], "else", [], [info("o", [2])]),
    }
    made = model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Less", ["sum", "hundred"], ["small"]),
            node("If", ["small"], ["b"], **graphs),
            node("Exp", ["b"], ["y"]),
        ],
        [info("x", [2])], [info("y", None)], hundred=np.float32(10),
    )  # fmt: skip
    for _ in range(2):
        np.testing.assert_allclose(made(START), np.exp(np.tile(START, 2)), rtol=1e-5)
        np.testing.assert_allclose(made(START * 4), np.exp(-START * 4), rtol=1e-5)
    assert "a plan for each value" in made.notes[-1]


def _chosen(name: str, then: list[Any], other: list[Any], condition: str, kind: Any = None) -> Any:
    """An If over two lists of nodes; the last of each gives its result."""
    graphs = {
        f"{key}_branch": helper.make_graph(nodes, key, [], [info(nodes[-1].output[0], kind)])
        for key, nodes in (("then", then), ("else", other))
    }
    return node("If", [condition], [name], name=name, **graphs)


def _is_negative(column: str, name: str) -> list[Any]:
    """Whether the sum of a value is below zero."""
    return [
        node("ReduceSum", [column], [f"{name}_sum"], keepdims=0),
        node("Less", [f"{name}_sum", "zero"], [name]),
    ]


def test_a_branch_in_a_branch_has_plans_of_its_own() -> None:
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((4, 4)).astype(np.float32) for n in ("a", "b", "c", "d")}
    inner = _chosen(
        "inner", [node("MatMul", ["h", "a"], ["p"])], [node("MatMul", ["h", "b"], ["q"])], "is_in"
    )
    first = [node("MatMul", ["x", "c"], ["h"]), *_is_negative("h", "is_in"), inner]
    second = [node("MatMul", ["x", "d"], ["r"])]
    outer = _chosen("outer", [*first, node("Neg", ["inner"], ["n"])], second, "is_out")
    made = model(
        [*_is_negative("x", "is_out"), outer, node("Relu", ["outer"], ["y"])],
        [info("x", ["batch", 4])], [info("y", ["batch", 4])], zero=np.float32(0), **weights,
    )  # fmt: skip

    def wanted(x: Any) -> Any:
        if x.sum() >= 0:
            return np.maximum(x @ weights["d"], 0)
        h = x @ weights["c"]
        return np.maximum(-(h @ weights["a" if h.sum() < 0 else "b"]), 0)

    runs = [rng.standard_normal((n, 4)).astype(np.float32) for n in (1, 2, 3, 4) * 5]
    seen = {(x.sum() < 0, x.sum() < 0 and (x @ weights["c"]).sum() < 0) for x in runs}
    assert len(seen) == 3
    for x in runs:
        np.testing.assert_allclose(made(x), wanted(x), rtol=1e-4, atol=1e-4)
    before = dict(counters)
    for x in runs:
        np.testing.assert_allclose(made(x), wanted(x), rtol=1e-4, atol=1e-4)
    assert counters == before
    assert [n.split(",")[0] for n in made.notes] == [
        "a split plan: up to If 'outer'", "a split plan: up to If 'inner'",
    ]  # fmt: skip


def test_small_branches_in_branches_and_loops_are_one_plan() -> None:
    inner = _chosen("inner", [node("Neg", ["s"], ["p"])], [node("Exp", ["s"], ["q"])], "is_in", [2])
    choice = _chosen(
        "t", [*_is_negative("s", "is_in"), inner], [node("Mul", ["s", "half"], ["r"])], "is_out",
        [2],
    )  # fmt: skip
    body = helper.make_graph(
        [
            node("Gather", ["s", "first"], ["head"]),
            node("Less", ["head", "one"], ["is_out"]),
            choice,
            node("Add", ["t", "captured"], ["u"]),
            node("Identity", ["c"], ["d"]),
        ],
        "body", [number("i"), truth("c"), info("s", [2])], [truth("d"), info("u", [2])],
    )  # fmt: skip
    made = model(
        [node("Loop", ["five", "", "x"], ["y"], body=body)],
        [info("x", [2])], [info("y", [2])], five=np.int64(5), first=np.int64(0),
        one=np.float32(1), zero=np.float32(0), half=np.float32(0.5),
        captured=np.array([0.25, -2], np.float32),
    )  # fmt: skip

    def wanted(s: Any) -> Any:
        for _ in range(5):
            if s[0] < 1:
                t = -s if s.sum() < 0 else np.exp(s)
            else:
                t = s * np.float32(0.5)
            s = t + np.array([0.25, -2], np.float32)
        return s

    for x in (START, -START, START * np.float32(0.2)):
        np.testing.assert_allclose(made(x), wanted(x), rtol=1e-5)
    assert all("both branches are computed" in note for note in made.notes)
    assert made.plan is not None


def test_a_scan_in_a_loop_and_a_loop_in_a_branch() -> None:
    step = helper.make_graph(
        [node("Add", ["a", "v"], ["b"]), node("Mul", ["b", "scale"], ["w"])], "step",
        [info("a", []), info("v", [])], [info("b", []), info("w", [])],
    )  # fmt: skip
    body = helper.make_graph(
        [
            node("Scan", ["start", "s"], ["last", "u"], body=step, num_scan_inputs=1),
            node("Identity", ["c"], ["d"]),
        ],
        "body", [number("i"), truth("c"), info("s", [2])], [truth("d"), info("u", [2])],
    )  # fmt: skip
    choice = _chosen(
        "y", [node("Loop", ["three", "", "x"], ["long"], body=body)],
        [node("Neg", ["x"], ["short"])], "is_long", [2],
    )  # fmt: skip
    made = model(
        [*_is_negative("x", "is_long"), choice], [info("x", [2])], [info("y", [2])],
        three=np.int64(3), start=np.float32(0.5), zero=np.float32(0), scale=np.float32(0.5),
    )  # fmt: skip

    def wanted(x: Any) -> Any:
        if x.sum() >= 0:
            return -x
        for _ in range(3):
            x = (np.float32(0.5) + x.cumsum()) * np.float32(0.5)
        return x

    for x in (START, -START, -START):
        np.testing.assert_allclose(made(x), wanted(x), rtol=1e-5)
    assert len(made.notes) == 1 and made.notes[0].startswith("a split plan: up to If 'y'")
