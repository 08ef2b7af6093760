"""The inner loops of matmul tiles: global memory to shared memory to sums in registers.

``emit_tile`` writes the loop of one TILE node into a renderer and returns the names of the thread's
sums. Rows, columns or depths past the end are read as zeros. ``fma``: two buffers in shared memory;
while one is used, the next is on its way through registers. ``bf16``/``f16``: asynchronous copies
into four buffers in the layout the tensor cores read, one warpgroup per 64 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.ir.node import UOp
from svod.optimize.gpu_tile import Axes

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

THREADS = 256
STAGES = 4
PAD = 4  # floats after each row of a float32 buffer, against bank conflicts
_GLOBAL, _SHARED = "ptr addrspace(1)", "ptr addrspace(3)"


@dataclass(slots=True)
class Operand:
    """One factor as a block sees it."""

    memory: str
    base: str  # elements before the batch
    start: str  # first row or column of the tile
    limit: int  # rows or columns there are
    tile: int  # of the tile
    outer: Axes  # of its rows or columns
    depth: Axes  # of k
    wide: bool

    @property
    def along_depth(self) -> bool:
        """Whether neighbours in memory are neighbours along k."""
        return self.depth[-1][1] == 1


def emit_tile(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the sums of this thread in the order of the pieces."""
    kind, rows, columns, step, m, n, k, *layout = node.arg[1:]
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
        return _Fma(r, a, b, k, step).emit()
    return _Wgmma(r, a, b, k, step, kind).emit()


