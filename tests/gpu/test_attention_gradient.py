"""The gradient of attention by blocks: values against float64, no matrix of scores in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.tensor.recording.realize import prepare
from tests.gpu.test_attention import CAUSAL, PLAIN, ROUNDING, Array, draw, triangle


def exact(arrays: list[Array], mask: Array | None = None) -> list[Array]:
    """What query, key and value receive, in float64; rows without keys receive nothing."""
    q, k, v, g = (t.astype(np.float64) for t in arrays)
    factor = 1 / np.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * factor
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    own = (g * (weights @ v)).sum(-1, keepdims=True)
    received = weights * (g @ v.swapaxes(-1, -2) - own)
    turned = received.swapaxes(-1, -2)
    return [received @ k * factor, turned @ q * factor, weights.swapaxes(-1, -2) @ g]


def gradients(tensors: list[Tensor], grad: Tensor, **options: Any) -> list[Tensor]:
    for t in tensors:
        t.requires_grad = True
    found = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2], **options)
    return list(svod.autograd.grad((found * grad).sum(), tensors))


def check(found: list[Tensor], wanted: list[Array], kind: str, scores: int) -> None:
    """Near the exact values, without room for as many scores in any buffer."""
    plan = prepare(found)
    assert max(b.nbytes for b in plan.buffers()) < 2 * scores
    plan.execute()
    for t, want in zip(found, wanted, strict=True):
        values = t.numpy().astype(np.float64)
        error = np.linalg.norm(values - want) / np.linalg.norm(want)
        assert error < ROUNDING[kind], f"relative error {error}"
        assert np.abs(values - want).max() < 20 * ROUNDING[kind] * np.abs(want).max()


SIZES = [
    (256, 256, 128), (256, 256, 64), (256, 384, 128), (384, 256, 64), (1024, 1024, 128),
    (200, 333, 80), (333, 200, 128), (301, 299, 64), (1000, 257, 72), (257, 1000, 100),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "size", "is_causal"),
    [
        *[("bfloat16", size, is_causal) for size in SIZES for is_causal in (PLAIN, CAUSAL)],
        *[("float16", size, CAUSAL) for size in SIZES[:6]],
    ],
)
def test_sizes(kind: str, size: tuple[int, int, int], is_causal: bool) -> None:
    rows, keys, width = size
    shapes = [(2, 3, n, width) for n in (rows, keys, keys, rows)]
    arrays = draw(kind, *shapes)
    *tensors, grad = (Tensor(t).realize() for t in arrays)
    mask = triangle(rows, keys) if is_causal else None
    found = gradients(tensors, grad, is_causal=is_causal)
    check(found, exact(arrays, mask), kind, 6 * rows * keys)


@pytest.mark.parametrize("shape", ["all", "keys", "heads"])
@pytest.mark.parametrize("kind", ["bool", "bfloat16"])
def test_masks_in_memory(kind: str, shape: str) -> None:
    arrays = draw("bfloat16", *[(2, 3, n, 64) for n in (200, 301, 301, 200)])
    size = {"all": (200, 301), "keys": (2, 1, 1, 301), "heads": (2, 3, 200, 301)}[shape]
    rng = np.random.default_rng(5)
    mask = rng.random(size) < 0.7 if kind == "bool" else rng.standard_normal(size)
    given = mask if kind == "bool" else mask.astype(ml_dtypes.bfloat16)
    if shape == "all" and kind == "bool":
        mask[[0, 70, 199]] = False  # rows without keys
    *tensors, grad = (Tensor(t).realize() for t in arrays)
    found = gradients(tensors, grad, attn_mask=Tensor(given).realize())
    wide = given if kind == "bool" else given.astype(np.float64)
    check(found, exact(arrays, wide), "bfloat16", 6 * 200 * 301 + 1)


def test_groups_of_queries() -> None:
    arrays = draw("bfloat16", *[(2, h, 256, 64) for h in (8, 2, 2, 8)])
    *tensors, grad = (Tensor(t).realize() for t in arrays)
    found = gradients(tensors, grad, is_causal=True, enable_gqa=True)
    q, k, v, g = arrays
    wanted = exact([q, k.repeat(4, 1), v.repeat(4, 1), g], triangle(256, 256))
    summed = [w.reshape(2, 2, 4, 256, 64).sum(2) for w in wanted[1:]]
    check(found, [wanted[0], *summed], "bfloat16", 16 * 256 * 256)


def test_heads_of_one_matrix() -> None:
    array, grad = draw("bfloat16", (2, 320, 3, 4, 64), (2, 320, 4, 64))
    x = Tensor(array).realize()
    x.requires_grad = True
    q, k, v = x.permute(2, 0, 3, 1, 4)
    out = q.scaled_dot_product_attention(k, v, is_causal=True).permute(0, 2, 1, 3)
    (found,) = svod.autograd.grad((out * Tensor(grad).realize()).sum(), [x])
    parts = [*array.transpose(2, 0, 3, 1, 4), grad.transpose(0, 2, 1, 3)]
    wanted = np.stack(exact(parts, triangle(320, 320))).transpose(1, 3, 0, 2, 4)
    check([found], [wanted], "bfloat16", 8 * 320 * 320)


def test_of_a_sum() -> None:
    arrays = draw("float16", *[(3, 256, 64)] * 4)
    arrays[3] = np.ones_like(arrays[3])
    tensors = [Tensor(t).realize() for t in arrays[:3]]
    for t in tensors:
        t.requires_grad = True
    out = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2])
    found = list(svod.autograd.grad(out.float().sum(), tensors))
    check(found, exact(arrays), "float16", 3 * 256 * 256)


def test_runs_are_the_same_bit_by_bit() -> None:
    arrays = draw("bfloat16", *[(2, 4, 512, 128)] * 4)
    *tensors, grad = (Tensor(t).realize() for t in arrays)
    plan = prepare(gradients(tensors, grad, is_causal=True))
    runs = []
    for _ in range(3):
        plan.execute()
        runs.append([b.copyout().tobytes() for b in plan.output_buffers()])
    assert runs[0] == runs[1] == runs[2]


def test_second_derivatives() -> None:
    arrays = draw("float16", *[(1, 64, 16)] * 4)
    *tensors, grad = (Tensor(t).realize() for t in arrays)
    for t in tensors:
        t.requires_grad = True

    def second(given: list[Tensor]) -> list[Array]:
        q, k, v = given
        out = q.scaled_dot_product_attention(k, v, is_causal=True)
        first = svod.autograd.grad((out * grad.cast(out.dtype)).sum(), given, create_graph=True)
        total = sum(((g.float() ** 2).sum() for g in first), Tensor(0.0))
        return [g.numpy().astype(np.float64) for g in svod.autograd.grad(total, given)]

    wide = [Tensor(a.astype(np.float32)).realize() for a in arrays[:3]]
    for t in wide:
        t.requires_grad = True
    for found, wanted in zip(second(tensors), second(wide), strict=True):
        assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 1e-2
