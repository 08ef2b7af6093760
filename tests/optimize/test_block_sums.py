"""Sums in blocks with scales of their own: one kernel, whose words are multiplied at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.codegen.explain import explain
from svod.codegen.targets.cpu import cpu_target
from svod.ir import ops as O
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from tests.optimize.kernels import block_sums, body_of, loops_of
from tests.schedule.graphs import bodies

WITH_WORDS = Machine(vector_bytes=64, registers=32, cores=2, dots=("u8s8",))
WITHOUT = Machine(vector_bytes=32, registers=16, cores=2)
RNG = np.random.default_rng(0)


def test_the_inner_sums_stay_in_the_kernel_of_the_outer_ones() -> None:
    (body,) = bodies(block_sums(9))
    kernel = loops_of(body)
    assert [n.op for n in kernel.toposort()].count(O.REDUCE) == 2


def test_words_of_a_byte_operand_are_taken_apart_as_words() -> None:
    kernel, opts = optimize(loops_of(body_of("sums in blocks")), WITH_WORDS)
    assert [o.name for o in opts if o.name in ("LANE", "WORDS")] == ["LANE", "WORDS"]
    nodes = kernel.toposort()
    assert any(n.op == O.DOT for n in nodes)
    loads = [n for n in nodes if n.op == O.LOAD and n.dtype.itemsize == 1]
    assert not loads  # whole words are read, shifted and masked


def test_machines_without_words_multiply_number_by_number() -> None:
    kernel, opts = optimize(loops_of(body_of("sums in blocks")), WITHOUT)
    assert "LANE" in {o.name for o in opts} and not any(n.op == O.DOT for n in kernel.toposort())


@pytest.mark.parametrize("machine, line", [
    (WITH_WORDS, ""),
    (WITHOUT, "words  none: no instruction of the machine multiplies words of bytes"),
    (Machine(vector_bytes=0), "words  none: the machine has no vectors"),
])  # fmt: skip
def test_explain_says_why_there_are_no_words(machine: Machine, line: str) -> None:
    text = explain(body_of("sums in blocks"), cpu_target(machine), with_c=False)
    assert line in text and ("none:" in text) == bool(line)


def test_words_are_refused_with_the_reason() -> None:
    kernel = loops_of(body_of("sums in blocks"))
    _, opts = optimize(kernel, WITH_WORDS)
    (words,) = [o for o in opts if o.name == "WORDS"]
    (lane,) = [o for o in opts if o.name == "LANE"]
    with pytest.raises(OptimizeError, match="lanes of the columns"):
        apply_opts(kernel, [words], WITH_WORDS)
    with pytest.raises(OptimizeError, match="no instruction multiplies such words"):
        apply_opts(kernel, [lane, words], WITHOUT)
    with pytest.raises(OptimizeError, match="none of the inner sum's"):
        apply_opts(kernel, [lane, Opt("WORDS", 0, 4)], WITH_WORDS)
    with pytest.raises(OptimizeError, match="no sum of floats with one sum"):
        apply_opts(loops_of(body_of("matmul")), [Opt("WORDS", 2, 4)], WITH_WORDS)


def activations(x: Tensor) -> Tensor:
    return (x * 127.0).round().cast(svod.int8)


def test_what_the_activations_cost_is_not_paid_for_every_column() -> None:
    x = Tensor(RNG.random((1, 64), np.float32))
    w = Tensor(RNG.integers(0, 255, (8, 2, 8, 16, 4)).astype(np.uint8)).cast(svod.int32)
    q = activations(x).reshape(1, 2, 8, 1, 4).cast(svod.int32)
    scales = Tensor(RNG.random((8, 2, 16), np.float32))
    y = ((w * q).sum((2, 4), dtype=svod.int32).float() * scales).sum(1)
    assert len(bodies(y)) == 2  # the bytes of the row, then the product


def test_a_product_of_bytes_that_is_summed_afterwards_is_a_kernel_of_its_own() -> None:
    x = Tensor(RNG.integers(-9, 9, (32, 64)).astype(np.int8)).cast(svod.int32)
    w = Tensor(RNG.integers(-9, 9, (64, 48)).astype(np.int8)).cast(svod.int32)
    scale = Tensor(RNG.random(48, np.float32))
    y = ((x.unsqueeze(2) * w).sum(1, dtype=svod.int32).float() * scale).sum(1)
    assert len(bodies(y)) == 2


@pytest.mark.parametrize("rows", [1, 3, 8, 13])
def test_values_are_those_of_numpy(rows: int) -> None:
    def numbers(values: Any) -> np.ndarray[Any, Any]:
        return np.asarray(values, np.int64)

    q = numbers((np.arange(3 * 5 * 2 * 64) % 251).reshape(3, 5, 1, 2, 16, 4))
    q = np.concatenate([q & 15, q >> 4], 2)
    scales = (np.arange(240) % 13).reshape(3, 5, 16)
    x = (np.arange(rows * 80) % 7 - 3).reshape(rows, 5, 2, 2, 4)
    want = np.einsum("ngabop,mgabp,ngo->mno", q, x, scales).reshape(rows, 48)
    np.testing.assert_array_equal(block_sums(rows).numpy(), want)
