"""Nodes of an FX graph as Svod tensors.

In: nodes of ATen operators in order, and values for the nodes outside that they use. Out: a value
for each node: a tensor, a tuple of these, a size. Every result has the dtype and the shape that
torch noted for it; a function that gives another shape is at fault, and said to be.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from svod.base.errors import GraphError, UnsupportedError
from svod.frontend.torch.dtypes import from_torch, is_known
from svod.frontend.torch.ops import TABLE, Call
from svod.frontend.torch.report import report
from svod.frontend.torch.sizes import Sizes
from svod.ir import ops as O
from svod.ir.node import make
from svod.tensor.core.tensor_core import wrap
from svod.tensor.tensor import Tensor

GETITEM = "_operator.getitem"
_DROPS_IMAGINARY = ("aten._to_copy.default", "prims.convert_element_type.default")


def name_of(node: Node) -> str:
    """The name of an operator, as the table has it."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", "")
    return f"{module}.{getattr(target, '__name__', target)}"


def is_size(node: Node) -> bool:
    """Whether a node computes a size, which torch has noted in full."""
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool)


def is_translated(node: Node) -> bool:
    """Whether the table has the operator, and Svod the dtypes it takes and gives."""
    if name_of(node) == GETITEM:
        return True
    if name_of(node) not in TABLE:
        return False
    values = [node.meta.get("val"), *[n.meta.get("val") for n in node.all_input_nodes]]
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, (list, tuple)) else [value]
    tensors = [v for v in flat if isinstance(v, torch.Tensor)]
    return all(is_known(t.dtype) and t.layout == torch.strided for t in tensors)


class Translation:
    """The values of the nodes of one plan, as far as they are known."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.values: dict[Node, Any] = {}

    def add(self, node: Node) -> None:
        """Translate a node; those it uses are known. UnsupportedError where that cannot be."""
        if name_of(node) == GETITEM:
            self.values[node] = self._argument(node.args[0])[node.args[1]]
            return
        entry = TABLE[name_of(node)]
        args = [self._argument(a) for a in node.args]
        named = {key: self._argument(a) for key, a in node.kwargs.items()}
        if entry.takes_call:
            args.insert(0, Call(node, self.sizes))
        try:
            found = entry.function(*args, **named)
            self.values[node] = self._conformed(node, found, node.meta["val"])
        except UnsupportedError:
            raise
        except Exception as error:  # whatever it is, torch can do the call
            text = f"{type(error).__name__}: {error}"
            report().faults[f"{name_of(node)}: {text}"] += 1
            raise UnsupportedError(text) from error

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, Node):
            if arg not in self.values and is_size(arg):
                return self.sizes.of(arg.meta["val"])
            return self.values[arg]
        if isinstance(arg, (list, tuple)):
            return [self._argument(a) for a in arg]
        if isinstance(arg, torch.dtype):
            return from_torch(arg)
        if isinstance(arg, torch.SymInt):
            return self.sizes.of(arg)
        if isinstance(arg, slice):
            return slice(*[self._argument(a) for a in (arg.start, arg.stop, arg.step)])
        return arg

    def _conformed(self, node: Node, found: Any, value: Any) -> Any:
        """The result in the dtype and shape that torch says."""
        if isinstance(value, (tuple, list)):
            return tuple([self._conformed(node, f, v) for f, v in zip(found, value, strict=False)])
        if value is None or found is None or not isinstance(value, torch.Tensor):
            return found
        kind = from_torch(value.dtype)
        if found.dtype.kind == "c" and kind.kind != "c" and name_of(node) not in _DROPS_IMAGINARY:
            raise UnsupportedError("complex numbers in an operator that gives real ones")
        if found.dtype is not kind:
            found = found.cast(kind)
        shape = self.sizes.shape(value.shape)
        if found.shape == shape:
            return found
        if len(found.shape) != len(shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(found.shape, shape, strict=True)
        ):
            raise GraphError(
                f"{name_of(node)} gave {found.shape} where torch has {tuple(value.shape)}"
            )
        return _renamed(found, shape)


def _renamed(x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The same tensor with its run-time sizes written as torch writes them."""
    if x.dtype.kind == "c":
        raise UnsupportedError("complex numbers of run-time sizes")
    ends = tuple([(0, n) for n in shape])
    return wrap(make(O.SHRINK, x.uop.dtype, (x.uop,), ends), x._device)
