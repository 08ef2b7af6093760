"""``svod.special``: functions of mathematics, by the names of torch."""

from svod.tensor.namespace.special_functions import *  # noqa: F403
from svod.tensor.namespace.special_functions import __all__ as __all__
