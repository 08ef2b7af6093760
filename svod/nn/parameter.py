"""Parameters under torch's name of the module."""

from svod.nn.module import Parameter

__all__ = ["Parameter"]
