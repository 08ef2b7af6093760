"""Optimisers with torch's names, and gradient clipping; ``optimizer`` has their base."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from svod.base.errors import ConfigError, ShapeError
from svod.ir import build as B
from svod.nn import schedules as lr_scheduler
from svod.nn.adaptive import ASGD, Adadelta, Adafactor, Adamax, NAdam, RAdam, Rprop
from svod.nn.lbfgs import LBFGS
from svod.nn.optimizer import (
    Group,
    Numbers,
    Optimizer,
    State,
    check_betas,
    corrections,
    decay,
    kept,
    put,
    running_mean,
    running_square,
    steps,
)
from svod.nn.schedules import *  # noqa: F403
from svod.nn.schedules import __all__ as _schedules
from svod.tensor.core.public_functions import guard
from svod.tensor.ops.elementwise import select
from svod.tensor.tensor import Tensor


class SGD(Optimizer):
    """Gradient descent with momentum, Nesterov momentum and weight decay."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ConfigError("nesterov needs momentum and no dampening")

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        dampening = group["dampening"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if group["momentum"]:
            momentum, _ = decay(group, at, "momentum")
            is_first = "momentum_buffer" not in state
            buffer = kept(state, "momentum_buffer", p)
            fresh = g if is_first or not dampening else g * (1 - dampening)
            buffer = put(state, "momentum_buffer", buffer * momentum + fresh)
            g = g + buffer * momentum if group["nesterov"] else buffer
        return p - at["lr"] * g


class Adam(Optimizer):
    """Adam of Kingma and Ba."""

    is_decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        first, second = corrections(group, scalars, steps(scalars))
        found = {"rate": lr / first, "root": second.sqrt()}
        if self.is_decoupled:
            found["keep"] = 1 - lr * group["weight_decay"]
        return found

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        if self.is_decoupled:
            p = p * at["keep"]
        elif group["weight_decay"]:
            g = g + p * group["weight_decay"]
        mean = running_mean(state, "exp_avg", p, g, decay(group, at, "beta1")[1])
        square = running_square(state, "exp_avg_sq", p, g, *decay(group, at, "beta2"))
        if group["amsgrad"]:
            top = kept(state, "max_exp_avg_sq", p)
            square = put(state, "max_exp_avg_sq", top.maximum(square))
        return p - at["rate"] * (mean / (square.sqrt() / at["root"] + group["eps"]))


class AdamW(Adam):
    """Adam with weight decay apart from the gradient."""

    is_decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize)


class RMSprop(Optimizer):
    """Gradients divided by a running root mean square."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "maximize": maximize,
        })  # fmt: skip

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        alpha = group["alpha"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        square = running_square(state, "square_avg", p, g, alpha, 1 - alpha)
        if group["centered"]:
            mean = kept(state, "grad_avg", p)
            mean = put(state, "grad_avg", mean + (g - mean) * (1 - alpha))
            square = square - mean * mean
        step = g / (square.sqrt() + group["eps"])
        if group["momentum"]:
            buffer = kept(state, "momentum_buffer", p)
            step = put(state, "momentum_buffer", buffer * decay(group, at, "momentum")[0] + step)
        return p - at["lr"] * step


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of their squares."""

    first_step = -1.0

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "eps": eps,
            "maximize": maximize,
        })  # fmt: skip

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        if group["lr_decay"]:
            lr = lr / (steps(scalars, self.first_step) * group["lr_decay"] + 1)
        return {"lr": lr}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        total = kept(state, "sum", p, group["initial_accumulator_value"])
        total = put(state, "sum", total + g * g)
        return p - at["lr"] * g / (total.sqrt() + group["eps"])


class Lion(Optimizer):
    """The sign of an interpolated momentum (Chen and others, 2023)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _check(self, group: Group) -> None:
        check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        return {"lr": lr, "keep": 1 - lr * group["weight_decay"]}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        first, first_rest = decay(group, at, "beta1")
        second, second_rest = decay(group, at, "beta2")
        mean = kept(state, "exp_avg", p)
        step = (mean * first + g * first_rest).sign()
        put(state, "exp_avg", mean * second + g * second_rest)
        if group["weight_decay"]:
            p = p * at["keep"]
        return p - at["lr"] * step


class LAMB(Optimizer):
    """Adam steps scaled to the size of each parameter (You and others, 2020)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        first, second = corrections(group, scalars, steps(scalars))
        return {"lr": scalars["lr"], "first": first, "root": second.sqrt()}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        mean = running_mean(state, "exp_avg", p, g, decay(group, at, "beta1")[1])
        square = running_square(state, "exp_avg_sq", p, g, *decay(group, at, "beta2"))
        step = mean / at["first"] / (square.sqrt() / at["root"] + group["eps"])
        if group["weight_decay"]:
            step = step + p * group["weight_decay"]
        size, length = p.norm(), step.norm()
        trust = select((size > 0) & (length > 0), size / length, 1.0)
        return p - at["lr"] * trust * step


class Muon(Optimizer):
    """Momentum made orthogonal by Newton-Schulz steps, for matrices (Jordan and others, 2024)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        for p in group["params"]:
            if p.ndim != 2:
                raise ShapeError(f"Muon trains matrices, not a parameter of shape {p.shape}")
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ConfigError(f"adjust_lr_fn {group['adjust_lr_fn']!r} is unknown")

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        return {"lr": lr, "keep": 1 - lr * group["weight_decay"]}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        momentum, rest = decay(group, at, "momentum")
        buffer = kept(state, "momentum_buffer", p)
        buffer = put(state, "momentum_buffer", buffer + (g - buffer) * rest)
        step = g + (buffer - g) * momentum if group["nesterov"] else buffer
        step = orthogonalized(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * sqrt(max(rows, columns))
        else:
            ratio = sqrt(max(1.0, rows / columns))
        return p * at["keep"] - at["lr"] * ratio * step


def orthogonalized(
    x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with singular values near 1 and the singular vectors of x."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = (x / x.norm().clamp(min=eps)).contiguous()
    for _ in range(steps):
        gram = (x @ x.T).contiguous()
        x = (x * a + (gram * b + (gram @ gram) * c).contiguous() @ x).contiguous()
    return x.T if is_tall else x


# -- clipping ----------------------------------------------------------------------------------


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients so that their common norm is at most ``max_norm``; returns the norm."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    trained = [p for p in given if p.grad is not None]
    if not trained:
        return Tensor(0.0)
    for p in trained:
        p.grad.uop = B.contiguous(p.grad.uop)
    norms = [p.grad.norm(norm_type).float() for p in trained]
    total = norms[0]
    if norm_type == float("inf"):
        for n in norms[1:]:
            total = total.maximum(n)
    elif len(norms) > 1:
        total = sum([n**norm_type for n in norms[1:]], norms[0] ** norm_type) ** (1 / norm_type)
    total = total.contiguous()
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for p in trained:
        p.grad = (p.grad * scale).cast(p.dtype)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of the gradients to -clip_value .. clip_value."""
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    for p in given:
        if p.grad is not None:
            p.grad = p.grad.clamp(-clip_value, clip_value)


guard(globals())
__all__ = [
    "ASGD", "LAMB", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "Lion", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop",
    "clip_grad_norm_", "clip_grad_value_", "lr_scheduler", *_schedules,
]  # fmt: skip
