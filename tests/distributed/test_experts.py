"""Experts compute what the gate chooses for them, wherever they are"""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ConfigError
from svod.distributed import DataParallel, Experts, expert_parallel, mesh

X = np.random.default_rng(2).standard_normal((6, 4)).astype(np.float32)


def _layer(capacity: float = 4.0) -> Experts:
    svod.manual_seed(4)
    return Experts(4, 6, 4, chosen=2, capacity=capacity)


def test_a_token_is_the_weighted_sum_of_its_experts() -> None:
    layer = _layer()
    weights = layer.gate(Tensor(X)).softmax(-1).numpy()
    each = ((Tensor(X) @ layer.up).gelu() @ layer.down).numpy()  # expert, token
    found = layer(Tensor(X)).numpy()
    for token, row in enumerate(weights):
        first, second = np.argsort(-row)[:2]
        share = row[first] / (row[first] + row[second])
        wanted = share * each[first, token] + (1 - share) * each[second, token]
        np.testing.assert_allclose(found[token], wanted, rtol=1e-4, atol=1e-6)


def test_experts_over_a_mesh_train_as_on_one_device() -> None:
    grid = mesh({"data": 2, "model": 2})
    alone, apart = _layer(1.0), _layer(1.0)
    called = DataParallel(expert_parallel(apart, grid), grid)
    assert apart.up.uop.src[0].arg.placed.dims == ("model", None, None)
    for run in (alone, called):
        (run(Tensor(X)) ** 2).sum().backward()
    for (name, p), q in zip(alone.named_parameters(), apart.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None, name
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_an_impossible_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 of 2 experts"):
        Experts(4, 4, 2, chosen=3)
