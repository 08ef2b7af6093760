"""Layers of transformers with the parameters and arguments of torch."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from svod.base.errors import ConfigError
from svod.dtype import types as dt
from svod.nn import init
from svod.nn.attention import MultiheadAttention
from svod.nn.containers import ModuleList
from svod.nn.layers import Dropout, Linear
from svod.nn.module import Module
from svod.nn.normalization import LayerNorm
from svod.tensor.ops.creation import ones
from svod.tensor.ops.elementwise import select
from svod.tensor.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


def _function(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise ConfigError(f"activation is 'relu', 'gelu' or a function, not {activation!r}")
    method = activation
    return lambda x: getattr(x, method)()


class _Layer(Module):
    """Attention blocks and a network, each beside the input and with a norm."""

    attentions: tuple[str, ...] = ()

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in self.attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **made
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.norm_first = norm_first
        for number in range(1, len(self.attentions) + 2):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
            setattr(self, f"norm{number}", norm)
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _function(activation)

    def _beside(self, x: Tensor, number: int, block: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(block(norm(x)))
        found: Tensor = norm(x + dropout(block(x)))
        return found

    def _network(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return found


class TransformerEncoderLayer(_Layer):
    """Attention within a sequence, then a network of two layers."""

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            found: Tensor = self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, True, is_causal
            )[0]
            return found

        return self._beside(self._beside(src, 1, attend), 2, self._network)


class TransformerDecoderLayer(_Layer):
    """Attention within a sequence, attention to a memory, then a network of two layers."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            found: Tensor = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal
            )[0]
            return found

        def look(x: Tensor) -> Tensor:
            found: Tensor = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, True,
                memory_is_causal,
            )[0]  # fmt: skip
            return found

        return self._beside(self._beside(self._beside(tgt, 1, attend), 2, look), 3, self._network)


class _Stack(Module):
    """Copies of a layer one after the other."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def _through(self, x: Tensor, *others: Any, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *others, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Copies of an encoder layer one after the other."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        """The last two say how torch runs the same computation; they change no result."""
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        return self._through(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(_Stack):
    """Copies of a decoder layer one after the other."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        return self._through(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            bool(tgt_is_causal), memory_is_causal,
        )  # fmt: skip


class Transformer(Module):
    """An encoder and a decoder (Vaswani and others, 2017)."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options: tuple[Any, ...] = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype,
        )  # fmt: skip
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options),
            num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, **made),
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options),
            num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, **made),
        )
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        found: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A mask under which no place looks at a later one."""
        later = ones(sz, sz, dtype=dt.bool_).triu(1)
        return select(later, float("-inf"), 0.0)
