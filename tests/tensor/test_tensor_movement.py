"""Shapes: movement, joining and splitting against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import IndexingError, ShapeError
from svod.ir import ops as O
from tests.tensor.check import Cases, pair


def test_reshape_and_relatives():
    x, a = pair((2, 3, 4))
    cases = Cases()
    cases.add("reshape", x.reshape(4, 6), a.reshape(4, 6))
    cases.add("minus one", x.view(2, -1), a.reshape(2, -1))
    cases.add("tuple", x.reshape((24,)), a.reshape(24))
    cases.add("flatten", x.flatten(1), a.reshape(2, 12))
    cases.add("flatten part", x.flatten(0, 1), a.reshape(6, 4))
    cases.add("unflatten", x.unflatten(-1, (2, -1)), a.reshape(2, 3, 2, 2))
    cases.add("unsqueeze", x.unsqueeze(-1).unsqueeze(0), a[None, ..., None])
    cases.add("squeeze", x.reshape(1, 2, 1, 12).squeeze(), a.reshape(2, 12))
    cases.add("squeeze axis", x.reshape(1, 2, 1, 12).squeeze(0), a.reshape(2, 1, 12))
    cases.add("ravel", x.ravel(), a.ravel())
    cases.add("scalar", Tensor(3.0).reshape(1, 1), np.full((1, 1), 3, np.float32))
    cases.add("empty", Tensor(np.ones((0, 3), np.float32)).reshape(3, 0), np.ones((3, 0), "f"))
    cases.run()
    with pytest.raises(ShapeError, match=r"cannot reshape \(2, 3, 4\)"):
        x.reshape(5, 5)
    with pytest.raises(ShapeError):
        x.reshape(-1, -1)
    with pytest.raises(ShapeError):
        x.reshape(-1, 7)


def test_axes():
    x, a = pair((2, 3, 4))
    cases = Cases()
    cases.add("permute", x.permute(2, 0, 1), a.transpose(2, 0, 1))
    cases.add("permute twice", x.permute(2, 0, 1).permute(1, 2, 0), a)
    cases.add("transpose", x.transpose(0, -1), a.swapaxes(0, -1))
    cases.add("T", x.T, a.T)
    cases.add("mT", x.mT, a.swapaxes(-1, -2))
    cases.add("movedim", x.movedim(0, -1), np.moveaxis(a, 0, -1))
    cases.add("movedim two", x.movedim((0, 1), (2, 0)), np.moveaxis(a, (0, 1), (2, 0)))
    cases.add("permute_dims", svod.permute_dims(x, (1, 0, 2)), a.transpose(1, 0, 2))
    cases.run()
    assert x.permute(2, 0, 1).permute(1, 2, 0).uop is x.uop
    with pytest.raises(ShapeError):
        x.permute(0, 0, 1)
    with pytest.raises(ShapeError, match="axis 3 is out of range"):
        x.transpose(0, 3)
    with pytest.raises(IndexingError):
        x.transpose(0, 3)


def test_expand_flip_roll_repeat():
    x, a = pair((2, 1, 3))
    cases = Cases()
    cases.add("expand", x.expand(4, 2, 5, 3), np.broadcast_to(a, (4, 2, 5, 3)))
    cases.add("expand -1", x.expand(-1, 2, -1), np.broadcast_to(a, (2, 2, 3)))
    cases.add("flip", x.flip(0, 2), np.flip(a, (0, 2)))
    cases.add("flip all", x.flip(), np.flip(a))
    cases.add("roll", x.roll(1, 2), np.roll(a, 1, 2))
    cases.add("roll two", x.roll((1, -4), (0, 2)), np.roll(a, (1, -4), (0, 2)))
    cases.add("roll flat", x.roll(2), np.roll(a, 2))
    cases.add("repeat", x.repeat(2, 3, 1, 2), np.tile(a, (2, 3, 1, 2)))
    cases.add("tile", x.tile((2,)), np.tile(a, (2,)))
    cases.add("interleave", x.repeat_interleave(3, 0), np.repeat(a, 3, 0))
    cases.add("interleave flat", x.repeat_interleave(2), np.repeat(a, 2))
    cases.add("rot90", x.rot90(1, (0, 2)), np.rot90(a, 1, (0, 2)))
    cases.add("rot270", x.rot90(3, (0, 2)), np.rot90(a, 3, (0, 2)))
    cases.run()
    with pytest.raises(ShapeError, match="only axes of size 1 grow"):
        x.expand(3, 1, 3)


def test_pad_modes():
    x, a = pair((3, 4))
    cases = Cases()
    cases.add("last axis", x.pad((1, 2)), np.pad(a, ((0, 0), (1, 2))))
    cases.add("both", x.pad((1, 2, 3, 0)), np.pad(a, ((3, 0), (1, 2))))
    cases.add("pairs", x.pad(((3, 0), (1, 2))), np.pad(a, ((3, 0), (1, 2))))
    five = np.pad(a, ((0, 0), (1, 1)), constant_values=5)
    cases.add("value", x.pad((1, 1), value=5), five)
    low = np.pad(a, ((0, 0), (1, 1)), constant_values=-np.inf)
    cases.add("-inf", x.pad((1, 1), value=float("-inf")), low)
    cases.add("negative", x.pad((-1, 2)), np.pad(a[:, 1:], ((0, 0), (0, 2))))
    for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        wanted = np.pad(a, ((0, 0), (2, 3)), mode=name)
        cases.add(mode, x.pad((2, 3), mode=mode), wanted)
        cases.add(
            mode + " first", x.pad((0, 0, 2, 0), mode=mode), np.pad(a, ((2, 0), (0, 0)), name)
        )
    cases.add("bool", Tensor([True]).pad((1, 1)), [False, True, False])
    cases.add("twice", x.pad((1, 0)).pad((0, 1)), np.pad(a, ((0, 0), (1, 1))))
    cases.run()
    with pytest.raises(ShapeError):
        x.pad((4, 0), mode="reflect")
    with pytest.raises(ShapeError, match="mode"):
        x.pad((1, 1), mode="mirror")


def test_triangles_and_diagonals():
    x, a = pair((2, 4, 5))
    cases = Cases()
    for k in (-2, 0, 1, 9):
        cases.add(f"tril {k}", x.tril(k), np.tril(a, k))
        cases.add(f"triu {k}", x.triu(k), np.triu(a, k))
        cases.add(f"diagonal {k}", x.diagonal(k, 1, 2), np.diagonal(a, k, 1, 2))
    cases.add("diag", x[0].diag(), np.diag(a[0]))
    cases.add("from vector", x[0, 0].diag(1), np.diag(a[0, 0], 1))
    cases.add("embed", x[0].diag_embed(-1)[2], np.diag(a[0, 2], -1))
    cases.add("trace", x[0].trace(), np.trace(a[0]), atol=1e-6)
    nan = Tensor(np.full((2, 2), np.nan, np.float32))
    cases.add("nan stays inside", nan.tril()[0, 1], np.float32(0))
    cases.run()


def test_cat_stack_split():
    x, a = pair((2, 3))
    y, b = pair((4, 3), seed=1)
    z, c = pair((1, 3), seed=2)
    cases = Cases()
    cases.add("cat", svod.cat([x, y, z]), np.concatenate([a, b, c]))
    cases.add("concat", svod.concat([x, x, x], axis=-1), np.concatenate([a, a, a], -1))
    cases.add("flat", svod.concat([x, y], axis=None), np.concatenate([a, b], None))
    cases.add("method", x.cat(y, dim=0), np.concatenate([a, b]))
    cases.add("stack", svod.stack([x, x * 2], dim=1), np.stack([a, a * 2], 1))
    cases.add("stack method", x.stack(x, x), np.stack([a, a, a]))
    mixed = svod.cat([x, Tensor(np.ones((1, 3), np.float64))])
    cases.add("promotes", mixed, np.concatenate([a, np.ones((1, 3))]))
    empty = Tensor(np.ones((0, 3), np.float32))
    cases.add("empty part", svod.cat([empty, x, empty]), a)
    nan = Tensor([np.nan, -0.0])
    cases.add("exact", svod.cat([nan, nan]).signbit(), [False, True, False, True])
    for i, part in enumerate(y.split(3)):
        cases.add(f"split {i}", part, [b[:3], b[3:]][i])
    for i, part in enumerate(y.split([1, 0, 3])):
        cases.add(f"sizes {i}", part, [b[:1], b[1:1], b[1:]][i])
    for i, part in enumerate(y.chunk(3)):
        cases.add(f"chunk {i}", part, [b[:2], b[2:]][i])
    for i, part in enumerate(y.tensor_split(3)):
        cases.add(f"tensor_split {i}", part, np.array_split(b, 3)[i])
    for i, part in enumerate(y.tensor_split((1, 3))):
        cases.add(f"places {i}", part, np.array_split(b, (1, 3))[i])
    for i, part in enumerate(y.unbind(1)):
        cases.add(f"unbind {i}", part, b[:, i])
    many = [Tensor(np.full(2, i, np.float32)) for i in range(33)]
    cases.add("many", svod.stack(many), np.repeat(np.arange(33, dtype="f"), 2).reshape(33, 2))
    cases.run()
    with pytest.raises(ShapeError, match="differ"):
        svod.cat([x, y], dim=1)
    with pytest.raises(ShapeError):
        svod.cat([])
    with pytest.raises(ShapeError):
        y.split([1, 1])


def test_stacking_2000_tensors_stays_shallow():
    x = Tensor([1.0, 2.0])
    found = svod.stack([x + i for i in range(2000)])
    assert found.shape == (2000, 2)


def test_no_op_movement_adds_no_nodes():
    x = Tensor(np.ones((2, 3), np.float32))
    for same in (
        x.reshape(2, 3),
        x.permute(0, 1),
        x.expand(2, 3),
        x[:],
        x[:, 0:3],
        x.float(),
        x.reshape(6).reshape(2, 3),
        x.T.T,
        x.squeeze().sum(()),
    ):
        assert same.uop is x.uop
    assert x.reshape(6).reshape(3, 2).uop.src[0].op == O.BUFFER
    assert x[1:][:, 1:].uop.op == O.SHRINK
    assert x[1:][:, 1:].uop.src[0] is x.uop
    assert x.pad((1, 0)).pad((0, 1)).uop.src[0] is x.uop


def test_unfold_and_windows():
    x, a = pair((2, 9))
    wanted = np.lib.stride_tricks.sliding_window_view(a, 4, axis=1)[:, ::2]
    cases = Cases()
    cases.add("unfold", x.unfold(1, 4, 2), wanted)
    cases.add("first axis", x.T.unfold(0, 4, 3), np.moveaxis(a, 1, 0).T[
        :, np.add.outer(np.arange(0, 6, 3), np.arange(4))].transpose(1, 0, 2))  # fmt: skip
    cases.run()


def test_counts_of_repetition_fit_the_axis() -> None:
    x = Tensor(np.arange(6).reshape(2, 3))
    for counts in ([2, 0, 1], [3]):
        found = x.repeat_interleave(Tensor(np.array(counts)), dim=1)
        np.testing.assert_array_equal(found.numpy(), np.arange(6).reshape(2, 3).repeat(counts, 1))
    with pytest.raises(ShapeError, match="repeats are whole numbers, 1 or 3 of them"):
        x.repeat_interleave(Tensor(np.array([1, 2])), dim=1)


def test_padding_with_the_two_zeros() -> None:
    x = Tensor(np.ones(2, np.float32))
    for value, is_negative in ((0.0, False), (-0.0, True), (0, False)):
        found = x.pad((1, 1), value=value).numpy()
        assert np.signbit(found).tolist() == [is_negative, False, False, is_negative]


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_a_diagonal_is_replaced(offset: int) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    line = -np.arange(1, len(array.diagonal(offset)) + 1, dtype=np.float32)
    exact = array.copy()
    for place, value in enumerate(line):
        exact[place + max(0, -offset), place + max(0, offset)] = value
    found = Tensor(array).diagonal_scatter(Tensor(line), offset)
    np.testing.assert_array_equal(found.numpy(), exact)
    batch = np.stack([array, array + 50], 2)  # the diagonal of the first and the second axis
    lines = np.stack([line, line - 9], 0)
    both = Tensor(batch).diagonal_scatter(Tensor(lines), offset, 0, 1).numpy()
    np.testing.assert_array_equal(both[:, :, 0], exact)
    swapped = Tensor(array.T.copy()).diagonal_scatter(Tensor(line), -offset).numpy()
    np.testing.assert_array_equal(swapped.T, exact)


@pytest.mark.parametrize("cut", [np.s_[::-1], np.s_[4:1:-2], np.s_[1:4], np.s_[3:3:-1]])
def test_parts_taken_backwards_are_read_and_written(cut: slice) -> None:
    array = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(Tensor(array)[cut].numpy(), array[cut])
    x = Tensor(array)
    x[cut] = Tensor(array[cut] * -1)
    exact = array.copy()
    exact[cut] *= -1
    np.testing.assert_array_equal(x.numpy(), exact)
