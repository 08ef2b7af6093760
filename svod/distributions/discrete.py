"""Distributions of whole numbers, by probabilities or by logits."""

from __future__ import annotations

from typing import Any

import svod
from svod.distributions.distribution import Distribution, probabilities
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.tensor import Tensor


def _is_chance(x: Any) -> Any:
    return (x >= 0) & (x <= 1)


class _Chance(Distribution):
    """Distributions with a probability in each position."""

    parameters = ("_given",)

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.is_logits, given = probabilities(type(self).__name__, probs, logits)
        super().__init__(given)
        if not self.is_logits:
            self._check("probs", given, _is_chance, "between 0 and 1", validate_args)

    @property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return self._given.sigmoid() if self.is_logits else self._given

    @property
    def logits(self) -> Tensor:
        """``log(p / (1 - p))``."""
        return self._given if self.is_logits else self._given.log() - (-self._given).log1p()

    def __repr__(self) -> str:
        name = "logits" if self.is_logits else "probs"
        return f"{type(self).__name__}({name}: {self._given.shape})"


class Bernoulli(_Chance):
    """1 with probability ``probs``, else 0."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        p = self.probs
        return (svod.rand(*shape, dtype=p.dtype, device=p.device) < p).cast(p.dtype)

    def log_prob(self, value: Any) -> Tensor:
        x = tensor_of(value)
        if self.is_logits:
            return -(self.logits * (1 - 2 * x)).softplus()
        return svod.xlogy(x, self.probs) + svod.special.xlog1py(1 - x, -self.probs)

    def entropy(self) -> Tensor:
        p = self.probs
        return -(svod.xlogy(p, p) + svod.xlogy(1 - p, 1 - p))

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Geometric(_Chance):
    """How many failures come before the first success."""

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        p = self.probs
        return (self._noise(shape, p).log() / (-p).log1p()).floor()

    def log_prob(self, value: Any) -> Tensor:
        return svod.special.xlog1py(tensor_of(value), -self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        p, q = self.probs, 1 - self.probs
        return -(svod.xlogy(q, q) + svod.xlogy(p, p)) / p

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs


class Binomial(_Chance):
    """How many of ``total_count`` independent tries succeed."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.total_count = int(total_count)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        p = self.probs
        tries = svod.rand(self.total_count, *shape, dtype=p.dtype, device=p.device) < p
        return tries.cast(p.dtype).sum(0)

    def log_prob(self, value: Any) -> Tensor:
        k, n = tensor_of(value), float(self.total_count)
        ways = svod.lgamma(svod.full_like(self.probs, n + 1))
        ways = ways - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ways + svod.xlogy(k, self.probs) + svod.special.xlog1py(n - k, -self.probs)

    def entropy(self) -> Tensor:
        counts = svod.arange(self.total_count + 1, dtype=self.probs.dtype, device=self.probs.device)
        found = self.log_prob(counts.reshape(-1, *[1] * len(self.batch_shape)))
        return -svod.where(found.isneginf(), 0.0, found.exp() * found).sum(0)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)


class Poisson(Distribution):
    """How many events happen in a time in which ``rate`` are expected."""

    parameters = positive = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(rate, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return svod.poisson(self.rate.expand(shape))

    def log_prob(self, value: Any) -> Tensor:
        k = tensor_of(value)
        return svod.xlogy(k, self.rate) - self.rate - (k + 1).lgamma()

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate


class Categorical(Distribution):
    """One of n classes; the last axis holds their probabilities or logits."""

    parameters = ("_given",)
    event_dim = 1

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.is_logits, given = probabilities("Categorical", probs, logits)
        super().__init__(given)
        self.event_shape = ()
        self.count = given.shape[-1]
        if not self.is_logits:
            self._check("probs", given, lambda x: x >= 0, "at least 0", validate_args)

    @property
    def probs(self) -> Tensor:
        """Probabilities that add up to 1."""
        if self.is_logits:
            return self._given.softmax(-1)
        return self._given / self._given.sum(-1, keepdim=True)

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return self._given.log_softmax(-1) if self.is_logits else self.probs.log()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        logits = self.logits
        noise = -(-self._noise((*shape, self.count), logits).log()).log()
        return (logits + noise).argmax(-1)

    def log_prob(self, value: Any) -> Tensor:
        chosen = tensor_of(value).cast(svod.int64).unsqueeze(-1)
        shape = svod.broadcast_shapes(chosen.shape[:-1], self.batch_shape)
        logits = self.logits.expand(*shape, self.count)
        return logits.gather(-1, chosen.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        p = self.probs
        return -svod.xlogy(p, p).sum(-1)

    def __repr__(self) -> str:
        name = "logits" if self.is_logits else "probs"
        return f"Categorical({name}: {self._given.shape})"
