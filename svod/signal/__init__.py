"""``svod.signal``: what torch.signal has, windows."""

from svod.signal import windows as windows

__all__ = ["windows"]
