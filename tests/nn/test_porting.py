"""What programs written for torch do with parameters, gradients and optimizers."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import ConfigError


def test_modules_and_parameters_can_be_pickled() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)).eval()
    model[2].requires_grad_(False)
    found = pickle.loads(pickle.dumps(model))
    x = svod.ones(5, 3)
    assert np.array_equal(found(x).numpy(), model(x).numpy())
    assert [p.requires_grad for p in found.parameters()] == [True] * 4 + [False]
    assert all(isinstance(p, nn.Parameter) for p in found.parameters())


def test_pickled_parameters_stay_tied() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    found = pickle.loads(pickle.dumps(model))
    assert found[1].weight is found[0].weight


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_pickled_tensors_keep_what_they_require(dtype: str) -> None:
    x = Tensor([1.0, 2.0]).cast(getattr(svod, dtype)).realize()
    for wanted in (False, True):
        found = pickle.loads(pickle.dumps(x.detach().clone().requires_grad_(wanted)))
        assert (found.requires_grad, found.dtype) == (wanted, x.dtype)


def test_data_can_be_changed_in_place() -> None:
    w = svod.ones(3).requires_grad_()
    w.data.add_(1)
    assert (w.tolist(), w.is_leaf, w.requires_grad) == ([2.0] * 3, True, True)
    (w * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4.0] * 3
    w.data[0] = 9.0
    w.data += 1
    assert w.tolist() == [10.0, 3.0, 3.0]
    w.data.copy_(svod.zeros(3))
    assert w.tolist() == [0.0] * 3
    w.data = svod.ones(2, 2)
    assert w.shape == (2, 2) and w.requires_grad


def test_data_of_a_module_trains_on() -> None:
    model = nn.Linear(2, 1)
    optimizer = nn.optim.SGD(model.parameters(), lr=0.5)
    model.weight.data.fill_(1.0)
    model.bias.data.zero_()
    model(svod.ones(1, 2)).sum().backward()
    optimizer.step()
    assert (model.weight.tolist(), model.bias.tolist()) == ([[0.5, 0.5]], [-0.5])
    model.weight.data.clamp_(0.0, 0.25)
    assert model.weight.tolist() == [[0.25, 0.25]]


def test_data_held_shows_later_writes() -> None:
    x = svod.ones(2).realize()
    held = x.data
    x += 1
    assert held.tolist() == [2.0, 2.0]


def test_gradients_inside_a_block_without() -> None:
    x = svod.ones(3).requires_grad_()
    with svod.no_grad():
        before = x * 2
        with svod.enable_grad():
            inside, product = x * 3, before * x
        after = inside * 2
    assert [t.requires_grad for t in (before, inside, product, after)] == [False, True, True, False]
    product.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0] * 3


def test_a_block_may_be_entered_twice() -> None:
    x, block = svod.ones(3).requires_grad_(), svod.no_grad()
    with block:
        with block:
            first = x * 2
        second = x * 3
    assert not first.requires_grad and not second.requires_grad and (x * 2).requires_grad


def test_a_block_without_gradients_is_for_one_thread() -> None:
    x = svod.ones(3).requires_grad_()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with svod.no_grad():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(30)
    loss = (x * 2).sum()
    leave.set()
    thread.join()
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [2.0] * 3


def test_a_long_block_keeps_no_dead_tensors() -> None:
    from svod.tensor.core import tensor_registry

    with svod.no_grad():
        for _ in range(5000):
            svod.ones(3) + 1
        (made,) = tensor_registry.collected.values()
        assert len(made) < 3000
    assert not tensor_registry.collected


def test_zeroed_gradients_are_zeros() -> None:
    p = nn.Parameter(svod.ones(2))
    optimizer = nn.optim.SGD([p], lr=0.1, momentum=0.9)
    (p * p).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is not None and p.grad.tolist() == [0.0, 0.0]
    optimizer.step()  # momentum goes on
    np.testing.assert_allclose(p.detach().numpy(), 0.62, rtol=1e-6)


def _trained(name: str, steps: int, **options: Any) -> tuple[Any, Any]:
    p = nn.Parameter(Tensor([1.0, -2.0, 3.0]))
    optimizer = getattr(nn.optim, name)([p], **options)
    for _ in range(steps):
        _one(p, optimizer)
    return p, optimizer


def _one(p: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    (p * p * p).sum().backward()
    optimizer.step()


OPTIMIZERS = {
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "Adamax": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
    "ASGD": {"lr": 0.01, "t0": 1},
    "RMSprop": {"lr": 0.1},
    "SGD": {"lr": 0.01, "momentum": 0.9},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_torch_can_be_loaded(name: str) -> None:
    """torch counts steps per parameter, with these names."""
    options = OPTIMIZERS[name]
    p, optimizer = _trained(name, 3, **options)
    saved = optimizer.state_dict()
    shared = saved["param_groups"][0].pop("scalars")
    counts = {k: v for k, v in shared.items() if k in ("mu_product", "eta", "mu")}
    saved["state"][0].update(step=np.float32(3), **counts)
    saved["param_groups"][0].update(foreach=None, capturable=False)
    q = nn.Parameter(p.detach().clone())
    other = getattr(nn.optim, name)([q], **options)
    other.load_state_dict(saved)
    for _ in range(2):
        _one(p, optimizer)
        _one(q, other)
    np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-6)


def test_states_that_do_not_fit_are_refused() -> None:
    saved = _trained("Adam", 1)[1].state_dict()
    other = nn.optim.Adam([nn.Parameter(svod.ones(4))])
    with pytest.raises(ConfigError, match=r"exp_avg of shape \(3,\) for a parameter of \(4,\)"):
        other.load_state_dict(saved)
    fitting = nn.optim.Adam([nn.Parameter(svod.ones(3))])
    with pytest.raises(ConfigError, match="parameter 1 of 1"):
        fitting.load_state_dict({**saved, "state": {1: saved["state"][0]}})
