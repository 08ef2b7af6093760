"""Few long rows or columns: reductions in pieces, and parts of rows by several blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
ROWS = [
    (1, 40000),
    (1, 50257),
    (1, 1_000_000),
    (7, 262147),
    (32, 128256),
    (64, 100_000),
    (3, 65544),
]
COLUMNS = [(100_003, 3), (65536, 64), (8192, 1000), (40000, 1)]


def top(x: Array) -> Array:
    return x.max(-1, keepdims=True)


def log_sum(x: Array) -> Array:
    return np.asarray(np.log(np.exp(x - top(x)).sum(-1, keepdims=True)) + top(x))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], float]] = {
    "sum": (lambda t: t.sum(-1), lambda x: x.sum(-1), 2e-3),
    "max": (lambda t: t.amax(-1), lambda x: x.max(-1), 0),
    "argmax": (lambda t: t.argmax(-1), lambda x: x.argmax(-1), 0),
    "argmin": (lambda t: t.argmin(-1), lambda x: x.argmin(-1), 0),
    "var": (lambda t: t.var(-1), lambda x: x.var(-1, ddof=1), 1e-5),
    "norm": (lambda t: t.norm(2, -1), lambda x: np.sqrt((x * x).sum(-1)), 2e-3),
    "softmax": (lambda t: t.softmax(-1), lambda x: np.exp(x - log_sum(x)), 1e-7),
    "log_softmax": (lambda t: t.log_softmax(-1), lambda x: x - log_sum(x), 1e-5),
    "logsumexp": (lambda t: t.logsumexp(-1), lambda x: log_sum(x)[..., 0], 1e-5),
    "layernorm": (
        lambda t: t.layernorm(-1),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
        1e-5,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", ROWS)
def test_long_rows(shape: tuple[int, int], name: str) -> None:
    ours, exact, allowed = FUNCTIONS[name]
    x = RNG.standard_normal(shape, np.float32)
    found = ours(Tensor(x)).numpy()
    np.testing.assert_allclose(found, exact(x.astype(np.float64)), rtol=1e-5, atol=allowed)


@pytest.mark.parametrize("shape", COLUMNS)
def test_long_columns(shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape, np.float32)
    wide, t = x.astype(np.float64), Tensor(x)
    np.testing.assert_allclose(t.sum(0).numpy(), wide.sum(0), atol=2e-3)
    np.testing.assert_allclose(t.var(0).numpy(), wide.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(t.argmax(0).numpy(), x.argmax(0))
    below = np.exp(wide - wide.max(0))
    np.testing.assert_allclose(t.softmax(0).numpy(), below / below.sum(0), rtol=1e-5)


def test_long_rows_of_bfloat16() -> None:
    x = Tensor(RNG.standard_normal((32, 128256), np.float32)).cast(svod.bfloat16).realize()
    wide = x.cast(svod.float32).numpy().astype(np.float64)
    found = x.softmax(-1).cast(svod.float32).numpy()
    np.testing.assert_allclose(found, np.exp(wide - log_sum(wide)), rtol=8e-3)
    np.testing.assert_array_equal(x.argmax(-1).numpy(), wide.argmax(-1))


def test_entropy_of_few_long_rows() -> None:
    x = RNG.standard_normal((16, 128256), np.float32)
    target = RNG.integers(0, 128256, 16)
    wide = x.astype(np.float64)
    exact = (log_sum(wide)[:, 0] - wide[np.arange(16), target]).mean()
    found = Tensor(x).cross_entropy(Tensor(target)).numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("shape", [(32, 64, 56, 56), (5, 3, 37, 41), (64, 7, 1000)])
def test_batch_norm_in_training(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, np.float32) * 2 + 3
    w, b = RNG.standard_normal((2, shape[1]), np.float32)
    axes = tuple([i for i in range(len(shape)) if i != 1])
    line = [-1 if i == 1 else 1 for i in range(len(shape))]
    wide = x.astype(np.float64)
    apart = wide - wide.mean(axes, keepdims=True)
    scaled = apart / np.sqrt((apart * apart).mean(axes, keepdims=True) + 1e-5)
    exact = scaled * w.reshape(line) + b.reshape(line)
    found = Tensor(x).batch_norm(None, None, Tensor(w), Tensor(b), training=True).numpy()
    np.testing.assert_allclose(found, exact, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 8, 9, 12, 16, 31])
@pytest.mark.parametrize(("columns", "depth"), [(512, 4096), (4096, 520), (1000, 1024)])
def test_products_of_few_rows(rows: int, columns: int, depth: int) -> None:
    x, w = (
        Tensor(RNG.standard_normal(shape, np.float32)).cast(svod.bfloat16).realize()
        for shape in ((rows, depth), (columns, depth))
    )
    exact = np.matmul(*[t.cast(svod.float32).numpy().astype(np.float64) for t in (x, w.T)])
    for found in (x @ w.T, x @ w.T.contiguous().realize(), (w @ x.T).T):
        got = found.cast(svod.float32).numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-2, atol=1e-2 * depth**0.5)
    normed = (x * 2 + 1) @ w.T
    np.testing.assert_allclose(
        normed.cast(svod.float32).numpy(),
        (x * 2 + 1).cast(svod.float32).numpy().astype(np.float64)
        @ w.cast(svod.float32).numpy().astype(np.float64).T,
        rtol=1e-2, atol=2e-2 * depth**0.5,
    )  # fmt: skip
