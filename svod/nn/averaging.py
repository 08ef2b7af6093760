"""Averages of weights over training: running means, exponential ones, and their learning rate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from math import cos, pi
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.nn.module import Module
from svod.nn.normalization import _BatchNorm
from svod.nn.optimizer import Optimizer
from svod.nn.schedules import LRScheduler
from svod.tensor.core import history
from svod.tensor.core.public_functions import guard
from svod.tensor.tensor import Tensor

Average = Callable[[Tensor, Tensor, Tensor], Tensor]  # old average, new value, how many before
Averages = Callable[[list[Tensor], list[Tensor], Tensor], None]  # the same of all, in place


def get_swa_avg_fn() -> Average:
    """The mean of all values so far."""
    return lambda average, value, count: average + (value - average) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A mean in which older values count less and less."""
    _check_decay(decay)
    return lambda average, value, count: average * decay + value * (1 - decay)


def get_swa_multi_avg_fn() -> Averages:
    """`get_swa_avg_fn` over lists of tensors."""
    return _in_place(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """`get_ema_avg_fn` over lists of tensors."""
    return _in_place(get_ema_avg_fn(decay))


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ConfigError(f"a decay is from 0 to 1, not {decay}")


def _in_place(one: Average) -> Averages:
    def update(averages: list[Tensor], values: list[Tensor], count: Tensor) -> None:
        for average, value in zip(averages, values, strict=True):
            average.copy_(one(average, value, count))

    return update


class AveragedModel(Module):
    """A copy of a model whose weights are averages of those it was shown.

    Example:
        >>> import svod
        >>> model = svod.nn.Linear(2, 1)
        >>> average = svod.optim.swa_utils.AveragedModel(model)
        >>> average.update_parameters(model)
        >>> average(svod.ones(3, 2)).shape
        (3, 1)
    """

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ConfigError("AveragedModel takes avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", Tensor(np.zeros((), np.int64), device=device))
        self.update = multi_avg_fn or _in_place(avg_fn or get_swa_avg_fn())
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.module(*args, **options)

    def update_parameters(self, model: Module) -> None:
        """Let the weights of a model count; the first are taken as they are."""
        with history.paused():
            averages, values = self._tensors(self.module), self._tensors(model)
            values = [v.detach().to(a.device) for a, v in zip(averages, values, strict=True)]
            if self.n_averaged.item() == 0:
                for average, value in zip(averages, values, strict=True):
                    average.copy_(value)
            else:
                pairs = zip(averages, values, strict=True)
                numbers = [(a, v) for a, v in pairs if a.dtype.kind in "fc"]
                self.update([a for a, _ in numbers], [v for _, v in numbers], self.n_averaged)
            if not self.use_buffers:
                for mine, other in zip(self.module.buffers(), model.buffers(), strict=True):
                    mine.copy_(other.detach().to(mine.device))
            self.n_averaged += 1

    def _tensors(self, model: Module) -> list[Tensor]:
        buffers = list(model.buffers()) if self.use_buffers else []
        return [t.detach() for t in (*model.parameters(), *buffers)]


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Take the statistics of batch normalisations anew, as means over the batches of a loader.

    Of a batch that is a list or tuple, the first element is the input.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not layers:
        return
    momenta = [m.momentum for m in layers]
    was_training = model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    try:
        with history.paused():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the learning rates there are to one for averaging, within ``anneal_epochs`` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ConfigError(f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        if anneal_epochs < 0:
            raise ConfigError(f"anneal_epochs is 0 or more, not {anneal_epochs}")
        count = len(optimizer.param_groups)
        self.targets = list(swa_lr) if isinstance(swa_lr, list) else [swa_lr] * count
        if len(self.targets) != count:
            raise ConfigError(f"{count} groups need as many rates, got {self.targets}")
        self.epochs, self.is_linear = anneal_epochs, anneal_strategy == "linear"
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is done."""
        if not self.epochs:
            return float(step > 0)
        t = min(1.0, max(0.0, step / self.epochs))
        return t if self.is_linear else (1 - cos(pi * t)) / 2

    def step(self) -> None:
        """One further from where the rates are now: another schedule may have set them."""
        self.last_epoch += 1
        before, now = self._share(self.last_epoch - 1), self._share(self.last_epoch)
        for group, target in zip(self.optimizer.param_groups, self.targets, strict=True):
            start = target if before == 1 else (group["lr"] - before * target) / (1 - before)
            group["lr"] = target * now + start * (1 - now)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the rates are those of the optimizer."""
        self.base_lrs, self.last_epoch = list(state["base_lrs"]), state["last_epoch"]


guard(globals())
__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip
