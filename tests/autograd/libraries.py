"""The names that cases use, for Svod and for torch, and their results as plain data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("recorded.npz")


def svod() -> Any:
    import svod as lib

    names = ("autograd", "func", "nn", "set_grad_enabled", "is_grad_enabled", "no_grad", "cat")
    found = SimpleNamespace(**{name: getattr(lib, name) for name in names})
    found.tensor = lib.Tensor
    found.once_differentiable = lib.autograd.once_differentiable
    return found


def torch() -> Any:
    import torch as lib
    from torch.autograd.function import once_differentiable

    names = ("autograd", "func", "nn", "set_grad_enabled", "is_grad_enabled", "no_grad", "cat")
    found = SimpleNamespace(**{name: getattr(lib, name) for name in names})
    found.tensor = lib.tensor
    found.once_differentiable = once_differentiable
    return found


def plain(value: Any) -> Any:
    """A result as an array, or as text for None and errors."""
    if value is None or isinstance(value, str):
        return np.array(f"{value}")
    return value if isinstance(value, np.ndarray) else np.array(value.detach().numpy())
