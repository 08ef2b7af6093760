"""Sorts on a GPU, run by the emulator: sizes around the borders of blocks, digits, batches."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svod.codegen.pipeline import generate
from svod.codegen.render.radix import CHOSEN, shared_bytes
from svod.codegen.targets.cuda import cuda_target, takes_whole
from svod.device.cuda.compiler import emit_ptx
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg, RadixArg
from svod.ir.evaluate import evaluate
from svod.ir.node import UOp, make
from svod.optimize.gpu_machine import GpuMachine
from svod.schedule.sorts import BY_BLOCKS
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import ARCH, assemble

SHARE = BY_BLOCKS.share

Array = np.ndarray[Any, Any]
NUMPY = {dt.uint64: np.uint64, dt.int64: np.int64, dt.uint32: np.uint32}


def parameter(slot: int, dtype: dt.DType, shape: tuple[int, ...]) -> UOp:
    return B.view_as(make(O.PARAM, dtype, (), ParamArg(slot, (prod(shape),))), shape)


def body_of(value: UOp) -> UOp:
    target = parameter(0, value.dtype, value.shape)
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, value)),))


def emulated(value: UOp, *arrays: Array) -> Array:
    """What the kernel of a value writes, given its arguments from slot 1 on."""
    code = generate(body_of(value), cuda_target(GpuMachine()))
    result = np.zeros(value.shape, NUMPY[value.dtype])
    memory = dict(enumerate((result, *arrays)))
    found = Emulator(code.text().source, memory, code.threads)
    found.run(tuple([int(s.arg) for s in derive_metadata(code.kernel).global_size]))
    return result


def expected(value: UOp, *arrays: Array) -> Array:
    leaves = {n: arrays[n.arg.slot - 1].reshape(-1) for n in value.toposort() if n.op == O.PARAM}
    return evaluate(value, leaves)


def words(shape: tuple[int, ...], keys: int, bits: int = 32) -> Array:
    """Keys above the places, among few or many, spread over the bits."""
    rng = np.random.default_rng(prod(shape) + keys)
    key = rng.integers(0, keys, shape, np.uint64) * np.uint64(((1 << bits) - 1) // keys)
    return (key << np.uint64(32)) | np.arange(shape[-1], dtype=np.uint64)


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (3, 31), (2, 256), (2, 257), (1, 1000), (1, 4096), (1, 4097), (1, SHARE)],
)
@pytest.mark.parametrize("keys", [3, 1 << 20])
def test_rows_are_sorted_by_one_block(shape: tuple[int, ...], keys: int) -> None:
    x = words(shape, keys)
    value = B.sort(parameter(1, dt.uint64, shape), None, 32, 64)
    assert (emulated(value, x) == np.sort(x, -1)).all()


@pytest.mark.parametrize(("low", "high"), [(32, 33), (32, 40), (32, 48), (0, 64), (60, 64)])
def test_bits_that_may_be_out_of_order(low: int, high: int) -> None:
    rng = np.random.default_rng(low + high)
    place = np.arange(300, dtype=np.uint64) >> np.uint64(0)
    key = rng.integers(0, 1 << min(high - low, 63), (2, 300), np.uint64)
    x = (key << np.uint64(low)) | (place if low else np.uint64(0))
    found = emulated(B.sort(parameter(1, dt.uint64, x.shape), None, low, high), x)
    assert (found == np.sort(x, -1)).all()


@pytest.mark.parametrize("count", [1, 10, 175, 176, 255, 256, 257, 699])
@pytest.mark.parametrize("keys", [1, 50, 1 << 30])
def test_the_smallest_are_kept(count: int, keys: int) -> None:
    x = words((2, 700), keys)
    value = B.sort(parameter(1, dt.uint64, x.shape), count, 32, 64)
    assert (emulated(value, x) == np.sort(x, -1)[:, :count]).all()
    places = B.sort(parameter(1, dt.uint64, x.shape), count, 32, 64, shown=32)
    assert (emulated(places, x) == np.argsort(x, -1)[:, :count]).all()


@pytest.mark.parametrize(("low", "high"), [(12, 44), (13, 21), (13, 23), (13, 29), (12, 13)])
def test_few_are_selected_by_their_highest_bits(low: int, high: int) -> None:
    rng = np.random.default_rng(high)
    key = rng.integers(0, 1 << (high - low), (2, 5000), np.uint64)
    most = np.full_like(key, (1 << (high - low)) - 1)
    few = np.where(rng.random(key.shape) < 0.01, key, most)
    alike = key >> np.uint64(high - low - 1)
    for kept, near in ((1, key), (100, key), (40, alike), (90, most), (90, few)):
        x = (near << np.uint64(13)) | np.arange(5000, dtype=np.uint64)
        value = B.sort(parameter(1, dt.uint64, x.shape), kept, 13, 13 + high - low)
        assert (emulated(value, x) == np.sort(x, -1)[:, :kept]).all()


@pytest.mark.parametrize("size", [512, 1000, 1024, 1300])
@pytest.mark.parametrize("low", [32, 40, 56])
def test_steps_of_long_rows(size: int, low: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(0, 1 << 63, (2, size), np.uint64) * np.uint64(2)
    memory = parameter(1, dt.uint64, x.shape)
    count = make(O.RADIX, dt.uint32, (memory,), RadixArg("count", low, 512))
    counts = expected(count, x)
    assert counts.sum() == x.size
    assert (emulated(count, x) == counts).all()
    start = make(
        O.RADIX, dt.uint32, (parameter(1, dt.uint32, counts.shape),), RadixArg("start", low, 512)
    )
    starts = expected(start, counts)
    assert (emulated(start, counts) == starts).all()
    sums = parameter(2, dt.uint32, starts.shape)
    deal = make(O.RADIX, dt.uint64, (memory, sums), RadixArg("deal", low, 512))
    assert (emulated(deal, x, starts) == expected(deal, x, starts)).all()


@pytest.mark.parametrize("parts", [1, 255, 256, 257, 1024, 1030, 3000])
def test_counts_are_added_up(parts: int) -> None:
    rng = np.random.default_rng(parts)
    counts = rng.integers(0, 4096, (1, 2, parts), np.uint32)
    value = make(
        O.RADIX, dt.uint32, (parameter(1, dt.uint32, counts.shape),), RadixArg("start", 32, 4096)
    )
    assert (emulated(value, counts) == expected(value, counts)).all()


@pytest.mark.parametrize("size", [300, 4096, 4097, SHARE])
def test_shared_memory_is_what_is_said(size: int) -> None:
    value = B.sort(parameter(1, dt.uint64, (2, size)), size // 50, 13, 45)
    text = generate(body_of(value), cuda_target(GpuMachine())).text()
    assert text.needs.shared <= shared_bytes(size) <= text.needs.shared + CHOSEN
    is_small = GpuMachine(most_shared_bytes=64 << 10)
    assert takes_whole(body_of(value), is_small) == (shared_bytes(size) <= 64 << 10)


def test_kernels_assemble_without_spills(tmp_path: Path) -> None:
    x = parameter(1, dt.uint64, (8, 20000))
    starts = parameter(2, dt.uint32, (8, 256, 6))
    values = [
        B.sort(parameter(1, dt.uint64, (8, size)), None, 32, 64) for size in (300, 4096, SHARE)
    ]
    values.append(B.sort(parameter(1, dt.uint64, (8, 4096)), 50, 12, 44))
    values.append(make(O.RADIX, dt.uint32, (x,), RadixArg("count", 32, 4096)))
    values.append(make(O.RADIX, dt.uint64, (x, starts), RadixArg("deal", 32, 4096)))
    texts = [generate(body_of(v), cuda_target(GpuMachine())).text().source for v in values]
    said = assemble([emit_ptx(text, ARCH) for text in texts], tmp_path)
    assert said.count("0 bytes spill stores") == (len(texts) if said else 0)
