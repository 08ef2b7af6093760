"""Products on devices with tiles: windows are stored or read in place, few tiles are split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import BY_KIND, Capabilities
from svod.ir.node import UOp, make
from svod.ir.rewrite import rewrite
from svod.ir.rules import VALUES
from svod.ir.text import tree
from svod.schedule.channels import channels_last
from svod.schedule.offsets import without_offsets
from svod.schedule.operands import decide_operands
from svod.schedule.plain import plain_operands
from svod.schedule.products import product_of, tile_dtypes
from svod.schedule.schedule import clear_schedule_cache
from svod.schedule.split_reduce import split_reductions
from svod.tensor.core.tensor_core import wrap

RNG = np.random.default_rng(4)


def drawn(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape, np.float32)).realize()


@pytest.fixture
def tiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU schedules as if its products were tiles, which changes no result."""
    able = replace(BY_KIND["CPU"], copies_tiles=True, runs_blocks=True)
    monkeypatch.setitem(BY_KIND, "CPU", able)
    clear_schedule_cache()
    yield
    clear_schedule_cache()


def found(t: Tensor, device: str = "CUDA") -> set[UOp]:
    (sink,) = rewrite((make(O.SINK, dt.void, (t.uop,)),), VALUES)
    return decide_operands(sink.toposort(), lambda node: BY_KIND[device]).stored


def test_windows_of_large_convolutions_are_stored_and_nothing_else_is() -> None:
    x, w = (t.cast(dt.bfloat16).realize() for t in (drawn(4, 32, 30, 30), drawn(48, 32, 3, 3)))
    (cut,) = found(x.conv2d(w, padding=1))
    assert np.prod(cut.shape) == 4 * 30 * 30 * 32 * 9
    assert len(found(x.conv2d(w))) == 1  # without a border too
    assert not found(x.conv2d(w, padding=1), "CPU")
    assert not found(x.conv2d(w[:, :, :1, :1]))
    assert not found(x.conv2d(w[:32, :1], groups=32))
    assert not found(x[:1, :, :5, :5].conv2d(w))  # too little work
    assert not found(drawn(512, 512) @ drawn(512, 512))
    shared = drawn(2, 256, 256).cast(dt.bfloat16).realize().repeat_interleave(4, 0)
    assert not found(shared @ shared)


def test_results_with_stored_windows(tiling: None) -> None:
    a, b = RNG.standard_normal((4, 32, 20, 22)), RNG.standard_normal((48, 32, 3, 3))

    def run() -> list[np.ndarray]:  # type: ignore[type-arg]
        x = Tensor(a.astype(np.float32)).realize().requires_grad_()
        w = Tensor(b.astype(np.float32)).realize().requires_grad_()
        y = x.conv2d(w, padding=1, stride=2)
        (y * y).sum().backward()
        return [y.numpy(), x.grad.numpy(), w.grad.numpy()]  # type: ignore[union-attr]

    stored = run()
    with pytest.MonkeyPatch.context() as patch:
        able = replace(BY_KIND["CPU"], copies_tiles=False, runs_blocks=False)
        patch.setitem(BY_KIND, "CPU", able)
        clear_schedule_cache()
        for one, other in zip(stored, run(), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * np.abs(other).max())


def moved(t: Tensor) -> tuple[Tensor, int]:
    """A result from operands with channels last, as if a device took all, and how many products."""
    (sink,) = rewrite((make(O.SINK, dt.void, (t.uop,)),), VALUES)
    sink, products = channels_last(sink, Capabilities(takes=lambda body: True))
    return wrap(sink.src[0], "CPU"), len(products)


@pytest.mark.parametrize(
    "options", [{}, {"padding": 1}, {"padding": 2, "stride": 2}, {"dilation": 3}]
)
def test_channels_last_changes_nothing(options: dict[str, int]) -> None:
    x, w = (t.cast(dt.float16).realize() for t in (drawn(8, 32, 30, 30), drawn(48, 32, 3, 3)))
    v = drawn(32, 48, 3, 3).cast(dt.float16).realize()
    first = x.conv2d(w * 0.1, **options).relu()
    second = (first.conv2d(v * 0.1, padding=1) + first[:, :32]).relu()
    for result, count in ((second, 2), (first, 1)):
        found, products = moved(result)
        assert products == count
        np.testing.assert_array_equal(found.numpy(), result.numpy())


