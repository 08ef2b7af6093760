"""``x[...]`` for reading and writing, as in NumPy.

A key is split into what movement can do (numbers, slices, new axes), which makes a view, and index
tensors, which become one GATHER or SCATTER, a copy. Writing makes a new value for the tensor that
is written and for its views. Negative indices count from the end. Numbers and lists
are checked at once, index tensors when a plan reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svod.base.errors import DTypeError, IndexingError, IndexRangeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const, largest
from svod.ir.symbolic import minimum, num, value_of
from svod.tensor.core.slicing import Cut, length, put_cuts, take_cuts
from svod.tensor.core.tensor_core import (
    AxisError,
    Core,
    IndexKindError,
    common_device,
    size_node,
    tensor_of,
    wrap,
)
from svod.tensor.core.tensor_registry import is_memory
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import checked
from svod.tensor.views.aliases import Move, give, is_view_by, view

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Inside:
    """An index tensor whose values are inside its axis, negative ones counted from the end."""

    tensor: Tensor


class View(NamedTuple):
    """A key against a shape: the cuts of each axis and how the result is laid out."""

    cuts: list[Cut]
    kept: list[int]  # axes that stay, in order
    rest: tuple[int, ...]  # sizes of the kept and new axes of the result, in order
    axes: list[int]  # axes addressed by index tensors
    indices: list[UOp]  # the index tensors, broadcast to one shape
    place: int  # where the axes of the index tensors stand among ``rest``
    device: str | None


# -- keys --------------------------------------------------------------------------------------


def resolve(x: Tensor, key: Any, what: str) -> View:
    """Read a key of the function that is called ``what``: what each axis does."""
    entries = _entries(key, x.shape, x._device)
    cuts: list[Cut] = []
    kept: list[int] = []
    rest: list[int] = []
    axes: list[int] = []
    tensors: list[Tensor | Inside] = []
    fixed: list[int] = []  # positions in the key that NumPy counts as index arrays
    place = -1
    for position, entry in enumerate(entries):
        if entry is None:
            rest.append(1)
            continue
        axis = len(cuts)
        size = x.shape[axis]
        if isinstance(entry, slice):
            cut = _slice_cut(entry, size)
            cuts.append(cut)
            kept.append(axis)
            rest.append(length(cut))
            continue
        fixed.append(position)
        place = len(rest) if place < 0 else place
        if isinstance(entry, UOp):
            cuts.append((entry, entry + 1, 1))  # type: ignore[arg-type]
        elif isinstance(entry, int):
            if not -size <= entry < size:
                raise IndexRangeError(f"index {entry} is out of range for axis {axis} of {x.shape}")
            start = entry if entry >= 0 else entry + size
            cuts.append((start, start + 1, 1))
        else:
            cuts.append((0, size, 1))
            axes.append(axis)
            tensors.append(entry)
    device = x._device
    for t in tensors:
        device = common_device(device, (t.tensor if isinstance(t, Inside) else t)._device)
    if fixed and fixed[-1] - fixed[0] + 1 != len(fixed):
        place = 0  # index arrays apart from each other: their axes come first
    nodes = [_index_node(t, x.shape[a], what) for t, a in zip(tensors, axes, strict=True)]
    if nodes:
        try:
            shape = B.broadcast_shapes(*[n.shape for n in nodes])
        except ShapeError as error:
            raise AxisError(f"index tensors of one key: {error}") from None
        nodes = [B.broadcast_to(n, shape) for n in nodes]
    return View(cuts, kept, tuple(rest), axes, nodes, max(place, 0), device)


def _index_node(entry: Tensor | Inside, size: int, what: str) -> UOp:
    if isinstance(entry, Inside):
        return entry.tensor.uop
    return wrap_negative(checked(entry.uop, size, what, takes_negative=True), size)


def _entries(key: Any, shape: tuple[int, ...], device: str | None) -> list[Any]:
    """The key as one entry per axis (a number, slice or index tensor) and None for new axes."""
    given = list(key) if isinstance(key, tuple) else [key]
    found: list[Any] = []
    axis = 0
    for position, entry in enumerate(given):
        if entry is None:
            found.append(None)
        elif entry is Ellipsis:
            if any(e is Ellipsis for e in given[position + 1 :]):
                raise IndexingError("an index may have one ellipsis (...)")
            after = sum([_width(e) for e in given[position + 1 :]])
            found.extend([slice(None)] * (len(shape) - axis - after))
            axis = max(axis, len(shape) - after)
        else:
            read = _entry(entry, shape, axis, device)
            found.extend(read)
            axis += len(read)
    if axis > len(shape):
        raise IndexingError(f"{axis} indices for the {len(shape)} axes of {shape}")
    return found + [slice(None)] * (len(shape) - axis)


def _width(entry: Any) -> int:
    if entry is None:
        return 0
    kind = getattr(entry, "dtype", None)
    return int(entry.ndim) if kind in (dt.bool_, np.dtype(bool)) else 1


def _entry(entry: Any, shape: tuple[int, ...], axis: int, device: str | None) -> list[Any]:
    if isinstance(entry, (slice, Inside)):
        return [entry]
    if isinstance(entry, UOp) and entry.dtype.kind == "x":
        return [entry]
    if isinstance(entry, (bool, np.bool_)):
        raise IndexingError("a bool is no index: use a bool tensor of the shape it selects from")
    if not isinstance(entry, (Core, np.ndarray, Sequence)) and hasattr(entry, "__index__"):
        return [int(entry)]
    if isinstance(entry, (str, bytes)) or not isinstance(entry, (Core, np.ndarray, Sequence)):
        raise IndexingError(f"a {type(entry).__name__} cannot index a tensor: {entry!r:.60}")
    if not isinstance(entry, Core):
        entry = np.asarray(entry)
        if entry.size == 0 and entry.dtype.kind == "f":
            entry = entry.astype(np.int64)
        if entry.dtype.kind in "iu":
            return [_checked(entry, shape, axis, device)]
    if entry.dtype in (dt.bool_, np.dtype(bool)):
        return _mask_indices(entry, shape, axis, device)
    if not isinstance(entry, Core) or not entry.dtype.is_int:
        raise IndexingError(f"an index must be integers or bool, not {entry.dtype}")
    return [_beside(entry, device)]


def _beside(index: Tensor, device: str | None) -> Tensor:
    """An index of the host may select from a tensor on any device."""
    if device is None or index._device in (None, device) or index._device != "CPU":
        return index
    return index.to(device)


def _checked(array: Any, shape: tuple[int, ...], axis: int, device: str | None) -> Inside:
    if axis < len(shape) and array.size:
        low, high = int(array.min()), int(array.max())
        if low < -shape[axis] or high >= shape[axis]:
            bad = low if low < -shape[axis] else high
            raise IndexRangeError(f"index {bad} is out of range for axis {axis} of {shape}")
        array = np.where(array < 0, array + shape[axis], array)
    return Inside(tensor_of(array.astype(np.int64)) if device is None else _on(array, device))


def _on(array: Any, device: str) -> Tensor:
    found = tensor_of(array.astype(np.int64))
    return found.to(device)


def _mask_indices(mask: Any, shape: tuple[int, ...], axis: int, device: str | None) -> list[Any]:
    """A mask is read now: how many elements it selects decides the shape of the result."""
    covered = shape[axis : axis + mask.ndim]
    if tuple(mask.shape) != covered and not _selects_nothing(mask.shape, covered):
        raise IndexingError(f"a mask of shape {tuple(mask.shape)} does not fit axes {covered}")
    if mask.ndim == 0:
        raise IndexingError("a mask without axes stands alone: x[mask]")
    if isinstance(mask, Core):
        found = list(mask.nonzero(as_tuple=True))  # type: ignore[attr-defined]
    else:
        found = [tensor_of(i) for i in np.nonzero(mask)]
    return [Inside(t if device is None else t.to(device)) for t in found]


def _selects_nothing(mask: tuple[int, ...], covered: tuple[int, ...]) -> bool:
    """Whether a mask without elements fits, as in NumPy: its other sides are those of the axes."""
    fits = len(mask) == len(covered)
    return fits and 0 in mask and all(m in (0, n) for m, n in zip(mask, covered, strict=True))


def _slice_cut(entry: slice, size: int) -> Cut:
    if isinstance(entry.start, UOp) or isinstance(entry.stop, UOp) or isinstance(size, UOp):
        return _size_cut(entry, size)
    try:
        start, stop, step = entry.indices(size)
    except ValueError:
        raise ShapeError(f"the step of slice {entry} must not be 0") from None
    except TypeError:
        raise IndexKindError(f"slice {entry} needs whole numbers") from None
    if step > 0:
        return start, max(start, stop), step
    return start, min(start, stop), step


def _size_cut(entry: slice, size: Any) -> Cut:
    """A slice with run-time sizes: forward, and inside the axis."""
    start = 0 if entry.start is None else entry.start
    stop = size if entry.stop is None else entry.stop
    step = 1 if entry.step is None else entry.step
    if type(step) is not int or step < 1:
        raise IndexingError(f"slice {entry} with a run-time size goes forward by a whole number")
    if not isinstance(start, UOp) and start < 0:
        start = start + size
    if not isinstance(stop, UOp):
        if stop < 0:
            stop = stop + size
        elif not isinstance(size, UOp):
            stop = min(stop, size)
        elif value_of(size) is None or stop > size:  # a number ends at the axis, as in NumPy
            end = minimum(num(stop), size)
            stop = end.arg if end.op == O.CONST else end
    return start, stop, step


def wrap_negative(index: UOp, size: int) -> UOp:
    """Negative indices count from the end."""
    if index.vmin >= 0:
        return index
    if largest(size) > dt.integer_limits(index.dtype)[1]:
        index = B.cast(index, dt.int64)
    kind = index.dtype
    below = B.binary(O.LT, index, const(0, kind))
    return B.where(below, B.binary(O.ADD, index, size_node(size, kind)), index)


def is_whole(view: View, shape: tuple[int, ...]) -> bool:
    """Whether the cuts take every element in order."""
    return all(cut == (0, n, 1) for cut, n in zip(view.cuts, shape, strict=True))


# -- reading -----------------------------------------------------------------------------------


def read(x: Tensor, key: Any, what: str = "x[index]") -> Tensor:
    """``x[key]``, for the function that is called ``what``."""
    mask = _lone_mask(key)
    if mask is not None and mask.ndim == 0:  # all of x, or nothing, along a new first axis
        return x.unsqueeze(0).narrow(0, 0, int(bool(mask)))
    found = resolve(x, key, what)
    if not found.indices:
        return view(x, *_moves(found))
    return _gathered(x, found)


def _moves(view: View) -> tuple[Move, ...]:
    return (take_cuts, tuple(view.cuts)), (B.reshape, view.rest)


def _gathered(x: Tensor, view: View) -> Tensor:
    part = take_cuts(x.uop, view.cuts)
    found = B.gather(_indexed_first(part, view), view.indices)
    shape = view.indices[0].shape
    found = B.reshape(found, shape + view.rest)
    return wrap(B.permute(found, _to_place(len(shape), len(view.rest), view.place)), view.device)


def _indexed_first(part: UOp, view: View) -> UOp:
    """The axes of index tensors, then the kept ones; axes of single numbers go away."""
    dropped = [a for a in range(len(part.shape)) if a not in view.axes and a not in view.kept]
    moved = B.permute(part, (*view.axes, *view.kept, *dropped))
    return B.reshape(moved, moved.shape[: len(part.shape) - len(dropped)])


def _to_place(count: int, rest: int, place: int) -> tuple[int, ...]:
    """Axes order that moves the first ``count`` axes behind ``place`` others."""
    lead = tuple(range(count))
    others = tuple(range(count, count + rest))
    return others[:place] + lead + others[place:]


# -- writing -----------------------------------------------------------------------------------


def write(
    x: Tensor, key: Any, value: Any, mode: str = "set", what: str = "x[index] = value"
) -> UOp:
    """The node of x after ``x[key] = value``, for the function that is called ``what``."""
    mask = _lone_mask(key)
    fits = mask is not None and tuple(mask.shape) in ((), x.shape)
    if fits and mode == "set" and _is_single(value):
        mask = _beside(mask, x._device) if isinstance(mask, Core) else mask
        return select(mask, tensor_of(value, x).cast(x.dtype).reshape(()), x).uop
    view = resolve(x, key, what)
    source = tensor_of(value, x)
    if view.device is not None and source._device not in (None, view.device):
        source = source.to(view.device)  # as copy_ does
    node = B.cast(source.uop, x.dtype)
    lead = view.indices[0].shape if view.indices else ()
    target = view.rest[: view.place] + lead + view.rest[view.place :]
    extra = len(node.shape) - len(target)
    if extra > 0 and node.shape[:extra] == (1,) * extra:
        node = B.reshape(node, node.shape[extra:])
    try:
        node = B.broadcast_to(node, target)
    except ShapeError:
        raise ShapeError(f"a value of shape {source.shape} does not fit {target}") from None
    part_shape = tuple([length(c) for c in view.cuts])
    if view.indices:
        node = _scatter_part(x, view, node, mode)
    else:
        node = B.reshape(node, part_shape)
    if is_whole(view, x.shape):
        return node
    inside = put_cuts(B.full(part_shape, True, dt.bool_), view.cuts, x.shape)
    return B.where(inside, put_cuts(node, view.cuts, x.shape), x.uop)


def _lone_mask(key: Any) -> Any:
    """The bool tensor or array that is the whole key, or None."""
    mask = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if not isinstance(mask, (Core, np.ndarray)):
        return None
    return mask if mask.dtype in (dt.bool_, np.dtype(bool)) else None


def _is_single(value: Any) -> bool:
    return isinstance(value, (int, float, complex, np.generic)) or (
        isinstance(value, (Core, np.ndarray)) and value.shape in ((), (1,))
    )


def _scatter_part(x: Tensor, view: View, node: UOp, mode: str) -> UOp:
    """The cut of x with the values scattered into it."""
    part = take_cuts(x.uop, view.cuts)
    shape = view.indices[0].shape
    order = _to_place(len(shape), len(view.rest), view.place)
    node = B.permute(node, tuple(np.argsort(order).tolist()))
    kept = tuple([part.shape[a] for a in view.kept])
    node = B.reshape(node, shape + kept)
    found = B.scatter(_indexed_first(part, view), node, view.indices, mode)
    dropped = [a for a in range(len(part.shape)) if a not in view.axes and a not in view.kept]
    moved = [*view.axes, *view.kept, *dropped]
    found = B.reshape(found, tuple([part.shape[a] for a in moved]))
    return B.permute(found, tuple(np.argsort(moved).tolist()))


def _is_already(x: Tensor, key: Any, value: Any) -> bool:
    """Whether the value is x[key] itself."""
    if x._link is None or value._link is None or value._link.parent is not x._link:
        return False
    found = resolve(x, key, "x[index] = value")
    return not found.indices and is_view_by(value, x, _moves(found))


class Indexing(Core):
    """``x[key]`` and ``x[key] = value``."""

    __slots__ = ()

    def __getitem__(self: Tensor, key: Any) -> Tensor:
        return read(self, key)

    def __setitem__(self: Tensor, key: Any, value: Any) -> None:
        if isinstance(value, Core) and value.dtype.kind == "f" and self.dtype.kind != "f":
            raise DTypeError(f"cannot put {value.dtype.name} values into {self.dtype.name}: cast")
        if isinstance(value, Core) and _is_already(self, key, value):
            return  # x[key] += 1 has written through the view, and now puts it back
        node = write(self, key, value)
        if is_memory(node):  # a copy: somebody may write to it later
            node = B.contiguous(node)
        give(self, node, self._device or (value._device if isinstance(value, Core) else None))
