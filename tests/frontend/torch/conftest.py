"""Every test starts without what dynamo has compiled before, and with counters at zero.

A translation that fails, rather than saying that it cannot, is a fault even where torch stands in.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from svod.frontend.torch import report


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    report().clear()
    torch.manual_seed(0)
    yield
    assert not report().faults, "a translation failed, and torch stood in for it"
    torch._dynamo.reset()
