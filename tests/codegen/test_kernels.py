"""Every shape of kernel the heuristics choose, against the definition of the ops.

Each case runs as the optimiser likes it, without opts, with threads on sizes that do not divide,
with narrower vectors and with none. ``opts`` of a case says which choices must have been made.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.ir import build as B
from svod.tensor.core.tensor_core import wrap
from tests.fuzz.check import WAYS, compiling, evaluated
from tests.schedule.graphs import opt_names

Build = Callable[..., Tensor]


def data(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Whole numbers and eighths, so that sums of few are exact in any order."""
    values = np.random.default_rng(sum(shape) + len(shape)).integers(-16, 17, shape)
    if dtype == "bool":
        return values > 0
    if np.dtype(dtype).kind in "iu":
        return values.astype(dtype)
    return (values / 8).astype(dtype)


def check(build: Build, *arrays: np.ndarray, tolerance: float = 0.0) -> None:
    """The same result in every way of compiling and by definition."""
    want = evaluated(build(*[Tensor(a) for a in arrays]))
    for way in WAYS:
        with compiling(way):
            got = build(*[Tensor(a) for a in arrays]).numpy()
        assert got.dtype == want.dtype and got.shape == want.shape
        if tolerance:
            scale = np.abs(want).max(initial=1.0)
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance * scale, err_msg=way
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=way)


SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 1000)


# -- lanes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_lanes_on_the_output(size: int) -> None:
    a, b = data((size,)), data((size,))[::-1].copy()
    check(lambda x, y: x * y + x, a, b)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "int32", "int64", "float16", "float64", "bool"]
)
def test_lanes_of_every_width(dtype: str) -> None:
    a = data((7, 65), dtype)
    check(lambda x: svod.where(x == x.flip(0), x, x.flip(1)), a)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["sum", "amax", "prod"])
def test_lanes_on_a_reduction(size: int, name: str) -> None:
    a = np.sign(data((3, size))) if name == "prod" else data((3, size))
    check(lambda x: getattr(x, name)(1), a)


@pytest.mark.parametrize("size", [1, 5, 16, 33, 130])
def test_lanes_beside_a_reduction(size: int) -> None:
    check(lambda x: x.sum(0), data((9, size)))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool", "float16", "float64"])
@pytest.mark.parametrize("name", ["sum", "amin", "any", "all"])
def test_reductions_of_every_dtype(dtype: str, name: str) -> None:
    check(lambda x: getattr(x, name)(-1), data((5, 67), dtype))


def test_the_paths_are_taken() -> None:
    a, b = Tensor(data((256, 256))), Tensor(data((256, 256)))
    assert opt_names(a + b) >= {"LANE"}
    assert opt_names(a.sum(1)) >= {"LANE"}
    assert opt_names(a @ b) >= {"LANE", "UPCAST"}
    assert opt_names(Tensor(data((4, 3, 300))).sum(1)) >= {"LANE", "UNROLL"}
    assert opt_names(Tensor(data((1000, 1003))) + 1) >= {"THREAD"}


# -- register tiles, unrolling -----------------------------------------------------------------

PRODUCTS = [
    (1, 1, 1), (3, 4, 5), (1, 64, 64), (64, 1, 64), (64, 64, 1), (16, 16, 16), (17, 33, 65),
    (64, 64, 64), (5, 130, 31), (127, 3, 130), (8, 200, 48), (13, 7, 1000),
]  # fmt: skip


@pytest.mark.parametrize("rows, inner, columns", PRODUCTS)
def test_matmul_tiles_with_rests(rows: int, inner: int, columns: int) -> None:
    check(lambda x, y: x @ y, data((rows, inner)), data((inner, columns)))


@pytest.mark.parametrize("rows, inner, columns", [(17, 33, 65), (8, 64, 16), (31, 5, 7)])
def test_matmul_of_transposed_operands(rows: int, inner: int, columns: int) -> None:
    check(lambda x, y: x.permute(1, 0) @ y, data((inner, rows)), data((inner, columns)))
    check(lambda x, y: x @ y.permute(1, 0), data((rows, inner)), data((columns, inner)))
    check(
        lambda x, y: x.permute(1, 0) @ y.permute(1, 0), data((inner, rows)), data((columns, inner))
    )


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "float16", "bool"])
def test_matmul_of_every_dtype(dtype: str) -> None:
    check(lambda x, y: x @ y, data((9, 20), dtype), data((20, 35), dtype))


def test_batched_matmul_with_bias_and_activation() -> None:
    a, b, c = data((3, 17, 20)), data((3, 20, 33)), data((33,))
    check(lambda x, y, z: (x @ y + z).maximum(0) * 2, a, b, c)


