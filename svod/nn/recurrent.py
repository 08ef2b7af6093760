"""RNN, LSTM and GRU with the parameters and gate order of torch.

The loop over time is a ``scan``: a few kernels that run once per step, whatever the length of the
sequence. The inputs of all times go through one large product before it.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.nn.layers import draw_again, parameter
from svod.nn.module import Module
from svod.nn.packed import PackedSequence, padded, repacked
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.ops.creation import zeros
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate, stack
from svod.tensor.recording.scan import scan
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
        device: str | None = None,
        dtype: Any = None,
        nonlinearity: str = "tanh",
    ) -> None:
        super().__init__()
        _check_nonlinearity(nonlinearity)
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        _add_weights(self, self.kind, "", input_size, hidden_size, bias, device, dtype)

    def reset_parameters(self) -> None:
        """New starting values."""
        draw_again(self, self.hidden_size)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        step, _, count = _STEPS[self.kind]
        if x.ndim == 1:
            given = state if isinstance(state, Tensor | None) else tuple(state)
            lifted = _mapped(given, lambda s: s.unsqueeze(0))
            return _mapped(self.forward(x.unsqueeze(0), lifted), lambda s: s.squeeze(0))
        if x.ndim != 2 or x.shape[1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__} takes (N, {self.input_size}) or ({self.input_size},), "
                f"not {x.shape}"
            )
        if state is None:
            state = (zeros(x.shape[0], self.hidden_size, dtype=x.dtype),) * count
        parts = _states(self, state, count, (x.shape[0], self.hidden_size))
        gates = x.linear(self.weight_ih, self.bias_ih)
        hidden = parts[0].linear(self.weight_hh, self.bias_hh)
        found = step(gates, hidden, parts, self.nonlinearity)
        return found if count > 1 else found[0]


def _mapped(state: Any, change: Any) -> Any:
    if state is None or isinstance(state, Tensor):
        return state if state is None else change(state)
    return tuple([change(s) for s in state])


def _states(module: Module, state: Any, count: int, *shapes: tuple[int, ...]) -> State:
    """A state as a tuple of tensors of these shapes; the last shape counts for all that follow."""
    found = (state,) if isinstance(state, Tensor) else tuple(state)
    wanted = [*shapes, *[shapes[-1]] * (count - len(shapes))]
    if len(found) != count or [s.shape for s in found] != wanted:
        listed = [s.shape if isinstance(s, Tensor) else type(s).__name__ for s in found]
        raise ShapeError(f"{type(module).__name__} needs a state of shapes {wanted}, not {listed}")
    return found


def _check_nonlinearity(name: str) -> None:
    if name not in ("tanh", "relu"):
        raise ShapeError(f"nonlinearity is 'tanh' or 'relu', not {name!r}")


class RNNCell(_Cell):
    """One step of an RNN."""

    kind = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype, nonlinearity)


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
        device: str | None = None,
        dtype: Any = None,
        nonlinearity: str = "tanh",
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        _check_nonlinearity(nonlinearity)
        if num_layers < 1 or hidden_size < 1 or not 0 <= dropout <= 1:
            raise ShapeError(
                f"{type(self).__name__} of {num_layers} layers of {hidden_size}, dropout {dropout}"
            )
        if not 0 <= proj_size < hidden_size:
            raise ShapeError(f"proj_size is from 0 up to the hidden size, not {proj_size}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.nonlinearity = bidirectional, nonlinearity
        self.proj_size = proj_size
        ways = 1 + bool(bidirectional)
        for layer in range(num_layers):
            width = input_size if layer == 0 else self._width * ways
            for suffix in ("", "_reverse")[:ways]:
                _add_weights(
                    self, self.kind, f"_l{layer}{suffix}", width, hidden_size, bias, device, dtype,
                    proj_size,
                )  # fmt: skip

    @property
    def _width(self) -> int:
        return self.proj_size or self.hidden_size

    def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """The hidden state at every time, and the last state of every layer."""
        if isinstance(x, PackedSequence):
            return self._packed(x, state)
        if x.ndim == 2:
            axis = 0 if self.batch_first else 1
            lifted = _mapped(state, lambda s: s.unsqueeze(1))
            found, last = self.forward(x.unsqueeze(axis), lifted)
            return found.squeeze(axis), _mapped(last, lambda s: s.squeeze(1))
        if x.ndim != 3:
            raise ShapeError(f"{type(self).__name__} of input {self.input_size}: shape {x.shape}")
        found, last = self._layers(x.transpose(0, 1) if self.batch_first else x, state, None)
        return found.transpose(0, 1) if self.batch_first else found, last

    def _packed(self, x: PackedSequence, state: Any) -> tuple[PackedSequence, Any]:
        """Sequences of different lengths: behind its end a sequence keeps its state."""
        order, back = x.sorted_indices, x.unsorted_indices
        if order is not None:
            state = _mapped(state, lambda s: s.index_select(1, order))
        sequence, there = padded(x)
        found, last = self._layers(sequence, state, tensor_of(there, sequence).unsqueeze(2))
        if back is not None:
            last = _mapped(last, lambda s: s.index_select(1, back))
        return repacked(found, x), last

    def _layers(self, x: Tensor, state: Any, there: Tensor | None) -> tuple[Tensor, Any]:
        """All layers over (T, N, input); ``there`` says which elements are no padding."""
        if x.ndim != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"{type(self).__name__} of input {self.input_size}: shape {x.shape}")
        sequence = x
        count = _STEPS[self.kind][2]
        ways = 1 + bool(self.bidirectional)
        cells = self.num_layers * ways, sequence.shape[1]
        shapes = ((*cells, self._width), (*cells, self.hidden_size))
        if state is None:
            state = tuple([zeros(shape, dtype=x.dtype) for shape in shapes[:count]])
        start = _states(self, state, count, *shapes[:count])
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for way in range(ways):
                place = layer * ways + way
                suffix = f"_l{layer}" + ("_reverse" if way else "")
                begin = tuple([s[place] for s in start])
                out, end = self._run(sequence, suffix, begin, way == 1, there)
                outputs.append(out)
                ends.append(end)
            sequence = outputs[0] if ways == 1 else concatenate(outputs, -1)
            if layer + 1 < self.num_layers:
                sequence = sequence.dropout(self.dropout, self.training)
        last = tuple([stack([end[i] for end in ends], 0) for i in range(count)])
        return sequence, last if count > 1 else last[0]

    def _run(
        self, x: Tensor, suffix: str, state: State, is_backward: bool, there: Tensor | None
    ) -> tuple[Tensor, State]:
        step = _STEPS[self.kind][0]
        weight, bias = getattr(self, "weight_hh" + suffix), self._bias("bias_hh" + suffix)
        narrow = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        # the inputs of all times at once: one large product instead of many small ones
        gates = x.linear(getattr(self, "weight_ih" + suffix), self._bias("bias_ih" + suffix))

        def advance(state: State, now: tuple[Tensor, ...]) -> tuple[State, Tensor]:
            new = step(now[0], state[0].linear(weight, bias), state, self.nonlinearity)
            if narrow is not None:
                new = (new[0].linear(narrow), *new[1:])
            if there is not None:
                new = tuple([select(now[1], n, s) for n, s in zip(new, state, strict=True)])
            return new, new[0]

        inputs = (gates,) if there is None else (gates, there)
        last, outputs = scan(advance, state, inputs, reverse=is_backward)
        return outputs, last

    def _bias(self, name: str) -> Tensor | None:
        return getattr(self, name) if self.bias else None

    def reset_parameters(self) -> None:
        """New starting values."""
        draw_again(self, self.hidden_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class RNN(_Recurrent):
    """Elman's network."""

    kind = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device,
            dtype, nonlinearity,
        )  # fmt: skip


