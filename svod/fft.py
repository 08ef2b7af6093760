"""``svod.fft``: Fourier transforms, by the names of torch and the array API."""

from svod.tensor.fft.transforms import *  # noqa: F403
from svod.tensor.fft.transforms import __all__ as __all__
