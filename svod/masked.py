"""``svod.masked``: reductions that leave out elements, by the names of torch."""

from svod.tensor.namespace.masked import *  # noqa: F403
from svod.tensor.namespace.masked import __all__ as __all__
