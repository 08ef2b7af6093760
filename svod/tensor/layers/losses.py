"""Loss functions, with the names and arguments of torch.nn.functional.

``reduction`` is "mean", "sum" or "none". Class losses pick the target's entry by comparing with
the positions on the class axis, so the pick fuses with the softmax before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import Core, Operand, tensor_of, wrap
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import checked

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """A loss folded as ``reduction`` says."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ShapeError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")
    return loss


def _weighted(loss: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    """A loss times its weights; the mean is over the weights."""
    if weight is None:
        return reduce_loss(loss, reduction)
    if weight.shape != loss.shape:
        raise ShapeError(f"a weight of shape {weight.shape} for a loss of shape {loss.shape}")
    scaled = loss * weight
    return scaled.sum() / weight.sum() if reduction == "mean" else reduce_loss(scaled, reduction)


class Losses(Core):
    """cross_entropy, nll_loss, mse_loss, binary_cross_entropy and relatives."""

    __slots__ = ()

    def cross_entropy(
        self: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """The loss of logits against class numbers or class probabilities."""
        axis = 1 if self.ndim > 1 else 0
        if not 0 <= label_smoothing <= 1:
            raise ShapeError(f"label_smoothing is from 0 to 1, not {label_smoothing}")
        logs = self.log_softmax(axis)
        goal = tensor_of(target, self)
        if goal.dtype.kind == "f":
            _same_shape("cross_entropy with class probabilities", self, goal)
            return _probability_loss(logs, goal, weight, reduction, label_smoothing, axis)
        if not label_smoothing:
            return _class_loss(logs, goal, weight, ignore_index, reduction, "cross_entropy")
        return _smoothed_loss(logs, goal, weight, ignore_index, reduction, label_smoothing, axis)

    def nll_loss(
        self: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """The negative of the log-probability at the target class."""
        return _class_loss(self, target, weight, ignore_index, reduction, "nll_loss")

    def mse_loss(
        self: Tensor, target: Operand, reduction: str = "mean", weight: Tensor | None = None
    ) -> Tensor:
        """The square of the difference."""
        return _weighted((self - target).square(), reduction, weight)

    def l1_loss(
        self: Tensor, target: Operand, reduction: str = "mean", weight: Tensor | None = None
    ) -> Tensor:
        """The magnitude of the difference."""
        return _weighted((self - target).abs(), reduction, weight)

    def smooth_l1_loss(
        self: Tensor, target: Operand, reduction: str = "mean", beta: float = 1.0
    ) -> Tensor:
        """Square near zero, straight from beta on."""
        size = (self - target).abs()
        if beta < 0:
            raise ShapeError(f"smooth_l1_loss: beta is 0 or more, not {beta}")
        if beta == 0:
            return reduce_loss(size, reduction)
        curve = size * size * (0.5 / beta)
        return reduce_loss(select(size < beta, curve, size - 0.5 * beta), reduction)

    def huber_loss(
        self: Tensor,
        target: Operand,
        reduction: str = "mean",
        delta: float = 1.0,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Square near zero, straight from delta on."""
        if delta <= 0:
            raise ShapeError(f"huber_loss: delta is above 0, not {delta}")
        size = (self - target).abs()
        line = (size - 0.5 * delta) * delta
        loss = select(size < delta, size * size * 0.5, line)
        if weight is not None and weight.shape != loss.shape:
            raise ShapeError(f"a weight of shape {weight.shape} for a loss of shape {loss.shape}")
        return reduce_loss(loss if weight is None else loss * weight, reduction)

    def binary_cross_entropy(
        self: Tensor, target: Operand, weight: Any = None, reduction: str = "mean"
    ) -> Tensor:
        """The loss of probabilities against targets between 0 and 1; logs are at least -100."""
        goal = tensor_of(target, self)
        _same_shape("binary_cross_entropy", self, goal)
        loss = -(goal * self.log().clamp(-100) + (1 - goal) * (1 - self).log().clamp(-100))
        return reduce_loss(loss if weight is None else loss * weight, reduction)

    def binary_cross_entropy_with_logits(
        self: Tensor,
        target: Operand,
        weight: Any = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> Tensor:
        """The loss of logits against targets between 0 and 1, without overflow."""
        goal = tensor_of(target, self)
        _same_shape("binary_cross_entropy_with_logits", self, goal)
        if pos_weight is None:
            loss = self.maximum(0) - self * goal + (-self.abs()).exp().log1p()
        else:
            scale = goal * (tensor_of(pos_weight, self) - 1) + 1
            loss = (1 - goal) * self - scale * self.logsigmoid()
        return reduce_loss(loss if weight is None else loss * weight, reduction)

    def kl_div(
        self: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
    ) -> Tensor:
        """The divergence of a target distribution from these log-probabilities."""
        if log_target:
            loss = target.exp() * (target - self)
        else:
            loss = select(target > 0, target * (target.log() - self), 0.0)
        if reduction == "batchmean":
            return loss.sum() / self.shape[0]
        return reduce_loss(loss, reduction)

    def hinge_embedding_loss(
        self: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
    ) -> Tensor:
        """x where the target is 1, max(0, margin - x) where it is -1; their sum elsewhere."""
        near, apart = select(target == -1, 0.0, self), (margin - self).clamp(0)
        return reduce_loss(near + select(target == 1, 0.0, apart), reduction)


def _same_shape(what: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{what}: a target of shape {target.shape} for an input of {x.shape}")


def _class_loss(
    logs: Tensor,
    target: Any,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    what: str,
) -> Tensor:
    axis = 1 if logs.ndim > 1 else 0
    hit, counts = _targets(logs, target, ignore_index, axis, what)
    loss = -select(hit, logs, 0.0).sum(axis)
    if weight is None:
        loss = select(counts, loss, 0.0)
        scale = counts.cast(logs.dtype)
    else:
        scale = _class_weights(hit, counts, weight, logs, axis)
        loss = loss * scale
    if reduction == "mean":
        return loss.sum() / scale.sum()
    return reduce_loss(loss, reduction)


def _targets(
    logs: Tensor, target: Any, ignore_index: int, axis: int, what: str
) -> tuple[Tensor, Tensor]:
    """Where the class axis meets the target, and which targets count."""
    if not logs.ndim:
        raise ShapeError("class losses need a class axis")
    goal = tensor_of(target, logs)
    if not goal.dtype.is_int:
        raise DTypeError(f"targets are class numbers (integers), not {goal.dtype.name}")
    shape = logs.shape[:axis] + logs.shape[axis + 1 :]
    if goal.shape != shape:
        raise ShapeError(f"targets of shape {goal.shape} for {logs.shape}: {shape} is needed")
    if not goal.dtype.is_int:
        raise DTypeError(f"{what}: class numbers are integers, not {goal.dtype.name}")
    classes = logs.shape[axis]
    goal = wrap(checked(goal.uop, classes, what, ignored=ignore_index), goal._device)
    line = [classes if i == axis else 1 for i in range(logs.ndim)]
    hit = goal.unsqueeze(axis) == wrap(B.reshape(B.iota(classes, dt.int64), tuple(line)), None)
    return hit, goal != ignore_index


def _class_weights(hit: Tensor, counts: Tensor, weight: Tensor, logs: Tensor, axis: int) -> Tensor:
    line = [-1 if i == axis else 1 for i in range(logs.ndim)]
    found = select(hit, weight.reshape(line), 0.0).sum(axis)
    return select(counts, found, 0.0)


def _probability_loss(
    logs: Tensor,
    goal: Tensor,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float,
    axis: int,
) -> Tensor:
    if label_smoothing:
        goal = goal * (1 - label_smoothing) + label_smoothing / logs.shape[axis]
    if weight is not None:
        goal = goal * weight.reshape([-1 if i == axis else 1 for i in range(logs.ndim)])
    loss = -(logs * goal).sum(axis)
    return loss.sum() / loss.numel() if reduction == "mean" else reduce_loss(loss, reduction)


def _smoothed_loss(
    logs: Tensor,
    goal: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    axis: int,
) -> Tensor:
    sharp = _class_loss(logs, goal, weight, ignore_index, "none", "cross_entropy")
    hit, counts = _targets(logs, goal, ignore_index, axis, "cross_entropy")
    spread = logs
    scale = counts.cast(logs.dtype)
    if weight is not None:
        spread = logs * weight.reshape([-1 if i == axis else 1 for i in range(logs.ndim)])
        scale = _class_weights(hit, counts, weight, logs, axis)
    flat = select(counts, -spread.sum(axis), 0.0) / logs.shape[axis]
    loss = sharp * (1 - label_smoothing) + flat * label_smoothing
    return loss.sum() / scale.sum() if reduction == "mean" else reduce_loss(loss, reduction)
