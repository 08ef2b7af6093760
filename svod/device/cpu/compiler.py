"""CPU: LLVM IR to machine code in the process, kept on disk, loaded without LLVM.

All kernels a plan lacks are one module: one verification, one code generation, one object. An
object found in the store is loaded by our own loader, so a warm process never imports llvmlite.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from svod.base.errors import CompileError
from svod.base.hashing import digest
from svod.base.knobs import knobs
from svod.base.locks import COMPILER, LEAF, held_lock, hold_at_fork
from svod.base.log import debug
from svod.base.room import room
from svod.base.timing import span
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.target import Target as CodeTarget
from svod.codegen.targets.cpu import cpu_target
from svod.device.cpu.elf import ObjectFormatError, ObjectImage
from svod.device.cpu.host import (
    architecture,
    host_machine,
    identity,
    machine_of,
    refuse_if_foreign,
    runs_here,
    target,
    target_of,
    triple,
)
from svod.device.cpu.targets import Target
from svod.device.device import Size3, Toolchain
from svod.device.spec import CompiledSpec, ProgramSpec
from svod.ir.node import UOp
from svod.optimize.machine import Machine

if TYPE_CHECKING:
    from svod.base.store import BlobStore

FORMAT = "3"  # changes when the ABI or the way objects are made does
# Memory of one code generation, measured for kernels of 0.1 to 4 MB: 30 MB and 60 bytes per byte.
LLVM_BYTES, LLVM_SHARE = 40 << 20, 80
counters = {"compiled": 0, "loaded": 0}  # modules through LLVM, modules from the store


class CpuProgram:
    """Machine code of one kernel; keeps its module loaded."""

    __slots__ = ("_call", "_image", "address", "name", "target")
    is_reentrant: ClassVar[bool] = True

    def __init__(
        self, name: str, address: int, image: object, wanted: Target | None = None
    ) -> None:
        self.name = name
        self.address = address
        self._image = image
        self._call = _signature()(address)
        self.target = wanted or target()

    @property
    def object_code(self) -> bytes | None:
        """The object file its module was loaded from, which may hold other kernels too."""
        return _objects.get(self._image)

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(vals)))(*vals)
        for core in range(global_size[0] if global_size else 1):
            self._call(pointers, values, core)


@cache
def _signature() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class ForeignProgram:
    """Machine code of one kernel for another machine: it can be saved and exported."""

    __slots__ = ("name", "object_code", "target")
    is_reentrant: ClassVar[bool] = True

    def __init__(self, name: str, object_code: bytes, wanted: Target) -> None:
        self.name, self.object_code, self.target = name, object_code, wanted

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        refuse_if_foreign(self.target)


class CpuRenderer:
    """Kernel bodies to LLVM IR, for the machine of a name or, without one, of SVOD_MACHINE."""

    device = "CPU"

    def __init__(self, machine: str = "") -> None:
        self.machine = machine

    def render(self, ast: UOp, name: str | None = None) -> ProgramSpec:
        return spec_of(generate(ast, self.target()))

    def decompositor(self) -> None:
        return None

    def target(self) -> CodeTarget[Machine]:
        return _code_target(
            machine_of(self.machine) if self.machine else host_machine(), self.machine
        )


@cache
def _code_target(machine: Machine, name: str) -> CodeTarget[Machine]:
    wanted = target_of(name) if name else None
    return replace(cpu_target(machine), emit=lambda source: object_for(source, wanted))


def spec_of(code: KernelCode) -> ProgramSpec:
    """What the device layer knows of a kernel."""
    spec = ProgramSpec(code.symbol, code.text().source, "CPU", code.kernel)
    spec.apply_derived_metadata_from_ast()
    return spec


class CpuCompiler:
    """LLVM's code generator, without any of its optimisation passes."""

    def __init__(self, machine: str = "") -> None:
        self.machine = machine

    def cache_key(self) -> str:
        return compiler_identity(target_of(self.machine) if self.machine else None)

    def compile(self, spec: ProgramSpec) -> CompiledSpec:
        binary = object_for(spec.src, target_of(self.machine) if self.machine else None)
        return CompiledSpec(
            name=spec.name, ast=spec.ast, src=spec.src, bytes=binary,
            var_names=tuple(spec.var_names), global_size=spec.global_size,
            local_size=spec.local_size, buf_count=spec.buf_count,
        )  # fmt: skip


