"""What a recorded function and a plan give back, and what they read: decided after simplification.

Results that are one value, arguments that come back, arguments nothing reads, results without
elements, donated memory, and tensors outside that change between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import VariableError

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def rows() -> Tensor:
    return Tensor(ROWS).realize()


def same(found: Any, wanted: Any) -> None:
    """Values, shapes and dtypes are equal, in structures too."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)


FUNCTIONS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "one value written in two ways": lambda x: (x + 1, 1 + x),
    "one value under three shapes": lambda x: (x + 1, (1 + x).reshape(-1), (x + 1).reshape(3, 2)),
    "a value and the same without gradients": lambda x: ((x * x).sum(), (x * x).sum().detach()),
    "a value and its bits": lambda x: (x + 1, (1 + x).bitcast(svod.int32), x.bitcast(svod.int32)),
    "one tensor twice": lambda x: (y := x * 2, y, y.reshape(6)),
    "constants": lambda x: (x * 0, svod.zeros(2, 3), svod.zeros(2, 3), x - x, svod.arange(3)),
    "the argument under other shapes": lambda x: (x.reshape(-1), x, x.reshape(3, 2), x + 1),
    "only the argument": lambda x: (x.reshape(1, 6), x.T, x[0], x * 1),
    "nothing of the argument": lambda x: (svod.ones(3), x[0] * 0),
    "parts without elements": lambda x: (x[0:0].reshape(3, 0), x[:, 3:].reshape(-1), x[5:], x + 1),
    "only parts without elements": lambda x: (x[:, 0:0].reshape(0, 7), x[2:].sum(1)),
    "sums over nothing": lambda x: (x[0:0].reshape(0, 2).sum(0), x[:, 3:].reshape(0, 4).sum() + x),
    "complex numbers and their parts": lambda x: (
        svod.complex(x, x),
        svod.view_as_real(svod.complex(x, 1 * x)),
        svod.complex(x, x).real,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recorded_function_gives_back_what_the_function_does(name: str) -> None:
    function = FUNCTIONS[name]
    f = svod.jit(function)
    for scale in (1, 3):
        x = Tensor(ROWS * scale).realize()
        same(f(x), function(x))
    same(f(ROWS * 2), function(Tensor(ROWS * 2)))


NOTHING_TO_COMPUTE = "only parts without elements"


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != NOTHING_TO_COMPUTE])
def test_a_plan_gives_back_every_tensor_it_was_made_for(name: str) -> None:
    x = rows()
    plan = svod.prepare(*FUNCTIONS[name](x), inputs={"x": x})
    for scale in (1, 3):
        wanted = FUNCTIONS[name](Tensor(ROWS * scale))
        found = plan(x=ROWS * scale)
        same(found if isinstance(found, tuple) else (found,), wanted)
        given = {
            p.name: np.full(w.shape, 99, np.asarray(w).dtype)
            for p, w in zip([p for p in plan.ports if p.is_output], wanted, strict=True)
        }
        plan(x=ROWS * scale, **given)
        same(list(given.values()), wanted)


def test_results_of_one_value_do_not_change_together() -> None:
    first, second, third = svod.jit(lambda x: (x + 1, 1 + x, (x + 1).reshape(6)))(rows())
    first.assign(svod.zeros(2, 3)).realize()
    second[0] = 7
    same((first, third), (np.zeros((2, 3), np.float32), (ROWS + 1).reshape(6)))
    same((second,), (np.concatenate([np.full((1, 3), 7, np.float32), ROWS[1:] + 1]),))


def test_a_result_that_is_the_argument_is_the_argument() -> None:
    f = svod.jit(lambda x, y: (x, x + y))
    x = rows()
    assert f(x, x)[0] is x
    assert svod.jit(lambda x: x)(x) is x


def test_a_loss_returned_twice_is_the_loss() -> None:
    def losses(is_recorded: bool) -> list[tuple[float, float]]:
        svod.manual_seed(3)
        model = nn.Linear(3, 1)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.01)

        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss, loss.detach()

        run = svod.jit(step, state=(model, optimizer)) if is_recorded else step
        return [(a.item(), b.item()) for a, b in [run(rows()) for _ in range(3)]]

    found = losses(True)
    np.testing.assert_allclose(found, losses(False), rtol=1e-5)
    assert all(a == b for a, b in found)


