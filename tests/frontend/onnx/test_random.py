"""Operators that draw random numbers: shapes, types and statistics, not the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod


def run(node: Any, x: Any, weights: dict[str, Any] | None = None, outputs: int = 1) -> Any:
    info = helper.make_tensor_value_info
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node], "g", [info("x", kind, x.shape)],
        [info(n, TensorProto.UNDEFINED, None) for n in node.output[:outputs]],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return svod.onnx.load(made.SerializeToString())(x)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bernoulli_gives_ones_with_the_probability(share: float, kind: Any) -> None:
    x = np.full((200, 100), share, kind)
    found = run(helper.make_node("Bernoulli", ["x"], ["y"]), x)
    assert found.shape == x.shape and found.dtype == kind
    assert set(np.unique(found)) <= {0, 1}
    assert abs(float(found.mean()) - share) < 0.02


def test_bernoulli_in_another_type() -> None:
    x = np.full((50, 40), 0.5, np.float32)
    found = run(helper.make_node("Bernoulli", ["x"], ["y"], dtype=TensorProto.INT32, seed=3.0), x)
    assert found.dtype == np.int32 and 0.4 < found.mean() < 0.6


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_dropout_in_training_keeps_a_share_and_the_mean(share: float) -> None:
    x = np.ones((200, 100), np.float32)
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"], seed=1)
    weights = {"r": np.array(share, np.float32), "t": np.array(True)}
    found, mask = run(node, x, weights, 2)
    assert mask.dtype == np.bool_ and mask.shape == x.shape
    assert abs(float(mask.mean()) - (1 - share)) < 0.02
    np.testing.assert_allclose(found, mask / np.float32(1 - share), rtol=1e-6)