def load_program(compiled: CompiledSpec) -> CpuProgram:
    """The runtime: an object becomes callable."""
    image = load_image(compiled.bytes)
    return CpuProgram(compiled.name, image.symbol(compiled.name), image)


def load_module(code: bytes, names: Sequence[str]) -> list[CpuProgram]:
    """The kernels of one module."""
    image = load_image(code)
    return [CpuProgram(name, image.symbol(name), image) for name in names]


def toolchain() -> Toolchain:
    return Toolchain(((CpuRenderer(), CpuCompiler()),), load_program, load_module)


@cache
def toolchain_for(machine: str) -> Toolchain:
    """What makes code for the machine of a name; it is loaded where it can run."""
    wanted = target_of(machine)

    def load_named(code: bytes, names: Sequence[str]) -> Sequence[CpuProgram | ForeignProgram]:
        if not runs_here(wanted):
            return [ForeignProgram(name, code, wanted) for name in names]
        image = load_image(code)
        return [CpuProgram(name, image.symbol(name), image, wanted) for name in names]

    def load_one(compiled: CompiledSpec) -> CpuProgram | ForeignProgram:
        return load_named(compiled.bytes, [compiled.name])[0]

    return Toolchain(((CpuRenderer(machine), CpuCompiler(machine)),), load_one, load_named)


# -- object code ---------------------------------------------------------------------------------


def object_for(source: str, wanted: Target | None = None) -> bytes:
    """The object code of a module: from the store, or compiled and stored."""
    store = object_store() if knobs.debug < 6 else None  # there is assembly only when compiling
    key = digest(source, compiler_identity(wanted)) if store is not None else ""
    if store is not None:
        with span("object store"):
            found = store.get(key)
        if found is not None:
            counters["loaded"] += 1
            return found
    with span("llvm"):
        binary = emit_object(source, wanted)
    counters["compiled"] += 1
    if store is not None:
        store.put(key, binary)
    return binary


def load_image(binary: bytes) -> Any:
    """Code in executable memory, with ``symbol(name)``."""
    refuse_if_foreign(target())
    with span("load"):
        try:
            image = ObjectImage(binary)
        except ObjectFormatError as problem:
            debug(1, f"object loader: {problem}; using LLVM's linker")
            return _LinkedImage(binary)
    _objects[image] = binary
    return image


# The object files of loaded images, for saving plans; an entry goes with its image.
_objects: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()


@cache
def object_store() -> BlobStore | None:
    if not knobs.object_cache:
        return None
    from svod.base.paths import cache_folder
    from svod.base.store import BlobStore

    return BlobStore(cache_folder("objects"), knobs.object_cache_bytes)


def compiler_identity(wanted: Target | None = None) -> str:
    """Everything that shapes object code: LLVM, the processor it is for, our own format."""
    return _identity_for(wanted or target())


@cache
def _identity_for(wanted: Target) -> str:
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        raise CompileError("llvmlite is not installed: pip install llvmlite")
    parts = [FORMAT, identity(wanted)]
    folder = Path(found.origin).parent / "binding"
    for library in sorted(folder.glob("*llvmlite*")):
        stat = library.stat()
        parts.append(f"{library.name} {stat.st_size} {stat.st_mtime_ns}")
    return digest(*parts)


_llvm_lock = held_lock(COMPILER)


@cache
def _target_machine(wanted: Target) -> Any:
    import llvmlite.binding as llvm

    hold_llvm_at_fork()
    if triple(wanted):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    name = triple(wanted) or llvm.get_process_triple()
    return llvm.Target.from_triple(name).create_target_machine(
        cpu=wanted.cpu or llvm.get_host_cpu_name(),
        features=_features(wanted),
        opt=2,
        reloc="pic",
        codemodel="small",
        jit=False,
    )


