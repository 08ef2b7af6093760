"""LBFGS takes the steps that torch takes, and finds minima."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import nn, optim

# Losses before each of four steps, how often the closure ran, and where they end: torch 2.13, for
# the function of Rosenbrock in four dimensions.
OF_TORCH = [
    (
        {"line_search_fn": "strong_wolfe"},
        [355.7, 3.76648627, 3.70142861, 3.70142861], 47,
        [-0.775657971, 0.613091081, 0.382060539, 0.145970069],
    ),
    (
        {"lr": 1e-3, "max_iter": 10},
        [355.7, 256.362533445, 231.009752466, 208.637201285], 40,
        [-1.157581432, 1.019774884, 0.774104774, 1.898316827],
    ),
    (
        {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
        [355.7, 4.243135037, 4.188471601, 3.872876186], 32,
        [-0.885962679, 0.788174303, 0.627747741, 0.399035403],
    ),
]  # fmt: skip


class Rosenbrock:
    def __init__(self, **options):
        self.x = svod.tensor([-1.2, 1.0, 0.5, 2.0], dtype=svod.float64, requires_grad=True)
        self.optimizer = optim.LBFGS([self.x], **options)
        self.calls = 0

    def closure(self):
        self.calls += 1
        x = self.x
        self.optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        return loss

    def step(self) -> float:
        return float(self.optimizer.step(self.closure))


@pytest.mark.parametrize(("options", "losses", "calls", "end"), OF_TORCH)
def test_steps_are_those_of_torch(options, losses, calls, end):
    problem = Rosenbrock(**options)
    np.testing.assert_allclose([problem.step() for _ in range(4)], losses, rtol=1e-7)
    assert problem.calls == calls
    np.testing.assert_allclose(problem.x.detach().numpy(), end, rtol=1e-7)


def test_a_saved_state_goes_on_as_it_would_have():
    one, other = (Rosenbrock(max_iter=6, line_search_fn="strong_wolfe") for _ in range(2))
    one.step()
    with svod.no_grad():
        other.x.copy_(one.x)
    other.optimizer.load_state_dict(one.optimizer.state_dict())
    assert one.step() == other.step()
    np.testing.assert_array_equal(one.x.detach().numpy(), other.x.detach().numpy())


def test_several_parameters_of_a_model_are_one_vector():
    rng = np.random.default_rng(0)
    x = svod.tensor(rng.normal(size=(60, 3)).astype(np.float32))
    target = svod.tensor((rng.normal(size=(60, 3)) @ [[1.0], [-2.0], [0.5]]).astype(np.float32))
    layer = nn.Linear(3, 1)
    optimizer = optim.LBFGS(layer.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((layer(x) - target) ** 2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    full = np.hstack([x.numpy(), np.ones((60, 1), np.float32)])
    wanted = np.linalg.lstsq(full, target.numpy(), rcond=None)[0][:, 0]
    found = np.append(layer.weight.detach().numpy(), layer.bias.detach().numpy())
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_what_makes_no_sense_is_refused():
    p = svod.tensor([1.0], requires_grad=True)
    with pytest.raises(svod.errors.ConfigError, match="'strong_wolfe', not 'armijo'"):
        optim.LBFGS([p], line_search_fn="armijo")
    with pytest.raises(svod.errors.ConfigError, match="needs a closure"):
        optim.LBFGS([p]).step()
    q = svod.tensor([1.0], requires_grad=True)
    with pytest.raises(svod.errors.ConfigError, match="one group"):
        optim.LBFGS([{"params": [p]}, {"params": [q]}])
