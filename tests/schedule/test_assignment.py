"""Assignments: what is read before a write sees the old values, what is read after it the new."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor


def numbers(*shape: int) -> tuple[Tensor, np.ndarray]:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return Tensor(array).realize(), array.copy()


def test_an_assignment_writes_the_memory_of_its_target() -> None:
    x, array = numbers(5)
    view = x.array_view()
    x.assign(x + 1).realize()
    assert np.array_equal(view, array + 1)


@pytest.mark.parametrize("shift", [1, 3, 16])
def test_a_target_may_be_read_at_other_places(shift: int) -> None:
    x, array = numbers(100)
    x[shift:].assign(x[:-shift]).realize()
    want = array.copy()
    want[shift:] = array[:-shift]
    assert np.array_equal(x.numpy(), want)


def test_a_target_may_be_read_backwards_and_transposed() -> None:
    x, array = numbers(33)
    x.assign(x.flip(0)).realize()
    assert np.array_equal(x.numpy(), array[::-1])
    y, square = numbers(17, 17)
    y.assign(y.permute(1, 0)).realize()
    assert np.array_equal(y.numpy(), square.T)


def test_a_target_may_be_reduced_in_its_own_value() -> None:
    x, array = numbers(40, 16)
    x.assign(x - x.sum(0, True) + x.amax(1, True)).realize()
    assert np.array_equal(
        x.numpy(), array - array.sum(0, keepdims=True) + array.max(1, keepdims=True)
    )


def test_a_value_made_before_an_assignment_keeps_what_it_read() -> None:
    x, array = numbers(20)
    before = x * 2
    x.assign(x + 100)
    svod.realize(before, x)
    assert np.array_equal(before.numpy(), array * 2)
    assert np.array_equal(x.numpy(), array + 100)


def test_a_reader_asked_for_after_the_assignment_comes_first_all_the_same() -> None:
    x, array = numbers(20)
    before = x.flip(0) * 3
    x.assign(x + 1)
    svod.realize(x, before)
    assert np.array_equal(before.numpy(), array[::-1] * 3)
    assert np.array_equal(x.numpy(), array + 1)


def test_a_value_made_after_an_assignment_reads_the_new_values() -> None:
    x, array = numbers(6)
    x.assign(x * 2)
    after = x + 1
    svod.realize(after)
    assert np.array_equal(after.numpy(), array * 2 + 1)


def test_assignments_to_one_target_happen_in_order() -> None:
    x, array = numbers(12)
    for i in range(5):
        x.assign(x * 2 + i)
    want = array
    for i in range(5):
        want = want * 2 + i
    assert np.array_equal(x.realize().numpy(), want)


def test_assignments_to_parts_leave_the_rest() -> None:
    x, array = numbers(6, 8)
    x[1:3, 2:5].assign(Tensor(np.full((2, 3), -1, np.float32))).realize()
    x[5].assign(x[0]).realize()
    want = array.copy()
    want[1:3, 2:5] = -1
    want[5] = want[0]
    assert np.array_equal(x.numpy(), want)


def test_a_cache_filled_step_by_step() -> None:
    cache = svod.zeros(4, 6).contiguous().realize()
    want = np.zeros((4, 6), np.float32)
    for step in range(6):
        column = Tensor(np.full((4, 1), step + 1, np.float32)) + cache.sum(1, True)
        cache[:, step : step + 1].assign(column).realize()
        want[:, step : step + 1] = step + 1 + want.sum(1, keepdims=True)
    assert np.array_equal(cache.numpy(), want)


def test_two_tensors_swap_their_values() -> None:
    x, a = numbers(9)
    y, b = numbers(9)
    y.assign(y + 50).realize()
    kept = x.contiguous()
    old = (x + 0).contiguous()
    x.assign(y)
    y.assign(old)
    svod.realize(x, y, kept)
    assert np.array_equal(x.numpy(), b + 50)
    assert np.array_equal(y.numpy(), a)
