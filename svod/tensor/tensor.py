"""Tensor: a lazy array. Every method adds nodes to one graph; ``realize`` computes.

The methods live in one file per family. Names and argument order follow torch, and the array
API's spelling of keywords is accepted too (``x.sum(axis=0, keepdims=True)``). Operations on
tensors never change their operands. The in-place forms (``x += y``, ``x[0] = y``, ``x.add_(y)``)
give this tensor a new value, and all views that show its elements; what was computed from it
before keeps its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from sys import modules
from typing import Any

import numpy as np

from svod.base.above import above
from svod.base.errors import DeviceError, DTypeError, ShapeError
from svod.device.names import DISK_PREFIX
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.placement import Mesh, Placement
from svod.reference.docstrings import describe_class
from svod.tensor.core import history, tracing
from svod.tensor.core.public_functions import guard_class
from svod.tensor.core.tensor_core import (
    become_complex,
    common_device,
    device_name,
    real_axis,
    set_class,
    tensor_of,
    wrap,
)
from svod.tensor.core.tensor_registry import (
    buffer_node,
    buffer_of,
    changes,
    device_below,
    is_memory,
    own_memory,
    register,
)
from svod.tensor.fft.stft import Spectral
from svod.tensor.gradients.autograd import Autograd
from svod.tensor.layers.activations import Activations
from svod.tensor.layers.convolution import Convolution
from svod.tensor.layers.distances import Distances
from svod.tensor.layers.image_patches import Patches
from svod.tensor.layers.losses import Losses
from svod.tensor.layers.margin_losses import Margins
from svod.tensor.layers.normalization import Normalization
from svod.tensor.layers.pooling import Pooling
from svod.tensor.layers.unpooling import Unpooling
from svod.tensor.linalg.matrix_methods import Matrices
from svod.tensor.ops.assembly import Assembly
from svod.tensor.ops.creation import Creation
from svod.tensor.ops.cumulative import Cumulative
from svod.tensor.ops.display import describe, formatted
from svod.tensor.ops.gather_scatter import Indexed
from svod.tensor.ops.indexing import Indexing
from svod.tensor.ops.joining import Joining
from svod.tensor.ops.matrix_products import Linear
from svod.tensor.ops.movement import Movement
from svod.tensor.ops.numeric import ALIASES, Numeric
from svod.tensor.ops.numpy_interchange import (
    Host,
    copied,
    import_dlpack,
    node_of_array,
    node_of_data,
)
from svod.tensor.ops.operators import Operators
from svod.tensor.ops.reductions import Reductions
from svod.tensor.ops.slice_scatter import Scattering
from svod.tensor.ops.sorting import Sorting
from svod.tensor.ops.statistics import Statistics
from svod.tensor.ops.unary import Unary
from svod.tensor.random.threefry import Random
from svod.tensor.recording.realize import prepare, realize
from svod.tensor.special.special_methods import Special
from svod.tensor.views.aliases import (
    cut_off,
    give,
    linked,
    others,
    owns_memory,
    refresh,
    relinked,
    stored,
    view,
)
from svod.tensor.views.pending_writes import is_copied
from svod.tensor.views.strided_layout import is_row_major


class Count(int):
    """The number of elements, and when called the sizes: ``x.size`` and ``x.size(0)``."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[real_axis(dim, self.shape, "size")]


_STANDARD_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
_MEMORY = (O.BUFFER, O.BUFFER_VIEW, O.AFTER)
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # in place, a kind may go up but not down


