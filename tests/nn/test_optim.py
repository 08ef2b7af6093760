"""Optimisers against their formulas in NumPy; schedules; clipping."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import ConfigError, ShapeError
from svod.nn import optim
from svod.nn import optimizer as optimizer_base
from svod.testing import assert_close

STEPS = 4


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


START, GOAL = normal(4, 3), normal(4, 3, seed=1)


def trained(make: Callable[[list[Any]], optim.Optimizer], steps: int = STEPS) -> Any:
    """The parameter after some steps towards a goal; the gradient is 2 (w - goal) * w."""
    w = Tensor(START, requires_grad=True)
    goal = Tensor(GOAL)
    optimizer = make([w])
    memory = w.uop
    for _ in range(steps):
        optimizer.zero_grad()
        ((w - goal) ** 2 * w).sum().backward()
        optimizer.step()
    assert w.uop is memory, "parameters keep their memory"
    return w.numpy()


def gradient(w: Any) -> Any:
    return 2 * (w - GOAL) * w + (w - GOAL) ** 2


def sgd(w: Any, lr: float, momentum: float, decay: float, nesterov: bool) -> Any:
    buffer = None
    for _ in range(STEPS):
        g = gradient(w) + decay * w
        buffer = g if buffer is None else momentum * buffer + g
        w = w - lr * (g + momentum * buffer if nesterov else buffer)
    return w


def adam(w: Any, lr: float, b1: float, b2: float, eps: float, decay: float, decoupled: bool) -> Any:
    m = v = np.zeros_like(w)
    for t in range(1, STEPS + 1):
        g = gradient(w)
        if decoupled:
            w = w * (1 - lr * decay)
        else:
            g = g + decay * w
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return w


def rmsprop(w: Any, lr: float, alpha: float, eps: float, momentum: float, centered: bool) -> Any:
    v = a = buffer = np.zeros_like(w)
    for _ in range(STEPS):
        g = gradient(w)
        v, a = alpha * v + (1 - alpha) * g * g, alpha * a + (1 - alpha) * g
        size = np.sqrt(v - a * a if centered else v) + eps
        buffer = momentum * buffer + g / size
        w = w - lr * buffer
    return w


def adagrad(w: Any, lr: float, decay: float, eps: float) -> Any:
    total = np.zeros_like(w)
    for t in range(STEPS):
        g = gradient(w)
        total = total + g * g
        w = w - lr / (1 + t * decay) * g / (np.sqrt(total) + eps)
    return w


def lion(w: Any, lr: float, b1: float, b2: float, decay: float) -> Any:
    m = np.zeros_like(w)
    for _ in range(STEPS):
        g = gradient(w)
        w = w * (1 - lr * decay) - lr * np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
    return w


def lamb(w: Any, lr: float, b1: float, b2: float, eps: float, decay: float) -> Any:
    m = v = np.zeros_like(w)
    for t in range(1, STEPS + 1):
        g = gradient(w)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
        w = w - lr * np.linalg.norm(w) / np.linalg.norm(step) * step
    return w


def muon(w: Any, lr: float, momentum: float, decay: float) -> Any:
    buffer = np.zeros_like(w)
    for _ in range(STEPS):
        g = gradient(w)
        buffer = momentum * buffer + (1 - momentum) * g
        x = ((1 - momentum) * g + momentum * buffer).T
        x = x / np.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        w = w * (1 - lr * decay) - lr * sqrt(w.shape[0] / w.shape[1]) * x.T
    return w


FORMULAS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "sgd": (lambda p: optim.SGD(p, 0.01), lambda w: sgd(w, 0.01, 0.0, 0.0, False)),
    "momentum": (
        lambda p: optim.SGD(p, 0.01, momentum=0.9, weight_decay=0.1),
        lambda w: sgd(w, 0.01, 0.9, 0.1, False),
    ),
    "nesterov": (
        lambda p: optim.SGD(p, 0.01, momentum=0.9, nesterov=True),
        lambda w: sgd(w, 0.01, 0.9, 0.0, True),
    ),
    "adam": (
        lambda p: optim.Adam(p, 0.05, weight_decay=0.1),
        lambda w: adam(w, 0.05, 0.9, 0.999, 1e-8, 0.1, False),
    ),
    "adamw": (
        lambda p: optim.AdamW(p, 0.05, betas=(0.8, 0.9)),
        lambda w: adam(w, 0.05, 0.8, 0.9, 1e-8, 0.01, True),
    ),
    "rmsprop": (
        lambda p: optim.RMSprop(p, 0.01, momentum=0.9, centered=True),
        lambda w: rmsprop(w, 0.01, 0.99, 1e-8, 0.9, True),
    ),
    "adagrad": (
        lambda p: optim.Adagrad(p, 0.05, lr_decay=0.1),
        lambda w: adagrad(w, 0.05, 0.1, 1e-10),
    ),
    "lion": (
        lambda p: optim.Lion(p, 0.01, weight_decay=0.1),
        lambda w: lion(w, 0.01, 0.9, 0.99, 0.1),
    ),
    "lamb": (
        lambda p: optim.LAMB(p, 0.01, weight_decay=0.1),
        lambda w: lamb(w, 0.01, 0.9, 0.999, 1e-6, 0.1),
    ),
    "muon": (lambda p: optim.Muon(p, 0.02), lambda w: muon(w, 0.02, 0.95, 0.1)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_optimizer_follows_its_formula(name: str) -> None:
    make, formula = FORMULAS[name]
    assert_close(trained(make), formula(START.astype(np.float64)).astype(np.float32), rtol=3e-4,
                 atol=3e-5)  # fmt: skip


# -- the step ----------------------------------------------------------------------------------


def test_the_loss_and_gradients_keep_their_values_after_the_step() -> None:
    w = Tensor(START, requires_grad=True)
    optimizer = optim.SGD([w], 0.5)
    loss = (w * w).sum()
    kept = w * 3
    view = w.T
    loss.backward()
    optimizer.step()
    assert_close(loss, (START**2).sum(dtype=np.float32), rtol=1e-5)
    assert_close(kept, START * 3)
    assert_close(w.grad, 2 * START)
    assert_close(w, np.zeros_like(START), atol=1e-6)
    assert_close(view, np.zeros_like(START.T), atol=1e-6)


def test_one_step_is_one_plan_and_later_steps_schedule_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from svod.schedule import schedule

    calls = {"cut": 0, "realize": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return call

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    rate = optim.CosineAnnealingLR(optimizer, 10)
    x, y = Tensor(normal(16, 4)), Tensor(normal(16, 2))
    monkeypatch.setattr(schedule, "cut", counted("cut", schedule.cut))
    monkeypatch.setattr(optimizer_base, "realize", counted("realize", optimizer_base.realize))
    counts = []
    for _ in range(4):
        calls.update(cut=0, realize=0)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        assert loss.is_realized
        rate.step()
        counts.append(dict(calls))
    assert counts[0]["cut"] == 1
    assert counts[2] == counts[3] == {"cut": 0, "realize": 1}


def test_running_statistics_are_written_with_the_step() -> None:
    norm = nn.BatchNorm1d(3)
    optimizer = optim.SGD(norm.parameters(), 0.1)
    x = normal(8, 3) + 2
    for _ in range(3):
        optimizer.zero_grad()
        (norm(Tensor(x)) ** 2).sum().backward()
        optimizer.step()
        assert norm.running_mean.is_realized and norm.num_batches_tracked.is_realized
    assert norm.num_batches_tracked.item() == 3
    assert_close(norm.running_mean, x.mean(0) * (1 - 0.9**3), rtol=1e-4)


def test_parameters_without_gradient_stay() -> None:
    a, b = Tensor(START, requires_grad=True), Tensor(GOAL, requires_grad=True)
    optimizer = optim.Adam([a, b], 0.1)
    (a * a).sum().backward()
    optimizer.step()
    assert_close(b, GOAL)
    assert not np.array_equal(a.numpy(), START)


def test_groups_have_options_of_their_own() -> None:
    a, b = Tensor(START, requires_grad=True), Tensor(START, requires_grad=True)
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.1}], lr=0.01)
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert_close(a, START - np.float32(0.01), rtol=1e-5)
    assert_close(b, START - np.float32(0.1), rtol=1e-5)


def test_state_can_be_saved_and_loaded() -> None:
    def steps(w: Tensor, optimizer: optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            ((w - Tensor(GOAL)) ** 2).sum().backward()
            optimizer.step()

    w = Tensor(START, requires_grad=True)
    optimizer = optim.Adam([w], 0.1)
    steps(w, optimizer, 2)
    other = Tensor(w.numpy(), requires_grad=True)
    again = optim.Adam([other], 0.5)
    again.load_state_dict(optimizer.state_dict())
    steps(w, optimizer, 2)
    steps(other, again, 2)
    assert_close(other, w)


def test_a_closure_gives_the_loss() -> None:
    w = Tensor(START, requires_grad=True)
    optimizer = optim.SGD([w], 0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert_close(optimizer.step(closure), (START**2).sum(dtype=np.float32), rtol=1e-5)


def test_mistakes_are_explained() -> None:
    w = Tensor(START, requires_grad=True)
    with pytest.raises(ConfigError, match="no parameters"):
        optim.SGD([])
    with pytest.raises(ConfigError, match="lr is 0 or more"):
        optim.SGD([w], -1.0)
    with pytest.raises(ConfigError, match="two groups"):
        optim.SGD([w, w])
    with pytest.raises(ConfigError, match="nesterov"):
        optim.SGD([w], nesterov=True)
    with pytest.raises(ConfigError, match="betas"):
        optim.Adam([w], betas=(0.9, 1.0))
    with pytest.raises(ConfigError, match="float tensors"):
        optim.Adam([Tensor([1, 2])])
    with pytest.raises(ConfigError, match=r"no options \['speed'\]"):
        optim.SGD([{"params": [w], "speed": 1}])
    with pytest.raises(ShapeError, match="matrices"):
        optim.Muon([Tensor([1.0], requires_grad=True)])


# -- clipping ----------------------------------------------------------------------------------


def test_clipping_the_norm() -> None:
    a, b = Tensor(START, requires_grad=True), Tensor(GOAL, requires_grad=True)
    ((a * a).sum() + (b * b).sum()).backward()
    total = optim.clip_grad_norm_([a, b], 1.0)
    size = np.sqrt((4 * START**2).sum() + (4 * GOAL**2).sum())
    assert_close(total, np.float32(size), rtol=1e-5)
    assert_close(a.grad, 2 * START / size, rtol=1e-4)
    assert_close(b.grad, 2 * GOAL / size, rtol=1e-4)
    optim.clip_grad_norm_([a, b], 10.0)
    assert_close(a.grad, 2 * START / size, rtol=1e-4)


def test_clipping_values() -> None:
    a = Tensor(START, requires_grad=True)
    (a * a).sum().backward()
    optim.clip_grad_value_([a], 0.5)
    assert_close(a.grad, np.clip(2 * START, -0.5, 0.5))


# -- schedules ---------------------------------------------------------------------------------

SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "step": ("StepLR", {"step_size": 3, "gamma": 0.5}),
    "milestones": ("MultiStepLR", {"milestones": [2, 5], "gamma": 0.1}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "constant": ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    "linear": ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    "cosine": ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    "lambda": ("LambdaLR", {"lr_lambda": lambda t: 0.5**t}),
}
KNOWN = {
    "step": [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125],
    "milestones": [0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005],
    "exponential": [0.5 * 0.9**t for t in range(7)],
    "constant": [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5],
    "linear": [0.05, 0.1625, 0.275, 0.3875, 0.5, 0.5, 0.5],
    "cosine": [0.01 + 0.49 * (1 + np.cos(np.pi * t / 10)) / 2 for t in range(7)],
    "lambda": [0.5 * 0.5**t for t in range(7)],
}


def rates(module: Any, parameter: Any, name: str, count: int = 7) -> list[float]:
    kind, options = SCHEDULES[name]
    optimizer = module.SGD([parameter], lr=0.5, momentum=0.9)
    home = module.lr_scheduler if hasattr(module, "lr_scheduler") else module
    schedule = getattr(home, kind)(optimizer, **options)
    found = []
    for _ in range(count):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_schedule_follows_its_formula(name: str) -> None:
    w = Tensor(START, requires_grad=True)
    np.testing.assert_allclose(rates(optim, w, name), KNOWN[name], rtol=1e-12)


def test_warmup_then_cosine_and_sequences() -> None:
    optimizer = optim.SGD([Tensor(START)], lr=1.0)
    schedule = optim.WarmupCosineLR(optimizer, 2, 6)
    found = [schedule.get_last_lr()[0]]
    for _ in range(5):
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    np.testing.assert_allclose(found[:3], [0.5, 1.0, 1.0])
    assert found[3] > found[4] > found[5] > 0
    optimizer = optim.SGD([Tensor(START)], lr=1.0)
    parts = [optim.LinearLR(optimizer, 0.5, 1.0, 2), optim.ExponentialLR(optimizer, 0.5)]
    both = optim.SequentialLR(optimizer, parts, [2])
    found = [both.get_last_lr()[0]]
    for _ in range(3):
        both.step()
        found.append(both.get_last_lr()[0])
    np.testing.assert_allclose(found, [0.5, 0.75, 1.0, 0.5])


def test_the_rate_in_use_is_the_scheduled_one() -> None:
    w = Tensor(np.zeros(1, np.float32), requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
        schedule.step()
    assert w.item() == -1.75
    assert svod.is_grad_enabled()


def test_asgd_keeps_the_average_of_where_it_has_been() -> None:
    w = Tensor(normal(5), requires_grad=True)
    optimizer = optim.ASGD([w], lr=0.1, t0=0.0)
    seen = []
    for _ in range(5):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        seen.append(w.numpy())
    average = np.mean(seen[1:], axis=0)  # the first is forgotten, as in torch
    np.testing.assert_allclose(optimizer.state[0]["ax"].numpy(), average, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Adadelta", {"rho": 1.5}),
        ("Adamax", {"betas": (0.9, 1.0)}),
        ("NAdam", {"betas": (-0.1, 0.9)}),
        ("RAdam", {"betas": (1.0, 0.9)}),
        ("Rprop", {"etas": (1.2, 0.5)}),
        ("ASGD", {"lr": -1.0}),
        ("Adafactor", {"d": 0.5}),
    ],
)
def test_bad_options_are_refused(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        getattr(optim, kind)([Tensor(normal(3), requires_grad=True)], **options)


def test_an_optimizer_prints_its_groups_and_options():
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}]
    text = repr(svod.optim.SGD(groups, lr=0.1, momentum=0.9))
    assert text.startswith("SGD (\nParameter Group 0\n") and text.endswith("\n)")
    first, second = text.split("Parameter Group 1")
    assert "    lr: 0.1\n" in first and "    lr: 0.5\n" in second and "momentum: 0.9" in second
    assert "params" not in text


@pytest.mark.parametrize("best", [0.5, float("inf")])
def test_a_plateau_goes_on_from_its_state(best, tmp_path):
    """In a file, too: before the first figure the best one is infinite."""
    figures = [0.5, 0.6, 0.6, 0.6, 0.4, 0.7, 0.7, 0.7, 0.7]

    def made():
        optimizer = optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
        return optimizer, optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1)

    optimizer, schedule = made()
    count = 3 if best < 1 else 0
    for figure in figures[:count]:
        schedule.step(figure)
    assert schedule.best == best
    state = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    svod.save(state, tmp_path / "run")
    saved = svod.load(tmp_path / "run")
    again, following = made()
    again.load_state_dict(saved["optimizer"])
    following.load_state_dict(saved["schedule"])
    for figure in figures[count:]:
        schedule.step(figure)
        following.step(svod.Tensor(figure))
        assert following.get_last_lr() == schedule.get_last_lr()
    assert again.param_groups[0]["lr"] < 0.05
