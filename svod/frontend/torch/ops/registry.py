"""The table of operators: from the names of torch's overloads to functions of Svod tensors.

``@op("aten.relu.default")`` registers a function that takes the operator's arguments: tensors of
Svod, numbers, sizes (integers or nodes), lists of these, and dtypes of Svod. ``@op(.., call=True)``
passes a `Call` first, which knows the dtypes and sizes that torch expects. The result is cast to
the dtype torch says and checked against its shape by whoever calls, so functions need not care.
A function that cannot do a particular call raises `UnsupportedError`; then torch does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from svod.base.errors import ShapeError, UnsupportedError
from svod.dtype.types import DType
from svod.frontend.torch.dtypes import from_torch
from svod.frontend.torch.sizes import Sizes
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic, make
from svod.tensor.core.tensor_core import size_node, wrap
from svod.tensor.tensor import Tensor

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands for an operator."""

    function: Function
    takes_call: bool


TABLE: dict[str, Entry] = {}


def op(*names: str, call: bool = False) -> Callable[[Function], Function]:
    """Register a function for operators, such as ``aten.add.Tensor``."""

    def decorate(function: Function) -> Function:
        for name in names:
            assert name not in TABLE, f"{name} is registered twice"
            TABLE[name] = Entry(function, call)
        return function

    return decorate


class Call:
    """One call of an operator in a graph: what torch says about its arguments and results."""

    __slots__ = ("node", "sizes")

    def __init__(self, node: torch.fx.Node, sizes: Sizes) -> None:
        self.node = node
        self.sizes = sizes

    @property
    def value(self) -> Any:
        """The first result, as a tensor without data."""
        found = self.node.meta["val"]
        return found[0] if isinstance(found, (tuple, list)) else found

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        return from_torch(self.value.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first result."""
        return self.sizes.shape(self.value.shape)

    @property
    def common(self) -> DType:
        """The dtype that torch brings the operands to before it compares them."""
        found = [_value(a) for a in self.node.args[:2]]
        return from_torch(torch.result_type(*found))


def _value(arg: Any) -> Any:
    return arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg


def operand(value: Any, dtype: DType) -> Any:
    """A tensor or a size in this dtype; numbers stay numbers, which tensors take as they are."""
    if isinstance(value, Tensor):
        if value.dtype.kind == "c" and dtype.kind != "c":
            raise UnsupportedError("complex numbers in an operator that gives real ones")
        return value.cast(dtype) if value.dtype is not dtype else value
    if isinstance(value, UOp):
        return wrap(size_node(value, dtype), None)
    return value


def tensor(value: Any, dtype: DType) -> Tensor:
    """A tensor, a size or a number as a tensor of this dtype."""
    found = operand(value, dtype)
    return found if isinstance(found, Tensor) else Tensor(found, dtype=dtype)


def reshaped(x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The same elements under another shape, which torch has checked: run-time sizes may be equal
    without being written alike, as n * m and n * m // 2 * 2 are where torch knows n to be even."""
    if x.dtype.kind == "c":
        return x.reshape(shape)
    try:
        return wrap(B.reshape(x.uop, shape), x._device)
    except ShapeError:
        if not (is_symbolic(shape) and is_symbolic(x.shape)):
            raise
    line = B.reshape(x.uop, (prod(x.shape),))
    line = make(O.SHRINK, line.dtype, (line,), ((0, prod(shape)),))
    return wrap(B.reshape(line, shape), x._device)


def alias(names: dict[str, str]) -> None:
    """Other names of operators, such as ``true_divide`` for ``div``, in all their forms."""
    for other, name in names.items():
        for known in list(TABLE):
            form = known.removeprefix(f"aten.{name}.")
            if form != known and hasattr(getattr(torch.ops.aten, other), form):
                TABLE.setdefault(f"aten.{other}.{form}", TABLE[known])
