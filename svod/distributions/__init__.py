"""Probability distributions with the names and arguments of torch.distributions."""

from svod.distributions.continuous import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from svod.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, Poisson
from svod.distributions.distribution import Distribution
from svod.distributions.divergence import kl_divergence
from svod.distributions.vectors import (
    Dirichlet,
    Independent,
    MultivariateNormal,
    OneHotCategorical,
)
from svod.reference.docstrings import describe

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Dirichlet", "Distribution",
    "Exponential", "Gamma", "Geometric", "Gumbel", "HalfNormal", "Independent", "Laplace",
    "LogNormal", "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson", "Uniform",
    "kl_divergence",
]  # fmt: skip

describe(globals(), "svod.distributions")
