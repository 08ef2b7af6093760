"""Kernels for processors other than this one: chosen for their registers, compiled to assembly."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cpu import cpu_target
from svod.optimize.machine import Machine
from tests.optimize.kernels import floats, softmax
from tests.schedule.graphs import bodies

AVX2 = Machine(vector_bytes=32, registers=16, cores=2, has_masks=False)
NEON = Machine(vector_bytes=16, registers=32, cores=4, has_masks=False)
PROCESSORS = {
    "avx2": (AVX2, "x86_64-unknown-linux-gnu", "haswell"),
    "neon": (NEON, "aarch64-unknown-linux-gnu", "neoverse-n1"),
}
KERNELS: dict[str, Callable[[], Tensor]] = {
    "matmul": lambda: floats(512, 512) @ floats(512, 512),
    "odd matmul": lambda: floats(65, 300) @ floats(300, 129),
    "turned matmul": lambda: floats(256, 512) @ floats(512, 512).permute(1, 0),
    "convolution": lambda: floats(1, 16, 28, 28).conv2d(floats(32, 16, 3, 3), padding=1),
    "strided convolution": lambda: floats(1, 3, 32, 32).conv2d(
        floats(16, 3, 7, 7), stride=2, padding=3
    ),
    "softmax": lambda: softmax(64, 300),
    "columns": lambda: floats(2048, 2048).sum(0),
    "transposed": lambda: floats(130, 67).permute(1, 0) + 1,
}


def code(name: str, machine: Machine) -> KernelCode:
    return generate(bodies(KERNELS[name]())[-1], cpu_target(machine))


def assembly(kernel: KernelCode, triple: str, cpu: str) -> str:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target: Any = llvm.Target.from_triple(triple)
    except RuntimeError as problem:
        pytest.skip(f"this LLVM has no such target: {problem}")
    machine = target.create_target_machine(cpu=cpu, features="", opt=2, reloc="pic")
    parsed = llvm.parse_assembly(kernel.text().source)
    parsed.verify()
    return str(machine.emit_assembly(parsed))


def registers_spilled(text: str) -> int:
    """Vector registers that the innermost loop with the most multiply-adds loads from the stack."""
    loops = re.split(r"^\.L\w+:|^\S+:$", text, flags=re.MULTILINE)
    hot = max(loops, key=lambda part: len(re.findall(r"vfmadd|fmla", part)))
    assert len(re.findall(r"vfmadd|fmla", hot)) >= 8
    return len(re.findall(r"\(%rsp\), %ymm|ldr\tq\d+, \[sp", hot))


@pytest.mark.parametrize("kind", PROCESSORS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_another_processor(name: str, kind: str) -> None:
    machine, triple, cpu = PROCESSORS[kind]
    text = assembly(code(name, machine), triple, cpu)
    assert "zmm" not in text
    assert ("ymm" if kind == "avx2" else ".4s") in text


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_tile_fits_the_registers(kind: str) -> None:
    machine, triple, cpu = PROCESSORS[kind]
    text = assembly(code("matmul", machine), triple, cpu)
    assert registers_spilled(text) == 0


@pytest.mark.parametrize("size", [300, 512, 2000])
def test_sums_of_a_tile_are_at_most_three_quarters_of_the_registers(size: int) -> None:
    for machine in (AVX2, NEON, Machine()):
        body = bodies(floats(size, size) @ floats(size, size))[0]
        kernel = generate(body, cpu_target(machine))
        amounts = {opt.name: opt.amount for opt in kernel.opts}
        columns = amounts.get("TILE") or amounts["LANE"]
        copies = prod([opt.amount for opt in kernel.opts if opt.name == "UPCAST"])
        sums = copies * columns * 4 // machine.vector_bytes
        assert 4 <= sums <= machine.registers * 3 // 4, kernel.opts


@pytest.mark.parametrize("size", [12, 24, 48, 96, 144, 240, 336])
def test_lanes_are_vectors_that_the_code_generator_takes_apart(size: int) -> None:
    for machine in (AVX2, NEON, Machine()):
        body = bodies(floats(size, size) @ floats(size, size))[0]
        opts = generate(body, cpu_target(machine)).opts
        for opt in opts:
            if opt.name == "LANE" and opt.amount > machine.lanes(4):
                assert opt.amount // machine.lanes(4) in (2, 4), opts
