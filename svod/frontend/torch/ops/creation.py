"""Operators that make tensors of numbers, and those that draw random ones."""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, op, operand, tensor
from svod.ir import build as B
from svod.tensor.core.tensor_core import wrap
from svod.tensor.random import threefry
from svod.tensor.tensor import Tensor


def _filled(call: Call, value: Any) -> Tensor:
    return tensor(value, call.dtype).expand(*call.shape)


@op("aten.full.default", call=True)
def full(call: Call, size: Any, value: Any, **_: Any) -> Tensor:
    return _filled(call, value)


@op("aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor", call=True)
def full_like(call: Call, x: Tensor, value: Any, **_: Any) -> Tensor:
    return _filled(call, value)


@op("aten.new_full.default", call=True)
def new_full(call: Call, x: Tensor, size: Any, value: Any, **_: Any) -> Tensor:
    return _filled(call, value)


_ZEROS = (
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format",
    "empty_like.default", "empty_strided.default", "new_empty.default", "empty_permuted.default",
    "new_empty_strided.default",
)  # fmt: skip


@op(*[f"aten.{name}" for name in _ZEROS], "prims.empty_strided.default", call=True)
def zeros(call: Call, *_: Any, **__: Any) -> Tensor:
    """Memory without values is zeros here: it must hold something."""
    return _filled(call, 0)


@op("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", call=True)
def ones(call: Call, *_: Any, **__: Any) -> Tensor:
    return _filled(call, 1)


@op("aten.scalar_tensor.default", call=True)
def scalar_tensor(call: Call, value: Any, **_: Any) -> Tensor:
    return tensor(value, call.dtype)


def _range(call: Call, start: Any, step: Any) -> Tensor:
    """start, start + step, ..: whole numbers are counted in int64, floats in float64."""
    (count,) = call.shape
    if call.dtype.kind in "iu":  # torch drops fractions first
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
    is_whole = not isinstance(start, float) and not isinstance(step, float)
    kind = dt.int64 if is_whole else dt.float64
    found = wrap(B.iota(count), None).cast(kind)
    if not (isinstance(step, int) and step == 1):
        found = found * operand(step, kind)
    if not (isinstance(start, int) and start == 0):
        found = found + operand(start, kind)
    return found


@op("aten.arange.start_step", call=True)
def arange(call: Call, start: Any, end: Any, step: Any = 1, **_: Any) -> Tensor:
    return _range(call, start, step)


@op("aten.arange.default", call=True)
def arange_end(call: Call, end: Any, **_: Any) -> Tensor:
    return _range(call, 0, 1)


@op("aten.arange.start", call=True)
def arange_start(call: Call, start: Any, end: Any, **_: Any) -> Tensor:
    return _range(call, start, 1)


@op("prims.iota.default", call=True)
def iota(call: Call, length: Any, *, start: Any, step: Any, **_: Any) -> Tensor:
    return _range(call, start, step)


@op("aten.eye.default", "aten.eye.m", call=True)
def eye(call: Call, *_: Any, **__: Any) -> Tensor:
    rows, columns = call.shape
    row = wrap(B.reshape(B.iota(rows), (rows, 1)), None)
    column = wrap(B.reshape(B.iota(columns), (1, columns)), None)
    return (row == column).cast(call.dtype)


@op("aten.linspace.default", call=True)
def linspace(call: Call, start: Any, end: Any, steps: int, **_: Any) -> Tensor:
    return svod.linspace(start, end, steps, dtype=call.dtype)


@op("aten.tril_indices.default", call=True)
def tril_indices(call: Call, row: int, col: int, offset: int = 0, **_: Any) -> Tensor:
    return svod.tril_indices(row, col, offset)


@op("aten.triu_indices.default", call=True)
def triu_indices(call: Call, row: int, col: int, offset: int = 0, **_: Any) -> Tensor:
    return svod.triu_indices(row, col, offset)


# -- random numbers --------------------------------------------------------------------------------


def _fixed(call: Call) -> tuple[int, ...]:
    """How many numbers are drawn must be known: their places are counted."""
    shape = call.shape
    if not all(isinstance(n, int) for n in shape):
        raise UnsupportedError("random numbers of a run-time size")
    return shape


def _uniform(call: Call) -> Tensor:
    kind = call.dtype if call.dtype.kind == "f" else dt.float32
    return threefry.rand(*_fixed(call), dtype=kind)


def _normal(call: Call) -> Tensor:
    return threefry.randn(*_fixed(call), dtype=call.dtype)


@op("aten.rand.default", "aten.rand_like.default", call=True)
def rand(call: Call, *_: Any, **__: Any) -> Tensor:
    return _uniform(call)


@op("aten.randn.default", "aten.randn_like.default", call=True)
def randn(call: Call, *_: Any, **__: Any) -> Tensor:
    return _normal(call)


@op("aten.uniform.default", call=True)
def uniform(call: Call, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return _uniform(call) * (high - low) + low


@op("aten.normal_functional.default", call=True)
def normal(call: Call, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return _normal(call) * std + mean


@op("aten.exponential.default", call=True)
def exponential(call: Call, x: Tensor, lambd: float = 1.0, **_: Any) -> Tensor:
    return -(1 - _uniform(call)).log() / lambd


@op("aten.bernoulli.p", call=True)
def bernoulli_p(call: Call, x: Tensor, p: float = 0.5, **_: Any) -> Tensor:
    return (_uniform(call) < p).cast(call.dtype)


@op("aten.bernoulli.default", call=True)
def bernoulli(call: Call, x: Tensor, **_: Any) -> Tensor:
    return (_uniform(call) < x).cast(call.dtype)


@op("aten.randint.low", "aten.randint_like.low_dtype", call=True)
def randint_low(call: Call, *args: Any, **_: Any) -> Tensor:
    low, high = [a for a in args if isinstance(a, int)][:2]
    return threefry.randint(low, high, _fixed(call))


@op("aten.randint.default", "aten.randint_like.default", call=True)
def randint(call: Call, *args: Any, **_: Any) -> Tensor:
    (high,) = [a for a in args if isinstance(a, int)][:1]
    return threefry.randint(0, high, _fixed(call))


@op("aten.randperm.default", call=True)
def randperm(call: Call, n: int, **_: Any) -> Tensor:
    _fixed(call)
    return threefry.randperm(n)


@op("aten.multinomial.default")
def multinomial(weights: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    return threefry.multinomial(weights, count, replacement)


@op("aten.native_dropout.default", call=True)
def native_dropout(call: Call, x: Tensor, p: float, train: bool | None) -> Any:
    """The result, and which elements stayed."""
    if train is False or p == 0:
        return x, tensor(True, dt.bool_).expand(*x.shape)
    kept = _uniform(call) >= p
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return svod.where(kept, x * scale, tensor(0, x.dtype)), kept
