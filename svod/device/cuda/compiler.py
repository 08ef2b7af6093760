"""CUDA: kernels to LLVM IR, LLVM IR to PTX by llvmlite, PTX to machine code by the driver.

PTX is kept in the object store under its source, the compiler and the architecture; the driver
keeps the machine code it makes in its own cache, which lies in our folder. Kernels take wide
accesses to be aligned; where an argument is not, a second form of the kernel without wide accesses
is made and used.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from svod.base.errors import CompileError
from svod.base.hashing import digest
from svod.base.knobs import codegen_key, knobs
from svod.base.locks import COMPILER, held_lock
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.pipeline import bytes_moved, generate, work_of
from svod.codegen.target import KernelCode
from svod.codegen.targets.cuda import cuda_target
from svod.device.cpu.compiler import hold_llvm_at_fork, object_store
from svod.device.cuda.cuda_program import CudaModule, CudaProgram, PlainCode
from svod.device.cuda.driver import context
from svod.device.device import Toolchain
from svod.device.spec import CompiledSpec, ProgramSpec, Variable, derive_metadata
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp
from svod.optimize.gpu_machine import GpuMachine
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort

FORMAT: Final = "2"  # changes when the ABI or the way PTX is made does
PTX_VERSION: Final = "ptx80"
# Architectures that need more: for conversions of 8-bit floats, or to be known at all. LLVM ends
# the process where it is asked for one of them in an older version.
PTX_VERSIONS: Final = {"sm_89": "ptx81", "sm_100": "ptx86", "sm_120": "ptx87"}
# Products of bytes with and without sign on Hopper's tensor cores need more, and a driver of 12.4.
MIXED_BYTES: Final = ("ptx84", 12040)
_MIXES_BYTES = re.compile(r"wgmma\.mma_async\S*\.(u8\.s8|s8\.u8) ")
# What llvmlite knows; a GPU runs the newest of these that is not newer than itself.
ARCHITECTURES: Final = (70, 75, 80, 86, 89, 90, 100, 120)
counters = {"compiled": 0, "loaded": 0}  # modules through LLVM, modules from the store


def architecture(capability: tuple[int, int]) -> str:
    """The name of the newest architecture a GPU can run."""
    number = capability[0] * 10 + capability[1]
    known = [a for a in ARCHITECTURES if a <= number]
    if not known:
        raise CompileError(
            f"a GPU of compute capability {capability[0]}.{capability[1]} is too old: "
            f"7.0 is the least"
        )
    if capability == (9, 0):
        return "sm_90a"
    return f"sm_{known[-1]}"


class CudaRenderer:
    """Kernel bodies to LLVM IR."""

    device = "CUDA"

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self.chosen: dict[str, GpuMachine] = {}  # what searches found, by the body's hash
        self.plain: set[str] = set()  # bodies whose plan could not be compiled

    @property
    def machine(self) -> GpuMachine:
        """The GPU with the units that the knobs allow."""
        return replace(self._machine, tensor_cores=knobs.tensor_cores, uses_tf32=knobs.tf32)

    def code(self, body: UOp) -> KernelCode:
        """A kernel with the loops that are chosen for it."""
        machine = self.machine
        found = self.chosen.get(body.content_hash)
        if found is not None:  # amounts were searched for, units are what the knobs say now
            units = (machine.tensor_cores, machine.uses_tf32)
            machine = replace(found, tensor_cores=units[0], uses_tf32=units[1])
        return generate(body, cuda_target(machine), body.content_hash in self.plain)

    def take_plainer(self, body: UOp) -> bool:
        """Render a body without a plan from now on; False where it was so already."""
        if body.content_hash in self.plain or is_sort(body):
            return False
        self.plain.add(body.content_hash)
        return True

    def choice_of(self, body: UOp) -> str:
        """What a search chose for a kernel, as a part of keys; empty where there was none."""
        found = self.chosen.get(body.content_hash)
        if body.content_hash in self.plain:
            return "plain"
        if found is None:
            return ""
        return f"{found.block} {found.row_vectors} {found.tile_columns}"

    def render(self, ast: UOp, name: str | None = None) -> ProgramSpec:
        return spec_of(self.code(ast))

    def decompositor(self) -> None:
        return None

    @property
    def capabilities(self) -> Capabilities:
        return cuda_target(self.machine).capabilities

    def work(self, body: UOp) -> tuple[int, int]:
        """Operations and least bytes of a kernel."""
        if is_sort(body):
            return 0, bytes_moved(body.toposort())
        return work_of(body, rangeify(body))


def spec_of(code: KernelCode) -> ProgramSpec:
    """What the device layer knows of a kernel."""
    text = code.text()
    sizes = derive_metadata(code.kernel)
    slots, variables, writes, reads = code.arguments()
    return ProgramSpec(
        name=code.symbol,
        src=text.source,
        device="CUDA",
        ast=code.body,
        global_size=sizes.global_size,
        local_size=sizes.local_size,
        vars=[Variable(v.name, v.lo, v.hi) for v in variables],
        var_names=[v.name for v in variables],
        globals=list(slots),
        outs=list(writes),
        ins=list(reads),
        buf_count=len(slots),
        needs=text.needs,
    )


class CudaCompiler:
    """LLVM's code generator for NVIDIA GPUs."""

    def __init__(self, arch: str) -> None:
        self.arch = arch

    def cache_key(self) -> str:
        return digest(compiler_identity(self.arch), codegen_key())

    def compile(self, spec: ProgramSpec) -> CompiledSpec:
        return compiled_spec(spec, ptx_for(spec.src, self.arch))


