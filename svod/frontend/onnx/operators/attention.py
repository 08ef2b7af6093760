"""Attention, rotary embeddings, linear attention."""

from __future__ import annotations

from math import sqrt
from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView, size_tensor
from svod.frontend.onnx.operators.shapes import count_up
from svod.frontend.onnx.registry import Tensor, operator
from svod.frontend.onnx.types import element

INFINITY = float("inf")


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    b, s, width = x.shape
    return x.reshape(b, s, heads, width // heads).permute(0, 2, 1, 3)


def join_heads(x: Tensor) -> Tensor:
    b, h, s, d = x.shape
    return x.permute(0, 2, 1, 3).reshape(b, s, h * d)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Each head of keys or values serves a group of query heads."""
    b, h, s, d = x.shape
    if h == heads:
        return x
    return x.reshape(b, h, 1, s, d).expand(b, h, heads // h, s, d).reshape(b, heads, s, d)


def softmax_rows(x: Tensor) -> Tensor:
    """A softmax whose rows without any key give zeros."""
    top = x.amax(-1, keepdim=True)
    top = svod.where(top == -INFINITY, 0.0, top)
    powers = (x - top).exp()
    total = powers.sum(-1, keepdim=True)
    return powers / svod.where(total == 0, 1.0, total)


def _bias(mask: Tensor, dtype: Any, width: Any) -> Tensor:
    """A mask as what is added to the scores; keys beyond it are masked."""
    missing = width - mask.shape[-1]
    if mask.dtype is dt.bool_:
        mask = svod.where(mask, 0.0, -INFINITY).cast(dtype)
    if not isinstance(missing, int) or missing > 0:
        mask = mask.pad([0, missing], value=-INFINITY)
    return mask


@operator("Attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, lengths: Tensor | None = None, *, is_causal: int = 0,
    kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
    left_window_size: int = -1, right_window_size: int = -1, node: NodeView,
) -> tuple[Any, ...]:  # fmt: skip
    is_flat = q.ndim == 3
    if is_flat:
        q, k, v = (
            split_heads(q, q_num_heads),
            split_heads(k, kv_num_heads),
            split_heads(v, kv_num_heads),
        )
    if past_key is not None and past_value is not None:
        k, v = svod.concat([past_key, k], axis=2), svod.concat([past_value, v], axis=2)
    present = (k, v)
    heads, rows, columns = q.shape[1], q.shape[2], k.shape[2]
    factor = sqrt(scale if scale is not None else 1 / sqrt(q.shape[3]))
    k, v = repeat_heads(k, heads), repeat_heads(v, heads)
    scores = (q * factor) @ (k * factor).transpose(-1, -2)
    scores = (scores / softcap).tanh() * softcap if softcap else scores
    before = scores
    allowed = _allowed(
        rows, columns, past_key, lengths, bool(is_causal), left_window_size, right_window_size
    )
    if mask is not None:
        scores = scores + _bias(mask, q.dtype, columns)
    if allowed is not None:
        scores = svod.where(allowed, scores, -INFINITY)
    with_bias = scores
    kind = element(softmax_precision).carrier if softmax_precision else scores.dtype
    is_plain = mask is None and allowed is None
    wide = scores.cast(kind)
    shares = (wide.softmax(-1) if is_plain else softmax_rows(wide)).cast(q.dtype)
    found = shares @ v
    shown = {0: before, 1: before, 2: with_bias, 3: shares}.get(qk_matmul_output_mode, before)
    return join_heads(found) if is_flat else found, *present, shown


def _allowed(
    rows: Any, columns: Any, past: Tensor | None, lengths: Tensor | None, is_causal: bool,
    left: int, right: int,
) -> Tensor | None:  # fmt: skip
    """Which key a query may see, or None where it is all of them."""
    allowed: Any = None
    key = count_up(columns).reshape(1, 1, 1, -1)
    if is_causal or left >= 0 or right >= 0:
        offset: Any = 0
        if past is not None:
            offset = (
                size_tensor(past.shape[2], "CPU")
                if not isinstance(past.shape[2], int)
                else (past.shape[2])
            )
        elif lengths is not None:
            offset = lengths.cast(dt.int64).reshape(-1, 1, 1, 1) - rows
        query = count_up(rows).reshape(1, 1, -1, 1) + offset
        for limit in [key <= query] if is_causal else []:
            allowed = limit
        if left >= 0:
            near = query - key <= left
            allowed = near if allowed is None else allowed & near
        if right >= 0:
            near = key - query <= right
            allowed = near if allowed is None else allowed & near
    if lengths is not None:
        inside = key < lengths.cast(dt.int64).reshape(-1, 1, 1, 1)
        allowed = inside if allowed is None else allowed & inside
    return allowed  # type: ignore[no-any-return]


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, score_mod: Any = None,
    prob_mod: Any = None, softmax_precision: int | None = None, node: NodeView,
) -> Tensor:  # fmt: skip
    kind = dt.float64 if q.dtype is dt.float64 else dt.float32
    kind = element(softmax_precision).carrier if softmax_precision else kind
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    factor = scale if scale is not None else 1 / sqrt(q.shape[3])
    scores = (q @ k.transpose(-1, -2)).cast(kind) * factor
    if score_mod is not None:
        scores = node.tensor(node.run(score_mod, [scores])[0])
    shares = scores.softmax(-1)
    if prob_mod is not None:
        shares = node.tensor(node.run(prob_mod, [shares])[0])
    return shares.cast(q.dtype) @ v


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, *,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    """Pairs of elements turned by the angles of their positions."""
    is_flat = x.ndim == 3
    y = split_heads(x, num_heads) if is_flat else x
    size = rotary_embedding_dim or y.shape[-1]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    part, rest = y[..., :size], y[..., size:]
    if interleaved:
        pairs = part.reshape(*part.shape[:-1], size // 2, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        turned = svod.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).reshape(*part.shape)
    else:
        a, b = part[..., : size // 2], part[..., size // 2 :]
        turned = svod.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)
    if size != y.shape[-1]:
        turned = svod.concat([turned, rest], axis=-1)
    return join_heads(turned) if is_flat else turned


@operator("LinearAttention")
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, past: Tensor | None = None, decay: Tensor | None = None,
    beta: Tensor | None = None, *, q_num_heads: int, kv_num_heads: int, chunk_size: int = 64,
    scale: float = 0.0, update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A recurrence over time whose state is a matrix for each head."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise UnsupportedError(f"update_rule {update_rule!r} is not supported")
    b, steps, width = q.shape
    kind = dt.float64 if q.dtype is dt.float64 else dt.float32
    size, value = width // q_num_heads, v.shape[-1] // kv_num_heads

    def by_time(x: Tensor, heads: int) -> Tensor:
        heads = heads if x.shape[-1] % heads == 0 else 1  # one value for all heads
        return x.cast(kind).reshape(b, steps, heads, -1).permute(1, 0, 2, 3)

    queries = by_time(q, q_num_heads)
    keys, values = by_time(k, kv_num_heads), by_time(v, kv_num_heads)
    gates = (
        by_time(decay, kv_num_heads).exp() if decay is not None and "gated" in update_rule else None
    )
    rates = by_time(beta, kv_num_heads) if beta is not None and "delta" in update_rule else None
    state = svod.zeros((b, kv_num_heads, size, value), dtype=kind)
    state = state if past is None else past.cast(kind)
    xs = {"q": queries, "k": keys, "v": values}
    xs |= {"g": gates} if gates is not None else {}
    xs |= {"b": rates} if rates is not None else {}

    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        s = s * x["g"].unsqueeze(-1) if "g" in x else s
        new = x["v"]
        if "delta" in update_rule:
            new = new - (x["k"].unsqueeze(-2) @ s).squeeze(-2)
            new = new * x["b"] if "b" in x else new
        s = s + x["k"].unsqueeze(-1) * new.unsqueeze(-2)
        read = repeat_heads(s, q_num_heads)
        return s, (x["q"].unsqueeze(-2) @ read).squeeze(-2)

    last, outs = svod.scan(step, state, xs)
    factor = scale or 1 / sqrt(size)
    found = (outs * factor).permute(1, 0, 2, 3).reshape(b, steps, q_num_heads * value)
    return found.cast(q.dtype), last.cast(q.dtype if past is None else past.dtype)
