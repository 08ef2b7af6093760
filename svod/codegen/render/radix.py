"""Sorts on NVIDIA GPUs: words go to their places digit by digit, the lowest first.

A digit is eight bits. A warp ranks its words 32 at a time: ballots say which lanes have the same
digit, and a table of the warp counts how often each digit came before. Sums over the tables of
all warps then say where each word goes; words move through shared memory, and those alike keep
their order. A row that fits one block is sorted so in one kernel. Longer rows take three kernels
for each digit: blocks count digits, the counts are added up, and blocks put words into place.
"""

from __future__ import annotations

from typing import Final

from svod.codegen.render.nvptx import GLOBAL, SHARED, NvptxRenderer
from svod.codegen.render.tile_parts import CountedLoop
from svod.ir.args import DIGIT_BITS, RadixArg, SortArg
from svod.schedule.sorts import SHARE

DIGITS: Final = 1 << DIGIT_BITS
WARP: Final = 32
MAX_ITEMS: Final = 16  # words of one thread
MAX_THREADS: Final = 512
assert SHARE <= MAX_ITEMS * MAX_THREADS
COUNTS: Final = 4  # of one thread, where counts are added up
_MEMORY = "@dynamic_shared"


def threads_for(size: int) -> int:
    """Threads of a block that holds so many words: at least one for each digit."""
    return DIGITS if size <= DIGITS * MAX_ITEMS else MAX_THREADS


class Radix:
    """What all these kernels share: places, shared memory, running sums of a block."""

    def __init__(self, r: NvptxRenderer, threads: int) -> None:
        self.r, self.e, self.threads = r, r._emit, threads
        self.warps = threads // WARP
        self.thread = r._register("tid.x")
        self.lane = self.e(f"and i32 {self.thread}, {WARP - 1}")
        self.warp = self.e(f"lshr i32 {self.thread}, 5")
        self.block = self.e(f"zext i32 {r._register('ctaid.x')} to i64")
        r.shared.append(f"{_MEMORY} = external addrspace(3) global [0 x i8], align 16")

    def array(self, nbytes: int) -> str:
        """The address of a new array in shared memory."""
        r = self.r
        start = r.dynamic_bytes
        r.dynamic_bytes += nbytes
        return self.e(f"getelementptr i8, {SHARED} {_MEMORY}, i32 {start}")

    def place(self, array: str, kind: str, index: str) -> str:
        return self.e(f"getelementptr {kind}, {SHARED} {array}, i32 {index}")

    def load(self, array: str, kind: str, index: str) -> str:
        align = int(kind[1:]) // 8
        return self.e(
            f"load {kind}, {SHARED} {self.place(array, kind, index)}, align {align}"
        )  # fmt: skip

    def store(self, array: str, kind: str, index: str, value: str) -> None:
        align = int(kind[1:]) // 8
        place = self.place(array, kind, index)
        self.r.lines.append(f"  store {kind} {value}, {SHARED} {place}, align {align}")

    def read(self, slot: int, kind: str, index: str) -> str:
        """An element of an argument."""
        place = self.e(f"getelementptr {kind}, {GLOBAL} %p{slot}, i64 {index}")
        return self.e(f"load {kind}, {GLOBAL} {place}, align {int(kind[1:]) // 8}")

    def write(self, kind: str, index: str, value: str) -> None:
        """An element of the result."""
        place = self.e(f"getelementptr {kind}, {GLOBAL} %p0, i64 {index}")
        self.r.lines.append(f"  store {kind} {value}, {GLOBAL} {place}, align {int(kind[1:]) // 8}")

    def wide(self, value: str) -> str:
        return self.e(f"zext i32 {value} to i64")

    def row_and_part(self, parts: int) -> tuple[str, str]:
        """Which row this block works on, and on which part of it."""
        row = self.e(f"udiv i64 {self.block}, {parts}")
        return row, self.e(f"urem i64 {self.block}, {parts}")

    def meet(self) -> None:
        """Wait for the other threads of the warp."""
        call = self.r._call("llvm.nvvm.bar.warp.sync", "void", [("i32", "-1")])
        self.r.lines.append(f"  {call}")

    def ones(self, bits: str) -> str:
        return self.e(self.r._call("llvm.ctpop.i32", "i32", [("i32", bits)]))

    def running(self, value: str, kind: str, scratch: str) -> tuple[str, str]:
        """The sum of the values of all threads before this one, and of all; ends in a barrier."""
        e = self.e
        mine = value
        for step in (1, 2, 4, 8, 16):
            other = self._from_below(mine, kind, step)
            reaches = e(f"icmp uge i32 {self.lane}, {step}")
            added = e(f"select i1 {reaches}, {kind} {other}, {kind} 0")
            mine = e(f"add {kind} {mine}, {added}")
        number = self.r._branch(e(f"icmp eq i32 {self.lane}, {WARP - 1}"))
        self.store(scratch, kind, self.warp, mine)
        self.r._join(number)
        self.r.barrier()
        before = e(f"sub {kind} {mine}, {value}")
        total = "0"
        for w in range(self.warps):
            one = self.load(scratch, kind, str(w))
            is_before = e(f"icmp ult i32 {w}, {self.warp}")
            added = e(f"select i1 {is_before}, {kind} {one}, {kind} 0")
            before = e(f"add {kind} {before}, {added}")
            total = e(f"add {kind} {total}, {one}")
        return before, total

    def _from_below(self, value: str, kind: str, step: int) -> str:
        """The value of the lane so many places down."""
        if kind == "i32":
            return self._moved(value, step)
        e = self.e
        low = e(f"trunc i64 {value} to i32")
        high = e(f"trunc i64 {e(f'lshr i64 {value}, 32')} to i32")
        high = e(f"shl i64 {self.wide(self._moved(high, step))}, 32")
        return e(f"or i64 {high}, {self.wide(self._moved(low, step))}")

    def _moved(self, word: str, step: int) -> str:
        numbers = [("i32", "-1"), ("i32", word), ("i32", str(step)), ("i32", "0")]
        return self.e(self.r._call("llvm.nvvm.shfl.sync.up.i32", "i32", numbers))