class Tensor(
    Operators,
    Unary,
    Numeric,
    Special,
    Activations,
    Movement,
    Joining,
    Assembly,
    Patches,
    Indexing,
    Indexed,
    Scattering,
    Reductions,
    Cumulative,
    Sorting,
    Statistics,
    Linear,
    Matrices,
    Convolution,
    Pooling,
    Unpooling,
    Normalization,
    Losses,
    Margins,
    Distances,
    Spectral,
    Creation,
    Random,
    Autograd,
    Host,
):
    """A lazy array of one dtype on one device: ``Tensor([[1, 2], [3, 4]]).sum(0)``."""

    __slots__ = ("__weakref__", "_device", "_grad", "_hooks", "_link", "uop")
    __array_priority__ = 1000  # NumPy arrays leave mixed operators to the tensor

    uop: UOp
    _device: str | None

    def __init__(
        self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False
    ) -> None:
        self._link = None
        where = device_name(device)
        if isinstance(data, Tensor):
            node, here = copied(data.uop), data._device
            if dtype is not None:
                node = B.cast(node, dtype_of(dtype))
            if where is not None and here is not None and where != here:
                node = B.copy(node, where)
            self.uop, self._device = node, where or here
        else:
            self.uop, self._device = node_of_data(data, dtype, where)
        register(self)
        if self.uop.op == O.COMPLEX:
            become_complex(self)
        if requires_grad:
            self.requires_grad_()

    @staticmethod
    def from_numpy(
        array: np.ndarray[Any, Any], dtype: Any = None, device: str | None = None
    ) -> Tensor:
        """A tensor over the memory of an array when the layout allows, else over a copy."""
        if not isinstance(array, np.ndarray):
            raise DTypeError(f"from_numpy takes an array, not a {type(array).__name__}")
        return wrap(*node_of_array(array, dtype, device_name(device), copy=False))

    from_dlpack = staticmethod(import_dlpack)

    # -- facts ---------------------------------------------------------------------------------

    @property
    def size(self) -> Count:
        """The number of elements; ``x.size(dim)`` is the size of an axis, as in torch."""
        shape = self.uop.shape
        found = Count(prod(shape))
        found.shape = shape
        return found

    def numel(self) -> int:
        """The number of elements."""
        return prod(self.uop.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.uop.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    @property
    def is_realized(self) -> bool:
        """Whether the values are in memory."""
        return buffer_of(self.uop) is not None

    @property
    def graph(self) -> str:
        """The graph behind this tensor as text: ``print(x.graph)``."""
        from svod.ir.text import tree

        return tree(self.uop)

    def __repr__(self) -> str:
        return describe(self)

    def _repr_html_(self) -> str:
        return str(above("notebook").tensor_html(self))

    def __format__(self, spec: str) -> str:
        return formatted(self, spec)

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return self.round(ndigits or 0)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, *_STANDARD_VERSIONS):
            known = ", ".join(_STANDARD_VERSIONS)
            raise ShapeError(f"array API version {api_version!r} is not supported: {known}")
        return modules["svod"]

    # -- computing -----------------------------------------------------------------------------

    def realize(self, *others: Tensor, config: Any = None) -> Tensor:
        """Compute the values of this tensor, and of others, together."""
        realize([self, *others], config)
        return self

    def prepare(
        self,
        *others: Tensor,
        config: Any = None,
        inputs: dict[str, Tensor] | Sequence[Tensor] | None = None,
        outputs: Sequence[str] | None = None,
        freeze: bool = False,
        target: str | None = None,
    ) -> Any:
        """The plan that computes this tensor; ``plan.execute()`` runs it as often as wanted.

        ``inputs={"x": x}`` names buffers that ``plan.bind(x=array)`` or ``plan(x=array)`` replace.
        ``freeze=True`` makes all other memory constant: weights are folded and packed once.
        ``target="aarch64-linux+dotprod"`` makes a plan for such a machine, to save or export it.
        """
        return prepare([self, *others], config, inputs, outputs, freeze, target)

    def contiguous(self) -> Tensor:
        """The same elements in a buffer of their own once realised; a copy if not row-major."""
        link = self._link
        if link is None or link.layout is None or is_row_major(link.layout):
            return view(self, (stored, None))
        return wrap(B.contiguous(self.uop), self._device)

    def is_contiguous(self) -> bool:
        """Whether the values have a buffer of their own, in row-major order."""
        return self.is_realized or self.uop.op == O.CONTIGUOUS

    def clone(self) -> Tensor:
        """A copy."""
        return Tensor(self)

    @property
    def data(self) -> Tensor:
        """The same elements, cut off from what computed them; in-place changes show in both."""
        return view(self, (cut_off, None))

    @data.setter
    def data(self, value: Any) -> None:
        self._take(tensor_of(value))

    def _take(self, value: Tensor) -> None:
        """Show the elements of another tensor instead of these; a leaf stays a leaf."""
        found = value.detach()
        is_leaf = history.is_leaf(self)
        history.remove_leaf(self)
        self.uop, self._device = found.uop, found._device
        linked(self, value, ((cut_off, None),))
        changes[0] += 1
        if is_leaf:
            self.requires_grad_()

    # -- place and dtype -----------------------------------------------------------------------

    def to(
        self,
        *targets: Any,
        dtype: Any = None,
        device: str | None = None,
        copy: bool = False,
    ) -> Tensor:
        """Another dtype, another device, or both: ``x.to("CPU")``, ``x.to(svod.float16)``.

        Where nothing changes it is the tensor itself unless a ``copy`` is asked for.
        """
        flags = [t for t in targets if isinstance(t, bool)]  # torch's non_blocking and copy
        if copy or flags[1:] == [True]:
            return self.clone().to(
                *targets[: len(targets) - len(flags)], dtype=dtype, device=device
            )
        for target in targets[: len(targets) - len(flags)]:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target._device
            elif isinstance(target, str) and target not in dt.BY_NAME | dt.BY_SHORT:
                device = target
            elif target is not None:
                dtype = target
        found = self if dtype is None else self.cast(dtype)
        where = device_name(device)
        if where is None or where == found._device:
            return found
        if where.startswith(DISK_PREFIX):
            found = wrap(B.copy(found.uop, where), where)
            return found if tracing.state.depth else found.realize()  # a file is written now
        if found._device is None and device_below(found.uop) is None:
            return wrap(found.uop, where)
        return wrap(B.copy(found.uop, where), where)

    def shard(self, mesh: Mesh, spec: Sequence[str | None] = ()) -> Tensor:
        """On a mesh, with its axes split over the mesh axes that ``spec`` names.

        Axes without a name are whole on every rank, and so are those that ``spec`` leaves out.
        """
        dims = (*spec, *[None] * (self.ndim - len(spec)))
        mesh.check(dims, self.shape)
        found = self.to(mesh.name)
        node = B.floats_of(found.uop)
        if device_below(node) != mesh.name:  # what reads no memory
            node = B.copy(node, mesh.name)
        if node.dtype is not found.dtype:
            dims = (*dims, None)  # a complex number stays on one rank
        return wrap(
            B.like(found.uop, make(O.SHARD, node.dtype, (node,), Placement(dims))), mesh.name
        )

    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """On another device."""
        if stream is not None:
            raise DeviceError(f"to_device: devices have no streams here, got stream={stream!r}")
        return self.to(device=device)

    def cpu(self) -> Tensor:
        """On the CPU."""
        return self.to("CPU")

    def cuda(self, device: int | None = None) -> Tensor:
        """On a GPU."""
        return self.to("CUDA" if device is None else f"CUDA:{device}")

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self.device.startswith("CUDA")

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor is on the CPU."""
        return self.device.startswith("CPU")

    def get_device(self) -> int:
        """The number of the GPU, -1 on the CPU."""
        return int(self.device.partition(":")[2] or 0) if self.is_cuda else -1

    # -- in place ------------------------------------------------------------------------------

    def assign(self, value: Any) -> Tensor:
        """Write values into the memory of this tensor when it is next realised.

        A part of a tensor that has memory is written at once: ``cache[:, 3:4].assign(key)``.
        A tensor without memory just takes the value. Gradients do not flow through memory: where
        they shall, use ``copy_``.
        """
        source = tensor_of(value, self)
        target, base = self._written_view()
        waiting = B.floats_of(self.uop) if base.op != O.ASSIGN else base
        if waiting.op == O.ASSIGN and (
            waiting is base or waiting not in source.uop.toposort() or is_copied(waiting, self)
        ):
            wrap(waiting, self._device).realize()  # it comes first, and others may have read it
            target, base = self._written_view()
        node = B.broadcast_to(B.cast(source.uop, self.dtype), self.shape)
        where = self._device or source._device
        if source._device is not None and where != source._device:
            node = B.copy(node, where or source._device)
        is_part = self._link is not None and buffer_node(target) is None and bool(others(self))
        if base.op in _MEMORY and owns_memory(self, tracing.memory_of(base)):
            own_memory(base)
            if tracing.state.effects is not None:
                target = tracing.after_writes(target, tracing.state.effects.assigned)
            node = B.assign(target, node)
            if is_part:
                self.uop, self._device = node, where
                changes[0] += 1
                self.realize()
                refresh((self,))
                return self
        elif is_memory(node):  # a copy: somebody may write to it later
            node = B.contiguous(node)
        give(self, node, where)
        return self

    def _written_view(self) -> tuple[UOp, UOp]:
        """The view an assignment writes through, and the memory behind it."""
        target = self.uop
        while B.floats_of(target).op == O.ASSIGN:
            target = B.like(target, B.floats_of(target).src[0])
        base = B.floats_of(target)
        while base.op in (O.RESHAPE, O.PERMUTE, O.SHRINK, O.FLIP):
            base = base.src[0]
        return target, base

    def copy_(self, source: Any) -> Tensor:
        """In place: the values of another tensor, broadcast and converted."""
        value = tensor_of(source, self).to(self._device)
        return self.become(value.cast(self.dtype).expand(self.shape))

    def fill_(self, value: Any) -> Tensor:
        """In place: one value everywhere."""
        return self.copy_(value)

    def zero_(self) -> Tensor:
        """In place: zeros."""
        return self.copy_(0)

    def become(self, value: Tensor) -> Tensor:
        """Take the value of another tensor of this shape, in this dtype."""
        if not isinstance(value, Tensor):
            raise DTypeError(f"become takes a tensor, not a {type(value).__name__}")
        node = value.uop
        if node.shape != self.shape:
            raise ShapeError(f"an in-place result of shape {node.shape} does not fit {self.shape}")
        if _RANK[node.dtype.kind] > _RANK[self.dtype.kind]:
            raise DTypeError(f"a {node.dtype.name} result does not fit a {self.dtype.name} tensor")
        common_device(self._device, value._device)
        node = B.cast(node, self.dtype)
        if node is self.uop:
            return self
        if is_memory(node):  # a copy: somebody may write to it later
            node = B.contiguous(node)
        give(self, node, value._device)
        return self


def in_place(method: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The form of a method that gives its tensor the result."""

    def change(self: Tensor, *args: Any, **options: Any) -> Tensor:
        return self.become(method(self, *args, **options))

    change.__name__ = name[:2] + "i" + name[2:] if name.startswith("__") else name + "_"
    change.__doc__ = f"In place: {method.__doc__ or name}"
    change.__wrapped__ = method  # type: ignore[attr-defined]  # its signature
    return change


