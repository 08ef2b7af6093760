"""Weights of the samples in a piece of a signal, by the names of torch."""

from svod.reference.docstrings import describe
from svod.tensor.namespace.signal_windows import *  # noqa: F403
from svod.tensor.namespace.signal_windows import __all__ as __all__

describe(globals(), "svod.signal.windows")
