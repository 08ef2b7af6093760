"""What the loops of attention and of its gradient share: scores in registers, masks, products.

A block has 128 rows, a warpgroup 64 of them, a thread two rows of every eighth pair of columns.
What the rows meet goes by in steps of ``span``. Rows are queries and the others keys; turned, it is
the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import e as EULER
from math import inf, log2
from typing import TYPE_CHECKING, Any

from svod.codegen.render.panels import GLOBAL, Panel, assembly
from svod.dtype import types as dt
from svod.ir.node import UOp
from svod.optimize.gpu_attention import ROWS, side_of

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

THREADS = 256
MINUS = "0xFFF0000000000000"  # minus infinity
WAIT = "wgmma.wait_group.sync.aligned"
_READ = {"float32": ("float", 4), "float16": ("half", 2), "bfloat16": ("bfloat", 2)}


@dataclass(slots=True)
class _Added:
    """A mask in memory, as this thread sees it: a pointer per row."""

    step: tuple[Any, ...]
    rows: tuple[str, str]


@dataclass(slots=True)
class Folded:
    """The running maxima and sums of a thread's two rows."""

    largest: list[str]
    total: list[str]  # this thread's part


class Scores:
    """Text for one tile; loops derive from it."""

    def __init__(
        self, r: NvptxRenderer, kind: str, sizes: tuple[int, int], span: int, start: str
    ) -> None:
        self.r, self.kind, self.span, self.start = r, kind, span, start
        self.rows, self.keys = sizes
        self.own = span // 2  # scores of one thread
        self.thread = r._register("tid.x")
        self.is_turned = False

    @staticmethod
    def sources(r: NvptxRenderer, node: UOp) -> tuple[list[str], list[str], str]:
        """All memory of a tile, where each begins for this block, and its first row."""
        count = (len(node.src) - 1) // 2
        memories = [r._memory(s) for s in node.src[:count]]
        return memories, [r._value(s) for s in node.src[count:-1]], r._value(node.src[-1])

    def panel(self, memory: str, base: str, size: tuple[int, int], layout: Any) -> Panel:
        """A piece of an operand: so much of its outer axis by so much of the summed one."""
        outer, deep, wide = layout
        is_wide = wide and self.r.aligned
        if is_wide:
            self.r.widest = 16
        return Panel(self.r, memory, base, *size, outer, deep, is_wide, THREADS, self.thread)

    def sort_steps(self, steps: tuple[Any, ...], memories: list[tuple[str, str]]) -> None:
        """Scales go into the exponent and triangles to the end where nothing else follows them."""
        steps = tuple(steps)
        self.bound: int | None = None  # keys up to row + bound
        factor = 1.0
        while steps and steps[-1][0] in ("scale", "causal"):
            step = steps[-1]
            if step[0] == "scale" and step[1] > 0:
                factor *= step[1]
            elif step[0] == "causal" and step[2] == -inf:
                self.bound = step[1] if self.bound is None else min(self.bound, step[1])
            else:
                break
            steps = steps[:-1]
        self.factor = factor * log2(EULER)
        self.steps = steps
        self.waiting = memories

    # -- text ----------------------------------------------------------------------------------

    def e(self, text: str) -> str:
        return self.r._emit(text)

    def line(self, text: str) -> None:
        self.r.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.r.lines.append(f"{name}:")
        self.r.block = name

    def call(self, name: str, *values: str) -> str:
        return self.e(self.r._call(name, "float", [("float", v) for v in values]))

    def power(self, value: str) -> str:
        """Two to the power of a float, as the hardware has it."""
        return self.e(f'call float asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(float {value})')

    def quad(self, name: str, value: str) -> str:
        """Folded over the four threads that share a row."""
        for offset in (1, 2):
            other = self.r._shuffle_scalar(value, dt.float32, offset)
            value = (
                self.call(name, value, other) if name else self.e(f"fadd float {value}, {other}")
            )
        return value

    def walk(
        self,
        bounds: tuple[str, str],
        first: list[str],
        kinds: list[str],
        step: Callable[[str, str, list[str]], list[str]],
    ) -> list[str]:
        """Blocks below the last one, which is done, down to the first: ``step`` is given the block
        before, the block and the values that go from one to the next."""
        r, e = self.r, self.e
        last, begin = bounds
        r.blocks += 1
        number = r.blocks
        before = r.block
        test = e(f"icmp sgt i32 {last}, {begin}")
        self.line(f"br i1 {test}, label %tile{number}, label %rest{number}")
        self.label(f"tile{number}")
        names = [r._fresh() for _ in first]
        place = r._fresh()
        slot = len(r.lines)
        r.lines.extend([""] * (len(names) + 1))
        block = e(f"sub i32 {place}, 1")
        values = step(place, block, names)
        inside = r.block
        phis = list(zip(kinds, first, values, strict=True))
        for i, (name, (kind, a, b)) in enumerate(zip(names, phis, strict=True)):
            r.lines[slot + i] = f"  {name} = phi {kind} [ {a}, %{before} ], [ {b}, %{inside} ]"
        r.lines[slot + len(names)] = (
            f"  {place} = phi i32 [ {last}, %{before} ], [ {block}, %{inside} ]"
        )
        again = e(f"icmp sgt i32 {block}, {begin}")
        self.line(f"br i1 {again}, label %tile{number}, label %rest{number}")
        self.label(f"rest{number}")
        return [e(f"phi {kind} [ {a}, %{before} ], [ {b}, %{inside} ]") for kind, a, b in phis]

    def places(self) -> None:
        """Rows and the first column of this thread, and its pointers into masks."""
        e = self.e
        self.group = group = e(f"lshr i32 {self.thread}, 7")
        self.start32 = e(f"trunc i64 {self.start} to i32")
        lane = e(f"and i32 {self.thread}, 31")
        warp = e(f"lshr i32 {self.thread}, 5")
        down = e(f"add i32 {e(f'shl i32 {warp}, 4')}, {e(f'lshr i32 {lane}, 2')}")
        first = e(f"add i32 {self.start32}, {down}")
        self.row = [first, e(f"add i32 {first}, 8")]
        self.first_row = e(f"add i32 {self.start32}, {e(f'shl i32 {group}, 6')}")
        self.column = e(f"shl i32 {e(f'and i32 {lane}, 3')}, 1")
        self.masks = []
        self.r.declarations.add("declare i32 @llvm.smin.i32(i32, i32)")
        waiting = iter(self.waiting)
        for step in self.steps:
            if step[0] not in ("added", "kept"):
                continue
            memory, base = next(waiting)
            kind = "i8" if step[0] == "kept" else _READ[step[3]][0]
            rows = []
            for row in self.row:
                here = e(f"call i32 @llvm.smin.i32(i32 {row}, i32 {self.rows - 1})")
                wide = e(f"mul i64 {e(f'zext i32 {here} to i64')}, {step[1]}")
                wide = e(f"add i64 {wide}, {base}")
                rows.append(e(f"getelementptr {kind}, {GLOBAL} {memory}, i64 {wide}"))
            self.masks.append(_Added(step, (rows[0], rows[1])))

    # -- copies --------------------------------------------------------------------------------

    def rows_at(self, panel: Panel, address: str) -> str:
        """The descriptor of this warpgroup's rows of a panel."""
        e = self.e
        mine = e(f"mul i32 {self.group}, {panel.down(1)}")
        return panel.descriptor(e(f"add i32 {address}, {mine}"))

    def copy_rows(self, panel: Panel, target: str, depth: int) -> None:
        """The block's rows of a panel, whose depth ends there."""
        left = self.e(f"sub i32 {self.rows}, {self.start32}") if self.rows % ROWS else None
        self.copy_panel(panel, target, "0", left, self.end_of(depth))

    def copy_across(self, panel: Panel, target: str, block: str, depth: int) -> None:
        """A step of what goes by."""
        shift = self.shift(block, panel.outer_axes[-1][1])
        self.copy_panel(panel, target, shift, self.left(block), self.end_of(depth))

    def end_of(self, size: int) -> str | None:
        """Where elements of a query or value end, if not with their panel."""
        return str(size) if size != side_of(size) else None

    def not_below(self, number: str, limit: str) -> str:
        return self._limited("smax", number, limit)

    def _limited(self, name: str, number: str, limit: str) -> str:
        self.r.declarations.add(f"declare i32 @llvm.{name}.i32(i32, i32)")
        return self.e(f"call i32 @llvm.{name}.i32(i32 {number}, i32 {limit})")

    def copy_panel(
        self, panel: Panel, target: str, shift: str, outer: str | None, depth: str | None
    ) -> None:
        rows, columns = (outer, depth) if panel.along_depth else (depth, outer)
        panel.copy(target, shift, rows, columns)

    def left(self, block: str) -> str | None:
        """Keys from the start of a step to the end."""
        if self.keys % self.span == 0:
            return None
        return self.e(f"sub i32 {self.keys}, {self.e(f'mul i32 {block}, {self.span}')}")

    def shift(self, block: str, stride: int) -> str:
        e = self.e
        return e(f"mul i64 {e(f'zext i32 {block} to i64')}, {self.span * stride}")

    def wait(self) -> None:
        """Until all copies have arrived for every thread, and may be read."""
        text = "cp.async.wait_group 0; fence.proxy.async.shared::cta;"
        self.r.assembly(text, "~{memory}", "")
        self.r.barrier()

    # -- products ------------------------------------------------------------------------------

    def shared_product(
        self, a: tuple[str, Panel], b: tuple[str, Panel], depth: int, columns: int
    ) -> list[str]:
        """Start the product of two panels, given their descriptors."""
        e = self.e
        inputs: list[str] = []
        lines = ["wgmma.fence.sync.aligned;"]
        count = columns // 2
        registers = ", ".join([f"${i}" for i in range(count)])
        for step in range(-(-depth // 16)):
            place = count + len(inputs)
            inputs += [e(f"add i64 {at}, {panel.step(step)}") for at, panel in (a, b)]
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{self.kind}.{self.kind} "
                f"{{{registers}}}, ${place}, ${place + 1}, {min(step, 1)}, 1, 1, "
                f"{a[1].turned}, {b[1].turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, [], [("i64", "l", v) for v in inputs], count)

    def weighted_product(
        self, sums: list[str], weights: list[str], values: str, panel: Panel
    ) -> list[str]:
        """Start to add a panel, given its descriptor, times weights in registers."""
        e = self.e
        count = len(sums)
        inputs = [("i32", "r", w) for w in weights]
        registers = ", ".join([f"${i}" for i in range(count)])
        lines = ["wgmma.fence.sync.aligned;"]
        for step in range(self.span // 16):
            place = count + len(inputs)
            inputs.append(("i64", "l", e(f"add i64 {values}, {panel.step(step)}")))
            left = ", ".join([f"${count + 4 * step + i}" for i in range(4)])
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32."
                f"{self.kind}.{self.kind} {{{registers}}}, {{{left}}}, ${place}, "
                f"1, 1, 1, {panel.turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, sums, inputs, count)

    def tied(self, text: str, values: list[str]) -> list[str]:
        return assembly(self.r, [text], values, [], len(values))

    # -- between the products ------------------------------------------------------------------

    def masked(self, scores: list[str], block: str) -> list[str]:
        """The scores after scales and masks; keys that do not exist are minus infinity."""
        e = self.e
        first = e(f"mul i32 {block}, {self.span}")
        masks = iter(self.masks)
        for step in self.steps:
            if step[0] == "scale":
                scores = [e(f"fmul float {s}, {float_text(step[1])}") for s in scores]
            elif step[0] == "causal":
                edges = self._edges(self.row, step[1])
                scores = self._cut(scores, first, edges, float_text(step[2]), self.is_turned)
            elif step[0] == "added":
                scores = self._add(scores, first, next(masks))
            else:
                scores = self._keep(scores, first, next(masks))
        if self.bound is None and self.keys % self.span == 0:
            return scores
        return self._inside(scores, first)

    def _edges(self, rows: list[str], offset: int) -> list[str]:
        """Where a triangle ends in rows; turned, where it begins."""
        shift = -offset if self.is_turned else offset + 1
        return [self.e(f"add i32 {row}, {shift}") for row in rows]

    def _inside(self, scores: list[str], first: str) -> list[str]:
        """Minus infinity past the edge, which most steps do not meet."""
        r, e = self.r, self.e
        tests = []
        end = e(f"add i32 {first}, {self.span}")
        is_ragged = self.keys % self.span > 0
        if is_ragged:
            tests.append(e(f"icmp sgt i32 {end}, {self.keys}"))
        if self.bound is not None:
            furthest = e(f"add i32 {self.first_row}, 63") if self.is_turned else self.first_row
            (edge,) = self._edges([furthest], self.bound)
            crossed = f"slt i32 {first}" if self.is_turned else f"sgt i32 {end}"
            tests.append(e(f"icmp {crossed}, {edge}"))
        test = tests[0] if len(tests) == 1 else e(f"or i1 {tests[0]}, {tests[1]}")
        before = r.block
        number = r._branch(test)
        cut = scores
        limits = [str(self.keys)] * 2
        if self.bound is not None:
            edges = self._edges(self.row, self.bound)
            if self.is_turned:
                cut = self._cut(cut, first, edges, MINUS, True)
            else:
                limits = [self._limited("smin", edge, str(self.keys)) for edge in edges]
        if is_ragged or not self.is_turned:
            cut = self._cut(cut, first, limits, MINUS, False)
        inside = r.block
        r._join(number)
        return [
            e(f"phi float [ {s}, %{before} ], [ {c}, %{inside} ]")
            for s, c in zip(scores, cut, strict=True)
        ]

    def _cut(
        self, scores: list[str], first: str, edges: list[str], fill: str, is_lower: bool
    ) -> list[str]:
        """The scores of columns below the edges of their rows, or from those on; else the fill."""
        e = self.e
        here = e(f"add i32 {first}, {self.column}")
        left = [e(f"sub i32 {edge}, {here}") for edge in edges]
        found = []
        for i, s in enumerate(scores):
            test = e(f"icmp {'sle' if is_lower else 'sgt'} i32 {left[i // 2 % 2]}, {column_of(i)}")
            found.append(e(f"select i1 {test}, float {s}, float {fill}"))
        return found

    def _add(self, scores: list[str], first: str, mask: _Added) -> list[str]:
        e = self.e
        kind, align = _READ[mask.step[3]]
        found = []
        for s, read in zip(scores, self._read(first, mask, kind, align), strict=True):
            value = read if kind == "float" else e(f"fpext {kind} {read} to float")
            op = "fadd" if mask.step[4] > 0 else "fsub"
            found.append(e(f"{op} float {s}, {value}"))
        return found

    def _keep(self, scores: list[str], first: str, mask: _Added) -> list[str]:
        e = self.e
        _, _, _, wanted, fill = mask.step
        found = []
        for s, read in zip(scores, self._read(first, mask, "i8", 1), strict=True):
            test = e(f"icmp {'ne' if wanted else 'eq'} i8 {read}, 0")
            found.append(e(f"select i1 {test}, float {s}, float {float_text(fill)}"))
        return found

    def _read(self, first: str, mask: _Added, kind: str, align: int) -> list[str]:
        """What a mask holds for the scores of this thread."""
        e = self.e
        stride = mask.step[2]
        here = e(f"add i32 {first}, {self.column}")
        shift = e(f"mul i64 {e(f'zext i32 {here} to i64')}, {stride}")
        starts = [e(f"getelementptr {kind}, {GLOBAL} {row}, i64 {shift}") for row in mask.rows]
        found = []
        for i in range(self.own):
            address = e(f"getelementptr {kind}, {GLOBAL} {starts[i // 2 % 2]}, "
                        f"i64 {column_of(i) * stride}")  # fmt: skip
            if self.keys % self.span:
                column = e(f"add i32 {here}, {column_of(i)}")
                test = e(f"icmp slt i32 {column}, {self.keys}")
                row = mask.rows[i // 2 % 2]
                address = e(f"select i1 {test}, {GLOBAL} {address}, {GLOBAL} {row}")
            found.append(e(f"load {kind}, {GLOBAL} {address}, align {align}, !invariant.load !0"))
        return found

    def softmax(self, scores: list[str], state: Folded) -> tuple[list[str], list[str]]:
        """Scores become weights; also returns what older sums shrink by."""
        e = self.e
        weights: list[str] = [""] * self.own
        shrink = []
        for half in range(2):
            places = [i for i in range(self.own) if i // 2 % 2 == half]
            old = state.largest[half]
            top = self.fold("llvm.maxnum.f32", [scores[i] for i in places])
            top = self.quad("llvm.maxnum.f32", self.call("llvm.maxnum.f32", top, old))
            # Where all is minus infinity, weights are zero rather than no numbers.
            nothing = e(f"fcmp oeq float {top}, {MINUS}")
            usable = e(f"select i1 {nothing}, float 0.0, float {top}")
            fade = self.weight(old, usable)
            for i in places:
                weights[i] = self.weight(scores[i], usable)
            sums = self.fold("", [weights[i] for i in places])
            state.total[half] = self.call("llvm.fma.f32", state.total[half], fade, sums)
            state.largest[half] = top
            shrink.append(fade)
        return weights, shrink

    def weight(self, score: str, largest: str) -> str:
        """The exponential; the difference comes first, so that it is exact for large scores."""
        apart = self.e(f"fsub float {score}, {largest}")
        return self.power(self.e(f"fmul float {apart}, {float_text(self.factor)}"))

    def fold(self, name: str, values: list[str]) -> str:
        """In four chains."""
        chains = values[:4]
        for i, value in enumerate(values[4:]):
            chains[i % 4] = self._two(name, chains[i % 4], value)
        return self._two(
            name, self._two(name, chains[0], chains[1]), self._two(name, chains[2], chains[3])
        )

    def _two(self, name: str, a: str, b: str) -> str:
        return self.call(name, a, b) if name else self.e(f"fadd float {a}, {b}")

    def pairs(self, weights: list[str]) -> list[str]:
        """Weights two by two in registers of 16-bit numbers."""
        text = f'call i32 asm "cvt.rn.{self.kind}x2.f32 $0, $1, $2;", "=r,f,f"'
        pairs = zip(weights[::2], weights[1::2], strict=True)
        return [self.e(f"{text}(float {high}, float {low})") for low, high in pairs]

    def count(self) -> str:
        """Steps of keys that the rows of this block need."""
        e = self.e
        every = -(-self.keys // self.span)
        if self.bound is None or self.is_turned:
            return str(every)
        furthest = e(f"add i32 {self.start32}, {ROWS - 1 + self.bound + self.span}")
        wanted = e(f"sdiv i32 {furthest}, {self.span}")
        return self.not_below(self._limited("smin", wanted, str(every)), "1")

    def begin(self) -> str:
        """The first step of queries that the keys of this block meet."""
        e = self.e
        if self.bound is None or not self.is_turned:
            return "0"
        last = -(-self.keys // self.span) - 1
        nearest = self.not_below(e(f"add i32 {self.start32}, {-self.bound}"), "0")
        return self._limited("smin", e(f"udiv i32 {nearest}, {self.span}"), str(last))


def column_of(number: int) -> int:
    """The column of a score, from the thread's first on."""
    return number // 4 * 8 + number % 2


def float_text(value: float) -> str:
    """A float32 as LLVM writes it."""
    from struct import pack, unpack

    (bits,) = unpack("<Q", pack("<d", unpack("<f", pack("<f", value))[0]))
    return f"0x{bits:016X}"
