"""Sizes that data decide: split plans with the number of results as a variable; another number
compiles nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod
from svod.device.cpu.compiler import counters

node = helper.make_node
RNG = np.random.default_rng(0)
INT64 = TensorProto.INT64


def info(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **weights: Any) -> Any:
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return svod.onnx.load(made.SerializeToString())


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def same(found: Any, wanted: Any) -> None:
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        assert a.shape == b.shape and a.dtype == b.dtype


def check(made: Any, runs: list[Any], wanted: Any, first: int = 1) -> None:
    """Results are right, and runs after the first ones compile nothing."""
    for args in runs[:first]:
        same(made(*args), wanted(*args))
    before = dict(counters)
    for args in runs:
        same(made(*args), wanted(*args))
    assert counters == before


def explained(made: Any) -> list[str]:
    return [part.text for part in made.explained()]


def suppressed(boxes: Any, scores: Any, most: int, overlap: float, least: float) -> list[Any]:
    """Non-maximum suppression by its definition, for one image."""
    chosen = []
    for label, row in enumerate(scores[0]):
        kept: list[int] = []
        for i in sorted(np.flatnonzero(row > least), key=lambda k: -row[k]):
            low = np.maximum(boxes[i, :2], boxes[kept, :2])
            high = np.minimum(boxes[i, 2:], boxes[kept, 2:])
            common = np.clip(high - low, 0, None).prod(-1)
            areas = [(b[..., 2:] - b[..., :2]).prod(-1) for b in (boxes[i], boxes[kept])]
            if len(kept) < most and not np.any(common > overlap * (areas[0] + areas[1] - common)):
                kept.append(int(i))
        chosen += [(0, label, k) for k in kept]
    return chosen


def test_a_detector_runs_other_images_without_compiling() -> None:
    count = 60
    corners = np.abs(random(count, 2)) * 3
    boxes = np.concatenate([corners, corners + 1 + np.abs(random(count, 2))], 1)
    w = random(8, 3 * count)
    made = model(
        [
            node("MatMul", ["x", "w"], ["flat"]),
            node("Reshape", ["flat", "shape"], ["scores"]),
            node("Unsqueeze", ["boxes", "axis"], ["one"]),
            node("NonMaxSuppression", ["one", "scores", "most", "overlap", "least"], ["chosen"],
                 name="nms"),
            node("Gather", ["chosen", "two"], ["spots"], axis=1),
            node("Gather", ["boxes", "spots"], ["found"]),
            node("GatherND", ["scores", "chosen"], ["sure"]),
            node("Shape", ["sure"], ["n"]),
            node("Min", ["n", "twenty"], ["k"]),
            node("TopK", ["sure", "k"], ["best", "places"]),
            node("Gather", ["found", "places"], ["best_boxes"]),
            node("Greater", ["best", "high"], ["is_high"]),
            node("NonZero", ["is_high"], ["which"], name="filter"),
            node("Squeeze", ["which", "axis"], ["where"]),
            node("Gather", ["best_boxes", "where"], ["y"]),
        ],
        [info("x", [1, 8])], [info("best", None), info("y", None)],
        w=w, boxes=boxes, shape=np.array([1, 3, count]), axis=np.array([0]), most=np.array([10]),
        overlap=np.float32([0.5]), least=np.float32([1]), two=np.array(2), twenty=np.array([20]),
        high=np.float32(3),
    )  # fmt: skip

    def wanted(x: Any) -> Any:
        scores = (x @ w).reshape(1, 3, count)
        chosen = suppressed(boxes, scores, 10, 0.5, 1)
        sure = np.array([scores[c] for c in chosen], np.float32)
        order = np.argsort(-sure, kind="stable")[:20]
        found = boxes[[chosen[k][2] for k in order]].reshape(-1, 4)
        return sure[order], found[sure[order] > 3]

    check(made, [(random(1, 8) * scale,) for scale in (1, 2, 0.4, 0, 0.7)], wanted)
    assert made.notes == [
        f"a split plan: up to {name}, whose data say how many results it has, then a plan with "
        "that number as a variable"
        for name in ("NonMaxSuppression 'nms'", "NonZero 'filter'")
    ]
    assert explained(made) == [
        "a plan up to NonMaxSuppression 'nms', whose data say how many results it has",
        "then a plan for 0 to 30 results of chosen; a plan up to NonZero 'filter', whose data say "
        "how many results it has",
        "then a plan for 0 to 20 results of which",
    ]


def test_elements_that_are_not_zero_of_an_input_with_any_batch() -> None:
    made = model(
        [
            node("NonZero", ["x"], ["i"]),
            node("Transpose", ["i"], ["t"]),
            node("GatherND", ["x", "t"], ["v"]),
            node("Exp", ["v"], ["y"]),
        ],
        [info("x", ["n", 4])], [info("i", None, INT64), info("y", None)],
    )  # fmt: skip
    runs = [(np.maximum(random(n, 4), 0),) for n in (3, 1, 16)] + [(np.zeros((2, 4), np.float32),)]
    check(made, runs, lambda x: (np.stack(np.nonzero(x)), np.exp(x[np.nonzero(x)])))


def test_rows_that_a_condition_chooses() -> None:
    w = random(4, 3)
    made = model(
        [
            node("ReduceMax", ["x", "axis"], ["most"], keepdims=0),
            node("Greater", ["most", "one"], ["is_wanted"]),
            node("Compress", ["x", "is_wanted"], ["rows"], axis=0),
            node("MatMul", ["rows", "w"], ["y"]),
        ],
        [info("x", ["n", 4])], [info("y", None)],
        one=np.float32(1), axis=np.array([1]), w=w,
    )  # fmt: skip
    runs = [(random(n, 4),) for n in (5, 9, 16, 1)] + [(np.zeros((3, 4), np.float32),)]
    check(made, runs, lambda x: (x[x.max(1) > 1] @ w,))


def test_distinct_values_and_what_else_comes_of_them() -> None:
    made = model(
        [
            node("Floor", ["x"], ["whole"]),
            node("Unique", ["whole"], ["values", "", "inverse", "counts"]),
            node("Cast", ["counts"], ["many"], to=1),
            node("Mul", ["values", "many"], ["y"]),
        ],
        [info("x", ["n"])], [info("y", None), info("inverse", None, INT64)],
    )  # fmt: skip

    def wanted(x: Any) -> Any:
        values, inverse, counts = np.unique(np.floor(x), return_inverse=True, return_counts=True)
        return (values * counts).astype(np.float32), inverse.reshape(-1)

    check(made, [(random(n) * 3,) for n in (5, 16, 1, 8)], wanted)


def test_what_has_no_result_for_nothing_has_a_plan_for_that() -> None:
    made = model(
        [node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["f"], to=1),
         node("CumSum", ["f", "one"], ["y"])],
        [info("x", [100])], [info("y", None)], one=np.array(1),
    )  # fmt: skip
    runs = [((random(100) > c).astype(np.float32),) for c in (0, 9, 1)]
    check(made, runs, lambda x: (np.flatnonzero(x)[None].cumsum(1).astype(np.float32),), first=2)
    assert "then a plan for 1 to 100 results of i" in explained(made)


def test_a_count_of_the_best_that_is_an_input_or_is_computed() -> None:
    best = node("TopK", ["x", "k"], ["v", "i"])
    outputs = [info("v", None), info("i", None, INT64)]
    made = model([best], [info("x", ["n", 10]), info("k", [1], INT64)], outputs)

    def wanted(x: Any, k: Any) -> Any:
        order = np.argsort(-x, 1, kind="stable")[:, : int(k[0])]
        return np.take_along_axis(x, order, 1), order

    runs = [(random(n, 10), np.array([k])) for n, k in ((2, 3), (3, 7), (1, 10), (4, 1), (2, 0))]
    check(made, runs, wanted)
    assert made.notes == ["numbers of 'k' are variables: TopK 'v' needs them"]
    made = model(
        [node("ReduceSum", ["c"], ["s"]), node("Cast", ["s"], ["k"], to=7), best],
        [info("x", ["n", 10]), info("c", [1])], outputs,
    )  # fmt: skip
    check(made, [(x, k.astype(np.float32)) for x, k in runs], wanted)
    assert made.notes == [
        "a split plan: up to TopK 'v', which needs the numbers of 'k', then a plan with these as "
        "variables"
    ]
    assert explained(made)[1] == "then a plan for 'k' of 0 to 10"


def test_ranges_of_computed_numbers_grow() -> None:
    made = model(
        [
            node("ReduceMax", ["x"], ["most"], keepdims=0),
            node("Range", ["zero", "most", "half"], ["r"]),
            node("Mul", ["r", "r"], ["y"]),
        ],
        [info("x", [2])], [info("y", None)], zero=np.float32(0), half=np.float32(0.5),
    )  # fmt: skip

    def wanted(x: Any) -> Any:
        return (np.arange(0, x.max(), 0.5, dtype=np.float32) ** 2,)

    runs = [(np.float32([n, 0]),) for n in (100, 2, 50, 0.25)]
    check(made, runs, wanted)
    assert explained(made)[1:] == ["then a plan for 0 to 256 results of r"]


def test_limits_that_are_inputs_are_variables() -> None:
    made = model(
        [node("Range", ["a", "b", "one"], ["r"]), node("Mul", ["r", "r"], ["y"])],
        [info("a", [], INT64), info("b", [], INT64)], [info("y", None, INT64)], one=np.array(1),
    )  # fmt: skip
    runs = [(np.array(a), np.array(b)) for a, b in ((0, 5), (3, 100), (7, 8), (9, 2))]
    check(made, runs, lambda a, b: (np.arange(a, b) ** 2,))


def test_shapes_that_are_inputs_are_variables_where_the_graph_holds_for_all() -> None:
    made = model(
        [node("Expand", ["x", "shape"], ["wide"]), node("Relu", ["wide"], ["y"])],
        [info("x", [1, 1, 3]), info("shape", [3], INT64)], [info("y", None)],
    )  # fmt: skip
    shapes = [np.array([2, 4, 1]), np.array([3, 9, 1])]
    runs = [(random(1, 1, 3), shape) for shape in shapes]
    check(made, runs, lambda x, s: (np.broadcast_to(np.maximum(x, 0), (*s[:2], 3)),))
    assert made.notes == ["numbers of 'shape' are variables: Expand 'wide' needs them"]


def test_shapes_for_which_nothing_can_be_shown_have_a_plan_each() -> None:
    made = model(
        [node("Reshape", ["x", "shape"], ["rows"]), node("Relu", ["rows"], ["y"])],
        [info("x", ["n", 12]), info("shape", [2], INT64)], [info("y", None)],
    )  # fmt: skip
    runs = [(random(n, 12), np.array([-1, k])) for n, k in ((2, 3), (3, 4), (5, 3))]
    check(made, runs, lambda x, s: (np.maximum(x, 0).reshape(s),), first=2)
    assert made.notes[0].startswith("a plan for each value of 'shape': Reshape 'rows': cannot")


def test_as_many_turns_as_the_data_say() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "s"], ["t"]), node("Identity", ["c"], ["d"])], "body",
        [info("i", [], INT64), info("c", [], TensorProto.BOOL), info("s", [2])],
        [info("d", [], TensorProto.BOOL), info("t", [2])],
    )  # fmt: skip
    made = model(
        [
            node("ReduceMax", ["x"], ["most"], keepdims=0),
            node("Cast", ["most"], ["k"], to=7),
            node("Loop", ["k", "", "x"], ["y"], body=body),
        ],
        [info("x", [2])], [info("y", [2])],
    )  # fmt: skip
    runs = [(np.float32([n, 0.5]),) for n in (2, 5, 0.5, 9)]
    check(made, runs, lambda x: (x * np.float32(2) ** int(x.max()),))


@pytest.mark.parametrize("end", [4, 0])
def test_a_slice_up_to_a_computed_place(end: int) -> None:
    made = model(
        [
            node("Gather", ["x", "zero"], ["first"]),
            node("Cast", ["first"], ["k"], to=7),
            node("Slice", ["x", "zero", "k"], ["y"]),
        ],
        [info("x", [9])], [info("y", None)], zero=np.array([0]),
    )  # fmt: skip
    runs = [(np.float32([k, *range(8)]),) for k in (end, 9, 50, 1)]
    check(made, runs, lambda x: (x[: int(x[0])],))
