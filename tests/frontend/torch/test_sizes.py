"""Run-time sizes: one plan for every length, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from svod.frontend.torch import report
from tests.frontend.torch.running import compare
from tests.frontend.torch.test_backend import compiled


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        parts = self.qkv(self.norm(x)).split(d, 2)
        q, k, v = [p.view(b, n, 2, d // 2).transpose(1, 2) for p in parts]
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + found.transpose(1, 2).reshape(b, n, d)


def test_lengths_and_batches_share_a_plan() -> None:
    model = Attention()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 5, 8), (3, 7, 8), (4, 10, 8), (2, 3, 8)):
            x = torch.randn(shape)
            compare(run(x), model(x))
    assert (report().graphs, report().plans) == (1, 1)


def test_a_length_beyond_the_bounds_makes_the_plan_again() -> None:
    run = compiled(lambda x: x.softmax(1) @ x.mT, dynamic=True)
    for n in (3, 8, 200, 5, 199):
        x = torch.randn(2, n)
        compare(run(x), x.softmax(1) @ x.mT)
    assert (report().graphs, report().plans, report().regrown) == (1, 2, 1)


def test_automatic_dynamism_needs_two_graphs() -> None:
    run = compiled(lambda x: (x * 2).cumsum(0).relu())
    for n in (4, 5, 6, 7, 9):
        x = torch.randn(n, 3)
        compare(run(x), (x * 2).cumsum(0).relu())
    assert report().graphs == 2


def test_gradients_of_run_time_sizes() -> None:
    model = Attention()
    run = compiled(model, dynamic=True)
    for shape in ((2, 5, 8), (3, 9, 8)):
        x = torch.randn(shape)
        grads = []
        for call in (model, run):
            model.zero_grad()
            (call(x) * torch.linspace(-1, 1, x.numel()).view(shape)).sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for got, want in zip(grads[1], grads[0], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert report().plans == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x, x * 2], 1).sum(0),
        lambda x: x[:, 1:] - x[:, :-1],
        lambda x: x.reshape(-1).view(2, -1).mT * 1.0,
        lambda x: torch.arange(x.shape[1]) * x + x.shape[0],
        lambda x: F.pad(x, (1, 2)).flip(1),
        lambda x: x.new_zeros(x.shape[1], x.shape[0] + 1) + x.sum(),
        lambda x: x.mean(1, keepdim=True).expand(-1, x.shape[1] * 2).var(0),
        lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])) @ x.mT,
    ],
)
def test_expressions_of_sizes(function: object) -> None:
    run = compiled(function, dynamic=True)
    for n in (4, 7, 8):
        x = torch.randn(2 * n, n)
        compare(run(x), function(x))  # type: ignore[operator]
    assert report().plans == 1


def test_only_the_batch_changes_in_a_convolution() -> None:
    layer = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.MaxPool2d(2)).eval()
    run = compiled(layer)
    with torch.no_grad():
        for n in (2, 3, 5):
            x = torch.randn(n, 3, 12, 12)
            torch._dynamo.mark_dynamic(x, 0)
            compare(run(x), layer(x))
    assert (report().graphs, report().plans) == (1, 1)
