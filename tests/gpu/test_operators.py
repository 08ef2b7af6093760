"""The operator suite, with every tensor on the GPU."""

# ruff: noqa: F403
from tests.tensor.test_tensor_elementwise import *
from tests.tensor.test_tensor_indexing import *
from tests.tensor.test_tensor_layers import *
from tests.tensor.test_tensor_linear import *
from tests.tensor.test_tensor_movement import *
from tests.tensor.test_tensor_reductions import *
