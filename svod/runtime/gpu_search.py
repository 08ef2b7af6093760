"""BEAM on a GPU: every kernel is timed in a few forms, and the fastest is kept.

In: kernel bodies. Out: nothing; the renderer remembers what was chosen, and so does the object
store, under the kernel, the compiler and the GPU. The clock is warmed first; then all forms of a
kernel run in turn, round after round, and the best round of each counts, so that a clock that
drifts or a neighbour that interferes meets all of them alike.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_uint64
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from svod.base.hashing import digest
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.gpu import GpuKernel, generate_gpu
from svod.codegen.gpu_sort import GpuSort
from svod.device.cpu.compiler import object_store
from svod.device.cuda.compiler import CudaProgram, CudaRenderer, spec_of
from svod.device.cuda.driver import Context, context
from svod.device.launch import resolve_launch_dims
from svod.device.names import device_number
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.gpu_machine import GpuMachine

if TYPE_CHECKING:
    from svod.device.device import Device

Code: TypeAlias = GpuKernel | GpuSort
WARM_SECONDS: Final = 0.05
ROUNDS: Final = 7
ROUND_SECONDS: Final = 2e-3  # of one form in one round, at least one run
MARGIN: Final = 0.98  # another form must take less than this part of the usual one's time
AMOUNTS: Final = ("block", "row_vectors", "tile_columns")
FILL: Final = 0x3C  # a byte that makes ordinary numbers of floats


@dataclass(slots=True)
class _Form:
    """One way to run a kernel."""

    machine: GpuMachine
    program: CudaProgram
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: list[int]
    best: float = float("inf")  # milliseconds


def search_on_gpu(
    bodies: Sequence[UOp], device: Device, values: Mapping[UOp, Mapping[str, int]] | None
) -> None:
    """Choose the form of every kernel that nothing was chosen for."""
    renderer = device.renderer
    assert isinstance(renderer, CudaRenderer)
    owner = context(device_number(device.name))
    store = object_store()
    for body in dict.fromkeys(bodies):
        if body.content_hash in renderer.chosen:
            continue
        key = digest("gpu search", body.content_hash, device.compiler.cache_key(), owner.facts.name)
        known = store.get(key) if store is not None else None
        if known is not None:
            renderer.chosen[body.content_hash] = replace(renderer.machine, **json.loads(known))
            continue
        with span("search"):
            found = _searched(body, device, renderer, owner, dict((values or {}).get(body, {})))
        renderer.chosen[body.content_hash] = found
        if store is not None:
            facts = asdict(found)
            store.put(key, json.dumps({name: facts[name] for name in AMOUNTS}).encode())


def _searched(
    body: UOp, device: Device, renderer: CudaRenderer, owner: Context, values: dict[str, int]
) -> GpuMachine:
    machine = renderer.machine
    codes: dict[UOp, tuple[GpuMachine, Code]] = {}
    for variant in (machine, *machine.variants()):
        code = generate_gpu(body, variant)
        codes.setdefault(code.kernel, (variant, code))
    if len(codes) == 1:
        return machine
    forms = [_form(variant, code, device, values) for variant, code in codes.values()]
    with _Memory(body, owner) as memory:
        _time(forms, memory, owner)
    usual, fastest = forms[0], min(forms, key=lambda f: f.best)
    times = ", ".join([f"{f.best * 1e3:.1f}" for f in forms])
    debug(2, f"search: {next(iter(codes.values()))[1].name}: {times} us")
    return fastest.machine if fastest.best < MARGIN * usual.best else machine


def _form(machine: GpuMachine, code: Code, device: Device, values: dict[str, int]) -> _Form:
    spec = spec_of(code)
    compiled = device.compiler.compile(spec)
    program = device.runtime(compiled)
    assert isinstance(program, CudaProgram)
    given = {v.name: values.get(v.name, v.max) for v in spec.vars}
    dims = resolve_launch_dims(spec.global_size, spec.local_size, given)
    numbers = [given[name] for name in spec.var_names]
    return _Form(machine, program, dims.global_size, dims.local_size or (1, 1, 1), numbers)


class _Memory:
    """Memory for the arguments of a kernel while it is timed."""

    def __init__(self, body: UOp, owner: Context) -> None:
        self.context = owner
        sizes: dict[int, int] = {}
        for node in body.toposort():
            if node.op == O.PARAM:
                nbytes = node.dtype.itemsize
                for n in node.arg.shape:
                    nbytes *= n
                sizes[node.arg.slot] = max(nbytes, sizes.get(node.arg.slot, 0))
        floats = {n.arg.slot for n in body.toposort() if n.op == O.PARAM and n.dtype.kind == "f"}
        self.fills = {slot: FILL if slot in floats else 0 for slot in sizes}
        self.sizes = sizes
        self.addresses: dict[int, int] = {}

    def __enter__(self) -> _Memory:
        driver, stream = self.context.use(), self.context.stream
        for slot, nbytes in self.sizes.items():
            address = c_uint64()
            driver.call("cuMemAllocAsync", byref(address), max(nbytes, 16), stream)
            self.addresses[slot] = int(address.value)
            fill = ctypes.c_ubyte(self.fills[slot])
            driver.call("cuMemsetD8Async", address.value, fill, nbytes, stream)
        return self

    def __exit__(self, *problem: object) -> None:
        for address in self.addresses.values():
            self.context.use().call("cuMemFreeAsync", address, self.context.stream)

    def arguments(self) -> list[int]:
        """Addresses in the order of the slots."""
        return [self.addresses[slot] for slot in sorted(self.addresses)]


def _time(forms: list[_Form], memory: _Memory, owner: Context) -> None:
    """The best time of one run of each form."""
    driver, stream = owner.use(), owner.stream
    start, stop = (driver.handle("cuEventCreate", 0) for _ in range(2))
    buffers = memory.arguments()

    def run(form: _Form, count: int) -> float:
        driver.call("cuEventRecord", start, stream)
        for _ in range(count):
            form.program(buffers, form.values, form.grid, form.block)
        driver.call("cuEventRecord", stop, stream)
        driver.call("cuEventSynchronize", stop)
        return driver.elapsed_ms(start, stop) / count

    deadline = time.perf_counter() + WARM_SECONDS
    once = run(forms[0], 1)
    while time.perf_counter() < deadline:
        once = min(once, run(forms[0], 4))
    count = max(1, min(200, int(ROUND_SECONDS * 1e3 / max(once, 1e-3))))
    for _ in range(ROUNDS):
        for form in forms:
            form.best = min(form.best, run(form, count))
    for event in (start, stop):
        driver.call("cuEventDestroy_v2", event)
