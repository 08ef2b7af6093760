"""Tensors without values: what a function sees while its graph is recorded.

``scan`` and ``jit`` call a function once with tensors that stand for later values. Code that asks
such a tensor for its numbers (``item()``, ``numpy()``, ``if x:``) cannot be recorded, and is
refused here with the reason, before anything is computed from memory that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from svod.base.errors import SvodError
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.ir.scan import outer_order


class TracedValueError(SvodError, TypeError):
    """Python code that depends on the values of a tensor whose values come later."""


class _State(local):
    depth = 0  # how many functions are being recorded in this thread
    level = 0  # of these, how many are bodies of scans
    names: tuple[str, ...] = ()
    stand_ins: frozenset[UOp] = frozenset()


state = _State()


@contextmanager
def recording(name: str, stand_ins: Iterable[UOp], is_loop: bool = False) -> Iterator[None]:
    """While a function is recorded, these nodes have no values."""
    before = state.depth, state.level, state.names, state.stand_ins
    state.depth += 1
    state.level += is_loop
    state.names = (*state.names, name)
    state.stand_ins |= frozenset(stand_ins)
    try:
        yield
    finally:
        state.depth, state.level, state.names, state.stand_ins = before


def refuse_traced(tensors: Iterable[Any]) -> None:
    """Raise if a tensor depends on values that are not there yet."""
    known = state.stand_ins
    for t in tensors:
        node = t.uop
        if any(n in known for n in outer_order((node,))):
            shape = "x".join([str(n) for n in node.shape]) or "a number"
            raise TracedValueError(
                f"{state.names[-1]}: the function asks for the values of a tensor "
                f"({node.dtype.name}, {shape}) while it is being recorded, when there are none. "
                "Use where() instead of if, a Variable for a size, and return what shall be read"
            )


def is_stand_in(node: UOp) -> bool:
    """Whether the node is memory that is not there yet."""
    while node.op == O.RESHAPE:
        node = node.src[0]
    return node in state.stand_ins
