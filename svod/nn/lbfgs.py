"""LBFGS: quasi-Newton steps from the last changes of the gradient, with an optional line search.

In: a closure that computes the loss and its gradients. Out: parameters moved by up to ``max_iter``
steps. The algorithm of Nocedal and Wright (chapters 3 and 7), with torch's options and its rules
for when to end. The decisions are made on the host, the vectors stay on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from svod.base.errors import ConfigError
from svod.nn.optimizer import Optimizer
from svod.tensor.core import history
from svod.tensor.core.public_functions import guard_class
from svod.tensor.tensor import Tensor

_DECREASE, _CURVATURE = 1e-4, 0.9  # of the strong Wolfe conditions
_SEARCHES = 25  # evaluations of one line search
_LEAST_CURVATURE = 1e-10  # smaller products of step and change are not remembered


class _Point(NamedTuple):
    """A point on the line: how far along it is, the loss there, the gradient, the slope."""

    at: float
    loss: float
    gradient: Tensor
    slope: float


class LBFGS(Optimizer):
    """Limited-memory BFGS; ``step`` needs a closure that computes the loss and its gradients."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ConfigError(
                f"LBFGS: line_search_fn is None or 'strong_wolfe', not {line_search_fn!r}"
            )
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ConfigError("LBFGS has one group of parameters: its steps are of all together")
        self._tensors: list[Tensor] = self.param_groups[0]["params"]
        self._forget()

    def _forget(self) -> None:
        self._iterations = 0
        self._steps: list[Tensor] = []  # the newest last
        self._changes: list[Tensor] = []  # of the gradient, by those steps
        self._direction: Tensor | None = None
        self._before: Tensor | None = None  # the gradient that the direction was made from
        self._scale = 1.0  # of the first guess of the inverse curvature
        self._rate = 1.0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move up to ``max_iter`` times; gives back the loss from before."""
        if closure is None:
            raise ConfigError("LBFGS.step needs a closure that computes the loss and its gradients")
        options = self.param_groups[0]
        first = closure()
        loss, gradient = float(first), self._gathered()
        evaluations = 1
        if self._largest(gradient) <= options["tolerance_grad"]:
            return first
        for number in range(1, options["max_iter"] + 1):
            direction = self._next_direction(gradient)
            slope = _dot(gradient, direction)
            if slope > -options["tolerance_change"]:
                break
            before = loss
            if options["line_search_fn"]:
                found, tried = self._search(closure, _Point(0.0, loss, gradient, slope), direction)
                self._rate, loss, gradient = found.at, found.loss, found.gradient
            else:
                self._move(direction, self._rate)
                if number == options["max_iter"]:
                    break  # the next step computes the loss there
                loss, gradient, tried = float(closure()), self._gathered(), 1
            evaluations += tried
            moved = abs(self._rate) * self._largest(direction)
            if (
                evaluations >= options["max_eval"]
                or self._largest(gradient) <= options["tolerance_grad"]
                or moved <= options["tolerance_change"]
                or abs(loss - before) < options["tolerance_change"]
            ):
                break
        return first

    # -- directions ----------------------------------------------------------------------------

    def _next_direction(self, gradient: Tensor) -> Tensor:
        options = self.param_groups[0]
        self._iterations += 1
        if self._direction is None or self._before is None:
            direction = -gradient
            self._rate = min(1.0, 1.0 / gradient.abs().sum().item()) * options["lr"]
        else:
            self._remember(gradient - self._before, self._direction * self._rate)
            direction = self._curved(-gradient)
            self._rate = options["lr"]
        self._direction, self._before = direction.realize(), gradient
        return self._direction

    def _remember(self, change: Tensor, step: Tensor) -> None:
        product = _dot(change, step)
        if product <= _LEAST_CURVATURE:
            return
        self._changes.append(change.realize())
        self._steps.append(step.realize())
        size = self.param_groups[0]["history_size"]
        del self._changes[:-size], self._steps[:-size]
        self._scale = product / _dot(change, change)

    def _curved(self, vector: Tensor) -> Tensor:
        """The vector times the inverse curvature that the remembered steps speak of."""
        pairs = [
            (change, step, 1.0 / _dot(change, step))
            for change, step in zip(self._changes, self._steps, strict=True)
        ]
        weights = []
        for change, step, inverse in reversed(pairs):
            weights.append(inverse * _dot(step, vector))
            vector = (vector - change * weights[-1]).realize()
        vector = vector * self._scale
        for (change, step, inverse), weight in zip(pairs, reversed(weights), strict=True):
            vector = (vector + step * (weight - inverse * _dot(change, vector))).realize()
        return vector

    # -- parameters as one vector ----------------------------------------------------------------

    def _gathered(self) -> Tensor:
        with history.paused():
            parts = [p.zeros_like() if p.grad is None else p.grad for p in self._tensors]
            first, *rest = [part.detach().reshape(-1) for part in parts]
            return (first.cat(*rest) if rest else first).realize()

    def _move(self, direction: Tensor, rate: float) -> None:
        with history.paused():
            start = 0
            for p in self._tensors:
                part = direction[start : start + p.numel()].reshape(p.shape)
                p.assign((p.detach() + part * rate).cast(p.dtype))
                start += p.numel()
            for p in self._tensors:
                p.realize()

    @staticmethod
    def _largest(vector: Tensor) -> float:
        return float(vector.abs().max().item())

    # -- line search -----------------------------------------------------------------------------

    def _search(
        self, closure: Callable[[], Any], start: _Point, direction: Tensor
    ) -> tuple[_Point, int]:
        """A point that satisfies the strong Wolfe conditions, where one is found in time."""
        kept = [p.detach().clone().realize() for p in self._tensors]

        def restored(rate: float) -> None:
            with history.paused():
                for p, value in zip(self._tensors, kept, strict=True):
                    p.assign(value)
                self._move(direction, rate)

        def tried(rate: float) -> _Point:
            restored(rate)
            loss, gradient = float(closure()), self._gathered()
            return _Point(rate, loss, gradient, _dot(gradient, direction))

        tolerance = self.param_groups[0]["tolerance_change"] / self._largest(direction)
        found, count = strong_wolfe(tried, start, self._rate, tolerance)
        restored(found.at)
        return found, count

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The options, and what is remembered of earlier steps."""
        found = super().state_dict()
        if self._direction is not None and self._before is not None:
            found["state"] = {0: {
                "n_iter": self._iterations, "d": self._direction.numpy(), "t": self._rate,
                "old_dirs": [t.numpy() for t in self._changes],
                "old_stps": [t.numpy() for t in self._steps],
                "H_diag": self._scale, "prev_flat_grad": self._before.numpy(),
            }}  # fmt: skip
        return found

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state, also from one of torch."""
        state = saved["state"].get(0)
        super().load_state_dict({**saved, "state": {}})
        self._forget()
        if state is None or state.get("d") is None:
            return
        device = self._tensors[0].device

        def vector(value: Any) -> Tensor:
            return Tensor(
                np.array(value.numpy() if hasattr(value, "numpy") else value), device=device
            )

        self._iterations, self._rate = int(state["n_iter"]), float(state["t"])
        self._scale = float(state["H_diag"])
        self._direction, self._before = vector(state["d"]), vector(state["prev_flat_grad"])
        self._changes = [vector(v) for v in state["old_dirs"]]
        self._steps = [vector(v) for v in state["old_stps"]]


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum().item())


def strong_wolfe(
    tried: Callable[[float], _Point], start: _Point, rate: float, tolerance: float
) -> tuple[_Point, int]:
    """A point with a lower loss and a flatter slope, and how many were tried.

    First the step grows until the two conditions hold or a minimum lies between two points; then
    that bracket shrinks around it by cubic interpolation.
    """

    def is_too_high(point: _Point) -> bool:
        return point.loss > start.loss + _DECREASE * point.at * start.slope

    def is_flat(point: _Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * start.slope

    before, point, count = start, tried(rate), 1
    bracket = (start, point)
    for turn in range(_SEARCHES):
        bracket = (before, point)
        if is_too_high(point) or (turn > 1 and point.loss >= before.loss):
            break
        if is_flat(point):
            return point, count
        if point.slope >= 0:
            break
        near, far = point.at + 0.01 * (point.at - before.at), point.at * 10
        before, point = point, tried(_cubic(before, point, near, far))
        count += 1
    else:
        return min(start, point, key=lambda p: p.loss), count
    low, high = sorted(bracket, key=lambda p: p.loss)
    is_stuck = False  # the last step ended close to an end of the bracket
    for _ in range(turn, _SEARCHES):
        least, most = min(low.at, high.at), max(low.at, high.at)
        if most - least < tolerance:
            break
        at, margin = _cubic(low, high, least, most), 0.1 * (most - least)
        is_close = min(most - at, at - least) < margin
        if is_close and (is_stuck or at >= most or at <= least):
            at = most - margin if abs(at - most) < abs(at - least) else least + margin
            is_stuck = False
        else:
            is_stuck = is_close
        point = tried(at)
        count += 1
        if is_too_high(point) or point.loss >= low.loss:
            high = point
            low, high = sorted((low, high), key=lambda p: p.loss)
            continue
        if is_flat(point):
            return point, count
        if point.slope * (high.at - low.at) >= 0:
            high = low
        low = point
    return low, count


def _cubic(a: _Point, b: _Point, least: float, most: float) -> float:
    """Where the cubic through both points with both slopes is lowest, within the bounds."""
    if a.at > b.at:
        a, b = b, a
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = first * first - a.slope * b.slope
    if square < 0:
        return (least + most) / 2
    second = square**0.5
    weight = (b.slope + second - first) / (b.slope - a.slope + 2 * second)
    return min(max(b.at - (b.at - a.at) * weight, least), most)


guard_class(LBFGS, "__init__", "step", "load_state_dict")
