"""Assignments: what is read before a write sees the old values, what is read after it the new."""

from __future__ import annotations

import random

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.schedule.cut import Cutter


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


def test_an_assignment_happens_once() -> None:
    x, array = numbers(6)
    x.assign(x * 2)
    after = x + 1
    assert np.array_equal(after.numpy(), array * 2 + 1)
    assert np.array_equal(x.numpy(), array * 2)
    x.assign(x * 3)
    first, second = x.sum(), x + 2
    plan = first.prepare()
    plan.execute()
    assert first.item() == array.sum() * 6
    assert np.array_equal(second.numpy(), array * 6 + 2)
    plan.execute()
    assert np.array_equal(x.numpy(), array * 18)


def test_what_waits_is_computed_before_its_memory_is_written() -> None:
    x, array = numbers(8)
    before = x * 2
    part = before[2:4] + 1
    x.assign(x + 1)
    between = x * 10
    x.assign(x + 5).realize()
    assert np.array_equal(before.numpy(), array * 2)
    assert np.array_equal(part.numpy(), array[2:4] * 2 + 1)
    assert np.array_equal(between.numpy(), (array + 1) * 10)
    assert np.array_equal(x.numpy(), array + 6)


def test_what_waits_is_computed_before_an_array_is_copied_in() -> None:
    x, array = numbers(8)
    before, view = x * 2, x[1:3]
    x.copyin(array * 0 + 7)
    assert np.array_equal(before.numpy(), array * 2)
    assert view.tolist() == [7, 7]


def test_one_assignment_makes_another_that_is_waited_for() -> None:
    x, a = numbers(8)
    y, b = numbers(8)
    y.assign(y + 1)
    mixed, old = x * y, y * 2
    x.assign(x * 0).realize()
    assert np.array_equal(mixed.numpy(), a * (b + 1))
    assert np.array_equal(old.numpy(), (b + 1) * 2)
    assert np.array_equal(y.numpy(), b + 1)


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


def test_a_value_read_here_and_elsewhere_is_stored_first() -> None:
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = Tensor(square).realize()
    twice = x * 2
    x.assign(twice + twice.permute(1, 0)).realize()
    assert np.array_equal(x.numpy(), square * 2 + square.T * 2)


def test_a_stored_value_may_read_what_is_overwritten() -> None:
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    x, other = Tensor(square).realize(), Tensor(square).realize()
    product = (x @ x).contiguous()
    other.assign(other + x.sum(0))
    x.assign(x - product.permute(1, 0) * other)
    plan = svod.prepare(x)
    names = [p.kernel.entry_point for p in plan.execute_profiled()]
    assert not any(name.startswith("copy") for name in names)
    moved = square + square.sum(0)
    assert np.array_equal(x.numpy(), square - (square @ square).T * moved)
    assert np.array_equal(other.numpy(), moved)


def test_two_tensors_swap_their_values() -> None:
    x, a = numbers(9)
    y, b = numbers(9)
    y.assign(y + 50).realize()
    old = x + 0
    x.assign(y)
    y.assign(old)
    svod.realize(x, y)
    assert np.array_equal(x.numpy(), b + 50)
    assert np.array_equal(y.numpy(), a)


def test_old_and_new_values_meet_in_one_result() -> None:
    x, array = numbers(9)
    before = x * 2
    x.assign(x + 1)
    y = before + x
    assert np.array_equal(y.numpy(), array * 2 + array + 1)


def test_a_value_made_before_may_be_assigned_elsewhere() -> None:
    x, a = numbers(9)
    y, _ = numbers(9)
    before = x.flip(0) * 2
    x.assign(x + 100)
    y.assign(before)
    svod.realize(x, y)
    assert np.array_equal(y.numpy(), a[::-1] * 2)
    assert np.array_equal(x.numpy(), a + 100)


# -- random ------------------------------------------------------------------------------------

Value = tuple[Tensor, np.ndarray]


def expression(pick: random.Random, pool: list[Value]) -> Value:
    x, a = pick.choice(pool)
    y, b = pick.choice(pool)
    return pick.choice(
        (
            (x * 2 + 1, a * 2 + 1),
            (x.flip(0) - 1, a[::-1] - 1),
            (x.permute(1, 0) + 0.5, a.T + 0.5),
            (x + y, a + b),
            (x - x.sum(0, True), a - a.sum(0, keepdims=True)),
            (x.amax(1, True) + y, a.max(1, keepdims=True) + b),
            ((x + 1).contiguous() * 2, (a + 1) * 2),
            (svod.cat([x[1:], x[:1]], dim=0), np.concatenate([a[1:], a[:1]])),
        )
    )


def run_random(seed: int, together: bool) -> None:
    """Some values and assignments, realised in any order, several times over."""
    pick = random.Random(seed)
    size = pick.choice((3, 8, 17, 33))
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, (size, size)).astype(np.float32) for _ in range(3)]
    buffers = [Tensor(a).realize() for a in arrays]
    for _ in range(pick.choice((1, 2, 3))):
        pool: list[Value] = [(b, a.copy()) for b, a in zip(buffers, arrays, strict=True)]
        pending: list[Value] = []
        left = [0, 1, 2]
        for _ in range(pick.choice((2, 3, 5))):
            x, a = expression(pick, pool)
            if pick.random() < 0.5 or not left:
                pool.append((x, a))
                pending.append((x, a))
                continue
            number = left.pop(pick.randrange(len(left)))
            target = buffers[number]
            pool = [v for v in pool if v[0] is not target] or [(x, a)]
            if pick.random() < 0.5:
                low = pick.randrange(size - 1)
                high = pick.randrange(low + 1, size + 1)
                part = target[low:high]
                part.assign(x[low:high])
                arrays[number] = arrays[number].copy()
                arrays[number][low:high] = a[low:high]
                pending.append((part, arrays[number][low:high]))
            else:
                target.assign(x)
                arrays[number] = a.copy()
                pool.append((target, arrays[number]))
                pending.append((target, arrays[number]))
        pick.shuffle(pending)
        if together:
            svod.realize(*[x for x, _ in pending])
        for x, _ in pending:
            x.realize()
        for x, a in [*pending, *zip(buffers, arrays, strict=True)]:
            np.testing.assert_allclose(x.numpy(), a, rtol=1e-5, atol=1e-3, err_msg=f"seed {seed}")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_assignments(first: int, together: bool) -> None:
    for seed in range(first, first + 20):
        run_random(seed, together)


def test_all_buffers_that_are_read_before_and_after_are_copied_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []
    run = Cutter.run
    monkeypatch.setattr(Cutter, "run", lambda self: (runs.append(1), run(self))[1])
    found = []
    for i in range(6):
        x = Tensor(np.full(4, i, np.float32)).realize()
        old = x * 10
        x.assign(x + 1)
        found.append(old + x)
    svod.tensor.recording.realize.realize(found)
    assert len(runs) == 2
    for i, value in enumerate(found):
        assert value.tolist() == [10.0 * i + i + 1] * 4
