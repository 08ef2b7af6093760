"""The contractions of tensors, compiled for a target, and the tile that each of them has."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.targets.cpu import cpu_target
from svod.codegen.targets.cuda import cuda_target
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from svod.optimize.graph import renumber
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.untiled import STAGED, why_unpacked, why_untiled
from svod.schedule.normalize import normalization
from svod.schedule.preschedule import restored
from svod.schedule.rangeify import rangeify
from svod.schedule.schedule import pre_schedule
from svod.schedule.sorts import is_sort
from svod.tensor.core.tensor_core import wrap

GPU = GpuMachine()
CPU = Machine(vector_bytes=64, registers=32, cores=2, dots=("bf16", "i16", "u8s8", "s8u8"))
LEAST_WORK = 1 << 20  # multiplications of what counts as a contraction
LEAST_REUSE = 16.0  # how often it uses each element that it reads


class Kernel(NamedTuple):
    """A contraction of a program: its body, the choices for it, and the tile they are."""

    body: UOp
    opts: tuple[Opt, ...]
    tile: str  # empty where a plain loop computes it
    reason: str  # why that is so

    def __str__(self) -> str:
        found = [n for n in self.body.toposort() if n.op == O.PARAM]
        found.sort(key=lambda n: n.arg.slot)
        shapes = ", ".join([f"{n.dtype.name}{list(n.arg.shape)}" for n in found])
        return f"{self.tile or f'no tile, {self.reason}'}: {shapes}"


def memory(device: str, *shape: int, dtype: dt.DType = dt.float32) -> Tensor:
    """A tensor of memory that is never touched."""
    return wrap(B.view_as(B.new_buffer(prod(shape), dtype, device), shape), device)


def contractions(results: Tensor | Iterable[Tensor], device: str) -> list[Kernel]:
    """The contractions that compute tensors, compiled for a device; equal ones once."""
    given = [results] if isinstance(results, Tensor) else list(results)
    compiled = _for_gpu if device == "CUDA" else _for_cpu
    return [compiled(body) for body in bodies(given, device) if contracts(body)]


def bodies(results: Iterable[Tensor], device: str) -> list[UOp]:
    """The distinct kernels that compute tensors."""
    roots = [make(O.CONTIGUOUS, t.uop.dtype, (t.uop,)) for t in results]
    graph = normalization(make(O.SINK, dt.void, tuple(roots)), "test")
    able = (cuda_target(GPU) if device == "CUDA" else cpu_target(CPU)).capabilities
    made = pre_schedule(graph, device, False, "", lambda name: able)
    found = [i.body for i in restored(made, graph).items if i.body.op == O.SINK]
    return list(dict.fromkeys(found))


def contracts(body: UOp) -> bool:
    """Whether a kernel is a contraction: a sum of products that uses what it reads many times.

    This looks at loops alone, and knows nothing of the analysis that is tested with it.
    """
    if is_sort(body):
        return False
    return any(_reuse(n) >= LEAST_REUSE for n in renumber(rangeify(body)).toposort())


def _reuse(node: UOp) -> float:
    """How often a sum of products uses each element of its larger operand."""
    if node.op != O.REDUCE or node.arg != O.ADD:
        return 0.0
    value = node.src[0]
    while value.op in (O.CAST, O.WHERE, O.NEG):
        value = value.src[1 if value.op == O.WHERE else 0]
    if value.op != O.MUL:
        return 0.0
    sizes = [_elements(s) for s in value.src]
    work = prod([r.vmax + 1 for r in value.ranges])
    return 0.0 if work < LEAST_WORK or 1 in sizes else float(work / max(sizes))


def _elements(value: UOp) -> int:
    """Of all memory that a value reads, at most."""
    loads = [n.src[0].src for n in value.toposort() if n.op == O.LOAD]
    bound = prod([r.vmax + 1 for r in value.ranges])
    return min(bound, sum([prod(src[0].arg.shape) for src in loads])) if loads else bound


def _for_gpu(body: UOp) -> Kernel:
    kernel = generate(body, cuda_target(GPU))
    assert kernel.text().source
    tiles = [str(n.arg[1]) for n in kernel.kernel.toposort() if is_tile(n)]
    reason = why_untiled(renumber(rangeify(body)), kernel.kernel, GPU)
    return Kernel(body, kernel.opts, tiles[0] if tiles else "", reason)


def _for_cpu(body: UOp) -> Kernel:
    kernel = generate(body, cpu_target(CPU))
    assert kernel.text().function
    staged = "+".join([o.name for o in kernel.opts if o.name in STAGED | {"DOT"}])
    reason = why_unpacked(renumber(rangeify(body)), kernel.opts, CPU)
    if not staged and _is_register_tile(kernel.opts) and reason.startswith("the columns are read"):
        staged = "registers"
    return Kernel(body, kernel.opts, staged, reason)


def _is_register_tile(opts: tuple[Opt, ...]) -> bool:
    names = [o.name for o in opts]
    return "LANE" in names and "UPCAST" in names
