"""Gradients, layers and run-time sizes, with every tensor on the GPU."""

# ruff: noqa: F403
from tests.nn.test_modules import *
from tests.nn.test_optim import *
from tests.tensor.test_gradient import *
from tests.tensor.test_run_time_sizes import *
