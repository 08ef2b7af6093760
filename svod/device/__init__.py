"""Devices: memory, compiled programs, and the registry that finds them by name."""

from svod.device.builtin import register_builtin_devices

register_builtin_devices()
