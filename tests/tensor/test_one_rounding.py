"""Functions of several steps on 16-bit floats: computed in float32, rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor

KINDS = {
    "bfloat16": (svod.bfloat16, ml_dtypes.bfloat16, 2.0**-8),
    "float16": (svod.float16, np.float16, 2.0**-11),
}


class Drawn:
    """Random numbers as they are in a narrow dtype: for the library, and exactly."""

    def __init__(self, kind: str) -> None:
        self.dtype, self.stored, self.rounding = KINDS[kind]
        self.rng = np.random.default_rng(8)

    def __call__(self, *shape: int, scale: float = 1.0) -> tuple[Tensor, Any]:
        values = (self.rng.standard_normal(shape) * scale).astype(self.stored)
        return Tensor(values.astype(np.float32)).cast(self.dtype), values.astype(np.float64)

    def check(self, found: Tensor, exact: Any, slack: float = 2e-5) -> None:
        """One rounding of the result, and what float32 loses on the way."""
        assert found.dtype is self.dtype
        wide = found.cast(svod.float32).numpy().astype(np.float64)
        allowed = np.abs(exact) * self.rounding * 1.001 + slack * np.abs(exact).max()
        worst = np.max(np.abs(wide - exact) / allowed)
        assert worst <= 1, f"{worst:.3g} times what one rounding allows"


@pytest.fixture(params=list(KINDS))
def drawn(request: pytest.FixtureRequest) -> Drawn:
    return Drawn(request.param)


def softmax(scores: Any) -> Any:
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def standardized(a: Any, axes: Any) -> Any:
    mean, variance = a.mean(axes, keepdims=True), a.var(axes, keepdims=True)
    return (a - mean) / np.sqrt(variance + 1e-5)


@pytest.mark.parametrize("sizes", [(33, 65, 24, 40), (64, 64, 64, 64), (1, 7, 5, 3)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 4.0])  # with 4, scores are large and differ little
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "added"])
def test_attention(drawn: Drawn, sizes: tuple[int, ...], scale: float, mask: str) -> None:
    rows, columns, depth, width = sizes
    (q, qe), (k, ke) = drawn(2, rows, depth, scale=scale), drawn(2, columns, depth, scale=scale)
    v, ve = drawn(2, columns, width, scale=scale)
    scores = qe @ ke.transpose(0, 2, 1) / np.sqrt(depth)
    given = None
    if mask == "causal":
        scores = np.where(np.arange(columns) <= np.arange(rows)[:, None], scores, -np.inf)
    elif mask == "bool":
        keep = drawn.rng.random((rows, columns)) < 0.6
        keep[:, 0] = True
        given, scores = Tensor(keep), np.where(keep, scores, -np.inf)
    elif mask == "added":
        given, more = drawn(rows, columns)
        scores = scores + more
    found = F.scaled_dot_product_attention(q, k, v, given, is_causal=mask == "causal")
    drawn.check(found, softmax(scores) @ ve, slack=2e-4 if scale > 1 else 2e-5)


def test_norms(drawn: Drawn) -> None:
    (x, xe), (w, we), (b, be) = drawn(16, 128), drawn(128), drawn(128)
    drawn.check(F.layer_norm(x, (128,), w, b), standardized(xe, -1) * we + be)
    root = np.sqrt((xe * xe).mean(-1, keepdims=True) + 1e-5)
    drawn.check(F.rms_norm(x, (128,), w, eps=1e-5), xe / root * we)
    (y, ye), (w, we), (b, be) = drawn(4, 8, 5, 6), drawn(8), drawn(8)
    line = (1, 8, 1, 1)
    parts = standardized(ye.reshape(4, 2, 4, 5, 6), (2, 3, 4)).reshape(ye.shape)
    drawn.check(F.group_norm(y, 2, w, b), parts * we.reshape(line) + be.reshape(line))
    alone = standardized(ye, (2, 3)) * we.reshape(line) + be.reshape(line)
    drawn.check(F.instance_norm(y, weight=w, bias=b), alone)
    batch = standardized(ye, (0, 2, 3)) * we.reshape(line) + be.reshape(line)
    drawn.check(F.batch_norm(y, None, None, w, b, training=True), batch)


def test_sums_of_products(drawn: Drawn) -> None:
    (c, ce), (a, ae), (b, be) = drawn(12, 20), drawn(12, 40), drawn(40, 20)
    drawn.check(c.addmm(a, b, alpha=0.75, beta=0.5), 0.5 * ce + 0.75 * (ae @ be))
    (x, xe), (y, ye), (z, ze) = drawn(300), drawn(300), drawn(300)
    drawn.check(x.addcmul(y, z, value=0.375), xe + 0.375 * ye * ze)
    drawn.check(x.addcdiv(y, z, value=0.375), xe + 0.375 * ye / ze)
    (p, pe), (q, qe) = drawn(9, 64), drawn(9, 64)
    cosine = (pe * qe).sum(1) / np.linalg.norm(pe, axis=1) / np.linalg.norm(qe, axis=1)
    drawn.check(F.cosine_similarity(p, q), cosine)


def test_wider_weights_give_their_dtype() -> None:
    x = Tensor(np.ones((2, 4), np.float32)).cast(svod.bfloat16)
    assert F.layer_norm(x, (4,), Tensor(np.ones(4, np.float32))).dtype is svod.float32
    wide = Tensor(np.ones((2, 3, 4), np.float32))
    narrow = wide.cast(svod.float16)
    assert F.scaled_dot_product_attention(narrow, narrow, wide).dtype is svod.float32


def test_running_averages_keep_their_dtype() -> None:
    x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4)).cast(svod.bfloat16)
    mean, variance = [Tensor(np.full(3, i, np.float32)).cast(svod.bfloat16) for i in (0.0, 1.0)]
    mean.realize(variance)
    y = F.batch_norm(x, mean, variance, training=True)
    assert y.dtype is mean.dtype is variance.dtype is svod.bfloat16
    exact = x.cast(svod.float32).numpy().mean((0, 2)) * 0.1
    np.testing.assert_allclose(mean.cast(svod.float32).numpy(), exact, rtol=1e-2)
