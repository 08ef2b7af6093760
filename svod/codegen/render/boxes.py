"""Tiles of convolutions on Hopper: a step of the sum is one tap of a window and some channels.

The tile and its loops are those of `tma`; what differs is where a step's boxes begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.codegen.render.panels import LINE
from svod.codegen.render.tile_parts import ELEMENTS, Operand
from svod.codegen.render.tma import Fed, Source, TensorMap
from svod.ir import ops as O
from svod.ir.node import UOp

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


class Boxes(Fed):
    """Windows, and what they are multiplied by: channels are neighbours in both."""

    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        unit, rows, columns, step, stages, self.taps, self.blocks, *described = node.arg[1:]
        row = ((1, 1),)  # what is copied is said by maps
        a, b = (Operand("", "0", "0", n, n, row, row, False) for n in (rows, columns))
        super().__init__(r, a, b, step, step, stages, ELEMENTS[unit.partition(".")[2]])
        self.node = node
        self.rounds = node.src[2] if node.src[2].op == O.RANGE else None
        corners = node.src[3:]
        self.moved: list[list[tuple[tuple[int, int], ...]]] = []  # taps along each axis, factors
        self.sources = []
        for which, (offset, axes) in enumerate(described):
            here, corners = corners[: len(axes)], corners[len(axes) :]
            self.sources.append(self._source(which, offset, axes, here))
            self.moved.append([axis[4] for axis in axes])

    def _source(self, which: int, offset: int, axes: Any, corner: tuple[UOp, ...]) -> Source:
        item = self.element.item
        sizes, steps, boxes, strides = ([axis[i] for axis in axes] for i in range(4))
        tensor = TensorMap(
            self.node.src[which].arg.slot, offset * item, item, tuple(sizes),
            tuple([step * item for step in steps[1:]]), (LINE // item, *boxes[1:]), tuple(strides),
        )  # fmt: skip
        return Source(self.panels[which], self.r.tensor_map(tensor), corner)

    @property
    def steps(self) -> int:
        found: int = self.blocks
        for tap in self.taps:
            found *= tap
        return found

    def copy_step(self, firsts: list[list[str]], step: str, target: str, ready: str) -> None:
        e = self.r._emit
        channel = e(f"mul i32 {e(f'urem i32 {step}, {self.blocks}')}, {self.depth}")
        rest = e(f"udiv i32 {step}, {self.blocks}")
        taps: list[str] = []
        for count in reversed(self.taps):
            taps.insert(0, e(f"urem i32 {rest}, {count}"))
            rest = e(f"udiv i32 {rest}, {count}")
        for source, first, moved in zip(self.sources, firsts, self.moved, strict=True):
            corner = []
            for place, along in zip(first, moved, strict=True):
                for tap, factor in along:
                    place = e(f"add i32 {place}, {e(f'mul i32 {taps[tap]}, {factor}')}")
                corner.append(place)
            corner[0] = e(f"add i32 {corner[0]}, {channel}")
            self.box(source, target, corner, ready)
            target = e(f"add i32 {target}, {source.panel.nbytes}")
