"""Dropping nodes that nobody holds any more.

Tables of nodes are strong, so that equal structure stays one object. Most nodes die young: what was
made since the last sweep is looked at often, everything seldom.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice

from svod.base.locks import held_lock
from svod.ir import node as nodes
from svod.ir import ops as O
from svod.ir.node import UOp

_tables = nodes._tables
_lock = held_lock()
SWEEP_NODES = 8192  # made since the last sweep: some 5 ms of sweeping
SWEEP_BYTES = 128 << 20  # of buffers that graphs used since the last sweep
# Fewer bytes are worth a sweep of few nodes: memory that is used again is in the processor's cache
# and mapped, which saves 0.1 ms per MiB; a node takes 0.6 us.
RECYCLED_BYTES = 4 << 20
BYTES_PER_NODE = 16 << 10
SWEEP_ALL_NODES = 100_000
_sweep_all_at = SWEEP_ALL_NODES
_swept_to = 0  # the newest node the last sweep looked at
_swept_sizes = [0] * 128  # entries per table that the last sweep left
_counted_to = 0  # the newest BUFFER whose bytes were counted
_waiting_bytes = 0  # of BUFFERs counted since all nodes were swept
_swept_bytes = 0  # of these, what an earlier sweep of young nodes has seen


def live_nodes() -> int:
    """How many nodes the tables hold."""
    return sum([len(t) for t in _tables])


def count_of(op: int) -> int:
    """How many nodes of an op there are, those included that nothing refers to any more."""
    return len(_tables[op])


def note_buffers(buffers: Iterable[UOp]) -> None:
    """Count BUFFERs a graph used, each once: their memory is free only when their nodes go."""
    global _waiting_bytes, _counted_to
    newest = _counted_to
    for node in buffers:
        if node.sn > _counted_to:
            _waiting_bytes += node.arg.size * node.dtype.itemsize
            newest = max(newest, node.sn)
    _counted_to = newest


def maybe_sweep() -> None:
    """Sweep when enough has been made since the last time; called before new work begins.

    Most nodes die young, so usually only those made since the last sweep are looked at; all of
    them when their number has doubled or much memory was used since that happened.
    """
    young_nodes, young_bytes = nodes._next_sn - _swept_to, _waiting_bytes - _swept_bytes
    worth = max(RECYCLED_BYTES, min(SWEEP_BYTES, young_nodes * BYTES_PER_NODE))
    if young_nodes < SWEEP_NODES and young_bytes < worth:
        return
    with _lock:
        _sweep_entries(young=True)
        if live_nodes() > _sweep_all_at or _waiting_bytes > 4 * SWEEP_BYTES:
            _sweep_entries()


def sweep() -> int:
    """Drop every node that only the tables hold; returns how many were dropped.

    Users always come after sources, so one pass from the newest to the oldest frees whole
    dead chains.
    """
    with _lock:
        return _sweep_entries()


def _sweep_entries(young: bool = False) -> int:
    global _swept_to, _swept_bytes, _waiting_bytes, _sweep_all_at
    getrefcount = sys.getrefcount
    reached = nodes._next_sn
    # Keys in creation order, copied first: other threads may add nodes meanwhile. What is new in
    # a table is at its end.
    sizes = [len(table) for table in _tables]
    pending = {}
    for number, table in enumerate(_tables):
        if not young:
            pending[number] = list(table)
        elif sizes[number] > _swept_sizes[number]:
            made = islice(reversed(table), len(table) - _swept_sizes[number])
            pending[number] = list(made)[::-1]
    order = []
    for number, keys in pending.items():
        table = _tables[number]
        order.extend([(table[key].sn, number) for key in keys])
    order.sort(reverse=True)
    unheld = _unheld_count()
    count = 0
    for _, number in order:
        table = _tables[number]
        key = pending[number].pop()
        node = table.get(key)
        if node is None:
            continue
        # a RANGE is a member of its own set of open ranges
        own = 1 if node.op == O.RANGE and node._ranges is not None else 0
        if getrefcount(node) <= unheld + own:
            del table[key]
            if getrefcount(node) > unheld + own - 1:  # another thread found it just now
                table.setdefault(key, node)
            else:
                node._ranges = None
                sizes[number] -= 1
                count += 1
        del node, key
    _swept_sizes[:] = sizes
    _swept_to, _swept_bytes = reached, _waiting_bytes
    if not young:
        _waiting_bytes = _swept_bytes = 0
        _sweep_all_at = max(SWEEP_ALL_NODES, 2 * live_nodes())
    return count


def _unheld_count() -> int:
    """What getrefcount says of a local name for something only a table holds.

    Interpreters differ: some lend a local to a call without counting it.
    """
    table = {0: object()}
    node = table.get(0)
    return sys.getrefcount(node)
