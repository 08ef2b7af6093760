"""Attention of com.microsoft: packed projections, caches, masks of several forms, rotary angles."""

from __future__ import annotations

from math import sqrt
from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView, size_tensor
from svod.frontend.onnx.operators.attention import (
    INFINITY,
    join_heads,
    repeat_heads,
    rotary_embedding,
    softmax_rows,
    split_heads,
)  # fmt: skip
from svod.frontend.onnx.operators.contrib import MICROSOFT
from svod.frontend.onnx.operators.shapes import count_up
from svod.frontend.onnx.registry import Host, Tensor, operator
from svod.ir.node import UOp


def _amount(size: Any) -> Any:
    """A size to compute with: a number, or a tensor where it varies."""
    return size_tensor(size, "CPU") if isinstance(size, UOp) else size


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: list[Tensor | None],
    allowed: Tensor | None = None, softcap: float = 0.0,
) -> Tensor:  # fmt: skip
    """Values by the shares of their keys; all have heads as their second axis."""
    factor = scale or 1 / sqrt(q.shape[-1])
    scores = (q @ k.transpose(-1, -2)).cast(dt.float32) * factor
    scores = (scores / softcap).tanh() * softcap if softcap else scores
    for part in bias:
        scores = scores if part is None else scores + part.cast(dt.float32)
    if allowed is None:
        return scores.softmax(-1).cast(v.dtype) @ v
    return softmax_rows(svod.where(allowed, scores, -INFINITY)).cast(v.dtype) @ v


def _mask_bias(mask: Tensor | None, rows: Any, columns: Any, fill: float) -> Tensor | None:
    """What is added to scores for a mask of 1 and 0, or for the lengths of rows."""
    if mask is None:
        return None
    if mask.ndim == 1:
        key = count_up(columns).reshape(1, -1)
        mask = key < mask.cast(dt.int64).reshape(-1, 1)
    if mask.ndim not in (2, 3):
        raise UnsupportedError(f"a mask of {mask.ndim} axes is not supported")
    shape = (mask.shape[0], 1, 1, -1) if mask.ndim == 2 else (mask.shape[0], 1, rows, -1)
    return svod.where(mask.cast(dt.int64).reshape(*shape) > 0, 0.0, fill)


def _causal(rows: Any, columns: Any) -> Tensor:
    """A query sees the keys up to its own, with what came before at the start."""
    query = count_up(rows).reshape(1, 1, -1, 1) + _amount(columns - rows)
    found: Tensor = count_up(columns).reshape(1, 1, 1, -1) <= query
    return found


