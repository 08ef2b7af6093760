"""Run-time sizes inside arguments: shapes, paddings and custom attributes may hold nodes.

A graph walk follows sources only, so whoever must find or replace variables looks here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from svod.base.errors import VariableError
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp, toposort
from svod.ir.symbolic import rebuild, size_text

# The ops whose argument may hold nodes.
SIZED = frozenset({O.RESHAPE, O.EXPAND, O.PAD, O.SHRINK, O.IOTA, O.CUSTOM_FUNCTION})


def map_nodes(arg: Any, change: Callable[[UOp], Any]) -> Any:
    """The argument with every node in it replaced; the very same where nothing changes."""
    if isinstance(arg, UOp):
        return change(arg)
    if not isinstance(arg, tuple):
        return arg
    found = [map_nodes(a, change) for a in arg]
    if all(a is b for a, b in zip(found, arg, strict=True)):
        return arg
    return tuple(found) if type(arg) is tuple else type(arg)(*found)


def nodes_in(arg: Any) -> list[UOp]:
    """The nodes an argument holds, in order."""
    if isinstance(arg, UOp):
        return [arg]
    return [n for a in arg for n in nodes_in(a)] if isinstance(arg, tuple) else []


def replace_in_size(size: UOp, mapping: dict[UOp, UOp]) -> UOp | int:
    """A size with nodes replaced, simplified again; a number where none is left to vary."""
    done = dict(mapping)
    for node in size.toposort():
        if node not in done:
            done[node] = rebuild(node, tuple([done[s] for s in node.src])) if node.src else node
    found = done[size]
    return found.arg if found.op == O.CONST else found


def reachable(roots: Iterable[UOp]) -> list[UOp]:
    """All nodes below the roots, through sources and through arguments."""
    order = toposort(roots)
    held = {n for node in order if node.op in SIZED for n in nodes_in(node.arg)}
    return toposort({*order, *held}) if held else order


def variables_of(root: UOp) -> tuple[VarArg, ...]:
    """The variables a graph mentions, one per name; the first in topological order wins."""
    found: dict[str, VarArg] = {}
    for node in reachable((root,)):
        if node.op == O.DEFINE_VAR:
            found.setdefault(node.arg.name, node.arg)
    return tuple(found.values())


def check_ranges(root: UOp) -> None:
    """Refuse a graph with slices or borders that do not fit for some values of its variables."""
    for node in reachable((root,)):
        if node.op not in (O.SHRINK, O.PAD) or not nodes_in(node.arg + node.src[0].shape):
            continue
        what = "slice" if node.op == O.SHRINK else "border"
        for (a, b), size in zip(node.arg, node.src[0].shape, strict=True):
            try:
                fits = 0 <= a <= b <= size if node.op == O.SHRINK else a >= 0 and b >= 0
            except VariableError:
                fits = False
            if not fits:
                ranges = [f"{v.name} from {v.lo} to {v.hi}" for v in variables_of(node)]
                where = f"({size_text(a)}, {size_text(b)}) of an axis of size {size_text(size)}"
                raise VariableError(
                    f"the {what} {where} does not fit for every value of {', '.join(ranges)}, and "
                    "a plan must hold for all of them"
                )
