"""Logits of every architecture are those of transformers, from the same random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod.llm.config import config_of_folder
from svod.llm.decoder import Decoder
from svod.llm.engine import Engine
from svod.llm.names import named_as_gguf
from svod.llm.sampling import Sampling

pytestmark = pytest.mark.long
SIZES: dict[str, Any] = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
WINDOW = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 24}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
GPT2 = {"vocab_size": 160, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", SIZES),
    "llama3": ("LlamaConfig", {**SIZES, "rope_parameters": LLAMA3}),
    "mistral": ("MistralConfig", {**SIZES, "sliding_window": 8}),
    "qwen2": ("Qwen2Config", SIZES),
    "qwen3": ("Qwen3Config", {**SIZES, "head_dim": 32}),
    "gemma2": ("Gemma2Config", {**SIZES, **WINDOW}),
    "gemma3": ("Gemma3TextConfig", {**SIZES, **WINDOW, "num_hidden_layers": 6}),
    "phi3": ("Phi3Config", {**SIZES, "pad_token_id": 0}),
    "gpt2": ("GPT2Config", GPT2),
    "mixtral": ("MixtralConfig", {**SIZES, "num_local_experts": 4}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {
            **SIZES,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
            "head_dim": 32,
        },
    ),
    "qwen3_moe_not_normed": (
        "Qwen3MoeConfig",
        {
            **SIZES,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
        },
    ),
    "starcoder2": ("Starcoder2Config", SIZES),
    "smollm3": ("SmolLM3Config", {**SIZES, "num_hidden_layers": 5, "pad_token_id": 0}),
    "phi4": (
        "Phi3Config",
        {
            **SIZES,
            "pad_token_id": 0,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "default",
                "partial_rotary_factor": 0.5,
            },
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the other implementation")
    torch = pytest.importorskip("torch", reason="the other implementation")
    kind, options = CASES[name]
    config = getattr(transformers, kind)(**options)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else 0.15))
    ours = config_of_folder(config.to_dict())
    state = {key: svod.Tensor(value.numpy()) for key, value in model.state_dict().items()}
    weights = named_as_gguf(state, ours, bool(config.tie_word_embeddings))
    engine = Engine(Decoder(ours, weights, 160), chunk=16)
    prompt = np.random.default_rng(1).integers(0, 160, 21).tolist()
    tokens = list(prompt)
    compiled = None
    for step in engine.generate(prompt, Sampling(temperature=0.0), 100):
        with torch.no_grad():
            expected = model(torch.tensor(tokens)[None]).logits[0, -1].numpy()
        assert np.abs(engine.last_logits - expected).max() < 1e-3
        assert step.token == int(expected.argmax())
        tokens.append(step.token)
        if len(tokens) == len(prompt) + 2:
            compiled = engine.plans
    assert len(tokens) == len(prompt) + 100
    assert engine.plans == compiled == 2
