"""Tensors as text: ``print(loss)``, ``f"{loss:.3f}"``, lists of tensors.

Text shows values, so printing a lazy tensor computes it. The dtype and shape stand in for the
values (``f32[8,512] CPU lazy``) where they cannot be computed: while a function is recorded, with
a size that is not bound, on a device that computes nothing; and with ``SVOD_REPR=lazy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import SvodError, VariableError
from svod.base.knobs import knobs
from svod.device.names import base_key
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.tensor.core import tracing
from svod.tensor.core.history import is_leaf
from svod.tensor.ops.numpy_interchange import host_array, plain_elements

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def describe(x: Tensor) -> str:
    """``Tensor([1.0, 2.0], dtype=float32, device=CPU)``, or shape and dtype without values."""
    name = "Parameter" if type(x).__name__ == "Parameter" else "Tensor"
    values = shown_values(x)
    if isinstance(values, str):
        return values
    text = np.array2string(values, separator=", ", prefix=name + "(", threshold=1000)
    facts = f", shape={x.shape}" if 0 in x.shape else ""
    facts += f", dtype={x.dtype.name}, device={x.device}"
    facts += ", requires_grad=True" if is_leaf(x) else ""
    return f"{name}({text}{facts})"


def formatted(x: Tensor, spec: str) -> str:
    """``format(x, spec)``: every element by the format of numbers, rows as NumPy lays them out."""
    values = shown_values(x) if spec else describe(x)
    if isinstance(values, str):
        return values
    if values.size == 1:
        return format(values.item(), spec)

    def one(value: Any) -> str:
        return format(value.item(), spec)

    return np.array2string(values, formatter={"all": one}, threshold=1000)


def shown_values(x: Tensor) -> Any:
    """The elements as an array, or the text that stands in for them."""
    if 0 in x.shape:
        return np.empty(x.shape)
    sizes = ",".join([_size(n) for n in x.shape])
    stand_in = f"{x.dtype!r}[{sizes}] {x.device} lazy"
    try:
        found = host_array(x.uop)
        if found is None:
            if tracing.state.depth or knobs.repr == "lazy" or base_key(x.device) == "NULL":
                return stand_in
            found = x.numpy()
    except VariableError:
        return stand_in
    except SvodError as error:  # a device that is not here, say: text does not raise
        return f"{stand_in} ({type(error).__name__}: {error})"
    return plain_elements(found)


def _size(size: UOp | int) -> str:
    """A size as a number where its variables are bound, else as arithmetic over their names."""
    if not isinstance(size, UOp):
        return str(size)
    if size.op == O.DEFINE_VAR:
        return str(size.arg.name)
    if size.op == O.BIND:
        return str(size.src[1].arg)
    if size.op == O.CONST:
        return str(size.arg)
    parts = [_size(s) for s in size.src]
    sign = {O.ADD: "+", O.MUL: "*", O.IDIV: "//", O.MOD: "%"}.get(size.op)
    return f"({sign.join(parts)})" if sign else f"{O.NAMES[size.op].lower()}({','.join(parts)})"