class Words(Radix):
    """A block that holds words in shared memory and orders them by digits."""

    def __init__(self, r: NvptxRenderer, threads: int, size: int) -> None:
        super().__init__(r, threads)
        self.items = -(-size // threads)
        self.words = self.array(8 * threads * self.items)
        self.tables = self.array(4 * self.warps * DIGITS)
        self.scratch = self.array(8 * self.warps)
        e = self.e
        own = e(f"mul i32 {self.warp}, {4 * DIGITS}")
        self.table = e(f"getelementptr i8, {SHARED} {self.tables}, i32 {own}")
        bit = e(f"shl i32 1, {self.lane}")
        self.below = e(f"sub i32 {bit}, 1")
        first = e(f"mul i32 {self.warp}, {WARP * self.items}")
        self.first = e(f"add i32 {first}, {self.lane}")

    def take(self, start: str, size: int | str) -> None:
        """Words of a row into shared memory, all ones where there are none; ends in a barrier."""
        e = self.e
        whole = size == self.threads * self.items
        for i in range(self.items):
            here = e(f"add i32 {self.thread}, {i * self.threads}")
            place = here
            if not whole:
                exists = e(f"icmp ult i32 {here}, {size}")
                place = e(f"select i1 {exists}, i32 {here}, i32 0")
            word = self.read(1, "i64", e(f"add i64 {start}, {self.wide(place)}"))
            if not whole:
                word = e(f"select i1 {exists}, i64 {word}, i64 -1")
            self.store(self.words, "i64", here, word)
        self.r.barrier()

    def digit(self, word: str, shift: str) -> str:
        moved = self.e(f"lshr i64 {word}, {shift}")
        return self.e(f"and i32 {self.e(f'trunc i64 {moved} to i32')}, {DIGITS - 1}")

    def order(self, shift: str) -> str:
        """Order the words by one digit; where that of this thread's number begins."""
        r, e = self.r, self.e
        for i in range(DIGITS // WARP):
            self.store(self.table, "i32", e(f"add i32 {self.lane}, {i * WARP}"), "0")
        self.meet()
        words, digits, ranks = [], [], []
        for i in range(self.items):
            words.append(self.load(self.words, "i64", e(f"add i32 {self.first}, {i * WARP}")))
            digits.append(self.digit(words[i], shift))
            ranks.append(self._rank(digits[i]))
        r.barrier()
        start = self._sums()
        r.barrier()
        for word, digit, rank in zip(words, digits, ranks, strict=True):
            place = e(f"add i32 {self.load(self.table, 'i32', digit)}, {rank}")
            self.store(self.words, "i64", place, word)
        r.barrier()
        return start

    def _rank(self, digit: str) -> str:
        """How many words of the warp with the same digit are before this thread's."""
        e = self.e
        alike = "-1"
        for bit in range(DIGIT_BITS):
            top = e(f"shl i32 {digit}, {31 - bit}")
            is_set = e(f"icmp slt i32 {top}, 0")
            ballot = self.r._call(
                "llvm.nvvm.vote.ballot.sync", "i32", [("i32", "-1"), ("i1", is_set)]
            )
            differs = e(f"xor i32 {e(ballot)}, {e(f'ashr i32 {top}, 31')}")
            alike = e(f"and i32 {alike}, {e(f'xor i32 {differs}, -1')}")
        before = self.load(self.table, "i32", digit)
        self.meet()
        self.store(self.table, "i32", digit, e(f"add i32 {before}, {self.ones(alike)}"))
        self.meet()
        return e(f"add i32 {before}, {self.ones(e(f'and i32 {alike}, {self.below}'))}")

    def _sums(self) -> str:
        """Counts in the tables become places: of all smaller digits, then of earlier warps."""
        r, e = self.r, self.e
        number = self.thread
        if self.threads > DIGITS:  # threads beyond compute the same as others and keep it
            number = e(f"and i32 {self.thread}, {DIGITS - 1}")
        counts, total = [], "0"
        for w in range(self.warps):
            counts.append(self.load(self.tables, "i32", e(f"add i32 {number}, {w * DIGITS}")))
            total = e(f"add i32 {total}, {counts[w]}")
        start, _ = self.running(total, "i32", self.scratch)
        branch = 0
        if self.threads > DIGITS:
            branch = r._branch(e(f"icmp ult i32 {self.thread}, {DIGITS}"))
        place = start
        for w in range(self.warps):
            self.store(self.tables, "i32", e(f"add i32 {number}, {w * DIGITS}"), place)
            place = e(f"add i32 {place}, {counts[w]}")
        if branch:
            r._join(branch)
        return start


def sort_rows(r: NvptxRenderer, size: int, arg: SortArg) -> int:
    """Each block sorts a row; returns the threads of a block."""
    block = Words(r, threads_for(size), size)
    e = block.e
    block.take(e(f"mul i64 {block.block}, {size}"), size)
    steps = -(-(arg.high - arg.low) // DIGIT_BITS)
    loop = CountedLoop(r, steps, [])
    shift = e(f"add i32 {e(f'mul i32 {loop.counter}, {DIGIT_BITS}')}, {arg.low}")
    block.order(block.wide(shift))
    loop.end([])
    start = e(f"mul i64 {block.block}, {arg.kept}")
    for i in range(-(-arg.kept // block.threads)):
        here = e(f"add i32 {block.thread}, {i * block.threads}")
        branch = 0
        if (i + 1) * block.threads > arg.kept:
            branch = r._branch(e(f"icmp ult i32 {here}, {arg.kept}"))
        word = block.load(block.words, "i64", here)
        block.write("i64", e(f"add i64 {start}, {block.wide(here)}"), word)
        if branch:
            r._join(branch)
    return block.threads


def count_digits(r: NvptxRenderer, size: int, arg: RadixArg) -> int:
    """Each block counts the digits of its part of a row."""
    block = Radix(r, DIGITS)
    e = block.e
    table = block.array(4 * (DIGITS + 1))  # the last for words past the end
    block.store(table, "i32", block.thread, "0")
    r.barrier()
    parts = -(-size // arg.block)
    row, part = block.row_and_part(parts)
    first = e(f"mul i64 {part}, {arg.block}")
    start = e(f"add i64 {e(f'mul i64 {row}, {size}')}, {first}")
    left = e(f"trunc i64 {e(f'sub i64 {size}, {first}')} to i32")
    for i in range(arg.block // DIGITS):
        here = e(f"add i32 {block.thread}, {i * DIGITS}")
        exists = e(f"icmp ult i32 {here}, {left}") if size % arg.block else "true"
        place = e(f"select i1 {exists}, i32 {here}, i32 0")
        word = block.read(1, "i64", e(f"add i64 {start}, {block.wide(place)}"))
        moved = e(f"trunc i64 {e(f'lshr i64 {word}, {arg.low}')} to i32")
        digit = e(f"and i32 {moved}, {DIGITS - 1}")
        digit = e(f"select i1 {exists}, i32 {digit}, i32 {DIGITS}")
        target = block.place(table, "i32", digit)
        e(f"atomicrmw add {SHARED} {target}, i32 1 monotonic, align 4")
    r.barrier()
    found = block.load(table, "i32", block.thread)
    line = e(f"add i64 {e(f'mul i64 {row}, {DIGITS}')}, {block.wide(block.thread)}")
    block.write("i32", e(f"add i64 {e(f'mul i64 {line}, {parts}')}, {part}"), found)
    return block.threads


def add_counts(r: NvptxRenderer, parts: int) -> int:
    """Each block adds up the counts of one digit of a row."""
    block = Radix(r, DIGITS)
    e = block.e
    scratch = block.array(8 * block.warps)
    items = min(COUNTS, -(-parts // DIGITS))
    start = e(f"mul i64 {block.block}, {parts}")
    goal = e(f"mul i64 {block.block}, {parts + 1}")
    own = e(f"mul i32 {block.thread}, {items}")
    loop = CountedLoop(r, -(-parts // (items * DIGITS)), ["0"], ["i32"])
    first = e(f"add i32 {e(f'mul i32 {loop.counter}, {items * DIGITS}')}, {own}")
    places, tests, counts, total = [], [], [], "0"
    for i in range(items):
        here = e(f"add i32 {first}, {i}")
        tests.append(e(f"icmp ult i32 {here}, {parts}"))
        places.append(e(f"select i1 {tests[i]}, i32 {here}, i32 0"))
        count = block.read(1, "i32", e(f"add i64 {start}, {block.wide(places[i])}"))
        counts.append(e(f"select i1 {tests[i]}, i32 {count}, i32 0"))
        total = e(f"add i32 {total}, {counts[i]}")
    before, sum_of_all = block.running(total, "i32", scratch)
    before = e(f"add i32 {before}, {loop.values[0]}")
    for i in range(items):
        branch = r._branch(tests[i])
        block.write("i32", e(f"add i64 {goal}, {block.wide(places[i])}"), before)
        r._join(branch)
        before = e(f"add i32 {before}, {counts[i]}")
    following = e(f"add i32 {loop.values[0]}, {sum_of_all}")
    r.barrier()
    loop.end([following])
    branch = r._branch(e(f"icmp eq i32 {block.thread}, 0"))
    block.write("i32", e(f"add i64 {goal}, {parts}"), following)
    r._join(branch)
    return block.threads


def deal_words(r: NvptxRenderer, size: int, arg: RadixArg) -> int:
    """Each block puts the words of its part of a row into place, and turns them by a digit."""
    block = Words(r, threads_for(arg.block), arg.block)
    e = block.e
    moves = block.array(4 * DIGITS)
    parts = -(-size // arg.block)
    row, part = block.row_and_part(parts)
    first = e(f"mul i64 {part}, {arg.block}")
    line = e(f"mul i64 {row}, {size}")
    left: int | str = arg.block
    if size % arg.block:
        left = e(f"trunc i64 {e(f'sub i64 {size}, {first}')} to i32")
    block.take(e(f"add i64 {line}, {first}"), left)
    here = block.order(str(arg.low))
    # From a place in the block to one in the row, for the digit of this thread's number.
    number = e(f"and i32 {block.thread}, {DIGITS - 1}")
    counts = e(f"add i64 {e(f'mul i64 {row}, {DIGITS}')}, {block.wide(number)}")
    counts = e(f"mul i64 {counts}, {parts + 1}")
    mine = block.read(2, "i32", e(f"add i64 {counts}, {part}"))
    every = block.read(2, "i32", e(f"add i64 {counts}, {parts}"))
    smaller, _ = block.running(every, "i32", block.scratch)
    goal = e(f"add i32 {smaller}, {mine}")
    branch = 0
    if block.threads > DIGITS:
        branch = r._branch(e(f"icmp ult i32 {block.thread}, {DIGITS}"))
    block.store(moves, "i32", number, e(f"sub i32 {goal}, {here}"))
    if branch:
        r._join(branch)
    r.barrier()
    for i in range(block.items):
        here = e(f"add i32 {block.thread}, {i * block.threads}")
        branch = 0
        if isinstance(left, str):
            branch = r._branch(e(f"icmp ult i32 {here}, {left}"))
        word = block.load(block.words, "i64", here)
        digit = block.digit(word, str(arg.low))
        place = e(f"add i32 {block.load(moves, 'i32', digit)}, {here}")
        high = e(f"shl i64 {word}, {64 - DIGIT_BITS}")
        turned = e(f"or i64 {e(f'lshr i64 {word}, {DIGIT_BITS}')}, {high}")
        block.write("i64", e(f"add i64 {line}, {block.wide(place)}"), turned)
        if branch:
            r._join(branch)
    return block.threads
