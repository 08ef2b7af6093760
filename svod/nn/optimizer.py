"""The base of optimisers: groups of parameters with options, state, one realised step.

``step`` builds the updates of all parameters as one graph and realises it once, together with
everything that still has to read the old values: the loss, the gradients, running statistics.
Updates are assignments, so parameters and state keep their memory. Learning rates and powers of
betas are data, not constants: changing them compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.tensor import history
from svod.tensor.guard import guard_class
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


def kept(state: State, name: str, like: Tensor, value: float = 0.0) -> Tensor:
    """A state tensor of the shape and dtype of a parameter, made at first use."""
    found = state.get(name)
    if found is None:
        from svod.dtype.convert import to_numpy

        start = np.full(like.shape, value, to_numpy(like.dtype))
        found = state[name] = Tensor(start, device=like.device)
    return found


def put(state: State, name: str, value: Tensor) -> Tensor:
    """Assign a state tensor; what follows reads the new value."""
    found = state[name]
    return found.assign(value.cast(found.dtype))


def power(scalars: Numbers, name: str, beta: float) -> Tensor:
    """The running power of a beta, multiplied once more; the first is the beta itself."""
    if name not in scalars:
        scalars[name] = Tensor(np.ones((1,), np.float64), device=scalars["lr"].device)
    return scalars[name].assign(scalars[name] * beta)


def corrections(scalars: Numbers, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """What running means that start from zero lack in this step, for both betas."""
    first, second = betas
    return 1 - power(scalars, "beta1_power", first), 1 - power(scalars, "beta2_power", second)


def check_betas(betas: Sequence[float]) -> None:
    if any(not 0 <= b < 1 for b in betas):
        raise ConfigError(f"betas are from 0 up to but not including 1: {tuple(betas)}")


def steps(scalars: Numbers, start: float = 0.0) -> Tensor:
    """The number of this step, counted from one more than the start."""
    if "steps" not in scalars:
        scalars["steps"] = Tensor(np.full((1,), start), device=scalars["lr"].device)
    return scalars["steps"].assign(scalars["steps"] + 1)


def running_mean(state: State, name: str, p: Tensor, g: Tensor, beta: float) -> Tensor:
    """The mean of gradients so far, older ones counting less."""
    mean = kept(state, name, p)
    return put(state, name, mean + (g - mean) * (1 - beta))


def running_square(state: State, name: str, p: Tensor, g: Tensor, beta: float) -> Tensor:
    """The mean square of gradients so far, older ones counting less."""
    return put(state, name, kept(state, name, p) * beta + g * g * (1 - beta))


guard_class(Optimizer, "__init__", "add_param_group", "step", "load_state_dict")
