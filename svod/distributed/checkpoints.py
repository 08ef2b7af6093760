"""Checkpoints of split models: every rank writes its parts, any number of ranks reads them.

A checkpoint is a folder `step-N` with a safetensors file for each process and `index.json`. A part
is called NAME|START,START,..: where it begins along each axis. What several ranks have alike is
written by the first of them. A folder gets its name when all of it is written, so that a run that
ends in between leaves the checkpoint before as the last one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from svod.base.errors import ConfigError, SvodError
from svod.dtype.convert import to_numpy
from svod.ir import build as B
from svod.ir.placement import Mesh, Placed, is_mesh, mesh_of
from svod.nn.module import Module
from svod.nn.optimizer import Optimizer, State, put_beside
from svod.nn.state import load_file, save_file
from svod.schedule.collectives import local_shape
from svod.tensor.core.tensor_registry import buffer_of, own_memory
from svod.tensor.recording.realize import realize
from svod.tensor.recording.recorder import placed_of
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Region = tuple[tuple[int, int], ...]


class CheckpointError(SvodError, ValueError):
    """A checkpoint that is not there, or does not fit."""


def save_checkpoint(
    folder: str | os.PathLike[str],
    step: int,
    module: Module,
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
    keep: int = 2,
) -> Path:
    """Write a module, an optimizer and what JSON can hold; all ranks call it together.

    The last ``keep`` checkpoints of the folder stay.
    """
    tensors, facts = _contents(module, optimizer)
    grid = _mesh_of(tensors.values())
    target = Path(folder) / f"step-{step:08d}"
    partial = target.with_name(f".{target.name}.partial")
    rank = 0 if grid is None or grid.is_whole else grid.hosted[0]
    count = 1 if grid is None or grid.is_whole else grid.ranks
    partial.mkdir(parents=True, exist_ok=True)
    parts = {f"{name}|{_text(r)}": a for name, t in tensors.items() for r, a in _written(t)}
    save_file(parts, partial / f"part-{rank:05d}.safetensors")
    _together(grid, f"checkpoint of step {step} written")
    if rank == 0:
        shapes = {name: list(t.shape) for name, t in tensors.items()}
        index = {"step": step, "files": count, "shapes": shapes, "facts": facts,
                 "extra": dict(extra or {})}  # fmt: skip
        (partial / "index.json").write_text(json.dumps(index))
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
        for old in checkpoints(folder)[:-keep]:
            shutil.rmtree(old)
    _together(grid, f"checkpoint of step {step} named")
    return target


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """The finished checkpoints in a folder, the last one last."""
    return sorted(p for p in Path(folder).glob("step-*") if (p / "index.json").is_file())


def load_checkpoint(
    folder: str | os.PathLike[str], module: Module, optimizer: Optimizer | None = None
) -> dict[str, Any] | None:
    """Read the last checkpoint into a module and an optimizer that are placed already.

    Returns its step and what was saved beside; None where there is no checkpoint. Tensors keep
    their memory and their placement, which need not be that of the run that wrote them.
    """
    found = checkpoints(folder)
    if not found:
        return None
    index = json.loads((found[-1] / "index.json").read_text())
    files = sorted(found[-1].glob("part-*.safetensors"))
    if len(files) != index["files"]:
        raise CheckpointError(f"{found[-1]} has {len(files)} of {index['files']} parts")
    parts: dict[str, list[tuple[Region, Tensor]]] = {}
    for file in files:
        for key, t in load_file(file).items():
            name, _, starts = key.rpartition("|")
            region = _region(starts, t.shape)
            parts.setdefault(name, []).append((region, t))
    if optimizer is not None:
        _make_state(optimizer, index["facts"], index["shapes"])
    tensors, _ = _contents(module, optimizer)
    for name, t in tensors.items():
        if name not in parts or list(t.shape) != index["shapes"][name]:
            have = index["shapes"].get(name, "nothing")
            raise CheckpointError(f"{found[-1]} has {have} for {name} of shape {list(t.shape)}")
    for name, t in tensors.items():
        _fill(t, parts[name])
    return {**index["extra"], "step": index["step"]}


# -- what is kept ----------------------------------------------------------------------------------


def _contents(
    module: Module, optimizer: Optimizer | None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    found = {f"module.{k}": t for k, t in module.state_dict(keep_vars=True).items()}
    if optimizer is None:
        return found, {}
    for i, state in optimizer.state.items():
        found |= {f"optimizer.{i}.{k}": t for k, t in state.items()}
    groups = []
    for i, (group, scalars) in enumerate(optimizer.groups_with_numbers()):
        found |= {f"numbers.{i}.{k}": t for k, t in scalars.items()}
        groups.append({k: group[k] for k in ("lr", "initial_lr")})
    return found, {"groups": groups}


def _make_state(
    optimizer: Optimizer, facts: Mapping[str, Any], shapes: Mapping[str, list[int]]
) -> None:
    """State of the shapes that were saved, placed as this run has it."""
    params = [p for g in optimizer.param_groups for p in g["params"]]
    numbers = [scalars for _, scalars in optimizer.groups_with_numbers()]
    if len(facts.get("groups", ())) != len(numbers):
        raise CheckpointError(f"the checkpoint has {len(facts.get('groups', ()))} groups")
    for (group, _), saved in zip(optimizer.groups_with_numbers(), facts["groups"], strict=True):
        group.update(saved)
    for name, shape in shapes.items():
        kind, _, rest = name.partition(".")
        place, _, key = rest.partition(".")
        if kind == "optimizer":
            p = params[int(place)]
            state = optimizer.state.setdefault(int(place), State((), p, optimizer.place_state))
            if key not in state:
                state[key] = put_beside(p, np.zeros(shape, to_numpy(p.dtype)), state.place)
        elif kind == "numbers" and key not in numbers[int(place)]:
            device = optimizer.param_groups[int(place)]["params"][0].device
            numbers[int(place)][key] = Tensor(np.zeros(shape, np.float64), device=device)


# -- parts -----------------------------------------------------------------------------------------


def _mesh_of(tensors: Any) -> Mesh | None:
    names = {t.device for t in tensors if is_mesh(t.device)}
    if len(names) > 1:
        raise ConfigError(f"a checkpoint is of one mesh, not of {sorted(names)}")
    return mesh_of(names.pop()) if names else None


def _held(t: Tensor) -> Iterator[tuple[Region, Array, bool]]:
    """Where each part of a tensor in this process is, its memory without padding, and whether this
    rank is the first that has it."""
    realize([t])
    buffer = buffer_of(B.floats_of(t.uop))
    shape = B.floats_of(t.uop).shape
    if buffer is None:
        buffer = _own(t)
    placed = placed_of(t)
    if placed is None:
        first = not is_mesh(t.device) or mesh_of(t.device).hosted[0] == 0
        yield tuple([(0, n) for n in shape]), buffer.numpy().reshape(shape), first
        return
    grid = mesh_of(t.device)
    rows = buffer.numpy().reshape(len(grid.hosted), *local_shape(grid, placed.shape, placed.dims))
    for row, rank in zip(rows, grid.hosted, strict=True):
        region = _region_of(grid, placed, rank)
        used = tuple([slice(0, max(0, stop - start)) for start, stop in region])
        others = [a for a, _ in grid.axes if a not in placed.dims]
        yield region, row[used], not any(grid.coordinate(rank, a) for a in others)


def _own(t: Tensor) -> Any:
    """Memory for a tensor that is a view."""
    t.uop = B.contiguous(t.uop)
    realize([t])
    return buffer_of(B.floats_of(t.uop))


def _region_of(grid: Mesh, placed: Placed, rank: int) -> Region:
    found = []
    sizes = local_shape(grid, placed.shape, placed.dims)
    for n, size, axis in zip(placed.shape, sizes, placed.dims, strict=True):
        start = 0 if axis is None else min(n, grid.coordinate(rank, axis) * size)
        found.append((start, min(n, start + size)))
    return tuple(found)


def _written(t: Tensor) -> Iterator[tuple[Region, Array]]:
    for region, array, is_first in _held(t):
        if is_first and array.size:
            yield region, array


def _fill(t: Tensor, parts: list[tuple[Region, Tensor]]) -> None:
    """Copy what of the parts belongs to this process into the memory of a tensor."""
    own_memory(B.floats_of(t.uop))
    for region, array, _ in _held(t):
        missing = array.size
        for where, part in parts:
            both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, where, strict=True)]
            if any(start >= stop for start, stop in both):
                continue
            source = part.numpy()
            given = tuple([slice(s - w, e - w) for (s, e), (w, _) in zip(both, where, strict=True)])
            taken = tuple(
                [slice(s - r, e - r) for (s, e), (r, _) in zip(both, region, strict=True)]
            )
            array[taken] = source[given]
            missing -= array[taken].size
        if missing:
            raise CheckpointError(f"{missing} numbers of a tensor of shape {t.shape} are missing")


def _text(region: Region) -> str:
    return ",".join([str(start) for start, _ in region])


def _region(starts: str, shape: tuple[int, ...]) -> Region:
    first = [int(n) for n in starts.split(",")] if starts else []
    return tuple([(start, start + n) for start, n in zip(first, shape, strict=True)])


def _together(grid: Mesh | None, line: str) -> None:
    """Go on when every rank has come here."""
    if grid is not None and not grid.is_whole:
        from svod.distributed.carrier import the_carrier

        the_carrier().meet(line)
