"""Scatters whose elements each look for their value, and those that write in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.ir import ops as O
from tests.codegen.test_nvptx import bodies as gpu_bodies
from tests.codegen.test_nvptx import stored
from tests.schedule.graphs import bodies, kernel_count

RNG = np.random.default_rng(5)
KINDS = [np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int64, np.uint16]


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """What is out of range reads 0 and is dropped."""
    with knobs.scope(CHECK_INDICES=0):
        yield


def numbers(shape: tuple[int, ...], kind: type) -> np.ndarray:
    return RNG.integers(0, 9, shape).astype(np.float32).astype(kind)


def written(
    x: np.ndarray, axis: int, index: np.ndarray, values: np.ndarray, mode: str
) -> np.ndarray:
    """What a loop over the places gives."""
    found = x.copy()
    for place in product(*map(range, index.shape)):
        at = int(index[place])
        if 0 <= at < x.shape[axis]:
            target = (*place[:axis], at, *place[axis + 1 :])
            found[target] = values[place] if mode == "scatter" else found[target] + values[place]
    return found


def has_scatter(*results: Tensor) -> bool:
    return any(n.op == O.SCATTER for body in bodies(*results) for n in body.toposort())


@pytest.mark.parametrize("device", ["CPU", "REF"])
@pytest.mark.parametrize("mode", ["scatter", "scatter_add"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_along_an_axis(device: str, mode: str, axis: int, count: int) -> None:
    x = RNG.standard_normal((5, 7, 6)).astype(np.float32)
    shape = [4, 7, 5]
    shape[axis] = count
    size = x.shape[axis]
    index = RNG.integers(-size - 2, size + 2, shape)  # some are outside
    index[..., -1] = index[..., 0]
    values = RNG.standard_normal(shape).astype(np.float32)
    tensors = [Tensor(a).to(device).realize() for a in (x, index, values)]
    found = getattr(tensors[0], mode)(axis, *tensors[1:])
    assert has_scatter(found) == (count > 1)
    np.testing.assert_array_equal(found.numpy(), written(x, axis, index, values, mode))
    zeros = svod.zeros(x.shape, device=device)
    found = getattr(zeros, mode)(axis, *tensors[1:])
    assert has_scatter(found) == (count > 4)
    np.testing.assert_array_equal(found.numpy(), written(0 * x, axis, index, values, mode))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index_kind", [np.int8, np.uint8, np.int32, np.uint64])
@pytest.mark.parametrize("count", [2, 30])
def test_kinds_of_numbers(kind: type, index_kind: type, count: int) -> None:
    x, values = numbers((6, 200), kind), numbers((6, count), kind)
    index = RNG.integers(0, 127, (6, count)).astype(index_kind)
    for mode in ("scatter", "scatter_add"):
        found = getattr(Tensor(x).realize(), mode)(1, Tensor(index), Tensor(values)).numpy()
        np.testing.assert_array_equal(found, written(x, 1, index, values, mode))


@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_rows_chosen_by_a_line(device: str) -> None:
    x = RNG.standard_normal((6, 9, 4)).astype(np.float32)
    places = RNG.integers(0, 9, 5)
    values = RNG.standard_normal((5, 4)).astype(np.float32)
    wanted = x.copy()
    wanted[np.arange(1, 6), places] = values
    mine = Tensor(x).to(device).realize()
    mine[svod.arange(1, 6, device=device), Tensor(places).to(device).realize()] = Tensor(values).to(
        device
    )
    assert not has_scatter(mine)
    np.testing.assert_array_equal(mine.numpy(), wanted)


def test_lines_alone_and_diagonals() -> None:
    x = RNG.standard_normal((6, 6)).astype(np.float32)
    values = RNG.standard_normal(4).astype(np.float32)
    for shift in (0, 2):
        wanted = x.copy()
        wanted[np.arange(4), np.arange(4) + shift] = values
        found = Tensor(x).realize()
        found[svod.arange(4), svod.arange(4) + shift] = Tensor(values)
        assert not has_scatter(found)
        np.testing.assert_array_equal(found.numpy(), wanted)
    found = Tensor(x).realize()
    found[svod.arange(3, 9)] = Tensor(x).realize()  # three rows are outside
    np.testing.assert_array_equal(found.numpy(), np.concatenate([x[:3], x[:3]]))


def test_positions_that_wrap_are_no_line() -> None:
    line = svod.arange(200).cast(svod.int8)
    x = Tensor(np.zeros(200, np.float32)).realize()
    x[line] = svod.arange(200).cast(svod.float32)
    wanted = np.zeros(200, np.float32)
    wanted[np.arange(200).astype(np.int8)] = np.arange(200)
    np.testing.assert_array_equal(x.numpy(), wanted)


def test_infinite_numbers_stay_where_they_are() -> None:
    x = np.full((3, 4), np.inf, np.float32)
    x[1] = np.nan
    values = np.array([[np.inf], [1], [np.nan]], np.float32)
    index = np.array([[0], [1], [9]])
    for mode in ("scatter", "scatter_add"):
        found = getattr(Tensor(x).realize(), mode)(1, Tensor(index), Tensor(values)).numpy()
        np.testing.assert_array_equal(found, written(x, 1, index, values, mode))


@pytest.mark.parametrize("pick", ["rows", "gather"])
def test_the_gradient_of_a_picked_class_is_one_kernel(pick: str) -> None:
    logits = Tensor(RNG.standard_normal((32, 100)).astype(np.float32)).realize().requires_grad_()
    goal = RNG.integers(0, 100, 32)
    target = Tensor(goal).realize()
    logs = logits.log_softmax(1)
    rows = logs[svod.arange(32), target]
    loss = -(rows if pick == "rows" else logs.gather(1, target[:, None])).sum()
    (gradient,) = svod.autograd.grad(loss, [logits])
    assert kernel_count(gradient) == 1
    values = logits.detach().numpy().astype(np.float64)
    grown = np.exp(values - values.max(1, keepdims=True))
    wanted = grown / grown.sum(1, keepdims=True) - np.eye(100)[goal]
    np.testing.assert_allclose(gradient.numpy(), wanted, atol=1e-6)


def test_a_scatter_that_is_a_result_and_read_again() -> None:
    x = RNG.standard_normal((4, 5)).astype(np.float32)
    index = RNG.integers(0, 5, (4, 1))
    found = Tensor(x).realize().scatter(1, Tensor(index), 3.0)
    twice = found * 2
    svod.realize(found, twice)
    wanted = written(x, 1, index, np.full((4, 1), 3.0, np.float32), "scatter")
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(twice.numpy(), 2 * wanted)


def test_a_sum_over_everything_is_not_made_in_every_block() -> None:
    logits = stored(8192, 32000).requires_grad_()
    goal = stored(8192, dtype=svod.int64)
    (gradient,) = svod.autograd.grad(logits.cross_entropy(goal), [logits])
    sizes = [body.src[0].src[0].shape for body in gpu_bodies(gradient)]
    assert sizes[-1] == (8192, 32000)
    assert len(sizes) == 2
