"""The loop of an attention tile: queries stay, keys and values go by.

A block has 128 rows of queries, a warpgroup 64 of them. Per step of 128 keys, or of 64 where heads
have more than 128 elements, the scores are made into registers, the weights replace them, and the
values are multiplied by the weights of the step before, so that the tensor cores work while the
exponentials are made. Each row keeps its maximum and its sum; sums are scaled where the maximum
grows. Keys are walked from the last to the first, those behind a triangle's edge not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e as EULER
from math import inf, log2
from typing import TYPE_CHECKING, Any

from svod.codegen.render.panels import COMMIT, GLOBAL, Panel, assembly
from svod.dtype import types as dt
from svod.ir.node import UOp
from svod.optimize.gpu_attention import ROWS, keys_of, side_of

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

THREADS = 256
MINUS = "0xFFF0000000000000"  # minus infinity
_READ = {"float32": ("float", 4), "float16": ("half", 2), "bfloat16": ("bfloat", 2)}


@dataclass(slots=True)
class _Added:
    """A mask in memory, as this thread sees it: a pointer per row."""

    step: tuple[Any, ...]
    rows: tuple[str, str]


@dataclass(slots=True)
class _State:
    """What goes from one step of keys to the next."""

    largest: list[str]  # of the two rows
    total: list[str]  # this thread's part
    weights: list[str]  # pairs, as the second product reads them
    sums: list[str]

    def all(self) -> list[str]:
        return [*self.largest, *self.total, *self.weights, *self.sums]


def emit_attention(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the results of this thread in the order of the pieces."""
    return _Attention(r, node).emit()


