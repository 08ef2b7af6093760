"""Weights of model folders under the names of GGUF files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import svod
from svod.llm.config import DecoderConfig
from svod.llm.errors import ModelFileError
from svod.llm.weights import WHOLE, Matrix
from svod.tensor.tensor import Tensor

_WHOLE = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}  # fmt: skip
_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
_GEMMA_PARTS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_LAYER = re.compile(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)\.(weight|bias)")
_EXPERTS = re.compile(r"(?:model\.layers)\.(\d+)\.(mlp\.experts\.(?:gate_up|down)_proj)")
_EXPERT = re.compile(
    r"(model\.layers\.\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight"
)
_EXPERT_PARTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "up_proj": "up"}
_EXPERT_PARTS |= {"down_proj": "down"}


def named_as_gguf(
    state: Mapping[str, Any], config: DecoderConfig, is_tied: bool
) -> dict[str, Tensor | Matrix]:
    """Weights by GGUF's names; norms of Gemma count from one, matrices of GPT-2 are turned."""
    found: dict[str, Tensor | Matrix] = {}
    for name, value in _stacked(state).items():
        if name == "lm_head.weight" and is_tied:
            continue
        if re.search(r"\.(attn\.bias|attn\.masked_bias|rotary_emb\.inv_freq)$", name):
            continue  # buffers, not weights
        target, tensor = _target(name, config), value
        if isinstance(value, Matrix):
            found[target] = value
            continue
        if config.architecture.startswith("gemma") and "norm" in target:
            tensor = tensor.float() + 1.0
        if config.architecture == "gpt2" and target.startswith("blk.") and len(value.shape) == 2:
            tensor = tensor.transpose(0, 1).contiguous()
        is_matrix = len(value.shape) >= 2 and value.dtype in WHOLE
        found[target] = tensor if is_matrix else tensor.float().contiguous()
    return found


def _stacked(state: Mapping[str, Any]) -> dict[str, Any]:
    """The weights with those of experts side by side, where a file has one for each."""
    found: dict[str, Any] = {}
    parts: dict[str, dict[int, Any]] = {}
    for name, value in state.items():
        match = _EXPERT.fullmatch(name)
        if match is None or match[3] not in _EXPERT_PARTS:
            found[name] = value
            continue
        layer = match[1].rpartition(".")[2]
        target = f"blk.{layer}.ffn_{_EXPERT_PARTS[match[3]]}_exps.weight"
        parts.setdefault(target, {})[int(match[2])] = value
    for target, each in parts.items():
        shapes = {tuple(value.shape) for value in each.values()}
        if sorted(each) != list(range(len(each))) or len(shapes) != 1:
            raise ModelFileError(f"{target}: experts {sorted(each)[:6]} of shapes {shapes}")
        if any(isinstance(value, Matrix) for value in each.values()):
            raise ModelFileError(
                f"{target}: experts of a block format are one tensor in GGUF files"
            )
        found[target] = svod.stack([each[number] for number in range(len(each))], 0).contiguous()
    return found


def _target(name: str, config: DecoderConfig) -> str:
    if name.startswith("blk."):
        return name
    if experts := _EXPERTS.fullmatch(name):
        return f"blk.{experts[1]}.{_PARTS[experts[2]]}.weight"
    stem, _, end = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{end}"
    parts = {**_PARTS, **(_GEMMA_PARTS if config.architecture.startswith("gemma") else {})}
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in parts:
        raise ModelFileError(f"the weight {name!r:.80} is not known")
    return f"blk.{match[1]}.{parts[match[2]]}.{match[3]}"
