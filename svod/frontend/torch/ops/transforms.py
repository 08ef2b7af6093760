"""Fourier transforms, distances, bags of embeddings, histograms."""

from __future__ import annotations

from typing import Any

import svod
import svod.nn.functional as F
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, op, tensor
from svod.tensor.tensor import Tensor

# torch's numbers for how a transform is scaled: not, by the root of its length, by its length.
_FORWARD = ("backward", "ortho", "forward")
_BACKWARD = ("forward", "ortho", "backward")


@op("aten._fft_r2c.default")
def fft_r2c(x: Tensor, dim: Any, normalization: int, onesided: bool) -> Tensor:
    transform = svod.fft.rfftn if onesided else svod.fft.fftn
    return transform(x, dim=tuple(dim), norm=_FORWARD[normalization])


@op("aten._fft_c2r.default")
def fft_c2r(x: Tensor, dim: Any, normalization: int, size: int) -> Tensor:
    lengths = [x.shape[axis] for axis in dim[:-1]]
    return svod.fft.irfftn(x, s=(*lengths, size), dim=tuple(dim), norm=_BACKWARD[normalization])


@op("aten._fft_c2c.default")
def fft_c2c(x: Tensor, dim: Any, normalization: int, forward: bool) -> Tensor:
    if forward:
        return svod.fft.fftn(x, dim=tuple(dim), norm=_FORWARD[normalization])
    return svod.fft.ifftn(x, dim=tuple(dim), norm=_BACKWARD[normalization])


@op("aten._cdist_forward.default")
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return svod.cdist(a, b, p)


@op("aten._pdist_forward.default")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    return svod.pdist(x, p)


@op("aten.histc.default")
def histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    return x.histc(bins, min, max)


@op("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default", call=True)
def embedding_bag(
    call: Call, weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    """The bags; of the other results torch leaves some empty, which its shapes say."""
    if mode == 2:
        raise UnsupportedError("the places of the largest elements of bags")
    is_forward_only = "forward_only" in str(call.node.target)
    if not is_forward_only and (mode or padding_idx >= 0 or include_last_offset):
        raise UnsupportedError("what gradients of bags need, for means or with padding")
    starts = offsets[:-1] if include_last_offset else offsets
    found = F.embedding_bag(
        indices, weight, starts, mode=("sum", "mean", "max")[mode],
        per_sample_weights=per_sample_weights,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )  # fmt: skip
    count = indices.shape[0]
    bags = svod.searchsorted(starts, svod.arange(count), right=True) - 1
    ends = svod.cat([starts[1:], tensor(count, starts.dtype).reshape(1)])
    sizes = ends - starts
    others = [bags, sizes, sizes]
    shapes = [call.sizes.shape(v.shape) for v in call.node.meta["val"][1:]]
    kept = [
        x if x.shape == shape else tensor(0, dt.int64).expand(*shape)
        for x, shape in zip(others, shapes, strict=True)
    ]
    return found, *kept
