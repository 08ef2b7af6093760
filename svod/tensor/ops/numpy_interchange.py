"""Data interchange: tensors from Python values, NumPy and DLPack, and back.

``Tensor(x)`` copies, ``Tensor.from_numpy(x)`` and ``from_dlpack`` share memory when they can.
Reading a tensor realises it, except where the value is already there behind movement ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.dtype.casts import cast_array
from svod.dtype.convert import dtype_of, from_numpy, to_numpy
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import capabilities_of
from svod.ir.node import UOp, is_symbolic, make
from svod.ir.placement import is_mesh
from svod.tensor.core import tracing
from svod.tensor.core.history import is_leaf, is_mark, share_history
from svod.tensor.core.tensor_core import (
    Core,
    default_device,
    device_name,
    number_type,
    scalar_node,
    wrap,
)
from svod.tensor.core.tensor_registry import (
    buffer_node,
    buffer_of,
    is_memory,
    moved_from,
    own_memory,
)
from svod.tensor.core.variable import bound_value, concrete
from svod.tensor.ops.joining import stack
from svod.tensor.recording.realize import realize
from svod.tensor.views.aliases import family, linked, refresh
from svod.tensor.views.as_strided import strided
from svod.tensor.views.pending_writes import readers

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


# -- in ----------------------------------------------------------------------------------------


def node_of_data(data: Any, dtype: Any, device: str | None) -> tuple[UOp, str | None]:
    """A node with a copy of the data, and its device."""
    if isinstance(data, np.generic):
        data = np.asarray(data)
    if isinstance(data, (bool, int, float, complex)):
        kind = number_type(data) if dtype is None else dtype_of(dtype)
        return scalar_node(data, kind), device
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        return _stacked(data, dtype, device)
    if isinstance(data, np.ndarray):
        return node_of_array(data, dtype, device, copy=True)
    if isinstance(data, (list, tuple, range)):
        return node_of_array(_array_of_list(data, dtype), dtype, device, copy=False)
    if _is_on_gpu(data):
        found = import_dlpack(data, device, copy=True)
        return found.uop if dtype is None else B.cast(found.uop, dtype_of(dtype)), found._device
    if isinstance(data, (bytes, bytearray, memoryview)) or hasattr(data, "__array__"):
        array = np.asarray(data) if hasattr(data, "__array__") else np.frombuffer(data, np.uint8)
        return node_of_array(array, dtype, device, copy=True)
    if hasattr(data, "__dlpack__"):
        return node_of_array(np.from_dlpack(data), dtype, device, copy=True)
    raise DTypeError(f"a tensor cannot be made from a {type(data).__name__}: {data!r:.60}")


def _is_on_gpu(data: Any) -> bool:
    """Whether another library holds the data in memory the host cannot see."""
    if not hasattr(data, "__dlpack_device__"):
        return False
    from svod.device.dlpack import CUDA

    return int(data.__dlpack_device__()[0]) == CUDA


def _holds_tensors(data: Sequence[Any]) -> bool:
    return any(
        isinstance(v, Core) or (isinstance(v, (list, tuple)) and _holds_tensors(v)) for v in data
    )


def _stacked(data: Sequence[Any], dtype: Any, device: str | None) -> tuple[UOp, str | None]:
    parts = []
    for v in data:
        if isinstance(v, Core):
            parts.append(v)
        else:
            node, where = node_of_data(v, dtype, device)
            parts.append(wrap(node, where))
    found = stack(parts)  # type: ignore[arg-type]
    node = found.uop if dtype is None else B.cast(found.uop, dtype_of(dtype))
    return node, found._device or device


def _array_of_list(data: Any, dtype: Any) -> Array:
    try:
        array = np.array(data)
    except ValueError:
        raise ShapeError("nested lists must have equal lengths at every level") from None
    except OverflowError as error:
        raise DTypeError(f"a whole number is too large for a tensor: {error}") from None
    if dtype is None and array.dtype == np.float64:
        return array.astype(np.float32)
    if dtype is None and array.dtype == np.complex128:
        return array.astype(np.complex64)
    return array


def node_of_array(
    array: Array, dtype: Any, device: str | None, copy: bool
) -> tuple[UOp, str | None]:
    """A node over a buffer with the elements of an array."""
    where = device or default_device()
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "biufcV" or array.dtype.names:
        raise DTypeError(f"arrays of {array.dtype} cannot become tensors: convert to numbers")
    if dtype is not None:
        array, copy = _cast(array, dtype_of(dtype), copy)
    kind = from_numpy(array.dtype)
    if kind.is_complex:
        return _node_of_complex(array, where, copy), where
    if array.size == 0:
        return B.full(array.shape, 0, kind), where
    buffer = Buffer.from_numpy(array, copy, where)
    return B.reshape(B.new_buffer(array.size, kind, where, buffer), array.shape), where


def _node_of_complex(array: Array, where: str, copy: bool) -> UOp:
    row_major = np.ascontiguousarray(array)  # a copy is not copied again
    pairs = row_major.reshape(-1).view(row_major.real.dtype)
    is_copied = not np.shares_memory(row_major, array)
    node, _ = node_of_array(pairs, None, where, copy and not is_copied)
    return B.complex_view(B.reshape(node, (*array.shape, 2)))


def _cast(array: Array, dtype: DType, copy: bool) -> tuple[Array, bool]:
    found = cast_array(array, dtype)
    return found, copy and found is array


def copied(node: UOp) -> UOp:
    """The same value; memory is copied now, for somebody may write to it later."""
    if node.op == O.COMPLEX:
        return B.complex_view(copied(node.src[0]))
    buffer = buffer_of(node)
    if buffer is None:
        if is_mark(moved_from(node)) or is_memory(node):  # views of a leaf are its own
            return make(O.CONTIGUOUS, node.dtype, (node,))
        return node
    twin = B.new_buffer(buffer.size, buffer.dtype, buffer.device, buffer.copied())
    base = buffer_node(node)
    assert base is not None, "what has a buffer is one"
    share_history(base, twin)
    return B.view_as(twin, node.shape)


def import_dlpack(source: Any, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an object with ``__dlpack__``; shared when it can be."""
    from svod.device.dlpack import from_dlpack

    imported = from_dlpack(source, copy, takes_strides=True)
    buffer = imported.buffer
    if buffer.dtype.is_complex:
        floats = buffer.cast_to(dt.FLOATS_OF[buffer.dtype])
        strides = imported.strides and (*[2 * s for s in imported.strides], 1)
        imported = imported._replace(buffer=floats, shape=(*imported.shape, 2), strides=strides)
        found = wrap(B.complex_view(_imported(imported).uop), floats.device)
    else:
        found = _imported(imported)
    return found if device is None else found.to(device_name(device))


