"""Helpers around modules with the names of torch.nn.utils: clipping, vectors, norms of weights."""

from svod.nn.optim import clip_grad_norm_, clip_grad_value_
from svod.nn.utils import parametrizations, parametrize, rnn
from svod.nn.utils.hooks import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from svod.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from svod.reference.docstrings import describe

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations",
    "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip

describe(globals(), "svod.nn.utils")
