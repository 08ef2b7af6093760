"""The operators of torch as functions of Svod tensors, by families."""

from svod.frontend.torch.ops import (
    contractions,
    creation,
    elementwise,
    indexing,
    layers,
    movement,
    normalization,
    reductions,
    transforms,
)
from svod.frontend.torch.ops.registry import TABLE, Call, Entry, op

__all__ = [
    "TABLE",
    "Call",
    "Entry",
    "contractions",
    "creation",
    "elementwise",
    "indexing",
    "layers",
    "movement",
    "normalization",
    "op",
    "reductions",
    "transforms",
]
