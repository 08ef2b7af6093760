"""Concatenation, stacking and splitting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir.node import is_symbolic
from svod.tensor.core.slicing import bounds
from svod.tensor.core.tensor_core import Core, axis_of, fresh, integer, nodes_of, real_axis
from svod.tensor.views.aliases import view

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def concatenate(tensors: Sequence[Tensor], dim: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis; None flattens them first."""
    if isinstance(tensors, Core) or not isinstance(tensors, Iterable):
        raise ShapeError("cat and stack take a sequence of tensors")
    tensors = list(tensors)
    if dim is None:
        tensors, dim = [t.ravel() for t in tensors], 0
    nodes, device = nodes_of(tensors)
    # As in torch, vectors without elements may stand among tensors of any shape.
    nodes = [n for n in nodes if n.shape != (0,)] or nodes
    shape = nodes[0].shape
    if not shape:
        raise ShapeError("cat needs at least 1 axis: use stack for scalars")
    axis = axis_of(dim, len(shape))
    rest = shape[:axis] + shape[axis + 1 :]
    for node in nodes:
        if len(node.shape) != len(shape) or node.shape[:axis] + node.shape[axis + 1 :] != rest:
            raise ShapeError(f"cat along axis {axis}: shapes {shape} and {node.shape} differ")
    return fresh(B.cat(nodes, axis), device)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    if isinstance(tensors, Core) or not isinstance(tensors, Iterable):
        raise ShapeError("cat and stack take a sequence of tensors")
    nodes, device = nodes_of(list(tensors))
    shape = nodes[0].shape
    axis = axis_of(dim, len(shape) + 1)
    if any(is_symbolic(n.shape) for n in nodes) and len({len(n.shape) for n in nodes}) == 1:
        nodes = [B.at_values(n, shape) for n in nodes]
    for node in nodes:
        if node.shape != shape:
            raise ShapeError(f"stack: shapes {shape} and {node.shape} differ")
    lines = [B.reshape(n, (*shape[:axis], 1, *shape[axis:])) for n in nodes]
    return fresh(B.cat(lines, axis), device)


class Joining(Core):
    """cat, stack, split, chunk."""

    __slots__ = ()

    def cat(self: Tensor, *tensors: Tensor, dim: int = 0) -> Tensor:
        """This tensor and others one after the other along an axis."""
        return concatenate([self, *tensors], dim)

    def stack(self: Tensor, *tensors: Tensor, dim: int = 0) -> Tensor:
        """This tensor and others along a new axis."""
        return stack([self, *tensors], dim)

    def split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Parts of ``split_size`` (the last may be smaller), or of the given sizes."""
        axis = real_axis(dim, self.shape, "split")
        total = self.shape[axis]
        if isinstance(split_size, Iterable):
            sizes = [integer(s, "a split size") for s in split_size]
            if sum(sizes) != total or (sizes and min(sizes) < 0):
                raise ShapeError(f"split sizes {sizes} do not add up to {total}")
        else:
            step = integer(split_size, "split_size")
            if step < 1:
                raise ShapeError(f"split_size must be at least 1, not {step}")
            sizes = [min(step, total - s) for s in range(0, total, step)] or [0]
        parts, start = [], 0
        for size in sizes:
            parts.append(view(self, (B.shrink, bounds(self.shape, axis, start, start + size))))
            start += size
        return tuple(parts)

    def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """At most ``chunks`` parts of equal size; the last may be smaller."""
        count = integer(chunks, "chunks")
        if count < 1:
            raise ShapeError(f"chunks must be at least 1, not {count}")
        total = self.shape[real_axis(dim, self.shape, "chunk")]
        return self.split(max(1, -(-total // count)), dim)

    def tensor_split(self: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
        """Parts as np.array_split: a number of nearly equal parts, or the places to cut."""
        axis = real_axis(dim, self.shape, "tensor_split")
        total = self.shape[axis]
        if isinstance(indices_or_sections, Core):  # read now: it says how many parts there are
            indices_or_sections = indices_or_sections.tolist()  # type: ignore[attr-defined]
        if isinstance(indices_or_sections, Iterable):
            places = [integer(c, "a place to cut") for c in indices_or_sections]
            cuts = [min(max(c + total if c < 0 else c, 0), total) for c in places]
            edges = [0, *cuts, total]
            sizes = [(a, max(a, b)) for a, b in pairwise(edges)]
        else:
            count = integer(indices_or_sections, "sections")
            if count < 1:
                raise ShapeError(f"sections must be at least 1, not {count}")
            small, extra = divmod(total, count)
            edges = [i * small + min(i, extra) for i in range(count + 1)]
            sizes = list(pairwise(edges))
        return tuple([view(self, (B.shrink, bounds(self.shape, axis, a, b))) for a, b in sizes])

    def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """The slices along an axis, without it."""
        axis = real_axis(dim, self.shape, "unbind")
        shape = self.shape
        rest = shape[:axis] + shape[axis + 1 :]
        cuts = [bounds(shape, axis, i, i + 1) for i in range(shape[axis])]
        return tuple([view(self, (B.shrink, cut), (B.reshape, rest)) for cut in cuts])
