"""The models that are measured: plain functions over tensors, with random weights.

A model is its arrays by name and a function from tensors of the same names to the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import svod

Array = npt.NDArray[Any]
Tensors = dict[str, Any]  # svod.Tensor, loaded at first use


@dataclass(frozen=True, slots=True)
class Model:
    """Arrays, and what is computed from them."""

    arrays: dict[str, Array]
    run: Callable[[Tensors], Any]

    def tensors(self) -> Tensors:
        """Tensors over the memory of the arrays."""
        return {name: svod.Tensor.from_numpy(array) for name, array in self.arrays.items()}


class Weights:
    """Random arrays, the same on every run."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Array:
        """Normally distributed float32 values."""
        found = self.random.standard_normal(shape, dtype=np.float32)
        found *= np.float32(scale)
        found += np.float32(shift)
        return found

    def integers(self, high: int, *shape: int) -> Array:
        """Whole numbers from 0 to `high` - 1."""
        return self.random.integers(0, high, shape, dtype=np.int64)


def matmul(rows: int, inner: int, columns: int) -> Model:
    """One matrix product."""
    make = Weights()
    arrays = {"a": make.normal(rows, inner), "b": make.normal(inner, columns)}
    return Model(arrays, lambda t: t["a"] @ t["b"])


def convolution(channels: int = 64, size: int = 56) -> Model:
    """One 3×3 convolution with padding."""
    make = Weights()
    arrays = {
        "x": make.normal(1, channels, size, size),
        "w": make.normal(channels, channels, 3, 3, scale=0.05),
    }
    return Model(arrays, lambda t: t["x"].conv2d(t["w"], padding=1))


# -- the transformer -----------------------------------------------------------------------------


def transformer(layers: int, width: int, heads: int, length: int) -> Model:
    """Decoder layers as in GPT-2, from vectors to vectors."""
    make = Weights()
    arrays = {"x": make.normal(1, length, width), **layer_weights(make, layers, width)}

    def run(t: Tensors) -> Any:
        return transformer_layers(t, t["x"], layers, heads)

    return Model(arrays, run)


def gpt2(
    layers: int = 12, width: int = 768, heads: int = 12, length: int = 64, vocabulary: int = 50257
) -> Model:
    """GPT-2 from token numbers to the logits of every position."""
    make = Weights()
    arrays = {
        "ids": make.integers(vocabulary, 1, length),
        "tokens": make.normal(vocabulary, width, scale=0.02),
        "positions": make.normal(length, width, scale=0.02),
        "last.scale": make.normal(width, scale=0.1, shift=1.0),
        "last.shift": make.normal(width, scale=0.1),
        **layer_weights(make, layers, width),
    }

    def run(t: Tensors) -> Any:
        x = t["tokens"][t["ids"]] + t["positions"]
        x = transformer_layers(t, x, layers, heads)
        return x.layer_norm(width, t["last.scale"], t["last.shift"]).linear(t["tokens"])

    return Model(arrays, run)


def layer_weights(make: Weights, layers: int, width: int) -> dict[str, Array]:
    """Weights of every layer, under the names `0.qkv.w`, `0.qkv.b`, …"""
    found = {}
    shapes = (
        ("qkv", 3 * width, width),
        ("out", width, width),
        ("up", 4 * width, width),
        ("down", width, 4 * width),
    )
    for layer in range(layers):
        for norm in ("before", "between"):
            found[f"{layer}.{norm}.scale"] = make.normal(width, scale=0.1, shift=1.0)
            found[f"{layer}.{norm}.shift"] = make.normal(width, scale=0.1)
        for name, rows, columns in shapes:
            found[f"{layer}.{name}.w"] = make.normal(rows, columns, scale=columns**-0.5)
            found[f"{layer}.{name}.b"] = make.normal(rows, scale=0.02)
    return found


