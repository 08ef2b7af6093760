"""The operators of `work` in each framework: NumPy, svod, torch, jax, and as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

EPSILON = 1e-5
GELU = (sqrt(2 / pi), 0.044715 * sqrt(2 / pi))


class NumpyOperators:
    """Also the reference, over float64."""

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum(axis)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.transpose(axes)

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return np.concatenate(parts, axis)

    def take(self, table: Any, ids: Any) -> Any:
        return table[ids]

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def silu(self, x: Any) -> Any:
        return x / (1 + np.exp(-x))

    def gelu(self, x: Any) -> Any:
        inner = x * (x.dtype.type(GELU[0]) + x.dtype.type(GELU[1]) * x * x)
        return x.dtype.type(0.5) * x * (1 + np.tanh(inner))

    def softmax(self, x: Any) -> Any:
        grown = np.exp(x - x.max(-1, keepdims=True))
        return grown / grown.sum(-1, keepdims=True)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(EPSILON))
        return centred / spread * weight + bias

    def rmsnorm(self, x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(EPSILON)) * weight

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        y = x @ weight.T
        return y if bias is None else y + bias

    def narrow_product(self, a: Any, b: Any) -> Any:
        return a @ b

    def conv2d(self, x: Any, weight: Any, stride: int, padding: int, groups: int) -> Any:
        outputs, inner, *kernel = weight.shape
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
        windows = windows[:, :, ::stride, ::stride]
        batch, _, rows, columns = windows.shape[:4]
        parts = windows.reshape(batch, groups, inner, rows, columns, *kernel)
        patches = parts.transpose(0, 1, 3, 4, 2, 5, 6).reshape(batch, groups, rows * columns, -1)
        found = patches @ weight.reshape(groups, outputs // groups, -1).transpose(0, 2, 1)
        return found.transpose(0, 1, 3, 2).reshape(batch, outputs, rows, columns)

    def batchnorm(self, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        factor = scale / np.sqrt(variance + EPSILON)
        return x * factor[:, None, None] + (shift - mean * factor)[:, None, None]

    def maxpool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        edges = (padding, padding)
        x = np.pad(x, ((0, 0), (0, 0), edges, edges), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
        return windows[:, :, ::stride, ::stride].max((4, 5))

    def attention(self, query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.dtype.type(query.shape[-1] ** -0.5)
        if is_causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        return self.softmax(scores.astype(query.dtype)) @ value


class SvodOperators:
    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum(axis)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return parts[0].cat(*parts[1:], dim=axis)

    def take(self, table: Any, ids: Any) -> Any:
        return table[ids]

    def relu(self, x: Any) -> Any:
        return x.relu()

    def silu(self, x: Any) -> Any:
        return x.silu()

    def gelu(self, x: Any) -> Any:
        return x.gelu(approximate="tanh")

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        return x.layer_norm(x.shape[-1], weight, bias, EPSILON)

    def rmsnorm(self, x: Any, weight: Any) -> Any:
        return x.rms_norm(x.shape[-1], weight, EPSILON)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x.linear(weight, bias)

    def narrow_product(self, a: Any, b: Any) -> Any:
        if a.dtype.name == "int8":
            return a.cast("int32") @ b.cast("int32")
        return a.matmul(b, dtype="float32")

    def conv2d(self, x: Any, weight: Any, stride: int, padding: int, groups: int) -> Any:
        return x.conv2d(weight, None, stride, padding, 1, groups)

    def batchnorm(self, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        return x.batch_norm(mean, variance, scale, shift, eps=EPSILON)

    def maxpool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return x.max_pool2d(size, stride, padding)

    def attention(self, query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        return query.scaled_dot_product_attention(key, value, is_causal=is_causal)


class TorchOperators:
    def __init__(self, torch: Any) -> None:
        self.torch, self.functions = torch, torch.nn.functional

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.torch.cat(list(parts), axis)

    def take(self, table: Any, ids: Any) -> Any:
        return self.functions.embedding(ids, table)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def silu(self, x: Any) -> Any:
        return self.functions.silu(x)

    def gelu(self, x: Any) -> Any:
        return self.functions.gelu(x, approximate="tanh")

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functions.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)

    def rmsnorm(self, x: Any, weight: Any) -> Any:
        return self.functions.rms_norm(x, x.shape[-1:], weight, EPSILON)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functions.linear(x, weight, bias)

    def narrow_product(self, a: Any, b: Any) -> Any:
        return self.torch._int_mm(a, b) if a.dtype is self.torch.int8 else a @ b

    def conv2d(self, x: Any, weight: Any, stride: int, padding: int, groups: int) -> Any:
        return self.functions.conv2d(x, weight, None, stride, padding, 1, groups)

    def batchnorm(self, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        return self.functions.batch_norm(x, mean, variance, scale, shift, eps=EPSILON)

    def maxpool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self.functions.max_pool2d(x, size, stride, padding)

    def attention(self, query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        return self.functions.scaled_dot_product_attention(query, key, value, is_causal=is_causal)


class JaxOperators(NumpyOperators):
    """What NumPy's form does not say well for jax."""

    def __init__(self, jax: Any) -> None:
        self.jax, self.numpy = jax, jax.numpy

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.numpy.concatenate(parts, axis)

    def relu(self, x: Any) -> Any:
        return self.numpy.maximum(x, 0)

    def silu(self, x: Any) -> Any:
        return self.jax.nn.silu(x)

    def gelu(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=True)

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x, -1)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = self.jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        return centred * spread * weight + bias

    def rmsnorm(self, x: Any, weight: Any) -> Any:
        return x * self.jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight

    def narrow_product(self, a: Any, b: Any) -> Any:
        kind = self.numpy.int32 if a.dtype == self.numpy.int8 else self.numpy.float32
        return self.numpy.matmul(a, b, preferred_element_type=kind)

    def conv2d(self, x: Any, weight: Any, stride: int, padding: int, groups: int) -> Any:
        return self.jax.lax.conv_general_dilated(
            x, weight, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )  # fmt: skip

    def batchnorm(self, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        factor = scale * self.jax.lax.rsqrt(variance + EPSILON)
        return x * factor[:, None, None] + (shift - mean * factor)[:, None, None]

    def maxpool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        edges = (padding, padding)
        return self.jax.lax.reduce_window(
            x, -self.numpy.inf, self.jax.lax.max, (1, 1, size, size), (1, 1, stride, stride),
            [(0, 0), (0, 0), edges, edges],
        )  # fmt: skip

    def attention(self, query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        if is_causal:
            seen = self.numpy.tri(*scores.shape[-2:], dtype=bool)
            scores = self.numpy.where(seen, scores, -self.numpy.inf)
        return self.jax.nn.softmax(scores, -1) @ value
