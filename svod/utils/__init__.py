"""torch's names of what lives elsewhere: ``svod.utils.data`` is `svod.data`."""

from svod.utils import data

__all__ = ["data"]
