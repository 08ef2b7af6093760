"""The convnet example beside torch's: the same weights, data and optimizer on both sides.

``python -m tests.nn.convnet_curve`` (with torch) writes the losses torch finds to
``recorded/convnet.npz``, with the weights it started from; CI compares with that file.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.nn import optim

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded" / "convnet.npz"
STEPS, BATCH, RATE = 200, 32, 2e-2
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "train_convnet.py"))


def batches(dtype: Any) -> list[tuple[Any, Any]]:
    pictures, kinds = EXAMPLE["images"](STEPS * BATCH)
    cuts = [slice(i * BATCH, (i + 1) * BATCH) for i in range(STEPS)]
    return [(pictures[cut].astype(dtype), kinds[cut]) for cut in cuts]


def start() -> dict[str, Any]:
    """The weights a fresh network has."""
    svod.manual_seed(0)
    return {k: v.numpy() for k, v in EXAMPLE["Network"]().state_dict().items()}


def svod_losses(weights: dict[str, Any], dtype: Any = np.float32, jitted: bool = True) -> Any:
    model = EXAMPLE["Network"]()
    model.load_state_dict({k: Tensor(v) for k, v in weights.items()})
    if dtype is np.float64:
        model.double()
    optimizer = optim.AdamW(model.parameters(), lr=RATE)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    run = svod.jit(step, state=(model, optimizer)) if jitted else step
    return np.array([run(Tensor(x), Tensor(y)).item() for x, y in batches(dtype)])


def torch_losses(weights: dict[str, Any], dtype: Any = np.float32) -> Any:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    channels = len(weights["features.0.bias"])
    features = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    model = nn.ModuleDict({"features": features, "head": nn.Linear(channels * 9, 3)})
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
    if dtype is np.float64:
        model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for x, y in batches(dtype):
        optimizer.zero_grad()
        out = model["head"](model["features"](torch.from_numpy(x)).flatten(1))
        loss = nn.functional.cross_entropy(out, torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def recorded() -> tuple[dict[str, Any], Any]:
    with np.load(RECORDED) as file:
        weights = {k: file[k] for k in file.files if k != "losses"}
        return weights, file["losses"]


if __name__ == "__main__":
    first = start()
    np.savez_compressed(RECORDED, losses=torch_losses(first), **first)