class _Attention:
    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        self.r = r
        self.kind, rows, columns, keys, depth, steps, self.is_guarded, *layouts = node.arg[2:]
        self.rows, self.keys, self.columns, self.depth = rows, keys, columns, depth
        self.wide_columns, self.wide_depth = side_of(columns), side_of(depth)
        self.span = keys_of(columns, depth)  # keys of one step
        self.own = self.span // 2  # scores of one thread: two rows of every eighth pair of columns
        self.thread = r._register("tid.x")
        count = (len(node.src) - 1) // 2
        memories = [r._memory(s) for s in node.src[:count]]
        bases = [r._value(s) for s in node.src[count:-1]]
        self.start = r._value(node.src[-1])
        sizes = (
            (ROWS, self.wide_depth),
            (self.span, self.wide_depth),
            (self.wide_columns, self.span),
        )
        self.query, self.key, self.value = (
            Panel(r, memory, base, *size, outer, deep, wide and r.aligned, THREADS, self.thread)
            for memory, base, size, (outer, deep, wide) in zip(
                memories, bases, sizes, layouts, strict=False
            )
        )
        if any(p.wide for p in (self.query, self.key, self.value)):
            r.widest = 16
        self._sort_steps(steps, list(zip(memories[3:], bases[3:], strict=True)))

    def _sort_steps(self, steps: tuple[Any, ...], memories: list[tuple[str, str]]) -> None:
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

    # -- the loop ------------------------------------------------------------------------------

    def emit(self) -> list[str]:
        r, e = self.r, self.e
        query, key, value = self.query, self.key, self.value
        self.buffer = r.dynamic_shared(query.nbytes + 2 * key.nbytes + 2 * value.nbytes)
        self.key_buffer = e(f"add i32 {self.buffer}, {query.nbytes}")
        self.value_buffer = e(f"add i32 {self.key_buffer}, {2 * key.nbytes}")
        group = e(f"lshr i32 {self.thread}, 7")
        mine = e(f"add i32 {self.buffer}, {e(f'mul i32 {group}, {query.down(1)}')}")
        self.query_at = query.descriptor(mine)
        self.key_at = key.descriptor(self.key_buffer)
        self.value_at = value.descriptor(self.value_buffer)
        self._places(group)
        query.prepare(self.start)
        key.prepare()
        value.prepare()
        blocks = self._count()
        last = e(f"sub i32 {blocks}, 1")
        left = e(f"sub i32 {self.rows}, {self.start32}") if self.rows % ROWS else None
        self._copy_panel(query, self.buffer, "0", left, self._deep())
        self._copy_key(last)
        r.assembly(COMMIT, "~{memory}", "")
        self._wait()
        before = e(f"call i32 @llvm.smax.i32(i32 {e(f'sub i32 {last}, 1')}, i32 0)")
        r.declarations.add("declare i32 @llvm.smax.i32(i32, i32)")
        scores = self._scores(last)
        self._copy_key(before)
        self._copy_value(last)
        r.assembly(COMMIT, "~{memory}", "")
        scores = self._tied("wgmma.wait_group.sync.aligned 0;", scores)
        zeros = ["0.0"] * (self.wide_columns // 2)
        state = _State([MINUS, MINUS], ["0.0", "0.0"], [], zeros)
        weights, _ = self._softmax(self._masked(scores, last), state)
        state.weights = self._pairs(weights)
        state = self._loop(state, last)
        self._wait()
        state.sums = self._product(state, "0")
        sums = self._tied("wgmma.wait_group.sync.aligned 0;", state.sums)
        totals = [self.quad("", t) for t in state.total]
        if self.is_guarded:
            empty = [e(f"fcmp oeq float {t}, 0.0") for t in totals]
            pairs = zip(empty, totals, strict=True)
            totals = [e(f"select i1 {none}, float 1.0, float {t}") for none, t in pairs]
        return [e(f"fdiv float {s}, {totals[i // 2 % 2]}") for i, s in enumerate(sums)]

    def _loop(self, first: _State, last: str) -> _State:
        """All steps of keys but the last, which was first."""
        r, e = self.r, self.e
        r.blocks += 1
        number = r.blocks
        before = r.block
        test = e(f"icmp sgt i32 {last}, 0")
        self.line(f"br i1 {test}, label %tile{number}, label %rest{number}")
        self.label(f"tile{number}")
        names = [r._fresh() for _ in first.all()]
        place = r._fresh()
        slot = len(r.lines)
        r.lines.extend([""] * (len(names) + 1))
        state = self._state(names)
        block = e(f"sub i32 {place}, 1")
        self._wait()
        scores = self._scores(block)
        state.sums = self._product(state, place)
        self._copy_key(e(f"call i32 @llvm.smax.i32(i32 {e(f'sub i32 {block}, 1')}, i32 0)"))
        self._copy_value(block)
        r.assembly(COMMIT, "~{memory}", "")
        scores = self._tied("wgmma.wait_group.sync.aligned 1;", scores)
        scores = self._masked(scores, block)
        weights, shrink = self._softmax(scores, state)
        # The old weights are read until the product is there: their registers wait for it.
        done = self._tied("wgmma.wait_group.sync.aligned 0;", [*state.sums, *weights])
        sums, weights = done[: -self.own], done[-self.own :]
        state.sums = [e(f"fmul float {s}, {shrink[i // 2 % 2]}") for i, s in enumerate(sums)]
        state.weights = self._pairs(weights)
        inside = r.block
        packed = range(4, 4 + len(first.weights))
        kinds = ["i32" if i in packed else "float" for i in range(len(names))]
        for i, (name, kind, a, b) in enumerate(
            zip(names, kinds, first.all(), state.all(), strict=True)
        ):
            r.lines[slot + i] = f"  {name} = phi {kind} [ {a}, %{before} ], [ {b}, %{inside} ]"
        r.lines[slot + len(names)] = (
            f"  {place} = phi i32 [ {last}, %{before} ], [ {block}, %{inside} ]"
        )
        again = e(f"icmp sgt i32 {block}, 0")
        self.line(f"br i1 {again}, label %tile{number}, label %rest{number}")
        self.label(f"rest{number}")
        found = [
            e(f"phi {kind} [ {a}, %{before} ], [ {b}, %{inside} ]")
            for kind, a, b in zip(kinds, first.all(), state.all(), strict=True)
        ]
        return self._state(found)

    def _state(self, names: list[str]) -> _State:
        pairs = self.own // 2
        return _State(names[:2], names[2:4], names[4 : 4 + pairs], names[4 + pairs :])

    def _count(self) -> str:
        """Steps of keys that the rows of this block need."""
        e = self.e
        every = -(-self.keys // self.span)
        if self.bound is None:
            return str(every)
        furthest = e(f"add i32 {self.start32}, {ROWS - 1 + self.bound + self.span}")
        wanted = e(f"sdiv i32 {furthest}, {self.span}")
        for name, limit in (("smin", every), ("smax", 1)):
            self.r.declarations.add(f"declare i32 @llvm.{name}.i32(i32, i32)")
            wanted = e(f"call i32 @llvm.{name}.i32(i32 {wanted}, i32 {limit})")
        return wanted

    def _places(self, group: str) -> None:
        """Rows and the first column of this thread, and its pointers into masks."""
        e = self.e
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

    def _deep(self) -> str | None:
        return str(self.depth) if self.depth != self.wide_depth else None

    def _copy_panel(
        self, panel: Panel, target: str, shift: str, outer: str | None, depth: str | None
    ) -> None:
        rows, columns = (outer, depth) if panel.along_depth else (depth, outer)
        panel.copy(target, shift, rows, columns)

    def _left(self, block: str) -> str | None:
        """Keys from the start of a step to the end."""
        if self.keys % self.span == 0:
            return None
        return self.e(f"sub i32 {self.keys}, {self.e(f'mul i32 {block}, {self.span}')}")

    def _copy_key(self, block: str) -> None:
        panel = self.key
        target = self._buffer(self.key_buffer, block, panel.nbytes)
        shift = self._shift(block, panel.outer_axes[-1][1])
        self._copy_panel(panel, target, shift, self._left(block), self._deep())

    def _copy_value(self, block: str) -> None:
        panel = self.value
        target = self._buffer(self.value_buffer, block, panel.nbytes)
        shift = self._shift(block, panel.depth_axes[-1][1])
        outer = str(self.columns) if self.columns != self.wide_columns else None
        self._copy_panel(panel, target, shift, outer, self._left(block))

    def _buffer(self, first: str, block: str, nbytes: int) -> str:
        e = self.e
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {nbytes}")
        return e(f"add i32 {first}, {shift}")

    def _shift(self, block: str, stride: int) -> str:
        e = self.e
        return e(f"mul i64 {e(f'zext i32 {block} to i64')}, {self.span * stride}")

    def _wait(self) -> None:
        """Until all copies have arrived for every thread, and may be read."""
        text = "cp.async.wait_group 0; fence.proxy.async.shared::cta;"
        self.r.assembly(text, "~{memory}", "")
        self.r.barrier()

    # -- products ------------------------------------------------------------------------------

    def _at(self, descriptor: str, block: str, panel: Panel) -> str:
        e = self.e
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {panel.nbytes // 16}")
        return e(f"add i64 {descriptor}, {e(f'zext i32 {shift} to i64')}")

    def _scores(self, block: str) -> list[str]:
        """Start the products of the queries with one step of keys."""
        e = self.e
        keys = self._at(self.key_at, block, self.key)
        inputs: list[str] = []
        lines = ["wgmma.fence.sync.aligned;"]
        registers = ", ".join([f"${i}" for i in range(self.own)])
        for step in range(-(-self.depth // 16)):
            place = self.own + len(inputs)
            inputs.append(e(f"add i64 {self.query_at}, {self.query.step(step)}"))
            inputs.append(e(f"add i64 {keys}, {self.key.step(step)}"))
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{self.span}k16.f32.{self.kind}.{self.kind} "
                f"{{{registers}}}, ${place}, ${place + 1}, {min(step, 1)}, 1, 1, "
                f"{self.query.turned}, {self.key.turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, [], [("i64", "l", v) for v in inputs], self.own)

    def _product(self, state: _State, block: str) -> list[str]:
        """Start to add the values of one step times its weights."""
        e = self.e
        values = self._at(self.value_at, block, self.value)
        count = len(state.sums)
        inputs = [("i32", "r", w) for w in state.weights]
        registers = ", ".join([f"${i}" for i in range(count)])
        lines = ["wgmma.fence.sync.aligned;"]
        for step in range(self.span // 16):
            place = count + len(inputs)
            inputs.append(("i64", "l", e(f"add i64 {values}, {self.value.step(step)}")))
            weights = ", ".join([f"${count + 4 * step + i}" for i in range(4)])
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{self.wide_columns}k16.f32."
                f"{self.kind}.{self.kind} {{{registers}}}, {{{weights}}}, ${place}, "
                f"1, 1, 1, {self.value.turned};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, state.sums, inputs, count)

    def _tied(self, text: str, values: list[str]) -> list[str]:
        return assembly(self.r, [text], values, [], len(values))

    # -- between the products ------------------------------------------------------------------

    def _masked(self, scores: list[str], block: str) -> list[str]:
        """The scores after scales and masks; keys that do not exist are minus infinity."""
        e = self.e
        first = e(f"mul i32 {block}, {self.span}")
        masks = iter(self.masks)
        for step in self.steps:
            if step[0] == "scale":
                scores = [e(f"fmul float {s}, {_float(step[1])}") for s in scores]
            elif step[0] == "causal":
                limits = [e(f"add i32 {row}, {step[1] + 1}") for row in self.row]
                scores = self._cut(scores, first, limits, _float(step[2]))
            elif step[0] == "added":
                scores = self._add(scores, first, next(masks))
            else:
                scores = self._keep(scores, first, next(masks))
        if self.bound is None and self.keys % self.span == 0:
            return scores
        return self._inside(scores, first)

    def _inside(self, scores: list[str], first: str) -> list[str]:
        """Minus infinity past the edge, which most steps of keys do not meet."""
        r, e = self.r, self.e
        tests = []
        end = e(f"add i32 {first}, {self.span}")
        limits = [str(self.keys)] * 2
        if self.keys % self.span:
            tests.append(e(f"icmp sgt i32 {end}, {self.keys}"))
        if self.bound is not None:
            edge = e(f"add i32 {self.first_row}, {self.bound + 1}")
            tests.append(e(f"icmp sgt i32 {end}, {edge}"))
            limits = [
                e(f"call i32 @llvm.smin.i32(i32 {e(f'add i32 {row}, {self.bound + 1}')}, "
                  f"i32 {self.keys})")
                for row in self.row
            ]  # fmt: skip
        test = tests[0] if len(tests) == 1 else e(f"or i1 {tests[0]}, {tests[1]}")
        before = r.block
        number = r._branch(test)
        cut = self._cut(scores, first, limits, MINUS)
        inside = r.block
        r._join(number)
        return [
            e(f"phi float [ {s}, %{before} ], [ {c}, %{inside} ]")
            for s, c in zip(scores, cut, strict=True)
        ]

    def _cut(self, scores: list[str], first: str, limits: list[str], fill: str) -> list[str]:
        """The scores of columns below the limits of their rows, else the fill."""
        e = self.e
        here = e(f"add i32 {first}, {self.column}")
        left = [e(f"sub i32 {limit}, {here}") for limit in limits]
        found = []
        for i, s in enumerate(scores):
            test = e(f"icmp sgt i32 {left[i // 2 % 2]}, {_column(i)}")
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
            found.append(e(f"select i1 {test}, float {s}, float {_float(fill)}"))
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
                        f"i64 {_column(i) * stride}")  # fmt: skip
            if self.keys % self.span:
                column = e(f"add i32 {here}, {_column(i)}")
                test = e(f"icmp slt i32 {column}, {self.keys}")
                row = mask.rows[i // 2 % 2]
                address = e(f"select i1 {test}, {GLOBAL} {address}, {GLOBAL} {row}")
            found.append(e(f"load {kind}, {GLOBAL} {address}, align {align}, !invariant.load !0"))
        return found

    def _softmax(self, scores: list[str], state: _State) -> tuple[list[str], list[str]]:
        """Scores become weights; also returns what older sums shrink by."""
        e = self.e
        weights: list[str] = [""] * self.own
        shrink = []
        for half in range(2):
            places = [i for i in range(self.own) if i // 2 % 2 == half]
            old = state.largest[half]
            top = self._fold("llvm.maxnum.f32", [scores[i] for i in places])
            top = self.quad("llvm.maxnum.f32", self.call("llvm.maxnum.f32", top, old))
            # Where all is minus infinity, weights are zero rather than no numbers.
            nothing = e(f"fcmp oeq float {top}, {MINUS}")
            usable = e(f"select i1 {nothing}, float 0.0, float {top}")
            fade = self._weight(old, usable)
            for i in places:
                weights[i] = self._weight(scores[i], usable)
            sums = self._fold("", [weights[i] for i in places])
            state.total[half] = self.call("llvm.fma.f32", state.total[half], fade, sums)
            state.largest[half] = top
            shrink.append(fade)
        return weights, shrink

    def _weight(self, score: str, largest: str) -> str:
        """The exponential; the difference comes first, so that it is exact for large scores."""
        apart = self.e(f"fsub float {score}, {largest}")
        return self.power(self.e(f"fmul float {apart}, {_float(self.factor)}"))

    def _fold(self, name: str, values: list[str]) -> str:
        """In four chains."""
        chains = values[:4]
        for i, value in enumerate(values[4:]):
            chains[i % 4] = self._two(name, chains[i % 4], value)
        return self._two(
            name, self._two(name, chains[0], chains[1]), self._two(name, chains[2], chains[3])
        )

    def _two(self, name: str, a: str, b: str) -> str:
        return self.call(name, a, b) if name else self.e(f"fadd float {a}, {b}")

    def _pairs(self, weights: list[str]) -> list[str]:
        """Weights two by two in registers of 16-bit numbers."""
        text = f'call i32 asm "cvt.rn.{self.kind}x2.f32 $0, $1, $2;", "=r,f,f"'
        pairs = zip(weights[::2], weights[1::2], strict=True)
        return [self.e(f"{text}(float {high}, float {low})") for low, high in pairs]


def _column(number: int) -> int:
    """The column of a score, from the thread's first on."""
    return number // 4 * 8 + number % 2


def _float(value: float) -> str:
    """A float32 as LLVM writes it."""
    from struct import pack, unpack

    (bits,) = unpack("<Q", pack("<d", unpack("<f", pack("<f", value))[0]))
    return f"0x{bits:016X}"
