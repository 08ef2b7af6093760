"""The Kullback-Leibler divergence between two distributions of one family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svod
from svod.base.errors import ArgumentError
from svod.distributions import continuous as c
from svod.distributions import discrete as d
from svod.distributions import vectors as v
from svod.distributions.distribution import Distribution, summed
from svod.tensor.core.public_functions import guard
from svod.tensor.tensor import Tensor


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expected ``log p(x) - log q(x)`` where x is drawn from p."""
    for kind in type(p).__mro__:
        rule = _RULES.get(kind)
        if rule is not None and isinstance(q, kind):
            return rule(p, q)
    raise ArgumentError(
        f"kl_divergence has no formula for {type(p).__name__} and {type(q).__name__}: average "
        "p.log_prob(x) - q.log_prob(x) over samples x of p"
    )


def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


def _laplace(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


def _uniform(p: Any, q: Any) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return svod.where((q.low > p.low) | (q.high < p.high), float("inf"), found)


def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    first = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return first + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


def _beta(p: Any, q: Any) -> Tensor:
    a, b, s, t = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    inner = (a - s) * a.digamma() + (b - t) * b.digamma()
    return q._log_beta() - p._log_beta() + inner + (s + t - a - b) * (a + b).digamma()


def _bernoulli(p: Any, q: Any) -> Tensor:
    x, y = p.probs, q.probs
    return svod.xlogy(x, x / y) + svod.xlogy(1 - x, (1 - x) / (1 - y))


def _categorical(p: Any, q: Any) -> Tensor:
    return (p.probs * (p.logits - q.logits)).nan_to_num(0.0).sum(-1)


def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    first = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return first + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


def _independent(p: Any, q: Any) -> Tensor:
    if p.axes != q.axes:
        raise ArgumentError(f"kl_divergence: samples of {p.axes} and of {q.axes} axes")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.axes)


def _multivariate(p: Any, q: Any) -> Tensor:
    shape = svod.broadcast_shapes(p.batch_shape, q.batch_shape)
    n = p.event_shape[0]
    factor = q.scale_tril.expand(*shape, n, n)
    between = svod.linalg.solve_triangular(factor, p.scale_tril.expand(*shape, n, n), upper=False)
    away = svod.linalg.solve_triangular(
        factor, (q.loc - p.loc).expand(*shape, n).unsqueeze(-1), upper=False
    )
    determinants = q._half_log_determinant() - p._half_log_determinant()
    return determinants + 0.5 * ((between**2).sum((-2, -1)) + (away**2).sum((-2, -1)) - n)


_RULES: dict[type, Callable[[Any, Any], Tensor]] = {
    c.Normal: _normal,
    c.Laplace: _laplace,
    c.Exponential: _exponential,
    c.Uniform: _uniform,
    c.Gamma: _gamma,
    c.Beta: _beta,
    d.Bernoulli: _bernoulli,
    d.Categorical: _categorical,
    d.Poisson: _poisson,
    v.Dirichlet: _dirichlet,
    v.Independent: _independent,
    v.MultivariateNormal: _multivariate,
}
guard(globals())
