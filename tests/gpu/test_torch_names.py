"""Every torch name, its values and gradients, with every tensor on the GPU."""

import pytest

from tests.torch.test_torch import GOOD
from tests.torch.test_torch import test_gradients as test_gradients
from tests.torch.test_torch import test_values as values_of

ELSEWHERE = {"get_device"}  # what was recorded is the CPU's


@pytest.mark.parametrize("name", sorted(GOOD.keys() - ELSEWHERE))
def test_values(name: str) -> None:
    values_of(name)
