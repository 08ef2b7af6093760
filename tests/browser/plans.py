"""The plans that the page is opened with, and where Chromium is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import svod
from svod import Tensor, nn


def chromium() -> str:
    """The browser, or an empty text."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def chromedriver() -> str:
    """What drives the browser, or an empty text."""
    return shutil.which("chromedriver") or ""


class Block(nn.Module):
    """Two convolutions beside a shorter way."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        self.short = nn.Conv2d(inside, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        return (self.second(self.norm(self.first(x)).relu()) + self.short(x)).relu()


class ConvNet(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(3, 8), Block(8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class Layer(nn.Module):
    """One layer of a decoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.queries, self.keys, self.values = [nn.Linear(width, width) for _ in range(3)]
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        scores = self.queries(y) @ self.keys(y).transpose(-1, -2)
        hides = Tensor(np.triu(np.full((x.shape[1], x.shape[1]), -1e9, np.float32), 1))
        x = x + (scores + hides).softmax(-1) @ self.values(y)
        return x + self.down(self.up(x).gelu())


class GPT(nn.Module):
    """A decoder of two layers."""

    def __init__(self, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(2)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def convnet(folder: Path) -> Any:
    """A training step, recorded."""
    net = ConvNet()
    optimizer = nn.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    @svod.jit(state=(net, optimizer))
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x, y = svod.ones(2, 3, 8, 8).realize(), Tensor([0, 1])
    step(x, y).item()
    return step.plan(x, y)


def gpt(folder: Path) -> Any:
    """The logits of a few tokens."""
    return svod.prepare(GPT()(Tensor(np.arange(6).reshape(1, 6))))


def onnx(folder: Path) -> Any:
    """A model that was exported to a file and loaded."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    svod.onnx.export(net, (svod.ones(1, 1, 8, 8),), folder / "model.onnx")
    return svod.onnx.load(folder / "model.onnx").plan


def saved(folder: Path) -> Any:
    """A plan that was written to a file and read again."""
    x = svod.ones(8, 8)
    svod.prepare((x @ x).softmax(-1).sum(0)).save(folder / "plan.svod")
    return svod.load_plan(folder / "plan.svod")


def long(folder: Path) -> Any:
    """10,000 calls of two kernels: a recurrence of 5,000 steps."""

    def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        found = (state @ x).tanh()
        return found, found.sum()

    xs = svod.ones(5000, 2, 2).realize()
    final, sums = svod.scan(step, svod.ones(2, 2), xs)
    return svod.prepare(final, sums)


PLANS: dict[str, Callable[[Path], Any]] = {
    "convnet": convnet, "gpt": gpt, "onnx": onnx, "saved": saved, "long": long,
}  # fmt: skip
