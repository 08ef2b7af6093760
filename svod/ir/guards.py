"""Checks of indices: marks in a tensor graph, and the roots that make a plan look at them.

An index tensor that may leave its axis is marked where a public function takes it: a BITCAST to
its own dtype whose argument is an IndexCheck. Marks vanish when a graph is normalised, so kernels
are the same with and without. For each mark a plan gets one more root: a custom function CHECK
of one word, which is 0 where every index is inside, else one of those that are not.

The word is one reduction. As an unsigned number an index is inside iff it is below the size
(after adding the size, twice the size, where negative ones count from the end), so the largest
one says whether all are. A mark in the body of a loop gives a word at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import CustomArg, IndexCheck
from svod.ir.node import UOp, const, make
from svod.ir.scan import Loop, loop_of, outer_order

CHECK = "check_indices"  # the kind of the custom function


class CheckAttrs(NamedTuple):
    """The attributes of CHECK: what its word means."""

    what: str
    size: int  # -1: in the second buffer
    takes_negative: bool
    bits: int  # of the unsigned number that the word is
    is_signed: bool  # the indices are


class _Word(NamedTuple):
    mark: UOp
    value: UOp  # uint64, without axes
    size: UOp | None  # int64, without axes, where it is a run-time size


def marked(index: UOp, check: IndexCheck, size: UOp | None = None) -> UOp:
    """The index tensor with a mark; ``size`` is a run-time size."""
    node = make(O.BITCAST, index.dtype, (index,) if size is None else (index, size), check)
    node._shape = index.shape
    node.vmin, node.vmax = index.vmin, index.vmax
    return node


def is_check(node: UOp) -> bool:
    """Whether a node marks an index that is to be checked."""
    return node.op == O.BITCAST and type(node.arg) is IndexCheck


def check_roots(roots: Iterable[UOp]) -> list[tuple[UOp, Any]]:
    """A CHECK for every mark below the roots, also in the bodies of loops, and its user line."""
    found: dict[UOp, Any] = {}
    for mark, value, size in _words(roots):
        source, check = mark.src[0], mark.arg
        bits = _unsigned(source, check).bits
        attrs = CheckAttrs(
            check.what, check.size, check.takes_negative, bits, source.dtype.kind == "i"
        )
        sources = (value,) if size is None else (value, size)
        root = make(O.CUSTOM_FUNCTION, dt.uint64, sources, CustomArg(CHECK, tuple(attrs), ()))
        found.setdefault(root, mark.origin)
    return list(found.items())


def _words(roots: Iterable[UOp]) -> list[_Word]:
    found: list[_Word] = []
    loops: dict[Loop, list[UOp]] = {}
    for node in outer_order(roots):
        if is_check(node):
            size = node.src[1] if len(node.src) > 1 else None
            found.append(_Word(node, _word(node), size))
        elif node.op == O.SCAN:
            loops.setdefault(loop_of(node), []).append(node.src[1])
    for loop, values in loops.items():
        for mark, value, size in _words((loop.body, *values)):
            stacked = loop.stacked(value)
            found.append(_Word(mark, _largest(stacked), size))
    return found


_SAME_VALUES = frozenset({O.RESHAPE, O.PERMUTE, O.EXPAND, O.FLIP, O.PAD})  # and perhaps 0


def _word(mark: UOp) -> UOp:
    index, check = mark.src[0], mark.arg
    kind = _unsigned(index, check)
    while index.op in _SAME_VALUES:  # an element that is shown often is looked at once
        index = index.src[0]
    value = B.cast(index, kind)
    size = const(check.size, kind) if check.size >= 0 else B.cast(mark.src[1], kind)
    limit = size
    if check.takes_negative:
        value, limit = B.binary(O.ADD, value, size), B.binary(O.ADD, size, size)
    if check.ignored is not None:
        is_ignored = B.binary(O.EQ, index, const(check.ignored, index.dtype))
        value = B.where(is_ignored, const(0, kind), value)
    top = _largest(value)
    return B.cast(B.where(B.binary(O.LT, top, limit), const(0, kind), top), dt.uint64)


def _largest(x: UOp) -> UOp:
    if not x.shape:
        return x
    return B.reshape(B.reduce(x, O.MAX, tuple(range(len(x.shape)))), ())


def _unsigned(index: UOp, check: IndexCheck) -> dt.DType:
    """The unsigned dtype in which indices are compared: 32 bits where these cannot wrap."""
    is_narrow = index.dtype.bits <= 32 and 0 <= check.size < 1 << 30
    return dt.uint32 if is_narrow else dt.uint64


def bad_index(attrs: Sequence[object], word: int) -> int:
    """The index that a word other than 0 stands for, where the size is in ``attrs``."""
    _, size, takes_negative, bits, is_signed = CheckAttrs(*attrs)  # type: ignore[arg-type]
    found = (word - size if takes_negative else word) % (1 << bits)
    return found - (1 << bits) if is_signed and found >> (bits - 1) else found
