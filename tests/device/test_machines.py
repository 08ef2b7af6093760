"""What CPU kernels are compiled for: one description for the optimiser, LLVM, caches and plans."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import (
    ConfigError,
    CreateProgramError,
    ExecutionError,
    PlanFormatError,
    UnsupportedError,
)
from svod.base.knobs import knobs
from svod.base.system import system
from svod.base.system.linux import Linux
from svod.codegen.render.llvm import LLVMRenderer
from svod.device.cpu import compiler, features, host
from svod.device.cpu.features import BASELINE, V2, V3, V4, decoded, host_features
from svod.device.cpu.host import architecture, host_machine, machine_of, target, target_of
from svod.device.cpu.targets import Target, parse_target
from svod.optimize.contraction import tile_of
from svod.optimize.machine import Machine
from svod.runtime import portable
from svod.runtime.caches import clear_kernel_cache, optimizer_machine
from svod.runtime.load import load_plan
from svod.runtime.tuning import tuning_identity

on_x86 = pytest.mark.skipif(architecture() != "x86_64", reason="about x86-64 processors")
KINDS = ("avx512", "avx2", "sse4", "generic")


def runnable() -> list[str]:
    """The machines whose code this processor runs."""
    found = []
    for name in KINDS:
        wanted = target_of(name)
        if wanted.architecture == architecture() and (wanted.features or set()) <= host_features():
            found.append(name)
    return found


def attention(rows: int = 15, columns: int = 65) -> tuple[Tensor, np.ndarray]:
    rng = np.random.default_rng(2)
    q, k, v = [rng.standard_normal((2, n, 24)).astype("f4") for n in (rows, columns, columns)]
    scores = q.astype("f8") @ k.transpose(0, 2, 1) / np.sqrt(24)
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    return found, grown / grown.sum(-1, keepdims=True) @ v


# -- what a processor has --------------------------------------------------------------------------


@on_x86
def test_our_reading_of_the_processor_is_llvms() -> None:
    import llvmlite.binding as llvm

    theirs = llvm.get_host_cpu_features()
    known = set(BASELINE).union(*[b.values() for r in features._BITS.values() for b in r.values()])
    assert known <= set(theirs), "every name is one that LLVM knows"
    assert {n for n in known if theirs[n]} == set(host_features()) & known


FULL = {(0, 0): (13, 0, 0, 0), (0x80000000, 0): (0x80000008, 0, 0, 0)}


def leaves(**changes: tuple[int, int, int, int]) -> dict[tuple[int, int], tuple[int, ...]]:
    """A processor with every bit set."""
    ones = (0xFFFFFFFF,) * 4
    every = dict.fromkeys([(1, 0), (7, 0), (7, 1), (0x80000001, 0)], ones)
    return {**FULL, **every}


def read(table: dict[tuple[int, int], tuple[int, ...]], saved: int) -> frozenset[str]:
    return decoded(lambda leaf, sub: table.get((leaf, sub), (0, 0, 0, 0)), lambda: saved)


def test_registers_that_the_system_does_not_save_are_not_there() -> None:
    everything = read(leaves(), 0xE7)
    assert everything >= V4 and "avx512bf16" in everything
    only_avx = read(leaves(), 0x7)
    assert only_avx >= V3 and not any(n.startswith("avx512") for n in only_avx)
    nothing = read(leaves(), 0x3)
    assert nothing >= V2 and not {"avx", "avx2", "fma", "f16c"} & nothing


def test_leaves_beyond_the_highest_are_not_read() -> None:
    table = {**leaves(), (0, 0): (1, 0, 0, 0), (0x80000000, 0): (0x80000000, 0, 0, 0)}
    old = read(table, 0xE7)
    assert "sse4.2" in old and not {"avx2", "bmi", "lzcnt", "avx512f"} & old


def test_facts_follow_the_features() -> None:
    wide, middle, narrow = [machine_of(name) for name in ("avx512", "avx2", "sse4")]
    assert [m.vector_bytes for m in (wide, middle, narrow)] == [64, 32, 16]
    assert [m.registers for m in (wide, middle, narrow)] == [32, 16, 16]
    assert [m.has_fma for m in (wide, middle, narrow)] == [True, True, False]
    assert [m.has_masks for m in (wide, middle, narrow)] == [True, False, False]
    assert not wide.dots and not middle.dots, "no processor of the kind must have them"
    arm = machine_of("neon")
    assert (arm.vector_bytes, arm.registers, arm.has_fma) == (16, 32, True)
    assert wide.cores == narrow.cores == host_machine().cores


def test_text_of_the_system_is_no_source_of_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator or a sandbox may show the text of another processor."""
    before = machine_of("host")
    machine_of.cache_clear()
    target_of.cache_clear()
    monkeypatch.setattr(Linux, "processor_name", lambda self: "avx512f avx512vl amx")
    try:
        assert machine_of("host") == before
    finally:
        machine_of.cache_clear()
        target_of.cache_clear()


