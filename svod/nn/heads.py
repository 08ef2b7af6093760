"""Attention of several heads as a function of its weights, with the arguments of torch."""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.tensor.ops.creation import ones
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate
from svod.tensor.tensor import Tensor


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attended values of (L, N, E) or (L, E), and the weights unless they are not needed.

    In bool masks True means: do not look there.
    """
    is_one = query.ndim == 2
    if is_one:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    size = query.shape[-1]
    if size != embed_dim_to_check or size % num_heads:
        raise ShapeError(
            f"multi_head_attention_forward: queries of width {size}, not {embed_dim_to_check}, "
            f"with {num_heads} heads"
        )
    if key.shape[:2] != value.shape[:2]:
        raise ShapeError(f"keys {key.shape} and values {value.shape} differ in number")
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        assert in_proj_weight is not None, "one weight, or three"
        weights = in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)

    def heads(x: Tensor) -> Tensor:
        """(length, batch, width) as (batch, head, length, width)."""
        return x.reshape(x.shape[0], x.shape[1], num_heads, -1).permute(1, 2, 0, 3)

    q, k, v = (
        heads(x.linear(w, b)) for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    batch = q.shape[0]
    k = k if static_k is None else static_k.reshape(batch, num_heads, *static_k.shape[1:])
    v = v if static_v is None else static_v.reshape(batch, num_heads, *static_v.shape[1:])
    if is_causal and attn_mask is None:
        attn_mask = ones(q.shape[2], k.shape[2], dtype=dt.bool_).triu(1)
    mask = _mask(q, k, key_padding_mask, attn_mask)
    more = []  # keys and values that are learned, and a zero; all may look there
    if bias_k is not None and bias_v is not None:
        more.append((heads(bias_k.reshape(1, 1, -1)), heads(bias_v.reshape(1, 1, -1))))
    if add_zero_attn:
        more.append((k[:, :, :1].zeros_like(), v[:, :, :1].zeros_like()))
    for one_key, one_value in more:
        k = concatenate([k, one_key.expand(batch, -1, -1, -1)], 2)
        v = concatenate([v, one_value.expand(batch, -1, -1, -1)], 2)
    mask = mask.pad((0, len(more))) if more and mask is not None else mask
    chances = None
    if need_weights:
        scores = (q @ k.transpose(-2, -1)) * (1 / sqrt(q.shape[-1]))
        scores = scores if mask is None else scores + mask
        chances = scores.softmax(-1).dropout(dropout_p, training)
        attended = chances @ v
    else:
        attended = q.scaled_dot_product_attention(k, v, mask, dropout_p if training else 0.0)
    joined = attended.permute(2, 0, 1, 3).reshape(q.shape[2], batch, size)
    found = joined.linear(out_proj_weight, out_proj_bias)
    if chances is not None and average_attn_weights:
        chances = chances.mean(1)
    if not is_one:
        return found, chances
    return found.squeeze(1), None if chances is None else chances.squeeze(0)


def _mask(q: Tensor, k: Tensor, padding: Tensor | None, given: Tensor | None) -> Tensor | None:
    """Both masks as numbers to add to the scores."""
    mask = None
    if given is not None:
        mask = _added(given, q)
        if mask.ndim == 3:
            mask = mask.reshape(-1, q.shape[1], *mask.shape[1:])
    if padding is not None:
        more = _added(padding, q).reshape(q.shape[0], 1, 1, k.shape[2])
        mask = more if mask is None else mask + more
    return mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype.kind != "b":
        return mask
    return select(mask, float("-inf"), 0.0).cast(like.dtype)
