"""Small decisions on the way to kernels, one by one."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.device.launch import default_size
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg, ReduceArg, SortArg
from svod.ir.node import UOp, make
from svod.runtime.ops import CompiledKernel
from svod.schedule import sorts
from svod.schedule.split_reduce import split_reductions
from svod.tensor.core.tensor_registry import buffer_of


def param(size: int, dtype: dt.DType = dt.float32) -> UOp:
    return make(O.PARAM, dtype, (), ParamArg(1, (size,)))


@pytest.mark.parametrize("op, wide", [(O.ADD, True), (O.MUL, True), (O.MAX, False)])
def test_partial_sums_of_small_floats_are_kept_wide(op: int, wide: bool) -> None:
    source = param(1 << 20, dt.bfloat16)
    total = make(O.REDUCE_AXIS, dt.bfloat16, (source,), ReduceArg(op, (0,)))
    sink = make(O.SINK, dt.void, (make(O.CONTIGUOUS, dt.bfloat16, (total,)),))
    found = split_reductions(sink)
    folds = [n for n in found.toposort() if n.op == O.REDUCE_AXIS]
    assert len(folds) == 2, "it is split"
    assert {n.dtype for n in folds} == {dt.float32 if wide else dt.bfloat16}


@pytest.mark.parametrize("rows, size", [(1000, 2), (256, 4), (257, 4), (3, 8)])
def test_rows_that_are_sorted_together_have_numbers_of_one_digit(rows: int, size: int) -> None:
    words = make(O.PARAM, dt.uint64, (), ParamArg(1, (rows, size)))
    found = sorts._together(words, SortArg(size, 0, 16, 16))
    counts = [n for n in found.toposort() if n.op == O.IOTA]
    assert counts and all(n.shape[0] <= 1 << sorts.DIGIT_BITS for n in counts)


def test_a_kernel_without_groups_of_work_items_has_its_size_at_once() -> None:
    kernel = CompiledKernel(lambda *given: None, "CPU", "", "k", local_size=None)
    assert kernel.dims is not None and kernel.dims.local_size is None
    assert kernel.dims.global_size == (1, 1, 1)
    assert CompiledKernel(lambda *given: None, "CPU", "", "k").global_size == default_size()


def test_values_of_one_batch_are_computed_where_their_sources_are() -> None:
    here, there = (Tensor(np.ones(4, np.float32), device=d).realize() for d in ("CPU", "REF"))
    results = [here + 1, (there * 3).sum(), there.exp()]
    svod.realize(*results)
    found = [buffer_of(t.uop) for t in results]
    assert [b.device for b in found if b is not None] == ["CPU", "REF", "REF"]
    assert results[1].item() == 12
