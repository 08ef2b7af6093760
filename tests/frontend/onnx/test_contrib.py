"""Operators of com.microsoft beside onnxruntime, on models of one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import svod

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
RNG = np.random.default_rng(5)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def s(value: float) -> Any:
    return np.array(value, np.float32)


def z(value: int, kind: Any = np.uint8) -> Any:
    return np.array(value, kind)


def angles(length: int, half: int) -> tuple[Any, Any]:
    turn = np.outer(np.arange(length), 1 / 100 ** (np.arange(half) / half))
    return np.cos(turn).astype(np.float32), np.sin(turn).astype(np.float32)


def both(
    name: str, inputs: list[Any], outputs: int = 1, domain: str = "com.microsoft",
    constants: tuple[int, ...] = (), **attributes: Any,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """What onnxruntime gives, and what we give; some inputs are weights."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    given = {n: v for n, v in zip(names, inputs, strict=True) if n}
    outs = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(name, names, outs, domain=domain, **attributes)
    weights = {f"i{k}" for k in constants}
    graph = helper.make_graph(
        [node], "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items() if n not in weights
        ],
        [helper.make_empty_tensor_value_info(o) for o in outs],
        [numpy_helper.from_array(v, n) for n, v in given.items() if n in weights],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    feeds = {n: v for n, v in given.items() if n not in weights}
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return session.run(None, feeds), svod.onnx.load(made).run(feeds)


