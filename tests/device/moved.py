"""Journeys that begin on the CPU and go on elsewhere; each folder names the device in ``away``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import DeviceError
from svod.ir import build as B
from svod.ir import ops as O
from svod.tensor.core.tensor_core import wrap
from svod.tensor.core.tensor_registry import buffer_of, moved_from

RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 4)).astype(np.float32)
LABELS = np.arange(6) % 3


class Model(nn.Module):
    """Weights that are drawn, constants, state that changes, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.batch = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        h = self.norm(self.first(x + self.words(places))).relu()
        return self.last(self.drop(self.batch(h)))


def model() -> Model:
    svod.manual_seed(7)
    return Model()


def devices_of(*parts: Any) -> set[str]:
    """Where tensors say they are, and where their memory is."""
    found = set()
    for part in parts:
        tensors = [part] if isinstance(part, Tensor) else [*part.parameters(), *part.buffers()]
        for t in tensors:
            memory = moved_from(B.floats_of(t.realize().uop)).arg.buffer
            found |= {t.device, memory.device}
    return found


def batch(device: str) -> tuple[Tensor, Tensor]:
    return Tensor(X).to(device), Tensor(LABELS).to(device)


def trained(
    make: Callable[[Any], Any],
    before: Callable[[Model], Any] = lambda m: None,
    after: Callable[[Model], Any] = lambda m: None,
    later: Callable[[Model], Any] = lambda m: None,
    is_recorded: bool = False,
) -> list[float]:
    """Losses of a few steps; the model is moved before or after the optimizer is made, or later."""
    net = model()
    before(net)
    optimizer = make(net.parameters())
    after(net)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x, y), y)
        loss.backward()
        optimizer.step()
        return loss, loss.detach()

    run = svod.jit(step, state=(net, optimizer)) if is_recorded else step
    svod.manual_seed(11)
    losses = []
    for turn in range(4):
        if turn == 2:
            later(net)
            optimizer.load_state_dict(optimizer.state_dict())
        first, second = run(*batch(next(net.parameters()).device))
        losses.append(first.item())
        assert second.item() == first.item()
    return losses


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: nn.optim.Adam(p, lr=0.05),
}


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("when", ["before", "after", "later"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_made_on_the_cpu_trains_elsewhere(
    away: str, name: str, when: str, is_recorded: bool
) -> None:
    move = {when: lambda net: net.to(away)}
    found = trained(OPTIMIZERS[name], is_recorded=is_recorded, **move)
    np.testing.assert_allclose(found, trained(OPTIMIZERS[name]), rtol=1e-3, atol=1e-5)


def test_all_of_a_model_moves_there_and_back(away: str) -> None:
    net = model().eval()
    wanted = net(*batch("CPU")).numpy()
    assert devices_of(net.to(away)) == {away}
    found = net(*batch(away))
    assert devices_of(found) == {away}
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    assert devices_of(net.cpu()) == {"CPU"}
    np.testing.assert_allclose(net(*batch("CPU")).numpy(), wanted, atol=1e-5)


def test_states_are_loaded_where_the_model_is(away: str, tmp_path: Path) -> None:
    source = model().eval()
    wanted = source(*batch("CPU")).numpy()
    svod.manual_seed(1)
    net = Model().to(away).eval()
    net(*batch(away)).realize()
    for state in (source.state_dict(), {k: v.numpy() for k, v in source.state_dict().items()}):
        net.to("CPU").to(away).load_state_dict(state)
        assert devices_of(net) == {away}
        np.testing.assert_allclose(net(*batch(away)).numpy(), wanted, atol=1e-5)
    nn.state.save_file(net.state_dict(), tmp_path / "weights")
    back = Model().eval()
    back.load_state_dict(nn.state.load_file(tmp_path / "weights"))
    assert devices_of(back) == {"CPU"}
    back.load_state_dict(net.state_dict())
    np.testing.assert_allclose(back(*batch("CPU")).numpy(), wanted, atol=1e-5)
    back.load_state_dict(net.state_dict(), assign=True)
    assert devices_of(back) == {away}


@pytest.mark.parametrize("freeze", [False, True])
def test_a_recorded_model_follows_its_weights(away: str, freeze: bool) -> None:
    net = model().eval()
    run = svod.jit(lambda x, y: net(x, y), freeze=freeze)
    wanted = run(*batch("CPU")).numpy()
    net.to(away)
    np.testing.assert_allclose(run(*batch(away)).numpy(), wanted, atol=1e-5)


def test_constants_go_where_they_are_told(away: str) -> None:
    for make in (lambda: svod.zeros(3), lambda: svod.arange(3) * 2 + 1, lambda: svod.ones(2, 2).T):
        fresh, read = make().to(away), make()
        wanted = read.numpy()
        assert devices_of(fresh, read.to(away), read.to(away) + 1) == {away}
        np.testing.assert_array_equal(read.to(away).numpy(), wanted)
        one, two = make(), make().to(away)
        user = Tensor(X[0, 0]).to(away) + two
        svod.realize(one, two)
        assert (devices_of(one), devices_of(two), devices_of(user)) == ({"CPU"}, {away}, {away})
    here, there = svod.zeros(3), svod.zeros(3, device=away)
    svod.realize(here, there, Tensor(X) + 1)
    assert (devices_of(here), devices_of(there)) == ({"CPU"}, {away})
    part = svod.arange(4) + 1
    view = part[1:]
    part.realize()
    assert devices_of(view.to(away)) == {away}


def test_random_numbers_are_the_same_everywhere(away: str) -> None:
    like = Tensor(X).to(away)
    for make in (
        lambda x: x.rand_like(), lambda x: x.randn_like(), lambda x: nn.functional.dropout(x, 0.5),
        lambda x: svod.normal(x, 2.0), lambda x: svod.bernoulli(x.sigmoid()),
        lambda x: svod.randperm(9, device=x.device), lambda x: x.softmax(1).multinomial(2),
    ):  # fmt: skip
        svod.manual_seed(3)
        found = make(like)
        assert devices_of(found) == {away}
        svod.manual_seed(3)
        np.testing.assert_allclose(found.numpy(), make(Tensor(X)).numpy(), atol=1e-5)


def test_values_go_back_and_forth_in_one_plan(away: str) -> None:
    def travel(x: Tensor) -> tuple[Tensor, Tensor]:
        there = (x * 2).to(away) + 1
        return (there.sum(1).to("CPU") + x[:, 0]).relu(), there

    for run in (travel, svod.jit(travel)):
        here, there = run(Tensor(X))
        np.testing.assert_allclose(here.numpy(), np.maximum((X * 2 + 1).sum(1) + X[:, 0], 0), 1e-5)
        assert (devices_of(here), devices_of(there)) == ({"CPU"}, {away})


def test_gradients_come_home(away: str) -> None:
    w = Tensor(X).requires_grad_()
    (w.to(away) ** 2).sum().backward()
    assert w.grad is not None and devices_of(w.grad) == {"CPU"}
    np.testing.assert_allclose(w.grad.numpy(), 2 * X, rtol=1e-5)


def test_writes_take_values_of_another_device(away: str) -> None:
    there, here = Tensor(X).to(away).realize(), Tensor(X * 2).realize()
    there.copy_(here)
    assert devices_of(there) == {away}
    np.testing.assert_array_equal(there.numpy(), X * 2)
    there.copyin(X)
    here.assign(there)
    assert devices_of(here) == {"CPU"}
    np.testing.assert_array_equal(here.numpy(), X)


def test_tensors_of_two_devices_do_not_mix(away: str) -> None:
    here, there = Tensor(X), Tensor(X).to(away)
    index = Tensor(LABELS)
    for mix in (
        lambda: here + there, lambda: there @ here.T, lambda: svod.cat([here, there]),
        lambda: svod.where(here > 0, there, 0.0),
        lambda: there.gather(0, index.reshape(1, 6)[:, :4]), lambda: model().to(away)(here, index),
        lambda: svod.jit(lambda x: x + there)(here), lambda: svod.jit(lambda x: x + there)(X),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=rf"(?s)CPU.*{away}|{away}.*CPU"):
            mix()


def test_no_kernel_is_given_memory_of_another_device(away: str) -> None:
    here, there = Tensor(X).realize(), Tensor(X).to(away).realize()
    for first, second in ((here, there), (there, here)):
        mixed = wrap(B.binary(O.ADD, first.uop, second.uop), first.device)  # past all checks
        with pytest.raises(DeviceError, match=rf"runs on .*24 float32 .* is on .*{second.device}"):
            mixed.realize()
    with pytest.raises(DeviceError, match=rf"'x', a tensor of 24 float32 .* is on {away}"):
        mixed = wrap(B.binary(O.ADD, here.uop, there.uop), "CPU")
        svod.prepare(mixed, inputs={"x": there})


def test_no_plan_is_bound_to_memory_of_another_device(away: str) -> None:
    here, there = Tensor(X).realize(), Tensor(X).to(away).realize()
    for inside, outside in ((here, there), (there, here)):
        plan = svod.prepare(inside + 1, inputs={"x": inside})
        memory = buffer_of(outside.uop)
        with pytest.raises(DeviceError, match=rf"'x' is on {inside.device}.*{outside.device}"):
            plan(x=memory)
        np.testing.assert_array_equal(plan(x=X * 2), X * 2 + 1)


SQUARE = (X[:4] @ X[:4].T + 4 * np.eye(4)).astype(np.float32)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
ORDER = np.array([2, 0, 1, 3])


def written(x: Tensor, key: Any) -> Tensor:
    copy = x.clone()
    copy[key] = 5.0
    return copy


def drawn(make: Callable[[], Tensor]) -> Tensor:
    svod.manual_seed(5)
    return make()


# Functions that read values on the host, make constants or draw numbers on their way.
FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "inv": lambda s, i, m: svod.linalg.inv(s),
    "eigh": lambda s, i, m: svod.linalg.eigh(s)[0],
    "qr": lambda s, i, m: svod.linalg.qr(s)[1].abs(),
    "fft": lambda s, i, m: svod.fft.fft(s).abs(),
    "sort": lambda s, i, m: s.sort(1)[0],
    "topk": lambda s, i, m: s.topk(2).values,
    "mask": lambda s, i, m: s[s > 1],
    "nonzero": lambda s, i, m: (s > 1).nonzero(),
    "unique": lambda s, i, m: svod.unique((s * 2).round()),
    "unique_consecutive": lambda s, i, m: s.round().unique_consecutive(),
    "index": lambda s, i, m: s[i] + s[[0, 1, 2, 3]] + s[np.array([3, 2, 1, 0])],
    "scatter": lambda s, i, m: s.scatter(0, i.reshape(1, 4), s),
    "index_add": lambda s, i, m: s.index_add(0, i, s),
    "write by mask": lambda s, i, m: written(s, s > 1),
    "write by index": lambda s, i, m: written(s, i[:2]),
    "arrays and lists": lambda s, i, m: s + SQUARE + [1.0, 2.0, 3.0, 4.0],
    "constants": lambda s, i, m: s @ svod.eye(4) + svod.arange(4) + svod.linspace(0, 1, 4),
    "cumsum": lambda s, i, m: s.cumsum(0),
    "bincount": lambda s, i, m: svod.bincount(i),
    "quantile": lambda s, i, m: svod.quantile(s, 0.3),
    "zeta": lambda s, i, m: svod.special.zeta(s.abs() + 2, s.abs() + 1),
    "interpolate": lambda s, i, m: nn.functional.interpolate(m, scale_factor=2.0, mode="bilinear"),
    "max_pool2d": lambda s, i, m: nn.functional.max_pool2d(m, 2),
    "one_hot": lambda s, i, m: nn.functional.one_hot(i, 4),
    "scan": lambda s, i, m: svod.scan(lambda c, x: (c + x, c * 2), s[0], s)[0],
    "vmap": lambda s, i, m: svod.func.vmap(lambda r: r * 2 + svod.ones(4))(s),
    "LSTM": lambda s, i, m: drawn(lambda: nn.LSTM(4, 3).to(s.device)(s.reshape(4, 1, 4))[0]),
    "normal_": lambda s, i, m: drawn(lambda: s.clone().normal_()),
    "orthogonal_": lambda s, i, m: drawn(lambda: nn.init.orthogonal_(s.clone()).abs()),
    "sparse_": lambda s, i, m: drawn(lambda: nn.init.sparse_(s.clone(), 0.5)),
    "dirac_": lambda s, i, m: nn.init.dirac_(m.clone()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_where_the_arguments_are(away: str, name: str) -> None:
    arrays = (SQUARE, ORDER, IMAGE)
    found = FUNCTIONS[name](*[Tensor(a).to(away) for a in arrays])
    wanted = FUNCTIONS[name](*[Tensor(a) for a in arrays])
    assert devices_of(found) == {away}
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4)
