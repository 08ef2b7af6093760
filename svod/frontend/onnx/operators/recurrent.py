"""RNN, GRU and LSTM as scans over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.registry import Tensor, operator

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def number(given: float | None, default: float) -> float:
        return default if given is None else given

    known: dict[str, Activation] = {
        "relu": lambda x: x.relu(),
        "tanh": lambda x: x.tanh(),
        "sigmoid": lambda x: x.sigmoid(),
        "affine": lambda x: x * number(alpha, 1.0) + number(beta, 0.0),
        "leakyrelu": lambda x: svod.where(x >= 0, x, x * number(alpha, 0.01)),
        "thresholdedrelu": lambda x: svod.where(x > number(alpha, 1.0), x, 0.0),
        "scaledtanh": lambda x: number(alpha, 1.0) * (number(beta, 1.0) * x).tanh(),
        "hardsigmoid": lambda x: (x * number(alpha, 0.2) + number(beta, 0.5)).clamp(0, 1),
        "elu": lambda x: svod.where(x >= 0, x, number(alpha, 1.0) * x.expm1()),
        "softsign": lambda x: x / (1 + x.abs()),
        "softplus": lambda x: x.softplus(),
    }
    found = known.get(name.lower())
    if found is None:
        raise UnsupportedError(f"activation {name!r} is not supported")
    return found


class _Cells:
    """What the three operators share: directions, lengths, layout, activations."""

    def __init__(
        self, x: Tensor, lengths: Tensor | None, direction: str, layout: int,
        activations: list[str], alpha: list[float] | None, beta: list[float] | None,
        clip: float | None,
    ) -> None:  # fmt: skip
        self.layout = layout
        self.x = x.permute(1, 0, 2) if layout else x
        self.steps, self.batch = self.x.shape[:2]
        self.directions = {"forward": [False], "reverse": [True]}.get(direction, [False, True])
        self.lengths = lengths.cast(dt.int64).reshape(-1, 1) if lengths is not None else None
        self.clip = clip
        alphas: list[Any] = list(alpha or [])
        betas: list[Any] = list(beta or [])
        alphas += [None] * (len(activations) - len(alphas))
        betas += [None] * (len(activations) - len(betas))
        self.functions = [
            _activation(name, a, b) for name, a, b in zip(activations, alphas, betas, strict=False)
        ]

    def limited(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def start(self, state: Tensor | None, direction: int, hidden: int) -> Tensor:
        if state is None:
            return svod.zeros((self.batch, hidden), dtype=self.x.dtype)
        return (state.permute(1, 0, 2) if self.layout else state)[direction]

    def run(
        self, cell: Callable[..., Any], states: list[list[Tensor]], inputs: list[Tensor]
    ) -> list[Tensor]:
        """All outputs (time, direction, batch, hidden), then the last of each state."""
        outs, lasts = [], []
        for number, is_reverse in enumerate(self.directions):
            time = svod.arange(self.steps, dtype=dt.int64)

            def step(carry: Any, slices: Any, number: int = number) -> tuple[Any, Any]:
                x, t = slices
                new = cell(number, x, *carry)
                if self.lengths is None:
                    return new, new[0]
                inside = t < self.lengths
                kept = tuple([svod.where(inside, a, b) for a, b in zip(new, carry, strict=True)])
                return kept, svod.where(inside, new[0], svod.zeros_like(new[0]))

            last, out = svod.scan(
                step, tuple(states[number]), (inputs[number], time), reverse=is_reverse
            )
            outs.append(out)
            lasts.append(last)
        y = svod.stack(outs, dim=1)
        finals = [svod.stack([f[i] for f in lasts], dim=0) for i in range(len(lasts[0]))]
        if self.layout:
            return [y.permute(2, 0, 1, 3), *[f.permute(1, 0, 2) for f in finals]]
        return [y, *finals]


def _bias(b: Tensor | None, direction: int, width: int, dtype: Any) -> tuple[Any, Any]:
    """The biases of inputs and of states."""
    if b is None:
        zero = svod.zeros((width,), dtype=dtype)
        return zero, zero
    return b[direction][:width], b[direction][width:]


@operator("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    initial: Tensor | None = None, *, activation_alpha: Any = None, activation_beta: Any = None,
    activations: Any = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int = 0, layout: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ["Tanh"] * w.shape[0]
    cells = _Cells(x, lengths, direction, layout, names, activation_alpha, activation_beta, clip)
    hidden = r.shape[-1]
    biases = [_bias(b, d, hidden, x.dtype) for d in range(w.shape[0])]

    def cell(d: int, wx: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return (cells.functions[d](cells.limited(wx + h @ r[d].T)),)

    inputs = [cells.x @ w[d].T + (biases[d][0] + biases[d][1]) for d in range(w.shape[0])]
    states = [[cells.start(initial, d, hidden)] for d in range(w.shape[0])]
    return tuple(cells.run(cell, states, inputs))


@operator("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    initial: Tensor | None = None, *, activation_alpha: Any = None, activation_beta: Any = None,
    activations: Any = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh"] * w.shape[0]
    cells = _Cells(x, lengths, direction, layout, names, activation_alpha, activation_beta, clip)
    n = r.shape[-1]
    biases = [_bias(b, d, 3 * n, x.dtype) for d in range(w.shape[0])]

    def cell(d: int, wx: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        f, g = cells.functions[2 * d], cells.functions[2 * d + 1]
        own = biases[d][1]
        gates = f(cells.limited(wx[:, : 2 * n] + h @ r[d][: 2 * n].T + own[: 2 * n]))
        z, reset = gates[:, :n], gates[:, n:]
        if linear_before_reset:
            inner = reset * (h @ r[d][2 * n :].T + own[2 * n :])
        else:
            inner = (reset * h) @ r[d][2 * n :].T + own[2 * n :]
        new = g(cells.limited(wx[:, 2 * n :] + inner))
        return ((1 - z) * new + z * h,)

    inputs = [cells.x @ w[d].T + biases[d][0] for d in range(w.shape[0])]
    states = [[cells.start(initial, d, n)] for d in range(w.shape[0])]
    return tuple(cells.run(cell, states, inputs))


@operator("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    initial_h: Tensor | None = None, initial_c: Tensor | None = None, p: Tensor | None = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0, layout: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * w.shape[0]
    cells = _Cells(x, lengths, direction, layout, names, activation_alpha, activation_beta, clip)
    n = r.shape[-1]
    biases = [_bias(b, d, 4 * n, x.dtype) for d in range(w.shape[0])]

    def cell(d: int, wx: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        f, g, last = cells.functions[3 * d : 3 * d + 3]
        gates = wx + h @ r[d].T
        i, o, forget, new = [gates[:, k * n : (k + 1) * n] for k in range(4)]
        if p is not None:
            i, forget = i + p[d][:n] * c, forget + p[d][2 * n :] * c
        i = f(cells.limited(i))
        forget = 1 - i if input_forget else f(cells.limited(forget))
        c = forget * c + i * g(cells.limited(new))
        o = f(cells.limited(o + p[d][n : 2 * n] * c if p is not None else o))
        return o * last(c), c

    inputs = [cells.x @ w[d].T + (biases[d][0] + biases[d][1]) for d in range(w.shape[0])]
    states = [
        [cells.start(initial_h, d, n), cells.start(initial_c, d, n)] for d in range(w.shape[0])
    ]
    return tuple(cells.run(cell, states, inputs))
