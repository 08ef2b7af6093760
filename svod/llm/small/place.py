"""Where the small model lies: a file of the package."""

from __future__ import annotations

from pathlib import Path


def small_model() -> Path:
    """The GGUF file that `python -m svod.llm.small.train` made."""
    return Path(__file__).with_name("svod-small.gguf")
