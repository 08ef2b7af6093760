"""Quantised models beside their float32 forms and onnxruntime: ResNet-50 and BERT-base.

`python -m bench.onnx_int8 [resnet50 bert] [--threads 1] [--layers N]` builds each model with random
weights, quantises it with onnxruntime (QDQ, static, scales per channel), runs all four in turn in
one process and prints the least processor time of each, and how the answers differ.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Graph:
    """An ONNX graph that is written down node by node."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)

    def constant(self, values: Any) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int, scale: float) -> str:
        return self.constant(self.random.standard_normal(shape).astype(np.float32) * scale)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def save(self, path: Path, inputs: dict[str, Any], output: str) -> None:
        import onnx
        from onnx import helper

        kinds = {np.dtype(np.float32): onnx.TensorProto.FLOAT}
        given = [
            helper.make_tensor_value_info(n, kinds.get(v.dtype, onnx.TensorProto.INT64), v.shape)
            for n, v in inputs.items()
        ]
        result = helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", given, [result], self.weights)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def _conv(g: Graph, x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
    weight = g.weight(outputs, inputs, size, size, scale=(2 / (inputs * size * size)) ** 0.5)
    edge = size // 2
    return g.add(
        "Conv", x, weight, g.weight(outputs, scale=0.1), kernel_shape=[size, size],
        strides=[stride] * 2, pads=[edge] * 4,
    )  # fmt: skip


def resnet(path: Path, layers: int) -> dict[str, Any]:
    """ResNet-50 with the batch norms folded in; fewer blocks of each stage where asked for."""
    g = Graph()
    x = g.add("Relu", _conv(g, "x", 3, 64, 7, 2))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(min(count, layers)):
            stride = 2 if stage and not block else 1
            y = g.add("Relu", _conv(g, x, channels, width, 1))
            y = g.add("Relu", _conv(g, y, width, width, 3, stride))
            y = _conv(g, y, width, 4 * width, 1)
            side = x if block else _conv(g, x, channels, 4 * width, 1, stride)
            x = g.add("Relu", g.add("Add", y, side))
            channels = 4 * width
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    y = g.add("Gemm", x, g.weight(1000, channels, scale=0.03), g.weight(1000, scale=0.1), transB=1)
    inputs = {"x": g.random.standard_normal((1, 3, 224, 224)).astype(np.float32)}
    g.save(path, inputs, y)
    return inputs


def bert(path: Path, layers: int, length: int = 128) -> dict[str, Any]:
    """The encoder of BERT-base: embeddings, layers of attention and two products with GELU."""
    g, wide, heads = Graph(), 768, 12
    x = g.add("Gather", g.weight(30522, wide, scale=0.5), "tokens")
    x = _norm(g, g.add("Add", x, g.weight(1, length, wide, scale=0.5)), wide)
    split = g.constant(np.array([0, 0, heads, wide // heads]))
    joined = g.constant(np.array([0, 0, wide]))
    for _ in range(min(layers, 12)):
        parts = [g.add("Reshape", _linear(g, x, wide, wide), split) for _ in range(3)]
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = [
            g.add("Transpose", p, perm=order) for p, order in zip(parts, orders, strict=True)
        ]
        scores = g.add("Div", g.add("MatMul", q, k), g.constant(np.float32(8)))
        y = g.add("MatMul", g.add("Softmax", scores, axis=-1), v)
        y = g.add("Reshape", g.add("Transpose", y, perm=[0, 2, 1, 3]), joined)
        x = _norm(g, g.add("Add", _linear(g, y, wide, wide), x), wide)
        y = _gelu(g, _linear(g, x, wide, 4 * wide))
        x = _norm(g, g.add("Add", _linear(g, y, 4 * wide, wide), x), wide)
    inputs = {"tokens": g.random.integers(1, 30000, (1, length))}
    g.save(path, inputs, x)
    return inputs


def _linear(g: Graph, x: str, inputs: int, outputs: int) -> str:
    y = g.add("MatMul", x, g.weight(inputs, outputs, scale=inputs**-0.5))
    return g.add("Add", y, g.weight(outputs, scale=0.1))


def _norm(g: Graph, x: str, size: int) -> str:
    ones, zeros = np.ones(size, np.float32), np.zeros(size, np.float32)
    return g.add("LayerNormalization", x, g.constant(ones), g.constant(zeros), epsilon=1e-12)


def _gelu(g: Graph, x: str) -> str:
    inner = g.add("Erf", g.add("Div", x, g.constant(np.float32(2**0.5))))
    inner = g.add("Add", inner, g.constant(np.float32(1)))
    return g.add("Mul", g.add("Mul", x, inner), g.constant(np.float32(0.5)))


MODELS: dict[str, tuple[Callable[[Path, int], dict[str, Any]], list[str]]] = {
    "resnet50": (resnet, ["Conv", "Gemm", "Add", "MaxPool", "GlobalAveragePool", "Relu"]),
    "bert": (bert, ["MatMul"]),
}


def quantize(source: Path, target: Path, inputs: dict[str, Any], kinds: list[str]) -> None:
    """The model in QDQ form; ranges are those of one batch of random inputs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [inputs]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    static(
        source, target, Reader(), quant_format=QuantFormat.QDQ, op_types_to_quantize=kinds,
        per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


def _runner(path: Path, inputs: dict[str, Any], threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)[0]


def _ours(path: Path, inputs: dict[str, Any]) -> Callable[[], Any]:
    import svod

    model = svod.onnx.load(path)
    return lambda: model(**inputs)


def _least(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The least processor time of each, taken in turn."""
    best = dict.fromkeys(runs, float("inf"))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def measure(name: str, folder: Path, layers: int, threads: int, seconds: float) -> None:
    """One model: its four times and ratios, and how far the quantised answers are apart."""
    build, kinds = MODELS[name]
    real, whole = folder / f"{name}.onnx", folder / f"{name}.int8.onnx"
    inputs = build(real, layers)
    quantize(real, whole, inputs, kinds)
    runs = {
        "svod float32": _ours(real, inputs), "onnxruntime float32": _runner(real, inputs, threads),
        "svod int8": _ours(whole, inputs), "onnxruntime int8": _runner(whole, inputs, threads),
    }  # fmt: skip
    found = {key: np.asarray(run()) for key, run in runs.items()}
    best = _least(runs, seconds)
    print(f"{name}, {layers} layers of a stage at most, {threads} threads, processor time")
    for key, value in best.items():
        print(f"  {key:20} {value * 1e3:8.2f} ms")
    print(f"  float32 / int8, ours {best['svod float32'] / best['svod int8']:8.2f}")
    print(f"  onnxruntime / ours   {best['onnxruntime int8'] / best['svod int8']:8.2f}  (int8)")
    ours, theirs, exact = (
        found[k] for k in ("svod int8", "onnxruntime int8", "onnxruntime float32")
    )
    norm = float(np.abs(exact).max())
    print(f"  ours - theirs        {np.abs(ours - theirs).max() / norm:8.4f}  of the largest value")
    print(f"  theirs - float32     {np.abs(theirs - exact).max() / norm:8.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=12, help="blocks of a stage, at most")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    os.environ["SVOD_THREADS"] = str(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models:
            measure(name, Path(folder), given.layers, given.threads, given.seconds)


if __name__ == "__main__":
    main()
