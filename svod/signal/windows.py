"""Weights of the samples in a piece of a signal, by the names of torch."""

from svod.tensor.namespace.signal_windows import *  # noqa: F403
from svod.tensor.namespace.signal_windows import __all__ as __all__
