"""The inner loops of matmul tiles: global memory to shared memory to sums in registers.

``emit_tile`` writes the loop of one TILE node into a renderer and returns the names of the thread's
sums. Rows, columns or depths past the end are read as zeros. ``fma``: two buffers in shared memory;
while one is used, the next is on its way through registers. ``wgmma`` and ``mma``: asynchronous
copies into a ring of panels in the layout the tensor cores read; panels that must be turned first
go through registers, one step of k ahead of the copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.codegen.render.panels import COMMIT, LINE, Panel, assembly, place_of
from svod.codegen.render.turned import TurnedPanel
from svod.ir.node import UOp
from svod.optimize.gpu_tile import Axes

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

THREADS = 256
PAD = 4  # floats after each row of a float32 buffer, against bank conflicts
_GLOBAL, _SHARED = "ptr addrspace(1)", "ptr addrspace(3)"
_WAIT = "wgmma.wait_group.sync.aligned"


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


@dataclass(frozen=True, slots=True)
class Element:
    """What tensor cores multiply, and what they sum in."""

    name: str  # or two, joined by a dot
    item: int  # bytes
    total: str = "f32"

    @property
    def depth(self) -> int:
        """Of one instruction: 32 bytes."""
        return 32 // self.item

    @property
    def factors(self) -> str:
        """As instructions name both operands."""
        return self.name if "." in self.name else f"{self.name}.{self.name}"

    @property
    def is_float8(self) -> bool:
        return self.item == 1 and self.total == "f32"

    @property
    def kind(self) -> str:
        return "float" if self.total == "f32" else "i32"

    @property
    def zero(self) -> str:
        return "0.0" if self.total == "f32" else "0"


ELEMENTS = {
    "bf16": Element("bf16", 2),
    "f16": Element("f16", 2),
    "tf32": Element("tf32", 4),
    **{n: Element(n, 1, "s32") for n in ("s8", "u8", "s8.u8", "u8.s8")},
    **{n: Element(n, 1) for n in ("e4m3", "e5m2", "e4m3.e5m2", "e5m2.e4m3")},
}


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
        return _Fma(r, a, b, k, step).emit()
    unit, _, element = kind.partition(".")
    loop = wgmma_for(ELEMENTS[element]) if unit == "wgmma" else _Mma
    return loop(r, a, b, k, step, stages, ELEMENTS[element]).emit()


def wgmma_for(element: Element) -> type[Wgmma]:
    return _ShortWgmma if element.is_float8 else Wgmma


class CountedLoop:
    """A loop over steps that changes values: open from its making to ``end``."""

    def __init__(
        self, r: NvptxRenderer, steps: int | str, first: list[str], kinds: list[str] | None = None
    ) -> None:
        self.r, self.steps, self.first = r, steps, first
        self.kinds = kinds or ["float"] * len(first)
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
        names += zip(self.kinds, self.values, self.first, values, strict=True)
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


class _TensorCores:
    """What both units share: panels of the two operands in a ring of stages."""

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


class Wgmma(_TensorCores):
    """Hopper's tensor cores: each of two warpgroups has 64 rows of the tile."""

    def emit(self) -> list[str]:
        ahead = self.stages - 2
        start, descriptors = self.first_stage()
        words = self.fill(start, ahead)
        kind = self.element.kind
        loop, sums, words = self.loop(words)
        self.arrived(ahead)
        sums = self._multiply(sums, self.here(descriptors, loop.counter))
        words = self.refill(start, loop.counter, ahead, words)
        sums = assembly(self.r, [f"{_WAIT} 1;"], sums, [], self.count, kind)
        loop.end([*sums, *words])
        return assembly(self.r, [f"{_WAIT} 0;"], sums, [], self.count, kind)

    def first_stage(self) -> tuple[str, list[str]]:
        """Shared memory, and the descriptors of its first stage."""
        e, start = self.r._emit, self.prepare()
        a, b = self.panels
        group = e(f"lshr i32 {self.thread}, 7")
        mine = e(f"add i32 {start}, {e(f'mul i32 {group}, {a.down(1)}')}")
        return start, [a.descriptor(mine), b.descriptor(e(f"add i32 {start}, {a.nbytes}"))]

    def loop(self, words: list[str]) -> tuple[CountedLoop, list[str], list[str]]:
        """The loop over steps of k, the sums in it and the words that are turned."""
        kinds = [self.element.kind] * self.count + ["i32"] * len(words)
        first = [self.element.zero] * self.count + words
        loop = CountedLoop(self.r, -(-self.k // self.depth), first, kinds)
        return loop, loop.values[: self.count], loop.values[self.count :]

    def arrived(self, ahead: int) -> None:
        """A step has arrived for every thread once all have waited and met."""
        wait = f"cp.async.wait_group {ahead - 1}; fence.proxy.async.shared::cta;"
        self.r.assembly(wait, "~{memory}", "")
        self.r.barrier()

    def added(self, sums: list[str], started: list[str]) -> list[str]:
        """Sums and those of a step that began anew, once it is done."""
        kind = self.element.kind
        parts = assembly(self.r, [f"{_WAIT} 0;"], started, [], self.count, kind)
        return [self.r._emit(f"fadd float {x}, {y}") for x, y in zip(sums, parts, strict=True)]

    def here(self, descriptors: list[str], step: str) -> list[str]:
        """The descriptors of a step of k."""
        e = self.r._emit
        place = e(f"urem i32 {step}, {self.stages}")
        current = e(f"zext i32 {e(f'mul i32 {place}, {self.stage // 16}')} to i64")
        return [e(f"add i64 {d}, {current}") for d in descriptors]

    def refill(self, start: str, step: str, ahead: int, words: list[str]) -> list[str]:
        """Start what comes ``ahead`` steps later; returns the words of the step after it."""
        e = self.r._emit
        following = e(f"add i32 {step}, {ahead}")
        buffer = self.buffer(start, following)
        self.copy(following, buffer)
        return self.turn(words, buffer, e(f"add i32 {following}, 1"))

    def _multiply(self, sums: list[str], descriptors: list[str]) -> list[str]:
        """Start one step of k: an instruction for every 32 bytes of it. Without sums before it the
        first one begins at zero."""
        e = self.r._emit
        count, element = self.count, self.element
        inputs: list[tuple[str, str, str]] = []
        lines = ["wgmma.fence.sync.aligned;"]
        registers = ", ".join([f"${i}" for i in range(count)])
        options = "" if element.total == "s32" else ", 1, 1"
        if element.item == 2:
            options += "".join([f", {p.turned}" for p in self.panels])
        for depth in range(self.depth // element.depth):
            place = count + len(inputs)
            for panel, descriptor in zip(self.panels, descriptors, strict=True):
                inputs.append(("i64", "l", e(f"add i64 {descriptor}, {panel.step(depth)}")))
            adds = 1 if sums or depth else 0
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{2 * count}k{element.depth}.{element.total}."
                f"{element.factors} {{{registers}}}, ${place}, ${place + 1}, {adds}{options};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, sums, inputs, count, element.kind)


class _ShortWgmma(Wgmma):
    """The same for 8-bit floats, whose sums keep only 14 bits there: every step of k, which is 128
    of them, begins anew and is added to the sums in float32. What the next step needs has arrived
    before this one is waited for."""

    def emit(self) -> list[str]:
        ahead = self.stages - 2
        start, descriptors = self.first_stage()
        words = self.fill(start, ahead)
        self.arrived(ahead)
        loop, sums, words = self.loop(words)
        started = self._multiply([], self.here(descriptors, loop.counter))
        words = self.refill(start, loop.counter, ahead, words)
        self.arrived(ahead)
        sums = self.added(sums, started)
        loop.end([*sums, *words])
        return sums


class _Mma(_TensorCores):
    """Tensor cores of one warp: 8 warps, two along the rows of the tile, four along the columns.

    A warp has 64 rows and a quarter of the columns. Its part of an operand goes from shared memory
    into registers by ldmatrix, 16 rows or columns by 32 bytes of k at a time.
    """

    def emit(self) -> list[str]:
        r, e, ahead = self.r, self.r._emit, self.stages - 1
        start = self.prepare()
        warp = e(f"lshr i32 {self.thread}, 5")
        rows = e(f"mul i32 {e(f'and i32 {warp}, 1')}, 64")
        quarter = self.panels[1].outer // 4
        columns = e(f"mul i32 {e(f'lshr i32 {warp}, 1')}, {quarter}")
        places = [
            self._places(self.panels[0], rows, 4, False),
            self._places(self.panels[1], columns, quarter // 16, True),
        ]
        sixteens = (4, quarter // 16)

        def load(buffer: str, depth: int) -> list[list[list[str]]]:
            bases = (buffer, e(f"add i32 {buffer}, {self.panels[0].nbytes}"))
            return [
                [self._fragment(panel, base, place, depth, t) for t in range(count)]
                for panel, base, place, count in zip(
                    self.panels, bases, places, sixteens, strict=True
                )
            ]

        def wait() -> None:
            r.assembly(f"cp.async.wait_group {ahead - 1};", "~{memory}", "")
            r.barrier()

        turning = self.fill(start, ahead)
        wait()
        first = load(start, 0)
        words = [w for operand in first for part in operand for w in part] + turning
        kinds = [self.element.kind] * self.count + ["i32"] * len(words)
        begin = [self.element.zero] * self.count + words
        loop = CountedLoop(r, -(-self.k // self.depth), begin, kinds)
        sums, carried = loop.values[: self.count], iter(loop.values[self.count :])
        ready = [[[next(carried) for _ in range(4)] for _ in range(count)] for count in sixteens]
        following = e(f"add i32 {loop.counter}, {ahead}")
        buffer = self.buffer(start, following)
        self.copy(following, buffer)
        turning = self.turn(list(carried), buffer, e(f"add i32 {following}, 1"))
        here = self.buffer(start, loop.counter)
        last = self.depth // self.element.depth - 1
        for depth in range(last + 1):
            # What the next products need is on its way before these are made.
            if depth < last:
                coming = load(here, depth + 1)
            else:
                wait()
                coming = load(self.buffer(start, e(f"add i32 {loop.counter}, 1")), 0)
            sums = self._multiply(sums, *ready)
            ready = coming
        words = [w for operand in ready for part in operand for w in part]
        loop.end([*sums, *words, *turning])
        return sums

    def _places(self, panel: Panel, first: str, count: int, is_right: bool) -> list[str]:
        """Where this lane reads: by steps of depth, or by sixteens across where rows lie there."""
        e = self.r._emit
        lane = e(f"and i32 {self.thread}, 31")
        low = e(f"and i32 {lane}, 7")
        matrix = e(f"lshr i32 {lane}, 3")
        bits = [e(f"and i32 {matrix}, 1"), e(f"lshr i32 {matrix}, 1")]
        # Of the four 8x8 matrices of an operand, which of the two bits counts along k.
        deep, across = (bits[0], bits[1]) if is_right else (bits[1], bits[0])
        found = []
        if panel.along_depth:
            row = e(f"add i32 {e(f'shl i32 {across}, 3')}, {low}")
            row = e(f"add i32 {first}, {row}")
            line = e(f"mul i32 {row}, {LINE}")
            for step in range(self.depth // self.element.depth):
                part = e(f"xor i32 {e(f'add i32 {deep}, {2 * step}')}, {low}")
                found.append(e(f"add i32 {line}, {e(f'shl i32 {part}, 4')}"))
            return found
        row = e(f"add i32 {e(f'shl i32 {deep}, 3')}, {low}")
        line = e(f"mul i32 {row}, {LINE}")
        start = e(f"add i32 {e(f'lshr i32 {first}, 3')}, {across}")
        for sixteen in range(count):
            part = e(f"add i32 {start}, {2 * sixteen}")
            block = e(f"mul i32 {e(f'lshr i32 {part}, 3')}, {panel.rows * LINE}")
            inside = e(f"xor i32 {e(f'and i32 {part}, 7')}, {low}")
            place = e(f"add i32 {block}, {e(f'shl i32 {inside}, 4')}")
            found.append(e(f"add i32 {line}, {place}"))
        return found

    def _fragment(
        self, panel: Panel, base: str, places: list[str], depth: int, sixteen: int
    ) -> list[str]:
        """Four registers of one operand."""
        e = self.r._emit
        chosen, other = (depth, sixteen) if panel.along_depth else (sixteen, depth)
        address = e(f"add i32 {base}, {places[chosen]}")
        turned = "" if panel.along_depth else ".trans"
        text = (
            f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0, $1, $2, $3}}, "
            f"[$4+{other * 16 * LINE}];"
        )
        found = assembly(self.r, [text], [], [("i32", "r", address)], 4, "i32")
        if self.element.name != "tf32":
            return found
        rounded = 'call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,r"'
        return [e(f"{rounded}(i32 {word})") for word in found]

    def _multiply(self, sums: list[str], a: list[list[str]], b: list[list[str]]) -> list[str]:
        element = self.element
        if not element.is_float8:
            shape = f"m16n8k{element.depth}.row.col.{element.total}"
            return self._products(sums, a, b, f"{shape}.{element.factors}.{element.total}")
        # As float16, which loses nothing: two numbers of each word, then the other two. Both
        # operands take the same steps of k at a time, whichever those are.
        names = element.factors.split(".")
        left, right = (
            [self._widened(words, name) for words in operand]
            for operand, name in zip((a, b), names, strict=True)
        )
        for half in range(2):
            name = "m16n8k16.row.col.f32.f16.f16.f32"
            sums = self._products(sums, [w[half] for w in left], [w[half] for w in right], name)
        return sums

    def _widened(self, words: list[str], name: str) -> tuple[list[str], list[str]]:
        """The lower two 8-bit floats of each word as float16, and the upper two."""
        convert = f"cvt.rn.f16x2.{name}x2"
        text = [
            "{.reg .b16 low, high;",
            "mov.b32 {low, high}, $2;",
            f"{convert} $0, low;",
            f"{convert} $1, high;}}",
        ]
        pairs = [
            assembly(self.r, text, [], [("i32", "r", w)], 2, "i32", has_effects=False)
            for w in words
        ]
        return [p[0] for p in pairs], [p[1] for p in pairs]

    def _products(
        self, sums: list[str], a: list[list[str]], b: list[list[str]], name: str
    ) -> list[str]:
        text = (
            f"mma.sync.aligned.{name} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
            "{$0, $1, $2, $3};"
        )
        found: list[str] = []
        for i, left in enumerate(a):
            for j, right in enumerate(b):
                for half in range(2):
                    place = 4 * (2 * (i * len(b) + j) + half)
                    inputs = [*left, *right[2 * half : 2 * half + 2]]
                    words = [("i32", "r", v) for v in inputs]
                    found += assembly(
                        self.r, [text], sums[place : place + 4], words, 4, self.element.kind, False
                    )
        return found