@pytest.mark.parametrize("make", [lambda: rows(), lambda: svod.zeros(0, 3), lambda: rows() + 1])
def test_arguments_that_nothing_reads_are_taken(make: Callable[[], Tensor]) -> None:
    f = svod.jit(lambda x, y: (x + y.sum() * 0 + (y - y).sum(), y))
    for _ in range(2):
        y = make()
        same(f(rows(), y), (ROWS, y))


def test_donated_memory_that_is_given_back_keeps_its_values() -> None:
    for function in (
        lambda a: (a, a + 1),
        lambda a: (a.reshape(-1), a + 1),
        lambda a: (a * 1, a + 1),
        lambda a: (a + 1, a * 3),
    ):
        f = svod.jit(function, donate=0)
        for _ in range(2):
            same(f(rows()), function(rows()))


def test_donated_memory_that_is_changed_in_place_holds_the_change() -> None:
    def twice(a: Tensor) -> Tensor:
        a += 1
        return a * 2

    same((svod.jit(twice, donate=0)(rows()),), ((ROWS + 1) * 2,))


def captured(change: Callable[[Tensor], Any], before: Callable[[Tensor], Any]) -> None:
    """A function that uses a lazy tensor sees it as it is now, whatever happens to it."""
    w = Tensor(ROWS) * 2
    f = svod.jit(lambda x: x * w)
    x = svod.ones(2, 3).realize()
    before(w)
    same((f(x),), (w,))
    for _ in range(2):
        change(w)
        same((f(x),), (w,))


def put(w: Tensor) -> None:
    w[0] = 5


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "copied in": lambda w: w.copyin(w.numpy() + 1),
    "realised and copied in": lambda w: w.realize().copyin(w.numpy() + 1),
    "assigned": lambda w: w.assign(w + 1),
    "a row set": put,
    "realised": lambda w: w.realize(),
}


@pytest.mark.parametrize("before", [*CHANGES, ""])
@pytest.mark.parametrize("change", CHANGES)
def test_a_captured_lazy_tensor_is_read_as_it_is(change: str, before: str) -> None:
    captured(CHANGES[change], CHANGES.get(before, lambda w: None))


def test_a_variable_has_one_value_in_a_call() -> None:
    n = svod.Variable("n", 1, 4)
    f = svod.jit(lambda x, y, k: x.sum() + y[:k].sum())
    x = svod.ones(4).realize()
    assert f(x[: n.bind(3)], x, n.bind(3)).item() == 6
    with pytest.raises(VariableError, match=r"variable n: 3 != 2"):
        f(x[: n.bind(3)], x, n.bind(2))


# -- writes ----------------------------------------------------------------------------------------


def lazily(w: Tensor) -> Tensor:
    w.assign(w.sum() * 0 + 2).realize()
    return w * 1


# Functions that write tensors outside several times, and read them before, between and after.
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "two writes, read between": lambda x, w: (
        w.assign(-x).realize() * 1 + w.assign(x + 5).realize(),
        w * 1,
    ),
    "results in another order": lambda x, w: (
        w.assign(-x).realize() + 0,
        w.assign(x + 5).realize() + 0,
    )[::-1],
    "a part, then all": lambda x, w: (
        w[0].assign(-x[0]).realize().sum(),
        w * 1,
        w.assign(x + 5).realize() + 1,
    ),
    "a write, then zeros, then more": lambda x, w: (
        w.assign(-x).realize() + 0,
        w.zero_() + 1,
        w.add_(1) * 2,
    ),
    "old values kept": lambda x, w: (w * 1, w.assign(-x).realize() * 1, w.assign(w + x).realize()),
    "nothing of the argument": lambda x, w: (lazily(w), w + 1),
    "a row set and all assigned": lambda x, w: (w.copy_(w * 2), w.assign(w * 2 + 1).realize() + 0),
}


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes_of_a_recorded_function_happen_in_order_in_every_call(
    name: str, is_lazy: bool
) -> None:
    def state() -> Tensor:
        return Tensor(ROWS) * 3 if is_lazy else Tensor(ROWS * 3).realize()

    plain, kept = state(), state()
    f = svod.jit(lambda x: WRITES[name](x, kept))
    for scale in (1, 2, 3):
        x = Tensor(ROWS * scale + 1).realize()
        wanted = [t.numpy() for t in WRITES[name](x, plain)]
        same(f(x), wanted)
        same((kept,), (plain,))


