"""Tensors. The package can be called like ``torch.tensor``: ``svod.tensor([1.0, 2.0])``."""

import sys
from types import ModuleType
from typing import Any

from svod.tensor.core.tensor_core import load_complex_class_by


class _Package(ModuleType):
    """This package, which shares its name with the function that makes tensors."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """A tensor with a copy of the data."""
        from svod.tensor.core.public_functions import spelled

        return spelled(_tensor)(*args, **options)


def _tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A tensor with a copy of the data."""
    from svod.tensor.tensor import Tensor

    return Tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def _complex_class() -> type[Any]:
    from svod.tensor.complex.complex_tensor import ComplexTensor

    return ComplexTensor


load_complex_class_by(_complex_class)
_tensor.__name__ = _tensor.__qualname__ = "tensor"
sys.modules[__name__].__class__ = _Package
