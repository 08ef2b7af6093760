"""Further optimisers: relatives of Adam, resilient and averaged steps, factored variances."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.dtype.convert import finfo
from svod.nn.optimizer import (
    Group,
    Numbers,
    Optimizer,
    State,
    check_betas,
    corrections,
    decay,
    kept,
    power,
    put,
    running_mean,
    running_square,
    steps,
)
from svod.tensor.ops.elementwise import select
from svod.tensor.tensor import Tensor


class Adadelta(Optimizer):
    """Steps in proportion to the size of former steps (Zeiler, 2012)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        if not 0 <= group["rho"] <= 1:
            raise ConfigError(f"Adadelta: rho is between 0 and 1, not {group['rho']}")

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        rho, eps = group["rho"], group["eps"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        square = running_square(state, "square_avg", p, g, rho, 1 - rho)
        moved = kept(state, "acc_delta", p)
        step = (moved + eps).sqrt() / (square + eps).sqrt() * g
        put(state, "acc_delta", moved * rho + step * step * (1 - rho))
        return p - at["lr"] * step


class Adamax(Optimizer):
    """Adam with the largest gradient of late in place of the mean square."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
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
        return {"rate": scalars["lr"] / (1 - power(group, scalars, "beta1", steps(scalars)))}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        mean = running_mean(state, "exp_avg", p, g, decay(group, at, "beta1")[1])
        second = decay(group, at, "beta2")[0]
        top = kept(state, "exp_inf", p)
        top = put(state, "exp_inf", (top * second).maximum(g.abs() + group["eps"]))
        return p - at["rate"] * (mean / top)


class _Moments(Optimizer):
    """Optimisers over a running mean and a running mean square, with either weight decay."""

    def _check(self, group: Group) -> None:
        check_betas(group["betas"])

    def _decayed(self, p: Tensor, g: Tensor, group: Group, at: Numbers) -> tuple[Tensor, Tensor]:
        if not group["weight_decay"]:
            return p, g
        if group["decoupled_weight_decay"]:
            return p * at["keep"], g
        return p, g + p * group["weight_decay"]

    def _moments(
        self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers
    ) -> tuple[Tensor, Tensor]:
        mean = running_mean(state, "exp_avg", p, g, decay(group, at, "beta1")[1])
        square = running_square(state, "exp_avg_sq", p, g, *decay(group, at, "beta2"))
        return mean, square


class NAdam(_Moments):
    """Adam with Nesterov momentum (Dozat, 2016)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        })  # fmt: skip

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr, first = scalars["lr"], scalars.get("beta1", group["betas"][0])
        step = steps(scalars)
        # the momentum of this step and of the next: 0.96 ** t as exp2
        rate = group["momentum_decay"] * float(np.log2(0.96))
        now = (1 - 0.5 * (step * rate).exp2()) * first
        later = (1 - 0.5 * ((step + 1) * rate).exp2()) * first
        if "mu_product" not in scalars:
            scalars["mu_product"] = Tensor(np.ones((1,)), device=lr.device)
        product = scalars["mu_product"].assign(scalars["mu_product"] * now)
        return {
            "now": lr * (1 - now) / (1 - product),
            "later": lr * later / (1 - product * later),
            "second": 1 - power(group, scalars, "beta2", step),
            "keep": 1 - lr * group["weight_decay"],
        }

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        p, g = self._decayed(p, g, group, at)
        mean, square = self._moments(p, g, state, group, at)
        size = (square / at["second"]).sqrt() + group["eps"]
        return p - at["now"] * (g / size) - at["later"] * (mean / size)


class RAdam(_Moments):
    """Adam that waits until its mean square can be trusted (Liu and others, 2020)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        })  # fmt: skip

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr, second = scalars["lr"], scalars.get("beta2", group["betas"][1])
        step = steps(scalars)
        left, right = corrections(group, scalars, step)
        limit = 2 / (1 - second) - 1
        length = limit - 2 * step * (1 - right) / right
        is_trusted = length > 5
        safe = select(is_trusted, length, 6.0)
        ratio = (safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)
        return {
            "rate": lr / left,
            "adaptive": select(is_trusted, (ratio * right).sqrt(), 0.0),
            "keep": 1 - lr * group["weight_decay"],
        }

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        p, g = self._decayed(p, g, group, at)
        mean, square = self._moments(p, g, state, group, at)
        scaled = at["adaptive"] / (square.sqrt() + group["eps"])
        return p - at["rate"] * mean * select(at["adaptive"] > 0, scaled, 1.0)


class Rprop(Optimizer):
    """A step size for every element that grows while the sign of the gradient stays."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        )

    def _check(self, group: Group) -> None:
        shrink, grow = group["etas"]
        if not 0 < shrink < 1 < grow:
            raise ConfigError(f"Rprop: etas are below and above 1, not {group['etas']}")

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        shrink, grow = group["etas"]
        before = kept(state, "prev", p)
        size = kept(state, "step_size", p, group["lr"])
        turned = g * before
        factor = select(turned > 0, grow, select(turned < 0, shrink, 1.0))
        size = put(state, "step_size", (size * factor).clamp(*group["step_sizes"]))
        g = put(state, "prev", select(turned < 0, 0.0, g))
        return p - g.sign() * size


class ASGD(Optimizer):
    """Gradient descent that also keeps the average of where it has been; see ``state['ax']``."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "maximize": maximize,
        })  # fmt: skip

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr, step = scalars["lr"], steps(scalars)
        for name, start in (("eta", lr.numpy()), ("mu", np.ones((1,)))):
            if name not in scalars:
                scalars[name] = Tensor(np.array(start), device=lr.device)
        eta, share = scalars["eta"], scalars["mu"]
        found = {"eta": eta + 0, "mu": share + 0}
        scalars["eta"].assign(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
        scalars["mu"].assign(1 / (step - group["t0"]).clamp(1.0))
        return found

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        p = p * (1 - group["lambd"] * at["eta"]) - at["eta"] * g
        mean = kept(state, "ax", p)
        put(state, "ax", mean + (p - mean) * at["mu"])
        return p


class Adafactor(Optimizer):
    """Variances of matrices kept as a row and a column (Shazeer and Stern, 2018)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "maximize": maximize,
        })  # fmt: skip

    def _check(self, group: Group) -> None:
        if group["d"] < 1 or group["beta2_decay"] > 0:
            raise ConfigError("Adafactor: d is at least 1 and beta2_decay at most 0")

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr, step = scalars["lr"], steps(scalars)
        return {
            "fresh": step ** group["beta2_decay"],
            "rate": lr.minimum(step.rsqrt()),
            "keep": 1 - lr * group["weight_decay"],
        }

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        small, least = group["eps"]
        small = float(finfo(p.dtype).eps) if small is None else small
        rate = (p.norm() / sqrt(p.numel())).clamp(least) * at["rate"]
        if group["weight_decay"]:
            p = p * at["keep"]
        square = g * g
        if p.ndim > 1:
            rows = self._averaged(state, "row_var", square.mean(-1, True), at)
            columns = self._averaged(state, "col_var", square.mean(-2, True), at)
            square = rows @ columns / rows.mean(-2, True).clamp(small)
        else:
            square = self._averaged(state, "variance", square, at)
        step = square.clamp(small * small).rsqrt() * g
        size = (step.norm() / (sqrt(step.numel()) * group["d"])).clamp(1.0)
        return p - rate / size * step

    @staticmethod
    def _averaged(state: State, name: str, value: Tensor, at: Numbers) -> Tensor:
        before = kept(state, name, value)
        return put(state, name, before + (value - before) * at["fresh"])
