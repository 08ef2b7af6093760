"""Models made with onnx.helper: results, sizes without compiling, errors, hostile files."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod
from svod.device.cpu.compiler import counters

RNG = np.random.default_rng(0)


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any],
    **options: Any,
) -> bytes:  # fmt: skip
    def info(name: str, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes, "g", [info(n, s) for n, s in inputs.items()], [info(n, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, **options).SerializeToString()


W1, W2 = random(8, 16), random(16, 4)


def mlp(batch: Any = "batch") -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return model(nodes, {"x": [batch, 8]}, ["y"], {"w1": W1, "w2": W2})


def perceptron(x: Any) -> Any:
    return np.maximum(x @ W1, 0) @ W2


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_one_plan_serves_every_batch() -> None:
    loaded = svod.onnx.load(mlp(), dims={"batch": (1, 32)})
    close(loaded(random(3, 8) * 0), np.zeros((3, 4)))
    before = dict(counters)
    for batch in (1, 5, 32):
        x = random(batch, 8)
        close(loaded(x=x), perceptron(x))
    assert counters == before
    assert loaded.notes == []
    with pytest.raises(svod.errors.VariableError, match="batch=33 is outside"):
        loaded(random(33, 8))


def attention_block() -> bytes:
    """Heads split and joined by shapes that the graph computes itself."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Gather", ["s", "one"], ["t"], axis=0),
        node("Concat", ["b", "t", "heads"], ["split"], axis=0),
        node("Reshape", ["x", "split"], ["x4"]),
        node("Transpose", ["x4"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["x4"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"]),
        node("MatMul", ["shares", "q"], ["o"]),
        node("Transpose", ["o"], ["o2"], perm=[0, 2, 1, 3]),
        node("Concat", ["b", "t", "width"], ["join"], axis=0),
        node("Reshape", ["o2", "join"], ["y"]),
    ]
    weights = {
        "zero": np.array([0]), "one": np.array([1]), "heads": np.array([2, 4]),
        "width": np.array([8]),
    }  # fmt: skip
    return model(nodes, {"x": ["batch", "length", 8]}, ["y"], weights)


def test_shape_arithmetic_gives_run_time_sizes() -> None:
    loaded = svod.onnx.load(attention_block(), dims={"batch": (1, 4), "length": (1, 16)})
    close(loaded(np.zeros((1, 2, 8), np.float32)), np.zeros((1, 2, 8)))
    before = dict(counters)
    for b, t in ((1, 16), (4, 3), (2, 7)):
        x = random(b, t, 8)
        q = x.reshape(b, t, 2, 4).transpose(0, 2, 1, 3)
        e = np.exp(q @ q.transpose(0, 1, 3, 2))
        wanted = (e / e.sum(-1, keepdims=True) @ q).transpose(0, 2, 1, 3).reshape(b, t, 8)
        close(loaded(x), wanted)
    assert counters == before
    assert loaded.notes == []


def test_a_convolution_network() -> None:
    w, b = random(5, 3, 3, 3), random(5)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    loaded = svod.onnx.load(model(nodes, {"x": ["n", 3, 8, 8]}, ["y"], {"w": w, "b": b}))
    x = random(2, 3, 8, 8)
    wanted = svod.Tensor(x).conv2d(svod.Tensor(w), svod.Tensor(b), padding=1).relu().mean((2, 3))
    close(loaded(x), wanted.numpy())


def test_functions_of_the_model_are_expanded() -> None:
    body = [
        helper.make_node("Mul", ["a", "a"], ["s"]),
        helper.make_node("LeakyRelu", ["s"], ["o"]),
    ]
    body[1].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    function = helper.make_function(
        "local", "Twice", ["a"], ["o"], body, [helper.make_opsetid("", 18)], ["slope"]
    )
    node = helper.make_node("Twice", ["x"], ["y"], domain="local", slope=0.5)
    loaded = svod.onnx.load(model([node], {"x": [3]}, ["y"], {}, functions=[function]))
    close(loaded(np.array([1, -2, 3], np.float32)), [1, 4, 9])


def test_a_recursive_function_is_refused() -> None:
    body = [helper.make_node("Again", ["a"], ["o"], domain="local")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Again", ["a"], ["o"], body, opsets)
    node = helper.make_node("Again", ["x"], ["y"], domain="local")
    loaded = svod.onnx.load(model([node], {"x": [3]}, ["y"], {}, functions=[function]))
    with pytest.raises(svod.onnx.OnnxError, match="calls itself"):
        loaded(np.zeros(3, np.float32))


def test_all_that_is_not_supported_is_named_at_once() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second", slope=3.0),
        helper.make_node("Wobble", ["b"], ["y"], name="third"),
    ]
    with pytest.raises(svod.onnx.UnsupportedError) as caught:
        svod.onnx.load(model(nodes, {"x": [3]}, ["y"], {}))
    text = str(caught.value)
    for part in ("Frobnicate 'first'", "Relu 'second': attribute 'slope'", "Wobble 'third'"):
        assert part in text


def test_a_session_has_the_methods_of_onnxruntime() -> None:
    session = svod.onnx.InferenceSession(mlp())
    (info,) = session.get_inputs()
    assert (info.name, info.type, info.shape) == ("x", "tensor(float)", ["batch", 8])
    x = random(2, 8)
    close(session.run(None, {"x": x})[0], perceptron(x))
    binding = session.io_binding()
    target = np.empty((2, 4), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", target)
    session.run_with_iobinding(binding)
    close(target, perceptron(x))


def test_a_saved_model_is_a_plan(tmp_path: Any) -> None:
    svod.onnx.load(mlp(4)).save(tmp_path / "m.svod")
    x = random(4, 8)
    close(svod.load_plan(tmp_path / "m.svod")(x=x), perceptron(x))


def test_a_file_and_its_external_data(tmp_path: Any) -> None:
    import onnx

    big = random(64, 64)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = onnx.load_from_string(model(nodes, {"x": [2, 64]}, ["y"], {"w": big}))
    onnx.save(made, tmp_path / "plain.onnx")
    onnx.save(
        made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    x = random(2, 64)
    for name in ("plain.onnx", "m.onnx"):
        close(svod.onnx.load(tmp_path / name)(x), x @ big)
    with (tmp_path / "plain.onnx").open("rb") as file:
        close(svod.onnx.load(file)(x), x @ big)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../w.bin", "not inside the model's folder"),
        ("location", "/etc/passwd", "not inside the model's folder"),
        ("location", "link.bin", "symbolic link"),
        ("location", "gone.bin", "No such file"),
        ("offset", "-4", "is no size"),
        ("offset", "999999999", "the file has"),
        ("length", "5", "needs 16384 bytes"),
    ],
)
def test_external_data_stays_in_its_folder(
    tmp_path: Any, key: str, value: str, message: str
) -> None:
    import onnx

    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = onnx.load_from_string(model(nodes, {"x": [2, 64]}, ["y"], {"w": random(64, 64)}))
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    os.symlink(tmp_path / "w.bin", tmp_path / "link.bin")
    changed = onnx.load(path, load_external_data=False)
    for entry in changed.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(changed.SerializeToString())
    with pytest.raises(svod.onnx.OnnxError, match=message):
        svod.onnx.load(path)(random(2, 64))


def test_damaged_files_are_errors_or_right() -> None:
    whole = mlp(2)
    x = random(2, 8)
    for cut in range(0, len(whole), 7):
        with pytest.raises(svod.errors.SvodError):
            svod.onnx.load(whole[:cut])(x)
    generator = np.random.default_rng(1)
    for _ in range(60):
        data = bytearray(whole)
        data[generator.integers(len(data))] ^= 1 << int(generator.integers(8))
        with contextlib.suppress(svod.errors.SvodError):
            svod.onnx.load(bytes(data))(x)


def test_a_cyclic_graph_is_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    with pytest.raises(svod.onnx.OnnxError, match="cyclic, unsorted or incomplete"):
        svod.onnx.load(model(nodes, {"x": [2]}, ["y"], {}))(np.zeros(2, np.float32))


def sums(*shapes: Any) -> bytes:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    return model(nodes, dict(zip("ab", shapes, strict=True)), ["y"], {})


def test_ranges_are_learnt_and_grow() -> None:
    loaded = svod.onnx.load(mlp())
    close(loaded(random(2, 8) * 0), np.zeros((2, 4)))
    before = dict(counters)
    x = random(16, 8)
    close(loaded(x), perceptron(x))
    assert counters == before
    assert loaded.notes == []
    x = random(100, 8)
    close(loaded(x), perceptron(x))
    assert loaded.notes == ["prepared again for batch from 1 to 128: dims= gives ranges beforehand"]
    with pytest.raises(svod.onnx.OnnxError, match="no size 'lots'"):
        svod.onnx.load(mlp(), dims={"lots": 3})


def test_batches_with_different_names_are_joined_where_the_graph_needs_it() -> None:
    loaded = svod.onnx.load(sums(["m", 3], ["n", 3]))
    for count in (2, 5):
        a, b = random(count, 3), random(count, 3)
        close(loaded(a, b), a + b)
    assert len(loaded.notes) == 1
    assert loaded.notes[0].startswith("n taken to be m: Add 'y'")
    a, b = random(1, 3), random(4, 3)
    close(loaded(a, b), a + b)
    assert "a plan for m from 1 to 1, n from 2 to 4 alone" in loaded.notes[-1]


def test_one_name_is_one_size() -> None:
    loaded = svod.onnx.load(sums(["n", 3], ["n", 3]))
    with pytest.raises(svod.onnx.OnnxError, match="the size 'n' is 2 elsewhere"):
        loaded(random(2, 3), random(4, 3))


def test_mistakes_of_operators_are_not_taken_for_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    from svod.frontend.onnx import registry

    def broken(x: Any) -> Any:
        raise TypeError("a mistake")

    entry = registry._described("Relu", 14, broken)
    monkeypatch.setitem(registry._OPERATORS, ("", "Relu"), [entry])
    with pytest.raises(svod.onnx.OnnxError, match="TypeError: a mistake"):
        svod.onnx.load(mlp())(random(2, 8))


def test_an_input_that_an_operator_needs_is_not_left_out() -> None:
    data = model([helper.make_node("Unique", [""], ["y"])], {"x": [1]}, ["y"], {})
    with pytest.raises(svod.onnx.OnnxError, match="Unique 'y': input 0 is missing"):
        svod.onnx.load(data)(random(1))


def test_an_image_of_any_size() -> None:
    w = random(5, 3, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[3, 3], strides=[2, 2],
                         pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["x"], ["s"], start=2),
        helper.make_node("Shape", ["m"], ["lead"], end=2),
        helper.make_node("Concat", ["lead", "s"], ["sizes"], axis=0),
        helper.make_node("Resize", ["m", "", "", "sizes"], ["y"], mode="linear"),
    ]  # fmt: skip
    data = model(nodes, {"x": [1, 3, "h", "w"]}, ["y"], {"w": w})
    loaded = svod.onnx.load(data)
    for height, width in ((32, 48), (33, 47), (64, 20)):
        x = random(1, 3, height, width)
        fixed = svod.onnx.load(data, dims={"h": height, "w": width})
        close(loaded(x), fixed(x))
    assert loaded.notes == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"nodes_featureids": [7, 0, 0]}, "a tree has feature 7 of 2"),
        ({"nodes_truenodeids": [9, 0, 0]}, "tree 0 has no node 9"),
        ({"nodes_truenodeids": [1, 0, 0], "nodes_modes": ["BRANCH_LEQ"] * 3}, "circle|no tree"),
        ({"nodes_values": [0.5]}, "different lengths"),
        ({"target_ids": [0, 3]}, "target_ids are from 0 to 0"),
    ],
)
def test_trees_that_are_broken_are_refused(change: dict[str, Any], message: str) -> None:
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_ids": [0, 0],
        "target_nodeids": [1, 2], "target_treeids": [0, 0], "target_weights": [3.0, 4.0],
        "n_targets": 1,
    } | change  # fmt: skip
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attributes
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", 1, [2, 2])], [info("y", 1, None)]
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    loaded = svod.onnx.load(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    x = np.array([[9, 0.5], [0, 0.6]], np.float32)
    if not message:
        assert loaded(x).tolist() == [[3.0], [4.0]]
        return
    with pytest.raises(svod.onnx.OnnxError, match=message):
        loaded(x)
