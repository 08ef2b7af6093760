"""Layers with their gradients and states, with every tensor on the GPU."""

# ruff: noqa: F403
from tests.nn.test_modules import *
