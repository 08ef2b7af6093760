"""Loops over time, run-time sizes, layers with their gradients: suites of the CPU, on REF."""

# ruff: noqa: F403
from tests.nn.test_modules import *
from tests.tensor.test_run_time_sizes import *
from tests.tensor.test_scan import *
from tests.tensor.test_tensor_layers import *

del globals()["test_a_loop_is_a_handful_of_kernels"]  # it asks for native code
del globals()["test_an_lstm_learns_a_sine_wave"]  # ten seconds of NumPy
