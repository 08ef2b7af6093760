"""Averages of weights, under torch's name of the module."""

from svod.nn.averaging import *  # noqa: F403
from svod.nn.averaging import __all__ as __all__
from svod.reference.docstrings import describe

describe(globals(), "svod.optim.swa_utils")
