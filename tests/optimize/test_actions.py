"""Opts as lists: the heuristics' choice, a user's own, and everything one step away from either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from svod import Tensor
from svod.ir.verify import verify_kernel
from svod.optimize import heuristics
from svod.optimize.actions import OptimizeError, apply_opts, chain
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.neighbours import neighbours
from svod.optimize.opts import Opt
from svod.runtime.config import OptimizerConfig, PrepareConfig
from svod.runtime.search_pool import WorkerPool
from tests.fuzz.programs import make_program, tensors
from tests.optimize.kernels import (
    KERNELS,
    MACHINE,
    bench_of,
    body_of,
    candidates,
    floats,
    loops_of,
    softmax,
    values,
)
from tests.schedule.graphs import bodies, loop_nest

MACHINES = (
    MACHINE,
    Machine(vector_bytes=32, registers=16, cores=7, has_masks=False),
    Machine(vector_bytes=0, cores=2),
    Machine(vector_bytes=16, cores=1),
)


@pytest.fixture
def threads_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 1.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as workers:
        yield workers


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes} bytes")
def test_the_heuristics_are_a_list_that_makes_the_same_kernel(
    machine: Machine, threads_always: None
) -> None:
    found = [body_of(name) for name in KERNELS]
    for seed in range(40):
        program = make_program(seed)
        made = tensors(program)
        found += bodies(*[made[i] for i in program.outputs])
    found += bodies(floats(300, 200) @ floats(250, 200).permute(1, 0))
    for body in found:
        kernel = loop_nest(body)
        want, opts = optimize(kernel, machine)
        assert apply_opts(kernel, opts, machine) is want, chain(opts)


@pytest.mark.parametrize("name", KERNELS)
def test_every_neighbour_computes_the_same(
    name: str, pool: WorkerPool, threads_always: None
) -> None:
    body = body_of(name)
    kernel = loops_of(body)
    _, opts = optimize(kernel, MACHINE)
    lists = [[], list(opts), *neighbours(kernel, (), MACHINE), *neighbours(kernel, opts, MACHINE)]
    tried = candidates(kernel, lists[:2] + lists[2::2])
    bench = bench_of(body, pool)
    bench.compile(tried)
    want = values(bench, tried[0])
    for candidate in tried:
        verify_kernel(candidate.kernel, "opts", shared_loops=True)
        got = values(bench, candidate)
        np.testing.assert_allclose(got, want, rtol=1e-4, err_msg=chain(candidate.opts))
    assert len(tried) > 4


def test_neighbours_hold_every_kind_of_opt() -> None:
    kernel = loops_of(bodies(floats(256, 256) @ floats(256, 256))[0])
    names = {opt.name for opts in neighbours(kernel, (), MACHINE) for opt in opts}
    assert names >= {"LANE", "UPCAST", "UNROLL", "TILE", "STAGE", "BLOCK", "THREAD", "MOVE"}
    _, opts = optimize(loops_of(body_of("softmax")), MACHINE)
    without = neighbours(loops_of(body_of("softmax")), opts, MACHINE)
    assert any(all(opt.name != "KEEP" for opt in each) for each in without)


def test_neighbours_are_distinct_and_never_the_list_itself() -> None:
    kernel = loops_of(body_of("matmul"))
    _, opts = optimize(kernel, MACHINE)
    found = [tuple(each) for each in neighbours(kernel, opts, MACHINE)]
    assert len(found) == len(set(found)) and tuple(opts) not in found


REFUSED = [
    ([Opt("SPIN", 0, 2)], "there is no such opt: use one of OUTER"),
    ([Opt("UPCAST", 99, 2)], "nothing is left of axis 99"),
    ([Opt("UNROLL", 0, 2)], "UNROLL takes a reduced axis"),
    ([Opt("UPCAST", 2, 2)], "UPCAST takes an output axis"),
    ([Opt("UPCAST", 0, 100)], "the axis has 17 steps"),
    ([Opt("UPCAST", 0, 0)], "the amount is below one"),
    ([Opt("LANE", 1, 1)], "use 2 to 1024 lanes"),
    ([Opt("LANE", 1, 16), Opt("LANE", 0, 16)], "some values have lanes already"),
    ([Opt("STAGE", 1, 1)], "STAGE needs a TILE"),
    ([Opt("TILE", 1, 16)], "has a TILE without a STAGE"),
    ([Opt("TILE", 1, 15), Opt("STAGE", 1, 1)], "no contraction with these columns"),
    ([Opt("THREAD", 5, 2)], "there are 2 loops"),
    ([Opt("THREAD", 0, 1)], "the loop is too short"),
    ([Opt("MOVE", 0, 1)], "the loop is outside already"),
    ([Opt("KEEP", 1)], "there is nothing to keep"),
    ([Opt("DOT", 2, 2)], "no instruction multiplies such words"),
    ([Opt("STRIP", 0, 4)], "STRIP takes a row axis of a contraction after its STAGE"),
    ([Opt("TILE", 1, 16), Opt("STAGE", 1, 5), Opt("STRIP", 2, 2)], "STRIP takes an output axis"),
    ([Opt("UPCAST", 0, 2), Opt("DOT", 2, 2)], "DOT comes before all others"),
]


@pytest.mark.parametrize("opts, reason", REFUSED, ids=[reason for _, reason in REFUSED])
def test_an_opt_that_does_not_fit_is_refused_with_the_reason(opts: list[Opt], reason: str) -> None:
    with pytest.raises(OptimizeError, match=reason):
        apply_opts(loops_of(body_of("matmul")), opts, MACHINE)


def test_a_strip_that_scratch_memory_cannot_hold_is_refused() -> None:
    kernel = loops_of(bodies((floats(64, 8192) + 1) @ floats(8192, 32))[0])
    panel = [Opt("TILE", 1, 16), Opt("STAGE", 1, 1)]
    apply_opts(kernel, [*panel, Opt("STRIP", 0, 8)], MACHINE)
    with pytest.raises(OptimizeError, match="strips hold up to 524288 bytes"):
        apply_opts(kernel, [*panel, Opt("STRIP", 0, 32)], MACHINE)


def test_words_wait_for_a_stage() -> None:
    machine = replace(MACHINE, dots=("bf16",))
    kernel = loops_of(body_of("words of bfloat16"))
    with pytest.raises(OptimizeError, match="has a DOT without a STAGE"):
        apply_opts(kernel, [Opt("DOT", 2, 2)], machine)
    with pytest.raises(OptimizeError, match="after DOT come DEPTH, TILE and STAGE"):
        apply_opts(kernel, [Opt("DOT", 2, 2), Opt("LANE", 1, 16)], machine)


@pytest.mark.parametrize(
    "opt", [Opt("UPCAST", 0, 2), Opt("LANE", 0, 4), Opt("THREAD", 0, 2)], ids=str
)
def test_the_order_of_a_store_is_kept(opt: Opt) -> None:
    x = floats(8, 3).realize()
    x[Tensor(np.array([1, 1, 2, 1]))] = floats(4, 3)
    ordered = [b for b in bodies(x) if loops_of(b).src[0].src[0].arg == "ordered"]
    with pytest.raises(OptimizeError, match=r"order|lanes"):
        apply_opts(loops_of(ordered[0]), [opt], MACHINE)


# -- a user's own list ----------------------------------------------------------------------------


def test_a_list_of_opts_is_used_as_given() -> None:
    opts = [Opt("UPCAST", 0, 4), Opt("LANE", 1, 16)]
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 64
    plan = (Tensor(a) + 1).prepare(config=PrepareConfig(OptimizerConfig(opts=[Opt("LANE", 0, 8)])))
    plan.execute()
    product = Tensor(a) @ Tensor(a)
    config = PrepareConfig(OptimizerConfig(opts=opts))
    plan = product.prepare(config=config)
    plan.execute()
    (kernel,) = plan.kernels()
    assert "<16 x float>" in kernel.source and "<32 x float>" not in kernel.source
    np.testing.assert_allclose(product.numpy(), a @ a, rtol=1e-5)


def test_opts_by_the_name_of_the_kernel_leave_the_others_alone() -> None:
    total, other = floats(40, 64).sum(1), softmax(8, 64)
    (name,) = [k.entry_point for k in floats(40, 64).sum(1).prepare().kernels()]
    config = PrepareConfig(OptimizerConfig(opts={name: [Opt("LANE", 1, 8)]}))
    np.testing.assert_array_equal(_ran(total, config), np.full(40, 64.0))
    np.testing.assert_allclose(_ran(other, config), np.full((8, 64), 1 / 64), rtol=1e-6)


def test_a_list_that_does_not_fit_names_the_kernel() -> None:
    config = PrepareConfig(OptimizerConfig(opts=[Opt("UNROLL", 0, 4)]))
    with pytest.raises(OptimizeError, match=r"kernel add_.*UNROLL takes a reduced axis"):
        (floats(16) + 1).prepare(config=config)


def test_another_list_is_another_configuration() -> None:
    texts = [
        OptimizerConfig(opts=opts).fingerprint()
        for opts in (None, [], [Opt("LANE", 0, 8)], {"add": [Opt("LANE", 0, 8)]})
    ]
    assert len(set(texts)) == 4


def _ran(tensor: Tensor, config: PrepareConfig) -> np.ndarray:
    plan = tensor.prepare(config=config)
    plan.execute()
    return tensor.numpy()
