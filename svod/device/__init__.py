"""Devices: memory, compiled programs, and the registry that finds them by name."""
