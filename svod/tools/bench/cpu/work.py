"""What is measured on the CPU: arrays, and one function that every framework runs.

The function takes a namespace of operators (see `operators`), the weights by name, and the inputs
in order. Beside the namespace it uses what all tensors have: + - * @, indexing and `reshape`.
Linear weights are (outputs, inputs), images NCHW, filters OIHW.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from svod.tools.bench.models import Array, Weights

Operators: TypeAlias = Any  # one of the namespaces in `operators`
Run: TypeAlias = Callable[..., Any]  # of operators, weights, *inputs


@dataclass(frozen=True, slots=True)
class Work:
    """One computation."""

    run: Run
    inputs: list[Array]
    weights: dict[str, Array] = field(default_factory=dict)
    flops: float = 0.0  # multiply and add are two
    dtype: str = "float32"  # the inputs are cast to it first
    tolerance: float = 1e-4  # largest error, relative to the largest value
    has_numpy: bool = True  # False: NumPy has nothing comparable
    heads: tuple[int, int] = (0, 0)  # of attention: width of a head, and length where causal

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and weights."""
        return sum(a.nbytes for a in (*self.inputs, *self.weights.values()))


def product(
    rows: int, inner: int, columns: int, batch: tuple[int, ...] = (), form: str = "ab"
) -> Work:
    """a @ b; a capital letter in the form is an operand that lies transposed."""
    make = Weights()
    a = make.normal(*batch, rows, inner) if form[0] == "a" else make.normal(inner, rows)
    b = make.normal(*batch, inner, columns) if form[1] == "b" else make.normal(columns, inner)

    def run(ops: Operators, weights: Any, a: Any, b: Any) -> Any:
        left = a if form[0] == "a" else ops.transpose(a, (1, 0))
        return left @ (b if form[1] == "b" else ops.transpose(b, (1, 0)))

    count = 2.0 * rows * inner * columns * int(np.prod(batch))
    return Work(run, [a, b], flops=count)


def narrow_product(size: int, dtype: str) -> Work:
    """A product of bfloat16 with float32 sums, or of int8 with int32 sums."""
    make = Weights()
    if dtype == "int8":
        arrays = [make.integers(255, size, size).astype(np.int8) for _ in range(2)]
    else:
        arrays = [make.normal(size, size) for _ in range(2)]
    return Work(
        lambda ops, weights, a, b: ops.narrow_product(a, b), arrays, flops=2.0 * size**3,
        dtype=dtype, tolerance=0.0 if dtype == "int8" else 2e-2, has_numpy=False,
    )  # fmt: skip


def matvec(size: int) -> Work:
    """A row times a square matrix."""
    make = Weights()
    arrays = [make.normal(1, size), make.normal(size, size)]
    return Work(lambda ops, weights, a, b: a @ b, arrays, flops=2.0 * size * size)


def total(axis: int | None) -> Work:
    """Sums over 64 MB; shifted, so that they are well conditioned."""
    x = Weights().normal(4096, 4096, shift=1.0)
    return Work(lambda ops, weights, x: ops.sum(x, axis), [x], flops=float(x.size))


def softmax() -> Work:
    x = Weights().normal(4096, 1024)
    return Work(lambda ops, weights, x: ops.softmax(x), [x])


def layernorm() -> Work:
    make = Weights()
    weights = {"w": make.normal(1024), "b": make.normal(1024)}
    return Work(
        lambda ops, w, x: ops.layernorm(x, w["w"], w["b"]), [make.normal(4096, 1024)], weights
    )


def gelu_chain(size: int = 16 << 20) -> Work:
    make = Weights()
    arrays = [make.normal(size) for _ in range(4)]
    return Work(lambda ops, w, a, b, c, d: ops.gelu(a * b + c) * d, arrays)


def convolution(channels: int, groups: int) -> Work:
    """3×3 with padding on 56×56."""
    make = Weights()
    inner = channels // groups
    weights = {"w": make.normal(channels, inner, 3, 3, scale=0.1)}
    return Work(
        lambda ops, w, x: ops.conv2d(x, w["w"], 1, 1, groups),
        [make.normal(1, channels, 56, 56)], weights,
        2.0 * channels * 56 * 56 * inner * 9, has_numpy=False,
    )  # fmt: skip


def attention(length: int = 512) -> Work:
    make = Weights()
    arrays = [make.normal(1, 8, length, 64) for _ in range(3)]
    return Work(
        lambda ops, w, q, k, v: ops.attention(q, k, v, True), arrays,
        flops=4.0 * 8 * length * length * 64 / 2, heads=(64, length),
    )  # fmt: skip


# -- models ----------------------------------------------------------------------------------------


