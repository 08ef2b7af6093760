"""Scalar arguments: constants and offsets that change between calls become kernel arguments.

``(x[i] * c).sum()`` in a loop makes a graph with other constants in every pass, and a kernel with
constants inside would be compiled for each. So a graph that the schedule cache does not know is
compared with graphs of the same form made by the same line of user code: where a number or the
offset of a slice differs, it is replaced by memory of one element or by a bound variable. The first
pass compiles the numbers in, the second compiles a kernel that takes them, and later passes use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from svod.base.knobs import knobs
from svod.base.log import warn
from svod.device.buffer import Buffer
from svod.dtype.convert import to_numpy
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make, serial, variable
from svod.schedule.cache import Cache

Slot = tuple[int, int]  # number of a node in the walk, and of its source or axis

_TAKE_NUMBERS = O.ALU | {O.RESHAPE}
_PASSED_ON = O.MOVEMENT | {O.BITCAST, O.CONTIGUOUS, O.COPY}
_FORMS = 512  # graphs that are remembered
_LINES = 4096  # lines of user code whose compilations are counted


@dataclass(slots=True)
class _Form:
    """A graph up to its numbers: those it had first, and which of them have changed since."""

    numbers: dict[Slot, Any]
    changing: set[Slot] = field(default_factory=set)


_forms: Cache[Any, _Form] = Cache("forms of graphs", lambda: _FORMS)
_compiled: Cache[Any, list[int]] = Cache("compilations by line", lambda: _LINES)


def lifted(roots: Sequence[UOp], default: str) -> Sequence[UOp]:
    """The graph with the numbers that change as arguments; itself when it is met first.

    ``default`` is the device of a graph that reads no memory.
    """
    order = _walk(roots)
    key, numbers = _form(roots, order)
    known = _forms.get(key)
    if known is None:
        _forms.insert(key, _Form(numbers))
        return roots
    first = known.numbers
    known.changing |= {slot for slot, value in numbers.items() if _differs(first[slot], value)}
    if not known.changing:
        return roots  # the schedule was dropped from its cache
    devices = {node.arg for node in order if node.op == O.DEVICE} or {default}
    if len(devices) != 1:
        return roots  # which kernel reads a number is not known yet
    return _with_arguments(roots, order, numbers, known.changing, devices.pop())


def count_compilation(root: UOp, shape: Sequence[Any]) -> None:
    """Warn once about a line of user code whose graphs are new again and again."""
    limit = knobs.warn_recompile
    while root.op in _PASSED_ON:  # a helper that shows results is not where they come from
        root = root.src[0]
    line = root.origin
    if not limit or not isinstance(line, tuple):
        return
    line = line[:2]
    count = _compiled.get(line) or _compiled.insert(line, [0])
    count[0] += 1
    if count[0] == limit:
        file, number = line
        warn(
            f"{file}:{number} has compiled {limit} different graphs, the last for a result of "
            f"shape {tuple(shape)}: sizes that change from call to call can be a svod.Variable, "
            "and a function under svod.jit is compiled once per signature; "
            "SVOD_WARN_RECOMPILE=0 turns this warning off"
        )


def _walk(roots: Sequence[UOp]) -> list[UOp]:
    """Every node but constants, in an order that depends on structure alone."""
    seen = set(roots)
    order = list(dict.fromkeys(roots))
    for node in order:  # grows while it is read
        for s in node.src:
            if s.op != O.CONST and s not in seen:
                seen.add(s)
                order.append(s)
    return order


def _form(roots: Sequence[UOp], order: list[UOp]) -> tuple[Any, dict[Slot, Any]]:
    """The structure as a key, and the numbers that are no part of it."""
    numbers: dict[Slot, Any] = {}
    index = {node: i for i, node in enumerate(order)}
    tokens: list[Any] = []
    for i, node in enumerate(order):
        op, arg = node.op, node.arg
        if op == O.BUFFER:
            tokens.append((op, node.dtype, arg.size, node.src[-1]))
            continue
        if op == O.BIND:
            tokens.append((op, node.src[0]))
            continue
        if op in (O.SHRINK, O.PAD) and all(type(a) is type(b) is int for a, b in arg):
            numbers.update({(i, axis): a for axis, (a, _) in enumerate(arg)})
            arg = tuple([b - a if op == O.SHRINK else a + b for a, b in arg])
        sources: list[Any] = []
        takes_numbers = op in _TAKE_NUMBERS
        for k, s in enumerate(node.src):
            if s.op != O.CONST:
                sources.append(index[s])
            elif takes_numbers and s.dtype.kind in "iuf":
                numbers[i, k] = s.arg
                sources.append(s.dtype)
            else:
                sources.append(s)
        tokens.append((op, node.dtype, arg, tuple(sources)))
    places = tuple([index.get(root, root) for root in roots])
    return (tuple(tokens), places, tuple([root.origin for root in roots])), numbers


def _differs(before: Any, value: Any) -> bool:
    return before != value and (before == before or value == value)  # NaN is NaN


def _with_arguments(
    roots: Sequence[UOp],
    order: list[UOp],
    numbers: dict[Slot, Any],
    changing: set[Slot],
    device: str,
) -> Sequence[UOp]:
    index = {node: i for i, node in enumerate(order)}
    by_node: dict[int, list[int]] = {}
    for i, k in sorted(changing):
        by_node.setdefault(i, []).append(k)
    done: dict[UOp, UOp] = {}
    for node in sorted(order, key=serial):
        i = index[node]
        src = [done.get(s, s) for s in node.src]
        arg = node.arg
        if i in by_node and node.op in (O.SHRINK, O.PAD):
            pairs = list(arg)
            for axis in by_node[i]:
                first, second = pairs[axis]
                is_cut = node.op == O.SHRINK
                last = node.src[0].shape[axis] - second + first if is_cut else first + second
                offset = variable(f"svod_offset_{i}_{axis}", 0, last).bind(first)
                pairs[axis] = (offset, offset + (second - first) if is_cut else last - offset)
            arg = tuple(pairs)
        elif i in by_node:
            for k in by_node[i]:
                src[k] = _in_memory(numbers[i, k], src[k], node, device)
        if tuple(src) == node.src and arg is node.arg:
            done[node] = node
        else:
            done[node] = made = make(node.op, node.dtype, tuple(src), arg)
            made.origin = made.origin or node.origin
    return [done.get(root, root) for root in roots]


def _in_memory(value: Any, constant: UOp, user: UOp, device: str) -> UOp:
    array = np.array([value]).astype(to_numpy(constant.dtype))
    buffer = Buffer.from_numpy(array, False, device)
    memory = B.new_buffer(1, constant.dtype, device, buffer)
    return B.broadcast_to(B.reshape(memory, ()), () if user.op == O.RESHAPE else user.shape)
