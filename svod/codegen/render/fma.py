"""Tiles of float32 on the ordinary units of a GPU.

There are two buffers in shared memory; while one is used, the next is on its way through registers.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from svod.codegen.render.panels import place_of
from svod.codegen.render.tile_parts import THREADS, CountedLoop, Operand

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

PAD = 4  # floats after each row of a buffer, against bank conflicts
GLOBAL, _SHARED = "ptr addrspace(1)", "ptr addrspace(3)"


class Fma:
    """Float32 on the ordinary units: 8x8 sums per thread, or 4x4 in small tiles."""

    def __init__(self, r: NvptxRenderer, a: Operand, b: Operand, k: int, step: int) -> None:
        self.r, self.a, self.b, self.k, self.step = r, a, b, k, step
        self.steps = -(-k // step)
        self.thread = r._register("tid.x")

    def i32(self, text: str) -> str:
        return self.r._emit(text)

    def line(self, text: str) -> None:
        self.r.lines.append(f"  {text}")

    def emit(self) -> list[str]:
        r = self.r
        r.resident = 2  # one block computes while the other waits
        self.spans = [self.a.tile + PAD, self.b.tile + PAD]
        self.arrays = [r.shared_array(2 * self.step * span, "float", 16) for span in self.spans]
        self.places = [self._places(o) for o in (self.a, self.b)]
        lane = self.i32(f"and i32 {self.thread}, 31")
        warp = self.i32(f"lshr i32 {self.thread}, 5")
        self.side = isqrt(self.a.tile * self.b.tile // THREADS)
        across = self.b.tile // (8 * self.side)  # warps beside each other, a power of two
        right = self.i32(f"and i32 {warp}, {across - 1}")
        down = self.i32(f"udiv i32 {warp}, {across}")
        above, left = self.i32(f"lshr i32 {lane}, 3"), self.i32(f"and i32 {lane}, 7")
        row = self._sum_of((down, 4 * self.side), (above, 4))
        column = self._sum_of((right, 8 * self.side), (left, 4))
        self._put(self._fetch("0"), "0")
        r.barrier()
        loop = CountedLoop(r, self.steps, ["0.0"] * (self.side * self.side))
        following = self.i32(f"add nuw nsw i32 {loop.counter}, 1")
        fetched = self._fetch(following)
        sums = self._compute(loop.values, loop.counter, row, column)
        self._put(fetched, self.i32(f"and i32 {following}, 1"))
        r.barrier()
        loop.end(sums)
        return sums

    def _origin(self, o: Operand, outer: str, depth: str) -> str:
        """Elements to one element of the tile at k = 0; its row or column and depth are i32."""
        e = self.r._emit
        row = e(f"add i64 {o.start}, {e(f'zext i32 {outer} to i64')}")
        total = e(f"add i64 {o.base}, {place_of(self.r, row, o.outer)}")
        deep = e(f"mul i64 {e(f'zext i32 {depth} to i64')}, {o.depth[-1][1]}")
        return e(f"add i64 {total}, {deep}")

    def _exists(self, o: Operand, outer: str) -> str:
        """Whether a row or column exists; "true" where all do."""
        if o.limit % o.tile == 0:
            return "true"
        e = self.r._emit
        row = e(f"add i64 {o.start}, {e(f'zext i32 {outer} to i64')}")
        return e(f"icmp slt i64 {row}, {o.limit}")

    def _sum_of(self, *terms: tuple[str, int]) -> str:
        first, second = (self.i32(f"mul i32 {value}, {factor}") for value, factor in terms)
        return self.i32(f"add i32 {first}, {second}")

    def _places(self, o: Operand) -> list[tuple[str, str, str, str]]:
        """Per access of a thread: row or column, depth, offset of the element, its test."""
        width = 4 if o.wide else 1
        found = []
        inner = self.step // width if o.along_depth else o.tile // width
        low = self.i32(f"mul i32 {self.i32(f'urem i32 {self.thread}, {inner}')}, {width}")
        first = self.i32(f"udiv i32 {self.thread}, {inner}")
        for i in range(o.tile * self.step // (width * THREADS)):
            high = self.i32(f"add i32 {first}, {i * THREADS // inner}")
            outer, depth = (high, low) if o.along_depth else (low, high)
            found.append((outer, depth, self._origin(o, outer, depth), self._exists(o, outer)))
        return found

    def _fetch(self, step: str) -> list[list[str]]:
        """The values of one step along k, on their way into registers."""
        e = self.r._emit
        start = e(f"mul i32 {step}, {self.step}")
        found = []
        for o, places in zip((self.a, self.b), self.places, strict=True):
            shift = place_of(self.r, e(f"zext i32 {start} to i64"), o.depth)
            values = []
            for _, depth, origin, exists in places:
                k = e(f"add i32 {start}, {depth}")
                test = e(f"icmp ult i32 {k}, {self.k}")
                if exists != "true":
                    test = e(f"and i1 {test}, {exists}")
                offset = e(f"select i1 {test}, i64 {e(f'add i64 {origin}, {shift}')}, i64 0")
                address = e(f"getelementptr float, {GLOBAL} {o.memory}, i64 {offset}")
                values.append(self._read(o, address, test))
            found.append(values)
        return found

    def _read(self, o: Operand, address: str, test: str) -> str:
        """What is at an address, or zeros."""
        e = self.r._emit
        kind, align = ("<4 x float>", 16) if o.wide else ("float", 4)
        read = e(f"load {kind}, {GLOBAL} {address}, align {align}, !invariant.load !0")
        zero = "zeroinitializer" if o.wide else "0.0"
        return e(f"select i1 {test}, {kind} {read}, {kind} {zero}")

    def _put(self, fetched: list[list[str]], buffer: str) -> None:
        """What was fetched into one of the two buffers, depth first."""
        e = self.r._emit
        for which, o in enumerate((self.a, self.b)):
            span, array = self.spans[which], self.arrays[which]
            base = e(f"mul i32 {buffer}, {self.step * span}")
            for (outer, depth, _, _), value in zip(self.places[which], fetched[which], strict=True):
                place = e(f"add i32 {e(f'mul i32 {depth}, {span}')}, {outer}")
                place = e(f"add i32 {place}, {base}")
                if o.wide and not o.along_depth:
                    address = e(f"getelementptr float, {_SHARED} {array}, i32 {place}")
                    self.line(f"store <4 x float> {value}, {_SHARED} {address}, align 16")
                    continue
                for i in range(4 if o.wide else 1):
                    part = e(f"extractelement <4 x float> {value}, i64 {i}") if o.wide else value
                    there = e(f"add i32 {place}, {i * span}")
                    address = e(f"getelementptr float, {_SHARED} {array}, i32 {there}")
                    self.line(f"store float {part}, {_SHARED} {address}, align 4")

    def _compute(self, sums: list[str], counter: str, row: str, column: str) -> list[str]:
        e, call = self.r._emit, self.r._call
        sums = list(sums)
        buffer = e(f"and i32 {counter}, 1")
        starts = []
        for which, place in enumerate((row, column)):
            base = e(f"mul i32 {buffer}, {self.step * self.spans[which]}")
            total = e(f"add i32 {base}, {place}")
            starts.append(e(f"getelementptr float, {_SHARED} {self.arrays[which]}, i32 {total}"))
        for depth in range(self.step):
            parts: list[list[str]] = []
            for which, gap in enumerate((16, 32)):
                values = []
                for half in range(self.side // 4):
                    offset = depth * self.spans[which] + half * gap
                    address = e(f"getelementptr float, {_SHARED} {starts[which]}, i32 {offset}")
                    vector = e(f"load <4 x float>, {_SHARED} {address}, align 16")
                    values += [e(f"extractelement <4 x float> {vector}, i64 {i}") for i in range(4)]
                parts.append(values)
            for i, x in enumerate(parts[0]):
                for j, y in enumerate(parts[1]):
                    factors = [("float", x), ("float", y), ("float", sums[i * self.side + j])]
                    sums[i * self.side + j] = e(call("llvm.fma.f32", "float", factors))
        return sums
