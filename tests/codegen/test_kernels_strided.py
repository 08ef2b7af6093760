"""Loads that jump from lane to lane: vector loads and shuffles, with every rest and border."""

from __future__ import annotations

import numpy as np
import pytest

from svod import Tensor, arange, stack, where
from svod.codegen.pipeline import generate
from svod.codegen.targets.cpu import cpu_target
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.verify import verify_kernel
from svod.optimize.machine import Machine
from tests.codegen.test_kernels import check, data
from tests.optimize.kernels import floats
from tests.schedule.graphs import bodies

WIDE = Machine(vector_bytes=64, registers=32)
MACHINES = [WIDE, Machine(vector_bytes=32, registers=16), Machine(vector_bytes=16)]


def text(x: Tensor, machine: Machine = WIDE) -> str:
    (body,) = bodies(x)
    return generate(body, cpu_target(machine)).text().function


SHAPES = [(64, 64), (16, 100), (100, 16), (37, 53), (5, 300), (300, 4), (3, 3), (130, 67)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposed_copies(shape: tuple[int, int]) -> None:
    check(lambda x: x.permute(1, 0) + 0, data(shape))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int16", "int64", "bool"])
def test_transposed_copies_of_any_dtype(dtype: str) -> None:
    check(lambda x: x.permute(1, 0).contiguous(), data((37, 70), dtype))


def test_channels_go_last_and_first() -> None:
    image = data((2, 5, 9, 11))
    check(lambda x: x.permute(0, 2, 3, 1).contiguous(), image)
    check(lambda x: x.permute(0, 3, 1, 2).contiguous(), image)


def test_a_transposed_operand_of_a_sum() -> None:
    check(lambda x, y: x.permute(1, 0) * 2 + y, data((50, 40)), data((40, 50)))


def test_a_transposed_operand_with_a_border() -> None:
    check(lambda x: x.pad(((1, 2), (3, 1))).permute(1, 0) + 1, data((40, 30)))


@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [31, 64, 65, 200])
def test_every_second_element(step: int, size: int) -> None:
    check(lambda x: x[::step] + 1, data((size,)))
    check(lambda x: x.flip(0)[1::step] + 1, data((size,)))


@pytest.mark.parametrize("step", [2, 3])
def test_every_second_element_with_a_border(step: int) -> None:
    check(lambda x: x.pad(((0, 0), (3, 2)))[:, ::step] + 1, data((7, 61)))
    check(lambda x: x.pad(((0, 0), (1, 1)))[:, 1::step] + 1, data((7, 61)))


def test_neighbours_share_what_is_read() -> None:
    """Pairs of elements: two vectors are read for two results."""
    check(lambda x: x[::2] - x[1::2], data((200,)))
    source = text(Tensor(np.ones(1024, np.float32))[::2] - Tensor(np.ones(1024, np.float32))[1::2])
    assert "gather" not in source


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes} bytes")
def test_no_gather_is_left(machine: Machine) -> None:
    for x in (floats(64, 48).permute(1, 0) + 1, floats(2, 8, 10, 10).permute(0, 2, 3, 1) + 1):
        assert "gather" not in text(x, machine)
    assert "gather" not in text(floats(1000)[::2] + 1, machine)


def test_an_image_read_every_second_pixel_with_its_border() -> None:
    image = data((2, 3, 15, 17))
    check(lambda x: x.pad(((0, 0), (0, 0), (1, 1), (1, 1)))[:, :, ::2, ::2] * 2, image)


VECTOR = dt.float32.vec(4)


@pytest.mark.parametrize(
    "lanes, sources, reason",
    [((0, 8), 2, "takes lanes"), ((0, 4), 1, "takes lanes"), ((0, 1, 2), 2, "it makes")],
)
def test_a_shuffle_of_lanes_that_are_not_there_is_refused(
    lanes: tuple[int, ...], sources: int, reason: str
) -> None:
    splat = make(O.CONST, VECTOR, (), 1.0)
    pair = (splat, make(O.NEG, VECTOR, (splat,)))[:sources]
    shuffled = make(O.SHUFFLE, dt.float32.vec(2), pair, lanes)
    with pytest.raises(Exception, match=reason):
        verify_kernel(_stored(shuffled), "lower")