_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul"
_METHODS = (
    "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin "
    "arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and "
    "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp "
    "clamp_max clamp_min clip copysign cos cosh cumprod cumsum deg2rad digamma div divide elu eq "
    "erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmod frac gcd ge greater "
    "greater_equal gt hardtanh heaviside hypot i0 igamma igammac index_add index_copy index_fill "
    "index_put index_reduce lcm ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p "
    "log2 logical_and logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul "
    "multiply mvlgamma nan_to_num ne neg negative nextafter not_equal polygamma pow put rad2deg "
    "reciprocal relu remainder renorm round rsqrt scatter scatter_add scatter_reduce selu sgn "
    "sigmoid sign silu sin sinc sinh sqrt square sub subtract tan tanh threshold tril triu "
    "true_divide trunc xlogy"
)
IN_PLACE: dict[str, str] = {}  # name of the form = name of the method
_MOVES = (
    "squeeze unsqueeze t transpose swapaxes swapdims resize resize_as"  # these may change the shape
)


def _add_in_place_forms(names: str) -> None:
    for name in names.split():
        change = in_place(getattr(Tensor, name), name)
        setattr(Tensor, change.__name__, change)
        IN_PLACE[change.__name__] = name


def _moved_in_place(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def change(self: Tensor, *args: Any, **options: Any) -> Tensor:
        relinked(self, method(self, *args, **options))
        return self

    change.__name__ = change.__qualname__ = f"{method.__name__}_"
    change.__doc__ = f"In place: {method.__doc__}"
    change.__wrapped__ = method  # type: ignore[attr-defined]  # its signature
    return change


for _name, _same in ALIASES.items():
    setattr(Tensor, _name, getattr(Tensor, _same))
for _name in _MOVES.split():
    setattr(Tensor, f"{_name}_", _moved_in_place(getattr(Tensor, _name)))
_add_in_place_forms(" ".join([f"__{name}__" for name in _OPERATORS.split()]))
_add_in_place_forms(_METHODS)
guard_class(Tensor, "__init__")
set_class(Tensor)
describe_class(Tensor, "svod.Tensor")


__all__ = ["DType", "Tensor"]
