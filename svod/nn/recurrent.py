"""RNN, LSTM and GRU with the parameters and gate order of torch.

The loop over time is a ``scan``: a few kernels that run once per step, whatever the length of the
sequence. The inputs of all times go through one large product before it.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.nn.layers import parameter
from svod.nn.module import Module
from svod.tensor.creation import zeros
from svod.tensor.joining import concatenate, stack
from svod.tensor.scan import scan
from svod.tensor.tensor import Tensor

State = tuple[Tensor, ...]


def _rnn_step(gates: Tensor, hidden: Tensor, state: State, activation: str) -> State:
    return (getattr(gates + hidden, activation)(),)


def _lstm_step(gates: Tensor, hidden: Tensor, state: State, activation: str) -> State:
    i, f, g, o = (gates + hidden).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(gates: Tensor, hidden: Tensor, state: State, activation: str) -> State:
    r, z, n = gates.chunk(3, -1)
    hr, hz, hn = hidden.chunk(3, -1)
    update = (z + hz).sigmoid()
    fresh = (n + (r + hr).sigmoid() * hn).tanh()
    return (fresh + update * (state[0] - fresh),)


_STEPS = {"RNN": (_rnn_step, 1, 1), "LSTM": (_lstm_step, 4, 2), "GRU": (_gru_step, 3, 1)}


class _Cell(Module):
    kind = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        _add_weights(self, self.kind, "", input_size, hidden_size, bias, device, dtype)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        step, _, count = _STEPS[self.kind]
        if x.ndim == 1:
            raise ShapeError(f"{type(self).__name__} takes (N, input_size), not {x.shape}")
        if state is None:
            state = (zeros(x.shape[0], self.hidden_size, dtype=x.dtype),) * count
        given: State = (
            tuple(state) if count > 1 else (state,) if isinstance(state, Tensor) else state
        )
        gates = x.linear(self.weight_ih, self.bias_ih)
        hidden = given[0].linear(self.weight_hh, self.bias_hh)
        found = step(gates, hidden, given, self.nonlinearity)
        return found if count > 1 else found[0]


class RNNCell(_Cell):
    """One step of an RNN."""

    kind = "RNN"


class LSTMCell(_Cell):
    """One step of an LSTM; the state is (hidden, cell)."""

    kind = "LSTM"


class GRUCell(_Cell):
    """One step of a GRU."""

    kind = "GRU"


class _Recurrent(Module):
    kind = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.nonlinearity = bidirectional, nonlinearity
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * (1 + bidirectional)
            for suffix in ("", "_reverse")[: 1 + bidirectional]:
                _add_weights(
                    self, self.kind, f"_l{layer}{suffix}", width, hidden_size, bias, device, dtype
                )

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The hidden state at every time, and the last state of every layer."""
        if x.ndim == 2:
            axis = 0 if self.batch_first else 1
            if state is not None:
                parts = (state,) if isinstance(state, Tensor) else state
                state = tuple([s.unsqueeze(1) for s in parts])
                state = state if len(state) > 1 else state[0]
            found, last = self.forward(x.unsqueeze(axis), state)
            if isinstance(last, Tensor):
                return found.squeeze(axis), last.squeeze(1)
            return found.squeeze(axis), tuple([s.squeeze(1) for s in last])
        if x.ndim != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"{type(self).__name__} of input {self.input_size}: shape {x.shape}")
        sequence = x.transpose(0, 1) if self.batch_first else x
        count = _STEPS[self.kind][2]
        ways = 1 + self.bidirectional
        if state is None:
            shape = (self.num_layers * ways, sequence.shape[1], self.hidden_size)
            start: State = (zeros(shape, dtype=x.dtype),) * count
        else:
            start = (state,) if isinstance(state, Tensor) else tuple(state)
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for way in range(ways):
                place = layer * ways + way
                suffix = f"_l{layer}" + ("_reverse" if way else "")
                out, end = self._run(sequence, suffix, tuple([s[place] for s in start]), way == 1)
                outputs.append(out)
                ends.append(end)
            sequence = outputs[0] if ways == 1 else concatenate(outputs, -1)
            if layer + 1 < self.num_layers:
                sequence = sequence.dropout(self.dropout, self.training)
        last = tuple([stack([end[i] for end in ends], 0) for i in range(count)])
        found = sequence.transpose(0, 1) if self.batch_first else sequence
        return found, last if count > 1 else last[0]

    def _run(self, x: Tensor, suffix: str, state: State, is_backward: bool) -> tuple[Tensor, State]:
        step = _STEPS[self.kind][0]
        weight, bias = getattr(self, "weight_hh" + suffix), self._bias("bias_hh" + suffix)
        # the inputs of all times at once: one large product instead of many small ones
        gates = x.linear(getattr(self, "weight_ih" + suffix), self._bias("bias_ih" + suffix))

        def advance(state: State, now: Tensor) -> tuple[State, Tensor]:
            new = step(now, state[0].linear(weight, bias), state, self.nonlinearity)
            return new, new[0]

        last, outputs = scan(advance, state, gates, reverse=is_backward)
        return outputs, last

    def _bias(self, name: str) -> Tensor | None:
        return getattr(self, name) if self.bias else None

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class RNN(_Recurrent):
    """Elman's network."""

    kind = "RNN"


class LSTM(_Recurrent):
    """Long short-term memory; the state is (hidden, cell)."""

    kind = "LSTM"


class GRU(_Recurrent):
    """Gated recurrent units."""

    kind = "GRU"


def _add_weights(
    module: Module,
    kind: str,
    suffix: str,
    width: int,
    hidden: int,
    bias: bool,
    device: str | None,
    dtype: Any,
) -> None:
    gates = _STEPS[kind][1] * hidden
    made: dict[str, Any] = {"bound": 1 / sqrt(hidden), "dtype": dtype, "device": device}
    setattr(module, "weight_ih" + suffix, parameter(gates, width, **made))
    setattr(module, "weight_hh" + suffix, parameter(gates, hidden, **made))
    for name in ("bias_ih", "bias_hh"):
        module.register_parameter(name + suffix, parameter(gates, **made) if bias else None)
