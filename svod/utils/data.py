"""Datasets and loaders under torch's name of the module."""

from svod.data import *  # noqa: F403
from svod.data import __all__ as __all__
