"""Programs that are more than operators in a row: branches, loops, caches, conjugates."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from svod.base.errors import SvodWarning
from svod.frontend.torch import backend, report


def check(function: Any, *args: torch.Tensor, room: float = 1e-4) -> None:
    """Results, gradients and what became of the arguments are those of eager."""
    found = []
    for run in (function, torch.compile(function, backend=backend)):
        given = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SvodWarning)
            results = tree_leaves(run(*given))
        sloped = [r for r in results if r.requires_grad]
        if sloped:
            sum((r * r).sum() for r in sloped).backward()
        slopes = [g.grad for g in given if g.grad is not None]
        found.append([*results, *given, *slopes])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=room, atol=room)


X = torch.linspace(-2, 3, 24).reshape(4, 6)


def _needs_grad(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


@pytest.mark.parametrize("shift", [-5.0, 5.0])
def test_a_branch_is_chosen_by_values_and_named(shift: float) -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.cond(y.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (y,)) + 1

    check(choose, _needs_grad(X + shift))
    assert set(report().fallbacks) == {"torch.ops.higher_order.cond"}


def test_loops_are_named_and_right() -> None:
    def loop(x: torch.Tensor) -> Any:
        first = (torch.tensor(0), x * 2)
        return while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.1), first)[1] - 1

    def running(x: torch.Tensor) -> Any:
        return scan(lambda c, y: (c + y, c * y), torch.zeros(6), x * 2, dim=0)

    check(loop, X)
    check(running, X)
    assert set(report().fallbacks) == {
        "torch.ops.higher_order.while_loop", "torch.ops.higher_order.scan"
    }  # fmt: skip


def test_associative_scans_are_plans() -> None:
    check(lambda x: associative_scan(torch.add, x, dim=0, combine_mode="generic"), X)
    assert not report().fallbacks


def test_attention_with_a_score_of_its_own_is_named_and_right() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.where(i >= j, s + (i - j) * 0.1, -float("inf"))

        return flex_attention(q, q + 1, q * 2, score_mod=score)

    check(attend, torch.randn(1, 2, 32, 16))
    assert set(report().fallbacks) == {"torch.ops.higher_order.flex_attention"}


def test_training_under_autocast_follows_eager() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    )

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float()

    check(run, _needs_grad(X), room=3e-2)
    assert not report().fallbacks


def test_dropout_of_attention_keeps_its_mean_and_follows_the_seed() -> None:
    def attend(v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(v * 0, v * 0, v, dropout_p=0.5)

    run = torch.compile(attend, backend=backend, options={"fallback": "error"})
    v = torch.ones(2, 4, 64, 16)
    torch.manual_seed(5)
    first, second = run(v), run(v)
    torch.manual_seed(5)
    assert torch.equal(run(v), first) and not torch.equal(first, second)
    assert abs(first.mean() - 1) < 0.1


def test_caches_are_written_where_they_lie() -> None:
    def step(cache: torch.Tensor, k: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_put_((torch.tensor([[0], [1]]), at), k)
        cache.index_copy_(1, at + 1, k * 2)
        cache[:, 0].copy_(k[:, 0])
        return cache.sum(1)

    check(step, torch.zeros(2, 8, 3), torch.randn(2, 2, 3), torch.tensor([3, 5]))
    assert not report().fallbacks


def test_arguments_that_are_marked_as_conjugates_are_read_as_such() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    run = torch.compile(lambda a: (a * 2).sum(0) + 1, backend=backend)
    for given in (z.conj(), z.mH, z.conj().imag, z):
        torch.testing.assert_close(run(given), (given * 2).sum(0) + 1)


def test_gradients_of_complex_numbers_follow_eager() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        z = torch.fft.fft(torch.view_as_complex(x.view(4, 3, 2)))
        turn = torch.polar(torch.ones(3), torch.arange(3.0))
        return torch.view_as_real(z * turn * (1 + 2j)).abs()

    check(turned, _needs_grad(X))
    assert not report().fallbacks


def test_transforms_of_functions_are_plans() -> None:
    check(lambda x: torch.vmap(lambda r: r.softmax(0) * r.sum())(x), X)
    check(lambda x: torch.func.jacrev(lambda z: (z**3).sum(1))(x), X)
    check(lambda x: checkpoint(lambda z: (z @ z.mT).relu(), x, use_reentrant=False), _needs_grad(X))
    assert not report().fallbacks


def test_norms_of_complex_numbers_count_both_parts() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    for order in (1, 2, 6, float("inf")):
        check(lambda a, order=order: torch.linalg.vector_norm(a, order), z)


def test_products_over_no_terms_are_zeros() -> None:
    check(lambda a, b: torch.linalg.multi_dot([a, b, b.mT]), torch.ones(5, 0), torch.ones(0, 2))


def test_whole_numbers_take_whole_factors() -> None:
    ones = torch.ones(1, 3, 3, dtype=torch.int64)
    check(lambda x: torch.baddbmm(x, x, x, beta=1.7, alpha=0.6), ones)
    check(lambda x: x + torch.arange(0.6, 3.2, 1.3, dtype=torch.int64).sum(), ones)


def test_heads_of_queries_share_keys_and_values() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, k * 2, is_causal=True, enable_gqa=True)

    check(attend, _needs_grad(torch.randn(2, 4, 5, 8)), _needs_grad(torch.randn(2, 2, 5, 8)))
    assert not report().fallbacks


def test_results_with_effects_have_the_strides_that_are_said() -> None:
    check(torch.linalg.solve, _needs_grad(torch.randn(4, 4)), _needs_grad(torch.randn(4, 2)))
