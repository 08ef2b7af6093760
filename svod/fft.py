"""``svod.fft``: Fourier transforms, by the names of torch and the array API."""

from svod.reference.docstrings import describe
from svod.tensor.fft.transforms import *  # noqa: F403
from svod.tensor.fft.transforms import __all__ as __all__

describe(globals(), "svod.fft")
