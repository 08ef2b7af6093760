"""Distributions: densities integrate to one, samples follow them, divergences are averages."""

from __future__ import annotations

import math

import numpy as np
import pytest

import svod
from svod import distributions as D
from svod.base.errors import ArgumentError

CONTINUOUS = {  # a distribution, and the range that holds nearly all of it
    "normal": (D.Normal(0.5, 1.5), -12, 13),
    "lognormal": (D.LogNormal(0.1, 0.5), 1e-6, 30),
    "laplace": (D.Laplace(-0.3, 0.7), -20, 20),
    "cauchy": (D.Cauchy(0.0, 0.1), -2000, 2000),
    "gumbel": (D.Gumbel(0.2, 0.8), -10, 30),
    "half normal": (D.HalfNormal(1.2), 0, 15),
    "exponential": (D.Exponential(1.7), 0, 30),
    "uniform": (D.Uniform(-0.5, 2.0), -1, 3),
    "gamma": (D.Gamma(2.3, 1.4), 1e-6, 40),
    "beta": (D.Beta(2.5, 1.7), 1e-6, 1 - 1e-6),
}
DISCRETE = {
    "bernoulli": (D.Bernoulli(0.3), 2),
    "bernoulli by logits": (D.Bernoulli(logits=0.4), 2),
    "geometric": (D.Geometric(0.35), 200),
    "binomial": (D.Binomial(7, 0.4), 8),
    "poisson": (D.Poisson(3.2), 60),
    "categorical": (D.Categorical(svod.Tensor([0.2, 0.5, 1.3])), 3),
}


def _moments(law: D.Distribution, values: np.ndarray, weights: np.ndarray) -> None:
    total = weights.sum()
    assert total == pytest.approx(1, abs=2e-3)
    mean = (values * weights).sum()
    assert law.mean.item() == pytest.approx(mean, abs=5e-3)
    assert law.variance.item() == pytest.approx(((values - mean) ** 2 * weights).sum(), rel=1e-2)
    try:
        entropy = law.entropy().item()
    except NotImplementedError:
        return
    logarithms = np.log(np.where(weights > 0, weights, 1))
    step = values[1] - values[0] if values.dtype == np.float64 else 1.0
    assert entropy == pytest.approx(-(weights * (logarithms - math.log(step))).sum(), abs=2e-2)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_density_integrates_to_one_and_has_the_stated_moments(name):
    law, low, high = CONTINUOUS[name]
    x = np.linspace(low, high, 400_001)
    density = np.exp(law.log_prob(svod.Tensor(x)).numpy().astype(np.float64))
    if name == "cauchy":  # has no moments
        assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=2e-3)
        return
    _moments(law, x, density * (x[1] - x[0]))


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_add_up_to_one(name):
    law, count = DISCRETE[name]
    k = np.arange(count)
    p = np.exp(law.log_prob(svod.Tensor(k.astype(np.float32))).numpy().astype(np.float64))
    if name == "categorical":
        assert p == pytest.approx([0.1, 0.25, 0.65]) and law.probs.numpy() == pytest.approx(p)
        return
    _moments(law, k, p)


@pytest.mark.parametrize("name", [n for n in (*CONTINUOUS, *DISCRETE) if n != "cauchy"])
def test_samples_have_the_mean_and_spread_of_their_law(name):
    law = (CONTINUOUS | DISCRETE)[name][0]
    svod.manual_seed(3)
    x = law.sample((8000,)).numpy().astype(np.float64)
    assert x.shape == (8000, *law.batch_shape)
    if name == "categorical":
        assert np.bincount(x.astype(int)) / 8000 == pytest.approx([0.1, 0.25, 0.65], abs=0.02)
        return
    spread = law.stddev.item()
    assert x.mean() == pytest.approx(law.mean.item(), abs=5 * spread / math.sqrt(8000))
    assert x.std() == pytest.approx(spread, rel=0.1)


