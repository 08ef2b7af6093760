"""The order of calls where buffers are overwritten.

A buffer is read as it was before all assignments; only through the value of an assignment is it
read after it. So readers come before the call that overwrites what they read. Where that cannot
be, because one of them needs the new values of something as well, the old ones are copied first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Set

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.scan import outer_sources
from svod.schedule.work import EFFECTS, LEAVES

_MEMORY = frozenset({O.BUFFER, O.PARAM, O.BUFFER_VIEW})


class Overwritten(Exception):
    """Kernels that read these values of memory can not all come before the ones that write it."""

    def __init__(self, values: Iterable[UOp]) -> None:
        self.values = tuple(values)
        super().__init__(repr(self.values))


def ordered(pending: list[UOp], stored: Set[UOp]) -> list[UOp]:
    """Stored nodes as given, sources first, but readers of a buffer before it is overwritten."""
    assigns = [n for n in pending if n.op == O.ASSIGN]
    if not assigns:
        return pending
    reads = [_Reads(n, stored) for n in pending]
    position = {n: i for i, n in enumerate(pending)}
    waits = [{position[s] for s in found.values} for found in reads]
    below: list[int] = []  # a bit for each call that has to come before
    for needed in waits:
        bits = 0
        for i in needed:
            bits |= 1 << i
            if i < len(below):
                bits |= below[i]
        below.append(bits)
    readers: dict[UOp, list[tuple[int, UOp, int]]] = {}  # memory -> who reads which value of it
    for i, found in enumerate(reads):
        for value in found.shown():
            made = 0  # by these calls
            for call in value.src[1:] if value.op == O.AFTER else (value,):
                if call in position:
                    made |= 1 << position[call] | below[position[call]]
            readers.setdefault(base_buffer(value), []).append((i, value, made))
    contested: dict[UOp, None] = {}
    for a in assigns:
        own = position[a]
        for i, value, made in readers.get(base_buffer(a), ()):
            if i == own or made >> own & 1:
                continue
            if below[i] >> own & 1:
                contested[value] = None
            else:
                waits[own].add(i)
    if contested:
        raise Overwritten(contested)
    order = _sorted(waits)
    if len(order) < len(pending):
        done = set(order)
        left = [(i, found) for i, found in enumerate(reads) if i not in done]
        raise Overwritten([_contested(pending, left)])
    return [pending[i] for i in order]


def _sorted(waits: list[set[int]]) -> list[int]:
    """Numbers after all they wait for, the smallest that is ready first; as many as can be."""
    users: list[list[int]] = [[] for _ in waits]
    missing = [len(needed) for needed in waits]
    for i, needed in enumerate(waits):
        for other in needed:
            users[other].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    order = []
    while ready:
        first = heapq.heappop(ready)
        order.append(first)
        for user in users[first]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    return order


def _contested(pending: list[UOp], left: list[tuple[int, _Reads]]) -> UOp:
    """A value of a buffer that still has to be written and that others still have to read."""
    for i, _ in left:
        if pending[i].op == O.ASSIGN:
            base = base_buffer(pending[i])
            for other, found in left:
                for value in found.shown() if other != i else ():
                    if base_buffer(value) is base:
                        return value
    raise GraphError("assignments wait for each other")


class _Reads:
    """What the kernel of a stored node reads: other stored values, memory as it was before all
    assignments, and memory after some of them."""

    __slots__ = ("assigned", "later", "memory", "values")

    def __init__(self, root: UOp, stored: Set[UOp]) -> None:
        self.values: set[UOp] = set()
        self.assigned: set[UOp] = set()  # of these, memory as one assignment leaves it
        self.memory: set[UOp] = set()
        self.later: set[UOp] = set()
        target = root.src[0] if root.op == O.ASSIGN else None
        written = set() if target is None else _views(target)
        seen = {root}
        inside = [root]
        for node in inside:  # grows while it is read
            for s in outer_sources(node):
                if s in stored:
                    self.values.add(s)
                    if s.op == O.ASSIGN and node not in written and (node, s) != (root, target):
                        self.assigned.add(s)
                elif s.op == O.AFTER:
                    self.later.add(s)
                elif s.op in _MEMORY and node not in written and (node, s) != (root, target):
                    self.memory.add(s)
                if s not in seen:
                    seen.add(s)
                    if s not in stored and s.op not in LEAVES:
                        inside.append(s)
        for after in self.later:
            self.values.update(after.src[1:])
        self.later -= written | {target}

    def shown(self) -> Iterator[UOp]:
        """The values of memory that are read, each as some assignments leave it."""
        yield from self.memory
        yield from self.later
        yield from self.assigned


def _views(target: UOp) -> set[UOp]:
    """The views through which an assignment writes."""
    found = set()
    while target.op in O.MOVEMENT:
        found.add(target)
        target = target.src[0]
    return found


def base_buffer(node: UOp) -> UOp:
    """The memory that an assignment writes."""
    while node.op not in _MEMORY:
        if node.op not in O.MOVEMENT and node.op != O.AFTER and node.op not in EFFECTS:
            raise GraphError(f"ASSIGN needs a buffer as its target, not {node!r}")
        node = node.src[0]
    return node


def with_copies(sink: UOp, values: Iterable[UOp]) -> UOp:
    """The graph with copies of values of memory, for everything that reads them."""
    contested = set(values)
    done: dict[UOp, UOp] = {}

    def read(node: UOp) -> UOp:
        found = done[node]
        return make(O.CONTIGUOUS, node.dtype, (found,)) if node in contested else found

    for node in sink.toposort():
        if node.op == O.ASSIGN:
            src = (_target_of(node.src[0], done), *[read(s) for s in node.src[1:]])
        elif node.op == O.AFTER:
            src = tuple([done[s] for s in node.src])
        else:
            src = tuple([read(s) for s in node.src])
        done[node] = node.with_sources(src)
    return done[sink]


def _target_of(target: UOp, done: dict[UOp, UOp]) -> UOp:
    """The place an assignment writes, which is never the copy."""
    if target.op not in O.MOVEMENT:
        return done[target] if target.op in EFFECTS or target.op == O.AFTER else target
    inner = _target_of(target.src[0], done)
    return target if inner is target.src[0] else make(target.op, target.dtype, (inner,), target.arg)
