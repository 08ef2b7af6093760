"""Learning rates over time, in closed form, with the names of torch.

A schedule sets ``lr`` of every group of an optimizer; ``step`` goes one further.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import cos, inf, pi, prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import ConfigError, UnsupportedError
from svod.tensor.core.public_functions import guard_class

if TYPE_CHECKING:
    from svod.nn.optimizer import Optimizer


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
        raise UnsupportedError(f"{type(self).__name__} does not define rate", "schedule")

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


guard_class(LRScheduler, "__init__", "step", "load_state_dict")


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
    """Up to max_lr and down again, momentum the other way (Smith and Topin, 2018).

    Momentum is an option that plans are recorded for, so under jit every step is recorded anew:
    ``cycle_momentum=False`` leaves it alone.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ConfigError(f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ConfigError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        self.max_lr, self.total_steps, self.anneal = max_lr, total_steps, anneal_strategy
        self.turn = pct_start * total_steps - 1
        self.start = max_lr / div_factor
        self.end = self.start / final_div_factor
        self.momenta = (base_momentum, max_momentum) if cycle_momentum else None
        if cycle_momentum and not {"momentum", "betas"} & optimizer.defaults.keys():
            raise ConfigError(
                f"OneCycleLR: {type(optimizer).__name__} has no momentum: cycle_momentum=False"
            )
        super().__init__(optimizer)

    def step(self) -> None:
        """Go to the next step."""
        super().step()
        if self.momenta is None:
            return
        low, high = self.momenta
        momentum = self._at(self.last_epoch, high, low, high)
        for group in self.optimizer.param_groups:
            if "momentum" in group:
                group["momentum"] = momentum
            else:
                group["betas"] = (momentum, *group["betas"][1:])

    def rate(self, base: float, step: int) -> float:
        if step > self.total_steps:  # a loop over all steps ends with one call more than rates
            raise ConfigError(f"OneCycleLR: step {step} of {self.total_steps}")
        return self._at(step, self.start, self.max_lr, self.end)

    def _at(self, step: int, start: float, middle: float, end: float) -> float:
        """A number that goes from start to middle and then to end."""
        if step <= self.turn:
            return self._between(start, middle, step / self.turn)
        last = self.total_steps - 1
        return self._between(middle, end, (step - self.turn) / (last - self.turn))

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


class MultiplicativeLR(LRScheduler):
    """Times a factor that a function gives for each step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise ConfigError(f"lr_lambda is a function, not {lr_lambda!r:.60}")
        self.factor = lr_lambda
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * prod([self.factor(i) for i in range(1, step + 1)])


class PolynomialLR(LRScheduler):
    """Down to zero as a power of what is left of the steps."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        if total_iters < 1:
            raise ConfigError(f"total_iters is at least 1, not {total_iters}")
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        left = 1 - min(step, self.total_iters) / self.total_iters
        return base * float(left**self.power)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half waves of a cosine, each ``T_mult`` times as long as the one before."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ConfigError(f"T_0 and T_mult are at least 1, not {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        length, now = self.T_0, step
        if self.T_mult == 1:
            now = step % length
        while now >= length:
            now -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * now / length)) / 2


class CyclicLR(LRScheduler):
    """Up and down between two rates (Smith, 2017); momentum is left alone."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ConfigError(f"CyclicLR: no mode {mode!r}")
        self.up = step_size_up
        self.down = step_size_up if step_size_down is None else step_size_down
        if self.up < 1 or self.down < 1:
            raise ConfigError(f"CyclicLR: {self.up} steps up and {self.down} down")
        self.low, self.high, self.mode, self.gamma = base_lr, max_lr, mode, gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        cycle, now = divmod(step, self.up + self.down)
        height = now / self.up if now <= self.up else 1 - (now - self.up) / self.down
        scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**step}
        return self.low + (self.high - self.low) * height * scale[self.mode]


class ChainedScheduler(LRScheduler):
    """The factors of several schedules together."""

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        self.schedulers = list(schedulers)
        if not self.schedulers:
            raise ConfigError("ChainedScheduler needs at least one schedule")
        super().__init__(self.schedulers[0].optimizer)

    def rate(self, base: float, step: int) -> float:
        if base == 0:
            return 0.0
        return base * prod([s.rate(base, step) / base for s in self.schedulers])


_PLATEAU = ("best", "bad", "resting", "last_epoch")  # the state of ReduceLROnPlateau


class ReduceLROnPlateau:
    """Times ``factor`` when a figure has not become better for ``patience`` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ConfigError(f"ReduceLROnPlateau: modes {mode!r} and {threshold_mode!r}")
        if factor >= 1:
            raise ConfigError(f"ReduceLROnPlateau: the factor is below 1, not {factor}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = inf if mode == "min" else -inf
        self.bad, self.resting = 0, 0
        self.last_epoch = 0

    def step(self, metrics: Any) -> None:
        """Look at the figure of this step."""
        now = float(metrics)
        self.last_epoch += 1
        is_better = self._is_better(now)
        self.best = now if is_better else self.best
        self.bad = 0 if is_better else self.bad + 1
        if self.resting:
            self.resting -= 1
            self.bad = 0
        if self.bad > self.patience:
            for group in self.optimizer.param_groups:
                new = max(group["lr"] * self.factor, self.min_lr)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.resting, self.bad = self.cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on; learning rates are the optimizer's."""
        return {name: getattr(self, name) for name in _PLATEAU}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        for name in _PLATEAU:
            setattr(self, name, state[name])

    def _is_better(self, now: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        step = self.threshold
        if self.threshold_mode == "abs":
            return sign * now < sign * self.best - step
        if self.best in (inf, -inf):
            return sign * now < sign * self.best
        return sign * now < sign * (self.best * (1 - sign * step))

    def get_last_lr(self) -> list[float]:
        """The learning rates in use."""
        return [g["lr"] for g in self.optimizer.param_groups]


guard_class(ReduceLROnPlateau, "__init__", "step")
__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR", "WarmupCosineLR",
]  # fmt: skip
