"""The inner loops of matmul tiles: global memory to shared memory to sums in registers.

``emit_tile`` writes the loop of one TILE node into a renderer and returns the names of the thread's
sums. Rows, columns or depths past the end are read as zeros. ``fma``: two buffers in shared memory;
while one is used, the next is on its way through registers. ``bf16``/``f16``: asynchronous copies
into four buffers in the layout the tensor cores read, one warpgroup per 64 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.codegen.render.panels import COMMIT, Panel, assembly, place_of
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


class CountedLoop:
    """A loop over steps that changes values: open from its making to ``end``."""

    def __init__(self, r: NvptxRenderer, steps: int, first: list[str], kind: str = "float") -> None:
        self.r, self.steps, self.first, self.kind = r, steps, first, kind
        r.blocks += 1
        self.number = r.blocks
        self.before = r.block
        r.lines.append(f"  br label %tile{self.number}")
        r.lines.append(f"tile{self.number}:")
        r.block = f"tile{self.number}"
        self.counter = r._fresh()
        self.values = [r._fresh() for _ in first]
        self.place = len(r.lines)
        r.lines.extend([""] * (1 + len(first)))

    def end(self, values: list[str]) -> None:
        """Close the loop; afterwards these are what it changed."""
        r, number = self.r, self.number
        following = r._emit(f"add nuw nsw i32 {self.counter}, 1")
        test = r._emit(f"icmp ult i32 {following}, {self.steps}")
        inside = r.block
        names = [("i32", self.counter, "0", following)]
        changed = zip(self.values, self.first, values, strict=True)
        names += [(self.kind, name, old, new) for name, old, new in changed]
        for i, (kind, name, old, new) in enumerate(names):
            text = f"phi {kind} [ {old}, %{self.before} ], [ {new}, %{inside} ]"
            r.lines[self.place + i] = f"  {name} = {text}"
        r.lines.append(f"  br i1 {test}, label %tile{number}, label %rest{number}")
        r.lines.append(f"rest{number}:")
        r.block = f"rest{number}"


class _Fma:
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
        down, right = self.i32(f"lshr i32 {warp}, 1"), self.i32(f"and i32 {warp}, 1")
        above, left = self.i32(f"lshr i32 {lane}, 3"), self.i32(f"and i32 {lane}, 7")
        self.side = self.a.tile // 16
        row = self._sum_of((down, self.a.tile // 4), (above, 4))
        column = self._sum_of((right, self.b.tile // 2), (left, 4))
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
        for i in range(o.tile * self.step // (width * THREADS)):
            c = self.i32(f"add i32 {self.thread}, {i * THREADS}")
            inner = self.step // width if o.along_depth else o.tile // width
            low = self.i32(f"mul i32 {self.i32(f'urem i32 {c}, {inner}')}, {width}")
            high = self.i32(f"udiv i32 {c}, {inner}")
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


class _Wgmma:
    """Halves on Hopper's tensor cores: each of two warpgroups has 64 rows of the tile."""

    def __init__(
        self, r: NvptxRenderer, a: Operand, b: Operand, k: int, step: int, kind: str
    ) -> None:
        self.r, self.k, self.depth, self.kind = r, k, step, kind
        self.thread = r._register("tid.x")
        self.operands = (a, b)
        self.panels = [
            Panel(r, o.memory, o.base, o.tile, step, o.outer, o.depth, o.wide, THREADS, self.thread)
            for o in (a, b)
        ]
        self.stage = sum([p.nbytes for p in self.panels])
        self.count = b.tile // 2  # sums of one thread

    def emit(self) -> list[str]:
        r, e = self.r, self.r._emit
        start = r.dynamic_shared(STAGES * self.stage)
        a, b = self.panels
        group = e(f"lshr i32 {self.thread}, 7")
        mine = e(f"add i32 {start}, {e(f'mul i32 {group}, {a.down(1)}')}")
        descriptors = [a.descriptor(mine), b.descriptor(e(f"add i32 {start}, {a.nbytes}"))]
        self.left = []
        for o, panel in zip(self.operands, self.panels, strict=True):
            panel.prepare(o.start)
            left = None
            if o.limit % o.tile:
                left = e(f"trunc i64 {e(f'sub i64 {o.limit}, {o.start}')} to i32")
            self.left.append(left)
        for stage in range(STAGES - 2):
            self._copy(str(stage), e(f"add i32 {start}, {stage * self.stage}"))
        loop = CountedLoop(r, -(-self.k // self.depth), ["0.0"] * self.count)
        counter = loop.counter
        self._wait(STAGES - 3)
        current = e(f"mul i32 {e(f'and i32 {counter}, {STAGES - 1}')}, {self.stage // 16}")
        current = e(f"zext i32 {current} to i64")
        sums = self._multiply(loop.values, [e(f"add i64 {d}, {current}") for d in descriptors])
        ahead = e(f"add i32 {counter}, {STAGES - 2}")
        buffer = e(f"and i32 {ahead}, {STAGES - 1}")
        self._copy(ahead, e(f"add i32 {start}, {e(f'mul i32 {buffer}, {self.stage}')}"))
        sums = assembly(r, ["wgmma.wait_group.sync.aligned 1;"], sums, [], self.count)
        loop.end(sums)
        return assembly(r, ["wgmma.wait_group.sync.aligned 0;"], sums, [], self.count)

    def _wait(self, pending: int) -> None:
        """Until a step has arrived for every thread, and its buffer can be read."""
        text = f"cp.async.wait_group {pending}; fence.proxy.async.shared::cta;"
        self.r.assembly(text, "~{memory}", "")
        self.r.barrier()

    def _copy(self, step: str, buffer: str) -> None:
        """Start to copy one step of k into a buffer; there is nothing to copy past the end."""
        r, e = self.r, self.r._emit
        start = e(f"mul i32 {step}, {self.depth}")
        depth = e(f"sub i32 {self.k}, {start}") if self.k % self.depth else None
        number = r._branch(e(f"icmp slt i32 {start}, {self.k}"))
        for panel, left in zip(self.panels, self.left, strict=True):
            shift = place_of(self.r, e(f"zext i32 {start} to i64"), panel.depth_axes)
            rows, columns = (left, depth) if panel.along_depth else (depth, left)
            panel.copy(buffer, shift, rows, columns)
            buffer = e(f"add i32 {buffer}, {panel.nbytes}")
        r._join(number)
        r.assembly(COMMIT, "~{memory}", "")

    def _multiply(self, sums: list[str], descriptors: list[str]) -> list[str]:
        """Start one step of k: an instruction for every sixteen of it."""
        e = self.r._emit
        count = self.count
        inputs: list[tuple[str, str, str]] = []
        lines = ["wgmma.fence.sync.aligned;"]
        registers = ", ".join([f"${i}" for i in range(count)])
        turned = ", ".join([str(p.turned) for p in self.panels])
        for depth in range(self.depth // 16):
            place = count + len(inputs)
            for panel, descriptor in zip(self.panels, descriptors, strict=True):
                inputs.append(("i64", "l", e(f"add i64 {descriptor}, {panel.step(depth)}")))
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.{self.kind}.{self.kind} "
                f"{{{registers}}}, ${place}, ${place + 1}, 1, 1, 1, {turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, sums, inputs, count)
