"""Optimisers: new values of parameters from their gradients.

``step`` builds the updates of all parameters as one graph and realises it once, together with
everything that still has to read the old values: the loss, the gradients, running statistics.
Updates are assignments, so parameters and state keep their memory. Learning rates and powers of
betas are data, not constants: changing them compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from svod.base.errors import ConfigError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.nn.schedules import (
    ConstantLR as ConstantLR,
)
from svod.nn.schedules import (
    CosineAnnealingLR as CosineAnnealingLR,
)
from svod.nn.schedules import (
    ExponentialLR as ExponentialLR,
)
from svod.nn.schedules import (
    LambdaLR as LambdaLR,
)
from svod.nn.schedules import (
    LinearLR as LinearLR,
)
from svod.nn.schedules import (
    MultiStepLR as MultiStepLR,
)
from svod.nn.schedules import (
    OneCycleLR as OneCycleLR,
)
from svod.nn.schedules import (
    SequentialLR as SequentialLR,
)
from svod.nn.schedules import (
    StepLR as StepLR,
)
from svod.nn.schedules import (
    WarmupCosineLR as WarmupCosineLR,
)
from svod.tensor import history
from svod.tensor.elementwise import select
from svod.tensor.realize import realize
from svod.tensor.tensor import Tensor
from svod.tensor.writes import waiting

Group = dict[str, Any]
State = dict[str, Tensor]


class Optimizer:
    """The base of optimisers: groups of parameters with options, state, one realised step."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[int, State] = {}  # by the position of the parameter over all groups
        self._scalars: list[dict[str, Tensor]] = []  # per group: numbers kept as data
        given = list(params)
        if not given:
            raise ConfigError(f"{type(self).__name__} got no parameters")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """More parameters, with options of their own."""
        tensors = group["params"]
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in tensors:
            if not isinstance(p, Tensor) or p.dtype.kind != "f":
                raise ConfigError(f"an optimizer trains float tensors, not {p!r:.60}")
            if id(p) in known:
                raise ConfigError("a parameter appears in two groups")
            known.add(id(p))
        if unknown := set(group) - set(self.defaults) - {"params"}:
            raise ConfigError(f"{type(self).__name__} has no options {sorted(unknown)}")
        full = {**self.defaults, **group, "params": tensors}
        if full["lr"] < 0:
            raise ConfigError(f"a learning rate is 0 or more, not {full['lr']}")
        full["initial_lr"] = full["lr"]
        self._check(full)
        with history.paused():
            realize([p for p in tensors if not p.is_realized])
        self.param_groups.append(full)
        self._scalars.append({})

    def _check(self, group: Group) -> None:
        """Refuse options that make no sense."""

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        """The new value of a parameter; state tensors are assigned on the way."""
        raise NotImplementedError

    def _begin(self, scalars: dict[str, Tensor], group: Group) -> None:
        """Bring numbers that all parameters of a group share up to date."""

    # -- the step ------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, in one plan."""
        loss = None if closure is None else closure()
        changed: list[Tensor] = []
        position = 0
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            trained = []
            for p in group["params"]:
                if p.grad is not None:
                    trained.append((p, self.state.setdefault(position, {})))
                position += 1
            if not trained:
                continue
            lr = _scalar(scalars, "lr", group["lr"])
            self._begin(scalars, group)
            for p, state in trained:
                p.assign(self._updated(p, state, group, lr))
                changed += [p, *state.values()]
            changed += scalars.values()
        if not changed:
            return loss
        written = [t for t in changed if t.uop.op == O.ASSIGN]
        own = {id(t) for t in written}
        with history.paused():
            realize([*written, *[t for t in waiting() if id(t) not in own]])
        return loss

    def _updated(self, p: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        p.grad.uop = B.contiguous(p.grad.uop)
        g = p.grad.detach()
        if group.get("maximize"):
            g = -g
        return self._update(p.detach(), g, state, group, lr).cast(p.dtype).detach()

    def refresh(self) -> None:
        """Write learning rates that were changed into their data, where a plan reads them."""
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            if "lr" in scalars:
                _scalar(scalars, "lr", group["lr"])

    def _scalars_of(self, group: Group) -> dict[str, Tensor]:
        for known, scalars in zip(self.param_groups, self._scalars, strict=True):
            if known is group:
                return scalars
        raise ConfigError("the group is not one of this optimizer")

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options and state tensors, numbered as the parameters are."""
        groups = []
        position = 0
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            plain = {k: v for k, v in group.items() if k != "params"}
            numbers = list(range(position, position + len(group["params"])))
            position += len(numbers)
            shared = {k: t.numpy() for k, t in scalars.items() if k != "lr"}
            groups.append({**plain, "params": numbers, "scalars": shared})
        state = {i: {k: t.numpy() for k, t in s.items()} for i, s in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state."""
        groups = saved["param_groups"]
        sizes = [len(g["params"]) for g in groups]
        if sizes != [len(g["params"]) for g in self.param_groups]:
            raise ConfigError(f"the saved state has groups of {sizes} parameters")
        tensors = [p for g in self.param_groups for p in g["params"]]
        for group, scalars, given in zip(self.param_groups, self._scalars, groups, strict=True):
            group.update({k: v for k, v in given.items() if k not in ("params", "scalars")})
            scalars.clear()
            scalars.update({k: Tensor(v) for k, v in given.get("scalars", {}).items()})
        self.state = {}
        for i, state in saved["state"].items():
            self.state[i] = {
                k: Tensor(np.asarray(v), device=tensors[i].device) for k, v in state.items()
            }


def _scalar(scalars: dict[str, Tensor], name: str, value: float) -> Tensor:
    """A number of a group as data."""
    found = scalars.get(name)
    if found is None:
        found = scalars[name] = Tensor(np.full((1,), value, np.float32))
    elif found.numpy()[0] != np.float32(value):
        found.copyin(np.full((1,), value, np.float32))
    return found


def _kept(state: State, name: str, like: Tensor, value: float = 0.0) -> Tensor:
    """A state tensor of the shape and dtype of a parameter, made at first use."""
    found = state.get(name)
    if found is None:
        from svod.dtype.convert import to_numpy

        start = np.full(like.shape, value, to_numpy(like.dtype))
        found = state[name] = Tensor(start, device=like.device)
    return found


def _put(state: State, name: str, value: Tensor) -> Tensor:
    """Assign a state tensor; what follows reads the new value."""
    found = state[name]
    return found.assign(value.cast(found.dtype))


def _counted(scalars: dict[str, Tensor], **betas: float) -> None:
    """Multiply the running powers of betas, which start from 1."""
    for name, beta in betas.items():
        if name not in scalars:
            scalars[name] = Tensor(np.ones((1,), np.float32))
        scalars[name].assign(scalars[name] * beta)


def _check_betas(betas: Sequence[float]) -> None:
    if any(not 0 <= b < 1 for b in betas):
        raise ConfigError(f"betas are from 0 up to but not including 1: {tuple(betas)}")


# -- the optimisers ----------------------------------------------------------------------------


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

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        momentum, dampening = group["momentum"], group["dampening"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if momentum:
            is_first = "momentum_buffer" not in state
            buffer = _kept(state, "momentum_buffer", p)
            fresh = g if is_first or not dampening else g * (1 - dampening)
            buffer = _put(state, "momentum_buffer", buffer * momentum + fresh)
            g = g + buffer * momentum if group["nesterov"] else buffer
        return p - lr * g


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
        _check_betas(group["betas"])

    def _begin(self, scalars: dict[str, Tensor], group: Group) -> None:
        first, second = group["betas"]
        _counted(scalars, beta1_power=first, beta2_power=second)

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        first, second = group["betas"]
        scalars = self._scalars_of(group)
        if self.is_decoupled:
            p = p * (1 - lr * group["weight_decay"])
        elif group["weight_decay"]:
            g = g + p * group["weight_decay"]
        mean = _kept(state, "exp_avg", p)
        mean = _put(state, "exp_avg", mean + (g - mean) * (1 - first))
        square = _kept(state, "exp_avg_sq", p)
        square = _put(state, "exp_avg_sq", square * second + g * g * (1 - second))
        if group["amsgrad"]:
            top = _kept(state, "max_exp_avg_sq", p)
            square = _put(state, "max_exp_avg_sq", top.maximum(square))
        rate = lr / (1 - scalars["beta1_power"])
        scale = (1 - scalars["beta2_power"]).rsqrt()
        return p - rate * mean / (square.sqrt() * scale + group["eps"])


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

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        alpha = group["alpha"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        square = _kept(state, "square_avg", p)
        square = _put(state, "square_avg", square * alpha + g * g * (1 - alpha))
        if group["centered"]:
            mean = _kept(state, "grad_avg", p)
            mean = _put(state, "grad_avg", mean + (g - mean) * (1 - alpha))
            square = square - mean * mean
        step = g / (square.sqrt() + group["eps"])
        if group["momentum"]:
            buffer = _kept(state, "momentum_buffer", p)
            step = _put(state, "momentum_buffer", buffer * group["momentum"] + step)
        return p - lr * step


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of their squares."""

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

    def _begin(self, scalars: dict[str, Tensor], group: Group) -> None:
        if group["lr_decay"]:
            if "steps" not in scalars:
                scalars["steps"] = Tensor(np.full((1,), -1.0, np.float32))
            scalars["steps"].assign(scalars["steps"] + 1)

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if group["lr_decay"]:
            lr = lr / (self._scalars_of(group)["steps"] * group["lr_decay"] + 1)
        total = _kept(state, "sum", p, group["initial_accumulator_value"])
        total = _put(state, "sum", total + g * g)
        return p - lr * g / (total.sqrt() + group["eps"])


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
        _check_betas(group["betas"])

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        first, second = group["betas"]
        mean = _kept(state, "exp_avg", p)
        step = (mean * first + g * (1 - first)).sign()
        _put(state, "exp_avg", mean * second + g * (1 - second))
        if group["weight_decay"]:
            p = p * (1 - lr * group["weight_decay"])
        return p - lr * step


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
        _check_betas(group["betas"])

    def _begin(self, scalars: dict[str, Tensor], group: Group) -> None:
        first, second = group["betas"]
        _counted(scalars, beta1_power=first, beta2_power=second)

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        first, second = group["betas"]
        scalars = self._scalars_of(group)
        mean = _kept(state, "exp_avg", p)
        mean = _put(state, "exp_avg", mean + (g - mean) * (1 - first))
        square = _kept(state, "exp_avg_sq", p)
        square = _put(state, "exp_avg_sq", square * second + g * g * (1 - second))
        upright = mean / (1 - scalars["beta1_power"])
        scale = (1 - scalars["beta2_power"]).rsqrt()
        step = upright / (square.sqrt() * scale + group["eps"])
        if group["weight_decay"]:
            step = step + p * group["weight_decay"]
        size, length = p.norm(), step.norm()
        trust = select((size > 0) & (length > 0), size / length, 1.0)
        return p - lr * trust * step


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

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, lr: Tensor) -> Tensor:
        momentum = group["momentum"]
        buffer = _kept(state, "momentum_buffer", p)
        buffer = _put(state, "momentum_buffer", buffer + (g - buffer) * (1 - momentum))
        step = g + (buffer - g) * momentum if group["nesterov"] else buffer
        step = orthogonalized(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * sqrt(max(rows, columns))
        else:
            ratio = sqrt(max(1.0, rows / columns))
        return p * (1 - lr * group["weight_decay"]) - lr * ratio * step


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
