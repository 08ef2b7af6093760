"""Contractions with staged panels: random matmuls and convolutions of every awkward shape."""

from __future__ import annotations

import random

import numpy as np
import pytest

import svod
from svod import Tensor
from tests.fuzz.check import WAYS, Way, compiling, evaluated
from tests.schedule.graphs import bodies, code

SIZES = (8, 9, 13, 15, 16, 17, 24, 31, 33, 48, 63, 64, 65, 97, 130)
DTYPES = ("float32", "float32", "float32", "float16", "float64", "int32", "uint8")
BLOCKS = {
    "default": {},
    "blocks": {"l2_bytes": 4096, "cores": 2},
    "small": {"l2_bytes": 1 << 14, "vector_bytes": 32, "registers": 16, "cores": 3},
    "tiny": {"l2_bytes": 1 << 12, "vector_bytes": 16, "registers": 16, "cores": 2},
}  # fmt: skip


def data(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small whole numbers: sums of products are exact in any order."""
    values = rng.integers(-4, 5, shape)
    return (values + 4 if dtype == "uint8" else values).astype(dtype)


def matmul_case(pick: random.Random, rng: np.random.Generator) -> Tensor:
    """A product of operands seen through transposes, pads, slices, casts and arithmetic."""
    m, n, k = (pick.choice(SIZES) for _ in range(3))
    batch = pick.choice(((), (), (3,), (2, 2)))
    dtype = pick.choice(DTYPES)
    a = operand(pick, rng, (*batch, m, k), dtype)
    b = operand(pick, rng, (*pick.choice((batch, ())), k, n), dtype)
    return epilogue(pick, rng, a @ b, dtype)


def operand(
    pick: random.Random, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> Tensor:
    kind = pick.choice(("plain", "transposed", "padded", "sliced", "computed", "flipped", "table"))
    if kind == "transposed":
        turned = (*shape[:-2], shape[-1], shape[-2])
        return Tensor(data(rng, turned, dtype)).transpose(-1, -2)
    if kind == "padded":
        inner = (*shape[:-2], shape[-2] - 3, shape[-1] - 2)
        pairs = [(0, 0)] * (len(shape) - 2) + [(1, 2), (2, 0)]
        return Tensor(data(rng, inner, dtype)).pad(pairs)
    if kind == "sliced":
        wide = (*shape[:-1], 2 * shape[-1])
        return Tensor(data(rng, wide, dtype))[..., ::2]
    if kind == "table":
        rows = Tensor(data(rng, (7, shape[-1]), dtype))
        return rows[Tensor(rng.integers(0, 7, shape[:-1]))]
    x = Tensor(data(rng, shape, dtype))
    if kind == "computed":
        return x + Tensor(data(rng, shape[-1:], dtype))
    return x.flip(-1) if kind == "flipped" else x


def epilogue(pick: random.Random, rng: np.random.Generator, x: Tensor, dtype: str) -> Tensor:
    for _ in range(pick.choice((0, 0, 1, 2))):
        kind = pick.choice(("bias", "column", "whole", "maximum", "cast"))
        if kind == "bias":
            x = x + Tensor(data(rng, x.shape[-1:], dtype))
        elif kind == "column":
            x = x - Tensor(data(rng, (x.shape[-2], 1), dtype))
        elif kind == "whole":
            x = x + Tensor(data(rng, x.shape, dtype))
        elif kind == "maximum":
            x = x.maximum(1)
        else:
            x = x.cast(svod.float32)
    return x


def convolution_case(pick: random.Random, rng: np.random.Generator) -> Tensor:
    """A convolution with stride, dilation, padding and groups, as windows under a sum."""
    channels, filters = pick.choice((1, 3, 4, 8)), pick.choice((8, 12, 17))
    height, width = pick.choice((7, 12, 17, 30)), pick.choice((8, 15, 16, 33))
    x = Tensor(data(rng, (pick.choice((1, 2)), channels, height, width), "float32"))
    w = Tensor(data(rng, (filters, channels, 3, pick.choice((1, 3))), "float32"))
    stride, padding = pick.choice((1, 1, 2)), pick.choice((0, 1, 1))
    y = svod.Tensor.conv2d(x, w, stride=stride, padding=padding)
    return epilogue(pick, rng, y, "float32")


def make_case(seed: int) -> Tensor:
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    return matmul_case(pick, rng) if pick.random() < 0.65 else convolution_case(pick, rng)


def failure(seed: int, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The first way of compiling that gives other values."""
    want = evaluated(make_case(seed))
    for name, machine in BLOCKS.items():
        monkeypatch.setitem(WAYS, name, Way(machine=machine, thread_work=500.0))
        with compiling(name):
            got = make_case(seed).numpy()
        if got.dtype != want.dtype or not np.array_equal(got, want):
            return f"{name}: {int((got != want).sum())} of {got.size} elements differ"
    return None


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_random_contractions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 8):
        wrong = failure(seed, monkeypatch)
        assert wrong is None, f"contraction {seed}, {wrong}"


def test_panels_are_staged() -> None:
    x = Tensor(np.ones((1, 8, 12, 12), np.float32))
    (body,) = bodies(x.conv2d(Tensor(np.ones((16, 8, 3, 3), np.float32)), padding=1))
    assert {o.name for o in code(body).opts} >= {"TILE", "STAGE", "UPCAST"}