def mlp() -> Work:
    make = Weights()
    weights, count = {}, 0
    for number, (inner, outer) in enumerate([(784, 512), (512, 512), (512, 10)]):
        weights[f"w{number}"] = make.normal(outer, inner, scale=inner**-0.5)
        weights[f"b{number}"] = make.normal(outer, scale=0.1)
        count += inner * outer

    def run(ops: Operators, w: Any, x: Any) -> Any:
        for number in range(2):
            x = ops.relu(ops.linear(x, w[f"w{number}"], w[f"b{number}"]))
        return ops.linear(x, w["w2"], w["b2"])

    return Work(run, [make.normal(1, 784)], weights, 2.0 * count)


def resnet18() -> Work:
    make = Weights()
    weights: dict[str, Array] = {}
    layers: list[tuple[str, int]] = []
    count = 0

    def filters(name: str, inputs: int, outputs: int, kernel: int, size: int, gain: float) -> None:
        nonlocal count
        scale = sqrt(2 / (inputs * kernel * kernel))
        weights[f"{name}_w"] = make.normal(outputs, inputs, kernel, kernel, scale=scale)
        weights[f"{name}_scale"] = make.normal(outputs, scale=0.1, shift=gain)
        weights[f"{name}_shift"] = make.normal(outputs, scale=0.1)
        weights[f"{name}_mean"] = make.normal(outputs, scale=0.1)
        weights[f"{name}_variance"] = np.abs(make.normal(outputs, scale=0.1, shift=1.0))
        count += outputs * inputs * kernel * kernel * size * size

    filters("stem", 3, 64, 7, 112, 1.0)
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for part in range(2):
            name, stride = f"s{stage}{part}", 2 if stage and not part else 1
            size = 56 >> stage
            filters(f"{name}a", inputs, outputs, 3, size, 1.0)
            filters(f"{name}b", outputs, outputs, 3, size, 0.5)
            if stride == 2:
                filters(f"{name}c", inputs, outputs, 1, size, 1.0)
            layers.append((name, stride))
            inputs = outputs
    weights["out_w"] = make.normal(1000, 512, scale=512**-0.5)
    weights["out_b"] = make.normal(1000, scale=0.1)

    def run(ops: Operators, w: Any, x: Any) -> Any:
        def layer(name: str, x: Any, stride: int, padding: int) -> Any:
            x = ops.conv2d(x, w[f"{name}_w"], stride, padding, 1)
            names = ("scale", "shift", "mean", "variance")
            return ops.batchnorm(x, *[w[f"{name}_{part}"] for part in names])

        x = ops.maxpool(ops.relu(layer("stem", x, 2, 3)), 3, 2, 1)
        for name, stride in layers:
            y = ops.relu(layer(f"{name}a", x, stride, 1))
            y = layer(f"{name}b", y, 1, 1)
            x = ops.relu(y + (layer(f"{name}c", x, stride, 0) if stride == 2 else x))
        return ops.linear(ops.mean(x, (2, 3)), w["out_w"], w["out_b"])

    flops = 2.0 * (count + 512 * 1000)
    return Work(run, [make.normal(1, 3, 224, 224)], weights, flops, has_numpy=False)


