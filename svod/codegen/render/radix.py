"""Sorts on NVIDIA GPUs: words go to their places digit by digit, the lowest first.

A digit is eight bits. A warp ranks its words 32 at a time: ballots say which lanes have the same
digit, and a table of the warp counts how often each digit came before. Sums over the tables of
all warps then say where each word goes; words move through shared memory, and those alike keep
their order. A row that fits one block is sorted so in one kernel; where few words are kept, those
whose highest bits are too large are left out first. Longer rows take three kernels for each digit:
blocks count digits, the counts are added up, and blocks put words into place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from svod.codegen.render.nvptx import NvptxRenderer
from svod.codegen.render.nvptx_memory import GLOBAL, SHARED
from svod.codegen.render.tile_parts import CountedLoop
from svod.ir.args import DIGIT_BITS, RadixArg, SortArg
from svod.schedule.sorts import BY_BLOCKS, FEWER

DIGITS: Final = 1 << DIGIT_BITS
WARP: Final = 32
MAX_ITEMS: Final = 16  # words of one thread
MAX_THREADS: Final = 512
assert BY_BLOCKS.share <= MAX_ITEMS * MAX_THREADS
SELECTED: Final = 2  # digits that select words, where few are kept
CHOSEN: Final = 16  # bytes of what a selection found
COUNTS: Final = 4  # of one thread, where counts are added up
_MEMORY = "@dynamic_shared"


def threads_for(size: int) -> int:
    """Threads of a block that holds so many words: at least one for each digit."""
    return DIGITS if size <= DIGITS * MAX_ITEMS else MAX_THREADS


def shared_bytes(size: int) -> int:
    """Of a block that sorts so many words."""
    threads = threads_for(size)
    tables = 4 * (threads // WARP) * (DIGITS + 1)
    return 8 * threads * -(-size // threads) + tables + CHOSEN


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

    def ballot(self, test: str) -> str:
        """A bit for each lane of the warp."""
        numbers = [("i32", "-1"), ("i1", test)]
        return self.e(self.r._call("llvm.nvvm.vote.ballot.sync", "i32", numbers))

    @contextmanager
    def where(self, test: str) -> Iterator[None]:
        """What all threads of the block do, or none."""
        r = self.r
        r.blocks += 1
        number = r.blocks
        r.lines.append(f"  br i1 {test}, label %all{number}, label %past{number}")
        r.lines.append(f"all{number}:")
        r.block = f"all{number}"
        yield
        r.lines.append(f"  br label %past{number}")
        r.lines.append(f"past{number}:")
        r.block = f"past{number}"

    def running(self, value: str, scratch: str) -> tuple[str, str]:
        """The sum of the values of all threads before this one, and of all; has a barrier."""
        e = self.e
        mine = value
        for step in (1, 2, 4, 8, 16):
            numbers = [("i32", "-1"), ("i32", mine), ("i32", str(step)), ("i32", "0")]
            other = e(self.r._call("llvm.nvvm.shfl.sync.up.i32", "i32", numbers))
            reaches = e(f"icmp uge i32 {self.lane}, {step}")
            mine = e(f"add i32 {mine}, {e(f'select i1 {reaches}, i32 {other}, i32 0')}")
        number = self.r._branch(e(f"icmp eq i32 {self.lane}, {WARP - 1}"))
        self.store(scratch, "i32", self.warp, mine)
        self.r._join(number)
        self.r.barrier()
        before = e(f"sub i32 {mine}, {value}")
        total = "0"
        for w in range(self.warps):
            one = self.load(scratch, "i32", str(w))
            is_before = e(f"icmp ult i32 {w}, {self.warp}")
            before = e(f"add i32 {before}, {e(f'select i1 {is_before}, i32 {one}, i32 0')}")
            total = e(f"add i32 {total}, {one}")
        return before, total

    def from_first(self, word: str) -> str:
        """The value of the first lane."""
        numbers = [("i32", "-1"), ("i32", word), ("i32", "0"), ("i32", "31")]
        return self.e(self.r._call("llvm.nvvm.shfl.sync.idx.i32", "i32", numbers))


class Words(Radix):
    """A block that holds words in shared memory and orders them by digits."""

    def __init__(self, r: NvptxRenderer, threads: int, size: int) -> None:
        super().__init__(r, threads)
        self.items = -(-size // threads)
        self.words = self.array(8 * threads * self.items)
        self.tables = self.array(4 * self.warps * DIGITS)
        self.scratch = self.array(4 * self.warps)
        e = self.e
        own = e(f"mul i32 {self.warp}, {4 * DIGITS}")
        self.table = e(f"getelementptr i8, {SHARED} {self.tables}, i32 {own}")
        bit = e(f"shl i32 1, {self.lane}")
        self.below = e(f"sub i32 {bit}, 1")
        self.hold(self.items)

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
            differs = e(f"xor i32 {self.ballot(is_set)}, {e(f'ashr i32 {top}, 31')}")
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
        start, _ = self.running(total, self.scratch)
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

    def select(self, arg: SortArg) -> str:
        """Leave out words whose highest bits are too large, if at most one for each thread is
        left; whether that is so. The words are in shared memory, before and after."""
        e = self.e
        places = [e(f"add i32 {self.first}, {i * WARP}") for i in range(self.items)]
        words = [self.load(self.words, "i64", place) for place in places]
        chosen = self.array(CHOSEN)
        tops: list[str] = []
        limit, below, left = "0", "0", "0"
        lows = [arg.high - DIGIT_BITS * (level + 1) for level in range(SELECTED)]
        for level, low in enumerate([low for low in lows if low >= arg.low]):
            tops = [e(f"trunc i64 {e(f'lshr i64 {word}, {low}')} to i32") for word in words]
            most = (1 << (DIGIT_BITS * (level + 1))) - 1  # as words past the end have
            tops = [e(f"and i32 {top}, {most}") for top in tops]
            self._count(tops, limit if level else None)
            limit, below, left = self._limit(limit, below, arg.kept, chosen)
        are_few = e(f"icmp ule i32 {left}, {self.threads}")
        with self.where(are_few):
            self._keep(words, tops, limit, left)
        return are_few

    def _count(self, tops: list[str], limit: str | None) -> None:
        """Count the last digits of numbers, of those that begin as the limit does."""
        r, e = self.r, self.e
        self.store(self.tables, "i32", self.thread, "0")
        r.barrier()
        for top in tops:
            digit = e(f"and i32 {top}, {DIGITS - 1}")
            if limit is not None:  # others count where nobody looks
                is_alike = e(f"icmp eq i32 {e(f'lshr i32 {top}, {DIGIT_BITS}')}, {limit}")
                digit = e(f"select i1 {is_alike}, i32 {digit}, i32 {DIGITS}")
            target = self.place(self.tables, "i32", digit)
            e(f"atomicrmw add {SHARED} {target}, i32 1 monotonic, align 4")
        r.barrier()

    def _limit(self, limit: str, below: str, kept: int, chosen: str) -> tuple[str, str, str]:
        """The limit with one digit more, how many words are below it, and up to it."""
        r, e = self.r, self.e
        number = e(f"and i32 {self.thread}, {DIGITS - 1}")
        count = self.load(self.tables, "i32", number)
        before = e(f"add i32 {self.running(count, self.scratch)[0]}, {below}")
        upto = e(f"add i32 {before}, {count}")
        is_enough = e(f"icmp uge i32 {upto}, {kept}")
        is_last = e(f"and i1 {is_enough}, {e(f'icmp ult i32 {before}, {kept}')}")
        is_digit = e(f"icmp ult i32 {self.thread}, {DIGITS}")
        branch = r._branch(e(f"and i1 {is_last}, {is_digit}"))
        for place, value in enumerate((number, before, upto)):
            self.store(chosen, "i32", str(place), value)
        r._join(branch)
        r.barrier()
        digit, before, upto = (self.load(chosen, "i32", str(place)) for place in range(3))
        return e(f"or i32 {e(f'shl i32 {limit}, {DIGIT_BITS}')}, {digit}"), before, upto

    def _keep(self, words: list[str], tops: list[str], limit: str, left: str) -> None:
        """The words up to the limit, one after another, then all ones."""
        r, e = self.r, self.e
        tests, places, total = [], [], "0"
        for top in tops:
            tests.append(e(f"icmp ule i32 {top}, {limit}"))
            votes = self.ballot(tests[-1])
            below = self.ones(e(f"and i32 {votes}, {self.below}"))
            places.append(e(f"add i32 {total}, {below}"))
            total = e(f"add i32 {total}, {self.ones(votes)}")
        is_first = e(f"icmp eq i32 {self.lane}, 0")
        mine = e(f"select i1 {is_first}, i32 {total}, i32 0")
        before, _ = self.running(mine, self.scratch)  # of other warps, for the first lane
        start = self.from_first(before)
        for word, test, place in zip(words, tests, places, strict=True):
            branch = r._branch(test)
            self.store(self.words, "i64", e(f"add i32 {start}, {place}"), word)
            r._join(branch)
        branch = r._branch(e(f"icmp uge i32 {self.thread}, {left}"))
        self.store(self.words, "i64", self.thread, "-1")
        r._join(branch)
        r.barrier()

    def hold(self, items: int) -> None:
        """Have so many words for each thread from here on."""
        self.items = items
        first = self.e(f"mul i32 {self.warp}, {WARP * items}")
        self.first = self.e(f"add i32 {first}, {self.lane}")

    def order_all(self, arg: SortArg) -> None:
        """Order the words by all digits."""
        loop = CountedLoop(self.r, -(-(arg.high - arg.low) // DIGIT_BITS), [])
        step = self.e(f"mul i32 {loop.counter}, {DIGIT_BITS}")
        self.order(self.wide(self.e(f"add i32 {step}, {arg.low}")))
        loop.end([])


def sort_rows(r: NvptxRenderer, size: int, arg: SortArg) -> None:
    """Each block sorts a row."""
    block = Words(r, threads_for(size), size)
    e = block.e
    block.take(e(f"mul i64 {block.block}, {size}"), size)
    are_kept = arg.kept * FEWER <= size and arg.kept < block.threads < size
    if are_kept and arg.high - arg.low >= DIGIT_BITS:
        are_few = block.select(arg)
        with block.where(e(f"xor i1 {are_few}, true")):
            block.order_all(arg)
        with block.where(are_few):
            block.hold(1)
            block.order_all(arg)
    else:
        block.order_all(arg)
    start = e(f"mul i64 {block.block}, {arg.kept}")
    for i in range(-(-arg.kept // block.threads)):
        here = e(f"add i32 {block.thread}, {i * block.threads}")
        branch = 0
        if (i + 1) * block.threads > arg.kept:
            branch = r._branch(e(f"icmp ult i32 {here}, {arg.kept}"))
        word = block.load(block.words, "i64", here)
        if arg.shown < 64:
            word = e(f"and i64 {word}, {(1 << arg.shown) - 1}")
        block.write("i64", e(f"add i64 {start}, {block.wide(here)}"), word)
        if branch:
            r._join(branch)


def count_digits(r: NvptxRenderer, size: int, arg: RadixArg) -> None:
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


def add_counts(r: NvptxRenderer, parts: int) -> None:
    """Each block adds up the counts of one digit of a row."""
    block = Radix(r, DIGITS)
    e = block.e
    scratch = block.array(4 * block.warps)
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
    before, sum_of_all = block.running(total, scratch)
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


def deal_words(r: NvptxRenderer, size: int, arg: RadixArg) -> None:
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
    smaller, _ = block.running(every, block.scratch)
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