def test_what_is_stored_for_others_stays_as_it_is() -> None:
    """A copy to another device reads memory in the order it was asked for."""
    x, w = (t.cast(dt.float16).realize() for t in (drawn(8, 32, 30, 30), drawn(32, 32, 3, 3)))
    first = x.conv2d(w * 0.1, padding=1).contiguous()
    second = first.to("REF").to("CPU") + first.conv2d(w * 0.1, padding=1)
    found, products = moved(second)
    assert products == 2
    copied = [n.src[0].op for n in found.uop.toposort() if n.op == O.COPY]
    assert O.PERMUTE not in copied
    np.testing.assert_array_equal(found.numpy(), second.numpy())


def test_gradients_of_weights_with_channels_last() -> None:
    """Channels of outputs are last there, and the same memory serves the gradient of the input."""
    x, w, g = (
        t.cast(dt.float16).realize()
        for t in (drawn(8, 32, 16, 16), drawn(48, 32, 3, 3), drawn(8, 48, 16, 16))
    )
    x.requires_grad_(), w.requires_grad_()
    (x.conv2d(w, padding=1) * g).sum().backward()
    assert x.grad is not None and w.grad is not None
    both = w.grad + x.grad.mean()
    for t, wanted in ((both, 4), (w.grad, 3), (x.grad, 2)):  # the gradient of a weight is one too
        found, products = moved(t)
        assert products == (2 if wanted == 4 else 1)
        stored = [n for n in found.uop.toposort() if n.op == O.CONTIGUOUS]
        assert len(stored) == wanted
        exact = t.numpy().astype(np.float32)
        np.testing.assert_allclose(found.numpy(), exact, rtol=2e-3, atol=2e-3 * exact.max())


def test_channels_that_are_last_are_not_copied() -> None:
    x, w = (t.cast(dt.float16).realize() for t in (drawn(4, 30, 30, 32), drawn(48, 3, 3, 32)))
    found, products = moved(x.permute(0, 3, 1, 2).conv2d(w.permute(0, 3, 1, 2), padding=1))
    assert products == 1
    assert not [n for n in found.uop.toposort() if n.op == O.CONTIGUOUS]
    assert moved(drawn(512, 512).cast(dt.float16) @ drawn(512, 512).cast(dt.float16))[1] == 0


def plain(t: Tensor) -> tuple[Tensor, int]:
    """A result whose operands are stored as tiles read them, and how many were stored for it."""
    (sink,) = rewrite((make(O.SINK, dt.void, (t.uop,)),), VALUES)
    before = [n for n in sink.toposort() if n.op == O.CONTIGUOUS]
    sink, _ = without_offsets(sink, BY_KIND["CUDA"], frozenset())
    sink, _ = plain_operands(sink, BY_KIND["CUDA"], frozenset())
    after = [n for n in sink.toposort() if n.op == O.CONTIGUOUS]
    return wrap(sink.src[0], "CPU"), len(after) - len(before)


def test_operands_that_tiles_cannot_read_are_stored() -> None:
    x, w = drawn(130, 512), drawn(512, 140)
    heads = drawn(8, 5, 30, 100)
    numbers = Tensor(RNG.integers(0, 130, 120)).realize()
    for given, wanted in (
        (x @ w, 0),
        (drawn(512, 130).T @ drawn(140, 512).T, 0),
        (x[numbers] @ w, 1),
        (svod.cat([x[:, :200], x[:, 200:]], dim=1) @ w, 1),
        (drawn(130, 1024)[:, ::2] @ w, 1),
        (drawn(260, 512)[::2] @ w, 0),
        (x.flip(1) @ w, 1),
        (drawn(120, 500).pad((0, 12, 0, 10)) @ w, 1),
        (heads.permute(0, 2, 1, 3).reshape(8, 30, 500) @ drawn(500, 64), 1),
        (drawn(8, 4, 30, 128).permute(0, 2, 1, 3).reshape(8, 30, 512) @ w, 0),
        (svod.einsum("bhtd,bhsd->ts", heads, heads + 1), 2),
        (svod.einsum("nohw,nchw->oc", drawn(9, 40, 7, 7), drawn(9, 70, 7, 7)), 2),
        (svod.einsum("bti,bto->io", drawn(6, 50, 64), drawn(6, 50, 64)), 0),
        (drawn(130, 1, 64).expand(130, 8, 64).reshape(130, 512) @ w, 1),
    ):
        exact = given.uop
        found, count = plain(given)
        assert count == wanted, tree(exact)
        np.testing.assert_allclose(found.numpy(), wrap(exact, "CPU").numpy(), rtol=2e-4, atol=2e-3)


