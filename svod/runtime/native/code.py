"""The launcher's machine code: compiled once, then taken from a store by its key.

In: two functions of an object store, both optional. Out: addresses of `run`, `worker`, `retire`
and `ticks`. The object is compiled for the processor family, not for the very processor, so it
fits every machine of the family; a stored object needs no LLVM at all. The code is never freed:
parked threads live in it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from svod.base.errors import CompileError, UnsupportedError
from svod.runtime.native import ir
from svod.runtime.native.machine import Machine, machine_of

CacheGet = Callable[[str], bytes | None]
CachePut = Callable[[str, bytes], None]

_NAMES = ("run", "worker", "retire", "ticks")


class Code(NamedTuple):
    """Addresses of the entry points, and what keeps them valid."""

    run: int
    worker: int
    retire: int
    ticks: int
    has_threads: bool
    owner: object


def launcher_ir() -> str:
    """The launcher for this machine, as LLVM IR."""
    return ir.launcher_ir(_this_machine())


def load_code(get: CacheGet | None = None, put: CachePut | None = None) -> Code:
    """The launcher's code, from the store if it has it, else compiled and given to the store."""
    machine = _this_machine()
    text = ir.launcher_ir(machine)
    key = _key(sys.platform, machine, text)
    stored = get(key) if get is not None else None
    if stored is not None:
        try:
            return _link(stored, machine)
        except CompileError:
            pass  # a damaged entry is a miss
    data = _compile(text)
    code = _link(data, machine)
    if put is not None:
        put(key, data)
    return code


def code_for(system: str, processor: str, triple: str) -> tuple[str, bytes]:
    """The key and the object code of the launcher of another machine, by LLVM's name of it."""
    machine = machine_of(system, processor)
    if machine is None:
        raise _no_launcher()
    text = ir.launcher_ir(machine)
    return _key(system, machine, text), _compile(text, triple)


def _key(system: str, machine: Machine, text: str) -> str:
    digest = hashlib.sha256(f"{system} {machine.name}\n{text}".encode()).hexdigest()
    return f"launcher-{digest}"


def _no_launcher() -> UnsupportedError:
    return UnsupportedError(
        "the native launcher is written for x86-64 and aarch64", kind="processor"
    )


def _this_machine() -> Machine:
    machine = machine_of()
    if machine is None:
        raise _no_launcher()
    return machine


def _target_machine(triple: str = "") -> Any:  # llvmlite has no types
    import llvmlite.binding as llvm

    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    return target.create_target_machine(opt=2, reloc="pic", codemodel="small")


def _compile(text: str, triple: str = "") -> bytes:
    import llvmlite.binding as llvm

    target_machine = _target_machine(triple)
    module = llvm.parse_assembly(text)
    module.triple = target_machine.triple
    module.data_layout = str(target_machine.target_data)
    module.verify()
    return bytes(target_machine.emit_object(module))


def _link(data: bytes, machine: Machine) -> Code:
    owner, addresses = _link_elf(data) if sys.platform.startswith("linux") else _link_llvm(data)
    run, worker, retire, ticks = (addresses[name] for name in _NAMES)
    return Code(run, worker, retire, ticks, machine.calls is not None, owner)


def _link_elf(data: bytes) -> tuple[object, Mapping[str, int]]:
    from svod.device.cpu.elf import ObjectImage

    image = ObjectImage(data)
    return image, {name: image.symbol(name) for name in _NAMES}


def _link_llvm(data: bytes) -> tuple[object, Mapping[str, int]]:
    """Through LLVM's own linker, where objects are not ELF."""
    import llvmlite.binding as llvm

    compiler = llvm.create_lljit_compiler(_target_machine())
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for name in _NAMES:
        builder.export_symbol(name)
    library = builder.link(compiler, "launcher")
    return (compiler, library), {name: int(library[name]) for name in _NAMES}
