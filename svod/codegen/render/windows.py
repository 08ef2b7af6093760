"""Tiles of float32 convolutions: the loop of `fma` over numbers that may lie outside of an image.

A step of the sum is a tap and some channels. All that a thread reads in it moves by as much, and is
there or not for every row or column as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from svod.codegen.render.fma import GLOBAL, Fma
from svod.codegen.render.tile_parts import Operand
from svod.ir.node import UOp
from svod.optimize.gpu_windows import Gate

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


@dataclass(slots=True)
class Window:
    """One operand, and what is known of its rows or columns: the sums that are tested."""

    operand: Operand
    loops: tuple[int, ...]
    gates: tuple[Gate, ...]
    moves: list[str]  # what is added to the sum of each, the same for all rows or columns
    sums: dict[str, list[str]]  # by row or column of this thread, before the taps are added
    origins: dict[str, str]  # of its first element


class WindowFma(Fma):
    """Products with windows."""

    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        rows, columns, step, m, n, self.counts, *described = node.arg[2:]
        values = [r._value(s) for s in node.src[2:]]
        self.windows: list[Window] = []
        moves = values[4:]
        for which, (tile, limit) in enumerate(((rows, m), (columns, n))):
            outer, loops, gates, wide = described[which]
            operand = Operand(
                r._memory(node.src[which]), values[which], values[2 + which], limit, tile, outer,
                ((self.counts[-1], loops[-1]),), wide and r.aligned,
            )  # fmt: skip
            here, moves = moves[: len(gates)], moves[len(gates) :]
            self.windows.append(Window(operand, loops, gates, here, {}, {}))
        a, b = (w.operand for w in self.windows)
        super().__init__(r, a, b, prod(self.counts), step)
        if a.wide or b.wide:
            r.widest = 16

    def _window(self, o: Operand) -> Window:
        return next(w for w in self.windows if w.operand is o)

    def _origin(self, o: Operand, outer: str, depth: str) -> str:
        """Elements from the first of a row or column to one at a depth; that one is found by the
        way, and the sums to test."""
        e, window = self.r._emit, self._window(o)
        if outer not in window.sums:
            number = e(f"add i32 {e(f'trunc i64 {o.start} to i32')}, {outer}")
            total = o.base
            places: list[str] = []
            for axis, (size, step) in reversed(list(enumerate(o.outer))):
                here = e(f"urem i32 {number}, {size}") if axis else number
                number = e(f"udiv i32 {number}, {size}") if axis else number
                moved = e(f"mul i64 {e(f'zext i32 {here} to i64')}, {step}")
                total = e(f"add i64 {total}, {moved}")
                places.insert(0, here)
            window.origins[outer] = total
            window.sums[outer] = []
            for (own, factors, _, _), move in zip(window.gates, window.moves, strict=True):
                here = e(f"mul i32 {places[own]}, {factors[0]}") if own >= 0 else "0"
                moved = e(f"trunc i64 {move} to i32")
                window.sums[outer].append(e(f"add i32 {here}, {moved}"))
        return e(f"mul i64 {e(f'zext i32 {depth} to i64')}, {window.loops[-1]}")

    def _fetch(self, step: str) -> list[list[str]]:
        e = self.r._emit
        exists = e(f"icmp ult i32 {step}, {self.steps}")
        per = self.counts[-1] // self.step
        places = [e(f"mul i32 {e(f'urem i32 {step}, {per}')}, {self.step}")]
        rest = e(f"udiv i32 {step}, {per}")
        for count in reversed(self.counts[:-1]):
            places.insert(0, e(f"urem i32 {rest}, {count}"))
            rest = e(f"udiv i32 {rest}, {count}")
        found = []
        for window, accesses in zip(self.windows, self.places, strict=True):
            o = window.operand
            shift = "0"
            for place, by in zip(places, window.loops, strict=True):
                moved = e(f"mul i64 {e(f'zext i32 {place} to i64')}, {by}")
                shift = e(f"add i64 {shift}, {moved}")
            starts: dict[str, tuple[str, str]] = {}
            values = []
            for outer, _, deep, in_tile in accesses:
                if outer not in starts:
                    test = self._test(window, places, outer, exists)
                    if in_tile != "true":
                        test = e(f"and i1 {test}, {in_tile}")
                    there = e(f"add i64 {window.origins[outer]}, {shift}")
                    first = e(f"select i1 {test}, i64 {there}, i64 0")
                    pointer = e(f"getelementptr float, {GLOBAL} {o.memory}, i64 {first}")
                    starts[outer] = (pointer, test)
                pointer, test = starts[outer]
                address = e(f"getelementptr float, {GLOBAL} {pointer}, i64 {deep}")
                values.append(self._read(o, address, test))
            found.append(values)
        return found

    def _test(self, window: Window, places: list[str], outer: str, exists: str) -> str:
        """Whether a row or column is there in a step."""
        e, test = self.r._emit, exists
        for total, (_, (_, *factors), low, count) in zip(
            window.sums[outer], window.gates, strict=True
        ):
            for place, factor in zip(places, factors, strict=True):
                if factor:
                    total = e(f"add i32 {total}, {e(f'mul i32 {place}, {factor}')}")
            inside = e(f"icmp ult i32 {e(f'sub i32 {total}, {low}')}, {count}")
            test = e(f"and i1 {test}, {inside}")
        return test


def emit_windows(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the sums of this thread in the order of the pieces."""
    return WindowFma(r, node).emit()
