"""Operators that pick and put elements at places that tensors name."""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, op, operand, tensor
from svod.tensor.tensor import Tensor


def _key(indices: Any) -> tuple[Any, ...]:
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in (dt.bool_, dt.uint8):
            raise UnsupportedError("indexing by a mask: the shape depends on values")
    return tuple([slice(None) if index is None else index for index in indices])


@op("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: Tensor, indices: Any) -> Tensor:
    return x[_key(indices)]


@op("aten.index_put.default", "aten._unsafe_index_put.default", call=True)
def index_put(
    call: Call, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    masks = [i for i in indices if i is not None and i.dtype in (dt.bool_, dt.uint8)]
    if len(masks) == len(indices) == 1 and not accumulate and not values.ndim:
        mask = masks[0].reshape(*masks[0].shape, *[1] * (x.ndim - masks[0].ndim))
        return svod.where(mask.cast(dt.bool_), values.cast(x.dtype), x)
    key = _key(indices)
    if all(isinstance(k, Tensor) for k in key):
        return x.index_put(key, values.cast(x.dtype), accumulate)
    return _put_along(x, indices, values.cast(x.dtype), accumulate)


def _put_along(x: Tensor, indices: Any, values: Tensor, accumulate: bool) -> Tensor:
    """Whole axes among the indices: those that are named come first, then the others."""
    named = [a for a, i in enumerate(indices) if i is not None]
    rest = [a for a in range(x.ndim) if a not in named]
    given = [indices[a] for a in named]
    picked = svod.broadcast_tensors(*given)[0].ndim
    # Where the named axes stand together, their result stands there; else it comes first.
    is_together = named == list(range(named[0], named[0] + len(named)))
    front = named[0] if is_together else 0
    lead = [x.shape[a] for a in rest]
    places = list(svod.broadcast_tensors(*given)[0].shape)
    shape = [*lead[:front], *places, *lead[front:]]
    full = values.expand(*shape)
    order = [*range(front, front + picked), *range(front), *range(front + picked, len(shape))]
    moved = x.permute(*named, *rest)
    found = moved.index_put(tuple(given), full.permute(*order), accumulate)
    back = [[*named, *rest].index(a) for a in range(x.ndim)]
    return found.permute(*back)


@op("aten.index_select.default")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return x.index_select(dim, index)


@op("aten.gather.default")
def gather(x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    return x.gather(dim, index)


@op("aten.scatter.src")
def scatter_src(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x if 0 in index.shape else x.scatter(dim, index, source)


@op("aten.scatter.value", call=True)
def scatter_value(call: Call, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return scatter_src(x, dim, index, tensor(value, x.dtype).expand(*index.shape))


@op("aten.scatter_add.default")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x if 0 in index.shape else x.scatter_add(dim, index, source)


@op("aten.scatter_reduce.two")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    return (
        x
        if 0 in index.shape
        else x.scatter_reduce(dim, index, source, reduce, include_self=include_self)
    )


@op("aten.index_add.default")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return x.index_add(dim, index, source, alpha=alpha)


@op("aten.index_copy.default")
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.index_copy(dim, index, source)


@op("aten.index_fill.int_Scalar")
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return x.index_fill(dim, index, value)


@op("aten.masked_scatter.default")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    return x.masked_scatter(mask, source)


@op("aten.take.default")
def take(x: Tensor, index: Tensor) -> Tensor:
    return x.take(index)


@op("aten.embedding.default")
def embedding(weight: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
    return indices.embedding(weight)


@op("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, count: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    if scale_grad_by_freq:
        raise UnsupportedError("the gradient of an embedding, scaled by frequency")
    flat = indices.reshape(-1)
    rows = grad.reshape(-1, grad.shape[-1])
    if padding_idx >= 0:
        rows = svod.where((flat == padding_idx).unsqueeze(1), tensor(0, rows.dtype), rows)
    empty = tensor(0, grad.dtype).expand(count, grad.shape[-1])
    return empty.index_add(0, flat, rows)


@op("aten.searchsorted.Tensor")
def searchsorted(
    edges: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Tensor:  # fmt: skip
    return svod.searchsorted(edges, values, right=right or side == "right")


@op("aten.bucketize.Tensor")
def bucketize(
    values: Tensor, edges: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return svod.bucketize(values, edges, right=right)


@op("aten.isin.Tensor_Tensor")
def isin(x: Tensor, y: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    return svod.isin(x, y, invert=invert)


@op("aten.one_hot.default", call=True)
def one_hot(call: Call, x: Tensor, num_classes: int = -1) -> Tensor:
    return operand(x, dt.int64).one_hot(num_classes)
