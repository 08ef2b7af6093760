"""NVIDIA GPUs through the driver library alone."""
