"""A loop whose steps a warp makes at once, but for those that meet in memory, which take turns.

Each thread has a step of its own and asks which of the others have the same place. Those before it
go first, so every place sees its steps in order. Where the last write is all that counts, only the
last thread of a place writes. A few rounds of 32 steps are looked at together: their places are on
the way from memory while others are written, and so are their values. A row that fits is kept in
shared memory meanwhile: more of them at work than fit the cache would be fetched again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from svod.codegen.linearize import Loop
from svod.codegen.render.llvm_types import memory_type
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

GLOBAL, SHARED = "ptr addrspace(1)", "ptr addrspace(3)"
ROUNDS = 4  # of 32 steps each
LARGE_ROW = 1024
COPIED = 8  # elements of a row that a thread copies at once
MOST_BITS = 24  # of a place, which are asked for one by one; `match` takes as long as for 32


class _Round(NamedTuple):
    """One step of each thread of a warp."""

    names: dict[UOp, str]
    pointers: dict[tuple[str, UOp], str]
    is_mine: str  # whether the thread has a step
    key: str  # its place, another one for each thread without


def emit_turns(renderer: NvptxRenderer, loop: Loop, turn: UOp) -> None:
    """The loop, with the BARRIER that gates its store."""
    r, e, lines = loop.range, renderer._emit, renderer.lines
    assert r is not None
    start, limit = "0", renderer._value(r.src[0])
    if len(turn.src) > 3:  # the steps between two of all
        start, stop = (renderer._value(s) for s in turn.src[3:])
        limit = e(f"select i1 {e(f'icmp slt i64 {stop}, {limit}')}, i64 {stop}, i64 {limit}")
    lane = e(f"and i32 {renderer._register('tid.x')}, 31")
    row = _Row(renderer, loop, turn, lane) if turn.arg.size else None
    if row is not None:
        row.copy(GLOBAL, SHARED)
    wide = e(f"zext i32 {lane} to i64")
    renderer.blocks += 1
    number, entry = renderer.blocks, renderer.block
    lines += [f"  br label %turns{number}", f"turns{number}:"]
    renderer.block = f"turns{number}"
    base, slot = renderer._fresh(), len(lines)
    lines.append("")
    names, pointers = renderer.names, renderer.pointers
    early = _early(loop, turn)
    rounds = []
    count = ROUNDS if turn.arg.size < LARGE_ROW else 2 * ROUNDS  # fewer warps have room
    for i in range(count):
        renderer.names, renderer.pointers = dict(names), dict(pointers)
        step = e(f"add i64 {e(f'add i64 {base}, {32 * i}')}, {wide}")
        rounds.append(_look(renderer, r, turn, early, step, limit, lane))
    for i, found in enumerate(rounds):
        renderer.names, renderer.pointers = found.names, found.pointers
        _take(renderer, loop, turn, found, row, lane, f"{number}_{i}")
    renderer.names, renderer.pointers = names, pointers
    following = e(f"add nuw nsw i64 {base}, {32 * count}")
    again = e(f"icmp slt i64 {following}, {limit}")
    lines[slot] = f"  {base} = phi i64 [ {start}, %{entry} ], [ {following}, %{renderer.block} ]"
    lines.append(f"  br i1 {again}, label %turns{number}, label %turned{number}")
    lines.append(f"turned{number}:")
    renderer.block = f"turned{number}"
    if row is not None:
        row.copy(SHARED, GLOBAL)


class _Row:
    """What a warp writes to, kept in shared memory meanwhile."""

    def __init__(self, renderer: NvptxRenderer, loop: Loop, turn: UOp, lane: str) -> None:
        self.renderer, self.lane, self.turn = renderer, lane, turn
        self.store, self.loads = _accesses(loop)
        e = renderer._emit
        dtype = self.store.src[1].dtype
        self.kind, self.size = memory_type(dtype), turn.arg.size
        array = renderer.shared_array(self.size * turn.arg.warps, self.kind, 16)
        warp = e(f"lshr i32 {renderer._register('tid.x')}, 5")
        first = e(f"mul i32 {warp}, {self.size}")
        memory = renderer._memory(self.store.src[0].src[0])
        start = renderer._value(turn.src[2])
        self.base = {
            SHARED: e(f"getelementptr {self.kind}, {SHARED} {array}, i32 {first}"),
            GLOBAL: e(f"getelementptr {self.kind}, {GLOBAL} {memory}, i64 {start}"),
        }

    def copy(self, source: str, target: str) -> None:
        """All of it, from one memory to another, when all threads are done with it."""
        renderer, e = self.renderer, self.renderer._emit
        renderer.lines.append("  " + _sync(renderer))
        renderer.blocks += 1
        number, entry = renderer.blocks, renderer.block
        renderer.lines += [f"  br label %row{number}", f"row{number}:"]
        renderer.block = f"row{number}"
        first, slot = renderer._fresh(), len(renderer.lines)
        renderer.lines.append("")
        places = []
        for i in range(COPIED):
            place = e(f"add i32 {e(f'add i32 {first}, {32 * i}')}, {self.lane}")
            is_past = e(f"icmp uge i32 {place}, {self.size}")
            places.append(e(f"select i1 {is_past}, i32 {self.size - 1}, i32 {place}"))
        values = [e(f"load {self.kind}, {source} {self._at(source, p)}") for p in places]
        for place, value in zip(places, values, strict=True):
            renderer.lines.append(
                f"  store {self.kind} {value}, {target} {self._at(target, place)}"
            )
        following = e(f"add i32 {first}, {32 * COPIED}")
        more = e(f"icmp ult i32 {following}, {self.size}")
        back = f"[ {following}, %{renderer.block} ]"
        renderer.lines[slot] = f"  {first} = phi i32 [ 0, %{entry} ], {back}"
        renderer.lines.append(f"  br i1 {more}, label %row{number}, label %rowed{number}")
        renderer.lines.append(f"rowed{number}:")
        renderer.block = f"rowed{number}"
        renderer.lines.append("  " + _sync(renderer))

    def read(self) -> None:
        """What the step of a thread reads of it."""
        renderer, e = self.renderer, self.renderer._emit
        place = e(f"trunc i64 {renderer._value(self.turn.src[0])} to i32")
        where = self._at(SHARED, place)
        for load in self.loads:
            value = e(f"load {self.kind}, {SHARED} {where}")
            if load.dtype is dt.bool_:
                value = e(f"icmp ne {self.kind} {value}, 0")
            renderer.names[load] = value
        renderer.shared_stores[self.store] = lambda _, value: renderer.lines.append(
            f"  store {self.kind} {value}, {SHARED} {where}"
        )

    def _at(self, space: str, place: str) -> str:
        base = self.base[space]
        return self.renderer._emit(f"getelementptr {self.kind}, {space} {base}, i32 {place}")


def _accesses(loop: Loop) -> tuple[UOp, list[UOp]]:
    """The store of a loop, and what reads the same memory."""
    nodes = [n for n in loop.items if not isinstance(n, Loop)]
    (store,) = [n for n in nodes if n.op == O.STORE]
    memory = store.src[0].src[0]
    return store, [n for n in nodes if n.op == O.LOAD and n.src[0].src[0] is memory]


def _early(loop: Loop, turn: UOp) -> list[UOp]:
    """What a step needs that other steps do not change."""
    store, loads = _accesses(loop)
    late = {turn, store, *loads}
    nodes = [n for n in loop.items if not isinstance(n, Loop)]
    for node in nodes:
        if not late.isdisjoint(node.src):
            late.add(node)
    return [n for n in nodes if n not in late]


def _look(
    renderer: NvptxRenderer,
    r: UOp,
    turn: UOp,
    early: list[UOp],
    step: str,
    limit: str,
    lane: str,
) -> _Round:
    e = renderer._emit
    exists = e(f"icmp slt i64 {step}, {limit}")
    renderer.names[r] = e(f"select i1 {exists}, i64 {step}, i64 0")
    for node in early:
        renderer._node(node)
    is_mine = e(f"and i1 {exists}, {renderer._value(turn.src[1])}")
    place = renderer._value(turn.src[0])
    own = e(f"sext i32 {e(f'sub i32 -1, {lane}')} to i64")
    key = e(f"select i1 {is_mine}, i64 {place}, i64 {own}")
    return _Round(renderer.names, renderer.pointers, is_mine, key)


def _take(
    renderer: NvptxRenderer,
    loop: Loop,
    turn: UOp,
    found: _Round,
    row: _Row | None,
    lane: str,
    number: str,
) -> None:
    e, call, lines = renderer._emit, renderer._call, renderer.lines
    same = _same(renderer, found, turn.arg.bits)
    renderer.names[turn] = "true"
    if not turn.arg.reads:
        later = e(f"lshr i32 {e(f'lshr i32 {same}, {lane}')}, 1")
        is_last = e(f"icmp eq i32 {later}, 0")
        _body(renderer, loop, row, e(f"and i1 {found.is_mine}, {is_last}"))
        return
    below = e(f"sub i32 {e(f'shl i32 1, {lane}')}, 1")
    before = e(f"and i32 {same}, {below}")
    rank = e(call("llvm.ctpop.i32", "i32", [("i32", before)]))
    start = renderer.block
    lines += [f"  br label %take{number}", f"take{number}:"]
    renderer.block = f"take{number}"
    now, slot = renderer._fresh(), len(lines)
    lines.append("")
    _body(renderer, loop, row, e(f"and i1 {found.is_mine}, {e(f'icmp eq i32 {rank}, {now}')}"))
    following = e(f"add i32 {now}, 1")
    waits = e(f"and i1 {found.is_mine}, {e(f'icmp uge i32 {rank}, {following}')}")
    ballot = "llvm.nvvm.vote.ballot.sync"
    left = e(call(ballot, "i32", [("i32", "-1"), ("i1", waits)]))
    more = e(f"icmp ne i32 {left}, 0")
    lines[slot] = f"  {now} = phi i32 [ 0, %{start} ], [ {following}, %{renderer.block} ]"
    lines.append(f"  br i1 {more}, label %take{number}, label %taken{number}")
    lines.append(f"taken{number}:")
    renderer.block = f"taken{number}"


def _same(renderer: NvptxRenderer, found: _Round, bits: int) -> str:
    """Which threads have the same place, as bits of a word."""
    e, call = renderer._emit, renderer._call
    if bits > MOST_BITS:
        match = "llvm.nvvm.match.any.sync.i64"
        return e(call(match, "i32", [("i32", "-1"), ("i64", found.key)]))
    ballot = "llvm.nvvm.vote.ballot.sync"
    same = e(call(ballot, "i32", [("i32", "-1"), ("i1", found.is_mine)]))
    word = e(f"trunc i64 {found.key} to i32")
    for bit in range(bits):
        mine = e(f"icmp ne i32 {e(f'and i32 {word}, {1 << bit}')}, 0")
        have = e(call(ballot, "i32", [("i32", "-1"), ("i1", mine)]))
        other = e(f"select i1 {mine}, i32 0, i32 -1")
        same = e(f"and i32 {same}, {e(f'xor i32 {have}, {other}')}")
    return same


def _body(renderer: NvptxRenderer, loop: Loop, row: _Row | None, test: str) -> None:
    """The step of each thread that passes the test; after it all see what was written."""
    branch = renderer._branch(test)
    if row is not None:
        row.read()
    renderer._items(loop)
    renderer._join(branch)
    renderer.lines.append("  " + _sync(renderer))


def _sync(renderer: NvptxRenderer) -> str:
    return renderer._call("llvm.nvvm.bar.warp.sync", "void", [("i32", "-1")])
