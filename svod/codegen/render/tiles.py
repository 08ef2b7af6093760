"""The inner loops of matmul tiles: global memory to shared memory to sums in registers.

``emit_tile`` writes the loop of one TILE node into a renderer and returns the names of the thread's
sums. Rows, columns or depths past the end are read as zeros. The kind of a tile names the unit that
multiplies: ``fma``, ``wgmma`` or ``mma``, the latter two with their element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svod.codegen.render.fma import Fma
from svod.codegen.render.mma import Mma
from svod.codegen.render.tile_parts import ELEMENTS, Operand
from svod.codegen.render.wgmma import wgmma_for
from svod.ir.node import UOp

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


def emit_tile(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the sums of this thread in the order of the pieces."""
    kind, rows, columns, step, stages, m, n, k, *layout = node.arg[1:]
    a_outer, a_depth, a_wide, b_outer, b_depth, b_wide = layout
    values = [r._value(s) for s in node.src[2:]]
    a = Operand(
        r._memory(node.src[0]), values[0], values[2], m, rows, a_outer, a_depth,
        a_wide and r.aligned,
    )  # fmt: skip
    b = Operand(
        r._memory(node.src[1]), values[1], values[3], n, columns, b_outer, b_depth,
        b_wide and r.aligned,
    )  # fmt: skip
    if a.wide or b.wide:
        r.widest = 16
    if kind == "fma":
        return Fma(r, a, b, k, step).emit()
    unit, _, element = kind.partition(".")
    loop = wgmma_for(ELEMENTS[element]) if unit == "wgmma" else Mma
    return loop(r, a, b, k, step, stages, ELEMENTS[element]).emit()