def transformer_layers(t: Tensors, x: Any, layers: int, heads: int) -> Any:
    """All layers over the vectors `x` of shape (batch, length, width)."""
    parts: dict[str, Tensors] = {}
    for name, tensor in t.items():
        layer_name, _, rest = name.partition(".")
        parts.setdefault(layer_name, {})[rest] = tensor
    for layer in range(layers):
        own = parts[str(layer)]
        x = x + attention(own, norm(own, "before", x), heads)
        hidden = linear(own, "up", norm(own, "between", x)).gelu(approximate="tanh")
        x = x + linear(own, "down", hidden)
    return x


def attention(t: Tensors, x: Any, heads: int) -> Any:
    """Causal attention, written out."""
    batch, length, width = x.shape
    split = linear(t, "qkv", x).reshape(batch, length, 3, heads, width // heads)
    split = split.permute(2, 0, 3, 1, 4)
    query, key, value = split[0], split[1], split[2]
    scores = (query @ key.transpose(-2, -1)) * (1 / math.sqrt(width // heads))
    place = svod.arange(length)
    is_seen = place.reshape(1, length) <= place.reshape(length, 1)
    scores = svod.where(is_seen, scores, -math.inf)
    mixed = scores.softmax(-1) @ value
    return linear(t, "out", mixed.permute(0, 2, 1, 3).reshape(batch, length, width))


def linear(t: Tensors, name: str, x: Any) -> Any:
    """The linear map of that name."""
    return x.linear(t[f"{name}.w"], t[f"{name}.b"])


def norm(t: Tensors, name: str, x: Any) -> Any:
    """The layernorm of that name."""
    return x.layer_norm(x.shape[-1], t[f"{name}.scale"], t[f"{name}.shift"])


# -- ResNet --------------------------------------------------------------------------------------


def resnet18(size: int = 224, widths: tuple[int, ...] = (64, 128, 256, 512)) -> Model:
    """ResNet-18 on one image, with batchnorm by running values."""
    make = Weights()
    arrays = {"x": make.normal(1, 3, size, size)}

    def convolution_weights(name: str, inputs: int, outputs: int, kernel: int) -> None:
        scale = math.sqrt(2 / (inputs * kernel * kernel))
        arrays[f"{name}.w"] = make.normal(outputs, inputs, kernel, kernel, scale=scale)
        arrays[f"{name}.scale"] = make.normal(outputs, scale=0.1, shift=1.0)
        arrays[f"{name}.shift"] = make.normal(outputs, scale=0.1)
        arrays[f"{name}.mean"] = make.normal(outputs, scale=0.1)
        arrays[f"{name}.variance"] = np.abs(make.normal(outputs, scale=0.1, shift=1.0))

    convolution_weights("stem", 3, widths[0], 7)
    blocks = []
    inputs = widths[0]
    for stage, outputs in enumerate(widths):
        for number in range(2):
            name, stride = f"{stage}.{number}", 2 if stage and not number else 1
            convolution_weights(f"{name}.first", inputs, outputs, 3)
            convolution_weights(f"{name}.second", outputs, outputs, 3)
            if stride == 2:
                convolution_weights(f"{name}.short", inputs, outputs, 1)
            blocks.append((name, stride))
            inputs = outputs
    arrays["classes.w"] = make.normal(1000, inputs, scale=inputs**-0.5)
    arrays["classes.b"] = make.normal(1000, scale=0.1)

    def run(t: Tensors) -> Any:
        x = normed_convolution(t, "stem", t["x"], 2, 3).relu().max_pool2d(3, 2, 1)
        for name, stride in blocks:
            y = normed_convolution(t, f"{name}.first", x, stride, 1).relu()
            y = normed_convolution(t, f"{name}.second", y, 1, 1)
            short = normed_convolution(t, f"{name}.short", x, stride, 0) if stride == 2 else x
            x = (y + short).relu()
        return linear(t, "classes", x.mean((2, 3)))

    return Model(arrays, run)


def normed_convolution(t: Tensors, name: str, x: Any, stride: int, padding: int) -> Any:
    """A convolution without bias, then batchnorm."""
    x = x.conv2d(t[f"{name}.w"], stride=stride, padding=padding)
    return x.batch_norm(
        t[f"{name}.mean"], t[f"{name}.variance"], t[f"{name}.scale"], t[f"{name}.shift"]
    )