class _Loop:
    """What both kinds share: text helpers and the loop over k."""

    def __init__(self, r: NvptxRenderer, a: Operand, b: Operand, k: int, step: int) -> None:
        self.r, self.a, self.b, self.k, self.step = r, a, b, k, step
        self.steps = -(-k // step)
        self.thread = r._register("tid.x")

    def i32(self, text: str) -> str:
        return self.r._emit(text)

    def line(self, text: str) -> None:
        self.r.lines.append(f"  {text}")

    def begin(self) -> tuple[str, int, str, int]:
        """Open the loop: counter, place of its phi, block before, number."""
        r = self.r
        r.blocks += 1
        number = r.blocks
        before = r.block
        self.line(f"br label %tile{number}")
        r.lines.append(f"tile{number}:")
        r.block = f"tile{number}"
        counter = r._fresh()
        place = len(r.lines)
        r.lines.append("")
        return counter, place, before, number

    def end(self, counter: str, place: int, before: str, number: int) -> None:
        r = self.r
        following = self.i32(f"add nuw nsw i32 {counter}, 1")
        test = self.i32(f"icmp ult i32 {following}, {self.steps}")
        inside = r.block
        r.lines[place] = f"  {counter} = phi i32 [ 0, %{before} ], [ {following}, %{inside} ]"
        self.line(f"br i1 {test}, label %tile{number}, label %rest{number}")
        r.lines.append(f"rest{number}:")
        r.block = f"rest{number}"

    def origin(self, o: Operand, outer: str, depth: str) -> str:
        """Pointer to one element of the tile at k = 0; its row or column and depth are i32."""
        e = self.r._emit
        row = e(f"add i64 {o.start}, {e(f'zext i32 {outer} to i64')}")
        total = e(f"add i64 {o.base}, {self._offset(row, o.outer, 'i64')}")
        deep = e(f"mul i64 {e(f'zext i32 {depth} to i64')}, {o.depth[-1][1]}")
        return e(f"add i64 {total}, {deep}")

    def shift(self, o: Operand, start: str) -> str:
        """Elements to a step along k that starts at this i32."""
        return self._offset(start, o.depth, "i32")

    def _offset(self, place: str, axes: Axes, kind: str) -> str:
        """Elements before the row-major number ``place`` of some axes."""
        e = self.r._emit
        total = "0"
        for number, (extent, stride) in enumerate(reversed(axes)):
            here = place
            if number < len(axes) - 1:
                here = e(f"urem {kind} {place}, {extent}")
                place = e(f"udiv {kind} {place}, {extent}")
            if kind == "i32":
                here = e(f"zext i32 {here} to i64")
            total = e(f"add i64 {total}, {e(f'mul i64 {here}, {stride}')}")
        return total

    def exists(self, o: Operand, outer: str, extra: int) -> str:
        """Whether a row or column exists; "true" where all do."""
        if o.limit % o.tile == 0:
            return "true"
        e = self.r._emit
        row = e(f"add i64 {o.start}, {e(f'zext i32 {outer} to i64')}")
        return e(f"icmp slt i64 {row}, {o.limit - extra}")


class _Fma(_Loop):
    """Float32 on the ordinary units: 8x8 sums per thread, or 4x4 in small tiles."""

    def emit(self) -> list[str]:
        r = self.r
        r.resident = 2  # one block computes while the other waits
        self.spans = [self.a.tile + PAD, self.b.tile + PAD]
        self.arrays = [r.shared_array(2 * self.step * span, "float", 16) for span in self.spans]
        self.places = [self._places(o) for o in (self.a, self.b)]
        lane = self.i32(f"and i32 {self.thread}, 31")
        warp = self.i32(f"lshr i32 {self.thread}, 5")
        down, right = self.i32(f"lshr i32 {warp}, 1"), self.i32(f"and i32 {warp}, 1")
        above, left = self.i32(f"lshr i32 {lane}, 3"), self.i32(f"and i32 {lane}, 7")
        self.side = self.a.tile // 16
        row = self._sum_of((down, self.a.tile // 4), (above, 4))
        column = self._sum_of((right, self.b.tile // 2), (left, 4))
        self._put(self._fetch("0"), "0")
        r.barrier()
        counter, place, before, number = self.begin()
        count = self.side * self.side
        phis = [r._fresh() for _ in range(count)]
        slots = range(len(r.lines), len(r.lines) + count)
        r.lines.extend([""] * count)
        following = self.i32(f"add nuw nsw i32 {counter}, 1")
        fetched = self._fetch(following)
        sums = self._compute(phis, counter, row, column)
        self._put(fetched, self.i32(f"and i32 {following}, 1"))
        r.barrier()
        inside = r.block
        for slot, phi, total in zip(slots, phis, sums, strict=True):
            r.lines[slot] = f"  {phi} = phi float [ 0.0, %{before} ], [ {total}, %{inside} ]"
        self.end(counter, place, before, number)
        return sums

    def _sum_of(self, *terms: tuple[str, int]) -> str:
        first, second = (self.i32(f"mul i32 {value}, {factor}") for value, factor in terms)
        return self.i32(f"add i32 {first}, {second}")

    def _places(self, o: Operand) -> list[tuple[str, str, str, str]]:
        """Per access of a thread: row or column, depth, offset of the element, its test."""
        width = 4 if o.wide else 1
        found = []
        for i in range(o.tile * self.step // (width * THREADS)):
            c = self.i32(f"add i32 {self.thread}, {i * THREADS}")
            inner = self.step // width if o.along_depth else o.tile // width
            low = self.i32(f"mul i32 {self.i32(f'urem i32 {c}, {inner}')}, {width}")
            high = self.i32(f"udiv i32 {c}, {inner}")
            outer, depth = (high, low) if o.along_depth else (low, high)
            found.append((outer, depth, self.origin(o, outer, depth), self.exists(o, outer, 0)))
        return found

    def _fetch(self, step: str) -> list[list[str]]:
        """The values of one step along k, on their way into registers."""
        e = self.r._emit
        start = e(f"mul i32 {step}, {self.step}")
        found = []
        for o, places in zip((self.a, self.b), self.places, strict=True):
            shift = self.shift(o, start)
            kind = "<4 x float>" if o.wide else "float"
            values = []
            for _, depth, origin, exists in places:
                k = e(f"add i32 {start}, {depth}")
                test = e(f"icmp ult i32 {k}, {self.k}")
                if exists != "true":
                    test = e(f"and i1 {test}, {exists}")
                offset = e(f"select i1 {test}, i64 {e(f'add i64 {origin}, {shift}')}, i64 0")
                address = e(f"getelementptr float, {_GLOBAL} {o.memory}, i64 {offset}")
                align = 16 if o.wide else 4
                read = e(f"load {kind}, {_GLOBAL} {address}, align {align}, !invariant.load !0")
                zero = "zeroinitializer" if o.wide else "0.0"
                values.append(e(f"select i1 {test}, {kind} {read}, {kind} {zero}"))
            found.append(values)
        return found

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


class _Wgmma(_Loop):
    """Halves on Hopper's tensor cores: each of two warpgroups has 64 rows of the tile.

    A buffer holds rows of 128 bytes whose 16-byte parts are permuted by the row's number modulo 8,
    as the tensor cores expect. Where neighbours lie along k, a row is one row or column of the
    operand with 64 steps of k; otherwise it is one step of k with 64 rows or columns.
    """

    def __init__(
        self, r: NvptxRenderer, a: Operand, b: Operand, k: int, step: int, kind: str
    ) -> None:
        super().__init__(r, a, b, k, step)
        self.kind = kind
        self.sizes = [o.tile * 128 for o in (a, b)]
        self.stage = sum(self.sizes)
        self.count = b.tile // 2  # sums of one thread

    def asm(self, text: str, constraints: str, arguments: str) -> None:
        self.line(f'call void asm sideeffect "{text}", "{constraints}"({arguments})')

    def emit(self) -> list[str]:
        r, e = self.r, self.r._emit
        start = r.dynamic_shared(STAGES * self.stage)
        self.places = [self._places(o) for o in (self.a, self.b)]
        group = e(f"lshr i32 {self.thread}, 7")
        # What a descriptor says beside the address: strides in units of 16 bytes, 128-byte rows.
        descriptors = []
        for which, o in enumerate((self.a, self.b)):
            leading = 1 if o.along_depth else self.step * 128 // 16
            fixed = (1 << 62) | (64 << 32) | (leading << 16)
            shift = self.sizes[0] if which else 0
            base = e(f"add i32 {start}, {shift}")
            if which == 0:  # the second warpgroup has the second 64 rows
                base = e(f"add i32 {base}, {e(f'mul i32 {group}, {64 * 128}')}")
            address = e(f"lshr i32 {base}, 4")
            descriptors.append(e(f"or i64 {e(f'zext i32 {address} to i64')}, {fixed}"))
        for stage in range(STAGES - 2):
            self._copy(str(stage), e(f"add i32 {start}, {stage * self.stage}"))
        counter, place, before, number = self.begin()
        phis = [r._fresh() for _ in range(self.count)]
        slots = range(len(r.lines), len(r.lines) + self.count)
        r.lines.extend([""] * self.count)
        self._wait(STAGES - 3)
        current = e(f"mul i32 {e(f'and i32 {counter}, {STAGES - 1}')}, {self.stage // 16}")
        current = e(f"zext i32 {current} to i64")
        sums = self._multiply(phis, [e(f"add i64 {d}, {current}") for d in descriptors])
        ahead = e(f"add i32 {counter}, {STAGES - 2}")
        buffer = e(f"and i32 {ahead}, {STAGES - 1}")
        self._copy(ahead, e(f"add i32 {start}, {e(f'mul i32 {buffer}, {self.stage}')}"))
        sums = self._tied("wgmma.wait_group.sync.aligned 1;", sums, [])
        inside = r.block
        for slot, phi, total in zip(slots, phis, sums, strict=True):
            r.lines[slot] = f"  {phi} = phi float [ 0.0, %{before} ], [ {total}, %{inside} ]"
        self.end(counter, place, before, number)
        return self._finish(sums)

    def _wait(self, pending: int) -> None:
        """Until a step has arrived for every thread, and its buffer can be read."""
        text = f"cp.async.wait_group {pending}; fence.proxy.async.shared::cta;"
        self.asm(text, "~{memory}", "")
        self.r.barrier()

    def _places(self, o: Operand) -> list[tuple[str, str, str, str]]:
        """Per 16 bytes a thread copies: place in the buffer, depth, offset, test."""
        e = self.r._emit
        per_row = self.step // 8 if o.along_depth else o.tile // 8
        low = e(f"urem i32 {self.thread}, {per_row}")
        high = e(f"udiv i32 {self.thread}, {per_row}")
        found = []
        for i in range(o.tile * self.step // 8 // THREADS):
            row = e(f"add i32 {high}, {i * (THREADS // per_row)}")
            part = e(f"and i32 {low}, 7")
            block = e(f"mul i32 {e(f'lshr i32 {low}, 3')}, {self.step * 128}")
            swapped = e(f"xor i32 {part}, {e(f'and i32 {row}, 7')}")
            place = e(f"add i32 {e(f'mul i32 {row}, 128')}, {e(f'shl i32 {swapped}, 4')}")
            place = e(f"add i32 {place}, {block}")
            eight = e(f"shl i32 {low}, 3")
            outer, depth = (row, eight) if o.along_depth else (eight, row)
            found.append((place, depth, self.origin(o, outer, depth), outer))
        return found

    def _copy(self, step: str, buffer: str) -> None:
        """Start to copy one step of k into a buffer; steps past the end copy nothing."""
        e = self.r._emit
        start = e(f"mul i32 {step}, {self.step}")
        for which, o in enumerate((self.a, self.b)):
            target = e(f"add i32 {buffer}, {self.sizes[0] if which else 0}")
            shift = self.shift(o, start)
            for place, depth, origin, outer in self.places[which]:
                there = e(f"add i32 {target}, {place}")
                k = e(f"add i32 {start}, {depth}")
                offset = e(f"add i64 {origin}, {shift}")
                if o.wide:
                    self._copy_wide(o, there, k, offset, outer)
                else:
                    self._copy_single(o, there, k, offset, outer)
        self.asm("cp.async.commit_group;", "~{memory}", "")

    def _copy_wide(self, o: Operand, there: str, k: str, offset: str, outer: str) -> None:
        e = self.r._emit
        test = e(f"icmp ult i32 {k}, {self.k}")
        exists = self.exists(o, outer, 0)
        if exists != "true":
            test = e(f"and i1 {test}, {exists}")
        nbytes = e(f"select i1 {test}, i32 16, i32 0")
        offset = e(f"select i1 {test}, i64 {offset}, i64 0")
        address = e(f"getelementptr i16, {_GLOBAL} {o.memory}, i64 {offset}")
        text = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
        self.asm(text, "r,l,r,~{memory}", f"i32 {there}, {_GLOBAL} {address}, i32 {nbytes}")

    def _copy_single(self, o: Operand, there: str, k: str, offset: str, outer: str) -> None:
        """Eight elements one by one: rows are not aligned, or end inside the sixteen bytes."""
        e = self.r._emit
        exists = "true" if o.along_depth is False else self.exists(o, outer, 0)
        deep = "true" if o.along_depth else e(f"icmp ult i32 {k}, {self.k}")
        words = []
        for i in range(8):
            if o.along_depth:
                test = e(f"icmp ult i32 {e(f'add i32 {k}, {i}')}, {self.k}")
                known = exists
            else:
                test = self.exists(o, outer, i)
                known = deep
            if "true" in (test, known):
                test = known if test == "true" else test
            else:
                test = e(f"and i1 {test}, {known}")
            place = e(f"select i1 {test}, i64 {e(f'add i64 {offset}, {i}')}, i64 0")
            address = e(f"getelementptr i16, {_GLOBAL} {o.memory}, i64 {place}")
            read = e(f"load i16, {_GLOBAL} {address}, align 2, !invariant.load !0")
            words.append(e(f"select i1 {test}, i16 {read}, i16 0"))
        vector = "poison"
        for i, word in enumerate(words):
            vector = e(f"insertelement <8 x i16> {vector}, i16 {word}, i64 {i}")
        target = e(f"inttoptr i32 {there} to {_SHARED}")
        self.line(f"store <8 x i16> {vector}, {_SHARED} {target}, align 16")

    def _multiply(self, sums: list[str], descriptors: list[str]) -> list[str]:
        """Start one step of k: four instructions of 16 each."""
        e = self.r._emit
        count = self.count
        inputs = []
        for depth in range(self.step // 16):
            for o, descriptor in zip((self.a, self.b), descriptors, strict=True):
                inputs.append(e(f"add i64 {descriptor}, {depth * (2 if o.along_depth else 128)}"))
        registers = ", ".join([f"${i}" for i in range(count)])
        turned = ", ".join(["0" if o.along_depth else "1" for o in (self.a, self.b)])
        lines = ["wgmma.fence.sync.aligned;"]
        for depth in range(self.step // 16):
            first = count + 2 * depth
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{self.b.tile}k16.f32.{self.kind}.{self.kind} "
                f"{{{registers}}}, ${first}, ${first + 1}, 1, 1, 1, {turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return self._tied("\\0A".join(lines), sums, inputs)

    def _finish(self, sums: list[str]) -> list[str]:
        """All sums, once nothing is on its way any more."""
        text = "wgmma.wait_group.sync.aligned 0;"
        return self._tied(text, sums, [])

    def _tied(self, text: str, sums: list[str], inputs: list[str]) -> list[str]:
        """Assembly that changes the sums in place."""
        e, count = self.r._emit, self.count
        kinds = "{ " + ", ".join(["float"] * count) + " }"
        constraints = ["=f"] * count + ["l"] * len(inputs)
        constraints += [str(i) for i in range(count)] + ["~{memory}"]
        arguments = [f"i64 {v}" for v in inputs] + [f"float {v}" for v in sums]
        found = e(
            f'call {kinds} asm sideeffect "{text}", "{",".join(constraints)}"'
            f"({', '.join(arguments)})"
        )
        return [e(f"extractvalue {kinds} {found}, {i}") for i in range(count)]
