"""A recorded function is used only while the modules and optimizers it looked into are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.tensor.core.tracing import TracedValueError
from svod.tensor.gradients.reverse_mode import GradientError


def _inputs(seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32))


def _close(a: Tensor, b: Tensor) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_named", [False, True])
def test_train_and_eval_are_two_plans(is_named: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    run = svod.jit(lambda x: model(x), state=model if is_named else ())
    x = _inputs()
    for _ in range(3):
        model.train()
        run(x)
        model.eval()
        _close(run(x), model(x))
    assert run.plans == 2


def test_a_part_that_changes_its_mode_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    run = svod.jit(lambda x: model(x))
    x = _inputs()
    run(x)
    model[1].eval()
    _close(run(x), model(x))


def _bigger(model: Any) -> None:
    model.scale = 5.0


def _other_weight(model: Any) -> None:
    model.linear.weight = nn.Parameter(svod.ones(2, 3))


def _other_part(model: Any) -> None:
    model.linear = nn.Linear(3, 2)


def _hook(model: Any) -> None:
    model.linear.register_forward_hook(lambda module, given, found: found + 1)


def _other_table(model: Any) -> None:
    model.table = svod.full((2,), 7.0).realize()


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 2), 2.0
        self.table = svod.ones(2).realize()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x) * self.scale + self.table


@pytest.mark.parametrize("change", [_bigger, _other_weight, _other_part, _hook, _other_table])
@pytest.mark.parametrize("is_method", [False, True])
def test_changes_of_a_module_are_seen(change: Callable[[Any], None], is_method: bool) -> None:
    model = _Scaled()
    run = svod.jit(model.forward if is_method else lambda x: model(x))
    x = _inputs()
    run(x)
    run(x)
    assert model.calls == 1
    change(model)
    _close(run(x), model(x))


def test_what_a_function_changes_itself_does_not_count() -> None:
    model = _Scaled()
    run = svod.jit(lambda x: model(x))
    for _ in range(3):
        run(_inputs())
        run(_inputs()[:2])
    assert (run.plans, model.calls) == (2, 2)


def _step(model: nn.Module, optimizer: Any) -> Any:
    @svod.jit(state=(model, optimizer))
    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return train


def _pair() -> tuple[Any, Any, Any, Any]:
    made = []
    for _ in range(2):
        svod.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        made += [model, nn.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)]
    return tuple(made)  # type: ignore[return-value]


def test_options_of_an_optimizer_may_change() -> None:
    model, optimizer, plain, other = _pair()
    train = _step(model, optimizer)
    for i in range(6):
        if i == 3:
            for o in (optimizer, other):
                o.param_groups[0].update(weight_decay=0.5, momentum=0.9)
                o.param_groups[0]["lr"] = 0.02
        loss = train(_inputs(i))
        other.zero_grad()
        expected = plain(_inputs(i)).square().mean()
        expected.backward()
        other.step()
        _close(loss, expected)
    _close(model[0].weight, plain[0].weight)
    assert train.plans == 2


def test_a_learning_rate_is_data() -> None:
    model, optimizer, _, _ = _pair()
    train = _step(model, optimizer)
    for i in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        train(_inputs(i))
    assert train.plans == 1


def test_parameters_can_be_frozen_between_calls() -> None:
    model, optimizer, _, _ = _pair()
    train = _step(model, optimizer)
    train(_inputs())
    model[0].requires_grad_(False)
    before, other = model[0].weight.numpy(), model[2].weight.numpy()
    train(_inputs())
    assert np.array_equal(before, model[0].weight.numpy())
    assert not np.array_equal(other, model[2].weight.numpy())
    model[0].requires_grad_(True)
    train(_inputs())
    assert not np.array_equal(before, model[0].weight.numpy())
    assert train.plans == 2


# -- gradients -------------------------------------------------------------------------------------


def test_gradients_left_behind_cannot_be_taken_for_data() -> None:
    model, optimizer, _, _ = _pair()

    @svod.jit(state=model)
    def backward(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        backward(_inputs())
        with pytest.raises(TracedValueError, match=r"\.grad"):
            optimizer.step()
        optimizer.zero_grad()


def test_gradients_from_before_are_not_shown_after_a_step() -> None:
    model, optimizer, _, _ = _pair()
    model(_inputs()).sum().backward()
    train = _step(model, optimizer)
    train(_inputs())
    with pytest.raises(TracedValueError):
        model[0].weight.grad.numpy()


def test_a_recorded_step_reads_the_gradients_of_each_call() -> None:
    model, optimizer, plain, other = _pair()
    step = svod.jit(lambda: optimizer.step(), state=(model, optimizer))
    for i in range(3):
        for m, o, s in ((model, optimizer, step), (plain, other, other.step)):
            o.zero_grad()
            m(_inputs(i)).square().mean().backward()
            s()
        _close(model[0].weight, plain[0].weight)


def test_gradients_forgotten_outside() -> None:
    model, optimizer, plain, other = _pair()

    @svod.jit(state=(model, optimizer))
    def train(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(3):
        optimizer.zero_grad()
        train(_inputs(i))
        other.zero_grad()
        plain(_inputs(i)).square().mean().backward()
        other.step()
        _close(model[0].weight, plain[0].weight)
    assert train.plans == 1
    with pytest.raises(TracedValueError):  # these would have to be added to
        train(_inputs())


def test_state_that_was_loaded_is_used() -> None:
    model, optimizer, plain, other = _pair()
    train, expected = _step(model, optimizer), _step(plain, other)
    for i in range(3):
        train(_inputs(i))
        expected(_inputs(i))
    held = dict(optimizer.state[0])  # the old tensors live on
    saved = other.state_dict()
    train(_inputs(7))
    model.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(saved)
    _close(train(_inputs(4)), expected(_inputs(4)))
    _close(train(_inputs(5)), expected(_inputs(5)))
    assert held


def test_gradients_of_others_are_left_alone() -> None:
    """Only what the function itself differentiates is touched, also by a leaf made inside."""
    w = svod.ones(3).requires_grad_()
    other = svod.ones(3).requires_grad_()
    (other * 2).sum().backward()
    kept = other.grad

    @svod.jit
    def f(x: Tensor) -> Tensor:
        inside = (x * 1).requires_grad_()
        (inside * w).sum().backward()
        return inside.grad * 1  # type: ignore[operator]

    for _ in range(2):
        w.grad = None
        assert f(svod.ones(3)).tolist() == [1.0] * 3
        assert other.grad is kept and w.grad is not None


def test_gradients_set_by_other_threads_while_recording_stay() -> None:
    w = svod.ones(3).requires_grad_()
    set_by_other = svod.full((3,), 7.0).realize()

    def other() -> None:
        w.grad = set_by_other

    def f(x: Tensor) -> Tensor:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return x * 2

    svod.jit(f)(svod.ones(3))
    assert w.grad is set_by_other


def test_a_learning_rate_reaches_the_plan_however_it_is_set():
    weight = svod.nn.Parameter(svod.ones(2))
    optimizer = svod.optim.SGD([weight], lr=1.0)

    @svod.jit
    def step():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    group = optimizer.param_groups[0]
    for change in (
        lambda: None,
        lambda: group.__setitem__("lr", 0.5),
        lambda: group.update(lr=0.25),
        lambda: group.__ior__({"lr": 0.125}),
    ):
        change()
        before = weight.numpy()
        step()
        assert (before - weight.numpy()).tolist() == [group["lr"]] * 2
    assert step.plans == 1


def test_gradients_of_arguments_are_results_and_are_not_left_in_them():
    @svod.jit
    def step(w, x):
        loss = ((w * x - 1) ** 2).mean()
        (gradient,) = svod.autograd.grad(loss, (w,))
        return w - 0.5 * gradient

    x = svod.Tensor([1.0, 2.0])
    w = svod.Tensor([0.5], requires_grad=True)
    assert step(w, x).tolist() == pytest.approx([0.5 - 0.5 * (-0.5 + 0.0)], abs=1e-6)

    @svod.jit
    def leaves_a_gradient(w, x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    with pytest.raises(GradientError, match="cannot leave"):
        leaves_a_gradient(w, x)
    assert w.grad is None