def test_matmul_of_padded_and_flipped_operands() -> None:
    a, b = data((15, 30)), data((32, 17))
    check(lambda x, y: x.pad(((1, 1), (2, 0))) @ y.flip(0), a, b)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_short_reductions_are_written_out(size: int) -> None:
    check(lambda x: x.sum(1), data((5, size, 130)))
    check(lambda x: (x * x).sum((0, 2)), data((size, 40, size)))


def test_a_convolution_by_hand() -> None:
    def convolve(x: Tensor, w: Tensor) -> Tensor:
        total = None
        padded = x.pad(((0, 0), (1, 0), (0, 1)))
        for i in range(2):
            for j in range(2):
                window = padded[:, i : i + 14, j : j + 17].reshape(1, 4, 14, 17)
                term = (window * w[:, :, i, j].reshape(6, 4, 1, 1)).sum(1)
                total = term if total is None else total + term
        assert total is not None
        return total

    check(convolve, data((4, 14, 17)), data((6, 4, 2, 2)))


# -- memory access -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 16, 33, 130])
def test_strided_flipped_and_padded_access(size: int) -> None:
    a = data((6, size))
    check(lambda x: x[:, ::2] + 1, a)
    check(lambda x: x[::-1, ::-3] * 2, a)
    check(lambda x: x.pad(((2, 1), (3, 5))), a)
    check(lambda x: x.pad(((0, 0), (3, 5))).flip(1)[:, ::2] - 1, a)
    check(lambda x: x.permute(1, 0).reshape(3, -1) + 0.5, a)
    check(lambda x: x.pad(((1, 1), (1, 1))).sum(1), a)
    check(lambda x: svod.cat([x, x.flip(0), x[:1]], dim=0) + 1, a)
    check(lambda x: svod.cat([x, x[:, :3], x], dim=1).sum(1), a)


@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_gathers(count: int) -> None:
    places = np.random.default_rng(count).integers(-20, 20, count)
    check(lambda x, i: x[i], data((20, 33)), places)
    check(lambda x, i: x[:, i] * 2, data((5, 20)), places)
    check(lambda x, i: x[i, i], data((20, 20)), places)
    check(lambda x, i: x[i].sum(0), data((20, 33)), places)


def test_places_outside_read_zero() -> None:
    places = np.array([-41, -21, -20, 0, 19, 20, 1 << 40, -(1 << 62)])
    with svod.knobs.scope(CHECK_INDICES=0):  # kernels are safe by themselves
        check(lambda x, i: x[i], data((20, 17)), places)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("width", [1, 17])
