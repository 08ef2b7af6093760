"""The examples run, and what they train gets better."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, **options: Any) -> list[float]:
    main = runpy.run_path(str(EXAMPLES / name))["main"]
    losses: list[float] = main(**options)
    return losses


def test_the_mlp_learns() -> None:
    losses = run("train_mlp.py", steps=60, count=128, width=32)
    assert losses[-1] < 0.6 * losses[0]


def test_the_convnet_learns() -> None:
    losses = run("train_convnet.py")
    assert losses[-1] < 0.2 * losses[0]


def test_the_transformer_learns_a_text_by_heart() -> None:
    module = runpy.run_path(str(EXAMPLES / "train_chars.py"))
    losses, written = module["main"]()
    assert losses[0] > 3 and losses[-1] < 0.2
    assert written == module["TEXT"]
