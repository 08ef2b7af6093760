"""What feeds tensor cores: asynchronous copies into a ring of panels in the layout they read.

Panels that must be turned first go through registers, one step of k ahead of the copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svod.codegen.render.panels import COMMIT, Panel, place_of
from svod.codegen.render.tile_parts import THREADS, Element, Operand
from svod.codegen.render.turned import TurnedPanel

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


class Ring:
    """Panels of the two operands of a tile in a ring of stages."""

    def __init__(
        self,
        r: NvptxRenderer,
        a: Operand,
        b: Operand,
        k: int,
        step: int,
        stages: int,
        element: Element,
    ) -> None:
        self.r, self.k, self.depth, self.stages = r, k, step, stages
        self.element = element
        self.thread = r._register("tid.x")
        self.operands = (a, b)
        self.panels = [
            (Panel if element.item == 2 or o.along_depth else TurnedPanel)(
                r, o.memory, o.base, o.tile, step, o.outer, o.depth, o.wide, THREADS, self.thread,
                element.item,
            )
            for o in (a, b)
        ]  # fmt: skip
        self.stage = sum([p.nbytes for p in self.panels])
        self.count = a.tile * b.tile // THREADS  # sums of one thread
        self.left: list[str | None] = []  # rows and columns from the tile's first on

    def prepare(self) -> str:
        """Shared memory, and where this thread copies."""
        start = self.r.dynamic_shared(self.stages * self.stage)
        e = self.r._emit
        for o, panel in zip(self.operands, self.panels, strict=True):
            panel.prepare(o.start)
            left = None
            if o.limit % o.tile:
                left = e(f"trunc i64 {e(f'sub i64 {o.limit}, {o.start}')} to i32")
            self.left.append(left)
        return start

    def copy(self, step: str, buffer: str) -> None:
        """Start to copy one step of k into a buffer; there is nothing to copy past the end."""
        r, e = self.r, self.r._emit
        start = e(f"mul i32 {step}, {self.depth}")
        depth = e(f"sub i32 {self.k}, {start}") if self.k % self.depth else None
        number = r._branch(e(f"icmp slt i32 {start}, {self.k}"))
        for panel, left in zip(self.panels, self.left, strict=True):
            if not isinstance(panel, TurnedPanel):
                shift = place_of(self.r, e(f"zext i32 {start} to i64"), panel.depth_axes)
                rows, columns = (left, depth) if panel.along_depth else (depth, left)
                panel.copy(buffer, shift, rows, columns)
            buffer = e(f"add i32 {buffer}, {panel.nbytes}")
        r._join(number)
        r.assembly(COMMIT, "~{memory}", "")

    def fill(self, start: str, ahead: int) -> list[str]:
        """Start the first steps; returns the words of the step after them that must be turned."""
        e = self.r._emit
        buffers = [e(f"add i32 {start}, {stage * self.stage}") for stage in range(ahead)]
        fetched = [self.turn([], "", str(stage)) for stage in range(ahead)]
        for stage, (words, buffer) in enumerate(zip(fetched, buffers, strict=True)):
            self.copy(str(stage), buffer)
            self.turn(words, buffer)
        return self.turn([], "", str(ahead))

    def turn(self, words: list[str], buffer: str, step: str | None = None) -> list[str]:
        """Put the words of turned panels into a buffer, where there are words; fetch a step of k
        into the registers they leave. Past the end that is the last one, which nothing reads."""
        turned = [p for p in self.panels if isinstance(p, TurnedPanel)]
        if not turned:
            return []
        e = self.r._emit
        start, depth = "0", None
        if step is not None:
            last = -(-self.k // self.depth) - 1
            minimum = self.r._call("llvm.umin.i32", "i32", [("i32", step), ("i32", str(last))])
            start = e(f"mul i32 {e(minimum)}, {self.depth}")
            depth = e(f"sub i32 {self.k}, {start}") if self.k % self.depth else None
        found: list[str] = []
        for panel, left in zip(self.panels, self.left, strict=True):
            if isinstance(panel, TurnedPanel):
                shift = place_of(self.r, e(f"zext i32 {start} to i64"), panel.depth_axes)
                for unit in range(panel.units):
                    if words:
                        panel.put(unit, words[:16], buffer)
                        words = words[16:]
                    if step is not None:
                        found += panel.fetch(unit, shift, left, depth)
            if buffer:
                buffer = e(f"add i32 {buffer}, {panel.nbytes}")
        return found

    def buffer(self, start: str, step: str) -> str:
        """Where a step of k is in the ring."""
        e = self.r._emit
        place = e(f"urem i32 {step}, {self.stages}")
        return e(f"add i32 {start}, {e(f'mul i32 {place}, {self.stage}')}")
