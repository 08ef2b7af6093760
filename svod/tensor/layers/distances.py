"""Distances between vectors: norms of differences, cosines, all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.tensor.core.complex_parts import squares
from svod.tensor.core.tensor_core import Core, float_node, wrap
from svod.tensor.ops.assembly import triu_indices
from svod.tensor.ops.elementwise import select, widened

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def vector_norm(x: Tensor, p: float, dim: int = -1, keepdim: bool = False) -> Tensor:
    """The p-norm over an axis whose gradient is 0 where the norm is."""
    size = x.abs()
    if p == 0:
        return (size != 0).cast(size.dtype).sum(dim, keepdim)
    if p == 1:
        return size.sum(dim, keepdim)
    if p == float("inf"):
        return size.amax(dim, keepdim)
    if p == 2:
        total = squares(x).sum(dim, keepdim)
        is_zero = total == 0
        return select(is_zero, 0.0, select(is_zero, 1.0, total).sqrt())
    grown = select(size == 0, 0.0, select(size == 0, 1.0, size) ** p).sum(dim, keepdim)
    is_zero = grown == 0
    return select(is_zero, 0.0, select(is_zero, 1.0, grown) ** (1 / p))


def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm of the difference of every row of x1 with every row of x2."""
    if x1.ndim < 2 or x2.ndim < 2:
        raise ShapeError(f"cdist needs at least 2 axes: {x1.shape} and {x2.shape}")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: rows of {x1.shape} and {x2.shape} differ in length")
    if p < 0:
        raise ShapeError(f"cdist: p is 0 or more, not {p}")
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of the difference of every pair of rows, as a vector."""
    if input.ndim != 2:
        raise ShapeError(f"pdist takes a matrix, not shape {input.shape}")
    if p < 0:
        raise ShapeError(f"pdist: p is 0 or more, not {p}")
    first, second = triu_indices(input.shape[0], input.shape[0], 1).unbind(0)
    return vector_norm(input[first] - input[second], p)


class Distances(Core):
    """pairwise_distance and cosine_similarity."""

    __slots__ = ()

    def pairwise_distance(
        self: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
    ) -> Tensor:
        """The p-norm of the difference of vectors along the last axis."""
        return vector_norm(self - x2 + eps, p, -1, keepdim)

    def cosine_similarity(self: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
        """The cosine of the angle between vectors along an axis."""
        a, b = _broadcast(self, x2)
        kind = promote(a.dtype, b.dtype)
        a, b = widened(a), widened(b)
        sizes = vector_norm(a, 2, dim, True).clamp(eps), vector_norm(b, 2, dim, True).clamp(eps)
        return ((a / sizes[0]) * (b / sizes[1])).sum(dim).cast(kind)


def _broadcast(a: Tensor, b: Tensor) -> tuple[Any, Any]:
    shape = B.broadcast_shapes(a.shape, b.shape)
    x = wrap(float_node(a.uop), a._device).expand(shape)
    return x, wrap(float_node(b.uop), b._device).expand(shape)
