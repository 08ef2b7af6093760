"""Edges of what tensors take: axes of one or no elements, very long ones, scalars, ends at 0."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import IndexRangeError
from svod.ir import ops as O
from svod.tensor.core import tensor_registry
from svod.tensor.core.tensor_core import AxisError


def test_the_only_element_of_an_axis_is_the_first_extreme_and_no_element_is_none() -> None:
    x = Tensor(np.ones((3, 1, 2), np.float32))
    np.testing.assert_array_equal(x.argmax(1).numpy(), np.zeros((3, 2)))
    np.testing.assert_array_equal(x.argmin(1, keepdim=True).numpy(), np.zeros((3, 1, 2)))
    with pytest.raises(AxisError, match="it has no elements"):
        x[:, :0].argmax(1)


@pytest.mark.parametrize(("size", "kind"), [((1 << 31) - 1, svod.int32), (1 << 31, svod.int64)])
def test_positions_in_an_axis_are_counted_by_a_dtype_that_holds_them(size: int, kind: object):
    found = svod.empty(size, dtype=svod.int8).argmax(0)
    dtypes = {n.dtype for n in found.uop.toposort() if n.op == O.IOTA}
    assert dtypes == {kind}, "the size itself stands for no position"


def test_a_scalar_has_axis_0_and_axis_minus_1_as_in_torch() -> None:
    x = Tensor(3.0)
    assert [x.sum(axis).item() for axis in (0, -1)] == [3.0, 3.0]
    for axis in (1, -2):
        with pytest.raises(AxisError, match="out of range"):
            x.sum(axis)


@pytest.mark.parametrize("shift", [1, 2, -1])
def test_rolling_an_axis_without_elements_leaves_it(shift: int) -> None:
    assert svod.zeros(0, 3).roll(shift, 0).numpy().shape == (0, 3)
    wanted = np.roll(np.arange(3), shift)
    np.testing.assert_array_equal(svod.arange(3).roll(shift, 0).numpy(), wanted)


@pytest.mark.parametrize("end", [0, 1, -1, -5])
def test_a_part_that_ends_at_a_number_of_an_axis_of_run_time_size(end: int) -> None:
    n = svod.Variable("n", 1, 8)
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    np.testing.assert_array_equal(x[: n.bind(5)][:end].numpy(), np.arange(5)[:end])


def test_the_index_that_is_out_of_range_is_named() -> None:
    x = svod.zeros(8)
    with pytest.raises(IndexRangeError, match="index -9 is out of range"):
        x[[0, -9, 7]]
    with pytest.raises(IndexRangeError, match="index 8 is out of range"):
        x[[-8, 8, 0]]


@pytest.mark.parametrize("shape", [(3, 3, 3), (2, 2, 2, 2), (5, 2), (2, 5)])
def test_the_diagonal_of_many_axes_is_filled(shape: tuple[int, ...]) -> None:
    wanted = np.zeros(shape, np.float32)
    np.fill_diagonal(wanted, 7)
    np.testing.assert_array_equal(svod.zeros(shape).fill_diagonal_(7).numpy(), wanted)


def test_a_view_that_is_put_back_where_it_is_writes_nothing() -> None:
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).realize()
    part = x[0]
    part += 1
    node = x.uop
    x[0] = part
    assert x.uop is node
    x[1] = part  # elsewhere it is a value like others
    np.testing.assert_array_equal(x.numpy(), [[1, 2, 3], [1, 2, 3]])


def test_tensors_that_are_gone_leave_a_long_block_without_gradients_now_and_then() -> None:
    with svod.no_grad():
        (found,) = tensor_registry.collected.values()
        for _ in range(64):
            svod.zeros(1)
        assert len(found) >= 64, "not each time: going through all of them takes long"
        kept = [svod.zeros(1) for _ in range(found.limit)]
        most = 0
        for _ in range(8 * len(kept)):
            svod.zeros(1)
            most = max(most, len(found))
    assert most <= 3 * len(kept)
