"""Small valid models of several kinds, with inputs: what the fuzzer changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, Any]
_FLOAT, _INT64, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def build(
    nodes: list[Any],
    feeds: Feeds,
    outputs: list[str],
    weights: dict[str, Any] | None = None,
    dynamic: bool = False,
    **options: Any,
) -> bytes:
    """A model over inputs like these arrays; the first axis has a name where it is dynamic."""
    inputs = []
    for name, value in feeds.items():
        shape = ["n", *value.shape[1:]] if dynamic and value.ndim else list(value.shape)
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    results = [helper.make_tensor_value_info(n, _FLOAT, None) for n in outputs]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9, **options)
    return made.SerializeToString()


def _mlp() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(3, 8)}
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], alpha=0.5, transB=1),
        node("LeakyRelu", ["h"], ["r"], alpha=0.1),
        node("MatMul", ["r", "v"], ["m"]),
        node("Softmax", ["m"], ["y"], axis=-1),
    ]
    weights = {"w": _numbers(6, 8), "b": _numbers(6), "v": _numbers(6, 4)}
    return build(nodes, feeds, ["y"], weights, dynamic=True), feeds


def _convolution() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(1, 3, 8, 8)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("BatchNormalization", ["c", "s", "b", "b", "s"], ["n"], epsilon=1e-3),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], mode="nearest"),
        node("Pad", ["u", "pads"], ["q"], mode="constant"),
        node("GlobalAveragePool", ["q"], ["g"]),
        node("Flatten", ["g"], ["y"], axis=1),
    ]
    weights = {
        "w": _numbers(5, 3, 3, 3), "b": _numbers(5), "s": np.abs(_numbers(5)) + 1,
        "scales": np.array([1, 1, 2, 2], np.float32), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }  # fmt: skip
    return build(nodes, feeds, ["y"], weights), feeds


def _shapes() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(2, 3, 8)}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i"], ["b"], axis=0),
        node("Concat", ["b", "heads"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        node("Slice", ["t", "one", "two", "one"], ["c"]),
        node("Expand", ["c", "large"], ["e"]),
        node("Tile", ["e", "reps"], ["k"]),
        node("ReduceSum", ["k", "one"], ["y"], keepdims=0),
        node("ConstantOfShape", ["heads"], ["z"], value=helper.make_tensor("v", _FLOAT, [1], [2])),
    ]
    weights = {
        "i": np.array([0, 1]), "heads": np.array([2, 4]), "one": np.array([1]),
        "two": np.array([2]), "large": np.array([2, 1, 3, 4]), "reps": np.array([1, 2, 1, 1]),
    }  # fmt: skip
    return build(nodes, feeds, ["y", "z"], weights), feeds


def _control() -> tuple[bytes, Feeds]:
    node, info = helper.make_node, helper.make_tensor_value_info
    feeds = {"x": _numbers(4), "c": np.array(True)}
    yes = helper.make_graph(
        [node("Relu", ["x"], ["t"])], "yes", [], [info("t", _FLOAT, [4])]
    )  # fmt: skip
    no = helper.make_graph([node("Neg", ["x"], ["f"])], "no", [], [info("f", _FLOAT, [4])])
    body = helper.make_graph(
        [node("Add", ["state", "x"], ["next"]), node("Identity", ["go"], ["on"])],
        "body",
        [info("step", _INT64, []), info("go", _BOOL, []), info("state", _FLOAT, [4])],
        [info("on", _BOOL, []), info("next", _FLOAT, [4])],
    )
    nodes = [
        node("If", ["c"], ["i"], then_branch=yes, else_branch=no),
        node("Loop", ["m", "", "i"], ["y"], body=body),
    ]
    return build(nodes, feeds, ["y"], {"m": np.array(3)}), feeds


def _function() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(5)}
    body = [node("Mul", ["a", "a"], ["s"]), node("LeakyRelu", ["s"], ["o"])]
    body[1].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Inner", ["a"], ["o"], body, opsets, ["slope"])
    call = [node("Inner", ["a"], ["o"], domain="local", slope=0.25)]
    outer = helper.make_function("local", "Outer", ["a"], ["o"], call, opsets)
    nodes = [node("Outer", ["x"], ["h"], domain="local"), node("Exp", ["h"], ["y"])]
    return build(nodes, feeds, ["y"], functions=[inner, outer]), feeds


def _quantised() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(2, 8)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s"], ["dw"]),
        node("MatMul", ["d", "dw"], ["y"]),
    ]
    weights = {
        "s": np.float32(0.05), "z": np.uint8(128),
        "w": np.arange(-16, 16, dtype=np.int8).reshape(8, 4),
    }  # fmt: skip
    return build(nodes, feeds, ["y"], weights), feeds


def _indexing() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(4, 6), "i": np.array([[0, 3], [2, 1]])}
    nodes = [
        node("Gather", ["x", "i"], ["g"], axis=0),
        node("ArgMax", ["g"], ["m"], axis=-1, keepdims=1),
        node("GatherElements", ["g", "m"], ["e"], axis=2),
        node("TopK", ["x", "k"], ["v", "p"], axis=1, largest=1),
        node("CumSum", ["v", "axis"], ["cs"]),
        node("Cast", ["p"], ["pf"], to=1),
        node("Where", ["cond", "cs", "pf"], ["w"]),
        node("Range", ["a", "b", "d"], ["count"]),
        node("Cast", ["count"], ["r"], to=1),
        node("Split", ["x"], ["s1", "s2"], axis=1, num_outputs=2),
        node("Einsum", ["s1", "s2"], ["y"], equation="ij,kj->ik"),
    ]
    weights = {
        "k": np.array([3]), "axis": np.array(1), "cond": np.array([True, False, True]),
        "a": np.array(0), "b": np.array(10), "d": np.array(3),
    }  # fmt: skip
    return build(nodes, feeds, ["e", "w", "y", "r"], weights), feeds


def _recurrent() -> tuple[bytes, Feeds]:
    feeds = {"x": _numbers(3, 1, 4)}
    weights = {"w": _numbers(1, 20, 4), "r": _numbers(1, 20, 5)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=5)]
    return build(nodes, feeds, ["y", "h"], weights), feeds


def _normalised() -> tuple[bytes, Feeds]:
    node = helper.make_node
    feeds = {"x": _numbers(2, 4, 6)}
    nodes = [
        node("LayerNormalization", ["x", "s"], ["n"], axis=-1, epsilon=1e-5),
        node("ReduceMean", ["n"], ["m"], keepdims=1),
        node("Sub", ["n", "m"], ["d"]),
        node("Pow", ["d", "two"], ["p"]),
        node("Clip", ["p", "lo", "hi"], ["c"]),
        node("Constant", [], ["k"], value_floats=[1.0, 2.0]),
        node("Unsqueeze", ["c", "axes"], ["u"]),
        node("Squeeze", ["u", "axes"], ["y"]),
    ]
    weights = {
        "s": _numbers(6), "two": np.float32(2), "lo": np.float32(0), "hi": np.float32(3),
        "axes": np.array([0]),
    }  # fmt: skip
    return build(nodes, feeds, ["y", "k"], weights), feeds


# The file that the weights of "external" lie in, beside the model.
EXTERNAL_FILE, EXTERNAL_NUMBERS = "w.bin", np.linspace(-1, 1, 4096, dtype=np.float32)


def _external() -> tuple[bytes, Feeds]:
    """Weights in another file, one of them in a place of its own."""
    feeds = {"x": _numbers(2048)}
    nodes = [helper.make_node("Sum", ["x", "a", "b", "b2"], ["y"])]
    made = onnx.load_from_string(build(nodes, feeds, ["y"]))
    for name, offset in (("a", 0), ("b", 8192), ("b2", 8192)):
        tensor = made.graph.initializer.add(name=name, data_type=1, dims=[2048])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": EXTERNAL_FILE, "offset": str(offset), "length": "8192"}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    return made.SerializeToString(), feeds


SEEDS: dict[str, Callable[[], tuple[bytes, Feeds]]] = {
    "mlp": _mlp, "convolution": _convolution, "shapes": _shapes, "control": _control,
    "function": _function, "quantised": _quantised, "indexing": _indexing,
    "recurrent": _recurrent, "normalised": _normalised, "external": _external,
}  # fmt: skip