def _stored(value: UOp) -> UOp:
    (body,) = bodies(floats(4) + 1)
    kernel = generate(body, cpu_target(WIDE)).kernel
    store = kernel.src[0].src[0]
    end = make(
        O.END, dt.void, (make(O.STORE, dt.void, (store.src[0], value)), *kernel.src[0].src[1:])
    )
    return make(O.SINK, dt.void, (end,))


@pytest.mark.parametrize("columns", [1, 3, 7, 9])
def test_few_columns_of_long_rows(columns: int) -> None:
    check(lambda x, y: x @ y, data((70, 100)), data((100, columns)))
    check(lambda x, y: x.permute(1, 0) @ y.permute(1, 0), data((100, columns)), data((70, 100)))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [3, 5, 7])
def test_windows_with_steps_and_borders(size: int, stride: int) -> None:
    image, weights = data((2, 4, 19, 28)), data((16, 4, size, size))
    check(lambda x, w: x.conv2d(w, stride=stride, padding=size // 2), image, weights)


# -- stores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("size", [16, 31, 64, 200])
def test_parts_side_by_side(parts: int, size: int) -> None:
    """Interleaved up to four, rows of a block beyond; with and without a rest."""
    check(lambda x: stack([x * (i + 1) + x.sqrt() for i in range(parts)], -1), data((size,)) ** 2)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_rows_of_parts_with_a_rest(parts: int) -> None:
    """Lanes past the end of a short row store nothing."""
    check(lambda x: stack([x * (i + 1) - 2 for i in range(parts)], -1), data((7, 10)))
    check(lambda x: stack([x.permute(1, 0) * (i + 1) for i in range(parts)], -1), data((40, 11)))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_side_by_side_along_any_axis(axis: int) -> None:
    check(lambda x: stack([x + 1, x * x, x - 2], axis), data((12, 40)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64", "bool"])
def test_parts_side_by_side_of_any_dtype(dtype: str) -> None:
    check(lambda x: stack([x, x.flip(0)], -1), data((70,), dtype))


def test_parts_of_parts_side_by_side() -> None:
    def pairs(x: Tensor) -> Tensor:
        a, b = x[:, :20], x[:, 20:]
        return stack([stack([a + b, a - b], -1), stack([a * b, b - a], -1)], 1)

    check(pairs, data((9, 40)))
    check(lambda x: stack([pairs(x), pairs(x) * 2], 0), data((9, 40)))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes} bytes")
def test_no_scatter_is_left(machine: Machine) -> None:
    x = floats(64, 48)
    for parts in ([x + 1, x * x], [x + i for i in range(8)]):
        assert "scatter" not in text(stack(parts, -1), machine)


def test_what_parts_share_is_computed_once() -> None:
    x = floats(1000)
    shared = x.exp()
    together = text(stack([shared + 1, shared - 2, shared - 3], -1))
    assert together.count("fmul") == text(shared).count("fmul")


def test_choices_by_an_axis_that_moves_with_it_stay() -> None:
    """Only values that have nothing to do with the axis are written out."""

    def chosen(x: Tensor) -> Tensor:
        place = arange(20)
        return where(place < 3, x.amax(1, keepdim=True), x)

    check(chosen, data((17, 20)))
    check(lambda x: where(arange(20) < 3, 1.5, x).amax(-1), data((17, 20)))


def test_stacks_of_stacks_beyond_what_is_written_out() -> None:
    def cube(x: Tensor) -> Tensor:
        for scale in (1, 2, 3):
            x = stack([x * (scale + i) + 1 for i in range(8)], -1)
        return x

    check(cube, data((6,)))


def test_the_last_of_values_set_at_one_place_wins() -> None:
    """Stores with an order are not copied side by side."""
    place = Tensor(np.array([0, 1, 0, 1, 2, 2]))
    x = Tensor(np.arange(12, dtype=np.float32).reshape(6, 2))
    values = stack([x[:, 0] + 1, x[:, 1] * 2], 1).reshape(12)
    found = Tensor(np.zeros(3, np.float32)).scatter(0, place.repeat_interleave(2), values)
    wanted = np.zeros(3, np.float32)
    for i, v in zip(np.repeat(place.numpy(), 2), values.numpy(), strict=True):
        wanted[i] = v
    np.testing.assert_array_equal(found.numpy(), wanted)
