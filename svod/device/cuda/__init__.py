"""NVIDIA GPUs through the driver library alone; as ``svod.cuda``, whether there are any."""

from __future__ import annotations

from svod.device.cuda.driver import device_count, is_available

__all__ = ["device_count", "is_available"]
