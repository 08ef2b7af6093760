"""Activations, softmax, normalisation, attention and losses against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ShapeError
from tests.tensor.check import Cases, pair, value

NEAR = {"rtol": 1e-5, "atol": 2e-6}


def erf(a):
    return np.array([math.erf(v) for v in a.ravel()]).reshape(a.shape)


def softmax(a, axis=-1):
    grown = np.exp(a - a.max(axis, keepdims=True))
    return grown / grown.sum(axis, keepdims=True)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def test_activations():
    x, a = pair((40,), low=-8, high=8)
    a = a.astype(np.float64)
    softplus = np.logaddexp(0, a)
    wanted = {
        "relu": np.maximum(a, 0),
        "relu6": np.clip(a, 0, 6),
        "sigmoid": sigmoid(a),
        "silu": a * sigmoid(a),
        "gelu": 0.5 * a * (1 + erf(a / math.sqrt(2))),
        "quick_gelu": a * sigmoid(1.702 * a),
        "elu": np.where(a > 0, a, np.expm1(a)),
        "selu": 1.0507009873554805 * np.where(a > 0, a, 1.6732632423543772 * np.expm1(a)),
        "celu": np.where(a > 0, a, np.expm1(a)),
        "leaky_relu": np.where(a > 0, a, 0.01 * a),
        "softplus": softplus,
        "logsigmoid": -np.logaddexp(0, -a),
        "mish": a * np.tanh(softplus),
        "hardtanh": np.clip(a, -1, 1),
        "hardsigmoid": np.clip(a + 3, 0, 6) / 6,
        "hardswish": a * np.clip(a + 3, 0, 6) / 6,
        "softsign": a / (1 + np.abs(a)),
        "tanhshrink": a - np.tanh(a),
        "hardshrink": np.where(np.abs(a) <= 0.5, 0, a),
        "softshrink": np.sign(a) * np.maximum(np.abs(a) - 0.5, 0),
    }
    cases = Cases()
    for name, expected in wanted.items():
        cases.add(name, getattr(x, name)(), expected.astype(np.float32), **NEAR)
    inner = math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)
    tanh = 0.5 * a * (1 + np.tanh(inner))
    cases.add("gelu tanh", x.gelu("tanh"), tanh.astype(np.float32), **NEAR)
    cases.add("glu", x.glu(), (a[:20] * sigmoid(a[20:])).astype(np.float32), **NEAR)
    cases.add("elu 2", x.elu(2.0), np.where(a > 0, a, 2 * np.expm1(a)).astype("f"), **NEAR)
    soft = np.logaddexp(0, 3 * a) / 3
    cases.add("softplus 3", x.softplus(3.0), soft.astype(np.float32), **NEAR)
    slope = x.reshape(1, 4, 10).prelu(Tensor([0.1, 0.2, 0.3, 0.4]))
    b = a.reshape(1, 4, 10)
    steep = np.where(b > 0, b, b * np.array([0.1, 0.2, 0.3, 0.4])[:, None])
    cases.add("prelu", slope, steep.astype(np.float32), **NEAR)
    cases.run()


def test_activations_at_the_ends():
    a = np.array([-math.inf, -1000, 1000, math.inf, math.nan], np.float32)
    cases = Cases()
    nan = math.nan
    cases.add("sigmoid", Tensor(a).sigmoid(), np.array([0, 0, 1, 1, nan], np.float32))
    cases.add("softplus", Tensor(a).softplus(), np.array([0, 0, 1000, math.inf, nan], np.float32))
    wanted = np.array([-math.inf, -1000, 0, 0, nan], np.float32)
    cases.add("logsigmoid", Tensor(a).logsigmoid(), wanted)
    cases.add("elu", Tensor(a).elu(), np.array([-1, -1, 1000, math.inf, nan], np.float32))
    cases.run()


def test_softmax_over_nothing_is_empty():
    x = svod.zeros(3, 0)
    assert x.softmax(-1).tolist() == x.log_softmax(-1).tolist() == [[], [], []]
    assert x.logsumexp(-1).tolist() == [-math.inf] * 3
    assert x.logsumexp().item() == -math.inf
    attended = svod.ones(4, 8).scaled_dot_product_attention(svod.ones(0, 8), svod.ones(0, 2))
    assert attended.tolist() == [[0.0, 0.0]] * 4


def test_softmax():
    x, a = pair((3, 4, 5))
    wide = a.astype(np.float64)
    cases = Cases()
    for axis in (0, 1, -1):
        cases.add(f"softmax {axis}", x.softmax(axis), softmax(wide, axis).astype("f"), **NEAR)
        log = np.log(softmax(wide, axis)).astype("f")
        cases.add(f"log {axis}", x.log_softmax(axis), log, **NEAR)
    huge = Tensor([[1e4, 1e4 + 1], [-1e30, 0.0]])
    cases.add(
        "huge", huge.softmax(-1), np.array([softmax(np.array([0.0, 1.0])), [0, 1]], "f"), **NEAR
    )
    masked = Tensor([0.0, -math.inf]).softmax(0)
    cases.add("masked", masked, np.array([1, 0], np.float32))
    half = softmax(wide).astype(np.float16)
    cases.add("half", Tensor(a.astype(np.float16)).softmax(-1), half, rtol=3e-3)
    cases.run()


def standardize(a, axes, eps=1e-5):
    mean, variance = a.mean(axes, keepdims=True), a.var(axes, keepdims=True)
    return (a - mean) / np.sqrt(variance + eps)


def test_normalisation():
    x, a = pair((2, 6, 5))
    w, b = pair((5,), seed=1)
    c, d = pair((6,), seed=2)
    wide = a.astype(np.float64)
    cases = Cases()
    plain = standardize(wide, -1)
    cases.add("layernorm", x.layernorm(), plain.astype("f"), **NEAR)
    cases.add("layer_norm", x.layer_norm(5, w, w), (plain * b + b).astype("f"), **NEAR)
    two = standardize(wide, (1, 2))
    cases.add("layer_norm two axes", x.layer_norm((6, 5)), two.astype("f"), **NEAR)
    rms = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * b
    cases.add("rms_norm", x.rms_norm(5, w, 1e-6), rms.astype("f"), **NEAR)
    mean, variance = d / 7, np.abs(d) + 1
    scaled = (wide - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None] * d[:, None] + d[:, None]
    found = x.batch_norm(Tensor(mean), Tensor(variance), c, c)
    cases.add("batch_norm", found, scaled.astype("f"), rtol=1e-4, atol=1e-5)
    trained = standardize(wide, (0, 2))
    found = x.batch_norm(None, None, training=True)
    cases.add("batch_norm training", found, trained.astype("f"), rtol=1e-4, atol=1e-5)
    groups = standardize(wide.reshape(2, 3, 10), -1).reshape(2, 6, 5) * d[:, None]
    cases.add("group_norm", x.group_norm(3, c), groups.astype("f"), rtol=1e-4, atol=1e-5)
    cases.add("instance_norm", x.instance_norm(), plain.astype("f"), rtol=1e-4, atol=1e-5)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    cases.add("normalize", x.normalize(), unit.astype("f"), **NEAR)
    cases.run()
    with pytest.raises(ShapeError, match="normalized_shape"):
        x.layer_norm(4)


def test_running_values_take_in_the_batch():
    x, a = pair((4, 3, 2))
    mean, variance = Tensor(np.zeros(3, "f")), Tensor(np.ones(3, "f"))
    x.batch_norm(mean, variance, training=True, momentum=0.5)
    wide = a.astype(np.float64)
    cases = Cases()
    cases.add("mean", mean, (wide.mean((0, 2)) * 0.5).astype("f"), **NEAR)
    wanted = 0.5 + 0.5 * wide.var((0, 2), ddof=1)
    cases.add("variance", variance, wanted.astype("f"), **NEAR)
    cases.run()


def test_attention():
    q, a = pair((2, 4, 5, 8))
    k, b = pair((2, 4, 7, 8), seed=1)
    v, c = pair((2, 4, 7, 3), seed=2)
    scores = np.einsum("bhqd,bhkd->bhqk", a, b, dtype=np.float64) / math.sqrt(8)
    cases = Cases()
    plain = softmax(scores) @ c
    near = {"rtol": 1e-4, "atol": 1e-5}
    cases.add("plain", q.scaled_dot_product_attention(k, v), plain.astype("f"), **near)
    low = np.where(np.tril(np.ones((5, 7), bool)), scores, -np.inf)
    causal = q.scaled_dot_product_attention(k, v, is_causal=True)
    cases.add("causal", causal, (softmax(low) @ c).astype("f"), **near)
    bias = q.scaled_dot_product_attention(k, v, attn_mask=Tensor(np.ones((5, 7), "f")), scale=1.0)
    shifted = softmax(scores * math.sqrt(8) + 1) @ c
    cases.add("bias", bias, shifted.astype("f"), **near)
    shared = q.scaled_dot_product_attention(k[:, :2], v[:, :2], enable_gqa=True)
    wide = np.repeat(b[:, :2], 2, 1)
    scores = np.einsum("bhqd,bhkd->bhqk", a, wide, dtype=np.float64) / math.sqrt(8)
    cases.add("gqa", shared, (softmax(scores) @ np.repeat(c[:, :2], 2, 1)).astype("f"), **near)
    cases.run()


def test_class_losses():
    x, a = pair((6, 4))
    goal = np.array([0, 3, 1, -100, 2, 1])
    y = Tensor(goal)
    w, b = pair((4,), seed=1, low=0.5, high=2)
    logs = np.log(softmax(a.astype(np.float64)))
    kept = goal >= 0
    picked = np.where(kept, -logs[np.arange(6), np.maximum(goal, 0)], 0)
    weights = np.where(kept, b[np.maximum(goal, 0)], 0)
    cases = Cases()
    cases.add("none", x.cross_entropy(y, reduction="none"), picked.astype("f"), **NEAR)
    cases.add("mean", x.cross_entropy(y), np.float32(picked.sum() / 5), **NEAR)
    cases.add("sum", x.cross_entropy(y, reduction="sum"), np.float32(picked.sum()), **NEAR)
    wanted = (picked * weights).sum() / weights.sum()
    cases.add("weight", x.cross_entropy(y, w), np.float32(wanted), **NEAR)
    smooth = picked * 0.9 + 0.1 * np.where(kept, -logs.mean(1), 0)
    found = x.cross_entropy(y, label_smoothing=0.1)
    cases.add("smooth", found, np.float32(smooth.sum() / 5), **NEAR)
    share = softmax(a[::-1].astype(np.float64)).astype("f")
    wanted = -(logs * share).sum(1).mean()
    cases.add("probabilities", x.cross_entropy(Tensor(share)), np.float32(wanted), **NEAR)
    cases.add("nll", x.log_softmax(1).nll_loss(y), np.float32(picked.sum() / 5), **NEAR)
    image, c = pair((2, 3, 4), seed=5)
    target = np.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    log = np.log(softmax(c.astype(np.float64), 1))
    wanted = -np.take_along_axis(log, target[:, None], 1).mean()
    cases.add("image", image.cross_entropy(Tensor(target)), np.float32(wanted), **NEAR)
    cases.run()
    with pytest.raises(ShapeError, match="targets"):
        x.cross_entropy(Tensor([0, 1]))
    with pytest.raises(ShapeError, match="reduction"):
        x.cross_entropy(y, reduction="average")


def test_other_losses():
    x, a = pair((12,))
    y, b = pair((12,), seed=1)
    a, b = a.astype(np.float64), b.astype(np.float64)
    gap = np.abs(a - b)
    p, q = sigmoid(a), sigmoid(b)
    cases = Cases()
    cases.add("mse", x.mse_loss(y), np.float32((gap**2).mean()), **NEAR)
    cases.add("l1", x.l1_loss(y, reduction="sum"), np.float32(gap.sum()), **NEAR)
    smooth = np.where(gap < 1, gap**2 / 2, gap - 0.5)
    cases.add("smooth_l1", x.smooth_l1_loss(y), np.float32(smooth.mean()), **NEAR)
    huber = np.where(gap < 2, gap**2 / 2, 2 * (gap - 1))
    cases.add("huber", x.huber_loss(y, delta=2.0), np.float32(huber.mean()), **NEAR)
    loss = -(q * np.log(p) + (1 - q) * np.log(1 - p))
    found = x.sigmoid().binary_cross_entropy(y.sigmoid())
    cases.add("bce", found, np.float32(loss.mean()), rtol=1e-4)
    found = x.binary_cross_entropy_with_logits(y.sigmoid(), reduction="none")
    cases.add("bce logits", found, loss.astype("f"), **NEAR)
    weighted = -(3 * q * np.log(p) + (1 - q) * np.log(1 - p))
    found = x.binary_cross_entropy_with_logits(y.sigmoid(), pos_weight=3.0)
    cases.add("pos_weight", found, np.float32(weighted.mean()), rtol=1e-4)
    divergence = softmax(b) * (np.log(softmax(b)) - np.log(softmax(a)))
    found = x.log_softmax(0).kl_div(y.softmax(0), reduction="sum")
    cases.add("kl", found, np.float32(divergence.sum()), rtol=1e-4)
    cases.run()
    certain = Tensor([0.0, 1.0]).binary_cross_entropy(Tensor([1.0, 1.0]), reduction="none")
    assert value(certain).tolist() == [100.0, 0.0]


def test_dropout():
    svod.manual_seed(0)
    x = Tensor(np.ones(2000, np.float32))
    found = value(x.dropout(0.25))
    assert set(np.unique(found)) == {0.0, np.float32(4 / 3)}
    assert 0.2 < (found == 0).mean() < 0.3
    assert x.dropout(0.5, training=False) is x
