"""The base of optimisers: groups of parameters with options, state, one realised step.

``step`` builds the updates of all parameters as one graph and realises it once, together with
everything that still has to read the old values: the loss, the gradients, running statistics.
Updates are assignments, so parameters and state keep their memory. Learning rates and powers of
betas are data, not constants: changing them compiles nothing. A momentum, or betas, that a schedule
changes become data at the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.placement import is_mesh, mesh_of
from svod.tensor.core import history, tracing
from svod.tensor.core.public_functions import guard_class
from svod.tensor.core.recorded_settings import Table, is_plain
from svod.tensor.recording.realize import realize
from svod.tensor.tensor import Tensor
from svod.tensor.views.aliases import give
from svod.tensor.views.pending_writes import waiting


class State(dict[str, Tensor]):
    """The state of one parameter, and where it is kept."""

    __slots__ = ("beside", "place")

    def __init__(
        self, tensors: Any, beside: Tensor, place: Callable[[Tensor], Tensor] | None
    ) -> None:
        super().__init__(tensors)
        self.beside = beside  # the parameter
        self.place = place  # None: as the parameter is


Numbers = dict[str, Tensor]


class Group(Table):
    """Parameters and their options.

    Plans read learning rates as data, and the momentum or the betas once they have changed; all
    else is recorded.
    """

    __slots__ = ("varying",)
    free = frozenset(("lr", "initial_lr", "params"))

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.varying: set[str] = set()  # of the momentum and the betas, what has changed

    def is_data(self, key: Any, value: Any) -> bool:
        if key not in ("momentum", "betas") or key not in self or self[key] == value:
            return super().is_data(key, value)
        is_known = key in self.varying
        self.varying.add(key)
        return is_known and bool(value) == bool(self[key])  # without momentum is another step

    def decays(self) -> dict[str, float]:
        """The values of what varies, each beta by itself."""
        found = {"momentum": self["momentum"]} if "momentum" in self.varying else {}
        if "betas" in self.varying:
            found |= {f"beta{number}": beta for number, beta in enumerate(self["betas"], 1)}
        return found


_NEVER_NEGATIVE = frozenset((
    "lr", "momentum", "weight_decay", "eps", "alpha", "lr_decay", "initial_accumulator_value",
    "momentum_decay",
))  # fmt: skip


class Optimizer:
    """The base of optimisers: groups of parameters with options, state, one realised step."""

    first_step = 0.0  # what ``steps`` counts from

    def __init_subclass__(cls) -> None:
        guard_class(cls, "__init__")

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.place_state: Callable[[Tensor], Tensor] | None = None  # where state is put when made
        self.state: dict[int, State] = {}  # by the position of the parameter over all groups
        self._scalars: list[dict[str, Tensor]] = []  # per group: numbers kept as data
        given = list(params)
        if not given:
            raise ConfigError(f"{type(self).__name__} got no parameters")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
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
        full = Group({**self.defaults, **group, "params": tensors})
        for name in _NEVER_NEGATIVE & full.keys():
            for value in full[name] if isinstance(full[name], tuple) else (full[name],):
                if value is not None and not value >= 0:
                    raise ConfigError(f"{type(self).__name__}: {name} is 0 or more, not {value}")
        full["initial_lr"] = full["lr"]
        self._check(full)
        with history.paused():
            realize([p for p in tensors if not p.is_realized])
        self.param_groups.append(full)
        self._scalars.append({})

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])

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
        """Forget the gradients, or make zeros of those there are."""
        forget_gradients([p for g in self.param_groups for p in g["params"]], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, in one plan."""
        loss = None if closure is None else closure()
        tracing.look_into(self)
        with self._undone_on_error():
            self._step()
        return loss

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """Assignments that could not be made do not wait to be made later."""
        state = {i: State(s, s.beside, s.place) for i, s in self.state.items()}
        scalars = [dict(s) for s in self._scalars]
        tensors = [p for group in self.param_groups for p in group["params"]]
        for known in (*state.values(), *scalars):
            tensors += known.values()
        before = [(t, t.uop) for t in tensors]
        try:
            yield
        except BaseException:
            self.state, self._scalars = state, scalars
            for t, node in before:
                if t.uop is not node:
                    give(t, node, t._device)
            raise

    def _step(self) -> None:
        changed: list[Tensor] = []
        position = 0
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            trained = []
            for p in group["params"]:
                if p.grad is not None:
                    trained.append(
                        (p, self.state.setdefault(position, State((), p, self.place_state)))
                    )
                position += 1
            if not trained:
                continue
            _follow(group["params"][0], scalars)
            for name, value in {"lr": group["lr"], **group.decays()}.items():
                _scalar(scalars, name, value, group["params"][0].device)
            shared = self._numbers(scalars, group)
            for name in group.decays():
                shared |= {name: scalars[name], f"{name} rest": 1 - scalars[name]}
            at = {kind: _rounded(shared, *kind) for kind in {_number_kind(p) for p, _ in trained}}
            for p, state in trained:
                _follow(p, state)
                p.assign(self._updated(p, state, group, at[_number_kind(p)]))
                changed += [p, *state.values()]
            changed += scalars.values()
        if not changed:
            return
        written = [t for t in changed if t.uop.op == O.ASSIGN]
        own = {id(t) for t in written}
        with history.paused():
            realize([*written, *[t for t in waiting() if id(t) not in own]])

    def _updated(self, p: Tensor, state: State, group: Group, at: Numbers) -> Tensor:
        p.grad.uop = B.contiguous(p.grad.uop)
        g = p.grad.detach()
        if group.get("maximize"):
            g = -g
        return self._update(p.detach(), g, state, group, at).cast(p.dtype).detach()

    def groups_with_numbers(self) -> list[tuple[Group, Numbers]]:
        """Each group with what its parameters share, which is kept as data."""
        return list(zip(self.param_groups, self._scalars, strict=True))

    def refresh(self) -> None:
        """Write numbers that were changed into their data, where a plan reads them."""
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            for name, value in {"lr": group["lr"], **group.decays()}.items():
                if name in scalars:
                    _scalar(scalars, name, value, scalars["lr"].device)

    # -- what recorded functions depend on -----------------------------------------------------

    def _plan_flags(self) -> dict[str, Any]:
        """The options that are no data, and which parameters are trained."""
        found: dict[str, Any] = {}
        for number, group in enumerate(self.param_groups):
            trained = tuple([history.is_leaf(p) for p in group["params"]])
            found[f"{number} trained"] = trained
            options = {k: v for k, v in group.items() if k not in Group.free and is_plain(v)}
            options |= {k: bool(group[k]) for k in group.varying}
            found.update({f"{number} {k}": v for k, v in options.items()})
        return found

    def _plan_objects(self) -> dict[str, Any]:
        """The parameters and the state."""
        tensors = [p for group in self.param_groups for p in group["params"]]
        for kept in (*self.state.values(), *self._scalars):
            tensors += kept.values()
        return {str(i): t for i, t in enumerate(tensors)}

    def _plan_parts(self) -> list[Any]:
        """Nothing but parameters is inside."""
        return []

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options and state tensors, numbered as the parameters are."""
        groups = []
        position = 0
        for group, scalars in zip(self.param_groups, self._scalars, strict=True):
            plain = {k: v for k, v in group.items() if k != "params"}
            numbers = list(range(position, position + len(group["params"])))
            position += len(numbers)
            shared = {k: t.numpy() for k, t in scalars.items() if k not in _OPTIONS}
            groups.append({**plain, "params": numbers, "scalars": shared})
        state = {i: {k: t.numpy() for k, t in s.items()} for i, s in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state, or from one of torch, which counts steps per parameter."""
        groups = saved["param_groups"]
        sizes = [len(g["params"]) for g in groups]
        if sizes != [len(g["params"]) for g in self.param_groups]:
            raise ConfigError(f"the saved state has groups of {sizes} parameters")
        tensors = [p for g in self.param_groups for p in g["params"]]
        entries: dict[int, dict[str, Any]] = {}
        for i, state in saved["state"].items():
            if not 0 <= i < len(tensors):
                raise ConfigError(f"the saved state has parameter {i} of {len(tensors)}")
            entries[i] = {k: _loaded(k, v, tensors[i]) for k, v in state.items() if v is not None}
        first = 0
        for group, scalars, given in zip(self.param_groups, self._scalars, groups, strict=True):
            known = {k: v for k, v in given.items() if k in group}
            group.update({k: v for k, v in known.items() if k not in ("params", "scalars")})
            scalars.clear()
            own = [entries[first + i] for i in range(len(group["params"])) if first + i in entries]
            first += len(group["params"])
            device = group["params"][0].device
            numbers = given.get("scalars") or self._counted(group, own)
            for name, value in numbers.items():
                scalars[name] = Tensor(np.asarray(value, np.float64).reshape(1), device=device)
        self.state = {}
        for i, entry in entries.items():
            own_state = {k: v for k, v in entry.items() if k not in _COUNTS}
            placed = {k: put_beside(tensors[i], v, self.place_state) for k, v in own_state.items()}
            self.state[i] = State(placed, tensors[i], self.place_state)

    def _counted(self, group: Group, entries: Sequence[dict[str, Any]]) -> dict[str, float]:
        """What the parameters of a group share, from the counts torch keeps for each of them."""
        found: dict[str, float] = {}
        for name in _COUNTS:
            values = {float(np.asarray(e[name]).item()) for e in entries if name in e}
            if len(values) > 1:
                raise ConfigError(
                    f"the parameters of a group have made different numbers of steps, {name} "
                    f"{sorted(values)}: put them into groups of their own"
                )
            if values:
                found[name] = values.pop()
        step = found.pop("step", None)
        if step is None:
            return found
        found["steps"] = step + self.first_step
        return found


