"""ComplexTensor: the class of tensors of complex numbers.

It has formulas of its own where those of Tensor, which move, choose, add and store, are not right
for both. Which methods take complex numbers at all is said in `svod.tensor.core.complex_support`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.base.errors import DTypeError
from svod.tensor.complex.complex_methods import ComplexElements, ComplexFolds, divided
from svod.tensor.complex.elementary_functions import power
from svod.tensor.core import public_functions
from svod.tensor.core.complex_parts import complex_pair
from svod.tensor.core.history import is_leaf
from svod.tensor.tensor import IN_PLACE, Tensor, in_place

_OPERATORS = {  # of real numbers only
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "//": "floordiv rfloordiv", "%": "mod rmod",
    "divmod": "divmod", "&": "and rand", "|": "or ror", "^": "xor rxor", "<<": "lshift rlshift",
    ">>": "rshift rrshift", "~": "invert", "int()": "int", "float()": "float", "index": "index",
}  # fmt: skip


class ComplexTensor(ComplexElements, ComplexFolds, Tensor):
    """A lazy array of complex numbers: ``Tensor([1 + 2j, 3j])``."""

    __slots__ = ()

    def __abs__(self) -> Tensor:
        return self.abs()

    def __truediv__(self, other: Any) -> Tensor:
        return divided(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return divided(self, other, True)

    def __pow__(self, other: Any) -> Tensor:
        return power(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        exponent, base = complex_pair(self, other)
        return power(base, exponent)

    def __reduce__(self) -> Any:
        return Tensor, (self.numpy(), None, self._device, is_leaf(self))


def _refused(text: str) -> Callable[..., Any]:
    def operator(self: Tensor, *args: Any) -> Any:
        raise DTypeError(f"{text} takes real numbers, not {self.dtype.name}")

    return operator


for _text, _names in _OPERATORS.items():
    for _name in _names.split():
        setattr(ComplexTensor, f"__{_name}__", _refused(_text))
for _name, _source in IN_PLACE.items():
    setattr(ComplexTensor, _name, in_place(getattr(ComplexTensor, _source), _source))
public_functions.set_complex_class(ComplexTensor)