def _imported(imported: Any) -> Tensor:
    buffer = imported.buffer
    if buffer.size == 0:
        return wrap(B.full(imported.shape, 0, buffer.dtype), buffer.device)
    node = B.new_buffer(buffer.size, buffer.dtype, buffer.device, buffer)
    if imported.strides is None:
        return wrap(B.reshape(node, imported.shape), buffer.device)
    found = wrap(strided(node, imported.shape, imported.strides), buffer.device)
    return found.contiguous().realize() if imported.is_borrowed else found


# -- out ---------------------------------------------------------------------------------------


def host_array(node: UOp, is_copied: bool = False) -> Array | None:
    """The value of a node that only moves a constant or a filled buffer; else None.

    Memory that the host cannot see gives None too, or a copy where one is asked for.
    """
    moves = []
    while node.op in O.VIEWS and node.op != O.PAD:
        moves.append(node)
        node = node.src[0]
    if node.op == O.CONST:
        found: Array = np.array(node.arg).astype(to_numpy(node.dtype))
    elif node.op in (O.BUFFER, O.BUFFER_VIEW):
        buffer = buffer_of(node)
        if buffer is None:
            return None
        is_visible = buffer.storage.allocator.host_visible
        if not is_visible and not is_copied:
            return None
        found = buffer.numpy() if is_visible else buffer.copyout()
    else:
        return None
    for move in reversed(moves):
        op, arg = move.op, move.arg
        if op == O.RESHAPE:
            found = found.reshape(concrete(arg))
        elif op == O.EXPAND:
            found = np.broadcast_to(found, concrete(arg))
        elif op == O.PERMUTE:
            found = found.transpose(arg)
        elif op == O.SHRINK:
            found = found[tuple([slice(bound_value(a), bound_value(b)) for a, b in arg])]
        elif op == O.COMPLEX:
            found = _joined(found)
        else:
            found = np.flip(found, arg)
    return found


def _joined(pairs: Array) -> Array:
    """Pairs of floats as complex numbers, in the same memory where they lie side by side."""
    kind = to_numpy(dt.COMPLEX_OF[from_numpy(pairs.dtype)])
    if pairs.strides[-1] != pairs.itemsize:
        pairs = np.ascontiguousarray(pairs)
    return pairs.view(kind)[..., 0]


