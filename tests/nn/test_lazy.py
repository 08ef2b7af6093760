"""Modules that learn their size from the first input, adaptive softmax, CTC inside a plan."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import SvodError


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )


def test_a_lazy_module_becomes_the_module_it_stands_for() -> None:
    net = model()
    assert isinstance(net[0], nn.Conv2d) and type(net[0]) is nn.LazyConv2d
    assert "LazyConv2d(out_channels=4, kernel_size=3" in repr(net)
    net.eval()
    found = net(svod.randn(2, 3, 5, 5))
    assert found.shape == (2, 2)
    assert [type(m) for m in net] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear]
    assert net[4].in_features == 36 and not net[4].training
    assert len(list(net.parameters())) == 6


def test_parameters_that_are_not_there_yet_are_refused() -> None:
    net = model()
    for use in (net.parameters, net.named_parameters, net.state_dict, net.double, net.zero_grad):
        with pytest.raises(ValueError, match="call the module once"):
            list(use())
    with pytest.raises(SvodError, match="call the module once"):
        nn.optim.SGD(net.parameters())


def test_a_state_says_the_sizes() -> None:
    net, other = model(), model()
    x = svod.randn(2, 3, 5, 5)
    net.eval()(x)
    other.load_state_dict(net.state_dict())
    assert type(other[4]) is nn.Linear
    np.testing.assert_array_equal(other.eval()(x).numpy(), net(x).numpy())


def test_hooks_and_copies_of_lazy_modules() -> None:
    seen = []
    layer = nn.LazyLinear(3, bias=False)
    layer.register_forward_hook(lambda m, args, found: seen.append(type(m)))
    twin = copy.deepcopy(layer)
    assert layer(svod.ones(2, 4)).shape == (2, 3)
    assert seen == [nn.Linear] and layer.bias is None
    assert twin(svod.ones(2, 7)).shape == (2, 3) and twin.in_features == 7


def test_lazy_modules_are_trained_inside_a_plan() -> None:
    net = model()
    net(svod.randn(2, 3, 5, 5))
    optimizer = nn.optim.SGD(net.parameters(), lr=0.1)
    x, y = svod.randn(2, 3, 5, 5).realize(), svod.randn(2, 2).realize()
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.LazyConv2d(4, 3), (3, 4)),
        (lambda: nn.LazyLinear(4), ()),
        (lambda: nn.LazyBatchNorm1d(), (3,)),
    ],
)
def test_inputs_without_a_size_are_refused(layer, shape) -> None:
    with pytest.raises(ValueError):
        layer()(svod.zeros(shape))


def test_a_lazy_module_takes_the_arguments_of_its_module() -> None:
    with pytest.raises(TypeError):
        nn.LazyLinear()
    with pytest.raises(TypeError):
        nn.LazyConv1d(3, 3, colour="red")


def test_adaptive_softmax_sums_to_one_and_predicts_the_largest() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6])
    x = svod.randn(5, 8).realize()
    chances = layer.log_prob(x)
    np.testing.assert_allclose(chances.exp().sum(1).numpy(), np.ones(5), rtol=1e-5)
    assert np.array_equal(layer.predict(x).numpy(), chances.numpy().argmax(1))
    goal = np.array([0, 4, 9, 2, 6])
    found = layer(x, Tensor(goal))
    np.testing.assert_allclose(found.output.numpy(), chances.numpy()[np.arange(5), goal], rtol=1e-5)
    np.testing.assert_allclose(found.loss.item(), -found.output.numpy().mean(), rtol=1e-6)
    for cutoffs in ([], [3, 3], [0, 4], [4, 10]):
        with pytest.raises(ValueError):
            nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs)


def test_lengths_of_label_sequences_are_data() -> None:
    @svod.jit
    def loss(scores: Tensor, labels: Tensor, times: Tensor, counts: Tensor) -> Tensor:
        return nn.functional.ctc_loss(scores.log_softmax(2), labels, times, counts)

    scores, labels = svod.randn(6, 2, 4).realize(), Tensor(np.array([[1, 2, 3], [3, 3, 1]]))
    for times, counts in (((6, 6), (3, 2)), ((5, 3), (1, 2)), ((6, 4), (0, 3))):
        found = loss(scores, labels, Tensor(np.array(times)), Tensor(np.array(counts)))
        plain = nn.functional.ctc_loss(scores.log_softmax(2), labels, times, counts)
        np.testing.assert_allclose(found.numpy(), plain.numpy(), rtol=1e-6)


def test_gradients_of_label_sequences() -> None:
    labels = Tensor(np.array([[1, 1], [2, 1]]))

    @svod.jit
    def loss(scores: Tensor) -> Tensor:
        logs = scores.log_softmax(2)  # torch's gradient is that of normalised chances
        return nn.functional.ctc_loss(logs, labels, (5, 4), (2, 1), reduction="sum")

    start = np.random.default_rng(0).normal(size=(5, 2, 3)) - 1
    x = Tensor(start, requires_grad=True)
    logs = x.log_softmax(2)
    nn.functional.ctc_loss(logs, labels, (5, 4), (2, 1), reduction="sum").backward()
    for place in np.ndindex(start.shape):
        step = np.zeros_like(start)
        step[place] = 1e-6
        slope = (loss(Tensor(start + step)).item() - loss(Tensor(start - step)).item()) / 2e-6
        np.testing.assert_allclose(x.grad.numpy()[place], slope, rtol=1e-5, atol=1e-8)
