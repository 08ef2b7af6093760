"""Saving a plan to a file.

Out: a zip archive of `manifest.json`, the object code of the kernels, the code of the launcher,
a signature of this user, and the content of all memory a run needs. A portable file holds graphs of
the kernels instead of code. Nothing in it is pickled and nothing is compressed, so that loading
maps the weights instead of reading them. What a plan makes itself is not stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from svod._version import __version__
from svod.base.errors import ConfigError, UnsupportedError
from svod.base.hashing import checksum
from svod.device.buffer import Buffer
from svod.device.cpu.host import runs_here, triple
from svod.device.cpu.targets import Target
from svod.device.names import base_key
from svod.ir import ops as O
from svod.ir.guards import CHECK
from svod.ir.node import UOp
from svod.ir.text import dump
from svod.runtime.archive import ALIGNMENT, Pieces, write_archive
from svod.runtime.content import Region, content_of, find_regions, mark_needed
from svod.runtime.memory import MemoryReport
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)
from svod.runtime.portable import needed_processor, target_of_programs
from svod.runtime.ports import view_roots
from svod.runtime.signing import sign

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan

FORMAT = 2  # of the file; a reader refuses a newer one
KIND = "svod plan"
# How kernels are called: `void kernel(ptr buffers, ptr values, i64 core)`.
KERNEL_INTERFACE = 1
MANIFEST, GUARD, LAUNCHER, DATA = "manifest.json", "manifest.blake2b", "launcher.o", "data.bin"
SIGNATURE = "manifest.signature"

Json: TypeAlias = Any  # what json.dumps takes


def save_plan(
    plan: ExecutionPlan,
    path: str | Path,
    weights: bool = True,
    without: Collection[str] = (),
    portable: bool = False,
) -> None:
    """Write a plan to a file; see `ExecutionPlan.save`."""
    unknown = set(without) - plan.inputs.keys()
    if unknown:
        known = ", ".join(plan.inputs) or "none"
        raise ConfigError(f"{sorted(unknown)[0]!r} is no input of the plan; its inputs are {known}")
    if not weights and plan.memory.constant_bytes:
        raise ConfigError(
            "the weights of this plan are frozen: it holds packed copies that cannot be bound "
            "again. Save it with its weights, or prepare it without freeze=True"
        )
    with plan._lock:
        _Writer(plan, weights, frozenset(without), portable).write(Path(path))


class _Writer:
    """The parts of one file."""

    def __init__(
        self, plan: ExecutionPlan, weights: bool, without: frozenset[str], portable: bool
    ) -> None:
        self.plan = plan
        self.portable = portable
        self.buffers = plan.buffers()
        self.ops = plan.prepared_ops()
        _require_host(plan, self.buffers)
        # Numbers in the file, by the id of a compiled kernel or the content of a portable one.
        self.kernels: dict[int | str, int] = {}
        self.codes: dict[bytes, int] = {}
        self.regions = find_regions(self.buffers)
        inputs = [port.index for port in plan.ports if not port.is_output]
        ordered = [self.ops[index] for index in plan.order]
        mark_needed(self.regions, ordered, self.buffers, inputs, plan.output_buffer_indices())
        self.to_bind = self._to_bind(weights, without)
        self.stored = [r for r in self.regions if r.is_needed and id(r) not in self.to_bind]
        self.offsets: dict[int, int] = {}
        self.data_bytes = 0
        for region in self.stored:
            self.offsets[id(region)] = self.data_bytes
            self.data_bytes += -(-region.nbytes // ALIGNMENT) * ALIGNMENT

    def write(self, path: Path) -> None:
        manifest = self._manifest()
        if not self.portable:
            launcher_key, launcher = _launcher_object(self._target())
            manifest |= self._code(launcher_key, launcher)
        text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False).encode()
        entries: dict[str, Callable[[], Pieces]] = {
            MANIFEST: lambda: [text],
            GUARD: lambda: [checksum(text).hex().encode()],
        }
        if not self.portable:
            entries[SIGNATURE] = _pieces(sign(text))
            entries[LAUNCHER] = _pieces(launcher)
        for code, number in self.codes.items():
            entries[code_entry(number)] = _pieces(code)
        entries[DATA] = self._data
        write_archive(path, entries)

    # -- memory ---------------------------------------------------------------------------------

    def _to_bind(self, weights: bool, without: frozenset[str]) -> dict[int, tuple[str, int]]:
        """Regions whose content is left out: a name for each, and a place to bind it at."""
        roots = view_roots(self.ops, len(self.buffers))
        names = {port.index: port.name for port in self.plan.ports}
        found: dict[int, tuple[str, int]] = {}
        for region in self.regions:
            named = [names[place] for place in region.places if place in names]
            if not region.is_needed or (weights and not without.intersection(named)):
                continue
            place = self._whole_place(region, roots)
            if place is None:
                raise UnsupportedError(
                    f"buffers {region.places} of the plan share memory in a way that cannot be "
                    "bound again: save the plan with its weights",
                    "plan",
                )
            found[id(region)] = (names.get(place, f"buffer{place}"), place)
        return found

    def _whole_place(self, region: Region, roots: Sequence[int]) -> int | None:
        """The one buffer that others of a region are views of, where it is all of the region."""
        bases = {roots[place] for place in region.places}
        place = bases.pop()
        buffer = self.buffers[place]
        is_whole = (buffer.address, buffer.nbytes) == (region.first, region.end - region.first)
        return place if is_whole and not bases else None

    def _data(self) -> Iterator[bytes | memoryview]:
        for region in self.stored:
            yield from content_of(region, self.buffers)
            yield bytes(-region.nbytes % ALIGNMENT)

    def _target(self) -> Target | None:
        """The machine the code is for, where that is another one."""
        compiled = [op.kernel.program for op in self.ops if isinstance(op, PreparedKernel)]
        foreign = [wanted for wanted in target_of_programs(compiled) if not runs_here(wanted)]
        if foreign and foreign[0].system not in ("", "linux"):
            raise UnsupportedError(
                f"plans for {foreign[0].name} cannot be saved, since only Linux loads their code: "
                "export it",
                "plan",
            )
        return foreign[0] if foreign else None

    # -- the manifest ---------------------------------------------------------------------------

    def _code(self, launcher_key: str, launcher: bytes) -> Json:
        """What only a file with machine code says; it needs the kernels of the manifest."""
        compiled = [op.kernel.program for op in self.ops if isinstance(op, PreparedKernel)]
        processor = needed_processor(compiled)
        return {
            "kernel_interface": KERNEL_INTERFACE,
            "machine": {
                "architecture": processor.architecture,
                "model": processor.model,
                "features": sorted(processor.features),
            },
            "launcher": {"key": launcher_key, "checksum": checksum(launcher).hex()},
            "code": [{"checksum": checksum(code).hex(), "bytes": len(code)} for code in self.codes],
        }

    def _manifest(self) -> Json:
        plan = self.plan
        home = {place: number for number, r in enumerate(self.regions) for place in r.places}
        ops = [self._op(op, also) for op, also in zip(
            self.ops, plan.instance_dependencies, strict=True)]  # fmt: skip
        kernels: list[Json] = [None] * len(self.kernels)
        for op in self.ops:
            if isinstance(op, PreparedKernel):
                number = self.kernels[self._kernel_key(op)]
                kernels[number] = kernels[number] or self._kernel(op)
        return {
            "kind": KIND,
            "format": FORMAT,
            "svod": __version__,
            "portable": self.portable,
            "device": plan.device(),
            "kernels": kernels,
            "regions": [self._region(region) for region in self.regions],
            "buffers": [
                {
                    "region": home[place],
                    "offset": buffer.address - self.regions[home[place]].start,
                    "size": buffer.size,
                    "dtype": buffer.dtype.name,
                    "device": buffer.device,
                }
                for place, buffer in enumerate(self.buffers)
            ],
            "ops": ops,
            "levels": [list(level) for level in plan.levels],
            "groups": [list(group) for group in plan.groups],
            "ports": self._ports(),
            "outputs": list(plan.output_buffer_indices()),
            "to_bind": [name for name, _ in self.to_bind.values()],
            "variables": plan.variables,
            "memory": _memory(plan.memory),
            "data_bytes": self.data_bytes,
        }

    def _region(self, region: Region) -> Json:
        bind = self.to_bind.get(id(region))
        return {
            "bytes": region.nbytes,
            "data": self.offsets.get(id(region)),
            "bind": None if bind is None else bind[0],
        }

    def _ports(self) -> list[Json]:
        specs = [
            {
                "name": port.name,
                "buffer": port.index,
                "shape": [size_data(size) for size in port.shape],
                "is_output": port.is_output,
                **({"is_complex": True} if port.is_complex else {}),
            }
            for port in self.plan.ports
        ]
        known = {port.index for port in self.plan.ports}
        for name, place in self.to_bind.values():
            if place not in known:
                size = self.buffers[place].size
                specs.append({"name": name, "buffer": place, "shape": [size], "is_output": False})
        return specs

    def _op(self, op: PreparedOp, also_after: Sequence[int]) -> Json:
        shared = {
            "id": op.id,
            "buffers": list(op.buffer_indices),
            "after": list(op.dependencies),
            "also_after": list(also_after),
        }
        if isinstance(op, PreparedCopy):
            return {"kind": "copy", **shared}
        if isinstance(op, PreparedBufferView):
            return {"kind": "view", **shared, "offset": op.byte_offset, "bytes": op.byte_size}
        variables = [[v.name, v.min_val, v.max_val] for v in op.runtime_vars or ()]
        if isinstance(op, PreparedCustomFunction):
            if self.portable and op.kind != CHECK:
                raise UnsupportedError(
                    f"a portable plan cannot call the function {op.kind}. Save the plan without "
                    "portable=True",
                    "plan",
                )
            return {
                "kind": "custom",
                **shared,
                "function": op.kind,
                "attributes": [_attribute(op, value) for value in op.attrs],
                "fixed": dict(op.fixedvars),
                "variables": variables,
                "values": dict(getattr(op, "values", {})),
            }
        number = self.kernels.setdefault(self._kernel_key(op), len(self.kernels))
        return {
            "kind": "kernel",
            **shared,
            "kernel": number,
            **({"slots": list(op.kernel.globals)} if self.portable else {}),
            "device": op.device,
            "outputs": list(op.output_indices),
            "values": list(op.vals),
            "fixed": dict(op.fixedvars),
            "variables": variables,
        }

    def _kernel_key(self, op: PreparedKernel) -> int | str:
        return op.ast.content_hash if self.portable else id(op.kernel)

    def _kernel(self, op: PreparedKernel) -> Json:
        kernel = op.kernel
        if self.portable:
            from svod.runtime.bodies import body_text  # loading needs this file, and no graphs

            return {"name": kernel.entry_point, "body": body_text(op)}
        code = getattr(kernel.program, "object_code", None)
        symbol = getattr(kernel.program, "name", "")
        if not code or not symbol:
            raise UnsupportedError(
                f"kernel {kernel.entry_point} has no object code: only plans of native CPU "
                "kernels can be saved",
                "plan",
            )
        return {
            "name": kernel.entry_point,
            "symbol": symbol,
            "code": self.codes.setdefault(code, len(self.codes)),
            "variables": list(kernel.var_names),
            "arguments": list(kernel.globals),
            "writes": list(kernel.outs),
            "reads": list(kernel.ins),
            "is_parallel_safe": kernel.host_parallel_safe,
            "global_size": [size_data(size) for size in kernel.global_size],
            "local_size": None
            if kernel.local_size is None
            else [size_data(size) for size in kernel.local_size],
            "bytes_moved": kernel.bytes_moved,
            "flops": kernel.flops,
        }


def code_entry(number: int) -> str:
    """The name of an object file in the archive."""
    return f"code/{number}.o"


def size_data(size: int | UOp) -> int | str:
    """A size as a number, or as the text of its expression."""
    if isinstance(size, int):
        return size
    return int(size.arg) if size.op == O.CONST else dump(size)


def _pieces(data: bytes) -> Callable[[], Pieces]:
    return lambda: [data]


def _memory(report: MemoryReport) -> Json:
    return {
        "mode": report.mode.value,
        "buffers": report.buffers,
        "reused": report.reused,
        "logical_bytes": report.logical_bytes,
        "planned_bytes": report.planned_bytes,
        "lower_bound": report.lower_bound,
        "fixed_bytes": report.fixed_bytes,
        "constant_bytes": report.constant_bytes,
    }


def _attribute(op: PreparedCustomFunction, value: object) -> Json:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": [_attribute(op, item) for item in value]}
    raise UnsupportedError(
        f"custom function {op.kind} has an attribute of type {type(value).__name__}, "
        "which cannot be saved",
        "plan",
    )


def _require_host(plan: ExecutionPlan, buffers: Sequence[Buffer]) -> None:
    elsewhere = sorted({b.device for b in buffers if base_key(b.device) != "CPU"})
    if elsewhere:
        raise UnsupportedError(
            f"the plan uses memory of {', '.join(elsewhere)}: only plans that live on the CPU "
            "can be saved; realize what comes from files first",
            "plan",
        )


def _launcher_object(wanted: Target | None) -> tuple[str, bytes]:
    """The key and the object code of the launcher: from the store, else compiled once more."""
    from svod.device.cpu.compiler import object_store
    from svod.runtime.native.code import code_for, load_code

    if wanted is not None:
        return code_for("linux", wanted.architecture, triple(wanted))
    store = object_store()
    found: dict[str, bytes] = {}

    def get(key: str) -> bytes | None:
        data = store.get(key) if store is not None else None
        if data is not None:
            found[key] = data
        return data

    def put(key: str, data: bytes) -> None:
        found[key] = data
        if store is not None:
            store.put(key, data)

    load_code(get, put)  # also checks that the object links; this copy is dropped again
    ((key, data),) = found.items()
    return key, data
