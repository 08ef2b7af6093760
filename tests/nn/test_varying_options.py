"""Momentum and betas that a schedule changes: values of now in every formula, and one plan."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import svod
from svod import Tensor, optim

STEPS = 8
START = np.array([1.0, -2.0, 0.5])
GRADIENTS = np.random.default_rng(3).standard_normal((STEPS, 3))
MOMENTA = 0.95 - 0.05 * np.abs(np.arange(STEPS) - 4)


def adam(p, g, state, beta, t):
    first, second = beta, 0.999
    state["m"] = state.get("m", 0) * first + g * (1 - first)
    state["v"] = state.get("v", 0) * second + g * g * (1 - second)
    mean, square = state["m"] / (1 - first**t), state["v"] / (1 - second**t)
    return p - 0.1 * mean / (np.sqrt(square) + 1e-8)


def adamax(p, g, state, beta, t):
    state["m"] = state.get("m", 0) * beta + g * (1 - beta)
    state["u"] = np.maximum(state.get("u", 0) * 0.999, np.abs(g) + 1e-8)
    return p - 0.1 / (1 - beta**t) * state["m"] / state["u"]


def lion(p, g, state, beta, t):
    mean = state.get("m", np.zeros(3))
    state["m"] = mean * 0.99 + g * (1 - 0.99)
    return p - 0.1 * np.sign(mean * beta + g * (1 - beta))


def sgd(p, g, state, momentum, t):
    state["b"] = state.get("b", 0) * momentum + g
    return p - 0.1 * state["b"]


def nesterov(p, g, state, momentum, t):
    state["b"] = state.get("b", 0) * momentum + g
    return p - 0.1 * (g + state["b"] * momentum)


FORMULAS = {
    "Adam": (adam, {}), "Adamax": (adamax, {}), "Lion": (lion, {}),
    "SGD": (sgd, {"momentum": 0.9}),
    "SGD nesterov": (nesterov, {"momentum": 0.9, "nesterov": True}),
}  # fmt: skip


def change(group, momentum) -> None:
    if "momentum" in group:
        group["momentum"] = float(momentum)
    else:
        group["betas"] = (float(momentum), group["betas"][1])


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_every_step_uses_the_momentum_of_now(name, is_compiled):
    formula, options = FORMULAS[name]
    p = svod.tensor(START, dtype=svod.float64, requires_grad=True)
    optimizer = getattr(optim, name.split()[0])([p], lr=0.1, **options)

    def step(g):
        p.grad = g
        optimizer.step()

    run = svod.jit(step) if is_compiled else step
    wanted, state = START, {}
    for t, (g, momentum) in enumerate(zip(GRADIENTS, MOMENTA, strict=True), 1):
        change(optimizer.param_groups[0], momentum)
        run(Tensor(g))
        wanted = formula(wanted, g, state, momentum, t)
        np.testing.assert_allclose(p.detach().numpy(), wanted, rtol=1e-9, err_msg=f"step {t}")


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "LAMB", "SGD", "RMSprop"])
def test_one_cycle_under_jit_is_one_plan(kind):
    options = {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}
    found = []
    for is_compiled in (False, True):
        p = svod.tensor([0.5, -1.5], requires_grad=True)
        optimizer = getattr(optim, kind)([p], lr=0.01, **options)
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)

        def step(x, p=p, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((p * x).sin() ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = svod.jit(step) if is_compiled else step
        for t in range(8):
            run(Tensor([1.0 + t, 2.0]))
            schedule.step()
        found.append(p.detach().numpy())
        assert not is_compiled or run.plans == 1
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_no_momentum_is_another_step():
    p = svod.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([p], lr=1.0, momentum=0.5)
    g = Tensor([1.0])

    @svod.jit
    def step(g):
        p.grad = g
        optimizer.step()

    seen = []
    for momentum in (0.5, 0.25, 0.0, 0.0, 0.5):
        optimizer.param_groups[0]["momentum"] = momentum
        step(g)
        seen.append(p.item())
    # buffers: 1, 1.25, then none is kept, then 0.5 * 1.25 + 1
    np.testing.assert_allclose(seen, [0.0, -1.25, -2.25, -3.25, -4.875])


def test_states_and_copies_go_on_with_what_varies():
    def made():
        p = svod.tensor(START, requires_grad=True)
        return p, optim.Adam([p], lr=0.1)

    def run(p, optimizer, first, last):
        for g, momentum in list(zip(GRADIENTS, MOMENTA, strict=True))[first:last]:
            change(optimizer.param_groups[0], momentum)
            p.grad = Tensor(g.astype(np.float32))
            optimizer.step()
        return p.detach().numpy()

    whole = run(*made(), 0, STEPS)
    p, optimizer = made()
    run(p, optimizer, 0, 4)
    saved, q = optimizer.state_dict(), svod.tensor(p.detach().numpy(), requires_grad=True)
    assert set(saved["param_groups"][0]["scalars"]) == {"steps"}
    other = optim.Adam([q], lr=0.5)
    other.load_state_dict(saved)
    np.testing.assert_allclose(run(q, other, 4, STEPS), whole, rtol=1e-6)
    pair = copy.deepcopy((p, optimizer))
    np.testing.assert_allclose(run(*pair, 4, STEPS), whole, rtol=1e-6)
    np.testing.assert_allclose(run(p, optimizer, 4, STEPS), whole, rtol=1e-6)