B, S, N, H = 2, 5, 3, 8
D = N * H
COS, SIN = angles(16, H // 2)
CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("FusedMatMul", [f32(2, 4, 3), f32(2, 4, 5)], 1, {"alpha": 0.5, "transA": 1}),
    ("FusedMatMul", [f32(4, 2, 3), f32(2, 5, 3)], 1, {"transB": 1, "transBatchA": 1}),
    ("FusedGemm", [f32(4, 3), f32(5, 3), f32(5)], 1, {"transB": 1, "activation": "Relu"}),
    ("FusedConv", [f32(1, 3, 8, 8), f32(4, 3, 3, 3), f32(4)], 1, {"activation": "Relu"}),
    ("FusedConv", [f32(1, 3, 8, 8), f32(4, 3, 3, 3), f32(4), f32(1, 4, 6, 6)], 1,
     {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("Gelu", [f32(3, 8)], 1, {}),
    ("BiasGelu", [f32(3, 8), f32(8)], 1, {}),
    ("FastGelu", [f32(3, 8), f32(8)], 1, {}),
    ("FastGelu", [f32(3, 8)], 1, {}),
    ("QuickGelu", [f32(3, 8)], 1, {"alpha": 1.5}),
    ("SkipLayerNormalization", [f32(B, S, D), f32(B, S, D), f32(D), f32(D), f32(D)], 1, {}),
    ("SkipSimplifiedLayerNormalization", [f32(B, S, D), f32(B, S, D), f32(D)], 1,
     {"epsilon": 1e-5}),
    ("EmbedLayerNormalization",
     [np.array([[1, 2, 0], [3, 4, 1]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32),
      f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8), np.array([[1, 1, 0], [1, 1, 1]], np.int32)],
     2, {"epsilon": 1e-5}),
    ("Attention", [f32(B, S, D), f32(D, 3 * D), f32(3 * D)], 1, {"num_heads": N}),
    ("Attention", [f32(B, S, D), f32(D, 3 * D), f32(3 * D), np.array([3, 5], np.int32)], 1,
     {"num_heads": N, "unidirectional": 1}),
    ("Attention",
     [f32(B, S, D), f32(D, 3 * D), f32(3 * D), np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)],
     1, {"num_heads": N, "scale": 0.3}),
    ("Attention", [f32(B, S, D), f32(D, 3 * D), f32(3 * D), None, f32(2, B, N, 4, H)], 2,
     {"num_heads": N, "unidirectional": 1}),
    ("MultiHeadAttention", [f32(B, S, D), f32(B, 7, D), f32(B, 7, D), f32(3 * D)], 1,
     {"num_heads": N}),
    ("MultiHeadAttention",
     [f32(B, S, D), f32(B, S, D), f32(B, S, D), None,
      np.array([[1] * 5, [1, 1, 0, 0, 0]], np.int32), f32(1, N, S, S)], 1, {"num_heads": N}),
    ("MultiHeadAttention",
     [f32(B, S, D), f32(B, S, D), f32(B, S, D), None, None, None, f32(B, N, 4, H),
      f32(B, N, 4, H)], 3, {"num_heads": N, "unidirectional": 1}),
    ("MultiHeadAttention", [f32(B, S, D), f32(B, N, 7, H), f32(B, N, 7, H)], 1, {"num_heads": N}),
    ("RotaryEmbedding", [f32(B, S, D), np.array([2]), COS, SIN], 1, {}),
    ("RotaryEmbedding", [f32(B, N, S, H), np.arange(10).reshape(2, 5), COS, SIN], 1,
     {"interleaved": 1}),
    ("MatMulNBits", [f32(3, 40), u8(6, 3, 8), f32(18)], 1,
     {"K": 40, "N": 6, "bits": 4, "block_size": 16}),
    ("MatMulNBits", [f32(3, 64), u8(6, 2, 16), f32(12), u8(6)], 1,
     {"K": 64, "N": 6, "bits": 4, "block_size": 32}),
    ("GatherBlockQuantized", [u8(7, 16), np.array([[1, 3], [6, 0]]), f32(7, 2), u8(7, 1)], 1,
     {"block_size": 16}),
    ("MatMulIntegerToFloat", [u8(4, 16), i8(16, 6), s(0.02), f32(6), z(120), z(0, np.int8)], 1,
     {}),
    ("DynamicQuantizeMatMul", [f32(4, 16), i8(16, 6), s(0.03), z(3, np.int8), f32(6)], 1, {}),
    ("QLinearAdd", [u8(3, 9), s(0.1), z(120), u8(9), s(0.07), z(7), s(0.15), z(100)], 1, {}),
    ("QLinearMul", [u8(3, 9), s(0.1), z(120), u8(9), s(0.07), z(7), s(1.5), z(100)], 1, {}),
    ("QLinearSigmoid", [u8(3, 9), s(0.05), z(128), s(1 / 256), z(0)], 1, {}),
    ("QLinearLeakyRelu", [i8(3, 9), s(0.05), z(3, np.int8), s(0.04), z(-20, np.int8)], 1,
     {"alpha": 0.1}),
    ("QLinearSoftmax", [u8(3, 9), s(0.05), z(128), s(1 / 256), z(0)], 1, {"opset": 13}),
    ("QLinearConcat", [s(0.1), z(100), u8(2, 3), s(0.05), z(90), u8(2, 4), s(0.2), z(130)], 1,
     {"axis": 1}),
    ("QLinearGlobalAveragePool", [u8(2, 3, 5, 5), s(0.1), z(100), s(0.05), z(120)], 1, {}),
    ("QLinearAveragePool", [u8(1, 3, 6, 6), s(0.1), z(100), s(0.08), z(110)], 1,
     {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("QGemm",
     [u8(3, 12), s(0.1), z(120), i8(5, 12), f32(5) ** 2, np.zeros(5, np.int8),
      np.arange(5, dtype=np.int32) * 100, s(4.0), z(128)], 1, {"transB": 1}),
    ("QGemm", [u8(3, 12), s(0.1), z(120), i8(12, 5), s(0.03), z(0, np.int8), None, None, None], 1,
     {}),
    ("DequantizeLinear", [u8(3, 9), s(0.1), z(120)], 1, {}),
    ("QuantizeLinear", [f32(3, 9), s(0.02), z(120)], 1, {}),
]  # fmt: skip
# Weights must be constant, and points of quantised operands where onnxruntime wants them so.
WEIGHTS = {
    "MatMulNBits": (1, 2, 3), "GatherBlockQuantized": (0, 2, 3),
    "QLinearSigmoid": (1, 2, 3, 4), "QLinearLeakyRelu": (1, 2, 3, 4),
    "QLinearSoftmax": (1, 2, 3, 4), "QGemm": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearConcat": (0, 1, 3, 4, 6, 7),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_equal_to_onnxruntime(case: Any) -> None:
    name, inputs, outputs, attributes = case
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    constants = tuple(c for c in WEIGHTS.get(name, ()) if c < len(inputs))
    wanted, found = both(name, inputs, outputs, constants=constants, **attributes)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "iu":  # halves round to even here, and by fixed point there
            assert np.abs(a.astype(int) - b.astype(int)).max() <= (1 if a.itemsize == 1 else 0)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-4)


def test_group_query_attention_with_a_cache() -> None:
    heads, groups, past, size = 4, 2, 3, 16
    cos, sin = angles(16, size // 2)
    for length, cache in ((1, past), (past, 0)):
        inputs = [
            f32(B, length, heads * size), f32(B, length, groups * size),
            f32(B, length, groups * size),
            f32(B, groups, cache, size), f32(B, groups, cache, size),
            np.full(B, cache + length - 1, np.int32), np.array(cache + length, np.int32),
            cos, sin,
        ]  # fmt: skip
        wanted, found = both(
            "GroupQueryAttention", inputs, 3, constants=(6, 7, 8), num_heads=heads,
            kv_num_heads=groups, do_rotary=1,
        )  # fmt: skip
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_simplified_layer_normalization_of_the_default_domain() -> None:
    inputs = [f32(2, 3, 8), f32(8)]
    wanted, found = both("SimplifiedLayerNormalization", inputs, domain="", epsilon=1e-6)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)
