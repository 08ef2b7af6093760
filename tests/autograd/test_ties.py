"""Gradients where a function has a corner or a step: the values of torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.nn import functional as F
from svod.tensor.gradients.reverse_mode import GradientError

POINTS = np.array([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0], np.float32)
NONE, ALL, HALF = [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0.5, 0.5, 1, 1]
UP, DOWN = [0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]
SIGNS = [-1, -1, 0, 0, 1, 1]

Function = Callable[[Tensor], Tensor]
CASES: dict[str, tuple[Function, list[float]]] = {
    "sign": (lambda x: x.sign(), NONE),
    "sgn": (lambda x: x.sgn(), NONE),
    "floor": (lambda x: x.floor(), NONE),
    "ceil": (lambda x: x.ceil(), NONE),
    "round": (lambda x: x.round(), NONE),
    "round to a digit": (lambda x: x.round(decimals=1), NONE),
    "trunc": (lambda x: x.trunc(), NONE),
    "frac": (lambda x: x.frac(), ALL),
    "a step beside": (lambda x: x + x.floor(), ALL),
    "abs": (lambda x: x.abs(), SIGNS),
    "relu": (lambda x: x.relu(), [0, 0, 0, 0, 1, 1]),
    "clamp": (lambda x: x.clamp(-1, 1), [0, 1, 1, 1, 1, 0]),
    "clip": (lambda x: x.clip(-1, 1), [0, 1, 1, 1, 1, 0]),
    "clamp to one number": (lambda x: x.clamp(1, 1), [0, 0, 0, 0, 1, 0]),
    "clamp to nothing": (lambda x: x.clamp(1, -1), NONE),
    "clamp at zero": (lambda x: x.clamp(0), UP),
    "clamp_min": (lambda x: x.clamp_min(0.0), UP),
    "clamp_max": (lambda x: x.clamp_max(0.0), DOWN),
    "clamp with tensors": (lambda x: x.clamp(svod.zeros(6), svod.ones(6)), [0, 0, 1, 1, 1, 0]),
    "maximum with a tensor": (lambda x: x.maximum(svod.zeros(6)), HALF),
    "maximum with a number": (lambda x: x.maximum(0), HALF),
    "maximum with one": (lambda x: x.maximum(1.0), [0, 0, 0, 0, 0.5, 1]),
    "median of all": (lambda x: (x * x).median() + x.sum() * 0, [0, -1, 0, 0, 1, 0]),
    "median of all but NaN": (lambda x: (x * x).nanmedian() + x.sum() * 0, [0, -1, 0, 0, 1, 0]),
    "minimum with a number": (lambda x: svod.minimum(x, 0), [1, 1, 0.5, 0.5, 0, 0]),
    "fmax": (lambda x: x.fmax(x.detach() * 0), UP),
    "fmin": (lambda x: x.fmin(x.detach() * 0), DOWN),
    "hardtanh": (lambda x: F.hardtanh(x), [0, 0, 1, 1, 0, 0]),
    "margin_ranking_loss": (
        lambda x: F.margin_ranking_loss(x, svod.zeros(6), svod.ones(6), reduction="sum"),
        [-1, -1, -1, -1, 0, 0],
    ),
    "hinge_embedding_loss": (
        lambda x: F.hinge_embedding_loss(x, -svod.ones(6), reduction="sum"),
        [-1, -1, -1, -1, -1, 0],
    ),
    "multi_margin_loss": (
        lambda x: F.multi_margin_loss(x.reshape(1, 6), Tensor([4])) * 6,
        [0, 0, 0, 0, -1, 1],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_at_a_corner_is_that_of_torch(name: str) -> None:
    function, wanted = CASES[name]
    x = Tensor(POINTS).requires_grad_()
    function(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.array(wanted, np.float32))
    recorded = svod.jit(lambda v: svod.grad(lambda t: function(t).sum())(v))
    np.testing.assert_array_equal(recorded(Tensor(POINTS)).numpy(), np.array(wanted, np.float32))


def test_smooth_functions_have_their_slope_where_their_formulas_have_corners() -> None:
    for function, wanted in (
        (lambda x: F.softplus(x), 0.5),
        (lambda x: F.logsigmoid(x), 0.5),
        (lambda x: F.binary_cross_entropy_with_logits(x, Tensor([0.25])), 0.25),
        (lambda x: x.logaddexp(Tensor([0.0])), 0.5),
    ):
        x = Tensor([0.0]).requires_grad_()
        function(x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [wanted], atol=1e-6)


def test_a_last_layer_of_zeros_learns_from_its_first_step() -> None:
    layer = svod.nn.Linear(3, 1)
    for parameter in layer.parameters():
        svod.nn.init.zeros_(parameter)
    loss = F.binary_cross_entropy_with_logits(layer(svod.ones(2, 3)), svod.ones(2, 1))
    loss.backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), [[-0.5, -0.5, -0.5]], atol=1e-6)


def test_what_no_leaf_is_behind_is_still_an_error() -> None:
    svod.ones(2).requires_grad_()
    with pytest.raises(GradientError):
        Tensor([1.5]).realize().floor().sum().backward()


def test_kernels_do_not_depend_on_who_gets_the_gradient() -> None:
    x = Tensor(POINTS).realize()
    sources = {
        k.kernel.source
        for y in (x.relu(), x.clamp(0.0), x.maximum(0.0))
        for k in svod.prepare(y).prepared_kernels()
    }
    assert len(sources) == 1
