"""Loops of a run-time size around kernels: what they are inside is what fixed sizes would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod.ir import ops as O
from svod.ir.symbolic import size_text
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.heuristics import optimize
from svod.optimize.opts import Opt
from tests.optimize.kernels import MACHINE, body_of, loops_of
from tests.schedule.graphs import bodies

RNG = np.random.default_rng(0)
BATCH = svod.Variable("batch", 1, 8)
LENGTH = svod.Variable("length", 1, 48)


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def planned(build: Any, *shape: Any) -> Any:
    """A plan of a function of one input, with frozen weights."""
    most = [n if isinstance(n, int) else n.arg.hi for n in shape]
    whole = svod.Tensor.empty(*most).realize()
    x = whole[tuple([slice(0, n) for n in shape])]
    return svod.prepare(build(x), inputs={"x": x}, outputs=["y"], freeze=True)


def opts_of(name: str) -> set[str]:
    return {opt.name for opt in optimize(loops_of(body_of(name)), MACHINE)[1]}


def test_a_convolution_of_a_batch_reads_packed_weights() -> None:
    w = random(32, 16, 3, 3)

    def build(x: Any) -> Any:
        return x.conv2d(svod.Tensor(w), padding=1, stride=2)

    plan = planned(build, BATCH, 16, 20, 20)
    for batch in (1, 3, 8):
        x = random(batch, 16, 20, 20)
        wanted = build(svod.Tensor(x)).numpy()
        np.testing.assert_allclose(plan(x=x), wanted, rtol=1e-4, atol=1e-4)
    assert {"OUTER", "WINDOW"} <= opts_of("window of a batch")


def test_rows_of_a_run_time_number_are_tiles_of_rows() -> None:
    w = random(64, 96)
    plan = planned(lambda x: (x @ svod.Tensor(w)).gelu(), BATCH, LENGTH, 64)
    for batch, length in ((1, 1), (2, 13), (8, 48)):
        x = random(batch, length, 64)
        wanted = (svod.Tensor(x) @ svod.Tensor(w)).gelu().numpy()
        np.testing.assert_allclose(plan(x=x), wanted, rtol=1e-4, atol=1e-4)


def test_attention_of_a_batch_is_one_kernel() -> None:
    def build(x: Any) -> Any:
        scores = (x @ x.transpose(-1, -2)) * 0.25
        return scores.softmax(-1) @ x

    plan = planned(build, BATCH, 4, 40, 16)
    for batch in (1, 5):
        x = random(batch, 4, 40, 16)
        wanted = build(svod.Tensor(x)).numpy()
        np.testing.assert_allclose(plan(x=x), wanted, rtol=1e-4, atol=1e-5)
    assert {"OUTER", "BAND"} <= opts_of("attention of a batch")


def test_cores_share_a_loop_that_is_there_for_a_batch_of_one() -> None:
    x = svod.Tensor.ones(8, 64, 1024)[: BATCH.bind(1)]
    y = x.exp() + svod.Tensor(random(64, 1024))
    kernel, opts = optimize(loops_of(bodies(y)[-1]), MACHINE)
    assert opts[-1].name == "THREAD"
    loops = [r for r in kernel.src[0].src[1:] if r.src[0].op != O.CONST]
    assert [size_text(r.src[0]) for r in loops] == ["batch"]


def test_only_run_time_axes_go_outside() -> None:
    with pytest.raises(OptimizeError, match="run-time size"):
        apply_opts(loops_of(body_of("matmul")), [Opt("OUTER", 0)], MACHINE)


def test_a_size_of_one_element_at_most_is_a_loop_like_others() -> None:
    size = svod.Variable("few", 0, 1)
    x = svod.Tensor.empty(1, 4).realize()[:size]
    results = x * 2, x.sum(0), x @ svod.Tensor(np.eye(4, dtype=np.float32)), x.T + 1
    plan = svod.prepare(*results, inputs={"x": x})
    for count in (1, 0, 1):
        given = random(count, 4)
        wanted = given * 2, given.sum(0), given, given.T + 1
        for found, right in zip(plan(x=given), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-6)
