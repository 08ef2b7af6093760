"""The loops of the gradient of attention.

``emit_logarithms`` walks over keys and keeps the maximum and the sum of each row, as attention
does, and gives the logarithm. ``emit_gradient`` makes weights again from those: the rows of a block
stay in shared memory, the others go by in steps. In each step one product gives the scores, a
second one, where there is one, what the weights receive; what comes of both in registers is the
left factor of the last product, which works while the next step's exponentials are made. Steps
have three places in shared memory: one is read by the last product, one by the first two, and one
is being filled.
"""

from __future__ import annotations

from math import e as EULER
from math import log, log2
from typing import TYPE_CHECKING

from svod.codegen.render.panels import COMMIT, GLOBAL, Panel
from svod.codegen.render.scores import MINUS, WAIT, Folded, Scores, column_of, float_text
from svod.ir.node import UOp
from svod.optimize.gpu_attention import LARGEST, ROWS, keys_of, side_of
from svod.optimize.gpu_attention_gradient import span_of

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

STAGES = 3


def emit_logarithms(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the numbers of this thread's two rows."""
    return _Logarithms(r, node).emit()


def emit_gradient(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the results of this thread in the order of the pieces."""
    return _Gradient(r, node).emit()


class _Logarithms(Scores):
    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        kind, rows, keys, self.depth, steps, self.is_guarded, *layouts = node.arg[2:]
        memories, bases, start = self.sources(r, node)
        super().__init__(r, kind, (rows, keys), keys_of(64, self.depth), start)
        wide = side_of(self.depth)
        self.query = self.panel(memories[0], bases[0], (ROWS, wide), layouts[0])
        self.key = self.panel(memories[1], bases[1], (self.span, wide), layouts[1])
        self.sort_steps(steps, list(zip(memories[2:], bases[2:], strict=True)))

    def emit(self) -> list[str]:
        r, e = self.r, self.e
        self.buffer = r.dynamic_shared(self.query.nbytes + 2 * self.key.nbytes)
        self.key_buffer = e(f"add i32 {self.buffer}, {self.query.nbytes}")
        self.places()
        self.query_at = self.rows_at(self.query, self.buffer)
        self.key_at = self.key.descriptor(self.key_buffer)
        self.query.prepare(self.start)
        self.key.prepare()
        count = self.count()
        self.copy_rows(self.query, self.buffer, self.depth)
        self._copy(e(f"sub i32 {count}, 1"))
        r.assembly(COMMIT, "~{memory}", "")
        first = [MINUS, MINUS, "0.0", "0.0"]
        *largest, one, other = self.walk((count, "0"), first, ["float"] * 4, self._step)
        totals = [self.quad("", t) for t in (one, other)]
        return [self._logarithm(top, t) for top, t in zip(largest, totals, strict=True)]

    def _step(self, place: str, block: str, values: list[str]) -> list[str]:
        """One step of keys: the next one is copied while its scores are made."""
        e = self.e
        self.wait()
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {self.key.nbytes // 16}")
        keys = e(f"add i64 {self.key_at}, {e(f'zext i32 {shift} to i64')}")
        scores = self.shared_product(
            (self.query_at, self.query), (keys, self.key), self.depth, self.span
        )
        self._copy(self.not_below(e(f"sub i32 {block}, 1"), "0"))
        self.r.assembly(COMMIT, "~{memory}", "")
        scores = self.masked(self.tied(f"{WAIT} 0;", scores), block)
        state = Folded(values[:2], values[2:])
        self.softmax(scores, state)
        return [*state.largest, *state.total]

    def _copy(self, block: str) -> None:
        e = self.e
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {self.key.nbytes}")
        self.copy_across(self.key, e(f"add i32 {self.key_buffer}, {shift}"), block, self.depth)

    def _logarithm(self, largest: str, total: str) -> str:
        """In base e of what was summed in base two; a row of nothing has the least number."""
        e = self.e
        power = e(f'call float asm "lg2.approx.ftz.f32 $0, $1;", "=f,f"(float {total})')
        found = self.call("llvm.fma.f32", largest, float_text(self.factor), power)
        found = e(f"fmul float {found}, {float_text(log(2))}")
        if not self.is_guarded:
            return found
        empty = e(f"fcmp oeq float {total}, 0.0")
        return e(f"select i1 {empty}, float {float_text(-LARGEST)}, float {found}")


class _Gradient(Scores):
    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        kind, rows, across, widths, steps, is_turned, self.strides, *layouts = node.arg[2:]
        memories, bases, start = self.sources(r, node)
        super().__init__(r, kind, (rows, across), span_of(widths), start)
        self.is_turned = is_turned
        self.columns, *self.depths = widths
        sizes = []
        for depth in self.depths:
            sizes += [(ROWS, side_of(depth)), (self.span, side_of(depth))]
        wide = (side_of(self.columns), self.span)
        count = len(layouts)
        panels = list(map(self.panel, memories, bases, [*sizes, wide], layouts))
        self.staying, self.passing = panels[: len(sizes) : 2], panels[1 : len(sizes) : 2]
        if len(self.depths) > 1:  # the factor of the scores is that of the last product too
            outer, deep, is_wide = layouts[1]
            self.value = self.panel(memories[1], bases[1], wide, (deep, outer, is_wide))
        else:
            self.value = panels[-1]
            self.passing.append(self.value)
        rest = list(zip(memories[count:], bases[count:], strict=True))
        self.numbers = rest[: len(self.strides)]
        self.sort_steps(steps, rest[len(self.strides) :])

    # -- the loop ------------------------------------------------------------------------------

    def emit(self) -> list[str]:
        r, e = self.r, self.e
        rows = sum(p.nbytes for p in self.staying)
        self.stage = sum(p.nbytes for p in self.passing)
        buffer = r.dynamic_shared(rows + STAGES * self.stage)
        self.ring = e(f"add i32 {buffer}, {rows}")
        self.places()
        self._pointers()
        self.rows_are, place = [], buffer
        for panel, depth in zip(self.staying, self.depths, strict=True):
            panel.prepare(self.start)
            self.rows_are.append(self.rows_at(panel, place))
            self.copy_rows(panel, place, depth)
            place = e(f"add i32 {place}, {panel.nbytes}")
        for panel in self.passing:
            panel.prepare()
        begin = self.begin()
        self.first = begin
        last = e(f"sub i32 {self.count()}, 1")
        self._copy(last)
        r.assembly(COMMIT, "~{memory}", "")
        self.wait()
        started, numbers = self._products(last)
        self._copy(self.not_below(e(f"sub i32 {last}, 1"), begin))
        r.assembly(COMMIT, "~{memory}", "")
        weights = self.pairs(self._weights(started, numbers, last, 0))
        sums = ["0.0"] * (side_of(self.columns) // 2)
        kinds = ["i32"] * len(weights) + ["float"] * len(sums)
        found = self.walk((last, begin), [*weights, *sums], kinds, self._step)
        self.wait()
        return self.tied(f"{WAIT} 0;", self._last_product(found, begin))

    def _step(self, place: str, block: str, values: list[str]) -> list[str]:
        """One step: its first products, with the last one of the step before."""
        e = self.e
        self.wait()
        started, numbers = self._products(block)
        sums = self._last_product(values, place)
        self._copy(self.not_below(e(f"sub i32 {block}, 1"), self.first))
        self.r.assembly(COMMIT, "~{memory}", "")
        weights = self._weights(started, numbers, block, 1)
        # The old weights are read until the product is there: their registers wait for it.
        done = self.tied(f"{WAIT} 0;", [*sums, *weights])
        return [*self.pairs(done[len(sums) :]), *done[: len(sums)]]

    # -- copies and products -------------------------------------------------------------------

    def _place(self, block: str, panel: Panel) -> str:
        """Where a panel of a step is."""
        e = self.e
        before = 0
        for p in self.passing:
            if p is panel:
                break
            before += p.nbytes
        stage = e(f"mul i32 {e(f'urem i32 {block}, {STAGES}')}, {self.stage}")
        return e(f"add i32 {e(f'add i32 {self.ring}, {before}')}, {stage}")

    def _copy(self, block: str) -> None:
        for panel, depth in zip(self.passing, [*self.depths, self.columns], strict=False):
            target = self._place(block, panel)
            if panel is self.value:
                shift = self.shift(block, panel.depth_axes[-1][1])
                self.copy_panel(panel, target, shift, self.end_of(depth), self.left(block))
            else:
                self.copy_across(panel, target, block, depth)

    def _products(self, block: str) -> tuple[list[list[str]], list[list[str]]]:
        """Start those that go by with those that stay; reads the numbers of a step meanwhile."""
        found = []
        for rows, staying, passing, depth in zip(
            self.rows_are, self.staying, self.passing, self.depths, strict=False
        ):
            at = passing.descriptor(self._place(block, passing))
            found.append(self.shared_product((rows, staying), (at, passing), depth, self.span))
        return found, self._numbers(block)

    def _last_product(self, values: list[str], block: str) -> list[str]:
        shared = self.passing[0] if len(self.depths) > 1 else self.value
        at = self.value.descriptor(self._place(block, shared))
        pairs = self.own // 2
        return self.weighted_product(values[pairs:], values[:pairs], at, self.value)

    # -- weights -------------------------------------------------------------------------------

    def _pointers(self) -> None:
        """The numbers of this thread's rows; those of columns are read as they go by."""
        e = self.e
        self.of_rows: list[list[str]] = []
        if self.is_turned:
            return
        for kind, ((memory, base), (stride, _, _)) in enumerate(
            zip(self.numbers, self.strides, strict=True)
        ):
            found = []
            for row in self.row:
                here = self._limited("smin", row, str(self.rows - 1))
                place = e(f"mul i64 {e(f'zext i32 {here} to i64')}, {stride}")
                read = self._read_numbers(memory, base, place, 1)
                found.append(read if kind else self._negative(read))
            self.of_rows.append(found)

    def _numbers(self, block: str) -> list[list[str]]:
        """Per kind of number, that of every score of this thread."""
        if not self.is_turned:
            return [[found[i // 2 % 2] for i in range(self.own)] for found in self.of_rows]
        e = self.e
        here = e(f"add i32 {e(f'mul i32 {block}, {self.span}')}, {self.column}")
        result = []
        for (memory, base), (_, stride, is_even) in zip(self.numbers, self.strides, strict=True):
            known: dict[int, str] = {}
            count = 2 if is_even and self.r.aligned else 1
            for column in sorted({column_of(i) for i in range(self.own)})[::count]:
                place = e(f"add i32 {here}, {column}")
                if self.keys % self.span:
                    place = self._limited("smin", place, str(self.keys - count))
                wide = e(f"mul i64 {e(f'zext i32 {place} to i64')}, {stride}")
                read = self._read_numbers(memory, base, wide, count)
                if count == 1:
                    known[column] = read
                    continue
                for i in range(count):
                    known[column + i] = e(f"extractelement <2 x float> {read}, i64 {i}")
            result.append([known[column_of(i)] for i in range(self.own)])
        return result

    def _read_numbers(self, memory: str, base: str, place: str, count: int) -> str:
        """One number, or two neighbours."""
        e = self.e
        place = e(f"add i64 {place}, {base}")
        address = e(f"getelementptr float, {GLOBAL} {memory}, i64 {place}")
        kind = "float" if count == 1 else "<2 x float>"
        if count > 1:
            self.r.widest = max(self.r.widest, 4 * count)
        return e(f"load {kind}, {GLOBAL} {address}, align {4 * count}, !invariant.load !0")

    def _negative(self, logarithm: str) -> str:
        """What is added to powers of two for a logarithm."""
        e = self.e
        found = e(f"fmul float {logarithm}, {float_text(-log2(EULER))}")
        # A row of nothing has the least number, and must not become infinite.
        most = float_text(LARGEST)
        return e(f"select i1 {e(f'fcmp ogt float {found}, {most}')}, float {most}, float {found}")

    def _weights(
        self, started: list[list[str]], numbers: list[list[str]], block: str, after: int
    ) -> list[str]:
        """The left factor of the last product; so many products were started after these."""
        e = self.e
        first = self.tied(f"{WAIT} {len(started) - 1 + after};", started[0])
        logarithms = numbers[0]
        if self.is_turned:  # they were read meanwhile: nothing waited for them until now
            changed = {n: self._negative(n) for n in dict.fromkeys(logarithms)}
            logarithms = [changed[n] for n in logarithms]
        factor = float_text(self.factor)
        found = [
            self.power(self.call("llvm.fma.f32", s, factor, n))
            for s, n in zip(self.masked(first, block), logarithms, strict=True)
        ]
        if len(started) == 1:
            return found
        second = self.tied(f"{WAIT} {after};", started[1])
        apart = [e(f"fsub float {p}, {n}") for p, n in zip(second, numbers[1], strict=True)]
        return [e(f"fmul float {w}, {a}") for w, a in zip(found, apart, strict=True)]
