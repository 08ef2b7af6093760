"""``svod.cuda``: whether there are NVIDIA GPUs, and how many."""

from svod.device.cuda import *  # noqa: F403
from svod.device.cuda import __all__ as __all__
from svod.reference.docstrings import describe

describe(globals(), "svod.cuda")
