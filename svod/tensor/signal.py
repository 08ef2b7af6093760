"""``svod.signal``: what torch.signal has, windows."""

from __future__ import annotations

from svod.tensor import windows as windows
