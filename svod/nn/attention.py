"""Multi-head attention with the parameters and masks of torch."""

from __future__ import annotations

from typing import Any

from svod.base.errors import ShapeError
from svod.nn import init
from svod.nn.heads import multi_head_attention_forward
from svod.nn.layers import Linear, parameter
from svod.nn.module import Module
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
        is_turned = self.batch_first and query.ndim == 3
        if is_turned:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        separate = () if self.is_packed else ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        found, weights = multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight if self.is_packed else None,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self.is_packed,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            **{name: getattr(self, name) for name in separate},
        )
        return found.transpose(0, 1) if is_turned else found, weights
