"""Loops that cannot be compiled: plainer ones are taken, counted and shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from svod import Tensor
from svod.base.errors import CompileError, CreateProgramError, RenderError, VerifyError
from svod.base.knobs import knobs
from svod.codegen import pipeline, plainer
from svod.device.cpu import compiler
from svod.device.device import Device, Toolchain
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec, ProgramSpec
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp
from svod.optimize import heuristics
from svod.optimize.actions import OptimizeError
from svod.optimize.opts import Opt
from svod.runtime.caches import clear_kernel_cache, compiled_kernels
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.tools.explain import explanation

rng = np.random.default_rng(5)
A = rng.standard_normal((37, 41)).astype(np.float32)
B = rng.standard_normal((41, 29)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_is_known():
    clear_kernel_cache()
    yield
    clear_kernel_cache()


def product() -> Tensor:
    return (Tensor(A) @ Tensor(B)).exp()


def check(tensor: Tensor) -> None:
    np.testing.assert_allclose(tensor.numpy(), np.exp(A @ B), rtol=1e-3)


def has(kernel: UOp, *kinds: AxisKind) -> bool:
    return any(n.op == O.RANGE and n.arg.kind in kinds for n in kernel.toposort())


def refusing(refuses: Callable[[UOp], bool], problem: Exception) -> Callable[..., Any]:
    original = pipeline.linearize

    def linearize(kernel: UOp) -> Any:
        if refuses(kernel):
            raise problem
        return original(kernel)

    return linearize


def vectors(kernel: UOp) -> bool:
    return any(n.dtype.lanes > 1 for n in kernel.toposort())


def test_loops_that_cannot_be_lowered_give_way_to_plainer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "linearize", refusing(vectors, ValueError("no vectors")))
    before = plainer.counters["kernels"]
    with knobs.scope(FALLBACK=1):
        text = explanation(product())
        assert "plainer: " in text and "no vectors" in text
        assert plainer.counters["kernels"] == before, "explaining compiles nothing"
        result = product()
        plan = result.prepare()
        plan.execute()
        check(result)
        assert "plainer: " in explanation(plan) and "no vectors" in explanation(plan)
    assert plainer.counters["kernels"] == before + 1
    name, reason = plainer.latest[-1]
    assert "matmul" in name and "no vectors" in reason


def test_heuristics_that_fail_give_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise KeyError("an axis")

    monkeypatch.setattr(heuristics, "choose_bands", broken)
    monkeypatch.setattr(heuristics, "_staged", broken)
    before = plainer.counters["kernels"]
    with knobs.scope(FALLBACK=1):
        check(product())
        assert "LANE" in explanation(product()), "the next choice has lanes"
    assert plainer.counters["kernels"] == before + 1
    clear_kernel_cache()
    with pytest.raises(CompileError, match=r"matmul.*'an axis' \(KeyError\)"):
        product().realize()


def test_text_that_llvm_refuses_gives_way_to_that_of_plainer_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = compiler.emit_object

    def emit(source: str, *target: object) -> bytes:
        if "<" in source.split("define", 1)[1]:  # a vector
            raise CompileError("LLVM refused a generated module: vectors")
        return original(source, *target)

    monkeypatch.setattr(compiler, "emit_object", emit)
    before = plainer.counters["kernels"]
    with knobs.scope(FALLBACK=1, OBJECT_CACHE=0):
        compiler.object_store.cache_clear()
        first, second = product(), (Tensor(A) + 2).sum(1)
        first.realize(second)
        check(first)
        np.testing.assert_allclose(second.numpy(), (A + 2).sum(1), rtol=1e-5)
    compiler.object_store.cache_clear()
    assert plainer.counters["kernels"] == before + 2


def test_without_the_fallback_the_error_names_kernel_and_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "linearize", refusing(vectors, ValueError("no vectors")))
    with pytest.raises(RenderError, match=r"CPU could not render 'matmul_exp.*no vectors \(Value"):
        product().realize()


def test_what_a_user_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "linearize", refusing(vectors, ValueError("no vectors")))
    config = PrepareConfig(OptimizerConfig(opts=[Opt("LANE", 0, 8)]))
    with knobs.scope(FALLBACK=1), pytest.raises(RenderError, match="no vectors"):
        (Tensor(A) + 3).prepare(config=config)


def test_a_failed_check_is_no_reason_for_plainer_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = VerifyError("a rule is broken", "lower")
    monkeypatch.setattr(pipeline, "linearize", refusing(vectors, problem))
    with knobs.scope(FALLBACK=1), pytest.raises(VerifyError, match="a rule is broken"):
        product().realize()


def test_a_kernel_that_no_loops_help_is_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "linearize", refusing(lambda kernel: True, ValueError("never")))
    with (
        knobs.scope(FALLBACK=1),
        pytest.raises(RenderError, match=r"could not render 'matmul_exp.*never"),
    ):
        product().realize()


def test_code_that_cannot_be_loaded_on_the_cpu_names_its_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(binary: bytes) -> Any:
        raise OSError("no room for code")

    monkeypatch.setattr(compiler, "load_image", broken)
    with pytest.raises(CreateProgramError, match=r"could not load 'matmul_exp.*no room for code"):
        product().realize()


def test_a_search_that_fails_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from svod.runtime import search

    def broken(*given: Any) -> Any:
        raise OptimizeError("could not be timed: compile_err")

    monkeypatch.setattr(search, "search_kernel", broken)
    config = PrepareConfig(OptimizerConfig(Strategy.BEAM, width=1))
    with knobs.scope(TUNED=0), pytest.raises(OptimizeError, match="could not be timed"):
        product().realize(config=config)
    before = plainer.counters["kernels"]
    with knobs.scope(TUNED=0, FALLBACK=1):
        found = product()
        found.realize(config=config)
    check(found)
    assert plainer.counters["kernels"] == before + 1
    assert plainer.latest[-1][1] == "could not be timed: compile_err"


def test_a_plan_of_a_gpu_that_cannot_be_rendered_gives_way_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread per output: PTX is generated, nothing is run."""
    from svod.codegen.pipeline import generate
    from svod.codegen.targets.cuda import cuda_target
    from svod.device.cuda.compiler import CudaRenderer
    from svod.optimize.gpu_machine import GpuMachine

    renderer = CudaRenderer(GpuMachine())
    source: list[str] = []

    class Compiler:
        def cache_key(self) -> str:
            return f"a compiler of {id(self)}"

        def compile(self, spec: ProgramSpec) -> CompiledSpec:
            source.append(spec.src)
            return CompiledSpec.from_bytes(spec.name, b"code", spec.ast)

    cpu = get_device("CPU")
    toolchain = Toolchain(((renderer, Compiler()),), lambda compiled: lambda *given: None)
    device = Device("SPY", cpu.allocator, toolchain)
    config = PrepareConfig(device_resolver=lambda name: device)
    (body,) = [op.ast for op in product().prepare().prepared_kernels()]

    def broken(*given: Any) -> Any:
        raise KeyError("a tile")

    import svod.optimize.gpu as choices

    planners = [p._replace(plan=broken) if p.name == "tile" else p for p in choices.PLANNERS]
    monkeypatch.setattr(choices, "PLANNERS", planners)
    with pytest.raises(RenderError, match=r"'a tile' \(KeyError\)"):
        compiled_kernels([body], "SPY", config)
    before = plainer.counters["kernels"]
    with knobs.scope(FALLBACK=1):
        (kernel,) = compiled_kernels([body], "SPY", config).values()
    assert plainer.counters["kernels"] == before + 1 and "a tile" in plainer.latest[-1][1]
    plain = generate(body, cuda_target(renderer.machine), is_plain=True)
    assert plain.symbol in source[0] and kernel.source == source[0]
