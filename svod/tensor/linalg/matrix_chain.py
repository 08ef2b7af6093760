"""Products of several matrices, multiplied in the order that takes the fewest operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import nodes_of, spelled

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


@spelled
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that takes the fewest steps."""
    given = list(tensors)
    if len(given) < 2:
        raise ShapeError(f"multi_dot needs at least 2 tensors, got {len(given)}")
    nodes_of(given)
    parts = list(given)
    if parts[0].ndim == 1:
        parts[0] = parts[0].unsqueeze(0)
    if parts[-1].ndim == 1:
        parts[-1] = parts[-1].unsqueeze(1)
    for part in parts:
        if part.ndim != 2:
            raise ShapeError(f"multi_dot takes matrices, not shape {part.shape}")
    sizes = [parts[0].shape[0], *[p.shape[1] for p in parts]]
    found = _chain(parts, _best_cuts(sizes), 0, len(parts))
    if given[0].ndim == 1:
        found = found.squeeze(0)
    return found.squeeze(-1) if given[-1].ndim == 1 else found


def _best_cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of factors so that all products together are cheapest."""
    count = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            steps = [
                (cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j], k)
                for k in range(i + 1, j)
            ]
            cost[i, j], cuts[i, j] = min(steps)
    return cuts


def _chain(parts: Sequence[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if j - i == 1:
        return parts[i]
    k = cuts[i, j]
    return _chain(parts, cuts, i, k) @ _chain(parts, cuts, k, j)
