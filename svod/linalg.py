"""``svod.linalg``: linear algebra, by the names of torch and the array API."""

from svod.base.errors import LinAlgError as LinAlgError
from svod.reference.docstrings import describe
from svod.tensor.linalg.linear_algebra import *  # noqa: F403
from svod.tensor.linalg.linear_algebra import __all__ as __all__

describe(globals(), "svod.linalg")