def test_no_place_is_too_far_outside(dtype: str, width: int) -> None:
    limits = np.iinfo(dtype)
    places = np.array([limits.min, limits.max, limits.max // 2 + 1, 3, 19, 20], dtype)

    def gather(x: Tensor, i: Tensor) -> Tensor:
        return wrap(B.gather(x.uop, [i.uop]), None)

    def pick(x: Tensor, i: Tensor) -> Tensor:
        hot = i.reshape(6, 1) == svod.arange(20).cast(i.dtype)
        return svod.where(hot.reshape(6, 20, 1), x.reshape(1, 20, width), 0).sum(1)

    check(gather, data((20, width), "uint8"), places)
    check(pick, data((20, width), "uint8"), places)


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize("width", [1, 5, 16, 33])
def test_scattered_rows_with_duplicates(mode: str, width: int) -> None:
    places = np.array([3, 3, 0, 3, 7, 0, 99, -1, 3])

    def scatter(x: Tensor, values: Tensor, i: Tensor) -> Tensor:
        return wrap(B.scatter(x.uop, values.uop, [i.uop], mode), None)

    a, values = data((8, width)), data((9, width))
    want = a.copy()
    for row, place in zip(values, places, strict=True):
        if 0 <= place < 8:
            want[place] = row if mode == "set" else want[place] + row
    for way in WAYS:
        with compiling(way):
            got = scatter(Tensor(a), Tensor(values), Tensor(places)).numpy()
        np.testing.assert_array_equal(got, want, err_msg=way)


@pytest.mark.parametrize("mode", ["set", "add"])
def test_scattered_elements_with_duplicates(mode: str) -> None:
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 5, 200), rng.integers(0, 4, 200)
    a, values = data((5, 4)), data((200,))
    want = a.copy()
    for value, y, x in zip(values, i, j, strict=True):
        want[y, x] = value if mode == "set" else want[y, x] + value
    for way in WAYS:
        with compiling(way):
            nodes = [Tensor(v).uop for v in (a, values, i, j)]
            got = wrap(B.scatter(nodes[0], nodes[1], nodes[2:], mode), None).numpy()
        np.testing.assert_array_equal(got, want, err_msg=way)


@pytest.mark.parametrize("way", WAYS)
def test_in_place_writes_that_read_their_target(way: str) -> None:
    a = data((33, 65))
    with compiling(way):
        x = Tensor(a).realize()
        x.assign(x.flip(0) + x).realize()
        np.testing.assert_array_equal(x.numpy(), a[::-1] + a)
        y = Tensor(a).realize()
        y[1:].assign(y[:-1]).realize()
        np.testing.assert_array_equal(y.numpy(), np.concatenate([a[:1], a[:-1]]))
        z = Tensor(a).realize()
        z[:, 3:50].assign(z[:, 3:50] * 2).realize()
        want = a.copy()
        want[:, 3:50] *= 2
        np.testing.assert_array_equal(z.numpy(), want)


# -- reductions of every form ------------------------------------------------------------------


def test_empty_reductions() -> None:
    empty = np.zeros((0, 3), np.float32)
    check(lambda x: x.sum(0), empty)
    check(lambda x: x.prod(0) + 1, empty)
    check(lambda x: x.any(0), empty)
    check(lambda x: x.sum(), empty)
    check(lambda x: svod.cat([x.sum(0), x.prod(0)], dim=0), empty)


@pytest.mark.parametrize("shape", [(1 << 17,), (100003,), (3, 70000), (70000, 3), (260, 256)])
@pytest.mark.parametrize("name", ["sum", "amax"])
def test_huge_reductions(shape: tuple[int, ...], name: str) -> None:
    array = data(shape)
    with compiling("default"):
        for axes in [None, 0, -1]:
            got = getattr(Tensor(array), name)(axes).numpy()
            want = getattr(array.astype(np.float64), "max" if name == "amax" else name)(axes)
            np.testing.assert_array_equal(got, want.astype(np.float32))


def test_huge_reductions_of_small_dtypes() -> None:
    bits = data((300_000,), "bool")
    assert Tensor(bits).sum().item() == int(bits.sum())
    assert Tensor(bits).all().item() is False
    halves = np.full(200_000, 0.125, np.float16)
    assert Tensor(halves).mean().item() == 0.125
    bytes_ = data((200_003,), "uint8")
    assert Tensor(bytes_).sum().item() == int(bytes_.sum(dtype=np.uint64))


def test_nested_reductions() -> None:
    a = data((9, 6, 33))
    check(lambda x: x.sum(2).amax(1), a)
    check(lambda x: (x - x.amax(2, True)).sum(2).amin(0), a)
    check(lambda x: (x * x.sum((1, 2), True)).sum(0), a, tolerance=1e-5)
    check(lambda x: ((x - x.sum(0, True)) > 0).sum(), a)


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (9, 16), (17, 33), (40, 130), (3, 1000)])
def test_two_reductions_in_one_kernel(shape: tuple[int, ...]) -> None:
    a = data(shape)
    check(lambda x: x.sum(1) + x.amax(1), a)
    check(lambda x: x - x.sum(1, True) + x.amax(1, True), a)
    check(lambda x: x.sum(1, True) * x.amin(0, True), a)

    def softmax(x: Tensor) -> Tensor:
        grown = (x - x.amax(1, True)).exp()
        return grown / grown.sum(1, True)

    check(softmax, a, tolerance=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(33, 2, 5), (9, 16, 7), (3, 5, 70), (20, 9, 17)])
def test_heavy_values_that_two_passes_need(shape: tuple[int, ...], axis: int) -> None:
    a = data(shape)

    def normalize(x: Tensor) -> Tensor:
        y = (x * 0.5).exp()
        return y / y.sum(axis, True) - (x + 1).tanh() * (x + 1).tanh().amax(axis, True)

    check(normalize, a, tolerance=1e-5)


def test_sums_of_products_over_two_axes() -> None:
    a, b = data((4, 9, 17)), data((4, 5, 17))
    check(
        lambda x, y: (x.reshape(4, 9, 1, 17) * y.reshape(4, 1, 5, 17)).sum((0, 3)), a, b
    )  # fmt: skip


def test_several_outputs_of_one_value() -> None:
    a = data((20, 33))
    for way in WAYS:
        with compiling(way):
            x = Tensor(a)
            y = x * 2 + 1
            outputs = [y.sum(0), y.sum(1), y.amax(), y.permute(1, 0), y]
            svod.realize(*outputs)
            want = a * 2 + 1
            for got, right in zip(
                outputs, [want.sum(0), want.sum(1), want.max(), want.T, want], strict=True
            ):
                np.testing.assert_array_equal(got.numpy(), right, err_msg=way)


@pytest.mark.parametrize("way", WAYS)
def test_many_kernels_in_one_plan(way: str) -> None:
    a = data((16, 16))
    with compiling(way):
        x = Tensor(a)
        for i in range(12):
            x = ((x @ Tensor(np.eye(16, dtype=np.float32))) + i).contiguous()
        np.testing.assert_array_equal(x.numpy(), a + sum(range(12)))
