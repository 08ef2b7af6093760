"""Copies, views and pending assignments: who sees what is written, and when."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

import svod
from svod import Tensor


def _numbers() -> Tensor:
    return svod.arange(6.0).realize()


@pytest.mark.parametrize(
    "copied", [lambda x: x.clone(), Tensor, copy.deepcopy, lambda x: svod.zeros(3).copy_(x)]
)
def test_a_copy_of_a_slice_is_no_view(copied: Callable[[Tensor], Tensor]) -> None:
    x = _numbers()
    found = copied(x[1:4])
    x.assign(svod.zeros(6)).realize()
    assert found.tolist() == [1.0, 2.0, 3.0]


def test_a_copy_of_an_assignment_keeps_its_value() -> None:
    x = _numbers()
    x.assign(x * 2)
    found, taken = x.clone(), svod.zeros(6).realize()
    taken.copy_(x)
    x.assign(x * 2)
    taken.assign(taken + 1)
    assert x.tolist() == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]
    assert found.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert taken.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]


def test_a_value_between_two_assignments() -> None:
    x = _numbers()
    x.assign(x * 2)
    between = x * 3
    x.assign(svod.ones(6))
    assert (x.tolist(), between.tolist()) == ([1.0] * 6, [0.0, 6.0, 12.0, 18.0, 24.0, 30.0])


def test_an_assignment_through_a_view_happens_once() -> None:
    x = Tensor([1.0, 2.0]).realize()
    x.assign(x * 2)
    x.copy_(x.flip(0))
    x.assign(x * 2)
    assert x.tolist() == [8.0, 4.0]


def _grow(x: Tensor) -> Tensor:
    x += 1
    return x * 2


def _set(x: Tensor) -> Tensor:
    x[0] = 9.0
    return x * 2


@pytest.mark.parametrize("function", [_grow, _set])
@pytest.mark.parametrize("view", [lambda x: x[:2], lambda x: x.detach(), lambda x: x[::-1]])
@pytest.mark.parametrize("is_realized", [False, True])
def test_views_see_what_a_recorded_function_changes_in_place(
    function: Callable[[Tensor], Tensor], view: Callable[[Tensor], Tensor], is_realized: bool
) -> None:
    run = svod.jit(function)
    x, expected = _numbers(), _numbers()
    seen = view(x)
    for _ in range(3):
        if is_realized:
            seen.realize()
        assert run(x).tolist() == function(expected).tolist()
        assert (x.tolist(), seen.tolist()) == (expected.tolist(), view(expected).tolist())


@pytest.mark.parametrize("function", [_grow, _set])
@pytest.mark.parametrize("copy", [lambda x: x.flip(0), lambda x: x.roll(0), lambda x: x[[0, 1]]])
def test_copies_keep_their_values_when_a_recorded_function_changes_the_tensor(
    function: Callable[[Tensor], Tensor], copy: Callable[[Tensor], Tensor]
) -> None:
    run = svod.jit(function)
    x = _numbers()
    for _ in range(3):
        kept, before = copy(x), copy(x).tolist()
        run(x)
        assert kept.tolist() == before


def test_views_of_changed_state() -> None:
    total = svod.zeros(3).realize()

    @svod.jit
    def add(x: Tensor) -> Tensor:
        global_total = total
        global_total += x
        return total * 1

    views = []
    for i in range(3):
        views.append(total[:2])
        assert add(svod.ones(3)).tolist() == [i + 1.0] * 3
    assert [v.tolist() for v in views] == [[3.0, 3.0]] * 3


def test_arguments_that_show_the_same_elements() -> None:
    def swap(x: Tensor, y: Tensor) -> Tensor:
        held = x + 0
        x.copy_(y + 1)
        y.copy_(held)
        return x - y

    run = svod.jit(swap)
    run(_numbers(), _numbers())
    x = _numbers()
    y = x.detach()
    assert run(x, y).tolist() == [0.0] * 6
    assert x.tolist() == y.tolist() == _numbers().tolist()


def test_assignments_of_a_recorded_function_show_in_views() -> None:
    cache = svod.zeros(4).realize()
    window = cache[1:3]
    put = svod.jit(lambda v: cache.assign(v).realize() is None, state=cache)
    put(svod.arange(4.0))
    put(svod.arange(4.0) + 1)
    assert window.tolist() == [2.0, 3.0]


def _rows_first(x: Tensor) -> Tensor:
    x[0].fill_(1.0)
    x[1] = 2.0
    return x.sum()


def _views_of_views(x: Tensor) -> Tensor:
    part = x[1:3]
    corner = part.T[1:3]
    corner.reshape(2, 2)[0] = 77.0
    part.T[0] = 5.0
    x[1, 1] = 1.0
    part += x[0]
    x *= 0.5
    return corner * 1


@pytest.mark.parametrize("function", [_rows_first, _views_of_views])
@pytest.mark.parametrize("state", ["memory", "lazy", "a constant", "a view", "a lazy view"])
def test_writes_through_views_and_then_to_a_tensor_outside(
    function: Callable[[Tensor], Tensor], state: str
) -> None:
    def made() -> tuple[Tensor, Tensor]:
        whole = svod.arange(20.0).reshape(5, 4) * (0 if state == "a constant" else 1)
        whole = whole if state.endswith(("lazy", "constant", "lazy view")) else whole.realize()
        return whole, whole[:3] if state.endswith("view") else whole

    (base, x), (base_alone, x_alone) = made(), made()
    run = svod.jit(lambda: function(x))
    for _ in range(3):
        assert run().tolist() == function(x_alone).tolist()
        assert x.tolist() == x_alone.tolist()
        assert base.tolist() == base_alone.tolist()


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0, 0),
    "repeat": lambda x: x.repeat(1),
    "cat": lambda x: svod.cat([x]),
    "pad": lambda x: svod.nn.functional.pad(x, (1, 0)),
    "power": lambda x: x**1,
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_copy_between_two_assignments_keeps_its_values(name: str, is_recorded: bool) -> None:
    state = _numbers()

    def run(x: Tensor) -> tuple[Tensor, ...]:
        state.assign(x + 10)
        first = COPIES[name](state)
        state.assign(state * 2)
        second = COPIES[name](state)
        state.assign(state + 1)
        return first, second, state * 1

    f = svod.jit(run) if is_recorded else run
    for scale in (1, 2):
        x = svod.arange(6.0) * scale
        found = f(x)
        wanted = COPIES[name](x + 10), COPIES[name]((x + 10) * 2), (x + 10) * 2 + 1
        assert [t.tolist() for t in found] == [t.tolist() for t in wanted]
        assert state.tolist() == wanted[-1].tolist()


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.contiguous(), lambda x: x[:]])
def test_a_part_assigned_in_a_recorded_function_shows_in_all_views_of_a_lazy_tensor(
    view: Callable[[Tensor], Tensor], dtype: str
) -> None:
    kept = []  # which of the tensors is looked at first has depended on where they are
    for n in range(8):
        whole = (svod.arange(5.0).cast(dtype) * 2 + 1).reshape(1, 5)
        shown = view(whole)

        def write(x: Tensor, shown: Tensor = shown) -> Tensor:
            shown[0:1].assign(x.expand(1, 5))
            return shown * 2

        f = svod.jit(write)
        for value in (-1.0, -2.0):
            assert f(Tensor(value) + n * 0).tolist() == [[2 * value] * 5]
            assert shown.tolist() == whole.tolist() == [[value] * 5]
        kept.append((whole, shown))
