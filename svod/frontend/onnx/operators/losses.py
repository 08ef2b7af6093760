"""Losses."""

from __future__ import annotations

from typing import Any

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Tensor, operator


def _picked(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore: int | None, reduction: str
) -> Tensor:
    """Minus the entries of the classes, weighted, and folded."""
    target = target.cast(dt.int64)
    is_kept = None if ignore is None else target != ignore
    safe = target if is_kept is None else svod.where(is_kept, target, 0)
    shares: Any = weight[safe] if weight is not None else svod.ones(target.shape, dtype=x.dtype)
    if is_kept is not None:
        shares = svod.where(is_kept, shares, svod.zeros_like(shares))
    loss = -x.gather(1, safe.unsqueeze(1)).squeeze(1) * shares
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / shares.sum()


@operator("NegativeLogLikelihoodLoss")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    return _picked(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss")
def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean", node: NodeView,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    logs = x.log_softmax(1)
    return _picked(logs, target, weight, ignore_index, reduction), logs
