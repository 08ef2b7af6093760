"""Operators that show elements under another shape, and those that put tensors together."""

from __future__ import annotations

from typing import Any

import svod
import svod.nn.functional as F
from svod.frontend.torch.ops.registry import Call, op, operand, reshaped, tensor
from svod.ir import build as B
from svod.tensor.core.tensor_core import wrap
from svod.tensor.tensor import Tensor

_RESHAPES = (
    "view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default",
    "view_copy.default", "unflatten.int", "flatten.using_ints",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
    "squeeze_copy.dims", "unsqueeze_copy.default",
)  # fmt: skip


@op(*[f"aten.{name}" for name in _RESHAPES], call=True)
def reshape(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Elements stay in row-major order: torch's shape says everything."""
    return reshaped(x, call.shape)


_SAME = (
    "alias", "alias_copy", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy",
    "lift", "positive", "_lazy_clone", "resolve_neg",
)  # fmt: skip


@op(*[f"aten.{name}.default" for name in _SAME])
def same(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Values are never written, so a copy is the value itself."""
    return x


@op("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default", call=True)
def expand(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x.expand(*call.shape)


@op("aten.expand_as.default", call=True)
def expand_as(call: Call, x: Tensor, _: Any) -> Tensor:
    return x.expand(*call.shape)


@op("aten.permute.default", "aten.permute_copy.default")
def permute(x: Tensor, dims: Any) -> Tensor:
    return x.permute(*dims)


@op("aten.transpose.int", "aten.transpose_copy.int")
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    return x.transpose(dim0, dim1)


@op("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default")
def t(x: Tensor) -> Tensor:
    return x.t() if x.ndim == 2 else x


@op("aten.movedim.int")
def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    return x.movedim(source, destination)


@op("aten.select.int", "aten.select_copy.int")
def select(x: Tensor, dim: int, index: Any) -> Tensor:
    axis = dim + x.ndim if dim < 0 else dim
    return x[(*[slice(None)] * axis, index)]


@op("aten.slice.Tensor", "aten.slice_copy.Tensor", call=True)
def slice_(
    call: Call, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    axis = dim + x.ndim if dim < 0 else dim
    size, length = x.shape[axis], call.shape[axis]
    if start is None or (isinstance(start, int) and start == 0):
        first: Any = 0
    elif isinstance(start, int) and start < 0:
        first = size + start
        if isinstance(first, int):
            first = max(first, 0)
    elif isinstance(start, int) and isinstance(size, int):
        first = min(start, size)
    else:
        first = start
    whole = [(0, n) for n in x.shape]
    if step == 1:
        whole[axis] = (first, first + length)
        return (
            wrap(B.shrink(x.uop, tuple(whole)), x._device)
            if x.dtype.kind != "c"
            else x.narrow(axis, first, length)
        )
    return x[(*[slice(None)] * axis, slice(first, end if isinstance(end, int) else None, step))]


@op("aten.narrow.default")
def narrow(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    return x.narrow(dim, start, length)


@op("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def split_with_sizes(x: Tensor, sizes: Any, dim: int = 0) -> Any:
    axis = dim + x.ndim if dim < 0 else dim
    found, start = [], 0
    for size in sizes:
        whole = [(0, n) for n in x.shape]
        whole[axis] = (start, start + size)
        found.append(x.shrink(whole))
        start = start + size
    return tuple(found)


@op("aten.split.Tensor")
def split(x: Tensor, size: Any, dim: int = 0) -> Any:
    return tuple(x.split(size, dim))


@op("aten.chunk.default")
def chunk(x: Tensor, count: int, dim: int = 0) -> Any:
    return tuple(x.chunk(count, dim))


@op("aten.unbind.int")
def unbind(x: Tensor, dim: int = 0) -> Any:
    return tuple(x.unbind(dim))


@op("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return x.diagonal(offset, dim1, dim2)


@op("aten.unfold.default", "aten.unfold_copy.default")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    return x.unfold(dim, size, step)


@op("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(x: Tensor, size: Any, stride: Any, offset: Any = None) -> Tensor:
    return x.contiguous().as_strided(size, stride, offset or 0)


@op("aten.flip.default")
def flip(x: Tensor, dims: Any) -> Tensor:
    return x.flip(*dims)


@op("aten.roll.default")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    return x.roll(tuple(shifts), tuple(dims)) if dims else x.roll(tuple(shifts))


@op("aten.repeat.default")
def repeat(x: Tensor, repeats: Any) -> Tensor:
    return x.repeat(*repeats)


@op("aten.tril.default")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.tril(diagonal)


@op("aten.triu.default")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.triu(diagonal)


@op("aten.constant_pad_nd.default")
def constant_pad(x: Tensor, pad: Any, value: Any = 0) -> Tensor:
    return F.pad(x, tuple(pad), "constant", value)


def _edges(mode: str) -> Any:
    return lambda x, padding: F.pad(x, tuple(padding), mode)


for _count in (1, 2, 3):
    op(f"aten.reflection_pad{_count}d.default")(_edges("reflect"))
    op(f"aten.replication_pad{_count}d.default")(_edges("replicate"))


@op("aten.cat.default", call=True)
def cat(call: Call, tensors: Any, dim: int = 0) -> Tensor:
    """torch leaves out vectors without elements, whatever the others' shapes."""
    rank = len(call.shape)
    kept = [operand(x, call.dtype) for x in tensors if x.ndim == rank]
    return svod.cat(kept, dim)


@op("aten.stack.default", call=True)
def stack(call: Call, tensors: Any, dim: int = 0) -> Tensor:
    return svod.stack([operand(x, call.dtype) for x in tensors], dim)


@op("aten.pixel_shuffle.default")
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    return x.pixel_shuffle(factor)


@op("aten.pixel_unshuffle.default")
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    return x.pixel_unshuffle(factor)


@op("aten.copy.default", call=True)
def copy(call: Call, _: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.cast(call.dtype).expand(*call.shape)


@op("aten.select_scatter.default")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: Any) -> Tensor:
    return x.select_scatter(source, dim, index)


@op("aten.slice_scatter.default")
def slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    size = x.shape[dim]
    if isinstance(end, int) and isinstance(size, int):
        end = min(end, size)
    return x.slice_scatter(source, dim, start, end, step)


@op("aten.diagonal_scatter.default")
def diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    return x.diagonal_scatter(source, offset, dim1, dim2)


@op("aten.as_strided_scatter.default")
def as_strided_scatter(
    x: Tensor, source: Tensor, size: Any, stride: Any, offset: Any = None
) -> Tensor:
    return svod.as_strided_scatter(x, source, size, stride, offset or 0)


@op("aten.im2col.default")
def im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return F.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@op("aten.col2im.default", call=True)
def col2im(
    call: Call, x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Tensor:
    if 0 in call.shape:
        return tensor(0, call.dtype).expand(*call.shape)
    return F.fold(x, tuple(size), tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))
