"""Learning rates over time, under torch's name of the module."""

from svod.nn.schedules import *  # noqa: F403
from svod.nn.schedules import __all__ as __all__