def hold_llvm_at_fork() -> None:
    """Have forks wait for llvmlite's own lock, which finalisers take without ours."""
    from llvmlite.binding import ffi

    lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
    if lock is not None:
        hold_at_fork(lock, LEAF)


def _features(wanted: Target) -> str:
    """All that LLVM knows, on or off: a name may stand for more than the processor has."""
    import llvmlite.binding as llvm

    known = llvm.get_host_cpu_features() if wanted.architecture == architecture() else {}
    if wanted.features is None:
        return "" if wanted.cpu else llvm.get_host_cpu_features().flatten()
    if wanted.architecture != "x86_64":  # its names for what this processor lacks say nothing
        return ",".join([f"+{name}" for name in sorted(wanted.features)])
    names = sorted({*known, *wanted.features})
    # A register of 64 bytes is not avoided where the optimiser has chosen one.
    return ",".join(["-prefer-256-bit", *[f"{'+-'[n not in wanted.features]}{n}" for n in names]])


def emit_object(source: str, wanted: Target | None = None) -> bytes:
    """LLVM's code generation, after LLVM itself has checked the module."""
    import llvmlite.binding as llvm

    with _llvm_lock:
        machine = _target_machine(wanted or target())
        _refuse_if_too_large(source)
        try:
            parsed = llvm.parse_assembly(source)
            parsed.verify()
        except RuntimeError as problem:
            debug(5, source)
            raise CompileError(f"LLVM refused a generated module: {problem}") from None
        if knobs.debug >= 6:
            debug(6, machine.emit_assembly(parsed))
        return bytes(machine.emit_object(parsed))


def emit_linked(sources: Sequence[str], public: Sequence[str], wanted: Target) -> bytes:
    """The code of several modules as one object in which only some functions have names."""
    import llvmlite.binding as llvm

    with _llvm_lock:
        machine = _target_machine(wanted)
        _refuse_if_too_large("".join(sources))
        try:
            whole = llvm.parse_assembly(sources[0])
            for source in sources[1:]:
                whole.link_in(llvm.parse_assembly(source))
            whole.triple, whole.data_layout = machine.triple, str(machine.target_data)
            whole.verify()
        except RuntimeError as problem:
            raise CompileError(f"LLVM refused a module to export: {problem}") from None
        for function in whole.functions:
            if not function.is_declaration and function.name not in public:
                function.linkage = "internal"
        return bytes(machine.emit_object(whole))


def assembly(source: str) -> str:
    """The machine code of a module, in words."""
    import llvmlite.binding as llvm

    with _llvm_lock:
        machine = _target_machine(target())
        _refuse_if_too_large(source)
        try:
            return str(machine.emit_assembly(llvm.parse_assembly(source)))
        except RuntimeError as problem:
            raise CompileError(f"LLVM refused a module: {problem}") from None


def _refuse_if_too_large(source: str) -> None:
    """LLVM ends the process where it gets no memory: the likely need is looked at before."""
    needed, left = LLVM_BYTES + LLVM_SHARE * len(source), room()
    if left is not None and needed > left:
        raise CompileError(
            f"compiling {len(source):,} bytes of LLVM IR takes about {needed >> 20:,} MiB and "
            f"{left >> 20:,} MiB are left: give the process more memory, or realize parts of the "
            "graph on their own"
        )


class _LinkedImage:
    """Fallback: LLVM's own linker."""

    _count = 0

    def __init__(self, binary: bytes) -> None:
        self._binary = binary
        self._parts: dict[str, Any] = {}

    def symbol(self, name: str) -> int:
        import llvmlite.binding as llvm

        _LinkedImage._count += 1
        library = (
            llvm.JITLibraryBuilder()
            .add_object_img(self._binary)
            .export_symbol(name)
            .add_current_process()
            .link(_linker(target()), f"svod{_LinkedImage._count}")
        )
        self._parts[name] = library
        return int(library[name])


@cache
def _linker(wanted: Target) -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_target_machine(wanted), use_jit_link=True)