@operator("Attention", domain=MICROSOFT)
def attention(
    x: Tensor, weights: Tensor, bias: Tensor | None = None, mask: Tensor | None = None,
    past: Tensor | None = None, attention_bias: Tensor | None = None,
    past_sequence_length: Host | None = None, *, num_heads: int, unidirectional: int = 0,
    qkv_hidden_sizes: list[int] | None = None, scale: float = 0.0,
    mask_filter_value: float = -10000.0, do_rotary: int = 0, past_present_share_buffer: int = 0,
    rotary_embedding_dim: int = 0, node: NodeView,
) -> Any:  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise UnsupportedError("do_rotary and past_present_share_buffer are not supported")
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    whole = x @ weights if bias is None else x @ weights + bias
    ends = [sizes[0], sizes[0] + sizes[1], sum(sizes)]
    parts = [whole[..., : ends[0]], whole[..., ends[0] : ends[1]], whole[..., ends[1] :]]
    q, k, v = [split_heads(p, num_heads) for p in parts]
    if past is not None:
        k, v = svod.concat([past[0], k], axis=2), svod.concat([past[1], v], axis=2)
    rows, columns = q.shape[2], k.shape[2]
    allowed = _causal(rows, columns) if unidirectional else None
    added = [_mask_bias(mask, rows, columns, mask_filter_value), attention_bias]
    found = join_heads(attend(q, k, v, scale, added, allowed))
    return (found, svod.stack([k, v], dim=0)) if node.wants(1) else found


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    q: Tensor, k: Tensor | None = None, v: Tensor | None = None, bias: Tensor | None = None,
    mask: Tensor | None = None, attention_bias: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None,
    past_sequence_length: Host | None = None, cache_indirection: Tensor | None = None, *,
    num_heads: int, scale: float = 0.0, mask_filter_value: float = -10000.0,
    unidirectional: int = 0, node: NodeView,
) -> Any:  # fmt: skip
    if cache_indirection is not None:
        raise UnsupportedError("cache_indirection is not supported")
    if q.ndim == 5:  # (batch, length, heads, 3, size)
        q, k, v = (q[:, :, :, i].permute(0, 2, 1, 3) for i in range(3))
    elif k is not None and k.ndim == 5:  # (batch, length, heads, 2, size)
        k, v = (k[:, :, :, i].permute(0, 2, 1, 3) for i in range(2))
    if k is None or v is None:
        raise UnsupportedError("without key and value is not supported")
    heads = [x if x.ndim == 4 else split_heads(x, num_heads) for x in (q, k, v)]
    if bias is not None:
        start = 0
        for i, x in enumerate(heads):
            width = num_heads * x.shape[3]
            part = bias[start : start + width].reshape(1, num_heads, 1, -1)
            heads[i] = x + part if (q, k, v)[i].ndim != 4 or q.ndim == 4 else x
            start += width
    query, key, value = heads
    if past_key is not None and past_value is not None:
        key = svod.concat([past_key, key], axis=2)
        value = svod.concat([past_value, value], axis=2)
    rows, columns = query.shape[2], key.shape[2]
    allowed = _causal(rows, columns) if unidirectional else None
    added = [_mask_bias(mask, rows, columns, mask_filter_value), attention_bias]
    found = join_heads(attend(query, key, value, scale, added, allowed))
    return (found, key, value)[: min(max(node.outputs, 1), 3)]


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Tensor:  # fmt: skip
    if is_packed_batching or scale != 1.0:
        raise UnsupportedError("scale and is_packed_batching are not supported")
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    if positions.ndim == 1:
        steps = count_up(length).reshape(1, -1) + positions.cast(dt.int64).reshape(1, 1)
        positions = steps.expand(x.shape[0], length)
    if x.ndim == 3 and not num_heads:
        size = rotary_embedding_dim or 2 * cos.shape[1]
        num_heads = x.shape[2] // size
    return rotary_embedding(
        x, cos, sin, positions, interleaved=interleaved, num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    q: Tensor, k: Tensor | None, v: Tensor | None, past_key: Tensor | None,
    past_value: Tensor | None, lengths: Tensor, total: Host, cos: Tensor | None = None,
    sin: Tensor | None = None, positions: Tensor | None = None,
    attention_bias: Tensor | None = None, *, num_heads: int, kv_num_heads: int,
    scale: float = 0.0, softcap: float = 0.0, local_window_size: int = -1, do_rotary: int = 0,
    rotary_interleaved: int = 0, smooth_softmax: int = 0,
) -> Any:  # fmt: skip
    """New keys go behind each row's own past; a query sees what is not after it."""
    if smooth_softmax == 1:
        raise UnsupportedError("smooth_softmax is not supported")
    if k is None or v is None:  # all three beside each other
        size = q.shape[2] // (num_heads + 2 * kv_num_heads)
        ends = [num_heads * size, (num_heads + kv_num_heads) * size]
        q, k, v = q[..., : ends[0]], q[..., ends[0] : ends[1]], q[..., ends[1] :]
    query, key, value = (
        split_heads(x, n) for x, n in ((q, num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    batch, rows = q.shape[0], q.shape[1]
    before = lengths.cast(dt.int64).reshape(-1) + 1 - _amount(rows)
    before = svod.maximum(before, svod.zeros_like(before))
    place = count_up(rows).reshape(1, -1) + before.reshape(-1, 1)  # (batch, rows)
    if do_rotary and cos is not None and sin is not None:
        where = place if positions is None else positions
        size = 2 * cos.shape[1]
        query, key = (
            rotary_embedding(
                x, cos, sin, where, interleaved=rotary_interleaved, rotary_embedding_dim=size
            )
            for x in (query, key)
        )
    columns: Any = total.reshape(-1)[0]
    columns = columns if isinstance(columns, UOp) else int(columns)
    if past_key is not None and past_value is not None:
        key = _written(past_key, key, place, columns)
        value = _written(past_value, value, place, columns)
    columns = key.shape[2]
    seen = count_up(columns).reshape(1, 1, 1, -1)
    now = place.reshape(batch, 1, rows, 1)
    allowed = seen <= now
    if local_window_size > 0:
        allowed = allowed & (seen > now - local_window_size)
    found = attend(
        query, repeat_heads(key, num_heads), repeat_heads(value, num_heads), scale,
        [attention_bias], allowed, softcap,
    )  # fmt: skip
    return join_heads(found), key, value


def _written(past: Tensor, new: Tensor, place: Tensor, total: Any) -> Tensor:
    """A cache with new entries, each row's behind its own past; it grows where it must."""
    size = past.shape[2]
    more = total - size
    if isinstance(more, UOp) or more > 0:
        past = past.pad([0, 0, 0, more])
    index = place.unsqueeze(1).unsqueeze(-1).expand(*new.shape)
    return past.scatter(2, index, new)
