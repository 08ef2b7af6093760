"""Every torch name, its values and gradients, with every tensor on the GPU."""

from tests.torch.test_torch import test_gradients as test_gradients
from tests.torch.test_torch import test_values as test_values
