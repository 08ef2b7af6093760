"""The base class of tensors, tensors from nodes, operands under one dtype, checked arguments.

A method takes nodes from its tensors, builds a new node and wraps it. ``device`` is None for
values that live nowhere yet (constants, ranges); they follow whatever they meet.
Every public method accepts both spellings of a keyword, torch's and the array API's; the base
class of the families arranges that once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_index
from sys import _getframe
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

import numpy as np

from svod.base.errors import DeviceError, DTypeError, IndexingError, RangeError, ShapeError
from svod.base.knobs import knobs
from svod.dtype import types as dt
from svod.dtype.casts import pack_const
from svod.dtype.promotion import promote, result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core import tensor_registry
from svod.tensor.core.module_paths import current_path
from svod.tensor.core.public_functions import set_tensor_class, spelled

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor
    from svod.tensor.views.aliases import Link

Scalar: TypeAlias = bool | int | float | complex
Operand: TypeAlias = "Tensor | Scalar | np.ndarray[Any, Any]"
Axis: TypeAlias = "int | Sequence[int] | None"


_PROTOCOLS = ("__getitem__", "__setitem__", "__contains__")


class Core:
    """The fields of a tensor; families of methods derive from this."""

    __slots__ = ()

    if TYPE_CHECKING:
        uop: UOp
        _device: str | None
        _link: Link | None

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            is_public = not name.startswith("_") or name in _PROTOCOLS
            if isinstance(member, FunctionType) and is_public:
                setattr(cls, name, spelled(member))
            elif isinstance(member, staticmethod):
                setattr(cls, name, staticmethod(spelled(member.__func__)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    @property
    def device(self) -> str:
        """The device that holds, or will hold, the values."""
        return self._device or default_device()

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.uop.shape)


_class: type[Any] = Core  # tensor.py puts Tensor here; results are always plain tensors
_COMPLEX = O.COMPLEX
_complex_class: type[Any] | None = None  # of which complex results are made
_load_complex: Callable[[], type[Any]] | None = None  # the package names who loads that class
_new = object.__new__
_frame: Callable[[int], Any] = _getframe
_add = tensor_registry._add
_discard = tensor_registry._discard
_changes = tensor_registry.changes
_collected = tensor_registry.collected


class Ordered(NamedTuple):
    """Values and their indices along an axis: what sorts and extremes give."""

    values: Tensor
    indices: Tensor


def set_class(cls: type[Any]) -> None:
    """Name the class of which results are made."""
    global _class
    _class = cls
    set_tensor_class(cls)


def load_complex_class_by(load: Callable[[], type[Any]]) -> None:
    """Name the function that loads the class of tensors of complex numbers at first use."""
    global _load_complex
    _load_complex = load


def complex_class() -> type[Any]:
    """The class of tensors of complex numbers, loaded when there is one."""
    global _complex_class
    if _complex_class is None:
        assert _load_complex is not None, "the package says who loads it"
        _complex_class = _load_complex()
    return _complex_class


def become_complex(tensor: Any) -> None:
    """Make a tensor that was given a complex value one of the class for such."""
    if type(tensor) not in (_class, _complex_class):
        raise DTypeError(f"a {type(tensor).__name__} cannot hold complex numbers: use a Tensor")
    tensor.__class__ = complex_class()


def wrap(uop: UOp, device: str | None) -> Tensor:
    """A tensor over a node."""
    t = _new(_class if uop.op != _COMPLEX else complex_class())
    t.uop = uop
    t._device = device if device is None or device[:5] != "DISK:" else _beside_disk(uop, device)
    t._link = None
    known = ref(t, _discard)
    _add(known)
    if _collected:
        tensor_registry.collect(known)
    _changes[0] += 1
    if uop.origin is None and knobs.origins:
        uop.origin = line = user_line()
        while uop.op in O.VIEWS and uop.src[0].origin is None:  # later merges may drop these
            uop = uop.src[0]
            uop.origin = line
    return t  # type: ignore[no-any-return]


def _beside_disk(uop: UOp, device: str) -> str:
    """Where a tensor over a file is: memory and its views stay there, the CPU computes the rest."""
    while uop.op in O.VIEWS and uop.op != O.PAD:
        uop = uop.src[0]
    return device if uop.op in _ON_DISK else "CPU"


_ON_DISK = frozenset({O.BUFFER, O.BUFFER_VIEW, O.COPY, O.ASSIGN, O.AFTER})


def fresh(uop: UOp, device: str | None) -> Tensor:
    """A tensor of its own over a value, which may be nothing but the memory of another."""
    base = uop.src[0] if uop.op == O.RESHAPE else uop
    return wrap(B.contiguous(uop) if base.op == O.BUFFER else uop, device)


def user_line() -> tuple[str, int, str] | None:
    """File and line of the first caller outside Svod, and the module whose forward runs."""
    frame = _frame(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name[:5] != "svod." and name != "svod":
            return frame.f_code.co_filename, frame.f_lineno, current_path()
        frame = frame.f_back
    return None


def default_device() -> str:
    """The device of tensors that name none."""
    from svod.device.names import canonical

    return canonical(knobs.device)


def device_name(device: str | None) -> str | None:
    """A device argument in its one spelling; one that cannot be used is refused."""
    if device is None:
        return None
    from svod.device.registry import get_device

    return get_device(str(device)).name


def common_device(a: str | None, b: str | None) -> str | None:
    """The device of a result; a tensor that lives nowhere follows the other."""
    if a == b or b is None:
        return a
    if a is None:
        return b
    if a[:5] == "DISK:" and b[:3] in ("CPU", "DIS"):
        return b  # the CPU reads files where they are
    if b[:5] == "DISK:" and a[:3] == "CPU":
        return a
    raise DeviceError(f"operands are on {a} and {b}: move one with .to({a!r})")


# -- operands ----------------------------------------------------------------------------------


_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # what integers of 64 bits can be


def number_type(value: Scalar) -> DType:
    """The dtype of a Python number alone; where int64 ends there is uint64, as in NumPy."""
    return dt.uint64 if type(value) is int and value >= 1 << 63 else result_type(value)


def scalar_node(value: Scalar, dtype: DType) -> UOp:
    """A number as a constant of ``dtype``; a whole number that does not fit wraps."""
    if type(value) is int and dtype.kind in "iu" and not _LEAST <= value <= _MOST:
        bits = value.bit_length()
        raise RangeError(f"no integer of 64 bits holds a whole number of {bits} bits: use a float")
    return const(pack_const(value, dtype), dtype)


def size_node(size: Any, dtype: DType) -> UOp:
    """A size as a number of ``dtype``; a run-time size is read when the plan runs."""
    return B.cast(size, dtype) if isinstance(size, UOp) else const(size, dtype)


def is_operand(value: object) -> bool:
    """Whether arithmetic with a tensor accepts this value."""
    if isinstance(value, UOp):
        return value.dtype.kind == "x"  # a run-time size
    return isinstance(value, (_class, int, float, complex, np.generic, np.ndarray, list, tuple))


def pair(a: Tensor, b: Any) -> tuple[UOp, UOp, str | None]:
    """Both operands under their common dtype, and the device of the result."""
    x = a.uop
    dtype = x.dtype
    if isinstance(b, _class):
        y = b.uop
        device = a._device
        if b._device is not device:
            device = common_device(device, b._device)
        if y.dtype is not dtype:
            common = promote(dtype, y.dtype)
            return B.cast(x, common), B.cast(y, common), device
        return x, y, device
    if isinstance(b, np.generic):
        b = b.item()  # weak, like the Python number: np.sqrt(2) must not make float64
    if isinstance(b, (int, float, complex)):
        common = result_type(dtype, b)
        return B.cast(x, common), scalar_node(b, common), a._device
    if isinstance(b, (np.ndarray, list, tuple)):
        return pair(a, _class(b, device=a._device))
    if isinstance(b, UOp) and b.dtype.kind == "x":  # weak, like a Python number
        common = result_type(dtype, 1)
        return B.cast(x, common), size_node(b, common), a._device
    raise DTypeError(f"a tensor cannot be combined with a {type(b).__name__}: {b!r:.60}")


def tensor_of(value: Any, like: Tensor | None = None) -> Tensor:
    """The value as a tensor; numbers stay constants, a float of the dtype it stands beside."""
    if isinstance(value, _class):
        return value
    if isinstance(value, float) and like is not None and like.dtype.kind in "fc":
        return wrap(scalar_node(value, like.dtype), like._device)
    if isinstance(value, complex) and like is not None:
        return wrap(scalar_node(value, result_type(like.dtype, value)), like._device)
    if like is None:
        return _class(value)
    return _class(value, device=like._device if isinstance(value, int) else like.device)


def nodes_of(tensors: Sequence[Tensor]) -> tuple[list[UOp], str | None]:
    """The nodes of some tensors under their common dtype, and their device."""
    device: str | None = None
    dtype: DType | None = None
    for t in tensors:
        if not isinstance(t, _class):
            raise DTypeError(f"expected tensors, got a {type(t).__name__}: {t!r:.60}")
        device = common_device(device, t._device)
        dtype = t.uop.dtype if dtype is None else promote(dtype, t.uop.dtype)
    if dtype is None:
        raise ShapeError("expected at least one tensor")
    return [B.cast(t.uop, dtype) for t in tensors], device


def float_node(x: UOp) -> UOp:
    """x itself when it holds floats, else converted to float32."""
    return x if x.dtype.kind in "fc" else B.cast(x, dt.float32)


_STORED = frozenset({O.BUFFER, O.BUFFER_VIEW, O.CONTIGUOUS, O.COPY, O.ASSIGN, O.AFTER, O.SCATTER})


def computed_once(x: UOp) -> UOp:
    """``x``, stored where it is made of a sum of floats.

    The order of a sum is a matter of its kernel. What is compared for equality with something made
    of it, as an extreme is, must be the same to the last bit, so both read one stored value.
    """
    seen, waiting = {x}, [x]
    while waiting:
        node = waiting.pop()
        if node.op in _STORED:
            continue
        if node.op == O.REDUCE_AXIS and node.arg.op == O.ADD and node.dtype.is_float:
            return B.contiguous(x)
        new = [s for s in node.src if s not in seen]
        seen.update(new)
        waiting.extend(new)
    return x


def accumulator(dtype: DType) -> DType:
    """Where sums of this dtype are kept: 16-bit and narrower floats in float32."""
    return dt.float32 if dtype.kind == "f" and dtype.bits < 32 else dtype


class AxisError(ShapeError, IndexingError):
    """An axis the tensor does not have; both a ValueError and an IndexError, as in NumPy."""


class IndexKindError(DTypeError, IndexingError):
    """An index tensor that does not hold integers; both a TypeError and an IndexError."""


# -- arguments ---------------------------------------------------------------------------------


def integer(value: Any, what: str) -> int:
    """A whole-number argument, or an error that says which; a run-time size passes as it is."""
    if isinstance(value, UOp) and value.dtype.kind == "x":
        return value  # type: ignore[return-value]
    try:
        return as_index(value)
    except TypeError:
        raise DTypeError(f"{what} must be a whole number, not {value!r:.60}") from None


def axis_of(dim: Any, ndim: int) -> int:
    """An axis counted from the front; negative ones count from the back."""
    axis = integer(dim, "an axis")
    if axis < 0:
        axis += ndim
    if not 0 <= axis < ndim:
        if ndim == 0 and dim in (0, -1):
            return 0
        raise AxisError(f"axis {dim} is out of range for a tensor with {ndim} axes")
    return axis


def real_axis(dim: Any, shape: Sequence[int], what: str) -> int:
    """An axis of a tensor that must have one: a scalar has none."""
    if not shape:
        raise AxisError(f"{what} needs at least 1 axis, this tensor is a scalar")
    return axis_of(dim, len(shape))


def axes_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """Axes from None (all), one number or several; each at most once. A scalar has none."""
    if dim is None:
        return tuple(range(ndim))
    given = tuple(dim) if isinstance(dim, Iterable) else (dim,)
    axes = tuple([axis_of(d, ndim) for d in given])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axes {given} name an axis twice")
    return axes if ndim else ()


def shape_of(shape: Sequence[Any]) -> tuple[int, ...]:
    """A shape argument given as one sequence or as separate numbers."""
    if len(shape) == 1 and isinstance(shape[0], Iterable):
        shape = tuple(shape[0])
    return tuple([integer(n, "a size") for n in shape])


def numbers(value: Any, count: int, what: str) -> tuple[int, ...]:
    """One number for all of ``count`` axes, or one for each."""
    if not isinstance(value, Iterable):
        return (integer(value, what),) * count
    found = tuple([integer(v, what) for v in value])
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise ShapeError(f"{what} needs {count} numbers, got {found}")
    return found
