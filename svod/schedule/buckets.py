"""Collectives between processes: in which order, which of them together, and while what else runs.

In: the roots of one process, where each collective is a node of its own. Out: the same roots, where
a collective is begun as soon as its values are there and ended where somebody needs the result, so
that kernels run in between. All beginnings form one chain, the same on every rank: no two ranks can
wait for each other in different collectives. Folds that do not depend on each other go together, up
to a number of bytes, the ones that are ready first in front: gradients of the last layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from svod.base.errors import GraphError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import CustomArg
from svod.ir.node import UOp, make, toposort
from svod.ir.placement import Mesh

ALL_REDUCE, REDUCE_SCATTER = "distributed.all_reduce", "distributed.reduce_scatter"
ALL_GATHER, ALL_TO_ALL = "distributed.all_gather", "distributed.all_to_all"
BEGIN, END = "distributed.begin", "distributed.end"
_FOLDING = (ALL_REDUCE, REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
class Move:
    """One collective: its node, and what of it is the same on every rank."""

    node: UOp  # src: what this rank sends
    kind: str
    axis: str
    fold: int  # the op of a fold, else -1
    number: int
    depends: int  # a bit for each collective that comes before it, directly or not
    depth: int  # how many ops lie below it

    @property
    def nbytes(self) -> int:
        """What this rank sends."""
        return int(prod(self.node.src[0].shape)) * self.node.dtype.itemsize

    @property
    def key(self) -> tuple[object, ...]:
        """Collectives with the same key can be one."""
        return (self.kind, self.axis, self.fold, self.node.dtype)


def arranged(mesh: Mesh, moves: Sequence[Move], roots: Sequence[UOp]) -> list[UOp]:
    """The roots with the collectives in buckets, begun in a chain."""
    done: dict[UOp, UOp] = {}
    last: UOp | None = None
    for number, bucket in enumerate(buckets(moves, mesh.bucket)):
        sent = [_with(done, move.node.src[0]) for move in bucket]
        last = _begun(mesh, number, bucket, sent, last, done)
    return [_with(done, root) for root in roots]


def buckets(moves: Iterable[Move], limit: int) -> list[list[Move]]:
    """Groups of collectives in the order in which they are begun."""
    found: list[list[Move]] = []
    waiting: list[Move] = []
    for move in moves:
        if move.kind in _FOLDING:
            waiting.append(move)
            continue
        found += _grouped([w for w in waiting if move.depends >> w.number & 1], limit)
        waiting = [w for w in waiting if not move.depends >> w.number & 1]
        found.append([move])
    return found + _grouped(waiting, limit)


def _grouped(moves: Sequence[Move], limit: int) -> list[list[Move]]:
    found: list[list[Move]] = []
    open_ones: dict[tuple[object, ...], list[Move]] = {}
    for move in sorted(moves, key=lambda m: m.depth):
        if any(move.depends >> m.number & 1 for group in open_ones.values() for m in group):
            found += open_ones.values()
            open_ones = {}
        group = open_ones.get(move.key)
        if group and sum([m.nbytes for m in group]) + move.nbytes > limit:
            found.append(open_ones.pop(move.key))
            group = None
        if group is None:
            group = open_ones[move.key] = []
        group.append(move)
    return found + list(open_ones.values())


def _begun(
    mesh: Mesh,
    number: int,
    bucket: Sequence[Move],
    sent: Sequence[UOp],
    last: UOp | None,
    done: dict[UOp, UOp],
) -> UOp:
    """The node that begins a bucket; the results of its members become parts of its end."""
    first = bucket[0]
    in_rows, out_rows = first.kind != ALL_GATHER, first.kind != ALL_REDUCE
    if first.kind == ALL_REDUCE:
        in_rows = False
    elif first.kind == REDUCE_SCATTER:
        out_rows = False
    count = mesh.size(first.axis)
    whole, shape = sent[0], first.node.shape
    if len(bucket) > 1:
        flat = [B.reshape(s, (count, prod(s.shape[1:])) if in_rows else (prod(s.shape),))
                for s in sent]  # fmt: skip
        whole = B.contiguous(B.cat(flat, 1 if in_rows else 0))
        lengths = [prod(m.node.shape[1:]) if out_rows else prod(m.node.shape) for m in bucket]
        shape = (count, sum(lengths)) if out_rows else (sum(lengths),)
    attrs: tuple[Any, ...] = (mesh.name, first.axis, first.kind, first.fold, number)
    # The chain comes first: what was begun before is put before what this one sends.
    sources = (whole,) if last is None else (last, whole)
    begun = make(O.CUSTOM_FUNCTION, first.node.dtype, sources, CustomArg(BEGIN, attrs, shape))
    ended = make(
        O.CUSTOM_FUNCTION, begun.dtype, (begun, whole), CustomArg(END, (mesh.name, number), shape)
    )
    if len(bucket) == 1:
        done[first.node] = ended
        return begun
    place = 0
    for move, length in zip(bucket, lengths, strict=True):
        rows = ((0, count),) if out_rows else ()
        part = B.shrink(ended, (*rows, (place, place + length)))
        done[move.node] = B.reshape(part, move.node.shape)
        place += length
    return begun


def _with(done: dict[UOp, UOp], root: UOp) -> UOp:
    """The node with the collectives below it in their new form; ``done`` is kept between calls."""
    for node in toposort((root,)):
        if node in done:
            continue
        if node.op == O.CUSTOM_FUNCTION and node.arg.kind in _MOVING:
            raise GraphError(f"{node.arg.kind} {node.arg.attrs} is used before it is begun")
        new = node.with_sources(tuple([done[s] for s in node.src])) if node.src else node
        done[node] = new
    return done[root]


_MOVING = frozenset({ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL})
