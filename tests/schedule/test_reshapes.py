"""Rows that are reshaped afterwards stay one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from svod import Tensor
from tests.schedule.graphs import kernel_count

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 8, 60, 50)).astype(np.float32)
LINE = RNG.standard_normal(8).astype(np.float32)


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def grouped(x: Any, weight: Any, bias: Any) -> Any:
    rows = x.reshape(2, 4, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    return rows.reshape(x.shape) * weight.reshape(8, 1, 1) + bias.reshape(8, 1, 1)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "group norm": (
        lambda x, w: x.group_norm(4, w, w),
        lambda x, w: grouped(x, w, w),
    ),
    "followed by functions": (
        lambda x, w: x.reshape(8, 6000).softmax(-1).reshape(2, 8, 60, 50).log().abs() + 1,
        lambda x, w: np.abs(np.log(softmax(x.reshape(8, 6000)))).reshape(x.shape) + 1,
    ),
    "two of them": (
        lambda x, w: (
            x.reshape(8, 6000).softmax(-1).reshape(x.shape)
            - x.reshape(8, 6000).exp().reshape(x.shape)
        ),
        lambda x, w: softmax(x.reshape(8, 6000)).reshape(x.shape) - np.exp(x),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name: str) -> None:
    ours, wanted = CASES[name]
    x, w = Tensor(IMAGE).realize(), Tensor(LINE).realize()
    found = ours(x, w)
    assert kernel_count(found) == 1
    np.testing.assert_allclose(found.numpy(), wanted(IMAGE, LINE), rtol=2e-4, atol=1e-5)


def test_gradient_of_a_group_norm() -> None:
    x = Tensor(IMAGE.astype(np.float64)).realize().requires_grad_()
    weights = RNG.standard_normal(IMAGE.shape)
    (x.group_norm(4) * Tensor(weights)).sum().backward()
    step = 1e-6
    ones = np.ones(8)
    for place in ((0, 0, 0, 0), (1, 5, 3, 2)):
        near = [IMAGE.astype(np.float64) for _ in range(2)]
        near[0][place] += step
        near[1][place] -= step
        high, low = ((grouped(a, ones, 0 * ones) * weights).sum() for a in near)
        assert x.grad is not None
        np.testing.assert_allclose(float(x.grad.numpy()[place]), (high - low) / 2 / step, rtol=1e-4)
