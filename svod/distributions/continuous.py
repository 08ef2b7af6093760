"""Distributions of single real numbers."""

from __future__ import annotations

import math
from typing import Any

import svod
from svod.distributions.distribution import Distribution
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.ops.numpy_interchange import host_array
from svod.tensor.random.rejection_sampling import standard_gamma
from svod.tensor.tensor import Tensor

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_EULER = 0.5772156649015329


class _Located(Distribution):
    """Distributions of ``loc + scale * z`` where the law of z has no parameters."""

    has_rsample = True
    parameters = ("loc", "scale")
    positive = ("scale",)

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(loc, scale, validate_args=validate_args)

    def _standard(self, value: Any) -> Tensor:
        return (tensor_of(value) - self.loc) / self.scale


class Normal(_Located):
    """The normal law with mean ``loc`` and standard deviation ``scale``."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        z = svod.randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * z

    def log_prob(self, value: Any) -> Tensor:
        return -0.5 * self._standard(value) ** 2 - self.scale.log() - _HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + _HALF_LOG_TAU)

    def cdf(self, value: Any) -> Tensor:
        """The probability of being at most a value."""
        return 0.5 * (1 + (self._standard(value) / math.sqrt(2)).erf())

    def icdf(self, value: Any) -> Tensor:
        """The value that a given share is below."""
        return self.loc + self.scale * (2 * tensor_of(value) - 1).erfinv() * math.sqrt(2)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale**2


class LogNormal(Normal):
    """The law of ``exp(x)`` for a normal x."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return super()._draw(shape).exp()

    def log_prob(self, value: Any) -> Tensor:
        logarithm = tensor_of(value).log()
        return super().log_prob(logarithm) - logarithm

    def entropy(self) -> Tensor:
        return super().entropy() + self.loc

    def cdf(self, value: Any) -> Tensor:
        return super().cdf(tensor_of(value).log())

    def icdf(self, value: Any) -> Tensor:
        return super().icdf(value).exp()

    @property
    def mean(self) -> Tensor:
        return (self.loc + 0.5 * self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()


class Laplace(_Located):
    """The density ``exp(-|x - loc| / scale) / (2 scale)``."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        u = self._noise(shape, self.loc) - 0.5
        return self.loc - self.scale * u.sign() * (-2 * u.abs()).log1p()

    def log_prob(self, value: Any) -> Tensor:
        return -self._standard(value).abs() - (2 * self.scale).log()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2


class Cauchy(_Located):
    """The density ``1 / (pi scale (1 + ((x - loc) / scale)²))``."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc + self.scale * (math.pi * (self._noise(shape, self.loc) - 0.5)).tan()

    def log_prob(self, value: Any) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - (self._standard(value) ** 2).log1p()

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()

    @property
    def mean(self) -> Tensor:
        return svod.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return svod.full_like(self.loc, math.inf)


class Gumbel(_Located):
    """The law of the largest of many: ``loc - scale * log(-log(u))``."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc - self.scale * (-self._noise(shape, self.loc).log()).log()

    def log_prob(self, value: Any) -> Tensor:
        y = self._standard(value)
        return -y - (-y).exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (math.pi**2 / 6)


class HalfNormal(Distribution):
    """The law of ``|x|`` for a normal x around 0."""

    has_rsample = True
    parameters = positive = ("scale",)

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(scale, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        z = svod.randn(*shape, dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * z.abs()

    def log_prob(self, value: Any) -> Tensor:
        x = tensor_of(value)
        inside = -0.5 * (x / self.scale) ** 2 - self.scale.log() - _HALF_LOG_TAU + math.log(2)
        return svod.where(x >= 0, inside, -math.inf)

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + _HALF_LOG_TAU - math.log(2))

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class Exponential(Distribution):
    """The density ``rate * exp(-rate * x)``."""

    has_rsample = True
    parameters = positive = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(rate, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return -self._noise(shape, self.rate).log() / self.rate

    def log_prob(self, value: Any) -> Tensor:
        return self.rate.log() - self.rate * tensor_of(value)

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of being at most a value."""
        return -(-self.rate * tensor_of(value)).expm1()

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2


class Uniform(Distribution):
    """Equal density from ``low`` to ``high``."""

    has_rsample = True
    parameters = ("low", "high")

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        super().__init__(low, high, validate_args=validate_args)
        if validate_args or host_array(self.high.uop) is not None:
            rule = f"below high ({high})"
            self._check("low", self.low, lambda x: x < self.high.numpy(), rule, validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        u = svod.rand(*shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + (self.high - self.low) * u

    def log_prob(self, value: Any) -> Tensor:
        x = tensor_of(value)
        inside = (x >= self.low) & (x < self.high)
        return svod.where(inside, -(self.high - self.low).log(), -math.inf)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of being at most a value."""
        return ((tensor_of(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class Gamma(Distribution):
    """The density ``rate^a x^(a - 1) exp(-rate x) / gamma(a)`` for a ``concentration`` a."""

    parameters = positive = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration, rate, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return standard_gamma(self.concentration, shape) / self.rate

    def log_prob(self, value: Any) -> Tensor:
        x, a = tensor_of(value), self.concentration
        return a * self.rate.log() + (a - 1) * x.log() - self.rate * x - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2


class Beta(Distribution):
    """The density ``x^(a - 1) (1 - x)^(b - 1) / B(a, b)`` between 0 and 1."""

    parameters = positive = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        super().__init__(concentration1, concentration0, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        x = standard_gamma(self.concentration1, shape)
        return x / (x + standard_gamma(self.concentration0, shape))

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    def log_prob(self, value: Any) -> Tensor:
        x = tensor_of(value)
        a, b = self.concentration1, self.concentration0
        return svod.xlogy(a - 1, x) + (b - 1) * (-x).log1p() - self._log_beta()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = (a - 1) * a.digamma() + (b - 1) * b.digamma() - (a + b - 2) * (a + b).digamma()
        return self._log_beta() - inner

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))
