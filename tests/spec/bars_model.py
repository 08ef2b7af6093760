"""A transformer of the GPT-2 shape, made of plain tensor methods, for the bars."""

from __future__ import annotations

import numpy as np

from svod import Tensor

HEADS = 12


def weights(width: int, seed: int) -> dict[str, Tensor]:
    """One layer's weights."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> Tensor:
        return Tensor((random.standard_normal(shape) * 0.02).astype(np.float32))

    return {
        "scale1": matrix(width), "shift1": matrix(width),
        "qkv": matrix(width, 3 * width), "qkv_bias": matrix(3 * width),
        "proj": matrix(width, width), "proj_bias": matrix(width),
        "scale2": matrix(width), "shift2": matrix(width),
        "up": matrix(width, 4 * width), "up_bias": matrix(4 * width),
        "down": matrix(4 * width, width), "down_bias": matrix(width),
    }  # fmt: skip


def normalized(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * (variance + 1e-5).rsqrt() * scale + shift


def layer(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """One layer of the transformer."""
    rows, width = x.shape
    found = normalized(x, w["scale1"], w["shift1"]) @ w["qkv"] + w["qkv_bias"]
    parts = [found[:, i * width : (i + 1) * width] for i in range(3)]
    q, k, v = [p.reshape(rows, HEADS, width // HEADS).permute(1, 0, 2) for p in parts]
    attention = ((q @ k.permute(0, 2, 1)) * (width // HEADS) ** -0.5).softmax(-1) @ v
    x = x + attention.permute(1, 0, 2).reshape(rows, width) @ w["proj"] + w["proj_bias"]
    hidden = (normalized(x, w["scale2"], w["shift2"]) @ w["up"] + w["up_bias"]).gelu()
    return x + hidden @ w["down"] + w["down_bias"]


class Transformer:
    """Some layers with weights of their own."""

    def __init__(self, layers: int = 12, width: int = 768) -> None:
        self.width = width
        self.layers = [weights(width, seed) for seed in range(layers)]

    def __call__(self, rows: int, seed: int = 0) -> Tensor:
        """The result for fresh input."""
        values = np.random.default_rng(seed).standard_normal((rows, self.width))
        x = Tensor(values.astype(np.float32))
        for w in self.layers:
            x = layer(x, w)
        return x
