"""Safetensors files: round trips, the format itself, and files made to do harm."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import SvodError
from svod.nn.state import StateFileError, load_file, metadata, save_file
from svod.testing import assert_close


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def test_every_dtype_makes_the_round_trip(tmp_path: Path) -> None:
    kinds = (
        "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 "
        "float8_e4m3 float8_e5m2"
    )
    tensors = {k: svod.arange(5).reshape(5, 1).cast(k) for k in kinds.split()}
    tensors["empty"] = svod.zeros(0, 3)
    tensors["scalar"] = Tensor(2.5)
    tensors["näme.with.dots"] = Tensor([1.0])
    path = tmp_path / "all.safetensors"
    save_file(tensors, path, {"made by": "a test"})
    found = load_file(path)
    assert set(found) == set(tensors)
    for name, t in tensors.items():
        assert found[name].dtype is t.dtype and found[name].shape == t.shape, name
        np.testing.assert_array_equal(found[name].numpy(), t.numpy(), err_msg=name)
    assert metadata(path) == {"made by": "a test"}


def test_the_file_has_the_published_format(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"b": Tensor([1.0, 2.0]), "a": Tensor(np.array([7], np.uint8))}, path)
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    assert size % 8 == 0
    assert json.loads(raw[8 : 8 + size]) == {
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]},
    }
    assert raw[8 + size :] == np.float32([1, 2]).tobytes() + b"\x07"


def test_tensors_at_odd_bytes_are_read(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    path = write(tmp_path / "odd", header, b"\x05" + np.float32([1, 2]).tobytes())
    found = load_file(path)
    assert_close(found["b"] * 2, np.float32([2, 4]))
    assert found["a"].item() == 5


def test_a_module_is_saved_and_loaded(tmp_path: Path) -> None:
    a = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    b = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    path = tmp_path / "model.safetensors"
    save_file(a.state_dict(), path)
    b.load_state_dict(load_file(path))
    x = svod.ones(2, 3)
    assert_close(b.eval()(x), a.eval()(x))


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": Tensor([1.0])}, path)
    with pytest.raises(SvodError):
        save_file({"__metadata__": Tensor([1.0])}, path)
    assert_close(load_file(path)["a"], np.float32([1]))
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def entry(**change: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}}


HOSTILE: dict[str, tuple[Any, bytes]] = {
    "an unknown dtype": (entry(dtype="F31"), bytes(8)),
    "a dtype that is no text": (entry(dtype=["F32"]), bytes(8)),
    "a negative size": (entry(shape=[-2]), bytes(8)),
    "a size that is no number": (entry(shape=[2.0]), bytes(8)),
    "a bool as size": (entry(shape=[True, 2]), bytes(8)),
    "a huge size": (entry(shape=[2**61, 2**61]), bytes(8)),
    "a product of zero and huge": (entry(shape=[0, 2**70], data_offsets=[0, 0]), b""),
    "a shape that is no list": (entry(shape=2), bytes(8)),
    "too many axes": (entry(shape=[1] * 1000 + [2]), bytes(8)),
    "bytes past the end": (entry(shape=[4], data_offsets=[0, 16]), bytes(8)),
    "bytes in the wrong order": (entry(data_offsets=[8, 0]), bytes(8)),
    "negative bytes": (entry(data_offsets=[-8, 0]), bytes(8)),
    "three offsets": (entry(data_offsets=[0, 8, 8]), bytes(8)),
    "bytes that do not fit the shape": (entry(data_offsets=[0, 4]), bytes(4)),
    "bytes nobody owns": (entry(), bytes(9)),
    "a gap": (entry(data_offsets=[4, 12]), bytes(12)),
    "bytes of two tensors": (
        {**entry(), "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        bytes(12),
    ),
    "a missing field": ({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "a field too many": (entry(more=1), bytes(8)),
    "an entry that is no object": ({"a": 3}, b""),
    "metadata that is no text": ({"__metadata__": {"a": 1}}, b""),
    "metadata that is a list": ({"__metadata__": []}, b""),
    "a header that is a list": ([1], b""),
    "a header that is no JSON": (b"{nonsense", b""),
    "a header that is no UTF-8": (b"\xff\xfe{}", b""),
    "a name twice": (
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
        b"",
    ),
    "deep nesting": (b"[" * 100_000, b""),
    "a number of a million digits": (b'{"a":' + b"9" * 1_000_000 + b"}", b""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_an_error(tmp_path: Path, name: str) -> None:
    header, data = HOSTILE[name]
    path = write(tmp_path / "bad", header, data)
    with pytest.raises(StateFileError, match="bad"):
        load_file(path)


def test_wrong_lengths_end_in_an_error(tmp_path: Path) -> None:
    for length in (9, 1 << 20, 1 << 40, (1 << 64) - 1):
        with pytest.raises(StateFileError, match="header of"):
            load_file(write(tmp_path / "bad", b"{}", length=length))
    for raw in (b"", b"1234567"):
        (tmp_path / "short").write_bytes(raw)
        with pytest.raises(StateFileError, match="too few"):
            load_file(tmp_path / "short")
    with pytest.raises(SvodError, match="cannot open"):
        load_file(tmp_path / "none")


def test_damaged_files_never_end_in_anything_but_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": Tensor([1.0, 2.0]), "b": Tensor(np.arange(6).reshape(2, 3))}, path)
    good = path.read_bytes()
    source = random.Random(0)
    for _ in range(300):
        raw = bytearray(good)
        for _ in range(source.randint(1, 4)):
            raw[source.randrange(len(raw) - 40)] = source.randrange(256)
        if source.random() < 0.3:
            del raw[source.randrange(len(raw)) :]
        path.write_bytes(bytes(raw))
        try:
            for t in load_file(path).values():
                assert t.numel() <= len(raw)
        except SvodError:
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse to cut a mapped file")
def test_a_file_that_was_cut_after_opening_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    ones = np.ones(1 << 18, np.float32)
    save_file({"a": svod.Tensor(ones), "b": svod.Tensor(ones)}, path)
    tensors = load_file(path)
    read_before = tensors["a"].realize()
    os.truncate(path, 4096)
    for read in (lambda: (tensors["b"] * 2).numpy(), lambda: tensors["b"].numpy()):
        with pytest.raises(SvodError, match="and has 4096 now; replace files by"):
            read()
    assert read_before.sum().item() == 1 << 18, "what was read stays"
