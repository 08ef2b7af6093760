"""Sorts on a CPU: words go to their places digit by digit, the lowest first.

The digits of a row are counted in one pass over it. Then each digit takes a pass: a table says
where the next word with each value goes. Words alike keep their order. Where few are kept, those
whose highest digit is too large are left out first. Rows up to a size are
sorted so in one kernel, in scratch memory that stays in a cache; longer ones by one kernel for each
step. Cores take rows, or blocks of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from svod.ir import ops as O
from svod.ir.args import DIGIT_BITS, RadixArg, SortArg
from svod.ir.node import UOp, elements
from svod.schedule.sorts import FEWER

DIGITS = 1 << DIGIT_BITS
# Numbers from one table to the next: four tables that fill a page exactly, on a stack that is one
# too, were five times slower than these (a row of 300 words on a Zen processor).
APART = DIGITS + 16
LINE = 16  # numbers of a table that are cleared at once


def sort_text(symbol: str, found: UOp, cores: int) -> str:
    """The function of a SORT or of a step of one."""
    text = _Text(cores)
    shape, arg = found.src[0].shape, found.arg
    rows, size = elements(shape[:-1]), shape[-1]
    if found.op == O.SORT:
        text.sort(rows, size, arg)
    elif arg.step == "count":
        text.count(rows, size, arg)
    elif arg.step == "start":
        text.start(rows, size)
    else:
        text.deal(rows, size, arg)
    arguments = [
        f"  %q{i} = getelementptr ptr, ptr %bufs, i64 {i}\n  %p{i} = load ptr, ptr %q{i}, align 8"
        for i in range(1 + len(found.src))
    ]
    body = "\n".join([*text.scratch, *arguments, *text.lines])
    head = f"define void @{symbol}(ptr %bufs, ptr %vals, i64 %core) #0 {{\nentry:\n"
    return f"{head}{body}\n  ret void\n}}\n"


class _Text:
    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.lines: list[str] = []
        self.scratch: list[str] = []
        self.names = self.blocks = 0
        self.block = "entry"
        self.carried: list[str] = []  # what the sums of the last loop are after it

    def e(self, text: str) -> str:
        self.names += 1
        self.lines.append(f"  %v{self.names} = {text}")
        return f"%v{self.names}"

    def array(self, count: int, kind: str) -> str:
        name = f"%scratch{len(self.scratch)}"
        self.scratch.append(f"  {name} = alloca [{count} x {kind}], align 64")
        return name

    def at(self, base: str, kind: str, index: str) -> str:
        return self.e(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, base: str, kind: str, index: str) -> str:
        place = self.at(base, kind, index)
        return self.e(f"load {kind}, ptr {place}, align {int(kind[1:]) // 8}")

    def store(self, base: str, kind: str, index: str, value: str) -> None:
        place = self.at(base, kind, index)
        self.lines.append(f"  store {kind} {value}, ptr {place}, align {int(kind[1:]) // 8}")

    @contextmanager
    def loop(self, start: str, end: str, *sums: str) -> Iterator[tuple[str, list[str]]]:
        """A loop from start to end; ``sums`` are i32 values it changes in place of the list."""
        self.blocks += 1
        number, before = self.blocks, self.block
        self.lines += [f"  br label %head{number}", f"head{number}:"]
        slot = len(self.lines)
        self.lines += [""] * (1 + len(sums))
        counter, *carried = [f"%c{number}_{i}" for i in range(1 + len(sums))]
        test = self.e(f"icmp ult i64 {counter}, {end}")
        self.lines += [f"  br i1 {test}, label %body{number}, label %done{number}"]
        self.lines += [f"body{number}:"]
        self.block = f"body{number}"
        values = list(carried)
        yield counter, values
        following = self.e(f"add nuw i64 {counter}, 1")
        phis = [("i64", counter, start, following)]
        phis += [("i32", *p) for p in zip(carried, sums, values, strict=True)]
        for i, (kind, name, old, new) in enumerate(phis):
            text = f"phi {kind} [ {old}, %{before} ], [ {new}, %{self.block} ]"
            self.lines[slot + i] = f"  {name} = {text}"
        self.lines += [f"  br label %head{number}", f"done{number}:"]
        self.block = f"done{number}"
        self.carried = carried

    @contextmanager
    def units(self, count: int) -> Iterator[str]:
        """A loop over the rows or blocks of this core."""
        share = -(-count // self.cores)
        start = self.e(f"mul i64 %core, {share}")
        end = self.e(f"add i64 {start}, {share}")
        past = self.e(f"icmp ult i64 {end}, {count}")
        end = self.e(f"select i1 {past}, i64 {end}, i64 {count}")
        with self.loop(start, end) as (unit, _):
            yield unit

    def clear(self, table: str, count: int) -> None:
        with self.loop("0", str(count // LINE)) as (i, _):
            place = self.at(table, f"<{LINE} x i32>", i)
            self.lines.append(f"  store <{LINE} x i32> zeroinitializer, ptr {place}, align 64")

    def digit(self, word: str, low: int) -> str:
        return self.e(f"and i64 {self.e(f'lshr i64 {word}, {low}')}, {DIGITS - 1}")

    def move(
        self,
        source: str,
        target: str,
        size: str,
        table: str,
        low: int,
        change: Callable[[str], str] | None = None,
    ) -> None:
        """Put words, perhaps changed, where the table says the next one of their digit goes."""
        with self.loop("0", size) as (i, _):
            word = self.load(source, "i64", i)
            digit = self.digit(word, low)
            place = self.load(table, "i32", digit)
            goal = self.e(f"zext i32 {place} to i64")
            self.store(target, "i64", goal, word if change is None else change(word))
            self.store(table, "i32", digit, self.e(f"add i32 {place}, 1"))

    def turned(self, word: str) -> str:
        """The lowest digit of a word becomes its highest."""
        high = self.e(f"shl i64 {word}, {64 - DIGIT_BITS}")
        return self.e(f"or i64 {self.e(f'lshr i64 {word}, {DIGIT_BITS}')}, {high}")

    def tally(self, source: str, size: str, tables: list[tuple[str, int]]) -> None:
        """Count the digits of words."""
        with self.loop("0", size) as (i, _):
            word = self.load(source, "i64", i)
            for table, low in tables:
                digit = self.digit(word, low)
                self.store(
                    table, "i32", digit, self.e(f"add i32 {self.load(table, 'i32', digit)}, 1")
                )

    # -- kernels -------------------------------------------------------------------------------

    def sort(self, rows: int, size: int, arg: SortArg) -> None:
        def shown(word: str) -> str:
            return self.e(f"and i64 {word}, {(1 << arg.shown) - 1}") if arg.shown < 64 else word

        lows = list(range(arg.low, arg.high, DIGIT_BITS))
        counts = self.array(len(lows) * APART, "i32")
        spare = [self.array(size, "i64") for _ in range(2)]
        with self.units(rows) as row:
            source = self.at("%p1", "i64", self.e(f"mul i64 {row}, {size}"))
            result = self.at("%p0", "i64", self.e(f"mul i64 {row}, {arg.kept}"))
            count = str(size)
            if arg.kept * FEWER <= size:
                count = self.select(source, spare[1], size, arg, counts)
                source = spare[1]
            tables = [(self.at(counts, "i32", str(i * APART)), low) for i, low in enumerate(lows)]
            self.clear(counts, len(lows) * APART)
            self.tally(source, count, tables)
            with self.loop("0", str(DIGITS), *["0"] * len(lows)) as (digit, sums):
                for i, (table, _) in enumerate(tables):
                    found = self.load(table, "i32", digit)
                    self.store(table, "i32", digit, sums[i])
                    sums[i] = self.e(f"add i32 {sums[i]}, {found}")
            for i, (table, low) in enumerate(tables):
                is_last = i == len(lows) - 1 and arg.kept == size
                target = result if is_last else spare[i % 2]
                self.move(source, target, count, table, low, shown if is_last else None)
                source = target
            if arg.kept != size:
                with self.loop("0", str(arg.kept)) as (place, _):
                    self.store(result, "i64", place, shown(self.load(source, "i64", place)))

    def select(self, source: str, target: str, size: int, arg: SortArg, table: str) -> str:
        """The words whose highest digit may be among the smallest, and how many they are."""
        low = max(arg.low, arg.high - DIGIT_BITS)
        self.clear(table, DIGITS)
        self.tally(source, str(size), [(table, low)])
        # The first digit up to which there are as many as are kept.
        with self.loop("0", str(DIGITS), "0", "0") as (digit, sums):
            are_few = self.e(f"icmp ult i32 {sums[0]}, {arg.kept}")
            here = self.e(f"trunc i64 {digit} to i32")
            sums[1] = self.e(f"select i1 {are_few}, i32 {here}, i32 {sums[1]}")
            sums[0] = self.e(f"add i32 {sums[0]}, {self.load(table, 'i32', digit)}")
        limit = self.e(f"zext i32 {self.carried[1]} to i64")
        with self.loop("0", str(size), "0") as (i, sums):
            word = self.load(source, "i64", i)
            self.store(target, "i64", self.e(f"zext i32 {sums[0]} to i64"), word)
            is_kept = self.e(f"icmp ule i64 {self.digit(word, low)}, {limit}")
            sums[0] = self.e(f"add i32 {sums[0]}, {self.e(f'zext i1 {is_kept} to i32')}")
        return self.e(f"zext i32 {self.carried[0]} to i64")

    def _part(self, unit: str, size: int, arg: RadixArg) -> tuple[str, str, str, str]:
        """The row and number of a block, where it begins, and how many words it has."""
        parts = -(-size // arg.block)
        row, part = self.e(f"udiv i64 {unit}, {parts}"), self.e(f"urem i64 {unit}, {parts}")
        first = self.e(f"mul i64 {part}, {arg.block}")
        left = self.e(f"sub i64 {size}, {first}")
        is_short = self.e(f"icmp ult i64 {left}, {arg.block}")
        count = self.e(f"select i1 {is_short}, i64 {left}, i64 {arg.block}")
        start = self.e(f"add i64 {self.e(f'mul i64 {row}, {size}')}, {first}")
        return row, part, self.at("%p1", "i64", start), count

    def count(self, rows: int, size: int, arg: RadixArg) -> None:
        parts = -(-size // arg.block)
        table = self.array(DIGITS, "i32")
        with self.units(rows * parts) as unit:
            row, part, source, count = self._part(unit, size, arg)
            self.clear(table, DIGITS)
            self.tally(source, count, [(table, arg.low)])
            line = self.e(f"mul i64 {row}, {DIGITS * parts}")
            target = self.at("%p0", "i32", self.e(f"add i64 {line}, {part}"))
            with self.loop("0", str(DIGITS)) as (digit, _):
                place = self.e(f"mul i64 {digit}, {parts}")
                self.store(target, "i32", place, self.load(table, "i32", digit))

    def start(self, lines: int, parts: int) -> None:
        with self.units(lines) as line:
            source = self.at("%p1", "i32", self.e(f"mul i64 {line}, {parts}"))
            target = self.at("%p0", "i32", self.e(f"mul i64 {line}, {parts + 1}"))
            with self.loop("0", str(parts), "0") as (part, sums):
                self.store(target, "i32", part, sums[0])
                total = self.e(f"add i32 {sums[0]}, {self.load(source, 'i32', part)}")
                self.store(target, "i32", self.e(f"add i64 {part}, 1"), total)
                sums[0] = total

    def deal(self, rows: int, size: int, arg: RadixArg) -> None:
        parts = -(-size // arg.block)
        table = self.array(DIGITS, "i32")
        with self.units(rows * parts) as unit:
            row, part, source, count = self._part(unit, size, arg)
            starts = self.at("%p2", "i32", self.e(f"mul i64 {row}, {DIGITS * (parts + 1)}"))
            target = self.at("%p0", "i64", self.e(f"mul i64 {row}, {size}"))
            with self.loop("0", str(DIGITS), "0") as (digit, sums):
                line = self.at(starts, "i32", self.e(f"mul i64 {digit}, {parts + 1}"))
                mine = self.e(f"add i32 {sums[0]}, {self.load(line, 'i32', part)}")
                self.store(table, "i32", digit, mine)
                sums[0] = self.e(f"add i32 {sums[0]}, {self.load(line, 'i32', str(parts))}")
            self.move(source, target, count, table, arg.low, self.turned)
