"""Files that mean harm: each is an OnnxError, and a selection of the fuzzer's files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod
from svod.frontend.onnx import wire
from tests.frontend.onnx.fuzz import in_child, outcome, run_ours, warm_up
from tests.frontend.onnx.seeds import SEEDS, build

X = np.zeros(4, np.float32)
node = helper.make_node


def refused(data: Any, message: str, x: Any = X) -> None:
    with pytest.raises(svod.onnx.OnnxError, match=message):
        svod.onnx.load(data)(x)


@pytest.mark.parametrize(
    ("operators", "weights"),
    [
        ([node("ConstantOfShape", ["big"], ["c"])], {"big": np.array([1 << 20, 1 << 20])}),
        ([node("Expand", ["x", "big"], ["c"])], {"big": np.array([1 << 40, 4])}),
        ([node("Tile", ["x", "big"], ["c"])], {"big": np.array([1 << 40])}),
        ([node("Resize", ["x", "", "big"], ["c"])], {"big": np.array([1e9], np.float32)}),
        ([node("Pad", ["x", "big"], ["c"])], {"big": np.array([0, 1 << 40])}),
        (
            [node("Range", ["a", "big", "d"], ["r"]), node("Cast", ["r"], ["c"], to=1)],
            {"a": np.array(0), "big": np.array(1 << 40), "d": np.array(1)},
        ),
        (
            [node("Tile", ["x", "big"], ["a"]), node("Tile", ["a", "big"], ["c"])],
            {"big": np.array([1 << 16])},
        ),
    ],
)
def test_a_bomb_of_constants_is_refused(operators: list[Any], weights: dict[str, Any]) -> None:
    nodes = [*operators, node("ReduceSum", ["c"], ["y"], keepdims=0)]
    refused(build(nodes, {"x": X}, ["y"], weights), "more than 268435456 elements|the limit is")


def test_huge_dims_without_data_are_refused() -> None:
    for dims in ([1 << 40, 1 << 40], [-1], [0, 1 << 62], [1] * 65):
        tensor = TensorProto(name="w", data_type=1, dims=dims)
        made = onnx.load_from_string(build([node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"]))
        made.graph.initializer.append(tensor)
        refused(made.SerializeToString(), "impossible shape")


def test_a_huge_sparse_tensor_is_refused() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    sparse = helper.make_sparse_tensor(values, places, [1 << 30, 1 << 10])
    made = onnx.load_from_string(build([node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"]))
    made.graph.sparse_initializer.append(sparse)
    refused(made.SerializeToString(), "more than 268435456 elements")


def test_an_endless_loop_is_refused() -> None:
    made = onnx.load_from_string(SEEDS["control"]()[0])
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(1 << 40), "m"))
    with pytest.raises(svod.onnx.OnnxError, match="makes 1099511627776 turns"):
        svod.onnx.load(made.SerializeToString()).run(SEEDS["control"]()[1])


def test_functions_that_call_each_other_twice_end() -> None:
    """Each of 40 functions calls the next twice: two to the 40 nodes."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    functions = []
    for i in range(40):
        body = [
            node(f"F{i + 1}", ["a"], ["b"], domain="local"),
            node(f"F{i + 1}", ["b"], ["o"], domain="local"),
        ]
        if i == 39:
            body = [node("Relu", ["a"], ["o"])]
        functions.append(helper.make_function("local", f"F{i}", ["a"], ["o"], body, opsets))
    data = build([node("F0", ["x"], ["y"], domain="local")], {"x": X}, ["y"], functions=functions)
    refused(data, "expand to 549755813888 nodes")


