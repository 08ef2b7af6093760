"""Custom functions in a lazy graph: code that Svod did not compile, as a value like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype.convert import dtype_of
from svod.ir import ops as O
from svod.ir.args import CustomArg
from svod.ir.node import make
from svod.tensor.core.tensor_core import common_device, tensor_of, wrap

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def custom_function(
    kind: str,
    *tensors: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    attrs: Sequence[object] = (),
) -> Tensor:
    """What the function registered under ``kind`` writes, given these tensors.

    The function gets the buffers of the result and of the tensors, ``attrs``, and the values of
    variables; see ``register_custom_function``. Shape and dtype of the result are those of the
    first tensor where they are not given. The kind may be registered later, but before it runs.

        >>> import numpy as np, svod
        >>> from svod.runtime import register_custom_function
        >>> def sort(buffers, attrs, values):
        ...     buffers[0].numpy()[:] = np.sort(buffers[1].numpy())
        >>> found = register_custom_function("sort", sort, replace=True)
        >>> (svod.custom_function("sort", svod.Tensor([3.0, 1.0, 2.0])) + 1).tolist()
        [2.0, 3.0, 4.0]
    """
    sources = [tensor_of(t) for t in tensors]
    if not sources and (shape is None or dtype is None):
        raise ShapeError(f"custom function {kind!r} without tensors needs a shape and a dtype")
    device = None
    for t in sources:
        device = common_device(device, t._device)
    if any(t.dtype.is_complex for t in sources):
        raise DTypeError(f"custom function {kind!r} takes real tensors: give view_as_real(x)")
    size = sources[0].shape if shape is None else tuple(shape)
    kept = sources[0].dtype if dtype is None else dtype_of(dtype)
    arg = CustomArg(kind, tuple(attrs), size)
    return wrap(make(O.CUSTOM_FUNCTION, kept, tuple([t.uop for t in sources]), arg), device)
