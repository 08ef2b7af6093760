"""Averaged models, statistics taken anew, and the learning rate for averaging."""

from __future__ import annotations

from math import cos, pi

import numpy as np
import pytest

import svod
from svod import nn
from svod.optim import SGD, lr_scheduler, swa_utils

VALUES = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(svod.zeros(3))
        self.register_buffer("seen", svod.zeros(1))

    def forward(self, x):
        return x * self.weight


def after_all(average: swa_utils.AveragedModel, model: Weights) -> np.ndarray:
    for number, value in enumerate(VALUES):
        with svod.no_grad():
            model.weight.copy_(svod.tensor(value))
            model.seen.fill_(number)
        average.update_parameters(model)
    return average.module.weight.detach().numpy()


def exponential(decay: float) -> np.ndarray:
    found = VALUES[0]
    for value in VALUES[1:]:
        found = found * decay + value * (1 - decay)
    return found


def test_the_mean_of_all_weights_so_far():
    model = Weights()
    average = swa_utils.AveragedModel(model)
    np.testing.assert_allclose(after_all(average, model), VALUES.mean(0), rtol=1e-5)
    assert average.n_averaged.item() == 6 and average.module.seen.item() == 5
    np.testing.assert_allclose(average(svod.ones(3)).detach().numpy(), VALUES.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(model.weight.detach().numpy(), VALUES[-1])
    assert sorted(average.state_dict()) == ["module.seen", "module.weight", "n_averaged"]


@pytest.mark.parametrize("name", ["avg_fn", "multi_avg_fn"])
def test_older_weights_count_less(name):
    make = {
        "avg_fn": swa_utils.get_ema_avg_fn, "multi_avg_fn": swa_utils.get_ema_multi_avg_fn,
    }[name]  # fmt: skip
    model = Weights()
    average = swa_utils.AveragedModel(model, use_buffers=True, **{name: make(0.8)})
    np.testing.assert_allclose(after_all(average, model), exponential(0.8), rtol=1e-5)
    wanted = 0.0
    for number in range(1, 6):
        wanted = wanted * 0.8 + number * 0.2
    np.testing.assert_allclose(average.module.seen.item(), wanted, rtol=1e-5)


def test_statistics_are_those_of_the_batches_of_the_loader():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).eval()
    model(svod.ones(2, 3))
    swa_utils.update_bn([(svod.tensor(VALUES[:3]), None), (svod.tensor(VALUES[3:]), None)], model)
    np.testing.assert_allclose(model[0].running_mean.numpy(), VALUES.mean(0), rtol=1e-4, atol=1e-6)
    variance = (VALUES[:3].var(0, ddof=1) + VALUES[3:].var(0, ddof=1)) / 2
    np.testing.assert_allclose(model[0].running_var.numpy(), variance, rtol=1e-4)
    assert model[0].momentum == 0.1 and not model.training


def test_the_rate_goes_from_where_it_is_to_that_of_averaging():
    optimizer = SGD([svod.zeros(1, requires_grad=True)], lr=1.0)
    decays = lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule = swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=4)
    for _ in range(3):
        decays.step()
    found = []
    for _ in range(6):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    shares = [(1 - cos(pi * min(1, t / 4))) / 2 for t in range(1, 7)]
    np.testing.assert_allclose(found, [0.05 * a + 0.125 * (1 - a) for a in shares], rtol=1e-9)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(svod.errors.ConfigError, match="not both"):
        mean = swa_utils.get_swa_avg_fn()
        every = swa_utils.get_swa_multi_avg_fn()
        swa_utils.AveragedModel(Weights(), avg_fn=mean, multi_avg_fn=every)
    with pytest.raises(svod.errors.ConfigError, match=r"from 0 to 1, not 1\.5"):
        swa_utils.get_ema_avg_fn(1.5)
    optimizer = SGD([svod.zeros(1, requires_grad=True)], lr=1.0)
    with pytest.raises(svod.errors.ConfigError, match="'cos' or 'linear'"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="cubic")
