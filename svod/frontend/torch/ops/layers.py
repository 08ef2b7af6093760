"""Whole layers that torch has as one operator: encoder layers, recurrent layers, experts."""

from __future__ import annotations

from typing import Any

import svod
import svod.nn.functional as F
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, op, tensor
from svod.tensor.tensor import Tensor

# -- attention with its projections ----------------------------------------------------------------


def _kept(mask: Tensor | None, kind: int | None) -> Tensor | None:
    """Where to attend, against (batch, heads, rows, columns). torch marks what is left out."""
    if mask is None:
        return None
    kept = mask.cast(dt.bool_).logical_not()
    if kind == 1:  # (batch, columns)
        return kept.unsqueeze(1).unsqueeze(1)
    return kept


def _heads(x: Tensor, count: int) -> Tensor:
    batch, rows, width = x.shape
    return x.reshape(batch, rows, count, width // count).transpose(1, 2)


def _attended(
    query: Tensor, key: Tensor, value: Tensor, heads: int, weights: tuple[Tensor, ...],
    kept: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Projected attention, and its weights for each head."""
    qkv_weight, qkv_bias, weight, bias = weights
    parts = [
        _heads(x.linear(w, b), heads)
        for x, w, b in zip(
            (query, key, value), qkv_weight.chunk(3, 0), qkv_bias.chunk(3, 0), strict=True
        )
    ]
    scores = parts[0] * float(parts[0].shape[-1]) ** -0.5 @ parts[1].mT
    if kept is not None:
        scores = svod.where(kept, scores, tensor(float("-inf"), scores.dtype))
    shares = scores.softmax(-1)
    found = (shares @ parts[2]).transpose(1, 2)
    return found.reshape(query.shape).linear(weight, bias), shares


@op("aten._native_multi_head_attention.default", call=True)
def multi_head_attention(
    call: Call, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int,
    qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    mask: Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    found, shares = _attended(query, key, value, heads, weights, _kept(mask, mask_type))
    if not need_weights:
        shape = call.sizes.shape(call.node.meta["val"][1].shape)
        return found, tensor(0, found.dtype).expand(*shape)
    return found, shares.mean(1) if average_attn_weights else shares


@op("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    x: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor,
    norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor,
    ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    def attended(a: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attended(a, a, a, heads, weights, _kept(mask, mask_type))[0]

    def expanded(a: Tensor) -> Tensor:
        wide = a.linear(ffn_weight_1, ffn_bias_1)
        return (F.gelu(wide) if use_gelu else wide.relu()).linear(ffn_weight_2, ffn_bias_2)

    def first(a: Tensor) -> Tensor:
        return F.layer_norm(a, (width,), norm_weight_1, norm_bias_1, eps)

    def second(a: Tensor) -> Tensor:
        return F.layer_norm(a, (width,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attended(first(x))
        return x + expanded(second(x))
    x = first(x + attended(x))
    return second(x + expanded(x))


# -- recurrent layers ------------------------------------------------------------------------------

_LSTM = 2  # torch's number among kinds of recurrent layers


@op("aten.mkldnn_rnn_layer.default", call=True)
def recurrent_layer(
    call: Call, x: Tensor, w_input: Tensor, w_state: Tensor, b_input: Tensor, b_state: Tensor,
    state: Tensor, cell: Tensor, reverse: bool, batch_sizes: Any, mode: int, hidden_size: int,
    num_layers: int, has_biases: bool, bidirectional: bool, batch_first: bool, train: bool,
) -> Any:  # fmt: skip
    """One layer of an LSTM in one direction: all results, and the last states."""
    is_simple = num_layers == 1 and not (bidirectional or batch_first or batch_sizes or train)
    if mode != _LSTM or not is_simple:
        raise UnsupportedError("a recurrent layer other than one layer of an LSTM, one way")
    inputs = x.linear(w_input, b_input + b_state if has_biases else None)

    def step(carry: Any, given: Tensor) -> Any:
        hidden, memory = carry
        i, f, g, o = (given + hidden @ w_state.mT).chunk(4, -1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * memory.tanh()
        return (hidden, memory), hidden

    start = tuple([s.reshape(x.shape[1], hidden_size) for s in (state, cell)])
    (hidden, memory), found = svod.scan(step, start, inputs, reverse=reverse)
    last = call.sizes.shape(call.node.meta["val"][3].shape)
    room = tensor(0, dt.uint8).expand(*last)  # what torch keeps for training
    return found, hidden.reshape(state.shape), memory.reshape(cell.shape), room


# -- experts ---------------------------------------------------------------------------------------


def _expert_of_rows(rows: Any, ends: Tensor) -> Tensor:
    """Which group each row is in; rows after the last end are in one more."""
    return svod.searchsorted(ends, svod.arange(rows, dtype=ends.dtype), right=True)


def _by_expert(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Each row times the matrix of its group: the rows of a group end where ``ends`` says."""
    expert = _expert_of_rows(x.shape[0], ends)
    last = weight.shape[0] - 1
    found = (x.unsqueeze(2) * weight[expert.clamp(0, last)]).sum(1)
    return svod.where((expert <= last).unsqueeze(1), found, tensor(0, found.dtype))


@op("transformers.grouped_mm_fallback.default")
def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return _by_expert(x, weight, ends)


@op("transformers.grouped_mm_fallback_backward.default")
def grouped_product_backward(x: Tensor, weight: Tensor, ends: Tensor, grad: Tensor) -> Any:
    expert = _expert_of_rows(x.shape[0], ends)
    all_experts = svod.arange(weight.shape[0], dtype=expert.dtype).unsqueeze(1)
    is_of = (expert.unsqueeze(0) == all_experts).unsqueeze(2)
    rows = svod.where(is_of, x.unsqueeze(0), tensor(0, x.dtype))  # (expert, row, width)
    return _by_expert(grad, weight.mT, ends), rows.mT @ grad


@op("aten._grouped_mm.default", call=True)
def grouped_mm(
    call: Call, x: Tensor, weight: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    if x.ndim != 2 or weight.ndim != 3 or offs is None or bias is not None:
        raise UnsupportedError("a grouped product other than of rows and one matrix for each group")
    wide = [t.cast(dt.float32) if t.dtype.itemsize < 4 else t for t in (x, weight)]
    return _by_expert(*wide, offs)
