"""Programs as users write them, run once with torch and in several ways with Svod.

A journey is a function ``journey(env)`` in a file of ``programs/``. It is written against names
that torch and Svod share (``env.torch`` is one or the other) and gives numbers by name: losses on
the way, predictions at the end. Data and first weights come from NumPy, so both begin alike. A
model is made on the CPU and moved to ``env.device``; a step that a user would compile is wrapped in
``env.compile``, which is ``svod.jit`` in the way called "jit" and nothing otherwise.

The results of torch are in ``recorded.json``; ``python -m tests.journeys.record`` writes it, and a
test compares it with torch where torch is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded.json"
NAMES = sorted(p.stem for p in (FOLDER / "programs").glob("*.py"))


@dataclass
class Env:
    """The library a journey runs on, and where."""

    torch: Any
    device: str = "cpu"
    is_jit: bool = False
    small: bool = False  # fewer steps: for the interpreter
    folder: Path = Path()  # for files
    compiled: int = 0  # how many functions it compiles
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def is_svod(self) -> bool:
        return self.torch.__name__ == "svod"

    @property
    def nn(self) -> Any:
        return self.torch.nn

    @property
    def F(self) -> Any:
        return importlib.import_module(f"{self.torch.__name__}.nn.functional")

    @property
    def optim(self) -> Any:
        return self.torch.optim

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under jit, in the way that compiles."""
        self.compiled += 1
        return self.torch.jit(function) if self.is_jit else function

    def steps(self, count: int) -> int:
        """How often a loop runs."""
        return min(count, 2) if self.small else count

    def array(self, *shape: int, scale: float = 1.0) -> Any:
        """Random float32 numbers, the same for every library."""
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    def tensor(self, *shape: int, scale: float = 1.0) -> Any:
        """The same as a tensor on the device."""
        return self.torch.from_numpy(self.array(*shape, scale=scale)).to(self.device)

    def integers(self, low: int, high: int, shape: Any) -> Any:
        """Random int64 numbers as a tensor on the device."""
        made = self.random.integers(low, high, shape)
        return self.torch.from_numpy(np.asarray(made, np.int64)).to(self.device)

    def settle(self, model: Any, scale: float = 0.2) -> Any:
        """Give every parameter first values from NumPy, on the CPU, then move the model."""
        with self.torch.no_grad():
            for parameter in model.parameters():
                shape = tuple(parameter.shape)
                spread = 1.0 + 0.1 * self.random.standard_normal(shape) if len(shape) == 1 else None
                made = self.random.standard_normal(shape) * scale if spread is None else spread
                parameter.copy_(self.torch.from_numpy(np.asarray(made, np.float32)))
        return model.to(self.device)


def needs(name: str) -> tuple[str, ...]:
    """Libraries that a journey uses beside NumPy: it runs with the long suites, where they are."""
    program = importlib.import_module(f"tests.journeys.programs.{name}")
    found: tuple[str, ...] = getattr(program, "NEEDS", ())
    return found


def runnable() -> list[str]:
    """The journeys whose libraries are there."""
    return [n for n in NAMES if all(importlib.util.find_spec(each) for each in needs(n))]


def run(name: str, env: Env) -> dict[str, Any]:
    """The numbers of a journey as lists of floats."""
    random.seed(0)
    np.random.seed(0)
    env.torch.manual_seed(0)
    program = importlib.import_module(f"tests.journeys.programs.{name}")
    found = program.journey(env)
    return {key: plain(value) for key, value in found.items()}


def plain(value: Any) -> Any:
    """Numbers, arrays and tensors as nested lists of floats."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().tolist()
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if isinstance(value, str) else float(value)


def compare(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 2e-4) -> None:
    """Every number near torch's; a run that took fewer steps is compared as far as it went."""
    assert found.keys() == expected.keys()
    for key, value in found.items():
        if isinstance(value, str):
            assert value == expected[key], key
            continue
        a, b = np.asarray(value, np.float64), np.asarray(expected[key], np.float64)
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max())) if np.isfinite(b).any() else 1.0
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{key} differs from torch"
        )


def expected(name: str) -> dict[str, Any]:
    """What torch gave: for all steps, and for a small run."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())[name]
    return found


def record(names: list[str], folder: Path) -> None:
    """Run journeys with torch and keep their results."""
    import torch

    torch.set_num_threads(1)
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in names:
        known[name] = {
            "full": run(name, Env(torch, folder=folder)),
            "small": run(name, Env(torch, small=True, folder=folder)),
        }
        print(name, file=sys.stderr)
    kept = {name: known[name] for name in sorted(known) if name in NAMES}
    RECORDED.write_text(json.dumps(kept, indent=None, separators=(",", ":")) + "\n")
