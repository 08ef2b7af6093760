"""``svod.optim``: optimisers and learning rates; the same as `svod.nn.optim`."""

from svod.nn.optim import *  # noqa: F403
from svod.nn.optim import __all__ as _optimizers
from svod.optim import lr_scheduler as lr_scheduler
from svod.optim import swa_utils as swa_utils
from svod.reference.docstrings import describe

__all__ = [*_optimizers, "swa_utils"]

describe(globals(), "svod.optim")