_OPTIONS = ("lr", "momentum", "beta1", "beta2")  # kept as data beside the group
_COUNTS = ("step", "mu_product", "eta", "mu")  # of torch, for each parameter


def _loaded(name: str, value: Any, p: Tensor) -> np.ndarray[Any, Any]:
    """A saved array that fits a parameter."""
    found = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    try:
        fits = name in _COUNTS or np.broadcast_shapes(found.shape, p.shape) == p.shape
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(
            f"the saved state has {name} of shape {found.shape} for a parameter of {p.shape}"
        )
    return found


def forget_gradients(tensors: Iterable[Any], set_to_none: bool) -> None:
    """No gradients, or zeros where there are any."""
    for p in tensors:
        if set_to_none:
            p.grad = None
        elif p.grad is not None:
            p.grad = p.grad.zeros_like()


def _scalar(scalars: Numbers, name: str, value: float, device: str) -> Tensor:
    """A number of a group as data."""
    found = scalars.get(name)
    if found is None:
        found = scalars[name] = Tensor(np.full((1,), value, np.float64), device=device)
    elif found.numpy()[0] != value:
        found.copyin(np.full((1,), value, np.float64))
    return found


def _number_kind(p: Tensor) -> tuple[DType, str]:
    """In which precision, and on which device, a parameter takes numbers."""
    return dt.float64 if p.dtype is dt.float64 else dt.float32, p.device


