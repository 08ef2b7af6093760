"""Reading and writing with every kind of index, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError, IndexingError, ShapeError
from svod.base.knobs import knobs
from tests.tensor.check import Cases, pair, value

KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[1:3],
    np.s_[:, 1],
    np.s_[..., 0],
    np.s_[:, None, 2],
    np.s_[None, ..., None],
    np.s_[::2],
    np.s_[::-1],
    np.s_[1::2, ::-2],
    np.s_[-2:, :-1, 3:0:-2],
    np.s_[5:1],
    np.s_[1:1],
    np.s_[0, 1, 2],
    np.s_[:, :, 4::-3],
    np.s_[::3, 1, ..., ::-1],
    np.s_[10:, 2],
    np.s_[...],
    np.s_[()],
]
FANCY = [
    np.s_[[0, 2, 1]],
    np.s_[[0, -1], [1, 2]],
    np.s_[:, [2, 0]],
    np.s_[:, [[0, 1], [1, 2]], 1:3],
    np.s_[[0, 1], :, [2, 3]],
    np.s_[0, :, [1, 2]],
    np.s_[:, 1, [0, 4]],
    np.s_[..., [1]],
    np.s_[None, [1, 1], None],
    np.s_[[[0], [1]], [[0, 1]]],
    np.s_[1:, [0, 1], ::2],
    np.s_[np.array([], np.int64)],
]


def _tensors(key):
    entries = key if isinstance(key, tuple) else (key,)
    return tuple(Tensor(np.asarray(e)) if isinstance(e, list | np.ndarray) else e for e in entries)


def test_slices_and_numbers():
    x, a = pair((3, 4, 5))
    cases = Cases()
    for key in KEYS:
        cases.add(str(key), x[key], a[key])
        cases.add(f"{key} + 1", x[key] + 1, a[key] + 1)
    cases.run()


def test_index_arrays():
    x, a = pair((3, 4, 5))
    cases = Cases()
    for key in FANCY:
        cases.add(str(key), x[key], a[key])
        if not any(isinstance(k, np.ndarray) for k in (key if isinstance(key, tuple) else (key,))):
            cases.add(f"tensor {key}", x[_tensors(key)], a[key])
    cases.add("scalar tensor", x[Tensor(2)], a[2])
    cases.add("int8", x[Tensor(np.array([-1, 1], np.int8))], a[[-1, 1]])
    cases.add("uint8", x[Tensor(np.array([2, 1], np.uint8))], a[[2, 1]])
    cases.add("computed", x[svod.arange(2) + 1], a[1:])
    with knobs.scope(CHECK_INDICES=0):
        cases.add("outside reads zero", x[Tensor([7])], np.zeros((1, 4, 5), np.float32))
    cases.run()


def test_masks_are_read_now():
    x, a = pair((3, 4))
    cases = Cases()
    cases.add("mask", x[Tensor(a > 0)], a[a > 0])
    cases.add("computed mask", x[x > 0], a[a > 0])
    cases.add("rows", x[np.array([True, False, True])], a[[True, False, True]])
    cases.add("columns", x[:, [False, True, True, False]], a[:, 1:3])
    cases.add("nothing", x[np.zeros((3, 4), bool)], a[:0, 0])
    cases.add("masked_select", x.masked_select(x > 0), a[a > 0])
    cases.add("nonzero", Tensor(a > 0).nonzero(), np.argwhere(a > 0))
    cases.run()
    with pytest.raises(IndexingError, match="mask"):
        x[np.zeros((2, 4), bool)]


@pytest.mark.parametrize("key", KEYS + FANCY, ids=str)
def test_assignment(key):
    x, a = pair((3, 4, 5))
    before = x + 0
    wanted = a.copy()
    part = a[key] * 0 + np.arange(a[key].size, dtype=np.float32).reshape(a[key].shape)
    wanted[key] = part
    x[key] = Tensor(part)
    y = Tensor(a)
    y[key] = -7
    number = a.copy()
    number[key] = -7
    cases = Cases()
    cases.add("tensor", x, wanted)
    cases.add("number", y, number)
    cases.add("the older value", before, a)
    cases.run()


def test_assignment_with_masks_and_broadcast():
    x, a = pair((3, 4))
    x[x > 0] = 0
    y = Tensor(a)
    y[a < 0] = Tensor(np.arange((a < 0).sum(), dtype=np.float32))
    wanted = a.copy()
    wanted[a < 0] = np.arange((a < 0).sum())
    z = Tensor(a)
    z[1:] = np.arange(4, dtype=np.float32)
    third = a.copy()
    third[1:] = np.arange(4)
    w = Tensor(np.arange(4))
    w[1] += 5
    repeated = Tensor([0.0, 0.0])
    repeated[[0, 0, 1]] = Tensor([1.0, 2.0, 3.0])
    cases = Cases()
    cases.add("where", x, np.where(a > 0, 0, a).astype(np.float32))
    cases.add("values", y, wanted)
    cases.add("broadcast", z, third)
    cases.add("in place element", w, np.array([0, 6, 2, 3]))
    cases.add("the last one wins", repeated, np.array([2, 3], np.float32))
    cases.run()
    with pytest.raises(ShapeError, match="does not fit"):
        x[0] = Tensor([1.0, 2.0])
    with pytest.raises(DTypeError, match="cast"):
        w[0] = Tensor(1.5)


def test_adding_at_places_that_repeat_along_an_axis():
    values = np.arange(6.0).reshape(2, 3)
    places = svod.Tensor([[0], [1]]).expand(2, 3)
    lines = svod.arange(2).reshape(2, 1).expand(2, 3).ravel()
    added = svod.zeros(2, dtype="f64").index_put((places,), svod.Tensor(values), accumulate=True)
    np.testing.assert_array_equal(added.numpy(), values.sum(1))
    added = svod.zeros(2, dtype="f64").index_add(0, lines, svod.Tensor(values.reshape(-1)))
    np.testing.assert_array_equal(added.numpy(), values.sum(1))


def test_gather_and_scatter():
    x, a = pair((3, 5))
    i = np.array([[0, 2, 1, 0, 0], [2, 0, 0, 1, 2]])
    j = np.array([[4, 0], [1, 1], [2, -1]])
    values = np.arange(10, dtype=np.float32).reshape(2, 5)
    cases = Cases()
    cases.add("gather 0", x.gather(0, Tensor(i)), np.take_along_axis(a, i, 0))
    cases.add("gather 1", x.gather(1, Tensor(j % 5)), np.take_along_axis(a, j, 1))
    cases.add("along", svod.take_along_axis(x, Tensor(j), axis=1), np.take_along_axis(a, j, 1))
    wanted = a.copy()
    np.put_along_axis(wanted, i[:1], values[:1], 0)
    cases.add("scatter", x.scatter(0, Tensor(i[:1]), Tensor(values)), wanted)
    added = a.copy()
    np.add.at(added, (i, np.broadcast_to(np.arange(5), i.shape)), values)
    cases.add("scatter_add", x.scatter_add(0, Tensor(i), Tensor(values)), added)
    for name, function in {"amax": np.maximum, "amin": np.minimum, "prod": np.multiply}.items():
        folded = a.copy()
        function.at(folded, (i, np.broadcast_to(np.arange(5), i.shape)), values)
        cases.add(name, x.scatter_reduce(0, Tensor(i), Tensor(values), name), folded)
    cases.add("index_select", x.index_select(1, Tensor([3, 0])), a[:, [3, 0]])
    cases.add("take", x.take(Tensor([0, 7, -1])), a.ravel()[[0, 7, -1]])
    cases.add("take axis", svod.take(x, Tensor([2, 0]), axis=0), a[[2, 0]])
    plus = a.copy()
    np.add.at(plus, (slice(None), [1, 1]), np.ones((3, 2), np.float32))
    ones = Tensor(np.ones((3, 2), np.float32))
    cases.add("index_add", x.index_add(1, Tensor([1, 1]), ones), plus)
    filled = a.copy()
    filled[[0, 2]] = 9
    cases.add("index_fill", x.index_fill(0, Tensor([0, 2]), 9), filled)
    source = Tensor(np.arange(15, dtype=np.float32))
    masked = a.copy()
    masked[a > 0] = np.arange((a > 0).sum())
    cases.add("masked_scatter", x.masked_scatter(x > 0, source), masked)
    cases.add("one_hot", Tensor([1, 0]).one_hot(3), np.array([[0, 1, 0], [1, 0, 0]]))
    cases.add("embedding", Tensor([[1, 0], [2, 2]]).embedding(x), a[[[1, 0], [2, 2]]])
    cases.run()


def test_wrong_indices_say_so():
    x = Tensor(np.ones((2, 3), np.float32))
    for key in (5, (0, 3), [2], [[0], [-3]], (0, 0, 0)):
        with pytest.raises(IndexingError):
            x[key]
    for key in ("text", 1.5, True, (..., ...), Tensor([1.5])):
        with pytest.raises(IndexingError):
            x[key]
    with pytest.raises(ShapeError, match="step"):
        x[::0]


def test_iteration_length_and_membership():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    assert [value(row).tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert [1, 2, 3][Tensor(1)] == 2
    with pytest.raises(DTypeError):
        len(Tensor(1.0))


def test_places_side_by_side_are_added_to_one_after_the_other() -> None:
    a, b = Tensor(np.array([0, 1, 0])), Tensor(np.array([0, 0, 2]))
    places = svod.stack([a + 0, b * 1], 1)
    found = svod.zeros(3, 3).scatter_add(1, places, svod.ones(3, 2))
    assert found.tolist() == [[2, 0, 0], [1, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 0), (30, 40)])
def test_masks_of_a_gpu_are_counted_there(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "is_cuda", True)
    rng = np.random.default_rng(3)
    x, mask = rng.standard_normal(shape, np.float32), rng.random(shape) < 0.3
    mine, chosen = Tensor(x).realize(), Tensor(mask).realize()
    np.testing.assert_array_equal(mine[chosen].numpy(), x[mask])
    np.testing.assert_array_equal(chosen.nonzero().numpy(), np.argwhere(mask))
    mine[chosen] = -mine[chosen]
    np.testing.assert_array_equal(mine.numpy(), np.where(mask, -x, x))
