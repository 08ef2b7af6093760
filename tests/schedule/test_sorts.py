"""Sorts as kernels of devices: what the lowered graph means is what the sort means."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg, RadixArg
from svod.ir.capabilities import BY_KIND
from svod.ir.evaluate import evaluate
from svod.ir.node import UOp, make
from svod.ir.verify import verify_tensor_graph
from svod.schedule.sorts import BY_BLOCKS, lowered_sorts
from svod.tensor.core.tensor_core import wrap

Array = np.ndarray[Any, Any]
CASES = [  # shape, bits of the key, how many are kept
    ((5,), 32, 5),
    ((3, 100), 8, 100),
    ((37, 100), 32, 40),
    ((2, 3, 256), 16, 256),
    ((2, 4096), 32, 4096),
    ((2, 5000), 32, 7),
    ((1, 8193), 32, 8193),
    ((2, 17000), 16, 16999),
    ((40_000,), 32, 1000),
    ((300_000,), 32, 50),
]


def words(shape: tuple[int, ...], bits: int) -> tuple[Array, int]:
    """Keys, many of them alike, above places; and the bits of a place."""
    rng = np.random.default_rng(prod(shape))
    low = max(1, (shape[-1] - 1).bit_length())
    key = rng.integers(0, 1 << bits, shape, np.uint64)
    key = np.where(rng.random(shape) < 0.5, key, key >> np.uint64(bits - 2))
    return (key << np.uint64(low)) | np.arange(shape[-1], dtype=np.uint64), low


def graph(shape: tuple[int, ...], bits: int, kept: int, low: int) -> tuple[UOp, UOp]:
    memory = make(O.PARAM, dt.uint64, (), ParamArg(1, (prod(shape),)))
    return B.sort(B.view_as(memory, shape), kept, low, low + bits), memory


@pytest.mark.parametrize(("shape", "bits", "kept"), CASES)
@pytest.mark.parametrize("device", ["CPU", "CUDA", "REF"])
def test_kernels_mean_the_same(shape: tuple[int, ...], bits: int, kept: int, device: str) -> None:
    x, low = words(shape, bits)
    found, memory = graph(shape, bits, kept, low)
    lowered = lowered_sorts(make(O.SINK, dt.void, (found,)), device)
    verify_tensor_graph(lowered, "sorts")
    wanted = np.sort(x, -1)[..., :kept]
    assert (evaluate(lowered.src[0], {memory: x.reshape(-1)}) == wanted).all()
    places = B.sort(found.src[0], kept, low, low + bits, shown=low)
    lowered = lowered_sorts(make(O.SINK, dt.void, (places,)), device)
    verify_tensor_graph(lowered, "sorts")
    result = evaluate(lowered.src[0], {memory: x.reshape(-1)})
    assert result.dtype == np.int64
    assert (result == wanted.astype(np.int64) & ((1 << low) - 1)).all()


@pytest.mark.parametrize(("shape", "bits", "kept"), CASES)
def test_kernels_of_the_cpu_sort(shape: tuple[int, ...], bits: int, kept: int) -> None:
    x, low = words(shape, bits)
    found = wrap(B.sort(Tensor(x).realize().uop, kept, low, low + bits), None)
    assert (found.numpy() == np.sort(x, -1)[..., :kept]).all()


@pytest.mark.parametrize(("low", "high"), [(0, 64), (57, 64), (60, 64), (3, 20), (0, 1)])
@pytest.mark.parametrize("size", [300, 40_000])
def test_any_bits(low: int, high: int, size: int) -> None:
    rng = np.random.default_rng(low)
    x = rng.integers(0, 1 << min(63, high - low), (2, size), np.uint64) << np.uint64(low)
    found = wrap(B.sort(Tensor(x).realize().uop, None, low, high), None)
    assert (found.numpy() == np.sort(x, -1)).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_cores_share_the_work(threads: int) -> None:
    rng = np.random.default_rng(threads)
    svod.set_threads(threads)
    try:
        for shape in ((7, 9000), (200_001,)):
            x = rng.standard_normal(shape).astype(np.float32)
            np.testing.assert_array_equal(
                Tensor(x).argsort(-1).numpy(), np.argsort(x, -1, kind="stable")
            )
    finally:
        svod.set_threads(0)


def test_rows_too_long_for_a_block_are_dealt() -> None:
    found, memory = graph((2, 8000), 32, 8000, 13)
    x, _ = words((2, 8000), 32)
    for is_taken, op in ((True, O.SORT), (False, O.RADIX)):
        lowered = lowered_sorts(
            make(O.SINK, dt.void, (found,)),
            "CUDA",
            lambda device, fits=is_taken: replace(BY_KIND["CUDA"], takes=lambda body: fits),
        )
        assert {n.op for n in lowered.toposort()} & {O.SORT, O.RADIX} == {op}
        assert (evaluate(lowered.src[0], {memory: x.reshape(-1)}) == np.sort(x, -1)).all()


def test_all_digits_of_a_long_row_are_the_same_kernels() -> None:
    found, _ = graph((1 << 20,), 32, 1 << 20, 20)
    lowered = lowered_sorts(make(O.SINK, dt.void, (found,)), "CUDA")
    steps = [n for n in lowered.toposort() if n.op == O.RADIX]
    assert len(steps) == 12
    assert {n.arg for n in steps} == {
        RadixArg(step, 20, BY_BLOCKS.dealt) for step in ("count", "start", "deal")
    }


def test_rows_of_any_number_are_sorted() -> None:
    rows = svod.Variable("rows", 1, 8)
    x = np.random.default_rng(1).standard_normal((8, 300)).astype(np.float32)
    some = Tensor(x).realize()[: rows.bind(5)]
    np.testing.assert_array_equal(some.sort(-1).values.numpy(), np.sort(x[:5], -1))


def test_steps_of_a_loop_may_sort() -> None:
    x = np.random.default_rng(2).standard_normal((3, 20_000)).astype(np.float32)

    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        ordered = (carry + row).sort(-1).values
        return ordered, ordered[:3]

    last, firsts = svod.scan(step, svod.zeros(20_000), Tensor(x))
    wanted = np.zeros(20_000, np.float32)
    for row in range(3):
        wanted = np.sort(wanted + x[row])
        np.testing.assert_array_equal(firsts.numpy()[row], wanted[:3])
    np.testing.assert_array_equal(last.numpy(), wanted)


def test_a_batch_of_functions_sorts() -> None:
    x = np.random.default_rng(3).standard_normal((4, 500)).astype(np.float32)
    found = svod.func.vmap(lambda row: row.sort(-1).values)(Tensor(x))
    np.testing.assert_array_equal(found.numpy(), np.sort(x, -1))


def test_what_cannot_be_sorted_is_refused() -> None:
    x = Tensor(np.zeros((2, 10), np.uint64)).uop
    with pytest.raises(DTypeError, match="uint64"):
        B.sort(B.cast(x, dt.int32))
    with pytest.raises(ShapeError, match="keep 11 of 10"):
        B.sort(x, 11)
    with pytest.raises(ShapeError, match="4294967296 words of an axis are too many"):
        B.sort(B.full((1 << 32,), 0, dt.uint64))
    with pytest.raises(ShapeError, match="bits 5 to 5"):
        B.sort(x, 3, 5, 5)
