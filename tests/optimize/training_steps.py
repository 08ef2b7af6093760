"""Training steps of whole networks as graphs over memory that is never touched.

Each gives the results of one step: the loss, and what AdamW makes of parameters and their moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod import Tensor
from svod.dtype import types as dt

Maker = Callable[..., Tensor]
Parameters = dict[str, Tensor]


def adamw(m: Maker, parameters: Parameters, loss: Tensor, rate: float = 1e-3) -> list[Tensor]:
    """The loss, and parameters and moments after a step."""
    loss.backward()
    results = [loss]
    for p in parameters.values():
        g, mean, square = p.grad, m(*p.shape), m(*p.shape)
        assert g is not None
        wide = g.float()
        mean, square = mean * 0.9 + wide * 0.1, square * 0.999 + wide * wide * 0.001
        step = (mean / 0.1) / ((square / 0.001).sqrt() + 1e-8)
        results += [
            (p.detach().float() * (1 - rate * 0.01) - rate * step).cast(p.dtype),
            mean,
            square,
        ]
    return results


def gpt(
    m: Maker,
    dtype: dt.DType = dt.bfloat16,
    batch: int = 8,
    length: int = 1024,
    width: int = 768,
    heads: int = 12,
    layers: int = 2,
    words: int = 50304,
) -> list[Tensor]:
    """A step of GPT-2: learned positions, pre-norm blocks, tied head, cross-entropy."""
    shapes: dict[str, tuple[int, ...]] = {"words": (words, width), "places": (length, width)}
    for i in range(layers):
        shapes |= {
            f"{i}.norm1": (width,), f"{i}.shift1": (width,), f"{i}.qkv": (3 * width, width),
            f"{i}.qkv bias": (3 * width,), f"{i}.out": (width, width), f"{i}.out bias": (width,),
            f"{i}.norm2": (width,), f"{i}.shift2": (width,), f"{i}.up": (4 * width, width),
            f"{i}.up bias": (4 * width,), f"{i}.down": (width, 4 * width),
            f"{i}.down bias": (width,),
        }  # fmt: skip
    shapes |= {"norm": (width,), "shift": (width,)}
    p = {name: m(*shape, dtype=dtype).requires_grad_() for name, shape in shapes.items()}
    tokens, targets = m(batch, length, dtype=dt.int64), m(batch, length, dtype=dt.int64)
    x = p["words"][tokens] + p["places"]
    for i in range(layers):
        h = x.layer_norm([width], p[f"{i}.norm1"], p[f"{i}.shift1"])
        qkv = h.linear(p[f"{i}.qkv"], p[f"{i}.qkv bias"]).reshape(batch, length, 3, heads, -1)
        q, k, v = (qkv[:, :, j].permute(0, 2, 1, 3) for j in range(3))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        mixed = mixed.permute(0, 2, 1, 3).reshape(batch, length, width)
        x = x + mixed.linear(p[f"{i}.out"], p[f"{i}.out bias"])
        h = x.layer_norm([width], p[f"{i}.norm2"], p[f"{i}.shift2"])
        h = h.linear(p[f"{i}.up"], p[f"{i}.up bias"]).gelu()
        x = x + h.linear(p[f"{i}.down"], p[f"{i}.down bias"])
    x = x.layer_norm([width], p["norm"], p["shift"])
    logits = x.linear(p["words"]).reshape(batch * length, words)
    return adamw(m, p, logits.float().cross_entropy(targets.reshape(-1)))


def resnet18(
    m: Maker, dtype: dt.DType = dt.float32, batch: int = 64, size: int = 224, classes: int = 1000
) -> list[Tensor]:
    """A step of ResNet-18 with batch norms in training mode."""
    p: Parameters = {}

    def parameter(name: str, *shape: int) -> Tensor:
        p[name] = m(*shape, dtype=dtype).requires_grad_()
        return p[name]

    def unit(x: Tensor, name: str, outputs: int, window: int, stride: int = 1) -> Tensor:
        w = parameter(name, outputs, x.shape[1], window, window)
        y = x.conv2d(w, stride=stride, padding=window // 2)
        wide = y.float()
        mean = wide.mean((0, 2, 3), keepdim=True)
        away = wide - mean
        scale = ((away * away).mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt()
        weight = parameter(f"{name} scale", outputs).reshape(1, -1, 1, 1)
        shift = parameter(f"{name} shift", outputs).reshape(1, -1, 1, 1)
        return (away * scale).cast(dtype) * weight + shift

    x = m(batch, 3, size, size, dtype=dtype)
    x = unit(x, "stem", 64, 7, 2).relu().max_pool2d(3, 2, padding=1)
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride, name = 2 if stage and not block else 1, f"{stage}.{block}"
            y = unit(x, f"{name}.a", outputs, 3, stride).relu()
            y = unit(y, f"{name}.b", outputs, 3)
            if stride > 1:
                x = unit(x, f"{name}.short", outputs, 1, stride)
            x = (y + x).relu()
    x = x.mean((2, 3))
    logits = x.linear(parameter("head", classes, 512), parameter("head bias", classes))
    targets: Any = m(batch, dtype=dt.int64)
    return adamw(m, p, logits.float().cross_entropy(targets))
