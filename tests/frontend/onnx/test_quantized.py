"""Quantised models in QDQ and QLinear form: whole numbers are exact, scales are applied once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import svod
from svod.device.cpu.host import host_machine
from svod.tools.explain import explanation

RNG = np.random.default_rng(7)
X_SCALE, Y_SCALE = np.float32(0.031), np.float32(0.9)
KINDS = {"u8": (np.uint8, 131), "i8": (np.int8, -7)}


def whole(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def made(nodes: list[Any], x: Any, weights: dict[str, Any], opset: int = 21) -> bytes:
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph(
        nodes, "g", [info], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def quantized(real: Any, zero: Any) -> Any:
    info = np.iinfo(zero.dtype)
    shifted = np.rint(real / Y_SCALE) + np.float32(zero)
    return np.clip(shifted, info.min, info.max).astype(zero.dtype)


def qdq(name: str, axis: int, is_last: bool, **attributes: Any) -> list[Any]:
    """DequantizeLinear of both operands, the product, and QuantizeLinear where wanted."""
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=axis),
        node(name, ["a", "b"], ["r"], **attributes),
    ]
    last = "QuantizeLinear" if is_last else "Identity"
    return [*nodes, node(last, ["r", "ys", "xz"] if is_last else ["r"], ["y"])]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("form", ["tensor", "channel", "points"])
@pytest.mark.parametrize("name", ["MatMul", "Gemm", "Conv"])
def test_a_product_of_dequantised_operands(name: str, form: str, is_last: bool, kind: str) -> None:
    dtype, point = KINDS[kind]
    count = 6
    axis = {"MatMul": 1, "Gemm": 0, "Conv": 0}[name]
    shape = {"MatMul": (24, count), "Gemm": (count, 24), "Conv": (count, 3, 3, 3)}[name]
    w = whole(np.int8, *shape)
    spread = form != "tensor"
    scale = RNG.uniform(0.01, 0.1, count if spread else ()).astype(np.float32)
    zeros = RNG.integers(-9, 9, count) if form == "points" else np.zeros(scale.shape)
    weights = {
        "w": w, "ws": scale, "wz": zeros.astype(np.int8), "xs": np.array(X_SCALE),
        "xz": np.array(point, dtype), "ys": np.array(Y_SCALE),
    }  # fmt: skip
    x = whole(dtype, 2, 3, 7, 7) if name == "Conv" else whole(dtype, 5, 24)
    left = x.astype(np.int64) - point
    turned = [-1 if i == axis else 1 for i in range(w.ndim)]
    right = w.astype(np.int64) - (zeros.astype(np.int64).reshape(turned) if spread else 0)
    attributes: dict[str, Any] = {}
    if name == "Conv":
        attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
        total = correlated(left, right)
        factor = (X_SCALE * scale).reshape(-1, 1, 1) if spread else X_SCALE * scale
    else:
        attributes = {"transB": 1} if name == "Gemm" else {}
        total = left @ (right.T if name == "Gemm" else right)
        factor = X_SCALE * scale
    real = total.astype(np.float32) * factor
    found = svod.onnx.load(made(qdq(name, axis, is_last, **attributes), x, weights))(x)
    if is_last:
        np.testing.assert_array_equal(found, quantized(real, np.array(point, dtype)))
    else:
        np.testing.assert_array_equal(found, real.astype(np.float32))


def correlated(x: Any, w: Any) -> Any:
    """A convolution of whole numbers with a border of one and steps of two."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    return np.einsum("nchwij,ocij->nohw", windows, w)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8])
def test_weights_with_a_scale_for_each_block(kind: int) -> None:
    import ml_dtypes

    dtype = {
        TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4,
        TensorProto.INT8: np.int8,
    }[kind]  # fmt: skip
    low = 0 if kind == TensorProto.UINT4 else -8
    w = RNG.integers(low, low + 16, (32, 6)).astype(dtype)
    scale = RNG.uniform(0.01, 0.1, (4, 6)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws"], ["b"], axis=0, block_size=8),
        helper.make_node("MatMul", ["x", "b"], ["y"]),
    ]
    x = RNG.standard_normal((3, 32)).astype(np.float32)
    found = svod.onnx.load(made(nodes, x, {"w": w, "ws": scale}))(x)
    wanted = x @ (w.astype(np.float32) * np.repeat(scale, 8, 0))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("points", [0, 5])
def test_integer_products_are_exact(points: int) -> None:
    a, b = whole(np.uint8, 2, 9, 40), whole(np.int8, 40, 7)
    rows = RNG.integers(0, 256, 9).astype(np.uint8)
    columns = np.full(7, points, np.int8)
    nodes = [helper.make_node("MatMulInteger", ["x", "b", "p", "q"], ["y"])]
    found = svod.onnx.load(made(nodes, a, {"b": b, "p": rows, "q": columns}))(a)
    wanted = (a.astype(int) - rows.reshape(-1, 1)) @ (b.astype(int) - points)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.long
@pytest.mark.parametrize("name", ["MatMul", "Conv"])
def test_a_quantised_layer_is_that_of_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    axis = 1 if name == "MatMul" else 0
    w = whole(np.int8, *((24, 6) if name == "MatMul" else (6, 3, 3, 3)))
    weights = {
        "w": w, "ws": RNG.uniform(0.01, 0.1, 6).astype(np.float32), "wz": np.zeros(6, np.int8),
        "xs": np.array(X_SCALE), "xz": np.array(131, np.uint8), "ys": np.array(Y_SCALE),
    }  # fmt: skip
    x = whole(np.uint8, 2, 3, 7, 7) if name == "Conv" else whole(np.uint8, 5, 24)
    model = made(qdq(name, axis, True), x, weights, 17)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})[0].astype(int)
    assert np.abs(svod.onnx.load(model)(x).astype(int) - wanted).max() <= 1


def test_zero_points_of_many_channels_do_not_hide_a_product_of_bytes() -> None:
    count = 1500  # more than what is otherwise kept as an array
    random = np.random.default_rng(3)
    weights = {
        "xs": np.float32(0.25), "xz": np.uint8(3), "w": whole(np.int8, 16, count),
        "ws": random.uniform(0.5, 2, count).astype(np.float32), "wz": np.zeros(count, np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=1),
        helper.make_node("MatMul", ["xr", "wr"], ["y"]),
    ]
    x = whole(np.uint8, 16, 16)
    model = svod.onnx.load(made(nodes, x, weights))
    total = (x.astype(np.int32) - 3) @ weights["w"].astype(np.int32)
    wanted = total.astype(np.float32) * (np.float32(0.25) * weights["ws"])
    np.testing.assert_array_equal(model(x=x), wanted)
    text = explanation(model.plan, code=True)
    assert "const u8 p1" in text or "const i8 p1" in text, "bytes are what is multiplied"
    assert "DOT(" in text or "u8s8" not in host_machine().dots
