"""Margin, ranking and Poisson losses, with torch's names; ``losses`` has the others."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import Core, Operand, Scalar, tensor_of, wrap
from svod.tensor.layers.distances import vector_norm
from svod.tensor.layers.losses import reduce_loss
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import checked, index_of

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _same_rank(what: str, *tensors: Tensor) -> None:
    if len({t.ndim for t in tensors}) > 1:
        raise ShapeError(f"{what}: shapes {', '.join([str(t.shape) for t in tensors])}")


class Margins(Core):
    """margin_ranking_loss, triplet_margin_loss, multi_margin_loss, poisson_nll_loss, ..."""

    __slots__ = ()

    def margin_ranking_loss(
        self: Tensor, input2: Tensor, target: Tensor, margin: float = 0, reduction: str = "mean"
    ) -> Tensor:
        """max(0, -target * (x1 - x2) + margin)."""
        _same_rank("margin_ranking_loss", self, input2, target)
        return reduce_loss((margin - target * (self - input2)).clamp(0), reduction)

    def soft_margin_loss(self: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """log(1 + exp(-target * x))."""
        return reduce_loss((-target * self).exp().log1p(), reduction)

    def cosine_embedding_loss(
        self: Tensor, input2: Tensor, target: Tensor, margin: float = 0, reduction: str = "mean"
    ) -> Tensor:
        """1 - cos of the angle where the target is 1, its excess over the margin where -1."""
        if target.ndim + 1 != self.ndim or self.ndim != input2.ndim:
            raise ShapeError(f"cosine_embedding_loss: {self.shape}, {input2.shape}, {target.shape}")
        tiny = 1e-12  # as in torch: the squares are kept from zero
        product = (self * input2).sum(-1)
        sizes = (self * self).sum(-1) + tiny, (input2 * input2).sum(-1) + tiny
        cosine = product / (sizes[0] * sizes[1]).sqrt()
        apart = select(target == -1, (cosine - margin).clamp(0), 0.0)
        return reduce_loss(select(target == 1, 1 - cosine, apart), reduction)

    def triplet_margin_loss(
        self: Tensor,
        positive: Tensor,
        negative: Tensor,
        margin: float = 1.0,
        p: float = 2,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Tensor:
        """max(0, distance to the positive - distance to the negative + margin)."""
        _same_rank("triplet_margin_loss", self, positive, negative)
        if margin <= 0:
            raise ShapeError(f"triplet_margin_loss: margin is above 0, not {margin}")

        def distance(a: Tensor, b: Tensor) -> Tensor:
            return vector_norm(a - b + eps, p)

        return triplet(self, positive, negative, distance, margin, swap, reduction)

    def multi_margin_loss(
        self: Tensor,
        target: Tensor,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """The excess of every other class over the target class, to the power of p."""
        if p not in (1, 2):
            raise ShapeError(f"multi_margin_loss: p is 1 or 2, not {p}")
        if not target.dtype.is_int:
            raise DTypeError(f"multi_margin_loss: targets are integers, not {target.dtype.name}")
        x = self if self.ndim == 2 else self.reshape(1, -1)
        goal = target.reshape(-1)
        if self.ndim > 2 or goal.shape[0] != x.shape[0]:
            raise ShapeError(f"multi_margin_loss: {self.shape} and targets {target.shape}")
        classes = x.shape[1]
        goal = index_of(goal, x, classes, "multi_margin_loss")
        hit = goal.unsqueeze(1) == wrap(B.iota(classes, dt.int64), None)
        at_target = select(hit, x, 0.0).sum(1, True)
        excess = (x - at_target + margin).relu()
        loss = excess if p == 1 else excess * excess
        if weight is not None:
            if weight.shape != (classes,):
                raise ShapeError(f"multi_margin_loss: weight {weight.shape} for {classes} classes")
            loss = loss * select(hit, weight, 0.0).sum(1, True)
        found = select(hit, 0.0, loss).sum(1) / classes
        return reduce_loss(
            found if self.ndim == 2 or reduction != "none" else found.squeeze(0), reduction
        )

    def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        """The excess of every other class over each target class; targets end at the first -1."""
        if self.shape != target.shape or self.ndim > 2:
            raise ShapeError(f"multilabel_margin_loss: {self.shape} and {target.shape}")
        if target.dtype.is_float:
            raise DTypeError(
                f"multilabel_margin_loss: targets are integers, not {target.dtype.name}"
            )
        x, goal = self.reshape(-1, self.shape[-1]) if self.ndim else self.reshape(1, 1), target
        classes = x.shape[1]
        inside = checked(goal.uop, classes, "multilabel_margin_loss", ignored=-1)
        goal = wrap(inside, goal._device).reshape(x.shape)
        counts = (goal < 0).cast(dt.int64).cumsum(1) == 0
        line = wrap(B.iota(classes, dt.int64), None)
        hit = (goal.unsqueeze(2) == line) & counts.unsqueeze(2)  # (rows, targets, classes)
        is_target = hit.any(1)
        at_target = select(hit, x.unsqueeze(1), 0.0).sum(2)
        excess = (1 - (at_target.unsqueeze(2) - x.unsqueeze(1))).relu()
        wanted = counts.unsqueeze(2) & ~is_target.unsqueeze(1)
        found = select(wanted, excess, 0.0).sum((1, 2)) / classes
        single = self.ndim < 2 and reduction == "none"
        return reduce_loss(found.squeeze(0) if single else found, reduction)

    def multilabel_soft_margin_loss(
        self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
    ) -> Tensor:
        """The binary cross entropy of logits, averaged over the last axis."""
        loss = -(target * self.logsigmoid() + (1 - target) * (-self).logsigmoid())
        loss = loss if weight is None else loss * weight
        return reduce_loss(loss.mean(-1), reduction)

    def poisson_nll_loss(
        self: Tensor,
        target: Operand,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Tensor:
        """The negative log-likelihood of counts under a Poisson distribution."""
        goal = tensor_of(target, self)
        loss = self.exp() - goal * self if log_input else self - goal * (self + eps).log()
        if full:
            many = goal > 1
            safe = select(many, goal, 2.0)
            rest = safe * safe.log() - safe + 0.5 * (2 * pi * safe).log()
            loss = loss + select(many, rest, 0.0)
        return reduce_loss(loss, reduction)

    def gaussian_nll_loss(
        self: Tensor,
        target: Tensor,
        var: Tensor | Scalar,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Tensor:
        """The negative log-likelihood under a normal distribution of this mean and variance."""
        if isinstance(var, (int, float)):
            if var < 0:
                raise ShapeError(f"gaussian_nll_loss: var is 0 or more, not {var}")
            spread = self * 0 + var
        else:
            spread = tensor_of(var, self)
            if spread.shape == self.shape[:-1] and self.ndim:
                spread = spread.unsqueeze(-1)
            elif spread.ndim != self.ndim or not _stretches(spread.shape, self.shape):
                raise ShapeError(f"gaussian_nll_loss: var {spread.shape} for {self.shape}")
        limited = spread.detach().clamp(eps) + (spread - spread.detach())
        loss = 0.5 * (limited.log() + (self - target).square() / limited)
        return reduce_loss(loss + 0.5 * log(2 * pi) if full else loss, reduction)


def _stretches(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether one shape is another with at most one axis of size 1 instead of its own."""
    differ = [n for n, m in zip(small, large, strict=True) if n != m]
    return differ in ([], [1])


def triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Any, Any], Any],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    """The loss of three points under any distance; ``swap`` may measure from the positive."""
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduce_loss((near - far + margin).clamp(0), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with any distance."""
    if margin <= 0:
        raise ShapeError(f"triplet_margin_with_distance_loss: margin is above 0, not {margin}")
    _same_rank("triplet_margin_with_distance_loss", anchor, positive, negative)
    distance = distance_function or (lambda a, b: a.pairwise_distance(b))
    return triplet(anchor, positive, negative, distance, margin, swap, reduction)