def _rounded(numbers: Numbers, dtype: DType, device: str) -> Numbers:
    """The numbers in the precision of a parameter and on its device, each computed once."""
    return {
        k: (t if t.dtype is dtype else t.cast(dtype).contiguous()).reshape(())
        for k, t in {k: t.to(device) for k, t in numbers.items()}.items()
    }


def _follow(p: Tensor, state: State) -> None:
    """State goes where its parameter went."""
    for name, t in list(state.items()):
        if t.device != p.device:
            state[name] = t.to(p.device).realize()


def kept(state: State, name: str, like: Tensor, value: float = 0.0) -> Tensor:
    """A state tensor of the shape and dtype of a parameter, made at first use."""
    found = state.get(name)
    if found is None:
        from svod.dtype.convert import to_numpy

        start = np.full(like.shape, value, to_numpy(like.dtype))
        found = state[name] = put_beside(state.beside, start, state.place)
    return found


_SHOWING = O.VIEWS | {O.BITCAST, O.ASSIGN, O.AFTER}


def put_beside(p: Tensor, value: Any, place: Callable[[Tensor], Tensor] | None) -> Tensor:
    """An array as a tensor where a parameter is; over a mesh it is split as the parameter is."""
    if not is_mesh(p.device):
        return Tensor(value, device=p.device)
    found = Tensor(value)
    if place is not None:
        found = place(found)
    else:
        memory = p.uop
        while memory.op in _SHOWING:
            memory = memory.src[0]
        placed = memory.arg.placed if memory.op == O.BUFFER else None
        is_alike = placed is not None and placed.shape == found.shape
        found = found.shard(mesh_of(p.device), placed.dims if is_alike else ())
    with history.paused():
        realize([found])
    return found


def put(state: State, name: str, value: Tensor) -> Tensor:
    """Assign a state tensor; what follows reads the new value."""
    found = state[name]
    return found.assign(value.cast(found.dtype))


def decay(group: Group, at: Numbers, name: str) -> tuple[Any, Any]:
    """The momentum or a beta, and what it leaves of 1: numbers, or data where it varies."""
    if name in at:
        return at[name], at[f"{name} rest"]
    value = group["momentum"] if name == "momentum" else group["betas"][int(name[4:]) - 1]
    return value, 1 - value


def power(group: Group, scalars: Numbers, name: str, step: Tensor) -> Tensor:
    """A beta to the number of steps: the beta of now, also where a schedule changes it."""
    if name in scalars:
        return (step * scalars[name].log2()).exp2()
    beta = group["betas"][int(name[4:]) - 1]
    return (step * float(np.log2(beta))).exp2() if beta else step * 0


def corrections(group: Group, scalars: Numbers, step: Tensor) -> tuple[Tensor, Tensor]:
    """What running means that start from zero lack in this step, for both betas."""
    first, second = (power(group, scalars, name, step) for name in ("beta1", "beta2"))
    return 1 - first, 1 - second


def check_betas(betas: Sequence[float]) -> None:
    if any(not 0 <= b < 1 for b in betas):
        raise ConfigError(f"betas are from 0 up to but not including 1: {tuple(betas)}")


def steps(scalars: Numbers, start: float = 0.0) -> Tensor:
    """The number of this step, counted from one more than the start."""
    if "steps" not in scalars:
        scalars["steps"] = Tensor(np.full((1,), start), device=scalars["lr"].device)
    return scalars["steps"].assign(scalars["steps"] + 1)


def running_mean(state: State, name: str, p: Tensor, g: Tensor, rest: Any) -> Tensor:
    """The mean of gradients so far, older ones counting less; ``rest`` is what a new one counts."""
    mean = kept(state, name, p)
    return put(state, name, mean + (g - mean) * rest)


def running_square(state: State, name: str, p: Tensor, g: Tensor, beta: Any, rest: Any) -> Tensor:
    """The mean square of gradients so far, older ones counting less."""
    return put(state, name, kept(state, name, p) * beta + g * g * rest)


guard_class(Optimizer, "__init__", "add_param_group", "step", "load_state_dict")