KEPT = Tensor(ROWS).realize()
OF_EQUAL_VALUE: dict[str, Callable[[Tensor], Tensor]] = {
    "an argument to the power of 1": lambda x: x**1,
    "a tensor outside to the power of 1": lambda x: (KEPT**1).reshape(-1),
    "a copy of a tensor outside": lambda x: KEPT.clone().reshape(3, 2),
    "a tensor made of one outside": lambda x: Tensor(KEPT),
    "data": lambda x: Tensor([1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", OF_EQUAL_VALUE)
def test_writes_to_a_result_reach_neither_arguments_nor_later_calls(name: str) -> None:
    function = OF_EQUAL_VALUE[name]
    f, wanted = svod.jit(function), function(rows()).numpy().copy()
    for _ in range(3):
        x = rows()
        found = f(x)
        np.testing.assert_array_equal(found.numpy(), wanted)
        found += 1
        np.testing.assert_array_equal(found.numpy(), wanted + 1)
        np.testing.assert_array_equal(x.numpy(), ROWS)
        np.testing.assert_array_equal(KEPT.numpy(), ROWS)


def test_a_result_of_equal_value_keeps_it_when_the_argument_is_written() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x**1
        x += 1
        return before, x

    g = svod.jit(f)
    for _ in range(2):
        before, after = g(rows())
        np.testing.assert_array_equal(before.numpy(), ROWS)
        np.testing.assert_array_equal(after.numpy(), ROWS + 1)


@pytest.mark.parametrize("device", ["CPU", "CPU:1"])
def test_constants_are_results_wherever_the_arguments_are(device: str) -> None:
    f = svod.jit(lambda x: (svod.ones(2, 2), svod.arange(3) + 1, x.sum(), svod.tensor(2.0)))
    for _ in range(2):
        found = f(rows().to(device))
        same(
            [t.numpy() for t in found[:3]],
            [np.ones((2, 2), np.float32), np.arange(3) + 1, np.float32(15)],
        )
        assert [t.device for t in found] == ["CPU", "CPU", device, "CPU"]


class Averaging(nn.Module):
    """A module whose buffer has no memory before the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", svod.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.assign(self.mean * 0.5 + x)
        return x * 2


def test_buffers_of_a_module_that_is_first_called_while_recording_are_written() -> None:
    for wrap in (lambda m: svod.jit(m), lambda m: svod.jit(lambda x: m(x))):
        module = Averaging()
        f = wrap(module)
        for _ in range(3):
            f(svod.ones(3))
        assert module.mean.tolist() == [1.75] * 3


def test_running_values_of_a_batch_norm_in_a_recorded_step() -> None:
    def trained(record: Callable[..., Any]) -> list[np.ndarray]:
        norm = nn.BatchNorm1d(3)
        step = record(lambda x: norm(x).square().mean())
        for scale in (1.0, 2.0, 3.0):
            step(Tensor(ROWS * scale))
        return [t.numpy() for t in (norm.running_mean, norm.running_var, norm.num_batches_tracked)]

    for found, wanted in zip(trained(svod.jit), trained(lambda f: f), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


ONE_WRITE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "assign": lambda w, x: w.assign(w * 0.5 + x),
    "copy_": lambda w, x: w.copy_(w * 0.5 + x),
    "in place": lambda w, x: w.mul_(0.5).add_(x),
    "a row": lambda w, x: w[0].copy_(w[0] * 0.5 + x[1]),
}


@pytest.mark.parametrize("name", ONE_WRITE)
def test_a_tensor_that_the_function_realizes_and_then_writes(name: str) -> None:
    write = ONE_WRITE[name]

    def run(record: Callable[..., Any]) -> list[Any]:
        w = Tensor(ROWS) * 1 + 1
        kept = w + 0  # computed from the value before

        def function(x: Tensor) -> Tensor:
            w.realize()
            write(w, x)
            return w * 2

        f = record(function)
        found = [f(rows() * n).tolist() for n in (1, 2, 3)]
        return [*found, w.tolist(), kept.tolist()]

    assert run(svod.jit) == run(lambda f: f)


def test_views_of_an_attempt_to_record_are_gone_in_the_next() -> None:
    """A lazy tensor that is written gets memory, and the function is recorded once more."""
    w = svod.ones(4).contiguous().realize()
    lazy = svod.tensor([1.0, 2.0, 3.0]) + 1

    @svod.jit
    def step(a):
        w.mul_(a)
        part = w[0:2]
        lazy.add_(1)
        return part + 0

    assert step(svod.tensor(2.0)).tolist() == [2.0, 2.0]
    assert step(svod.tensor(2.0)).tolist() == [4.0, 4.0]
    assert (w.tolist(), lazy.tolist()) == ([4.0] * 4, [4.0, 5.0, 6.0])
