"""Distributions of vectors, and of tensors whose elements are independent."""

from __future__ import annotations

import math
from typing import Any

import svod
from svod.base.errors import ArgumentError, ShapeError
from svod.distributions.discrete import Categorical
from svod.distributions.distribution import Distribution, summed
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.random.rejection_sampling import standard_gamma
from svod.tensor.tensor import Tensor


class Independent(Distribution):
    """A distribution whose last batch axes count as axes of one sample."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int = 1) -> None:
        base, axes = base_distribution, reinterpreted_batch_ndims
        if not 0 <= axes <= len(base.batch_shape):
            raise ShapeError(f"Independent: {axes} axes of a batch of shape {base.batch_shape}")
        self.base_dist, self.axes, self.has_rsample = base, axes, base.has_rsample
        kept = len(base.batch_shape) - axes
        self.batch_shape = base.batch_shape[:kept]
        self.event_shape = (*base.batch_shape[kept:], *base.event_shape)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base_dist._draw(shape)

    def log_prob(self, value: Any) -> Tensor:
        return summed(self.base_dist.log_prob(value), self.axes)

    def entropy(self) -> Tensor:
        return summed(self.base_dist.entropy(), self.axes)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.axes})"


class MultivariateNormal(Distribution):
    """Normal vectors, by a covariance matrix or the lower triangular factor of one."""

    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ArgumentError(
                "MultivariateNormal: give one of covariance_matrix, precision_matrix, scale_tril"
            )
        matrix = tensor_of(given[0])
        if precision_matrix is not None:
            matrix = svod.linalg.inv(matrix)
        self.scale_tril = matrix if scale_tril is not None else svod.linalg.cholesky(matrix)
        n = self.scale_tril.shape[-1]
        loc = tensor_of(loc)
        self.batch_shape = svod.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2])
        self.event_shape = (n,)
        self.loc = loc.expand(*self.batch_shape, n)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        z = svod.randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ z.unsqueeze(-1)).squeeze(-1)

    def _half_log_determinant(self) -> Tensor:
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        away = (tensor_of(value) - self.loc).unsqueeze(-1)
        factor = self.scale_tril.expand(*away.shape[:-2], *self.scale_tril.shape[-2:])
        z = svod.linalg.solve_triangular(factor, away, upper=False).squeeze(-1)
        constant = 0.5 * self.event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (z * z).sum(-1) - constant - self._half_log_determinant()

    def entropy(self) -> Tensor:
        constant = 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))
        found = constant + self._half_log_determinant()
        return found.expand(self.batch_shape)

    @property
    def covariance_matrix(self) -> Tensor:
        """``scale_tril @ scale_tril.T``."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1).expand(*self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        return f"MultivariateNormal(loc: {self.loc.shape})"


class Dirichlet(Distribution):
    """Probabilities of n classes; the last axis holds a concentration for each."""

    parameters = positive = ("concentration",)
    event_dim = 1

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration, validate_args=validate_args)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        parts = standard_gamma(self.concentration, shape)
        return parts / parts.sum(-1, keepdim=True)

    def log_prob(self, value: Any) -> Tensor:
        a = self.concentration
        inside = svod.xlogy(a - 1, tensor_of(value)).sum(-1)
        return inside + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        total, n = a.sum(-1), a.shape[-1]
        inside = a.lgamma().sum(-1) - total.lgamma() - (n - total) * total.digamma()
        return inside - ((a - 1) * a.digamma()).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))


class OneHotCategorical(Categorical):
    """One of n classes, as a vector with a 1 at the class."""

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.event_shape = (self.count,)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        chosen = super()._draw(shape[:-1])
        return svod.nn.functional.one_hot(chosen, self.count).cast(self._given.dtype)

    def log_prob(self, value: Any) -> Tensor:
        return super().log_prob(tensor_of(value).argmax(-1))

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)
