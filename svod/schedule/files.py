"""Parts of files: what is in one piece is seen where it lies, and only such parts are copied.

In: a tensor graph with memory on disks. ``only_parts`` lets a copy that is only read in parts copy
these alone; ``file_part`` says of a stored value that it is a piece of a file, from which byte on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from svod.ir import ops as O
from svod.ir.args import ViewArg
from svod.ir.node import UOp, elements, is_symbolic, make


@dataclass(frozen=True, slots=True)
class FilePart:
    """Elements of memory on a disk that lie one after another."""

    memory: UOp
    view: ViewArg


def is_disk(device: str) -> bool:
    return device.partition(":")[0] == "DISK"


def file_part(node: UOp, device: Mapping[UOp, str]) -> FilePart | None:
    """The piece of a file that a stored value is, where it is nothing but that."""
    if node.op != O.CONTIGUOUS or is_symbolic(node.shape):
        return None
    memory = node.src[0]
    while memory.op in (O.RESHAPE, O.SHRINK):
        memory = memory.src[0]
    if memory is node.src[0] or memory.op not in _FILES or not is_disk(device.get(memory, "")):
        return None
    offset = _offset(node.src[0], memory)
    if offset is None:
        return None
    return FilePart(memory, ViewArg(elements(node.shape), offset))


_FILES = frozenset({O.BUFFER, O.PARAM, O.BUFFER_VIEW, O.COPY})


def _offset(node: UOp, memory: UOp) -> int | None:
    """Where a view begins in memory, in elements; None where it is not in one piece."""
    offset = 0
    while node is not memory:
        if is_symbolic(node.shape) or is_symbolic(node.src[0].shape):
            return None
        if node.op == O.SHRINK:
            begin = _begin(node)
            if begin is None:
                return None
            offset += begin
        node = node.src[0]
    return offset


def _begin(cut: UOp) -> int | None:
    """The first element of a SHRINK among those of its source, where they follow each other."""
    shape = cut.src[0].shape
    begin, is_cut = 0, False
    stride = 1
    for (start, stop), size in zip(reversed(cut.arg), reversed(shape), strict=True):
        if is_cut and stop - start != 1:
            return None  # rows with gaps between them
        is_cut = is_cut or stop - start != size
        begin += start * stride
        stride *= size
    return begin


def only_parts(sink: UOp, order: list[UOp]) -> UOp:
    """The graph in which a file that is only read in parts is not copied whole."""
    copies = {n for n in order if n.op == O.COPY and _is_file(n.src[0])}
    if not copies:
        return sink
    readers: dict[UOp, list[UOp]] = {}
    for node in order:
        for source in node.src:
            if source in copies:
                readers.setdefault(source, []).append(node)
    done: dict[UOp, UOp] = {}
    for node in order:
        if node.op == O.SHRINK and node.src[0] in copies:
            copy = node.src[0]
            if all(map(_is_piece, readers[copy])):
                part = make(O.SHRINK, node.dtype, (copy.src[0],), node.arg)
                part = make(O.CONTIGUOUS, node.dtype, (part,))
                done[node] = make(O.COPY, node.dtype, (part, copy.src[1]))
                continue
        src = tuple([done.get(s, s) for s in node.src])
        done[node] = node.with_sources(src)
    return done[sink]


def _is_piece(reader: UOp) -> bool:
    shapes = (reader.shape, reader.src[0].shape)
    return (
        reader.op == O.SHRINK and not any(map(is_symbolic, shapes)) and _begin(reader) is not None
    )


def _is_file(node: UOp) -> bool:
    """Whether a node is whole memory on a disk, perhaps in another shape."""
    while node.op == O.RESHAPE:
        node = node.src[0]
    return node.op in (O.BUFFER, O.PARAM) and bool(node.src) and is_disk(node.src[-1].arg)
