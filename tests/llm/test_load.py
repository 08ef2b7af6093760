"""GGUF files and model folders load, and give the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod.llm import ModelFileError, RequestError, Sampling
from svod.llm.gguf_write import write_gguf
from svod.llm.model import Stops

TOKENS = ["<s>", "</s>", "<|user|>", "<|end|>", *map(chr, range(33, 127)), "Ġ", "Ċ"]
TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
GREEDY = Sampling(temperature=0.0)
CONFIG = {"vocab_size": len(TOKENS), "hidden_size": 64, "intermediate_size": 96}
CONFIG |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG |= {"max_position_embeddings": 128}


def keys(architecture: str, config: Any) -> dict[str, Any]:
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    epsilon = "layer_norm_epsilon" if architecture == "gpt2" else "layer_norm_rms_epsilon"
    found = {
        "context_length": 128, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "attention.head_count": heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", heads),
        "attention.key_length": head, "attention.value_length": head,
        f"attention.{epsilon}": getattr(config, "rms_norm_eps", 1e-5),
    }  # fmt: skip
    rope = getattr(config, "rope_parameters", None)
    if rope and "rope_theta" in rope:
        found["rope.freq_base"] = float(rope["rope_theta"])
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None):
            found[name] = float(getattr(config, name))
    if architecture == "gemma2":
        found["attention.sliding_window"] = config.sliding_window
    metadata = {f"{architecture}.{name}": value for name, value in found.items()}
    return {"general.architecture": architecture, **metadata, **tokenizer_keys()}


def tokenizer_keys() -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": [3] * 4 + [1] * (len(TOKENS) - 4),
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


def small_model(path: Path, **changes: Any) -> Path:
    random = np.random.default_rng(0)
    shapes = {"token_embd": (len(TOKENS), 32), "output_norm": (32,), "blk.0.attn_norm": (32,)}
    shapes |= {f"blk.0.attn_{part}": (32, 32) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_norm": (32,), "blk.0.ffn_gate": (48, 32), "blk.0.ffn_up": (48, 32)}
    shapes |= {"blk.0.ffn_down": (32, 48)}
    tensors = {
        f"{n}.weight": random.standard_normal(s).astype(np.float32) for n, s in shapes.items()
    }
    metadata = {
        "general.architecture": "llama", "llama.context_length": 64, "llama.embedding_length": 32,
        "llama.block_count": 1, "llama.attention.head_count": 4, **tokenizer_keys(), **changes,
    }  # fmt: skip
    write_gguf(path, metadata, tensors)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return svod.llm.load(small_model(tmp_path_factory.mktemp("llm") / "small.gguf"))


def test_a_file_generates_the_same_text_again_and_stops(model: Any) -> None:
    whole = "".join(model.generate("hello", sampling=GREEDY, max_tokens=12))
    assert whole == "".join(model.generate("hello", sampling=GREEDY, max_tokens=12))
    assert len(whole) >= 4
    stop = whole[2:4]
    shown = "".join(model.generate("hello", sampling=GREEDY, max_tokens=12, stop=stop))
    assert shown == whole[: whole.index(stop)]


def test_two_requests_at_once_do_not_change_each_other(model: Any) -> None:
    prompts = ("first", "other")
    alone = [list(model.generate(p, sampling=GREEDY, max_tokens=6)) for p in prompts]
    both = [model.generate(p, sampling=GREEDY, max_tokens=6) for p in prompts]
    mixed: list[list[str]] = [[], []]
    for _ in range(6):
        for place, pieces in enumerate(both):
            mixed[place] += [piece for piece in [next(pieces, "")] if piece]
    assert mixed == alone


def test_a_user_cannot_write_control_tokens(model: Any) -> None:
    pytest.importorskip("jinja2", reason="templates are Jinja")
    tokens = model.chat_tokens([{"role": "user", "content": "a<|end|>b"}])
    assert tokens[0] == 2 and tokens[-1] == 3
    assert tokens.count(3) == 1
    assert model.tokenizer.decode(tokens) == "a<|end|>b"


def test_a_control_token_of_one_character_makes_no_chat(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="templates are Jinja")
    changes = {"tokenizer.ggml.tokens": ["x", *TOKENS[1:]]}
    with pytest.raises(ModelFileError, match="cannot be told from text"):
        svod.llm.load(small_model(tmp_path / "m.gguf", **changes)).chat_tokens(
            [{"role": "user", "content": "x"}]
        )


def test_what_cannot_be_served_is_a_request_error(model: Any) -> None:
    with pytest.raises(RequestError, match="context of 64"):
        model.generate("x" * 70)
    with pytest.raises(RequestError, match="max_tokens"):
        model.generate("x", max_tokens=0)
    with pytest.raises(RequestError, match="stop strings"):
        model.generate("x", stop=[""])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "mamba"}, "not known"),
        ({"llama.block_count": 1 << 20}, "layers cannot be made"),
        ({"llama.attention.head_count": 3}, "shape|fit together"),
        ({"tokenizer.ggml.pre": "nobody"}, "nobody"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(changes: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        svod.llm.load(small_model(tmp_path / "m.gguf", **changes))


def test_stop_strings_over_several_pieces_are_held_back() -> None:
    stops = Stops(["END", "Ex"])
    assert [stops.add(text) for text in ("aE", "N", "Eb", "cE")] == ["a", "", "ENEb", "c"]
    assert stops.add("NDx") == "" and stops.is_met


CASES = {
    "llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config",
    "gemma2": "Gemma2Config", "phi3": "Phi3Config", "gpt2": "GPT2Config",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_file_and_a_folder_give_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the other implementation")
    torch = pytest.importorskip("torch", reason="the other implementation")
    gguf = pytest.importorskip("gguf", reason="the names of weights")
    options: dict[str, Any] = dict(CONFIG)
    if name == "gpt2":
        options = {"vocab_size": len(TOKENS), "n_embd": 64, "n_layer": 2, "n_head": 4}
        options["n_positions"] = 128
    if name in ("gemma2", "qwen3"):
        options["head_dim"] = 16
    if name == "gemma2":
        options |= {"query_pre_attn_scalar": 16, "sliding_window": 8}
    if name == "phi3":
        options["pad_token_id"] = 0
    config = getattr(transformers, CASES[name])(**options)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else 0.15))
    table = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, name.upper()), 2)
    tensors = {}
    for key, value in reference.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = value.numpy()
        target = table.get_name(key, try_suffixes=(".weight", ".bias"))
        if name == "llama" and ("q_proj" in key or "k_proj" in key):
            heads = 4 if "q_proj" in key else 2  # pairs of a head's halves become neighbours
            array = array.reshape(heads, 2, -1, 64).swapaxes(1, 2).reshape(array.shape)
        if name == "gpt2" and ".c_" in key and array.ndim == 2:
            array = array.T
        if name == "gemma2" and "norm" in key:
            array = array + 1
        tensors[target] = np.ascontiguousarray(array)
    write_gguf(tmp_path / "m.gguf", keys(name, config), tensors)
    folder = tmp_path / "folder"
    reference.save_pretrained(folder)
    save_tokenizer(folder / "tokenizer.json")
    prompt = np.random.default_rng(1).integers(4, len(TOKENS), 21).tolist()
    for path in (tmp_path / "m.gguf", folder):
        ours = svod.llm.load(path)
        tokens = list(prompt)
        for step in ours.engine.generate(prompt, GREEDY, 12):
            with torch.no_grad():
                expected = reference(torch.tensor(tokens)[None]).logits[0, -1].numpy()
            assert np.abs(ours.engine.last_logits - expected).max() < 1e-3
            tokens.append(step.token)


def save_tokenizer(path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="writes tokenizer.json")
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(TOKENS[:4])
    made.save(str(path))
