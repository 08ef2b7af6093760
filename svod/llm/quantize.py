"""`svod quantize`: a model with its matrices in a block format, and what that cost in error.

A GGUF file gives a GGUF file: keys are kept, matrices are rounded. A folder gives a folder, whose
safetensors hold the bytes of blocks and say so under `svod.formats`. What has fewer weights per row
than a block, and all that is no matrix, stays as it is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svod.llm.errors import ModelFileError, RequestError
from svod.llm.formats import BY_NAME
from svod.llm.gguf import read_gguf
from svod.llm.gguf_write import write_gguf
from svod.llm.mapping import FORMATS_KEY, safetensors
from svod.llm.quantisers import KINDS, QUANTISERS, quantized
from svod.nn.state import save_file
from svod.reference.docstrings import describe
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
_FILE_TYPES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 15, "Q5_K": 17,
    "Q6_K": 18,
}  # fmt: skip
# The output matrix decides between tokens: it keeps more bits than four.
_HEADS = {"Q4_0": "Q6_K", "Q4_1": "Q6_K", "Q4_K": "Q6_K", "Q5_K": "Q6_K"}
_KEPT = ("norm", "position_embd", "ffn_gate_inp", "mlp.gate.", "block_sparse_moe.gate")
_HEAD_NAMES = ("output.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class TensorCost:
    """One tensor: where it was and is, and the root of its mean squared error as a part of that of
    its weights."""

    name: str
    format: str
    nbytes_before: int
    nbytes: int
    error: float


@dataclass(frozen=True, slots=True)
class QuantisedModel:
    """What was written, and what it cost."""

    path: str
    tensors: tuple[TensorCost, ...]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors)

    @property
    def nbytes_before(self) -> int:
        return sum(t.nbytes_before for t in self.tensors)

    @property
    def error(self) -> float:
        """Of all weights, each tensor by its bytes before."""
        squares = sum(t.nbytes_before * t.error**2 for t in self.tensors)
        return float(np.sqrt(squares / max(1, self.nbytes_before)))


def quantize(
    source: str | os.PathLike[str], target: str | os.PathLike[str], kind: str = "Q4_K"
) -> QuantisedModel:
    """Write a model with its matrices in a format; the source holds floats."""
    if kind not in KINDS:
        raise RequestError(f"weights are not quantised to {kind!r:.40}: use {', '.join(KINDS)}")
    where, to = Path(source), Path(target)
    if to.exists() and (not where.exists() or to.samefile(where)):
        raise RequestError(f"{to} cannot be both what is read and what is written")
    if where.is_dir():
        return _folder(where, to, kind)
    if where.is_file():
        return _file(where, to, kind)
    raise ModelFileError(f"{where} is neither a GGUF file nor a folder of a model")


def _file(source: Path, target: Path, kind: str) -> QuantisedModel:
    file = read_gguf(source)
    tensors: dict[str, Any] = {}
    costs = []
    for name, entry in file.tensors.items():
        wanted = _format(name, entry.shape, kind)
        if entry.format.elements > 1:
            raise ModelFileError(
                f"{source}: {name} is {entry.format.name} already: quantise the model of floats"
            )
        if wanted is None:
            tensors[name] = (entry.format.name, entry.shape, entry.raw().numpy())
            cost = TensorCost(name, entry.format.name, entry.nbytes, entry.nbytes, 0.0)
        else:
            values: Array = entry.tensor().numpy()
            tensors[name], cost = _rounded(name, values, wanted, entry.nbytes)
        costs.append(cost)
    metadata = {k: v for k, v in file.metadata.items() if not k.startswith("split.")}
    metadata |= {"general.file_type": _FILE_TYPES[kind], "general.quantization_version": 2}
    write_gguf(target, metadata, tensors)
    return QuantisedModel(str(target), tuple(costs))


def _folder(source: Path, target: Path, kind: str) -> QuantisedModel:
    target.mkdir(parents=True, exist_ok=True)
    costs = []
    shards = sorted(source.glob("*.safetensors"))
    if not shards:
        raise ModelFileError(f"{source} has no safetensors")
    if _model_type(source) == "gpt2":
        raise RequestError("matrices of GPT-2 lie the other way round in folders: use a GGUF file")
    for shard in shards:
        found = safetensors(shard)
        tensors: dict[str, Tensor] = {}
        formats: dict[str, Any] = {}
        for name, value in found.items():
            if not isinstance(value, Tensor):
                raise ModelFileError(f"{shard}: {name} is quantised already")
            wanted = _format(name, tuple(value.shape), kind)
            is_expert = ".experts." in name  # put together when they load
            if is_expert or wanted not in QUANTISERS or value.dtype.kind != "f":
                tensors[name] = value
                costs.append(TensorCost(name, value.dtype.name, value.nbytes, value.nbytes, 0.0))
                continue
            (_, shape, raw), cost = _rounded(name, value.float().numpy(), wanted, value.nbytes)
            tensors[name] = Tensor(raw.reshape(shape[0], -1))
            formats[name] = wanted
            costs.append(cost)
        save_file(tensors, target / shard.name, {FORMATS_KEY: json.dumps(formats)})
    for path in source.iterdir():
        if path.suffix in (".json", ".jinja", ".model", ".txt") and path.is_file():
            shutil.copyfile(path, target / path.name)
    return QuantisedModel(str(target), tuple(costs))


def _model_type(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{folder / 'config.json'}: {error}") from None


def _format(name: str, shape: tuple[int, ...], kind: str) -> str | None:
    """The format of a tensor: what is asked for where its rows are whole blocks; None for what
    stays as it is: vectors, places, and routers, which are small and decide much."""
    if len(shape) < 2 or any(part in name for part in _KEPT):
        return None
    wanted = _HEADS.get(kind, kind) if name in _HEAD_NAMES else kind
    for candidate in (wanted, "Q8_0", "F16"):
        if shape[-1] % BY_NAME[candidate].elements == 0:
            return candidate
    return "F16"


def _rounded(
    name: str, values: Array, kind: str, before: int
) -> tuple[tuple[str, tuple[int, ...], Array], TensorCost]:
    found = quantized(values, kind)
    error = 0.0
    for rows, raw in _pieces(values, found[2]):
        back = BY_NAME[kind].decoded(Tensor(raw), rows.shape).numpy()
        error += float(np.square(back - rows, dtype=np.float64).sum())
    size = float(np.square(values, dtype=np.float64).sum())
    error = float(np.sqrt(error / size)) if size else 0.0
    return found, TensorCost(name, kind, before, found[2].nbytes, error)


def _pieces(values: Array, raw: Array) -> Iterator[tuple[Array, Array]]:
    """Equal numbers of rows with their bytes, so that few are decoded at a time."""
    flat = values.reshape(-1, values.shape[-1])
    each = raw.reshape(len(flat), -1)
    step = max(1, (1 << 22) // flat.shape[1])
    for start in range(0, len(flat), step):
        yield (
            flat[start : start + step],
            np.ascontiguousarray(each[start : start + step]).reshape(-1),
        )


__all__ = ["QuantisedModel", "TensorCost", "quantize"]

describe(globals(), "svod.llm.quantize")
