"""ComplexTensor: the class of tensors of complex numbers.

It has the methods of Tensor that are right for them: formulas of its own, and those of ALLOWED,
which only move, choose, add or store, or are built of what does. All others raise a DTypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from svod.base.errors import DTypeError
from svod.tensor.complex import complex_pair
from svod.tensor.complex_math import power
from svod.tensor.complex_methods import ComplexElements, ComplexFolds, divided
from svod.tensor.core import set_complex_class, spelled
from svod.tensor.tensor import IN_PLACE, Tensor, in_place

# Methods and properties that are right for complex numbers as Tensor has them.
_FACTS = (
    "shape dtype device ndim size numel nelement dim ndimension itemsize element_size nbytes "
    "is_realized graph realize prepare contiguous is_contiguous clone data to to_device cpu "
    "numpy array_view copyin item tolist assign copy_ fill_ zero_ become uop _device _grad "
    "is_floating_point is_complex is_same_size is_nonzero from_numpy from_dlpack cast astype "
    "type type_as bool requires_grad requires_grad_ is_leaf grad detach detach_ backward "
    "manual_seed"
)
_MOVEMENT = (
    "T mT t reshape view view_as reshape_as flatten ravel unflatten squeeze unsqueeze expand "
    "broadcast_to expand_as permute transpose swapaxes swapdims movedim moveaxis shrink "
    "narrow pad flip fliplr flipud rot90 roll repeat tile repeat_interleave tril triu "
    "diagonal diag diag_embed unfold hsplit vsplit dsplit split_with_sizes select "
    "narrow_copy diagflat diff sum_to_size as_strided new_empty new_tensor cat stack split "
    "chunk tensor_split unbind squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ full "
    "zeros ones empty arange linspace eye full_like zeros_like ones_like new_full new_zeros "
    "new_ones rand randn randint randperm"
)
_ELEMENTS = (
    "gather take_along_dim index_select take masked_select nonzero argwhere scatter "
    "scatter_add index_add index_copy index_fill index_put masked_scatter masked_fill where "
    "diagonal_scatter select_scatter slice_scatter put"
)
_ARITHMETIC = (
    "add sub mul multiply subtract rsub neg negative positive square lerp addcmul eq ne "
    "not_equal equal logical_and logical_or logical_xor logical_not deg2rad rad2deg sum mean "
    "any all count_nonzero cumsum trace nansum nanmean matmul dot mm bmm mv addmm addmv addr "
    "baddbmm addbmm linear outer ger inner tensordot kron cross matrix_power "
    "det slogdet inverse pinverse cholesky cholesky_solve cholesky_inverse qr svd matrix_exp"
)
ALLOWED = frozenset(f"{_FACTS} {_MOVEMENT} {_ELEMENTS} {_ARITHMETIC}".split())
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
        return Tensor, (self.numpy(), None, self._device)


def _refused(name: str) -> Callable[..., Any]:
    def function(self: Tensor, *args: Any, **options: Any) -> Any:
        raise DTypeError(f"{name} takes real numbers, not {self.dtype.name}")

    function.__name__ = function.__qualname__ = name
    return function


def _close(cls: type[Tensor]) -> None:
    """Refuse what is neither a method of the class's own nor allowed, and build in-place forms."""
    own = {name for base in cls.__mro__[: cls.__mro__.index(Tensor)] for name in vars(base)}
    for name in dir(Tensor):
        if name in own or name in ALLOWED or name in IN_PLACE or name.startswith("_"):
            continue
        member = getattr(Tensor, name)
        refusal = spelled(_refused(name)) if isinstance(member, FunctionType) else None
        setattr(cls, name, refusal or property(_refused(name)))
    for text, names in _OPERATORS.items():
        for name in names.split():
            setattr(cls, f"__{name}__", _refused(text))
    for name, source in IN_PLACE.items():
        if name not in own:
            setattr(cls, name, in_place(getattr(cls, source), source))


_close(ComplexTensor)
set_complex_class(ComplexTensor)
