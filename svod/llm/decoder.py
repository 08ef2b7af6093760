"""The decoder: token numbers at positions in, logits out; keys and values are kept in pages.

One definition covers all architectures: options are in `DecoderConfig`, and what a model has or
has not (biases, norms of queries, an output matrix of its own) follows from its weights. Weights
go by the names of GGUF files. Every weight must be used and of the right shape, or the model is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import svod
from svod import nn
from svod.llm.config import DecoderConfig
from svod.llm.errors import ModelFileError
from svod.llm.experts import FloatStack, Stack, chosen
from svod.llm.paged import PAGE, Rows, pages_of
from svod.llm.rotary import angle_tables, turned
from svod.llm.weights import FloatMatrix, Matrix
from svod.tensor.tensor import Tensor

Weight = Matrix | Stack | Tensor
FAR = -1e30  # a score of what is not seen


class Decoder(nn.Module):
    """A decoder with a cache for `slots` sequences of at most `capacity` tokens."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Weight],
        capacity: int,
        slots: int = 1,
    ) -> None:
        super().__init__()
        self.config, self.capacity, self.slots = config, capacity, slots
        self.names = _checked(config, weights)
        for name, value in weights.items():
            if isinstance(value, Tensor) and len(value.shape) == 2:
                value = FloatMatrix(value)
            if isinstance(value, Tensor) and len(value.shape) == 3:
                value = FloatStack(value)
            if isinstance(value, Tensor):
                self.register_buffer(_attribute(name), value, persistent=False)
            else:
                setattr(self, _attribute(name), value)
        if config.rotation == "none" and self.shape("position_embd.weight")[0] < capacity:
            raise ModelFileError(f"a cache of {capacity} is longer than the learned positions")
        self._add_tables(weights)
        self.pages = slots * pages_of(capacity) + 1
        shape = (self.pages * PAGE, config.kv_heads, config.head_size)
        for layer in range(config.layers):
            self.register_buffer(f"keys_{layer}", svod.zeros(shape), persistent=False)
            self.register_buffer(f"values_{layer}", svod.zeros(shape), persistent=False)

    def _add_tables(self, weights: Mapping[str, Weight]) -> None:
        config = self.config
        if config.rotation == "none":
            return
        found = weights.get("rope_freqs.weight")
        factors = found.numpy() if isinstance(found, Tensor) else None
        for kind in ("global", "local"):
            tables = angle_tables(config, self.capacity, kind == "local", factors)
            for part, table in zip(("cosines", "sines"), tables, strict=True):
                value = Tensor(np.ascontiguousarray(table, np.float32))
                self.register_buffer(f"{kind}_{part}", value, persistent=False)

    def weight(self, name: str) -> Tensor:
        """A weight that is no matrix, by its name."""
        value: Tensor = getattr(self, _attribute(name))
        return value

    def matrix(self, name: str) -> Matrix:
        """A matrix of weights by its name."""
        value: Matrix = getattr(self, _attribute(name))
        return value

    def stack(self, name: str) -> Stack:
        """The matrices of all experts of a layer by their name."""
        value: Stack = getattr(self, _attribute(name))
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight."""
        return tuple(getattr(self, _attribute(name)).shape)

    @property
    def vocabulary(self) -> int:
        return self.shape("token_embd.weight")[0]

    def forward(self, rows: Rows) -> Tensor:
        """Logits after each of the tokens."""
        return self.logits(self.hidden(rows))

    def hidden(self, rows: Rows) -> Tensor:
        """What the last layer gives for each of the tokens."""
        x = self.matrix("token_embd.weight").rows(rows.tokens)
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        if self.config.rotation == "none":
            x = x + self.matrix("position_embd.weight").rows(rows.positions)
        for layer in range(self.config.layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm"), rows)
            x = x + self._network(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Scores of the next token."""
        x = self.normed(x)
        head = "output.weight" if "output.weight" in self.names else "token_embd.weight"
        return _capped(self.matrix(head).product(x), self.config.logit_cap)

    def normed(self, x: Tensor) -> Tensor:
        """What the last layer gives, as the output matrix takes it."""
        return self._norm(x, "output_norm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        y = self.matrix(f"{name}.weight").product(x)
        return y + self.weight(f"{name}.bias") if f"{name}.bias" in self.names else y

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weight(f"{name}.weight")
        if self.config.norm == "layer":
            bias = self.weight(f"{name}.bias")
            return x.layer_norm((x.shape[-1],), weight, bias, self.config.epsilon)
        return x * ((x * x).mean(-1, keepdim=True) + self.config.epsilon).rsqrt() * weight

    def _projections(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config, block = self.config, f"blk.{layer}."
        queries, others = config.heads * config.head_size, config.kv_heads * config.head_size
        if f"{block}attn_qkv.weight" in self.names:
            all_three = self._linear(x, f"{block}attn_qkv")
            q, k = all_three[:, :queries], all_three[:, queries : queries + others]
            v = all_three[:, queries + others :]
        else:
            q, k, v = (self._linear(x, f"{block}attn_{part}") for part in "qkv")
        count = x.shape[0]
        q = q.reshape(count, config.heads, config.head_size)
        k, v = (y.reshape(count, config.kv_heads, config.head_size) for y in (k, v))
        if f"{block}attn_q_norm.weight" in self.names:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        return q, k, v

    def _attention(self, layer: int, x: Tensor, rows: Rows) -> Tensor:
        config, count, positions = self.config, x.shape[0], rows.positions
        q, k, v = self._projections(layer, x)
        if config.turns(layer):
            kind = "local" if config.has_window(layer) else "global"
            cosines, sines = (
                getattr(self, f"{kind}_{part}")[positions].unsqueeze(1)
                for part in ("cosines", "sines")
            )
            q, k = turned(q, cosines, sines, config), turned(k, cosines, sines, config)
        keys, values = self._kept(layer, "keys", k, rows), self._kept(layer, "values", v, rows)
        sequences, length = keys.shape[0], keys.shape[2]
        each, group = count // sequences, config.heads // config.kv_heads
        q = q.reshape(sequences, each, config.kv_heads, group, config.head_size)
        q = q.permute(0, 2, 3, 1, 4)
        q = q.reshape(sequences, config.kv_heads, group * each, config.head_size)
        scale = config.attention_scale or config.head_size**-0.5
        scores = _capped((q @ keys.transpose(2, 3)) * scale, config.score_cap)
        scores = scores.reshape(sequences, config.kv_heads, group, each, length)
        places = svod.arange(rows.table.shape[1] * PAGE, dtype=svod.int32)[: rows.pages * PAGE]
        at = positions.reshape(sequences, 1, 1, each, 1)
        seen = places <= at
        if config.has_window(layer):
            seen = seen & (places > at - config.window)
        shares = svod.where(seen, scores, FAR).softmax(4)
        shares = shares.reshape(sequences, config.kv_heads, group * each, length)
        mixed = (shares @ values).reshape(
            sequences, config.kv_heads, group, each, config.head_size
        )  # fmt: skip
        mixed = mixed.permute(0, 3, 1, 2, 4).reshape(count, config.heads * config.head_size)
        return self._after(self._linear(mixed, f"blk.{layer}.attn_output"), layer, "attention")

    def _kept(self, layer: int, part: str, new: Tensor, rows: Rows) -> Tensor:
        """Keys or values of all tokens so far, with the new ones at their places:
        (sequences, heads, tokens, size)."""
        cache: Tensor = getattr(self, f"{part}_{layer}")
        heads, size = self.config.kv_heads, self.config.head_size
        for number, place in enumerate(rows.places):
            written = new[number * rows.run : (number + 1) * rows.run]
            cache[place : place + rows.run].assign(written).realize()
        pages = cache.reshape(self.pages, PAGE, heads, size)[rows.table[:, : rows.pages]]
        pages = pages.reshape(rows.table.shape[0], rows.pages * PAGE, heads, size)
        return pages.transpose(1, 2)

    def _network(self, layer: int, x: Tensor) -> Tensor:
        block = f"blk.{layer}."
        if f"{block}ffn_gate_inp.weight" in self.names:
            return self._after(self._experts(block, x), layer, "ffw")
        up = self._linear(x, f"{block}ffn_up")
        if self.config.is_gated and f"{block}ffn_gate.weight" in self.names:
            y = self._activated(self._linear(x, f"{block}ffn_gate")) * up
        elif self.config.is_gated:  # both in one matrix, the gate first
            half = up.shape[1] // 2
            y = self._activated(up[:, :half]) * up[:, half:]
        else:
            y = self._activated(up)
        return self._after(self._linear(y, f"{block}ffn_down"), layer, "ffw")

    def _experts(self, block: str, x: Tensor) -> Tensor:
        """The networks that a router chooses for each token, put together by its shares."""
        config = self.config
        scores = self._linear(x, f"{block}ffn_gate_inp")
        places, shares = chosen(scores, config.experts_used, config.norms_experts)
        if f"{block}ffn_gate_up_exps.weight" in self.names:
            both = self.stack(f"{block}ffn_gate_up_exps.weight").product(x, places)
            half = both.shape[2] // 2
            y = self._activated(both[:, :, :half]) * both[:, :, half:]
        else:
            gate = self.stack(f"{block}ffn_gate_exps.weight").product(x, places)
            y = self._activated(gate) * self.stack(f"{block}ffn_up_exps.weight").product(x, places)
        each = y.reshape(-1, y.shape[2])
        down = self.stack(f"{block}ffn_down_exps.weight").product(each, places.reshape(-1, 1))
        return (down.reshape(*places.shape, -1) * shares.unsqueeze(2)).sum(1)

    def _activated(self, x: Tensor) -> Tensor:
        return x.silu() if self.config.activation == "silu" else x.gelu("tanh")

    def _after(self, x: Tensor, layer: int, part: str) -> Tensor:
        name = f"blk.{layer}.post_{part}_norm"
        return self._norm(x, name) if f"{name}.weight" in self.names else x


def _capped(x: Tensor, cap: float) -> Tensor:
    return (x / cap).tanh() * cap if cap else x


def _attribute(name: str) -> str:
    return "w_" + name.replace(".", "_")


def _checked(config: DecoderConfig, weights: Mapping[str, Weight]) -> frozenset[str]:
    """The names of the weights: all that are needed, none unknown, each of its shape."""
    if config.layers > len(weights):
        raise ModelFileError(f"{config.layers} layers cannot be made of {len(weights)} weights")
    shapes = expected_shapes(config, weights)
    needed = {name for name, (_, is_needed) in shapes.items() if is_needed}
    if missing := sorted(needed - weights.keys()):
        raise ModelFileError(f"weights of the model are missing: {missing[:6]}")
    if unknown := sorted(weights.keys() - shapes.keys()):
        raise ModelFileError(f"the model has weights that are not known: {unknown[:6]}")
    for name, value in weights.items():
        if tuple(value.shape) != shapes[name][0]:
            raise ModelFileError(
                f"{name} has the shape {tuple(value.shape)}, not {shapes[name][0]}"
            )
    return frozenset(weights)


def expected_shapes(
    config: DecoderConfig, weights: Mapping[str, Any]
) -> dict[str, tuple[tuple[int, ...], bool]]:
    """The shape of every weight a model may have, and whether it must be there."""
    vocabulary = _axis(weights, "token_embd.weight", 0)
    width, head = config.width, config.head_size
    queries, others = config.heads * head, config.kv_heads * head
    found: dict[str, tuple[tuple[int, ...], bool]] = {
        "token_embd.weight": ((vocabulary, width), True),
        "output.weight": ((vocabulary, width), False),
        "rope_freqs.weight": ((config.rotated // 2,), False),
    }
    is_layer_norm = config.norm == "layer"

    def norm(name: str, size: int, is_needed: bool) -> None:
        found[f"{name}.weight"] = ((size,), is_needed)
        if is_layer_norm:
            found[f"{name}.bias"] = ((size,), is_needed)

    def linear(name: str, rows: int, columns: int, is_needed: bool = True) -> None:
        found[f"{name}.weight"] = ((rows, columns), is_needed)
        found[f"{name}.bias"] = ((rows,), False)

    norm("output_norm", width, True)
    if config.rotation == "none":
        found["position_embd.weight"] = (
            (_axis(weights, "position_embd.weight", 0), width), True
        )  # fmt: skip
    for layer in range(config.layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            norm(block + name, width, True)
        for name in ("post_attention_norm", "post_ffw_norm"):
            norm(block + name, width, config.architecture.startswith("gemma"))
        for name in ("attn_q_norm", "attn_k_norm"):
            norm(block + name, head, config.architecture in ("qwen3", "qwen3moe", "gemma3"))
        is_joint = f"{block}attn_qkv.weight" in weights
        if is_joint:
            linear(block + "attn_qkv", queries + 2 * others, width)
        else:
            for part, rows in (("q", queries), ("k", others), ("v", others)):
                linear(f"{block}attn_{part}", rows, width)
        linear(block + "attn_output", width, queries)
        if f"{block}ffn_gate_inp.weight" in weights:
            _expect_experts(found, weights, block, config)
            continue
        network = _axis(weights, f"{block}ffn_down.weight", 1)
        has_gate = f"{block}ffn_gate.weight" in weights
        if has_gate and config.is_gated:
            linear(block + "ffn_gate", network, width)
        linear(block + "ffn_up", network * (1 + (config.is_gated and not has_gate)), width)
        linear(block + "ffn_down", width, network)
    return found


def _expect_experts(
    found: dict[str, tuple[tuple[int, ...], bool]],
    weights: Mapping[str, Any],
    block: str,
    config: DecoderConfig,
) -> None:
    """The weights of a layer of experts."""
    down = weights.get(f"{block}ffn_down_exps.weight")
    if down is None or len(down.shape) != 3 or not config.experts_used:
        raise ModelFileError(f"{block}ffn_gate_inp has no experts beside it, or none are used")
    count, network, width = int(down.shape[0]), int(down.shape[2]), config.width
    found[f"{block}ffn_gate_inp.weight"] = ((count, width), True)
    found[f"{block}ffn_down_exps.weight"] = ((count, width, network), True)
    if f"{block}ffn_gate_up_exps.weight" in weights:
        found[f"{block}ffn_gate_up_exps.weight"] = ((count, 2 * network, width), True)
    else:
        for part in ("gate", "up"):
            found[f"{block}ffn_{part}_exps.weight"] = ((count, network, width), True)


def _axis(weights: Mapping[str, Any], name: str, axis: int) -> int:
    if name not in weights or len(weights[name].shape) != 2:
        raise ModelFileError(f"the weight {name} is missing or no matrix")
    return int(weights[name].shape[axis])