def gpt2(
    layers: int = 12, width: int = 768, heads: int = 12, length: int = 128, tokens: int = 8192
) -> Work:
    """The logits of the last token."""
    make = Weights()
    weights = {"tokens": make.normal(tokens, width, scale=0.02)}
    weights["places"] = make.normal(length, width, scale=0.02)
    shapes = {"qkv": (3, 1), "mix": (1, 1), "up": (4, 1), "down": (1, 4)}
    for layer in range(layers):
        for name, (outer, inner) in shapes.items():
            scale = (inner * width) ** -0.5
            weights[f"{name}{layer}_w"] = make.normal(outer * width, inner * width, scale=scale)
            weights[f"{name}{layer}_b"] = make.normal(outer * width, scale=0.02)
    for name in [f"{n}{layer}" for layer in range(layers) for n in ("before", "between")] + ["end"]:
        weights[f"{name}_w"] = make.normal(width, scale=0.1, shift=1.0)
        weights[f"{name}_b"] = make.normal(width, scale=0.1)

    def run(ops: Operators, w: Any, ids: Any) -> Any:
        def linear(name: str, x: Any) -> Any:
            return ops.linear(x, w[f"{name}_w"], w[f"{name}_b"])

        def norm(name: str, x: Any) -> Any:
            return ops.layernorm(x, w[f"{name}_w"], w[f"{name}_b"])

        def head(x: Any, part: int) -> Any:
            x = x[:, :, part * width : (part + 1) * width]
            return ops.transpose(x.reshape(1, length, heads, width // heads), (0, 2, 1, 3))

        x = ops.take(w["tokens"], ids) + w["places"]
        for layer in range(layers):
            h = linear(f"qkv{layer}", norm(f"before{layer}", x))
            h = ops.attention(head(h, 0), head(h, 1), head(h, 2), True)
            h = ops.transpose(h, (0, 2, 1, 3)).reshape(1, length, width)
            x = x + linear(f"mix{layer}", h)
            h = ops.gelu(linear(f"up{layer}", norm(f"between{layer}", x)))
            x = x + linear(f"down{layer}", h)
        return ops.linear(norm("end", x[:, length - 1, :]), w["tokens"], None)

    flops = layers * (24.0 * length * width * width + 2.0 * length * length * width)
    flops += 2.0 * width * tokens
    ids = make.integers(tokens, 1, length)
    return Work(run, [ids], weights, flops, heads=(width // heads, length))


def decode(
    layers: int = 4, width: int = 512, heads: int = 8, hidden: int = 1376, past: int = 255,
    tokens: int = 8192,
) -> Work:  # fmt: skip
    """One token of a Llama-like decoder: the cache comes in, and goes out one longer."""
    make = Weights()
    size = width // heads
    weights = {"tokens": make.normal(tokens, width, scale=0.02)}
    weights["head"] = make.normal(tokens, width, scale=width**-0.5)
    weights["end"] = make.normal(width, scale=0.1, shift=1.0)
    shapes = dict.fromkeys(("query", "key", "value", "mix"), (width, width))
    shapes |= {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    for layer in range(layers):
        for name, (outer, inner) in shapes.items():
            weights[f"{name}{layer}"] = make.normal(outer, inner, scale=inner**-0.5)
        for name in ("before", "between"):
            weights[f"{name}{layer}"] = make.normal(width, scale=0.1, shift=1.0)

    def run(ops: Operators, w: Any, ids: Any, cos: Any, sin: Any, *cache: Any) -> Any:
        def turned(x: Any) -> Any:
            swapped = ops.cat([-x[:, :, :, size // 2 :], x[:, :, :, : size // 2]], 3)
            return x * cos + swapped * sin

        def split(x: Any) -> Any:
            return ops.transpose(x.reshape(1, 1, heads, size), (0, 2, 1, 3))

        x = ops.take(w["tokens"], ids)
        kept = []
        for layer in range(layers):
            h = ops.rmsnorm(x, w[f"before{layer}"])
            query, key, value = [
                split(ops.linear(h, w[f"{name}{layer}"], None))
                for name in ("query", "key", "value")
            ]
            key = ops.cat([cache[2 * layer], turned(key)], 2)
            value = ops.cat([cache[2 * layer + 1], value], 2)
            kept += [key, value]
            h = ops.attention(turned(query), key, value, False)
            h = ops.transpose(h, (0, 2, 1, 3)).reshape(1, 1, width)
            x = x + ops.linear(h, w[f"mix{layer}"], None)
            h = ops.rmsnorm(x, w[f"between{layer}"])
            gate = ops.silu(ops.linear(h, w[f"gate{layer}"], None))
            h = gate * ops.linear(h, w[f"up{layer}"], None)
            x = x + ops.linear(h, w[f"down{layer}"], None)
        return (ops.linear(ops.rmsnorm(x, w["end"]), w["head"], None), *kept)

    angles = past / 10000.0 ** (np.arange(0, size, 2) / size)
    turns = [np.concatenate([f(angles)] * 2).astype(np.float32) for f in (np.cos, np.sin)]
    caches = [make.normal(1, heads, past, size) for _ in range(2 * layers)]
    inner = layers * (4 * width * width + 3 * width * hidden + 2 * width * (past + 1))
    ids = np.array([[17]], np.int64)
    flops = 2.0 * (inner + width * tokens)
    return Work(run, [ids, *turns, *caches], weights, flops, heads=(size, 0))


WORKS: dict[str, Callable[[], Work]] = {
    **{f"matmul_{n}": partial(product, n, n, n) for n in (256, 511, 512, 1000, 1024, 1537, 2048)},
    "matmul_777x333x555": partial(product, 777, 333, 555),
    "matmul_65x1000x129": partial(product, 65, 1000, 129),
    "matmul_4096x4096x7": partial(product, 4096, 4096, 7),
    "matmul_aT_b": partial(product, 1024, 1024, 1024, (), "Ab"),
    "matmul_a_bT": partial(product, 1024, 1024, 1024, (), "aB"),
    "matmul_aT_bT": partial(product, 1024, 1024, 1024, (), "AB"),
    "matmul_batch8": partial(product, 256, 64, 256, (8,)),
    "matmul_bf16": partial(narrow_product, 1024, "bfloat16"),
    "matmul_int8": partial(narrow_product, 1024, "int8"),
    "matvec_4096": partial(matvec, 4096),
    "sum_all": partial(total, None),
    "sum_rows": partial(total, 1),
    "sum_columns": partial(total, 0),
    "softmax": softmax,
    "layernorm": layernorm,
    "gelu_chain": gelu_chain,
    "conv_3x3": partial(convolution, 64, 1),
    "conv_depthwise": partial(convolution, 256, 256),
    "attention": attention,
    "attention_1024": partial(attention, 1024),
    "mlp": mlp,
    "resnet18": resnet18,
    "gpt2": gpt2,
    "decode": decode,
}
