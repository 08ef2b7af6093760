"""Memory that a recorded function meets: computed while recording, written twice, far away."""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor
from svod.tensor.core.tensor_registry import buffer_of


def row(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def test_values_realized_together_are_each_on_their_own_device() -> None:
    here, there = row(1, 2) * 2, svod.ones(2, device="CPU:1") * 3
    svod.realize(here, there)
    found = [buffer_of(t.uop) for t in (here, there)]
    assert [b.device for b in found if b is not None] == ["CPU", "CPU:1"]
    np.testing.assert_array_equal(here.numpy(), [2, 4])
    np.testing.assert_array_equal(there.numpy(), [3, 3])


def test_what_a_function_realizes_while_it_is_recorded_stays_computed() -> None:
    captured = row(1, 2) * 2

    def function(x: Tensor) -> Tensor:
        return x + captured.realize()

    recorded = svod.jit(function)
    np.testing.assert_array_equal(recorded(row(0, 1)).numpy(), [2, 5])
    memory = buffer_of(captured.uop)
    assert memory is not None
    captured[0] = 7
    np.testing.assert_array_equal(recorded(row(0, 1)).numpy(), [7, 5])
