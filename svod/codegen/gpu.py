"""From one kernel's tensor graph to the text of a GPU kernel: the passes, run in order.

The passes are those of the CPU with other loop choices, and one more that divides in 32 bits
wherever the numbers fit, since a 64-bit division costs a GPU some twenty instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.expand import expand
from svod.codegen.formula import TRUNCATE, Term
from svod.codegen.gpu_sort import GpuSort, generate_sort
from svod.codegen.lanes import vectorize
from svod.codegen.linearize import Loop, linearize
from svod.codegen.lower import lower
from svod.codegen.naming import kernel_name
from svod.codegen.narrow import narrow
from svod.codegen.order import order_offsets, separate_loops
from svod.codegen.pipeline import dump, work_of
from svod.codegen.render.nvptx import GpuText, NvptxRenderer, nvptx_module
from svod.codegen.render.radix import shared_bytes
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp, const, make
from svod.optimize.actions import merge_adjacent
from svod.optimize.gpu import optimize_gpu
from svod.optimize.gpu_attention import optimize_attention
from svod.optimize.gpu_attention_gradient import optimize_gradient
from svod.optimize.gpu_boxes import optimize_boxes, strided_outputs
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from svod.optimize.gpu_windows import optimize_windows
from svod.optimize.graph import renumber
from svod.optimize.opts import Opt
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort

UINT32_LIMIT = (1 << 32) - 1
LOWERING = (
    ("expand", expand),
    ("vectorize", vectorize),
    ("separate", separate_loops),
    ("order", order_offsets),
)


@dataclass(slots=True)
class GpuKernel:
    """One kernel ready for the compiler."""

    name: str  # what people read
    symbol: str  # unique in a module
    body: UOp
    kernel: UOp  # the loop nest after the opts
    opts: tuple[Opt, ...]
    loops: Loop
    slots: list[int]
    variables: list[VarArg]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    threads: int  # of one block
    flops: int
    bytes: int
    plain: Loop | None = None  # loops for arguments that are not aligned, where those differ

    def text(self, aligned: bool = True) -> GpuText:
        """The module's text, and what its launch must provide."""
        renderer = NvptxRenderer(aligned)
        loops = self.plain if self.plain is not None and not aligned else self.loops
        with span("render"):
            function = renderer.render_kernel(
                self.symbol, loops, self.slots, [v.name for v in self.variables], self.writes,
                self.threads,
            )  # fmt: skip
        debug(5, function)
        module = nvptx_module([function], renderer.shared, renderer.declarations)
        return GpuText(module, renderer.widest, renderer.dynamic_bytes, tuple(renderer.maps))


def generate_gpu(body: UOp, machine: GpuMachine, is_plain: bool = False) -> GpuKernel | GpuSort:
    """All passes for one kernel; a plain one takes no plan but a thread per output."""
    if is_sort(body):
        return generate_sort(body)
    with span("rangeify"):
        plain = renumber(rangeify(body))
    with span("optimize"):
        kernel, opts = optimize_gpu(plain, machine, is_plain)
    if knobs.debug >= 4:
        dump("gpu optimize", plain, kernel)
    flops, moved = work_of(body, plain)
    found = lower_gpu(body, kernel, opts, flops, moved, machine.rounds_to_bfloat16)
    if any(is_tile(n) and n.arg[1].startswith("boxes") for n in kernel.toposort()):
        other = strided_outputs(merge_adjacent(plain), kernel)
        found.plain = linearize(_lowered(other, machine.rounds_to_bfloat16))
    return found


def takes_whole(body: UOp, machine: GpuMachine) -> bool:
    """Whether there is a tile for attention, or for a convolution where its input is; of a sort,
    whether its rows fit into shared memory."""
    if is_sort(body):
        return shared_bytes(body.src[0].src[1].src[0].shape[-1]) <= machine.most_shared_bytes
    plain = merge_adjacent(renumber(rangeify(body)))
    for whole in (optimize_attention, optimize_gradient):
        if whole(plain, machine.has_wgmma, []) is not None:
            return True
    if optimize_boxes(plain, machine, []) is not None:
        return True
    return optimize_windows(plain, machine, []) is not None


def lower_gpu(
    body: UOp,
    kernel: UOp,
    opts: tuple[Opt, ...],
    flops: int,
    moved: int,
    rounds_to_bfloat16: bool = False,
) -> GpuKernel:
    """The passes after the opts have been chosen."""
    lowered = _lowered(kernel, rounds_to_bfloat16)
    with span("linearize"):
        loops = linearize(lowered)
    nodes = lowered.toposort()
    slots = sorted({n.arg.slot for n in nodes if n.op == O.PARAM})
    variables = {n.arg for n in nodes if n.op == O.DEFINE_VAR}
    sizes = {n.arg: n.src[0].arg for n in nodes if n.op == O.SPECIAL and n.arg[0] == "l"}
    name = kernel_name(body)
    return GpuKernel(
        name, f"{name}_{kernel.content_hash[:10]}", body, kernel, opts, loops, slots,
        sorted(variables, key=lambda v: v.name), _slots(nodes, O.STORE), _reads(nodes),
        prod(sizes.values()), flops, moved,
    )  # fmt: skip


def _lowered(kernel: UOp, rounds_to_bfloat16: bool) -> UOp:
    lowered = kernel
    for name, run in LOWERING:
        before = lowered
        with span(name):
            lowered = run(lowered)
        if knobs.debug >= 4:
            dump(name, before, lowered)
    with span("lower"):
        lowered = lower(narrow_divisions(lowered))
        if rounds_to_bfloat16:
            lowered = with_roundings(lowered)
    return lowered


def narrow_divisions(sink: UOp) -> UOp:
    """Divisions of index numbers below 2**32 as unsigned 32-bit divisions."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op in (O.IDIV, O.MOD) and node.dtype is dt.index and _fits(*node.src):
            small = tuple([_as_uint32(s) for s in src])
            found = make(node.op, dt.uint32, small, TRUNCATE)
            done[node] = make(O.CAST, dt.index, (found,))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def with_roundings(sink: UOp) -> UOp:
    """Roundings to bfloat16 as conversions, for which newer GPUs have an instruction."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        rounded = _rounded(node)
        if rounded is not None:
            done[node] = make(O.CAST, node.dtype, (done[rounded],))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _rounded(node: UOp) -> UOp | None:
    """The float32 of which a node is the formula for bfloat16."""
    if node.op != O.BITCAST or node.dtype.scalar is not dt.bfloat16:
        return None
    cut = node.src[0]
    if cut.op != O.CAST or cut.src[0].op != O.WHERE:
        return None
    x = cut.src[0].src[0].src[0]
    if x.dtype.scalar is not dt.float32:
        return None
    return x if narrow(Term(x), dt.bfloat16).node is node else None


def _fits(a: UOp, b: UOp) -> bool:
    small = all(n.vmin >= 0 and n.vmax <= UINT32_LIMIT for n in (a, b))
    return small and bool(b.vmin > 0)


def _as_uint32(node: UOp) -> UOp:
    if node.op == O.CONST:
        return const(node.arg, dt.uint32)
    return make(O.CAST, dt.uint32, (node,))


def _reads(nodes: list[UOp]) -> tuple[int, ...]:
    tiles = [s for n in nodes if is_tile(n) for s in n.src if s.op == O.PARAM]
    return tuple(sorted({*_slots(nodes, O.LOAD), *[s.arg.slot for s in tiles]}))


def _slots(nodes: list[UOp], op: int) -> tuple[int, ...]:
    return tuple(sorted({n.src[0].src[0].arg.slot for n in nodes if n.op == op}))