class LSTM(_Recurrent):
    """Long short-term memory; the state is (hidden, cell).

    With ``proj_size`` the hidden state is a product of that size.
    """

    kind = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device,
            dtype, proj_size=proj_size,
        )  # fmt: skip


class GRU(_Recurrent):
    """Gated recurrent units."""

    kind = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device,
            dtype,
        )  # fmt: skip


def _add_weights(
    module: Module,
    kind: str,
    suffix: str,
    width: int,
    hidden: int,
    bias: bool,
    device: str | None,
    dtype: Any,
    proj_size: int = 0,
) -> None:
    if hidden < 1:
        raise ShapeError(f"{type(module).__name__}: a hidden size of {hidden}")
    gates = _STEPS[kind][1] * hidden
    made: dict[str, Any] = {"bound": 1 / sqrt(hidden), "dtype": dtype, "device": device}
    setattr(module, "weight_ih" + suffix, parameter(gates, width, **made))
    setattr(module, "weight_hh" + suffix, parameter(gates, proj_size or hidden, **made))
    for name in ("bias_ih", "bias_hh"):
        module.register_parameter(name + suffix, parameter(gates, **made) if bias else None)
    if proj_size:
        setattr(module, "weight_hr" + suffix, parameter(proj_size, hidden, **made))