def split(t: Tensor) -> list[UOp]:
    sink = split_reductions(make(O.SINK, dt.void, (t.uop,)), None, True)
    return [n for n in sink.toposort() if n.op == O.CONTIGUOUS]


def test_products_of_few_tiles_and_many_steps_are_split() -> None:
    (pieces,) = split(drawn(64, 9000) @ drawn(9000, 96))
    assert pieces.shape[0] > 8 and sorted(pieces.shape[1:]) == [1, 64, 96]
    assert not split(drawn(64, 900) @ drawn(900, 96))  # few steps
    (pieces,) = split(drawn(1024, 4096) @ drawn(4096, 1024))  # two tiles for each multiprocessor
    assert pieces.shape[0] == 4
    assert not split(drawn(2048, 4096) @ drawn(4096, 2048))  # many tiles


@pytest.mark.parametrize(
    ("dtype", "inputs", "size", "window", "wanted"),
    [(dt.float32, 64, 32, 3, 32), (dt.float32, 3, 32, 3, 32), (dt.bfloat16, 64, 56, 1, 64)],
)
def test_gradients_of_weights_of_few_channels_are_split(
    dtype: dt.DType, inputs: int, size: int, window: int, wanted: int
) -> None:
    """As far as one axis goes, where that is less than wanted."""
    x = svod.zeros(64, inputs, size, size, dtype=dtype)
    w = svod.zeros(64, inputs, window, window, dtype=dtype).requires_grad_()
    y = x.contiguous().conv2d(w, padding=window // 2)
    g = svod.zeros(*y.shape, dtype=dtype).contiguous()
    (gradient,) = svod.autograd.grad((y * g).sum(), [w])
    assert wanted in {
        n.shape[0] for n in split(gradient) if prod(n.shape[1:]) == 64 * inputs * window**2
    }


@pytest.mark.parametrize("shape", [(64, 9000, 96), (2, 64, 5120, 96), (33, 7 * 1024, 130)])
def test_results_of_split_products(shape: tuple[int, ...], tiling: None) -> None:
    *lead, steps, columns = shape
    a, b = RNG.standard_normal((*lead, steps)), RNG.standard_normal((steps, columns))
    x, y = (Tensor(t.astype(np.float32)).realize() for t in (a, b))
    wanted = x.numpy().astype(np.float64) @ y.numpy()
    np.testing.assert_allclose((x @ y).numpy(), wanted, atol=2e-6 * steps**0.5 * 10)


def test_operands_are_stored_in_the_dtype_that_tiles_multiply() -> None:
    x, w = (drawn(256, 256).cast(dt.bfloat16).realize() for _ in range(2))
    numbers = RNG.integers(-9, 9, (256, 256)).astype(np.int8)
    wide, codes = drawn(256, 256), Tensor(numbers).realize()
    for given, wanted in (
        (x @ w, []),
        (x.gelu() @ w, [dt.bfloat16]),
        (x.float().gelu().bfloat16() @ w, [dt.bfloat16]),
        (codes.bfloat16() @ w, [dt.bfloat16]),
        (x.float() @ wide, [dt.float32]),
        (codes.float() @ wide, [dt.float32]),
        (x @ w.relu().T, [dt.bfloat16]),
    ):
        assert [n.dtype for n in found(given)] == wanted, tree(given.uop)
    sums = codes.matmul(codes.T, dtype=dt.float32)  # converted where they repeat
    stored, count = plain(sums)
    assert count == 2
    np.testing.assert_array_equal(stored.numpy(), sums.numpy())


def gradients_of_layers() -> list[Tensor]:
    x, first, second, g = (
        Tensor(RNG.standard_normal(shape).astype(np.float32)).bfloat16().realize()
        for shape in ((96, 64), (128, 64), (64, 128), (96, 64))
    )
    for t in (x, first, second):
        t.requires_grad_()
    (x.linear(first).gelu().linear(second) * g).sum().backward()
    return [t.grad for t in (x, first, second) if t.grad is not None]


PROGRAMS: dict[str, Callable[[], list[Tensor]]] = {
    "gradients of layers": gradients_of_layers,
    "repeated": lambda: [(drawn(96, 128) @ drawn(128, 64)).unsqueeze(-1) * drawn(7)],
    "gathered": lambda: [(drawn(96, 128) @ drawn(128, 64))[Tensor(RNG.integers(0, 96, 80))]],
    "flat": lambda: [(drawn(96, 128) @ drawn(128, 64)).reshape(-1) + drawn(96 * 64)],
    "half rows": lambda: [(drawn(96, 128) @ drawn(128, 64)).reshape(-1, 32) * drawn(32)],
    "two dtypes": lambda: [drawn(96, 128).bfloat16().realize() @ drawn(128, 96)],
    "deep": lambda: [(drawn(40, 9000) @ drawn(9000, 40)).bfloat16() * drawn(40, 40).bfloat16()],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_do_not_depend_on_how_operands_reach_a_product(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed, stored for tiles, or neither."""
    global RNG
    results = []
    for packs, tiles in ((True, False), (False, True), (False, False)):
        RNG = np.random.default_rng(4)
        able = replace(BY_KIND["CPU"], packs_operands=packs, copies_tiles=tiles, runs_blocks=tiles)
        monkeypatch.setitem(BY_KIND, "CPU", able)
        clear_schedule_cache()
        results.append([t.float().numpy() for t in PROGRAMS[name]()])
    clear_schedule_cache()
    *others, plainest = results
    for other in others:
        for one, wanted in zip(other, plainest, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())


def test_a_value_that_products_read_in_two_orders() -> None:
    """A convolution reads images as they are, the gradient of the next weight all of a batch as
    neighbours: one of them reads a copy."""
    x, w, v = drawn(32, 16, 16, 16), drawn(32, 16, 3, 3), drawn(32, 32, 3, 3).requires_grad_()
    y = x.conv2d(w, padding=1).relu()
    (y.conv2d(v, padding=1) * drawn(32, 32, 16, 16)).sum().backward()
    assert v.grad is not None
    both = v.grad.sum() + y.conv2d(v, padding=1)
    stored, products = moved(both)
    assert products >= 3
    exact = both.numpy()
    np.testing.assert_allclose(stored.numpy(), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_zero_points_are_taken_out_of_products_of_bytes() -> None:
    """Whole numbers wrap, so results are the same in every bit."""
    a, b = (
        Tensor(RNG.integers(-128, 127, s).astype(np.int8)).realize() for s in ((70, 300), (300, 90))
    )
    rows, columns = (Tensor(RNG.integers(-99, 99, n).astype(np.int32)).realize() for n in (70, 90))
    x, y = a.cast(dt.int32), b.cast(dt.int32)
    along = Tensor(RNG.integers(-99, 99, 300).astype(np.int32)).realize()
    for given, products in (
        ((x - 3) @ y, 1),
        ((3 + x) @ (y - columns), 1),
        ((x - rows.unsqueeze(1)) @ (columns + y), 1),
        ((x - along) @ y, 0),  # another for each step
        ((3 - x) @ y, 0),
    ):
        exact = given.uop
        found, _ = plain(given)
        known = [p for n in found.uop.toposort() if (p := product_of(n)) is not None]
        assert len([p for p in known if tile_dtypes(p)[0].itemsize == 1]) == products
        np.testing.assert_array_equal(found.numpy(), wrap(exact, "CPU").numpy())