@on_x86
def test_code_keeps_to_what_the_processor_says_whatever_llvm_thinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the features of an older processor no instruction of a newer one is generated."""
    import llvmlite.binding as llvm

    poor = Target("host", "x86_64", "", V2)
    monkeypatch.setattr(compiler, "target", lambda: poor)
    source = """define void @scale(ptr %p) {
  %x = load <16 x float>, ptr %p, align 4
  %y = fmul <16 x float> %x, %x
  store <16 x float> %y, ptr %p, align 4
  ret void
}
"""
    text = compiler._target_machine(poor).emit_assembly(llvm.parse_assembly(source))
    assert "mulps" in text and "vmulps" not in text and "%zmm" not in text


# -- the knob --------------------------------------------------------------------------------------


def test_the_knob_sets_the_optimiser_and_the_code_generator() -> None:
    for name in KINDS:
        with knobs.scope(MACHINE=name):
            assert optimizer_machine("CPU") == machine_of(name)
            assert target() is target_of(name)
    with pytest.raises(ConfigError, match="SVOD_MACHINE='pentium' is not valid: use one of host"):
        knobs.machine = "pentium"


@on_x86
def test_stored_code_and_tuned_loops_belong_to_a_machine() -> None:
    """SSE4 and the least x86-64 have the same facts and other instructions."""
    keys, tuned = set(), set()
    for name in ("host", *KINDS, "neon"):
        with knobs.scope(MACHINE=name):
            keys.add(compiler.compiler_identity())
            tuned.add(tuning_identity(Machine()))
    assert len(keys) == len(tuned) == 6


@pytest.mark.parametrize("name", runnable())
def test_attention_is_right_on_every_machine(name: str) -> None:
    clear_kernel_cache()
    with knobs.scope(MACHINE=name):
        found, exact = attention()
        np.testing.assert_allclose(found.numpy(), exact, rtol=2e-5, atol=2e-5)
    clear_kernel_cache()


@on_x86
def test_functions_without_fused_multiply_adds_are_as_exact() -> None:
    x = np.linspace(-20, 20, 4001, dtype=np.float32)
    for name in ("exp", "sin", "tanh", "log1p"):
        given = np.abs(x) if name == "log1p" else x
        exact = getattr(np, name)(given.astype(np.float64))
        with knobs.scope(MACHINE="sse4"):
            found = getattr(Tensor(given), name)().numpy()
        np.testing.assert_allclose(found, exact, rtol=4e-7, atol=1e-30)


@on_x86
def test_a_multiply_add_without_the_instruction_is_no_call_per_lane() -> None:
    with knobs.scope(MACHINE="sse4"):
        source = "".join(k.source for k in (Tensor(np.ones(64, "f4")).exp()).prepare().kernels())
    assert "llvm.fma" not in source and "fpext" in source
    assert LLVMRenderer().has_fma


def test_code_for_another_processor_can_be_made_but_not_run() -> None:
    other = "neon" if architecture() == "x86_64" else "avx2"
    with knobs.scope(MACHINE=other):
        total = Tensor(np.ones((7, 9), np.float32)).sum(1)
        message = f"SVOD_MACHINE={other} makes code that this processor cannot run"
        with pytest.raises(CreateProgramError, match=message):
            total.realize()
        binary = compiler.emit_object("define void @nothing() {\n  ret void\n}\n")
    machine = int.from_bytes(binary[18:20], "little")
    assert machine == {"neon": 183, "avx2": 62}[other], "the ELF header names the processor"


@on_x86
def test_a_machine_with_more_than_this_processor_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "host_features", lambda: V2)
    with (
        knobs.scope(MACHINE="avx2"),
        pytest.raises(CreateProgramError, match="it lacks avx, av"),
    ):
        (Tensor(np.ones(5, np.float32)) + 7).realize()


# -- saved plans -----------------------------------------------------------------------------------


@on_x86
def test_a_plan_needs_what_it_was_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.svod"
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    clear_kernel_cache()
    with knobs.scope(MACHINE="sse4"):
        plan = svod.prepare(x * 3, inputs=[x])
    plan.save(path)  # the machine of the moment does not matter
    old = portable.Processor("x86_64", V2, "an old one")
    monkeypatch.setattr("svod.runtime.load.this_processor", lambda: old)
    load_plan(path)
    oldest = portable.Processor("x86_64", BASELINE, "the oldest")
    monkeypatch.setattr("svod.runtime.load.this_processor", lambda: oldest)
    with pytest.raises(PlanFormatError, match=r"the oldest lacks \(.*sse4.2.*ssse3"):
        load_plan(path)


def test_facts_need_no_llvm() -> None:
    code = (
        "import sys; from svod.device.cpu.host import host_machine, identity, target; "
        "host_machine(); identity(target()); assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- machines elsewhere ----------------------------------------------------------------------------

ELSEWHERE = "aarch64-linux+dotprod" if architecture() == "x86_64" else "x86-64-v3-linux"


def test_a_text_names_a_machine() -> None:
    arm = parse_target("aarch64-linux+dotprod+i8mm")
    assert (arm.architecture, arm.system, arm.cpu) == ("aarch64", "linux", "generic")
    assert arm.features == {"fp-armv8", "neon", "dotprod", "i8mm"}
    assert parse_target("x86-64-v3").features == V3 == parse_target("X86_64-v3-linux").features
    assert parse_target("x86-64+avx512vnni").features == V4 | {"avx512vnni"}
    assert parse_target("arm64-macos").system == "macos"
    wide = machine_of("x86-64-v4-linux+avx512vnni")
    assert (wide.vector_bytes, wide.dots) == (64, ("i16", "u8s8"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("riscv64", "there is no architecture 'riscv64'; use x86-64, "),
        ("aarch64-linux+avx2", "aarch64 has no feature 'avx2'; known: aes, bf16"),
        ("x86-64-v5", "there is no architecture 'x86-64-v5'"),
        ("", "there is no architecture ''"),
    ],
)
def test_a_text_that_names_none_is_refused(text: str, why: str) -> None:
    x = Tensor(np.ones(4, np.float32)).realize()
    with pytest.raises(ConfigError, match=re.escape(why)):
        svod.prepare(x + 1, inputs=[x], target=text)


def test_every_feature_of_a_target_is_one_that_llvm_knows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """LLVM writes a line for a name that it does not know."""
    for text in (
        "x86-64" + "".join(f"+{name}" for name in features.X86_FEATURES if name != "64bit"),
        "aarch64" + "".join(f"+{name}" for name in features.ARM_FEATURES),
    ):
        compiler.emit_object("define void @f() {\n  ret void\n}\n", parse_target(text))
    assert capfd.readouterr().err == ""


def test_the_same_text_gives_the_same_code_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caches and cores of this machine are no facts of another one."""
    before = machine_of(ELSEWHERE)
    monkeypatch.setattr(host, "cache_sizes", lambda: {1: 1, 2: 2, 3: 3})
    monkeypatch.setattr(Linux, "processors", lambda self: [0])
    assert machine_of.__wrapped__(ELSEWHERE) == before


