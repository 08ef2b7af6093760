"""``svod.special``: functions of mathematics, by the names of torch."""

from svod.reference.docstrings import describe
from svod.tensor.namespace.special_functions import *  # noqa: F403
from svod.tensor.namespace.special_functions import __all__ as __all__

describe(globals(), "svod.special")
