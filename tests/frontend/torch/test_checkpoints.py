"""Checkpoints of torch without torch: the same tensors and containers, and nothing ever runs."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import svod
from svod.base.errors import SvodError
from svod.nn.state import StateFileError
from tests.frontend.torch.vision import torchvision

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
    "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2",
]  # fmt: skip


def _saved(value: Any, path: Path, **options: Any) -> Any:
    torch.save(value, path, **options)
    return svod.load(path)


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert found.shape == tuple(expected.shape)
        assert found.numpy().tobytes() == _bytes(expected)
    elif isinstance(expected, dict):
        assert type(found) is type(expected) and list(found) == list(expected)
        for key, value in expected.items():
            _same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            _same(a, b)
    else:
        assert found == expected and type(found) is type(expected)


def _bytes(x: Any) -> bytes:
    flat = x.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


@pytest.mark.parametrize("zipped", [True, False])
def test_all_dtypes_come_back(tmp_path: Path, zipped: bool) -> None:
    made = {d: torch.randint(0, 2, (3, 5)).to(getattr(torch, d)) for d in DTYPES}
    options = {"_use_new_zipfile_serialization": zipped}
    found = _saved(made, tmp_path / "all.pt", **options)
    _same(found, made)
    assert found["bfloat16"].dtype is svod.bfloat16 and found["uint16"].dtype is svod.uint16


@pytest.mark.parametrize("zipped", [True, False])
def test_strides_offsets_and_shared_storages(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    made = [
        base, base.mT, base.permute(2, 0, 1), base[1], base[:, 1:, ::2], base[0, 0, 0],
        base[:, :1].expand(2, 5, 4), torch.zeros(0, 3), torch.tensor(7), base.flatten()[3:19:5],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]  # fmt: skip
    _same(_saved(made, tmp_path / "s.pt", _use_new_zipfile_serialization=zipped), made)


def test_plain_containers_and_parameters(tmp_path: Path) -> None:
    made = {
        "numbers": [1, -1, 70000, 1 << 40, 1 << 100, -(1 << 90), 0.5, float("inf"), True, None],
        "texts": ("a", "ü" * 300, ""),
        "ordered": OrderedDict(a=1, b=[2]),
        "nested": {1: {2.5: ((), [])}, None: "none", (1, "a"): 3},
        "complex": 1 + 2j,
        "size": tuple(torch.Size([2, 3])),
    }
    for protocol in (2, 3, 4, 5):
        _same(_saved(made, tmp_path / "c.pt", pickle_protocol=protocol), made)
    found = _saved({"p": torch.nn.Parameter(torch.ones(2)), "d": torch.bfloat16,
                    "s": torch.Size([4, 5])}, tmp_path / "p.pt")  # fmt: skip
    assert found["p"].tolist() == [1, 1]
    assert found["d"] is svod.bfloat16 and found["s"] == (4, 5)


def test_state_dicts_keep_their_versions_and_optimizers_their_steps(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    made = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    found = _saved(made, tmp_path / "run.pt")
    _same(found, made)
    assert found["model"]._metadata == made["model"]._metadata


def test_tied_weights_read_the_same_bytes(tmp_path: Path) -> None:
    weight = torch.randn(4, 3)
    found = _saved({"a": weight, "b": weight.view(12).view(4, 3)}, tmp_path / "tied.pt")
    assert found["a"].uop is found["b"].uop


def test_open_files_are_read(tmp_path: Path) -> None:
    made = {"x": torch.arange(5), "h": torch.ones(3, dtype=torch.int8)}
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save(made, file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        _same(svod.load(file), made)


# -- hostile files ---------------------------------------------------------------------------------


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/svod-was-here",)


def _zip(pickled: bytes, storages: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a/data.pkl", pickled)
        for key, data in storages.items():
            archive.writestr(f"a/data/{key}", data)
    return out.getvalue()


def _refused(data: bytes, path: Path, match: str) -> None:
    path.write_bytes(data)
    with pytest.raises(StateFileError, match=match):
        svod.load(path)


def test_code_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"x": _Evil()}, path)
    with pytest.raises(StateFileError, match=r"(posix|os|nt)\.system is not read"):
        svod.load(path)
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(StateFileError, match=r"torch\.nn\.modules\.linear\.Linear is not read"):
        svod.load(path)
    torch.save({"s": torch.eye(3).to_sparse()}, path)
    with pytest.raises(StateFileError, match="sparse"):
        svod.load(path)
    torch.save({"s": {1, 2}}, path, pickle_protocol=4)
    with pytest.raises(StateFileError, match="opcode EMPTY_SET is not read"):
        svod.load(path)
    _refused(_zip(b"i__main__\nA\n.", {}), path, "opcode INST is not read")


def test_bombs_and_recursion_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    _refused(_zip(b"\x80\x02]q\x00h\x00a.", {}), path, "contains itself")
    _refused(_zip(b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".", {}), path, "depth")
    doubling = b"]q\x00" + b"0](h\x00h\x00eq\x00" * 60 + b"."
    _refused(_zip(doubling, {}), path, r"containers of depth \d+ with \d+ values")
    doubled_key = b"}K\x01q\x00" + b"0h\x00h\x00\x86q\x00" * 80 + b"K\x01s."
    _refused(_zip(doubled_key, {}), path, "key of a dict")
    _refused(_zip(b"\x8b" + struct.pack("<i", 2**31 - 1) + b".", {}), path, "whole number has")
    _refused(_zip(b"X\xff\xff\xff\xff.", {}), path, "are left")
    _refused(_zip(pickle.dumps({"a": 1}), {}, zipfile.ZIP_DEFLATED), path, "compressed")


def _tensor_file(offset: int, size: Any, stride: Any, count: int = 4) -> bytes:
    """A file with one tensor over a storage of 4 floats."""

    def numbers(values: Any) -> bytes:
        return b"(" + b"".join(b"L%dL\n" % v for v in values) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
    storage += b"X\x03\x00\x00\x00cpuL%dL\ntQ" % count
    pickled = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"L%dL\n" % offset
    return _zip(pickled + numbers(size) + numbers(stride) + b"\x89NtR.", {"0": bytes(16)})


def test_tensors_stay_inside_their_storages(tmp_path: Path) -> None:
    path = tmp_path / "t.pt"
    path.write_bytes(_tensor_file(0, (2, 2), (2, 1)))
    assert svod.load(path).tolist() == [[0, 0], [0, 0]]
    for offset, size, stride, count in [
        (1, (2, 2), (2, 1), 4), (0, (5,), (1,), 4), (-1, (1,), (1,), 4), (0, (2,), (-1,), 4),
        (0, (1 << 61,), (1,), 4), (0, (1 << 70,), (0,), 4), (0, (2, 2), (1,), 4),
        (0, (2,), (1,), 5), (0, (1 << 40, 1 << 40), (0, 0), 4),
    ]:  # fmt: skip
        _refused(_tensor_file(offset, size, stride, count), path, r"tensor|storage")


def _used(value: Any) -> None:
    """Read what was loaded, as far as it is small."""
    if isinstance(value, svod.Tensor):
        if value.numel() < 10_000:
            value.numpy()
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            _used(part)


@pytest.mark.parametrize("zipped", [True, False])
def test_250_mutated_files_load_or_end_in_an_error(tmp_path: Path, zipped: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    made = {"model": model.state_dict(), "b": torch.ones(3, 2).T, "n": [1, 2.5, None, "x"]}
    path = tmp_path / "m.pt"
    torch.save(made, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    draw = random.Random(17)
    refused = 0
    for _ in range(250):
        path.write_bytes(_mutated(whole, draw))
        try:
            _used(svod.load(path))
        except SvodError:
            refused += 1
    assert refused > 80


def _mutated(data: bytes, draw: random.Random) -> bytes:
    found = bytearray(data)
    kind = draw.randrange(4)
    if kind == 0:
        return bytes(found[: draw.randrange(8, len(found))])
    place = draw.randrange(len(found) - 8)
    if kind == 1:
        for _ in range(draw.randrange(1, 12)):
            found[draw.randrange(4, len(found))] = draw.randrange(256)
    elif kind == 2:
        found[place : place + 8] = draw.choice([b"\xff" * 8, bytes(8), b"\xff" * 4 + bytes(4)])
    else:
        del found[place : place + draw.randrange(1, 64)]
    return bytes(found)


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_state_dicts_of_models(tmp_path: Path, name: str) -> None:
    model = {"gpt2": _gpt2, "resnet": _resnet}[name]()
    for kind in (torch.float32, torch.bfloat16):
        state = model.to(kind).state_dict()
        _same(_saved(state, tmp_path / "pytorch_model.bin"), state)


def _resnet() -> Any:
    pytest.importorskip("torchvision")
    return torchvision().models.resnet18()


def _gpt2() -> Any:
    pytest.importorskip("transformers")
    if find_spec("torchvision") is not None:  # transformers imports it where it is there
        torchvision()
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2))
