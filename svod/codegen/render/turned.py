"""Panels of 8- and 32-bit elements whose memory runs across the summed axis.

Tensor cores read such elements along it only, so they are turned on their way. A thread reads four
neighbours from as many steps of k as sixteen bytes hold, exchanges rows and columns in registers,
and stores four parts of the layout a plain panel has. What a warp reads together is whole
sectors; what eight threads store together lies in eight different groups of banks: for 32-bit
elements since they have four parts of two rows, for bytes since they store their rows in an order
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from svod.codegen.render.panels import GLOBAL, LINE, PART, SHARED, Panel, place_of

FOUR: Final = 4  # neighbours of one thread
PARTS: Final = LINE // PART
# Bytes of a pair of words: those of both by turns, the lower two or the upper two; and halves.
_LOWER, _UPPER = 0x5140, 0x7362
_FIRST, _SECOND = 0x5410, 0x7632


@dataclass(slots=True)
class TurnedPanel(Panel):
    """One operand in shared memory along k, from memory that runs along its rows or columns."""

    four: str = ""  # first of this thread's neighbours
    first: str = ""  # first of its steps of k
    origin: str = ""  # elements before them
    selectors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.along_depth = True

    @property
    def steps(self) -> int:
        """Of k in one part."""
        return PART // self.item

    @property
    def groups(self) -> int:
        return self.outer // FOUR

    @property
    def units(self) -> int:
        """Parts of one thread. In small panels two threads have the same one."""
        return max(1, PARTS * self.groups // self.threads)

    @property
    def words(self) -> int:
        return self.units * FOUR * FOUR

    def prepare(self, start: str = "0") -> None:
        e = self.r._emit
        if self.item == 1:
            group = e(f"urem i32 {self.thread}, {self.groups}")
            part = e(f"udiv i32 {self.thread}, {self.groups}")
            turn = e(f"and i32 {e(f'lshr i32 {group}, 1')}, 3")
        else:
            low, rest = e(f"and i32 {self.thread}, 3"), e(f"lshr i32 {self.thread}, 2")
            group = e(f"urem i32 {rest}, {self.groups}")
            high = e(f"shl i32 {e(f'udiv i32 {rest}, {self.groups}')}, 2")
            part, turn = e(f"add i32 {high}, {low}"), "0"
        part = e(f"and i32 {part}, {PARTS - 1}")
        self.four = e(f"shl i32 {group}, 2")
        self.first = e(f"mul i32 {part}, {self.steps}")
        row = e(f"add i32 {self.four}, {turn}")
        inside = e(f"xor i32 {part}, {e(f'and i32 {row}, 7')}")
        self.place = e(f"add i32 {e(f'mul i32 {row}, {LINE}')}, {e(f'shl i32 {inside}, 4')}")
        outer = e(f"add i64 {start}, {e(f'zext i32 {self.four} to i64')}")
        deep = e(f"mul i64 {e(f'zext i32 {self.first} to i64')}, {self.depth_axes[-1][1]}")
        total = e(f"add i64 {self.base}, {place_of(self.r, outer, self.outer_axes)}")
        self.origin = e(f"add i64 {total}, {deep}")
        if self.item == 1:
            self.selectors = self._selectors(turn)

    def _selectors(self, turn: str) -> list[str]:
        """Of the two stages of a turn: row number i comes out where i ^ turn is asked for."""
        e = self.r._emit
        found = []
        for bit, (one, other) in ((2, (_LOWER, _UPPER)), (1, (_FIRST, _SECOND))):
            test = e(f"icmp eq i32 {e(f'and i32 {turn}, {bit}')}, 0")
            found.append(e(f"select i1 {test}, i32 {one}, i32 {other}"))
            found.append(e(f"select i1 {test}, i32 {other}, i32 {one}"))
        return found

    # -- from memory into registers ------------------------------------------------------------

    def fetch(self, unit: int, shift: str, rows: str | None, depth: str | None) -> list[str]:
        """Sixteen words of one unit; ``shift`` elements to this panel, then how many rows and
        steps of k exist from here on, as i32; None where all do."""
        e = self.r._emit
        total = e(f"add i64 {self.origin}, {shift}")
        start = e(f"getelementptr {self._kind}, {GLOBAL} {self.memory}, i64 {total}")
        apart = unit * (self.threads // self.groups) * self.steps
        stride = self.depth_axes[-1][1]
        in_rows = [self._below(self.four, i, rows) for i in range(1 if self.wide else FOUR)]
        found: list[str] = []
        for step in range(self.steps):
            offset = (apart + step) * stride
            deep = self._below(self.first, apart + step, depth)
            if self.wide:
                found += self._read_four(start, offset, self._both(deep, in_rows[0]))
                continue
            parts = [
                self._read_one(start, offset + i, self._both(deep, test))
                for i, test in enumerate(in_rows)
            ]
            found += parts if self.item == FOUR else [self._joined(parts)]
        return found

    def _below(self, value: str, extra: int, limit: str | None) -> str | None:
        if limit is None:
            return None
        e = self.r._emit
        return e(f"icmp slt i32 {e(f'add i32 {value}, {extra}')}, {limit}")

    def _both(self, one: str | None, other: str | None) -> str | None:
        if one is None or other is None:
            return one or other
        return self.r._emit(f"and i1 {one}, {other}")

    def _read(self, kind: str, start: str, offset: int, align: int, test: str | None) -> str:
        """Neighbours in memory; zeros where they do not exist."""
        e = self.r._emit
        here = e(f"getelementptr {self._kind}, {GLOBAL} {start}, i64 {offset}")
        if test is not None:
            here = e(f"select i1 {test}, {GLOBAL} {here}, {GLOBAL} {self.memory}")
        read = e(f"load {kind}, {GLOBAL} {here}, align {align}, !invariant.load !0")
        if test is None:
            return read
        zero = "zeroinitializer" if kind.startswith("<") else "0"
        return e(f"select i1 {test}, {kind} {read}, {kind} {zero}")

    def _read_four(self, start: str, offset: int, test: str | None) -> list[str]:
        if self.item == 1:
            return [self._read("i32", start, offset, FOUR, test)]
        vector = self._read("<4 x i32>", start, offset, PART, test)
        return [self.r._emit(f"extractelement <4 x i32> {vector}, i64 {i}") for i in range(FOUR)]

    def _read_one(self, start: str, offset: int, test: str | None) -> str:
        return self._read(self._kind, start, offset, self.item, test)

    def _joined(self, parts: list[str]) -> str:
        """Four bytes as one word, the first lowest."""
        e = self.r._emit
        word = "0"
        for i, part in enumerate(parts):
            wide = e(f"zext i8 {part} to i32")
            word = e(f"or i32 {word}, {e(f'shl i32 {wide}, {8 * i}')}")
        return word

    # -- from registers into shared memory -----------------------------------------------------

    def put(self, unit: int, words: list[str], target: str) -> None:
        """Sixteen words of one unit, turned, into the panel at a shared address."""
        e = self.r._emit
        rows = self._turned_bytes(words) if self.item == 1 else [words[i::FOUR] for i in range(4)]
        apart = unit * (self.threads // self.groups) * PART
        for i, row in enumerate(rows):
            place = e(f"xor i32 {self.place}, {(i * (LINE + PART)) ^ apart}")
            there = e(f"inttoptr i32 {e(f'add i32 {target}, {place}')} to {SHARED}")
            vector = "poison"
            for lane, word in enumerate(row):
                vector = e(f"insertelement <4 x i32> {vector}, i32 {word}, i64 {lane}")
            self.r.lines.append(f"  store <4 x i32> {vector}, {SHARED} {there}, align {PART}")

    def _turned_bytes(self, words: list[str]) -> list[list[str]]:
        """Four rows of sixteen bytes from sixteen of four."""
        lower, upper, first, second = self.selectors
        rows: list[list[str]] = [[] for _ in range(FOUR)]
        for i in range(0, len(words), FOUR):
            a, b, c, d = words[i : i + FOUR]
            for half, stage in enumerate((lower, upper)):
                one, other = self._bytes(a, b, stage), self._bytes(c, d, stage)
                rows[2 * half].append(self._bytes(one, other, first))
                rows[2 * half + 1].append(self._bytes(one, other, second))
        return rows

    def _bytes(self, a: str, b: str, selector: str) -> str:
        values = [("i32", a), ("i32", b), ("i32", selector)]
        return self.r._emit(self.r._call("llvm.nvvm.prmt", "i32", values))