def test_caches_are_those_that_the_system_knows() -> None:
    for level, size in features.cache_sizes().items():
        assert system().cache_bytes(level) in (None, size)


@on_x86
def test_windows_asks_the_processor_by_its_own_convention() -> None:
    """Its arguments are in rcx, rdx and r8, which are the fourth, third and fifth here."""
    call = features._Code(features.CODE["windows"][0], 0)._call
    address = ctypes.cast(call, ctypes.c_void_p).value
    assert address
    words = (ctypes.c_uint32 * 4)()
    kinds = (ctypes.c_size_t,) * 5
    ctypes.CFUNCTYPE(None, *kinds)(address)(0, 0, 1, ctypes.addressof(words), 0)
    expected = features.cpuid()(1, 0)
    assert (words[0], words[3]) == (expected[0], expected[3]), "ebx holds the core's number"


def test_a_plan_for_another_machine_is_saved_and_does_not_run_here(tmp_path: Path) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    w = Tensor(np.ones((4, 40), np.float32)).realize()
    plan = svod.prepare((x @ w).exp(), inputs={"x": x}, freeze=True, target=ELSEWHERE)
    assert not plan.is_native
    with pytest.raises(ExecutionError, match=f"was prepared for {re.escape(ELSEWHERE)} and cannot"):
        plan.execute()
    plan.save(tmp_path / "there.svod")
    with pytest.raises(PlanFormatError, match=r"was saved for (aarch64|x86_64) .*this is"):
        load_plan(tmp_path / "there.svod")


