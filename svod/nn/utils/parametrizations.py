"""Weight and spectral normalisation as parametrizations."""

from __future__ import annotations

from typing import Any

from svod.base.errors import ShapeError
from svod.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from svod.nn.module import Module
from svod.nn.utils.parametrize import register_parametrization
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.random.threefry import randn
from svod.tensor.tensor import Tensor

__all__ = ["spectral_norm", "weight_norm"]

TRANSPOSED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The length of every slice along an axis, or of the whole."""
    if dim is None or dim == -1:
        return (v * v).sum().sqrt()
    axes = tuple([i for i in range(v.ndim) if i != dim % v.ndim])
    return (v * v).sum(axes, True).sqrt()


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / norm_except(direction, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight as a length and a direction (Salimans and Kingma, 2016)."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class SpectralNorm(Module):
    """A weight divided by its largest singular value, which a power iteration follows."""

    starts_left = True  # a step of the iteration finds u first, then v

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ShapeError(f"n_power_iterations is at least 1, not {n_power_iterations}")
        if not -weight.ndim <= dim < weight.ndim:
            raise ShapeError(f"spectral_norm: axis {dim} of a weight of shape {weight.shape}")
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim % weight.ndim
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            for size, name in zip(matrix.shape, ("_u", "_v"), strict=True):
                start = randn(size, dtype=weight.dtype, device=weight.device)
                self.register_buffer(name, start.normalize(dim=0, eps=eps).contiguous())
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        moved = weight.movedim(self.dim, 0) if self.dim else weight
        return moved.flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            u, v = self._u, self._v
            for _ in range(count):
                if not self.starts_left:
                    v = self._unit(matrix.mT.mv(u))
                u = self._unit(matrix.mv(v))
                if self.starts_left:
                    v = self._unit(matrix.mT.mv(u))
            self._u.assign(u)
            self._v.assign(v)

    def _unit(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        return (x / x.norm().clamp(self.eps)).contiguous()

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return weight.normalize(dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.detach(), self._v.detach()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """A weight divided by its largest singular value (Miyato and others, 2018)."""
    weight: Any = module._parameters.get(name)
    if weight is None:
        raise ShapeError(f"{type(module).__name__} has no parameter {name!r}")
    axis = (1 if isinstance(module, TRANSPOSED) else 0) if dim is None else dim
    made = SpectralNorm(weight, n_power_iterations, axis, eps)
    return register_parametrization(module, name, made)


guard(globals())

describe(globals(), "svod.nn.utils.parametrizations")
