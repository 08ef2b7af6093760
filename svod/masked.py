"""``svod.masked``: reductions that leave out elements, by the names of torch."""

from svod.reference.docstrings import describe
from svod.tensor.namespace.masked import *  # noqa: F403
from svod.tensor.namespace.masked import __all__ as __all__

describe(globals(), "svod.masked")
