"""Loading a saved plan: no graph, no compiler, no LLVM, unless it is portable.

In: a file written by `ExecutionPlan.save`. Out: a plan that gives the same bits. The manifest, the
code and all sizes, places and counts are checked before anything is mapped or made executable; a
file that is damaged, newer or for another processor is a `PlanFormatError`. Machine code is loaded
if this user has saved it or the caller trusts it; graphs of a portable file are checked, and
compiled here. The weights are mapped, not read; the file must stay as it is while the plan lives.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svod._version import __version__
from svod.base.errors import (
    AllocationError,
    ExecutionError,
    PlanFormatError,
    SvodError,
    UntrustedPlanError,
)
from svod.base.hashing import checksum
from svod.device.buffer import Buffer, Storage
from svod.device.cpu.elf import ObjectImage
from svod.device.launch import LaunchSize, evaluate
from svod.device.names import base_key, canonical
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from svod.ir.text import parse
from svod.runtime.archive import Archive, broken
from svod.runtime.checked import INT64_MAX, INT64_MIN, Checked
from svod.runtime.memory import MemoryMode, MemoryReport
from svod.runtime.native import load
from svod.runtime.ops import (
    CompiledKernel,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    RuntimeVar,
    collect_runtime_vars,
)
from svod.runtime.order import execution_levels, execution_order
from svod.runtime.plan import ExecutionPlan
from svod.runtime.portable import Processor, this_processor
from svod.runtime.ports import PortSpec
from svod.runtime.profile import KernelProfile
from svod.runtime.save import (
    DATA,
    FORMAT,
    GUARD,
    KERNEL_INTERFACE,
    KIND,
    LAUNCHER,
    MANIFEST,
    SIGNATURE,
    code_entry,
)
from svod.runtime.signing import is_ours

MOST_MANIFEST_BYTES = 256 << 20
MOST_CODE_BYTES = 1 << 30
MOST_CORES = 1 << 24
READ_BELOW = 1 << 20  # bytes; less data than this is read, so that the file is free at once
# What a manifest that is consistent with itself can still lead to.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def load_plan(path: str | Path, verify: bool = False, trusted: bool = False) -> ExecutionPlan:
    """The plan saved in a file; `verify` also reads and checks all weights.

    Machine code that this user has not saved is refused with an `UntrustedPlanError`, unless
    `trusted` says that the file may run like a program. A portable file needs no trust.
    """
    path = Path(path)
    with Archive(path) as archive:
        try:
            return _Reader(archive, trusted).plan(verify)
        except UntrustedPlanError:
            raise
        except PlanFormatError as problem:
            if path.name in str(problem):
                raise
            raise PlanFormatError(f"{path.name}: {problem}") from None
        except AllocationError:
            raise  # the file may be fine and this machine too small
        except (SvodError, *_MALFORMED) as problem:
            raise broken(path, f"{type(problem).__name__}: {problem}") from problem


class LoadedProgram:
    """Machine code of one kernel from a file; keeps its module loaded and its object file."""

    __slots__ = ("_call", "_image", "address", "name", "object_code")

    def __init__(self, name: str, image: ObjectImage, object_code: bytes) -> None:
        self.name = name
        self.address = image.symbol(name)
        self.object_code = object_code
        self._image = image
        self._call = _SIGNATURE(self.address)

    def __call__(
        self, buffers: Sequence[int], vals: Sequence[int], global_size: Any, local_size: Any
    ) -> None:
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(vals)))(*vals)
        for core in range(global_size[0] if global_size else 1):
            self._call(pointers, values, core)


class UnboundPlan(ExecutionPlan):
    """A plan from a file without all its data: it runs once what is missing is bound."""

    __slots__ = ("missing",)

    missing: set[str]

    def bind(self, name: str | None = None, value: object = None, /, **arrays: object) -> None:
        super().bind(name, value, **arrays)
        self.missing.difference_update(arrays if name is None else (name,))

    def execute(self) -> None:
        self._require_all()
        super().execute()

    def execute_profiled(self) -> list[KernelProfile]:
        self._require_all()
        return super().execute_profiled()

    def replicate(self) -> ExecutionPlan:
        self._require_all()
        return super().replicate()

    def _require_all(self) -> None:
        if self.missing:
            names = sorted(self.missing)
            raise ExecutionError(
                f"the plan was saved without its data: bind {', '.join(names[:8])}"
                + (f" and {len(names) - 8} more" if len(names) > 8 else "")
                + " before the first run"
            )


class _Reader:
    """A file on its way to a plan."""

    def __init__(self, archive: Archive, trusted: bool) -> None:
        self.archive = archive
        text = archive.read(MANIFEST, MOST_MANIFEST_BYTES)
        if archive.read(GUARD, 64) != checksum(text).hex().encode():
            raise broken(archive.path, f"{MANIFEST} does not match its checksum")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise broken(archive.path, f"{MANIFEST} is no JSON ({problem})") from None
        self.manifest = Checked(content, "manifest")
        self._check_version()
        self.is_portable = self.manifest.has("portable") and self.manifest.flag("portable")
        if not self.is_portable:
            if not trusted:
                self._check_signature(text)
            self._check_machine()

    def plan(self, verify: bool) -> ExecutionPlan:
        manifest = self.manifest
        regions = self._check_regions()
        self._check_buffers(regions)
        specs = self._ports()
        outputs = manifest.numbers("outputs", high=self.buffer_count - 1)
        to_bind = manifest.texts("to_bind")
        unknown = set(to_bind) - {spec.name for spec in specs}
        if unknown:
            raise manifest.wrong("to_bind", "names of ports", sorted(unknown)[0])
        memory = _memory(manifest.inner("memory"))
        if verify:
            self.archive.verify(DATA)
        kernels = self._compiled() if self.is_portable else self._kernels()
        ops, also_after = self._ops(kernels)
        order = execution_order(ops, also_after)
        levels = execution_levels(ops, also_after)
        if [list(level) for level in levels] != manifest.rows("levels"):
            raise manifest.wrong("levels", "what the dependencies say", "something else")
        buffers = self._buffers(regions)
        kind = UnboundPlan if to_bind else ExecutionPlan
        plan = kind(
            ops, also_after, order, levels, buffers, {n: n for n in range(len(buffers))}, outputs,
            canonical(manifest.text("device")), (), specs, memory,
        )  # fmt: skip
        if isinstance(plan, UnboundPlan):
            plan.missing = set(to_bind)
        values = manifest.values("variables")
        if values:
            plan.set_vars(values)
        return plan

    # -- checks ---------------------------------------------------------------------------------

    def _check_version(self) -> None:
        manifest = self.manifest
        if manifest.value("kind") != KIND:
            raise broken(self.archive.path, "it holds something else")
        version = manifest.number("format", 1)
        if version > FORMAT:
            raise PlanFormatError(
                f"{self.archive.path.name} has format {version}, written by svod "
                f"{manifest.text('svod')}; svod {__version__} reads up to {FORMAT}: "
                "use a newer svod or save the plan with this one"
            )

    def _check_signature(self, text: bytes) -> None:
        held = SIGNATURE in self.archive.entries
        if not held or not is_ours(text, self.archive.read(SIGNATURE, 64)):
            raise UntrustedPlanError(
                f"{self.archive.path.name} holds machine code that "
                + ("you have not saved, or that was changed since" if held else "nobody has signed")
                + ": load_plan(path, trusted=True) runs it, as you would run a program; files "
                "written by plan.save(path, portable=True) hold none and need no trust"
            )

    def _check_machine(self) -> None:
        manifest = self.manifest
        if manifest.number("kernel_interface", 1) != KERNEL_INTERFACE:
            raise PlanFormatError(
                f"{self.archive.path.name} was saved by svod {manifest.text('svod')}, whose "
                "kernels are called in another way: save the plan again"
            )
        machine = manifest.inner("machine")
        saved = Processor(
            machine.text("architecture"), frozenset(machine.texts("features")),
            machine.text("model"),
        )  # fmt: skip
        this_processor().refuse_if_lacking(saved)

    def _check_regions(self) -> list[tuple[int, int | None]]:
        """Bytes, and place in the data, of every region."""
        manifest = self.manifest
        total = manifest.number("data_bytes")
        entry = self.archive.entries.get(DATA)
        if entry is None or entry.size != total:
            raise broken(self.archive.path, f"{DATA} does not have the {total} bytes it should")
        found = []
        for region in manifest.all_inner("regions"):
            size = region.number("bytes")
            start = region.optional_number("data")
            if start is not None and (start % 64 or start + size > total):
                raise region.wrong("data", f"a place for {size} of {total} bytes", start)
            found.append((size, start))
        return found

    def _check_buffers(self, regions: Sequence[tuple[int, int | None]]) -> None:
        self.buffer_facts: list[tuple[int, int, int, dt.DType]] = []
        for fact in self.manifest.all_inner("buffers"):
            region = fact.number("region", high=len(regions) - 1)
            name = fact.text("dtype", 32)
            dtype = dt.BY_NAME.get(name)
            if dtype is None or dtype.kind in ("v", "x"):
                raise fact.wrong("dtype", "a dtype that memory can hold", name)
            offset, size = fact.number("offset"), fact.number("size")
            if offset % dtype.itemsize or offset + size * dtype.itemsize > regions[region][0]:
                raise fact.wrong("offset", f"a place in region {region}", offset)
            if base_key(fact.text("device", 64)) != "CPU":
                raise fact.wrong("device", "a CPU", fact.value("device"))
            self.buffer_facts.append((region, offset, size, dtype))
        self.buffer_count = len(self.buffer_facts)

    # -- parts ----------------------------------------------------------------------------------

    def _kernels(self) -> list[tuple[CompiledKernel, UOp]]:
        """Kernels from machine code, which have no graph."""
        codes = self._codes()  # checked bytes; nothing is executable yet
        facts = self.manifest.all_inner("kernels")
        for fact in facts:
            fact.number("code", high=len(codes) - 1)
        self._load_launcher()
        images = [ObjectImage(code) for code in codes]
        body = make(O.SINK, dt.void, ())
        return [(_kernel(fact, images, codes), body) for fact in facts]

    def _compiled(self) -> list[tuple[CompiledKernel, UOp]]:
        """Kernels from graphs, compiled for this machine."""
        from svod.runtime.bodies import MOST_TEXT, read_body
        from svod.runtime.caches import compiled_kernels

        bodies = [
            read_body(fact.text("body", MOST_TEXT), f"manifest.kernels[{number}].body")
            for number, fact in enumerate(self.manifest.all_inner("kernels"))
        ]
        made = compiled_kernels(bodies, "CPU")
        return [(made[body], body) for body in bodies]

    def _codes(self) -> list[bytes]:
        codes = []
        for number, fact in enumerate(self.manifest.all_inner("code")):
            code = self.archive.read(code_entry(number), MOST_CODE_BYTES)
            if checksum(code).hex() != fact.text("checksum", 64):
                raise broken(self.archive.path, f"{code_entry(number)} is damaged")
            codes.append(code)
        return codes

    def _load_launcher(self) -> None:
        """The launcher comes from the file where it is the one this version uses."""
        fact = self.manifest.inner("launcher")
        key = fact.text("key", 200)
        code = self.archive.read(LAUNCHER, MOST_CODE_BYTES)
        if checksum(code).hex() != fact.text("checksum", 64):
            raise broken(self.archive.path, f"{LAUNCHER} is damaged")

        def get(wanted: str) -> bytes | None:
            return code if wanted == key else _stored_launcher(wanted)

        load(get)

    def _ports(self) -> list[PortSpec]:
        specs: list[PortSpec] = []
        for fact in self.manifest.all_inner("ports"):
            shape = tuple(_size(fact, "shape", size) for size in fact.items("shape"))
            place = fact.number("buffer", high=self.buffer_count - 1)
            is_complex = fact.has("is_complex") and fact.flag("is_complex")
            if is_complex and (
                shape[-1:] != (2,) or self.buffer_facts[place][3] not in dt.COMPLEX_OF
            ):
                raise fact.wrong("shape", "pairs of floats", list(shape))
            specs.append(
                PortSpec(fact.text("name"), place, shape, fact.flag("is_output"), is_complex)
            )
            fixed = [size for size in shape if isinstance(size, int)]
            elements = int(np.prod(fixed, dtype=object)) if len(fixed) == len(shape) else None
            if elements is not None and elements != self.buffer_facts[place][2]:
                raise fact.wrong("shape", f"{self.buffer_facts[place][2]} elements", list(shape))
        if len({spec.name for spec in specs}) < len(specs):
            raise self.manifest.wrong("ports", "names that differ", [s.name for s in specs])
        return specs

    def _buffers(self, regions: Sequence[tuple[int, int | None]]) -> list[Buffer]:
        total = self.manifest.number("data_bytes")
        start, owner = 0, None
        if total >= READ_BELOW:
            mapping, first, _ = self.archive.map(DATA)
            owner = np.frombuffer(mapping, np.uint8)
            start = owner.ctypes.data + first
        storages: list[Storage] = []
        small = b"" if owner is not None else self.archive.read(DATA, READ_BELOW)
        for size, place in regions:
            if place is not None and owner is not None:
                storages.append(Storage.wrap("CPU", size, start + place, owner))
                continue
            storage = Storage("CPU", size)
            storage.allocate()
            if size and place is not None:
                storage.host_bytes()[:] = np.frombuffer(small, np.uint8, size, place)
            storages.append(storage)
        return [
            Buffer(storages[region], size, dtype, offset)
            for region, offset, size, dtype in self.buffer_facts
        ]

    def _ops(
        self, kernels: Sequence[tuple[CompiledKernel, UOp]]
    ) -> tuple[list[PreparedOp], list[list[int]]]:
        facts = self.manifest.all_inner("ops")
        ops: list[PreparedOp] = []
        for fact in facts:
            ops.append(self._op(fact, kernels))
        also_after = [fact.numbers("also_after", high=len(facts) - 1) for fact in facts]
        return ops, also_after

    def _op(self, fact: Checked, kernels: Sequence[tuple[CompiledKernel, UOp]]) -> PreparedOp:
        kind = fact.one_of("kind", ("kernel", "copy", "view", "custom"))
        number = fact.number("id")
        places = fact.numbers("buffers", high=self.buffer_count - 1)
        after = fact.numbers("after")
        if kind == "custom":
            if self.is_portable:
                self._require_check(fact, places)
            return PreparedCustomFunction(
                number, fact.text("function"),
                tuple([_attribute(fact, value) for value in fact.items("attributes")]),
                places, fact.values("fixed"), after, _variables(fact), **_given_values(fact),
            )  # fmt: skip
        if kind != "kernel" and len(places) != 2:
            raise fact.wrong("buffers", "two places", places)
        if kind == "copy":
            sizes = [self.buffer_facts[p][2] * self.buffer_facts[p][3].itemsize for p in places]
            if sizes[0] != sizes[1]:
                raise fact.wrong("buffers", "two of the same size", sizes)
            return PreparedCopy(number, places, after)
        if kind == "view":
            offset, size = fact.number("offset"), fact.number("bytes")
            view, base = (self.buffer_facts[place] for place in places)
            is_inside = view[0] == base[0] and view[1] == base[1] + offset
            if not is_inside or view[2] * view[3].itemsize != size:
                raise fact.wrong("offset", "where the view lies in its base", offset)
            return PreparedBufferView(number, places, offset, size, after)
        kernel, body = kernels[fact.number("kernel", high=len(kernels) - 1)]
        if self.is_portable:
            places = self._places(fact, kernel, body, places)
        values = fact.numbers("values", INT64_MIN, INT64_MAX)
        if kernel.globals and len(places) != len(kernel.globals):
            raise fact.wrong("buffers", f"{len(kernel.globals)} places", places)
        if len(values) != len(kernel.var_names):
            raise fact.wrong("values", f"{len(kernel.var_names)} values", values)
        if self.is_portable:
            outputs = [n for n, slot in enumerate(kernel.globals) if slot in kernel.outs]
        else:
            outputs = fact.numbers("outputs", high=len(places) - 1)
        device = canonical(fact.text("device", 64))
        if not outputs or base_key(device) != "CPU":
            raise fact.wrong("outputs", "an output on a CPU", outputs)
        return PreparedKernel(
            number, body, kernel, device, places, outputs, values, fact.values("fixed"), after,
            runtime_vars=_variables(fact),
        )  # fmt: skip

    def _require_check(self, fact: Checked, places: Sequence[int]) -> None:
        """The one function that a portable plan may call looks at a word, and perhaps a size."""
        from svod.ir.guards import CHECK

        if fact.text("function") != CHECK or fact.value("variables") or fact.value("values"):
            raise fact.wrong("function", f"{CHECK} without variables", fact.value("function"))
        held = [self.buffer_facts[place] for place in places]
        wanted = (dt.uint64, dt.uint64, dt.int64)[: len(held)]
        if len(held) not in (2, 3) or any(
            size != 1 or dtype is not kind
            for (_, _, size, dtype), kind in zip(held, wanted, strict=True)
        ):
            raise fact.wrong("buffers", "a word, its result and perhaps a size", places)
        match fact.items("attributes"):
            case [str(), int(size), bool(), 32 | 64, bool()] if (size < 0) == (len(held) == 3):
                return
        raise fact.wrong("attributes", "what the word means", fact.value("attributes"))

    def _places(
        self, fact: Checked, kernel: CompiledKernel, body: UOp, places: Sequence[int]
    ) -> list[int]:
        """The buffers of a kernel that was compiled here, in the order of its arguments."""
        from svod.runtime.bodies import memory_problem

        slots = fact.numbers("slots", high=len(self.manifest.items("buffers")))
        if len(slots) != len(places) or len(set(slots)) != len(slots):
            raise fact.wrong("slots", f"{len(places)} numbers that differ", slots)
        given = dict(zip(slots, places, strict=True))
        facts = {slot: self.buffer_facts[place] for slot, place in given.items()}
        problem = memory_problem(body, kernel, {s: (f[2], f[3]) for s, f in facts.items()})
        if problem is not None:
            raise fact.wrong("buffers", problem, places)
        return [given[slot] for slot in kernel.globals]


def _kernel(fact: Checked, images: Sequence[ObjectImage], codes: Sequence[bytes]) -> CompiledKernel:
    number = fact.number("code", high=len(images) - 1)
    program = LoadedProgram(fact.text("symbol"), images[number], codes[number])
    image = images[number]
    if not image.address <= program.address < image.address + image.size:
        raise fact.wrong("symbol", "a function of its object", program.name)
    kernel = CompiledKernel(
        program=program,
        device="CPU",
        source="",
        entry_point=fact.text("name"),
        var_names=tuple(fact.texts("variables")),
        globals=tuple(fact.numbers("arguments")),
        outs=tuple(fact.numbers("writes")),
        ins=tuple(fact.numbers("reads")),
        host_parallel_safe=fact.flag("is_parallel_safe"),
        global_size=_sizes(fact, "global_size"),
        local_size=None if fact.value("local_size") is None else _sizes(fact, "local_size"),
        address=program.address,
        bytes_moved=fact.optional_number("bytes_moved"),
        flops=fact.optional_number("flops"),
    )
    if kernel.dims is not None and kernel.dims.global_size[0] > MOST_CORES:
        raise fact.wrong("global_size", f"at most {MOST_CORES} cores", kernel.dims.global_size)
    return kernel


def _sizes(fact: Checked, name: str) -> LaunchSize:
    found = [_size(fact, name, size) for size in fact.items(name)]
    if len(found) != 3:
        raise fact.wrong(name, "three sizes", found)
    x, y, z = (const(size, dt.index) if isinstance(size, int) else size for size in found)
    return x, y, z


def _size(fact: Checked, name: str, size: Any) -> int | UOp:
    if type(size) is int and 0 <= size <= INT64_MAX:
        return size
    if not isinstance(size, str):
        raise fact.wrong(name, "sizes or expressions", size)
    try:
        found = parse(size)
        smallest = {v.name: v.min_val for v in collect_runtime_vars(found)}
        evaluate(found, smallest)  # refuses what is no arithmetic over variables
    except SvodError as problem:
        raise fact.wrong(name, f"an expression ({problem})", size) from None
    return found


def _variables(fact: Checked) -> tuple[RuntimeVar, ...]:
    found = []
    for row in fact.items("variables"):
        match row:
            case [str(name), int(low), int(high)] if INT64_MIN <= low <= high <= INT64_MAX:
                found.append(RuntimeVar(name, low, high))
            case _:
                raise fact.wrong("variables", "names with their bounds", row)
    return tuple(found)


def _attribute(fact: Checked, value: Any) -> object:
    try:
        match value:
            case None | bool() | int() | str():
                return value
            case {"float": str(text)}:
                return float.fromhex(text)
            case {"bytes": str(text)}:
                return bytes.fromhex(text)
            case {"tuple": list(items)}:
                return tuple([_attribute(fact, item) for item in items])
    except (ValueError, OverflowError):
        pass
    raise fact.wrong("attributes", "values", value)


def _given_values(fact: Checked) -> Mapping[str, Any]:
    """Values a custom function starts with, where there are any."""
    values = fact.values("values")
    return {"values": values} if values else {}


def _memory(fact: Checked) -> MemoryReport:
    modes = [mode.value for mode in MemoryMode]
    return MemoryReport(
        MemoryMode(fact.one_of("mode", modes)),
        fact.number("buffers"),
        fact.number("reused"),
        fact.number("logical_bytes"),
        fact.number("planned_bytes"),
        fact.number("lower_bound"),
        fact.number("fixed_bytes"),
        fact.number("constant_bytes") if fact.has("constant_bytes") else 0,  # files of 0.1 lack it
    )


def _stored_launcher(key: str) -> bytes | None:
    """The launcher of this very version from the object store, which needs no LLVM either."""
    from svod.device.cpu.compiler import object_store

    store = object_store()
    return store.get(key) if store is not None else None
