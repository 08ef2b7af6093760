"""GGUF files are read as they were written; hostile ones are an error of our own."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svod.llm.errors import ModelFileError
from svod.llm.gguf import read_gguf
from svod.llm.gguf_write import quantized, write_gguf

METADATA: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.tokens": ["<s>", "a", "é▁"],
    "tokenizer.ggml.scores": [0.0, -1.0, -2.5], "some.large": 1 << 40, "some.negative": -3,
}  # fmt: skip


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    tensors = {f"w.{kind}": quantized(weights(4, 64), kind) for kind in ("F32", "F16", "Q8_0")}
    write_gguf(path, METADATA, tensors | {"bias": weights(5)})
    return path


def test_metadata_and_tensors_come_back(model: Path) -> None:
    found = read_gguf(model)
    assert found.metadata == METADATA
    assert list(found.tensors) == ["w.F32", "w.F16", "w.Q8_0", "bias"]
    assert found.tensors["w.Q8_0"].shape == (4, 64)
    assert np.array_equal(found.tensors["w.F32"].tensor().numpy(), weights(4, 64))
    assert np.array_equal(found.tensors["bias"].tensor().numpy(), weights(5))


@pytest.mark.parametrize(
    ("kind", "bound"), [("F16", 2e-3), ("BF16", 2e-2), ("Q8_0", 2e-2), ("Q4_0", 0.3)]
)
def test_quantised_weights_are_near_what_was_written(
    kind: str, bound: float, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "q.gguf", {}, {"w": quantized(weights(8, 96), kind)})
    found = read_gguf(tmp_path / "q.gguf").tensors["w"].tensor().numpy()
    assert np.abs(found - weights(8, 96)).max() < bound


def test_a_split_model_is_read_from_its_first_file(tmp_path: Path) -> None:
    split = {"split.count": 2, "split.tensors.count": 2}
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    write_gguf(first, METADATA | split | {"split.no": 0}, {"a": weights(2, 2)})
    with pytest.raises(ModelFileError, match="is missing"):
        read_gguf(first)
    write_gguf(second, split | {"split.no": 1}, {"b": weights(3)})
    found = read_gguf(first)
    assert found.metadata["general.architecture"] == "llama"
    assert np.array_equal(found.tensors["b"].tensor().numpy(), weights(3))
    with pytest.raises(ModelFileError, match="open the first"):
        read_gguf(second)


@pytest.mark.parametrize(
    ("place", "patch", "message"),
    [
        (0, b"GGML", "does not start with GGUF"),
        (4, struct.pack("<I", 9), "version 9"),
        (8, struct.pack("<Q", 1 << 60), "do not fit"),
        (16, struct.pack("<Q", 1 << 60), "do not fit"),
        (24, struct.pack("<Q", 1 << 62), "beyond its end"),
    ],
)
def test_what_does_not_fit_is_named(place: int, patch: bytes, message: str, model: Path) -> None:
    raw = bytearray(model.read_bytes())
    raw[place : place + len(patch)] = patch
    model.write_bytes(raw)
    with pytest.raises(ModelFileError, match=message):
        read_gguf(model)


def test_a_tensor_beyond_the_end_is_refused(model: Path) -> None:
    raw = model.read_bytes()
    model.write_bytes(raw[:-64])
    with pytest.raises(ModelFileError, match="do not fit in a file"):
        read_gguf(model)


def test_mutated_files_are_an_error_or_readable(model: Path) -> None:
    raw, source = model.read_bytes(), random.Random(5)
    refused = 0
    for _ in range(300):
        changed = bytearray(raw)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(600)] = source.choice([0, 1, 0x7F, 0x80, 0xFF])
        changed = changed[: source.choice([len(raw), source.randrange(len(raw))])]
        model.write_bytes(changed)
        try:
            for entry in read_gguf(model).tensors.values():
                assert entry.start + entry.nbytes <= len(changed)
        except ModelFileError:
            refused += 1
    assert refused > 100


@pytest.mark.long
def test_files_of_the_gguf_package_load_and_ours_load_there(model: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the other implementation")
    other = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(str(other), "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é"])
    kinds = ("Q8_0", "Q4_0", "Q5_1")
    for kind in kinds:
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(kind, gguf.quantize(weights(4, 64), number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(other)
    assert found.metadata["tokenizer.ggml.tokens"] == ["a", "é"]
    for kind in kinds:
        number = gguf.GGMLQuantizationType[kind]
        expected = gguf.dequantize(gguf.quantize(weights(4, 64), number), number)
        assert np.array_equal(found.tensors[kind].tensor().numpy(), expected)
    ours = {t.name: t for t in gguf.GGUFReader(str(model)).tensors}
    for name, entry in read_gguf(model).tensors.items():
        read = ours[name]
        expected = gguf.dequantize(read.data, read.tensor_type)
        assert np.array_equal(entry.tensor().numpy(), expected.reshape(entry.shape))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_our_quantisers_are_those_of_the_gguf_package(kind: str) -> None:
    gguf = pytest.importorskip("gguf", reason="the reference of the quantisers")
    values = weights(16, 256)
    expected = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    assert np.mean(quantized(values, kind)[2] != expected.reshape(-1)) < 0.01
