"""`svod quantize`: files of floats become files of block formats, which load and answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod.llm import ModelFileError, RequestError, Sampling
from svod.llm.formats import BY_NAME
from svod.llm.gguf import read_gguf
from svod.llm.gguf_write import write_gguf
from svod.llm.quantisers import QUANTISERS, quantized
from svod.llm.quantize import quantize
from svod.nn.state import save_file
from svod.tools.cli import main
from tests.llm.test_load import TOKENS, tokenizer_keys

RNG = np.random.default_rng(5)
# The error that rounding leaves of normal weights, as a part of them; measured, and rounded up.
ERRORS = {"Q8_0": 0.007, "Q4_0": 0.11, "Q4_1": 0.09, "Q4_K": 0.075, "Q5_K": 0.038, "Q6_K": 0.021}
WIDTH, VOCABULARY = 256, len(TOKENS)


def weights() -> dict[str, np.ndarray[Any, Any]]:
    shapes = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{part}": (WIDTH, WIDTH) for part in ("gate", "up")}
    shapes["blk.0.ffn_down"] = (WIDTH, WIDTH)
    found = {
        f"{name}.weight": RNG.standard_normal(shape).astype(np.float32) * 0.06
        for name, shape in shapes.items()
    }
    norms = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    return found | {f"{name}.weight": np.ones(WIDTH, np.float32) for name in norms}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantize") / "floats.gguf"
    metadata = {
        "general.architecture": "llama", "llama.context_length": 64,
        "llama.embedding_length": WIDTH, "llama.block_count": 1, "llama.attention.head_count": 4,
        **tokenizer_keys(),
    }  # fmt: skip
    write_gguf(path, metadata, weights())
    return path


@pytest.mark.parametrize("name", QUANTISERS)
def test_rounding_costs_what_the_format_allows(name: str) -> None:
    values = RNG.standard_normal((16, 1024)).astype(np.float32)
    values[0] = 0  # a row of zeros stays one
    kind, shape, raw = quantized(values, name)
    back = BY_NAME[kind].decoded(svod.Tensor(raw), shape).numpy()
    assert np.sqrt(np.square(back - values).mean() / np.square(values).mean()) < ERRORS[name]
    assert not back[0].any()


@pytest.mark.long
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1"])
def test_formats_of_one_rounding_are_the_bytes_of_the_gguf_package(name: str) -> None:
    gguf = pytest.importorskip("gguf", reason="the reference of the formats")
    values = RNG.standard_normal((16, 1024)).astype(np.float32)
    expected = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(quantized(values, name)[2], expected.reshape(-1))


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0"])
def test_a_quantised_file_answers_almost_as_its_source(
    kind: str, source: Path, tmp_path: Path
) -> None:
    made = quantize(source, tmp_path / "small.gguf", kind)
    assert 0 < made.error < ERRORS[kind] and made.nbytes < made.nbytes_before / 3
    by_name = {tensor.name: tensor for tensor in made.tensors}
    assert by_name["output_norm.weight"].error == 0
    assert by_name["output.weight"].format == ("Q6_K" if kind == "Q4_K" else kind)
    logits = []
    for path in (source, tmp_path / "small.gguf"):
        model = svod.llm.load(path)
        list(model.generate("hello", sampling=Sampling(temperature=0.0), max_tokens=1))
        logits.append(model.engine.last_logits)
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    assert 0 < error < (0.25 if kind == "Q4_K" else 0.05)


@pytest.mark.long
def test_files_load_in_the_gguf_package(source: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="another reader of the files")
    quantize(source, tmp_path / "small.gguf", "Q4_K")
    ours = read_gguf(tmp_path / "small.gguf").tensors
    reader = gguf.GGUFReader(tmp_path / "small.gguf")
    assert len(reader.tensors) == len(ours)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(values, ours[tensor.name].tensor().numpy())


def test_a_folder_becomes_a_folder_with_blocks(tmp_path: Path) -> None:
    source, target = tmp_path / "floats", tmp_path / "blocks"
    source.mkdir()
    w = weights()
    parts = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj"}
    names = {f"blk.0.attn_{k}.weight": f"model.layers.0.{v}.weight" for k, v in parts.items()}
    names |= {
        "blk.0.attn_output.weight": "model.layers.0.self_attn.o_proj.weight",
        "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
        "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
        "output_norm.weight": "model.norm.weight",
    }  # fmt: skip
    for part in ("gate", "up", "down"):
        names[f"blk.0.ffn_{part}.weight"] = f"model.layers.0.mlp.{part}_proj.weight"
    save_file({names[k]: svod.Tensor(v) for k, v in w.items()}, source / "model.safetensors")
    config = {
        "model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 4, "max_position_embeddings": 64, "hidden_act": "silu",
        "tie_word_embeddings": False,
    }  # fmt: skip
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"}, "added_tokens": [],
    }  # fmt: skip
    (source / "config.json").write_text(json.dumps(config))
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    made = quantize(source, target, "Q8_0")
    assert 0 < made.error < ERRORS["Q8_0"]
    tokens = []
    for folder in (source, target):
        model = svod.llm.load(folder)
        list(model.generate("hello", sampling=Sampling(temperature=0.0), max_tokens=1))
        tokens.append(model.engine.last_logits)
    assert 0 < np.abs(tokens[0] - tokens[1]).max() < 0.05 * np.abs(tokens[0]).max()


def test_what_cannot_be_quantised_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not quantised to 'Q9'"):
        quantize(source, tmp_path / "x.gguf", "Q9")
    with pytest.raises(RequestError, match="both what is read"):
        quantize(source, source, "Q8_0")
    quantize(source, tmp_path / "q8.gguf", "Q8_0")
    with pytest.raises(ModelFileError, match="Q8_0 already"):
        quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0")
    with pytest.raises(ModelFileError, match="neither a GGUF file"):
        quantize(tmp_path / "none", tmp_path / "q4.gguf", "Q4_0")


def test_the_verb_prints_what_it_cost(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", str(source), str(tmp_path / "q.gguf"), "--format", "Q4_0"]) == 0
    text = capsys.readouterr().out
    assert "blk.0.ffn_up.weight" in text and "of the weights" in text