@on_x86
def test_a_plan_for_a_smaller_machine_of_this_kind_runs_here(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = Tensor(data).realize()
    plan = svod.prepare(x @ x.T, inputs={"x": x}, outputs=["y"], target="x86-64-v2-linux")
    np.testing.assert_array_equal(plan(x=data), data @ data.T)
    plan.save(tmp_path / "small.svod")
    assert load_plan(tmp_path / "small.svod")(x=data).shape == (3, 3)
    source = "".join(kernel.source for kernel in plan.kernels())
    assert "x float>" in source and "<16 x float>" not in source and "<8 x float>" not in source


def test_a_system_whose_code_nobody_loads_is_not_saved(tmp_path: Path) -> None:
    x = Tensor(np.ones(4, np.float32)).realize()
    plan = svod.prepare(x + 1, inputs=[x], target="aarch64-macos")
    with pytest.raises(UnsupportedError, match="only Linux loads their code: export it"):
        plan.save(tmp_path / "apple.svod")


# -- narrow products -------------------------------------------------------------------------------


def bytes_product(first: str, second: str, target: str) -> tuple[object, np.ndarray, np.ndarray]:
    """A plan of a product of bytes whose depth does not fill words, its input and the result."""
    rng = np.random.default_rng(0)
    limits = {"int8": (-128, 128), "uint8": (0, 256)}
    a = rng.integers(*limits[first], (17, 50)).astype(first)
    b = rng.integers(*limits[second], (50, 40)).astype(second)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    result = x.cast("int32") @ y.cast("int32")
    plan = svod.prepare(result, inputs={"a": x}, outputs=["y"], target=target)
    return plan, a, a.astype(np.int32) @ b.astype(np.int32)


ARM_DOTS = "aarch64-linux+dotprod", "aarch64-linux+dotprod+i8mm"


@pytest.mark.parametrize("signs", [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8")])
def test_products_of_bytes_use_the_instructions_of_each_machine(signs: tuple[str, str]) -> None:
    alike = signs[0] == signs[1]
    for wanted, expected in (
        ("x86-64-v3+avxvnni", "avx512.vpdpbusd.256"),
        (ARM_DOTS[0], ".udot." if signs == ("uint8", "uint8") else ".sdot."),
        (ARM_DOTS[1], {False: ".usdot."}.get(alike, ".udot." if "u" in signs[0] else ".sdot.")),
        ("aarch64-linux", ""),
        ("x86-64-v3", ""),
    ):
        plan, data, exact = bytes_product(*signs, wanted)
        source = "".join(kernel.source for kernel in plan.kernels())
        assert expected in source, wanted
        assert bool(expected) == ("dot" in source or "vpdp" in source), wanted
        if plan.is_native:
            np.testing.assert_array_equal(plan(a=data), exact)


def test_machines_with_two_multipliers_get_tiles_with_enough_chains() -> None:
    """Twelve sums keep both busy and leave registers for columns and a row."""
    for name, registers in (("avx2", 16), ("sse4", 16), ("neon", 32)):
        machine = machine_of(name)
        assert machine.multipliers == 2
        for size in (64, 100, 512, 1000, 2048):
            vectors, rows = tile_of(size, size, machine, machine.lanes(4))
            assert vectors * rows >= 10, (name, size)
            assert vectors * rows + vectors + 1 <= registers, (name, size)
    assert machine_of("avx512").multipliers == 1