PAIRS = {
    "normal": (D.Normal(0.1, 1.0), D.Normal(-0.4, 1.6)),
    "laplace": (D.Laplace(0.1, 1.0), D.Laplace(-0.4, 1.6)),
    "exponential": (D.Exponential(1.3), D.Exponential(0.7)),
    "uniform": (D.Uniform(0.0, 1.0), D.Uniform(-1.0, 2.0)),
    "gamma": (D.Gamma(2.0, 1.5), D.Gamma(1.4, 1.1)),
    "beta": (D.Beta(2.0, 1.5), D.Beta(1.4, 1.1)),
    "bernoulli": (D.Bernoulli(0.3), D.Bernoulli(0.6)),
    "poisson": (D.Poisson(3.0), D.Poisson(4.0)),
    "categorical": (D.Categorical(svod.Tensor([0.2, 0.8])), D.Categorical(svod.Tensor([0.5, 0.5]))),
    "dirichlet": (D.Dirichlet(svod.Tensor([2.0, 3.0])), D.Dirichlet(svod.Tensor([1.5, 1.2]))),
    "vectors": (
        D.MultivariateNormal(svod.zeros(2), svod.Tensor([[1.0, 0.3], [0.3, 0.8]])),
        D.MultivariateNormal(svod.ones(2), scale_tril=svod.Tensor([[1.2, 0.0], [0.4, 1.0]])),
    ),
    "independent": (
        D.Independent(D.Normal(svod.zeros(3), svod.ones(3)), 1),
        D.Independent(D.Normal(svod.ones(3), 2 * svod.ones(3)), 1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_divergence_is_the_average_of_the_difference_of_logarithms(name):
    p, q = PAIRS[name]
    svod.manual_seed(4)
    x = p.sample((20_000,))
    difference = (p.log_prob(x) - q.log_prob(x)).numpy().astype(np.float64)
    tolerance = 5 * difference.std() / math.sqrt(20_000) + 1e-5
    assert D.kl_divergence(p, q).item() == pytest.approx(difference.mean(), abs=tolerance)


def test_gradients_go_through_rsample_and_not_through_sample():
    loc = svod.Tensor([0.5], requires_grad=True)
    scale = svod.Tensor([2.0], requires_grad=True)
    svod.manual_seed(1)
    law = D.Normal(loc, scale)
    z = law.rsample((4,))
    z.sum().backward()
    assert loc.grad.item() == 4
    assert scale.grad.item() == pytest.approx(((z - 0.5) / 2).sum().item(), rel=1e-5)
    assert not law.sample((4,)).requires_grad
    with pytest.raises(ArgumentError, match="no rsample"):
        D.Poisson(1.0).rsample()


def test_shapes_are_those_of_batch_and_event():
    law = D.Independent(D.Normal(svod.zeros(4, 3), 1.0), 1)
    assert (law.batch_shape, law.event_shape) == ((4,), (3,))
    assert law.sample((2,)).shape == (2, 4, 3) and law.log_prob(svod.zeros(4, 3)).shape == (4,)
    hot = D.OneHotCategorical(logits=svod.zeros(5, 3)).sample((2,))
    assert hot.shape == (2, 5, 3) and hot.sum(-1).numpy().tolist() == np.ones((2, 5)).tolist()


def test_parameters_outside_their_range_are_refused():
    for make in (
        lambda: D.Normal(0.0, -1.0),
        lambda: D.Uniform(2.0, 1.0),
        lambda: D.Bernoulli(1.5),
        lambda: D.Categorical(svod.Tensor([0.5, -0.1])),
        lambda: D.Bernoulli(),
        lambda: D.MultivariateNormal(svod.zeros(2)),
    ):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(ArgumentError, match="no formula"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Gamma(1.0, 1.0))


@pytest.mark.parametrize("rate", [0.01, 3.0, 9.9, 10.1, 1000.0])
def test_poisson_numbers_have_their_rate_as_mean_and_variance(rate):
    svod.manual_seed(2)
    x = svod.poisson(svod.full((20_000,), rate)).numpy().astype(np.float64)
    assert x.mean() == pytest.approx(rate, abs=5 * math.sqrt(rate / 20_000))
    assert x.var() == pytest.approx(rate, rel=0.1, abs=0.01)
    assert (x == np.floor(x)).all() and (x >= 0).all()
