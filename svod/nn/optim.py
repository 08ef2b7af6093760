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
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.nn import schedules as lr_scheduler
from svod.nn.schedules import *  # noqa: F403
from svod.nn.schedules import __all__ as _schedules
from svod.tensor import history
from svod.tensor.elementwise import select
from svod.tensor.guard import guard, guard_class
from svod.tensor.realize import realize
from svod.tensor.tensor import Tensor
from svod.tensor.writes import waiting

Group = dict[str, Any]
State = dict[str, Tensor]
Numbers = dict[str, Tensor]


class Optimizer:
    """The base of optimisers: groups of parameters with options, state, one realised step."""

    def __init_subclass__(cls) -> None:
        guard_class(cls, "__init__")

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

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        """The new value of a parameter; state tensors are assigned on the way."""
        raise NotImplementedError

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        """What all parameters of a group share in this step, in float64 as Python has it."""
        return {"lr": scalars["lr"]}

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
            _scalar(scalars, "lr", group["lr"], group["params"][0].device)
            shared = self._numbers(scalars, group)
            at = {kind: _rounded(shared, kind) for kind in {_number_type(p) for p, _ in trained}}
            for p, state in trained:
                p.assign(self._updated(p, state, group, at[_number_type(p)]))
                changed += [p, *state.values()]
            changed += scalars.values()
        if not changed:
            return loss
        written = [t for t in changed if t.uop.op == O.ASSIGN]
        own = {id(t) for t in written}
        with history.paused():
            realize([*written, *[t for t in waiting() if id(t) not in own]])
        return loss

    def _updated(self, p: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        p.grad.uop = B.contiguous(p.grad.uop)
        g = p.grad.detach()
        if group.get("maximize"):
            g = -g
        return self._update(p.detach(), g, state, group, at).cast(p.dtype).detach()

    def refresh(self) -> None:
        """Write learning rates that were changed into their data, where a plan reads them."""
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            if "lr" in scalars:
                _scalar(scalars, "lr", group["lr"], scalars["lr"].device)

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
            device = group["params"][0].device
            for name, value in given.get("scalars", {}).items():
                scalars[name] = Tensor(np.asarray(value, np.float64), device=device)
        self.state = {}
        for i, state in saved["state"].items():
            self.state[i] = {
                k: Tensor(np.asarray(v), device=tensors[i].device) for k, v in state.items()
            }


def _scalar(scalars: Numbers, name: str, value: float, device: str) -> Tensor:
    """A number of a group as data."""
    found = scalars.get(name)
    if found is None:
        found = scalars[name] = Tensor(np.full((1,), value, np.float64), device=device)
    elif found.numpy()[0] != value:
        found.copyin(np.full((1,), value, np.float64))
    return found


def _number_type(p: Tensor) -> DType:
    return dt.float64 if p.dtype is dt.float64 else dt.float32


def _rounded(numbers: Numbers, dtype: DType) -> Numbers:
    """The numbers in the precision of a parameter, each computed once."""
    return {k: t if t.dtype is dtype else t.cast(dtype).contiguous() for k, t in numbers.items()}


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


def _power(scalars: Numbers, name: str, beta: float) -> Tensor:
    """The running power of a beta, multiplied once more; the first is the beta itself."""
    if name not in scalars:
        scalars[name] = Tensor(np.ones((1,), np.float64), device=scalars["lr"].device)
    return scalars[name].assign(scalars[name] * beta)


def _corrections(scalars: Numbers, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """What running means that start from zero lack in this step, for both betas."""
    first, second = betas
    return 1 - _power(scalars, "beta1_power", first), 1 - _power(scalars, "beta2_power", second)


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

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        momentum, dampening = group["momentum"], group["dampening"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if momentum:
            is_first = "momentum_buffer" not in state
            buffer = _kept(state, "momentum_buffer", p)
            fresh = g if is_first or not dampening else g * (1 - dampening)
            buffer = _put(state, "momentum_buffer", buffer * momentum + fresh)
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
        _check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        first, second = _corrections(scalars, group["betas"])
        found = {"rate": lr / first, "root": second.sqrt()}
        if self.is_decoupled:
            found["keep"] = 1 - lr * group["weight_decay"]
        return found

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        first, second = group["betas"]
        if self.is_decoupled:
            p = p * at["keep"]
        elif group["weight_decay"]:
            g = g + p * group["weight_decay"]
        mean = _kept(state, "exp_avg", p)
        mean = _put(state, "exp_avg", mean + (g - mean) * (1 - first))
        square = _kept(state, "exp_avg_sq", p)
        square = _put(state, "exp_avg_sq", square * second + g * g * (1 - second))
        if group["amsgrad"]:
            top = _kept(state, "max_exp_avg_sq", p)
            square = _put(state, "max_exp_avg_sq", top.maximum(square))
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
        return p - at["lr"] * step


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

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        if group["lr_decay"]:
            if "steps" not in scalars:
                scalars["steps"] = Tensor(np.full((1,), -1.0), device=lr.device)
            steps = scalars["steps"].assign(scalars["steps"] + 1)
            lr = lr / (steps * group["lr_decay"] + 1)
        return {"lr": lr}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        total = _kept(state, "sum", p, group["initial_accumulator_value"])
        total = _put(state, "sum", total + g * g)
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
        _check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        lr = scalars["lr"]
        return {"lr": lr, "keep": 1 - lr * group["weight_decay"]}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        first, second = group["betas"]
        mean = _kept(state, "exp_avg", p)
        step = (mean * first + g * (1 - first)).sign()
        _put(state, "exp_avg", mean * second + g * (1 - second))
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
        _check_betas(group["betas"])

    def _numbers(self, scalars: Numbers, group: Group) -> Numbers:
        first, second = _corrections(scalars, group["betas"])
        return {"lr": scalars["lr"], "first": first, "root": second.sqrt()}

    def _update(self, p: Tensor, g: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        first, second = group["betas"]
        mean = _kept(state, "exp_avg", p)
        mean = _put(state, "exp_avg", mean + (g - mean) * (1 - first))
        square = _kept(state, "exp_avg_sq", p)
        square = _put(state, "exp_avg_sq", square * second + g * g * (1 - second))
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


guard_class(Optimizer, "__init__", "add_param_group", "step", "load_state_dict")
guard(globals())
__all__ = [
    "LAMB", "SGD", "Adagrad", "Adam", "AdamW", "Lion", "Muon", "Optimizer", "RMSprop",
    "clip_grad_norm_", "clip_grad_value_", "lr_scheduler", "orthogonalized", *_schedules,
]  # fmt: skip
