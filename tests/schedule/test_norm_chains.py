"""Contractions one after the other with passes along rows between them, however many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor, nn
from svod.ir import ops as O
from svod.ir.node import elements
from tests.fuzz.check import evaluated

Array = np.ndarray
rng = np.random.default_rng(11)


def made(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def layer_norm(a: Array) -> Array:
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)


def rms_norm(a: Array) -> Array:
    return a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6)


def softmax(a: Array) -> Array:
    grown = np.exp(a - a.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


NORMS: dict[str, tuple[Callable[[Array], Array], Callable[[Tensor], Tensor]]] = {
    "layer_norm": (layer_norm, lambda x: F.layer_norm(x, (x.shape[-1],))),
    "rms_norm": (rms_norm, lambda x: F.rms_norm(x, (x.shape[-1],), eps=1e-6)),
    "softmax": (softmax, lambda x: x.softmax(-1)),
}
SIZES = [(2, 3, 4, 5, 6), (4, 8, 8, 8, 8), (16, 32, 48, 64, 32), (5, 130, 65, 17, 33)]


@pytest.mark.parametrize(("first", "second"), list(product(NORMS, NORMS)))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_three_products_with_a_norm_between_each_two(
    first: str, second: str, sizes: tuple[int, ...]
) -> None:
    x = made(*sizes[:2])
    weights = [made(*sizes[i : i + 2]) for i in (1, 2, 3)]
    w1, w2, w3 = [Tensor(w) for w in weights]
    found = NORMS[second][1](NORMS[first][1](Tensor(x) @ w1) @ w2) @ w3
    exact = NORMS[first][0](x.astype(np.float64) @ weights[0])
    exact = NORMS[second][0](exact @ weights[1]) @ weights[2]
    np.testing.assert_allclose(found.numpy(), exact, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_attention_then_a_linear_layer_and_a_norm(norm: str) -> None:
    q, k, v = made(2, 15, 24), made(2, 33, 24), made(2, 33, 40)
    w, last = made(40, 32), made(32, 8)
    found = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v)) @ Tensor(w)
    found = NORMS[norm][1](found) @ Tensor(last)
    scores = q.astype(np.float64) @ np.swapaxes(k, 1, 2) / np.sqrt(24)
    exact = NORMS[norm][0](softmax(scores) @ v @ w) @ last
    np.testing.assert_allclose(found.numpy(), exact, rtol=2e-4, atol=2e-4)


def test_of_two_pairs_that_share_a_product_the_larger_scores_stay_inside() -> None:
    """The rows of norm(x @ w) are short, the scores made of them are long."""
    x, w, k, v = made(64, 16), made(16, 16), made(512, 16), made(512, 16)
    query = F.layer_norm(Tensor(x) @ Tensor(w), (16,))
    found = (query @ Tensor(k).T).softmax(-1) @ Tensor(v)
    bodies = [op.ast for op in found.prepare().prepared_kernels()]
    stored = [n.arg.shape for body in bodies for n in body.toposort() if n.op == O.PARAM]
    assert max([elements(shape) for shape in stored]) < 64 * 512


def test_both_factors_of_a_product_are_softmaxes_of_products() -> None:
    a, b, c, d = made(6, 5), made(5, 7), made(7, 5), made(5, 9)
    left, right = Tensor(a) @ Tensor(b), Tensor(c) @ Tensor(d)
    found = left.softmax(-1) @ right.softmax(-1)
    np.testing.assert_allclose(found.numpy(), softmax(a @ b) @ softmax(c @ d), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 5, 6), (8, 16, 32), (3, 1, 7)], ids=str)
def test_the_gradient_of_a_stack_of_sums_through_a_softmax(shape: tuple[int, ...]) -> None:
    x, weights = Tensor(made(*shape)).requires_grad_(), Tensor(made(2, shape[2]))
    t = x.sum(1)
    y = svod.stack([t, t.sin()], 0).mean(1).softmax(0).clamp(-0.9, 0.8)
    (y * weights).sum().backward()
    exact = evaluated(x.grad)
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [(3, 8, 4), (2, 4, 2), (4, 16, 8)], ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_the_gradient_of_the_bias_of_a_batch_norm_alone(
    channels: tuple[int, ...], batch: int
) -> None:
    inner, outer, groups = channels
    svod.manual_seed(3)
    model = nn.Sequential(
        nn.ConvTranspose2d(inner, outer, 3), nn.GroupNorm(groups, outer), nn.SiLU(),
        nn.BatchNorm2d(outer),
    )  # fmt: skip
    y = nn.Linear(outer, 5)(model(Tensor(made(batch, inner, 5, 6))).mean((2, 3)))
    (y * y).sum().backward()
    bias = model[3].bias.grad
    exact = evaluated(bias)
    np.testing.assert_allclose(bias.numpy(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [17, 64, 65])
@pytest.mark.parametrize("last", [7, 16])
def test_a_softmax_of_a_single_column_made_of_normed_scores(width: int, last: int) -> None:
    """The contraction has one result, and passes over another axis are made of it."""
    x, w1, w2, w3, w4 = made(1, 1, 5), made(5, width), made(width, 1), made(1, last), made(last, 16)
    g = made(1, 1, 16)
    y = NORMS["rms_norm"][1](Tensor(x) @ Tensor(w1))
    y = F.normalize(y @ Tensor(w2), dim=-1)
    y = (y @ Tensor(w3)).softmax(-1)
    weight = Tensor(w4).requires_grad_()
    (found,) = svod.autograd.grad((y @ weight * Tensor(g)).sum(), [weight])
    z = rms_norm(x.astype(np.float64) @ w1) @ w2
    exact = softmax(z / np.abs(z) @ w3)[0].T @ g[0]
    np.testing.assert_allclose(found.numpy(), exact, rtol=2e-4, atol=2e-4)
