"""Sums and writes at places that data chooses: in order, whatever meets, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.knobs import knobs

RNG = np.random.default_rng(12)
unchecked = pytest.mark.usefixtures("without_index_checks")  # such indices write nothing
KINDS = [np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int32, np.uint32, np.int64]


@pytest.fixture
def without_index_checks() -> Iterator[None]:
    with knobs.scope(check_indices=False):
        yield


def same_on_both(compute: Callable[..., Tensor], *arrays: np.ndarray) -> None:
    """The GPU's result is the CPU's, bit by bit."""
    found = []
    for device in ("CPU", "CUDA"):
        found.append(compute(*[Tensor(a).to(device).realize() for a in arrays]).numpy())
    assert found[0].dtype == found[1].dtype
    np.testing.assert_array_equal(found[0].view(np.uint8), found[1].view(np.uint8))


@pytest.mark.parametrize("rows", [1, 7, 300, 5000])
@pytest.mark.parametrize("columns", [1, 3, 64, 1000])
@pytest.mark.parametrize("steps", [5, 64, 1003])
def test_rows_are_added_in_order(rows: int, columns: int, steps: int) -> None:
    target = RNG.standard_normal((rows, columns), np.float32)
    values = RNG.standard_normal((steps, columns), np.float32)
    places = RNG.integers(0, rows, steps)
    wanted = target.copy()
    np.add.at(wanted, places, values)
    found = Tensor(target).realize().index_add(0, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_array_equal(found, wanted)  # the order of the additions is that of NumPy


@pytest.mark.parametrize("size", [1, 10, 4000])
def test_single_numbers_are_added_in_order(size: int) -> None:
    values = RNG.standard_normal(3000, np.float32)
    places = RNG.integers(0, size, 3000)
    wanted = np.zeros(size, np.float32)
    np.add.at(wanted, places, values)
    zeros = Tensor(np.zeros(size, np.float32)).realize()
    np.testing.assert_array_equal(
        zeros.scatter_add(0, Tensor(places), Tensor(values)).numpy(), wanted
    )
    np.testing.assert_array_equal(
        Tensor(places).realize().bincount(minlength=size).numpy(), np.bincount(places, None, size)
    )


def test_the_last_of_several_writes_stays() -> None:
    places = RNG.integers(0, 50, (40, 30))
    values = RNG.standard_normal((40, 30), np.float32)
    target = np.zeros((40, 50), np.float32)
    wanted = target.copy()
    for row in range(40):
        for column in range(30):
            wanted[row, places[row, column]] = values[row, column]
    found = Tensor(target).realize().scatter(1, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_array_equal(found, wanted)
    down = Tensor(np.zeros((50, 30), np.float32)).realize()
    wanted = np.zeros((50, 30), np.float32)
    for row in range(40):
        for column in range(30):
            wanted[places[row, column], column] += values[row, column]
    found = down.scatter_add(0, Tensor(places), Tensor(values)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_gradient_of_an_embedding() -> None:
    table = RNG.standard_normal((500, 48), np.float32)
    words = RNG.integers(0, 500, (16, 40))
    weights = Tensor(table).realize().requires_grad_()
    (weights[Tensor(words)] * 2).sum().backward()
    assert weights.grad is not None
    wanted = np.zeros((500, 48), np.float32)
    np.add.at(wanted, words, np.full((16, 40, 48), 2, np.float32))
    np.testing.assert_array_equal(weights.grad.numpy(), wanted)


@unchecked
@pytest.mark.parametrize("mode", ["scatter", "scatter_add"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_rows_that_stay_apart(mode: str, axis: int, spread: int) -> None:
    x = RNG.standard_normal((33, 40, 37), np.float32)
    shape = [33, 40, 37]
    shape[axis] = 150
    shape[axis - 1] -= 3
    values = RNG.standard_normal(shape, np.float32)
    index = RNG.integers(-45, 45, shape) % spread if spread < 1000 else RNG.integers(-45, 45, shape)
    same_on_both(lambda x, i, v: getattr(x, mode)(axis, i, v), x, index, values)


@unchecked
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["scatter", "scatter_add"])
@pytest.mark.parametrize("steps", [3, 700])
def test_kinds_of_numbers(kind: type, mode: str, steps: int) -> None:
    x = RNG.integers(0, 100, (50, 60)).astype(np.float32).astype(kind)
    values = (RNG.standard_normal((50, steps)) * 40).astype(np.float32).astype(kind)
    index = RNG.integers(-70, 70, (50, steps)).astype(np.int32)
    same_on_both(lambda x, i, v: getattr(x, mode)(1, i, v), x, index, values)
    flat = [x.ravel(), index[:40].ravel() * 33, values[:40].ravel()]
    same_on_both(lambda x, i, v: getattr(x, mode)(0, i, v), *flat)


@unchecked
@pytest.mark.parametrize("size", [1, 100, 70_000])
@pytest.mark.parametrize("rest", [(), (5,), (64,)])
def test_the_last_of_many_writes_stays(size: int, rest: tuple[int, ...]) -> None:
    x = RNG.standard_normal((size, *rest), np.float32)
    values = RNG.standard_normal((20_000, *rest), np.float32)
    index = RNG.integers(-size - 5, size + 5, 20_000)
    same_on_both(lambda x, i, v: x.index_copy(0, i, v), x, index, values)
    found = Tensor(x).realize().index_copy(0, Tensor(index), Tensor(values)).numpy()
    wanted = x.copy()
    for place, value in zip(index, values, strict=True):
        if 0 <= place < size:
            wanted[place] = value
    np.testing.assert_array_equal(found, wanted)


def test_counts() -> None:
    x = RNG.standard_normal(200_000, np.float32)
    same_on_both(lambda x: x.histc(50, -2, 2), x)
    same_on_both(lambda x: x.histogram(30, range=(-2, 2))[0], x)
    numbers = RNG.integers(0, 9, 100_000)
    same_on_both(lambda n: n.bincount(), numbers)
    for kind in (np.int32, np.uint32, np.int64, np.uint64):
        same_on_both(lambda n: n[:9].scatter_add(0, n, n * n), numbers.astype(kind))


def test_places_of_what_is_not_zero() -> None:
    x = (RNG.random((300, 400)) < 0.3).astype(np.float32)
    for size in (0, 10, 30_000, 80_000):
        same_on_both(lambda x, size=size: x.nonzero_static(size=size), x)


@pytest.mark.parametrize("pick", ["rows", "gather", "loss"])
def test_the_gradient_of_a_picked_class(pick: str) -> None:
    goal = RNG.integers(0, 1000, 300)

    def gradient(x: Tensor, t: Tensor) -> Tensor:
        x = x.requires_grad_()
        logs = x.log_softmax(1)
        if pick == "loss":
            loss = x.cross_entropy(t)
        elif pick == "rows":
            loss = -logs[svod.arange(300, device=x.device), t].sum()
        else:
            loss = -logs.gather(1, t[:, None]).sum()
        return svod.autograd.grad(loss, [x])[0]

    logits = RNG.standard_normal((300, 1000), np.float32)
    found = []
    for device in ("CPU", "CUDA"):
        arrays = [Tensor(a).to(device).realize() for a in (logits, goal)]
        found.append(gradient(*arrays).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-7)


def test_a_sum_over_all_in_rows() -> None:
    logits = Tensor(RNG.standard_normal((4096, 300), np.float32)).realize()
    goal = RNG.integers(0, 300, 4096)
    (found,) = svod.autograd.grad(logits.requires_grad_().cross_entropy(Tensor(goal)), [logits])
    values = logits.detach().numpy().astype(np.float64)
    grown = np.exp(values - values.max(1, keepdims=True))
    wanted = (grown / grown.sum(1, keepdims=True) - np.eye(300)[goal]) / 4096
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-8)


@unchecked
@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.int16])
@pytest.mark.parametrize("size", [1, 7, 900, 70_000])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_many_sums_at_few_or_many_places(kind: type, size: int, rest: tuple[int, ...]) -> None:
    x = (RNG.standard_normal((size, *rest)) * 9).astype(kind)
    index = RNG.integers(-size - 3, size + 3, 30_000)
    values = (RNG.standard_normal((30_000, *rest)) * 9).astype(kind)
    same_on_both(lambda x, i, v: x.index_add(0, i, v), x, index, values)


@unchecked
def test_sums_in_a_few_long_rows() -> None:
    x = RNG.standard_normal((3, 500), np.float32)
    index = RNG.integers(-500, 500, (3, 20_000))
    values = RNG.standard_normal((3, 20_000), np.float32)
    same_on_both(lambda x, i, v: x.scatter_add(1, i, v), x, index, values)
    same_on_both(lambda x, i, v: x.scatter(1, i, v), x, index, values)


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 0), (300, 400)])
def test_elements_that_a_mask_selects(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, np.float32)
    mask = RNG.random(shape) < 0.3
    mine, chosen = Tensor(x).realize(), Tensor(mask).realize()
    np.testing.assert_array_equal(mine[chosen].numpy(), x[mask])
    np.testing.assert_array_equal(mine.masked_select(chosen).numpy(), x[mask])
    np.testing.assert_array_equal(chosen.nonzero().numpy(), np.argwhere(mask))
    for found, wanted in zip(chosen.nonzero(as_tuple=True), np.nonzero(mask), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    mine[chosen] = -mine[chosen]
    np.testing.assert_array_equal(mine.numpy(), np.where(mask, -x, x))
