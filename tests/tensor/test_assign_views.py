"""Assignments to parts of what an earlier assignment writes, and scatters on REF."""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor


def test_a_part_of_a_pending_assignment_is_written_after_it() -> None:
    x = svod.zeros(4).contiguous().realize()
    x.assign(x + 1)
    part = x[0:2]
    part.assign(Tensor(np.full(2, 9, np.float32)))
    svod.realize(x, part)
    assert x.tolist() == [9, 9, 1, 1]
    assert part.tolist() == [9, 9]


def test_index_assignment_runs_on_the_reference_device() -> None:
    values = Tensor(np.zeros((4, 2), np.float32), device="REF")
    index = Tensor(np.array([1, 3, 1])).to("REF")
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    values[index] = Tensor(rows, device="REF")
    wanted = np.zeros((4, 2), np.float32)
    wanted[[1, 3, 1]] = rows
    np.testing.assert_array_equal(values.numpy(), wanted)
