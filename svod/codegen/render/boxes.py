"""Tiles of convolutions on Hopper: a step of the sum is a tap and some channels, or some pixels.

The tile and its loops are those of `tma`; what differs is where a step's boxes begin.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from svod.codegen.render.panels import LINE
from svod.codegen.render.tile_parts import ELEMENTS, Operand
from svod.codegen.render.tma import Fed, Source
from svod.ir import ops as O
from svod.ir.needs import TensorMap
from svod.ir.node import UOp

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


class Boxes(Fed):
    """Windows, and what they are multiplied by."""

    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        unit, rows, columns, step, stages, self.counts, *described = node.arg[1:]
        operands = []
        for tile, (_, along_depth, _, _) in zip((rows, columns), described, strict=True):
            depth = ((1, 1 if along_depth else 2),)  # what is copied is said by maps
            operands.append(Operand("", "0", "0", tile, tile, ((1, 1),), depth, False))
        a, b = operands
        super().__init__(r, a, b, step, step, stages, ELEMENTS[unit.partition(".")[2]])
        self.node = node
        self.rounds = node.src[2] if node.src[2].op == O.RANGE else None
        self.described = described
        corners = node.src[3:]
        self.sources = []
        for which, (offset, _, axes, pieces) in enumerate(described):
            here, corners = corners[: len(axes)], corners[len(axes) :]
            self.sources.append(self._source(which, offset, axes, here, len(pieces)))

    def _source(
        self, which: int, offset: int, axes: Any, corner: tuple[UOp, ...], pieces: int
    ) -> Source:
        item = self.element.item
        sizes, steps, boxes, strides = (tuple([axis[i] for axis in axes]) for i in range(4))
        tensor = TensorMap(
            self.node.src[which].arg.slot, offset * item, item, sizes,
            tuple([step * item for step in steps[1:]]), boxes, strides,
        )  # fmt: skip
        return Source(self.panels[which], self.r.tensor_map(tensor), corner, pieces)

    @property
    def steps(self) -> int:
        return prod(self.counts)

    def copy_step(self, firsts: list[list[str]], step: str, target: str, ready: str) -> None:
        e = self.r._emit
        places: list[str] = []  # of each loop of the sum
        for count in reversed(self.counts):
            places.insert(0, e(f"urem i32 {step}, {count}"))
            step = e(f"udiv i32 {step}, {count}")
        for source, first, (_, _, axes, pieces) in zip(
            self.sources, firsts, self.described, strict=True
        ):
            corner = []
            for place, axis in zip(first, axes, strict=True):
                for loop, factor in axis[4]:
                    place = e(f"add i32 {place}, {e(f'mul i32 {places[loop]}, {factor}')}")
                corner.append(place)
            for number, moved in enumerate(pieces):
                there = e(f"add i32 {target}, {number * source.panel.rows * LINE}")
                here = [e(f"add i32 {c}, {m}") for c, m in zip(corner, moved, strict=True)]
                self.box(source, there, here, ready)
            target = e(f"add i32 {target}, {source.panel.nbytes}")
