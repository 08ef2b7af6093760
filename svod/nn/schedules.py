"""Learning rates over time, in closed form, with the names of torch.

A schedule sets ``lr`` of every group of an optimizer; ``step`` goes one further.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import cos, pi
from typing import TYPE_CHECKING, Any

from svod.base.errors import ConfigError
from svod.tensor.guard import guard_class

if TYPE_CHECKING:
    from svod.nn.optim import Optimizer


class LRScheduler:
    """The base of schedules: ``rate(base, step)`` says the learning rate."""

    def __init_subclass__(cls) -> None:
        guard_class(cls, "__init__", "step")

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.base_lrs = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, step: int) -> float:
        """The learning rate at a step."""
        raise NotImplementedError

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self.rate(base, self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """The learning rates in use."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.base_lrs, self.last_epoch = list(state["base_lrs"]), state["last_epoch"] - 1
        self.step()


class LambdaLR(LRScheduler):
    """The base rate times a function of the step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.lr_lambda(step)


guard_class(LRScheduler, "step", "load_state_dict")


class StepLR(LRScheduler):
    """Times gamma every step_size steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return float(base * self.gamma ** (step // self.step_size))


class MultiStepLR(LRScheduler):
    """Times gamma at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return float(base * self.gamma ** bisect_right(self.milestones, step))


class ExponentialLR(LRScheduler):
    """Times gamma every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return float(base * self.gamma**step)


class ConstantLR(LRScheduler):
    """The base rate times a factor for some steps, then the base rate."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.factor if step < self.total_iters else base


class LinearLR(LRScheduler):
    """A factor that goes in a line from start to end: a warmup."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ConfigError(f"factors are from 0 to 1: {start_factor}, {end_factor}")
        self.start, self.end, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return base * (self.start + (self.end - self.start) * done)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate to eta_min in T_max steps."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * step / self.T_max)) / 2


class WarmupCosineLR(LRScheduler):
    """A line from 0 to the base rate, then half a cosine to eta_min."""

    def __init__(
        self, optimizer: Optimizer, warmup: int, total_steps: int, eta_min: float = 0.0
    ) -> None:
        if not 0 <= warmup < total_steps:
            raise ConfigError(f"a warmup of {warmup} steps does not fit {total_steps} steps")
        self.warmup, self.total_steps, self.eta_min = warmup, total_steps, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        if step < self.warmup:
            return base * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / (self.total_steps - self.warmup))
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * done)) / 2


class OneCycleLR(LRScheduler):
    """Up to max_lr and down again (Smith and Topin, 2018); momentum is left alone."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ConfigError(f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        self.max_lr, self.total_steps, self.anneal = max_lr, total_steps, anneal_strategy
        self.turn = pct_start * total_steps - 1
        self.start = max_lr / div_factor
        self.end = self.start / final_div_factor
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        if step > self.total_steps:  # a loop over all steps ends with one call more than rates
            raise ConfigError(f"OneCycleLR: step {step} of {self.total_steps}")
        if step <= self.turn:
            return self._between(self.start, self.max_lr, step / self.turn)
        last = self.total_steps - 1
        return self._between(self.max_lr, self.end, (step - self.turn) / (last - self.turn))

    def _between(self, start: float, end: float, done: float) -> float:
        if self.anneal == "linear":
            return start + (end - start) * done
        return end + (start - end) / 2 * (1 + cos(pi * done))


class SequentialLR(LRScheduler):
    """Several schedules one after the other, each from its own start."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ConfigError(f"{len(schedulers)} schedules need one milestone less")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        place = bisect_right(self.milestones, step)
        start = self.milestones[place - 1] if place else 0
        return self.schedulers[place].rate(base, step - start)