class Host(Core):
    """numpy, item, tolist, array_view, copyin and the Python protocols of values."""

    __slots__ = ()

    def numpy(self: Tensor) -> Array:
        """The values as a new NumPy array."""
        if tracing.state.depth:
            tracing.refuse_traced((self,))
        if 0 in self.shape:
            return np.empty(self.shape, to_numpy(self.dtype))
        if is_mesh(self._device):
            return self.to("CPU").numpy()
        found = host_array(self.uop)
        if found is None:
            self.realize()
            buffer = buffer_of(self.uop)
            if buffer is not None and not is_symbolic(self.shape):
                return buffer.copyout().reshape(self.shape)
            found = host_array(self.uop, is_copied=True)
            assert found is not None, "realize() leaves a buffer"
        return np.array(found)

    def array_view(self: Tensor) -> Array:
        """The values as a NumPy array that shares the tensor's memory; realises first."""
        if tracing.state.depth:
            tracing.refuse_traced((self,))
        if 0 in self.shape:
            return np.empty(self.shape, to_numpy(self.dtype))
        if buffer_node(self.uop) is None:
            self.realize()
        own_memory(self.uop)
        buffer = buffer_of(self.uop)
        if buffer is None:  # realising a view of a buffer may leave it a view
            found = host_array(self.uop)
            assert found is not None, "realize() leaves a buffer"
            return found
        if is_symbolic(self.shape):
            found = host_array(self.uop)
            assert found is not None, "realize() leaves a buffer"
            return found
        return buffer.numpy().reshape(self.shape)

    def copyin(self: Tensor, array: Any) -> Tensor:
        """Overwrite the memory of a realised tensor with the values of an array, in place."""
        values = np.asarray(array)
        if values.shape != self.shape:
            raise ShapeError(f"copyin: an array of shape {values.shape} does not fit {self.shape}")
        if from_numpy(values.dtype) is not self.dtype:
            raise DTypeError(f"copyin: {values.dtype} values for a {self.dtype.name} tensor: cast")
        if 0 in self.shape:
            return self
        if tracing.state.depth:
            tracing.refuse_traced((self,))
        if buffer_of(self.uop) is None:
            self.contiguous().realize() if buffer_node(self.uop) else self.realize()
        own_memory(self.uop)
        buffer = buffer_of(self.uop)
        assert buffer is not None, "realize() leaves a buffer"
        buffer.require_writable()
        _read_first(self)
        buffer.copyin(values)
        refresh((self,))
        return self

    def item(self: Tensor) -> Any:
        """The value of a tensor with one element, as a Python number."""
        if self.numel() != 1:
            raise ShapeError(f"item() needs one element, not shape {self.shape}")
        return plain_elements(self.numpy()).item()

    def tolist(self: Tensor) -> Any:
        """The values as nested lists of Python numbers."""
        return plain_elements(self.numpy()).tolist()

    def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            view = self.array_view()
            if dtype is not None and np.dtype(dtype) != view.dtype:
                raise ShapeError(f"an array of {np.dtype(dtype)} needs a copy")
            return view
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(
        self: Tensor,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from svod.device.dlpack import to_dlpack

        return to_dlpack(
            _shared_buffer(self),
            self.shape,
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
            copy=copy,
        )

    def __dlpack_device__(self: Tensor) -> tuple[int, int]:
        from svod.device.dlpack import dlpack_device

        return dlpack_device(_shared_buffer(self))

    def __reduce__(self: Tensor) -> Any:
        return type(self), (self.numpy(), None, self._device, is_leaf(self))

    def __copy__(self: Tensor) -> Tensor:
        return linked(wrap(self.uop, self._device), self)

    def __deepcopy__(self: Tensor, memo: Any) -> Tensor:
        found = self.detach().clone()
        return found.requires_grad_() if is_leaf(self) else found

    def __bool__(self: Tensor) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is not defined: use any() or all()"
            )
        return bool(self.item())

    def __int__(self: Tensor) -> int:
        return int(self.item())

    def __float__(self: Tensor) -> float:
        return float(self.item())

    def __complex__(self: Tensor) -> complex:
        return complex(self.item())

    def __index__(self: Tensor) -> int:
        if not self.dtype.is_int or self.numel() != 1:
            kind = f"{self.dtype.name} of shape {self.shape}"
            raise DTypeError(f"only one whole number is an index, not {kind}")
        return int(self.item())

    def __len__(self: Tensor) -> int:
        if not self.shape:
            raise DTypeError("len() of a tensor without axes")
        return as_index(self.shape[0])

    def __iter__(self: Tensor) -> Any:
        if not self.shape:
            raise DTypeError("iteration over a tensor without axes")
        if not tracing.state.depth and not is_memory(self.uop):
            self.realize()  # once, not for every row that is read
        return iter(self.unbind(0))

    def __contains__(self: Tensor, value: Any) -> bool:
        return bool((self == value).any())


def plain_elements(array: Array) -> Array:
    """An array whose elements become Python numbers: bfloat16 and 8-bit floats as float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _read_first(x: Tensor) -> None:
    """Compute what was made from the values that are about to be overwritten."""
    realize(readers({tracing.memory_of(x.uop)}, [x], {family(x)}))


def _shared_buffer(x: Tensor) -> Any:
    if tracing.state.depth:
        tracing.refuse_traced((x,))
    if buffer_of(x.uop) is None:
        x.realize()
    own_memory(x.uop)
    found = buffer_of(x.uop)
    if found is None and not capabilities_of(x.device).is_on_host:
        found = buffer_of(x.contiguous().realize().uop)
    if found is None:
        found = Buffer.from_numpy(np.ascontiguousarray(x.numpy()), False)
    return found
