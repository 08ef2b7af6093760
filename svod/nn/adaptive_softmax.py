"""Adaptive softmax: frequent classes by themselves, rare ones in clusters with smaller layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.nn.containers import ModuleList, Sequential
from svod.nn.layers import Linear
from svod.nn.module import Module
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import index_of
from svod.tensor.ops.joining import concatenate
from svod.tensor.tensor import Tensor


class ASMoutput(NamedTuple):
    """The logarithm of the chance of every target, and the loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The softmax of Grave and others (2017): classes sorted by frequency, cut into clusters."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cuts = [int(c) for c in cutoffs]
        if not cuts or cuts != sorted(set(cuts)) or cuts[0] <= 0 or cuts[-1] > n_classes - 1:
            raise ShapeError(
                f"cutoffs rise from above 0 to below {n_classes}, the number of classes: {cuts}"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs, self.div_value, self.head_bias = [*cuts, n_classes], div_value, head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inner = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, False, **made),
                    Linear(inner, high - low, False, **made),
                )
            )

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        if target.dtype.kind not in "iu":
            raise DTypeError(f"targets are whole numbers, not {target.dtype.name}")
        single = target.ndim == 0
        if target.ndim > 1 or input.ndim != target.ndim + 1:
            raise ShapeError(f"input {input.shape} with targets {target.shape}")
        x = input.unsqueeze(0) if single else input
        goal = target.unsqueeze(0) if single else target
        if x.shape[0] != goal.shape[0]:
            raise ShapeError(f"input {input.shape} with targets {target.shape}")
        goal = index_of(goal, None, self.n_classes, "AdaptiveLogSoftmaxWithLoss")
        head = self.head(x).log_softmax(1)
        found = _at(head, goal.clamp(max=self.shortlist_size - 1))
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (goal >= low) & (goal < high)
            rare = self.tail[i](x).log_softmax(1)
            chance = _at(rare, (goal - low).clamp(0, high - low - 1))
            found = select(inside, head[:, self.shortlist_size + i] + chance, found)
        loss = -found.mean()
        return ASMoutput(found.squeeze(0) if single else found, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The logarithms of the chances of all classes, (N, n_classes)."""
        head = self.head(input).log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            place = self.shortlist_size + i
            parts.append(self.tail[i](input).log_softmax(1) + head[:, place : place + 1])
        return concatenate(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of every row."""
        return self.log_prob(input).argmax(1)


def _at(scores: Tensor, classes: Tensor) -> Tensor:
    """One score of every row."""
    return scores.gather(1, classes.unsqueeze(1)).squeeze(1)
