"""Multi-head attention with the parameters and masks of torch."""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.nn import init
from svod.nn.layers import Linear, parameter
from svod.nn.module import Module
from svod.tensor.creation import ones
from svod.tensor.elementwise import select
from svod.tensor.joining import concatenate
from svod.tensor.tensor import Tensor


class MultiheadAttention(Module):
    """Attention of several heads over (L, N, E), or (N, L, E) with ``batch_first``.

    In bool masks True means: do not look there, as in torch's module.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"embed_dim {embed_dim} does not divide into {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        made: dict[str, Any] = {"dtype": dtype, "device": device}
        key, value = kdim or embed_dim, vdim or embed_dim
        self.is_packed = key == value == embed_dim
        if self.is_packed:
            self.in_proj_weight = init.xavier_uniform_(parameter(3 * embed_dim, embed_dim, **made))
        else:
            for name, width in (("q", embed_dim), ("k", key), ("v", value)):
                weight = init.xavier_uniform_(parameter(embed_dim, width, **made))
                setattr(self, f"{name}_proj_weight", weight)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim, **made) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **made)
        if bias:
            init.zeros_(self.out_proj.bias)
        for name in ("bias_k", "bias_v"):  # a key and a value that are learned
            start = init.xavier_normal_(parameter(1, 1, embed_dim, **made)) if add_bias_kv else None
            self.register_parameter(name, start)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights unless they are not needed."""
        if query.ndim == 2:
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            axis = 0 if self.batch_first else 1
            found, weights = self.forward(
                query.unsqueeze(axis), key.unsqueeze(axis), value.unsqueeze(axis), padding,
                need_weights, attn_mask, average_attn_weights, is_causal,
            )  # fmt: skip
            return found.squeeze(axis), None if weights is None else weights.squeeze(0)
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._heads(query, 0), self._heads(key, 1), self._heads(value, 2)
        if is_causal and attn_mask is None:
            attn_mask = ones(q.shape[2], k.shape[2], dtype=dt.bool_).triu(1)
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        k, v, mask = self._extended(k, v, mask)
        if need_weights:
            scores = (q @ k.transpose(-2, -1)) * (1 / sqrt(q.shape[-1]))
            scores = scores if mask is None else scores + mask
            weights = scores.softmax(-1).dropout(self.dropout, self.training)
            attended = weights @ v
        else:
            weights = None
            attended = q.scaled_dot_product_attention(
                k, v, mask, self.dropout if self.training else 0.0
            )
        batch, _, length, _ = attended.shape
        joined = attended.transpose(1, 2).reshape(batch, length, self.embed_dim)
        found = self.out_proj(joined)
        found = found if self.batch_first else found.transpose(0, 1)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        return found, weights

    def _heads(self, x: Tensor, place: int) -> Tensor:
        """One of query, key, value as (batch, head, length, width)."""
        size = self.embed_dim
        part = slice(place * size, (place + 1) * size)
        name = "qkv"[place]
        weight = (
            self.in_proj_weight[part] if self.is_packed else getattr(self, f"{name}_proj_weight")
        )
        bias = None if self.in_proj_bias is None else self.in_proj_bias[part]
        found = x.linear(weight, bias)
        batch, length, _ = found.shape
        return found.reshape(batch, length, self.num_heads, -1).transpose(1, 2)

    def _extended(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Any, Any, Any]:
        """Keys and values with those that are learned, and a zero; all may look there."""
        more = []
        if self.bias_k is not None:
            heads = (1, self.num_heads, 1, -1)
            more.append((self.bias_k.reshape(heads), self.bias_v.reshape(heads)))
        if self.add_zero_attn:
            more.append((k[:, :, :1] * 0, v[:, :, :1] * 0))
        for key, value in more:
            k = concatenate([k, key.expand(k.shape[0], -1, -1, -1)], 2)
            v = concatenate([v, value.expand(v.shape[0], -1, -1, -1)], 2)
        if more and mask is not None:
            mask = mask.pad((0, len(more)))
        return k, v, mask

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, given: Tensor | None
    ) -> Tensor | None:
        """Both masks as numbers to add to the scores."""
        mask = None
        if given is not None:
            mask = _added(given, q)
            if mask.ndim == 3:
                mask = mask.reshape(-1, self.num_heads, *mask.shape[1:])
        if padding is not None:
            more = _added(padding, q).reshape(q.shape[0], 1, 1, k.shape[2])
            mask = more if mask is None else mask + more
        return mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype.kind != "b":
        return mask
    return select(mask, float("-inf"), 0.0).cast(like.dtype)
