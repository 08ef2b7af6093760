"""One program on onnxruntime and on Svod, by changing one import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod.onnx as ours
from tests.frontend.onnx.session_program import program


@pytest.fixture
def path(tmp_path: Path) -> str:
    node, info = helper.make_node, helper.make_tensor_value_info
    weight = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]),
             node("Softmax", ["h"], ["s"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "small", [info("x", TensorProto.FLOAT, ["batch", 6])],
        [info("r", TensorProto.FLOAT, ["batch", 4]), info("s", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, producer_name="tests",
        doc_string="a layer", domain="org.example", model_version=7,
    )  # fmt: skip
    helper.set_model_props(made, {"key": "value"})
    onnx.save(made, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def _alike(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            _alike(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            _alike(one, other)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    else:
        assert a == b


def test_a_program_runs_on_both(path: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="it is what we are compared with")
    onnxruntime.set_default_logger_severity(4)
    _alike(program(ours, path, X), program(onnxruntime, path, X))


def test_a_program_runs(path: str) -> None:
    found = program(ours, path, X)
    assert found["inputs"] == [("x", "tensor(float)", ["batch", 6])]
    assert found["providers"] == ["CPUExecutionProvider"]
    assert found["meta"][:2] == ("tests", "small")
    assert found["errors"] == [True] * 5


def test_sizes_can_be_fixed(path: str) -> None:
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 3)
    session = ours.InferenceSession(path, options)
    session.run(None, {"x": X})
    assert session.model.plan.ports[0].shape == (3, 6)


def test_bound_memory_must_fit(path: str) -> None:
    session = ours.InferenceSession(path)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("r", np.zeros((2, 4), np.float32))
    with pytest.raises(ours.OnnxError, match=r"bound is memory of float32\[2, 4\]"):
        session.run_with_iobinding(binding)
    with pytest.raises(ours.OnnxError, match="give memory of the CPU"):
        binding.bind_input("x", "cuda", 0, np.float32, (3, 6), 64)


def test_a_provider_that_is_not_here_is_refused(path: str) -> None:
    with pytest.raises(ours.OnnxError, match="there are"):
        ours.InferenceSession(path, providers=["NobodyExecutionProvider"])
    session = ours.InferenceSession(path, providers=["Nobody", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_values_know_their_type() -> None:
    value = ours.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64)
    value.update_inplace(np.ones((2, 3), np.int64))
    assert value.data_type() == "tensor(int64)" and int(value.numpy().sum()) == 6
    with pytest.raises(ours.OnnxError, match="no tensor"):
        ours.OrtValue([X]).shape()
