"""Bounds checks of indices: at the call where their values are known, else inside the plan.

Public functions pass every index, label and class number through here, with the size of the axis
it addresses. Lists, arrays and constants are looked at at once. An index tensor whose bounds are
known to fit needs nothing. Any other is marked, and the plan that reads it looks at its values;
see ``svod.ir.guards``. Functions inside Svod that know what they do use ``B.gather`` and
``B.scatter`` as they are: outside of an axis these read 0 and write nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import IndexRangeError
from svod.base.knobs import knobs
from svod.dtype import types as dt
from svod.ir.args import IndexCheck
from svod.ir.bounds import bounds_of
from svod.ir.guards import marked
from svod.ir.node import UOp
from svod.runtime.index_checks import out_of_range
from svod.tensor.core.tensor_core import Core, IndexKindError, size_node, tensor_of, user_line, wrap

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def index_of(
    value: Any, like: Tensor | None, size: int, what: str, takes_negative: bool = False
) -> Tensor:
    """An index argument as a tensor of integers, checked against the size of its axis."""
    found = tensor_of(value, like)
    if not found.dtype.is_int:
        raise IndexKindError(f"{what}: an index must hold integers, not {found.dtype.name}")
    is_array = not isinstance(value, Core) and found.uop.vmin != found.uop.vmax
    if is_array and not isinstance(size, UOp):
        _check_array(np.asarray(value), size, what, takes_negative)
        return found
    return wrap(checked(found.uop, size, what, takes_negative), found._device)


def _check_array(array: Any, size: int, what: str, takes_negative: bool) -> None:
    if not array.size:
        return
    low, high = int(array.min()), int(array.max())
    least = -size if takes_negative else 0
    if low < least or high >= size:
        raise out_of_range(what, low if low < least else high, size, takes_negative)


def checked(
    index: UOp, size: int, what: str, takes_negative: bool = False, ignored: int | None = None
) -> UOp:
    """An index tensor that is marked where it may leave an axis of this size."""
    if not knobs.check_indices or 0 in index.shape:
        return index
    if type(size) is int and not size and ignored is None:
        raise IndexRangeError(f"{what}: an axis of size 0 takes no index")
    takes_negative = takes_negative and index.dtype.kind != "u"
    low, high = bounds_of(index)
    most = size.vmin if isinstance(size, UOp) else size
    least = -most if takes_negative else 0
    if least <= low and high < most:
        return index
    if isinstance(size, UOp):
        node = marked(index, IndexCheck(what, -1, takes_negative), size_node(size, dt.int64))
    else:
        if ignored is not None and not low <= ignored <= high:
            ignored = None
        if ignored is None and (high < least or low >= size):
            raise out_of_range(what, high if high < least else low, size, takes_negative)
        node = marked(index, IndexCheck(what, size, takes_negative, ignored))
    if node.origin is None and knobs.origins:
        node.origin = user_line()
    return node