def compiled_spec(spec: ProgramSpec, ptx: bytes) -> CompiledSpec:
    """A kernel with its PTX."""
    return CompiledSpec(
        name=spec.name, ast=spec.ast, src=spec.src, bytes=ptx, var_names=tuple(spec.var_names),
        global_size=spec.global_size, local_size=spec.local_size, buf_count=spec.buf_count,
        needs=spec.needs,
    )  # fmt: skip


def toolchain(number: int) -> Toolchain:
    """What makes and loads programs for one GPU."""
    owner = context(number)
    facts = owner.facts
    renderer = CudaRenderer(
        GpuMachine(
            multiprocessors=facts.multiprocessors,
            most_shared_bytes=facts.shared_bytes,
            capability=facts.capability,
            mixes_bytes=facts.driver >= MIXED_BYTES[1],
        )
    )
    compiler = CudaCompiler(architecture(facts.capability))

    def load(compiled: CompiledSpec) -> CudaProgram:
        def without_wide_accesses() -> PlainCode:
            code = renderer.code(compiled.ast)
            text = code.text(aligned=False)
            return PlainCode(ptx_for(text.source, compiler.arch), code.symbol, text.needs.shared)

        module = CudaModule(owner, compiled.bytes)
        return CudaProgram(compiled.name, module, compiled.needs, without_wide_accesses)

    return Toolchain(((renderer, compiler),), load)


# -- PTX ------------------------------------------------------------------------------------------


def ptx_for(source: str, arch: str) -> bytes:
    """The PTX of a module: from the store, or compiled and stored."""
    store = object_store()
    key = digest(source, compiler_identity(arch)) if store is not None else ""
    if store is not None:
        with span("object store"):
            found = store.get(key)
        if found is not None:
            counters["loaded"] += 1
            return found
    with span("llvm"):
        text = emit_ptx(source, arch).encode()
    counters["compiled"] += 1
    if store is not None:
        store.put(key, text)
    return text


@cache
def compiler_identity(arch: str) -> str:
    """Everything that shapes PTX: LLVM, the architecture, our own format."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        raise CompileError("llvmlite is not installed: pip install llvmlite")
    parts = [FORMAT, arch, PTX_VERSIONS.get(arch, PTX_VERSION), MIXED_BYTES[0]]
    for library in sorted((Path(found.origin).parent / "binding").glob("*llvmlite*")):
        stat = library.stat()
        parts.append(f"{library.name} {stat.st_size} {stat.st_mtime_ns}")
    return digest(*parts)


_llvm_lock = held_lock(COMPILER)


def ptx_version(source: str, arch: str) -> str:
    """The oldest version of PTX that has what a module uses: what drivers can read."""
    found = PTX_VERSIONS.get(arch, PTX_VERSION)
    return max(found, MIXED_BYTES[0]) if _MIXES_BYTES.search(source) else found


@cache
def _target_machine(arch: str, version: str) -> Any:
    import llvmlite.binding as llvm

    hold_llvm_at_fork()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=arch, features=f"+{version}", opt=3, codemodel="default"
    )


def emit_ptx(source: str, arch: str) -> str:
    """LLVM's code generation, after LLVM itself has checked the module."""
    import llvmlite.binding as llvm

    with _llvm_lock:
        machine = _target_machine(arch, ptx_version(source, arch))
        try:
            parsed = llvm.parse_assembly(source)
            parsed.data_layout = str(machine.target_data)
            parsed.verify()
        except RuntimeError as problem:
            raise CompileError(f"LLVM refused a generated module: {problem}\n{source}") from None
        text = str(machine.emit_assembly(parsed))
        debug(6, text)
        return text