def test_deep_nesting_is_refused() -> None:
    inner = b"\x0a\x00"
    for _ in range(200):  # a graph with a node with an attribute with a graph ...
        attribute = b"\x32" + _varint(len(inner)) + inner
        single = b"\x2a" + _varint(len(attribute)) + attribute
        inner = b"\x0a" + _varint(len(single)) + single
    with pytest.raises(svod.onnx.OnnxError, match=f"nests more than {wire.DEPTH_LIMIT}"):
        svod.onnx.load(b"\x3a" + _varint(len(inner)) + inner)


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def external(folder: Path, entries: list[dict[str, str]], elements: int = 2048) -> Path:
    """A model whose weights are said to be in other files."""
    names = [f"w{i}" for i in range(len(entries))]
    nodes = [node("Sum", ["x", *names], ["y"])]
    made = onnx.load_from_string(build(nodes, {"x": np.zeros(elements, np.float32)}, ["y"]))
    for name, values in zip(names, entries, strict=True):
        tensor = made.graph.initializer.add(name=name, data_type=1, dims=[elements])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in values.items():
            tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_tensors_may_share_data_but_not_a_part_of_it(tmp_path: Path) -> None:
    numbers = np.arange(4096, dtype=np.float32)
    numbers.tofile(tmp_path / "w.bin")
    x = np.zeros(2048, np.float32)
    same = {"location": "w.bin", "offset": "0", "length": "8192"}
    rest = {"location": "w.bin", "offset": "8192", "length": "8192"}
    found = svod.onnx.load(external(tmp_path, [same, same, rest]))(x)
    np.testing.assert_array_equal(found, 2 * numbers[:2048] + numbers[2048:])
    part = {"location": "w.bin", "offset": "4096", "length": "8192"}
    refused(external(tmp_path, [same, part]), "overlap", x)
    refused(external(tmp_path, [rest, part]), "overlap", x)


def test_external_data_is_a_plain_file_inside_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "model"
    outside.mkdir()
    (folder / "inner").mkdir(parents=True)
    x = np.zeros(2048, np.float32)
    x.tofile(outside / "w.bin")
    x.tofile(folder / "inner" / "w.bin")
    (folder / "link").symlink_to(outside)
    (folder / "inner" / "self").symlink_to(folder / "inner" / "w.bin")
    os.mkfifo(folder / "pipe")
    svod.onnx.load(external(folder, [{"location": "inner/w.bin"}]))(x)
    os.link(outside / "w.bin", folder / "hard.bin")  # a name of the file like any other
    svod.onnx.load(external(folder, [{"location": "./hard.bin"}]))(x)
    for location, message in {
        "link/w.bin": "symbolic link",
        "inner/self": "symbolic link",
        "inner/w.bin/more": "no folder",
        "pipe": "no plain file",
        "inner": "no plain file",
        ".": "no plain file",
        "inner/../../outside/w.bin": "not inside",
        "..\\outside\\w.bin": "not inside",
        "C:\\w.bin": "not inside",
        "": "not inside",
        "w\0.bin": "not inside",
        "a" * 5000: "not inside",
        str(outside / "w.bin"): "not inside",
    }.items():
        refused(external(folder, [{"location": location}]), message, x)


def test_a_selection_of_mutated_files() -> None:
    warm_up()
    found = [(number, *outcome(number)) for number in range(5000, 5045)]
    assert [f for f in found if f[2] not in ("right", "error")] == []
    assert {"right", "error"} == {f[2] for f in found}


def test_the_seeds_of_the_fuzzer_are_right() -> None:
    for seed, make in SEEDS.items():
        data, feeds = make()
        assert in_child(lambda d=data, f=feeds: run_ours(d, f))[0] == "right", seed  # type: ignore[misc]


def test_an_output_of_another_type_than_it_is_declared_is_refused() -> None:
    for declared in (TensorProto.INT64, TensorProto.FLOAT4E2M1, TensorProto.STRING, 99):
        made = onnx.load_from_string(build([node("Relu", ["x"], ["y"])], {"x": X}, ["y"]))
        made.graph.output[0].type.tensor_type.elem_type = declared
        refused(made.SerializeToString(), "output 'y' is declared .*, but is FLOAT")


def test_an_attribute_of_another_type_than_it_says_is_refused() -> None:
    made = onnx.load_from_string(
        build([node("Constant", [], ["y"], value_floats=[1.0, 2.0])], {"x": X}, ["y"])
    )
    made.graph.node[0].attribute[0].type = onnx.AttributeProto.STRINGS
    refused(made.SerializeToString(), "'value_floats' holds another type than it says")
