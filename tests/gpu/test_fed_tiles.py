"""Tiles that the copy engine feeds: several per block, stacks of matrices, other addresses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from tests.gpu.test_matmul import KINDS, check, operands

BF16 = ml_dtypes.bfloat16
MANY = [(2560, 2560, 192), (2500, 2592, 200), (2504, 2600, 1000), (4224, 2304, 72)]


def exact(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("size", MANY)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_more_tiles_than_multiprocessors(
    kind: str, turned: str, size: tuple[int, int, int]
) -> None:
    m, n, k = size
    a, b = operands(kind, (k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    x, y = x.T if "a" in turned else x, y.T if "b" in turned else y
    a, b = a.T if "a" in turned else a, b.T if "b" in turned else b
    check(x @ y, exact(a, b), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_the_sum_of_many_tiles(kind: str) -> None:
    a, b, c, d = operands(kind, (2560, 256), (256, 2560), (2560,), (2560, 2560))
    x, y, z, w = (Tensor(t).realize() for t in (a, b, c, d))
    total = exact(a, b) + c.astype(np.float64)
    check((x @ y + z).silu() * w, total / (1 + np.exp(-total)) * d.astype(np.float64), kind)


def test_stacks_of_matrices() -> None:
    a, b, c = operands("bfloat16", (200, 128, 64), (200, 64, 160), (5, 1, 136, 64))
    d = operands("bfloat16", (1, 60, 64, 128))[0]
    x, y, z, w = (Tensor(t).realize() for t in (a, b, c, d))
    check(x @ y, exact(a, b), "bfloat16")
    check(z @ w, exact(c, d), "bfloat16")
    heads = a.reshape(10, 20, 128, 64)
    moved = x.reshape(10, 20, 128, 64).permute(0, 2, 1, 3)  # (10, 128, 20, 64)
    check(moved @ w[:, 0:1], exact(heads.transpose(0, 2, 1, 3), d[:, 0:1]), "bfloat16")


@pytest.mark.parametrize("first", [0, 8, 64, 3])
def test_parts_of_matrices(first: int) -> None:
    """At 3 the addresses are not aligned: threads copy by themselves, in as many rounds."""
    a, b = operands("bfloat16", (2568, 400), (2568, 400))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    part = slice(first, first + 320)
    check(x[first:, part] @ y[:, part].T, exact(a[first:, part], b[:, part].T), "bfloat16")


def test_addresses_that_are_not_aligned() -> None:
    a, b = operands("bfloat16", (2561 * 64,), (64, 2560))
    y = Tensor(b).realize()
    whole = Tensor(a).realize()
    flat = whole[1 : 1 + 2560 * 64].reshape(2560, 64)
    check(flat @ y, exact(a[1 : 1 + 2560 * 64].reshape(2560, 64), b), "bfloat16")


def test_a_plan_bound_to_other_memory() -> None:
    a, b, c = operands("bfloat16", (256, 512), (512, 256), (256, 512))
    y = Tensor(b).realize()
    step = svod.jit(lambda x: (x @ y).relu() @ y.T)
    for given in (a, c, a, c):
        wanted = np.maximum(exact(given, b), 0).astype(BF16)
        check(step(Tensor(given).realize()), exact(wanted, b.T), "bfloat16")


def test_a_part_that_a_variable_chooses() -> None:
    a, b = operands("bfloat16", (2048, 128), (128, 256))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    start = svod.Variable("start", 0, 1024)
    for value in (0, 8, 500, 1024):
        found = x[start.bind(value) : start.bind(value) + 256] @ y
        check(found, exact(a[value : value + 256], b), "bfloat16")
