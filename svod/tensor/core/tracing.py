"""The state of tracing: which tensors have no values yet, and which writes a trace has made.

``scan`` and ``jit`` call a function once with tensors that stand for later values. Code that asks
such a tensor for its numbers (``item()``, ``numpy()``, ``if x:``) cannot be recorded and is refused
here, with the reason. Inside ``jit``, assignments that would run now are kept for the plan, and
what is read from the same memory afterwards waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from svod.base.errors import SvodError
from svod.ir import ops as O
from svod.ir.args import BufferRef
from svod.ir.build import floats_of, like, new_buffer, view_as
from svod.ir.node import UOp, elements, make
from svod.ir.scan import outer_order, outer_sources, replaced
from svod.tensor.core.recorded_settings import Facts, Watched
from svod.tensor.core.tensor_registry import moved_from, moved_to

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class TracedValueError(SvodError, TypeError):
    """Python code that depends on the values of a tensor whose values come later."""


class Effects:
    """What a recorded function writes, in order, what it draws, and what it looks into."""

    def __init__(self) -> None:
        self.assigned: dict[UOp, None] = {}
        self.writers: list[Any] = []  # tensors through which it assigned
        self.draws: list[tuple[Any, int, Any]] = []  # generator, count, the words to fill in
        self.gradients: dict[int, Any] = {}  # by the id of a leaf: its gradient of before, or None
        self.assumed: dict[int, tuple[Any, Any]] = {}  # of these, leaf and gradient, what was read
        self.given: dict[int, tuple[Any, Any]] = {}  # by id: tensor and gradient before one was set
        self.facts: dict[int, tuple[Any, Facts]] = {}  # by the id of the object, which is kept
        self.outside: set[int] = set()  # ids of the tensors that were there before
        self.written: set[int] = set()  # of these, the ones that were given a new value
        self.starts: dict[int, UOp] = {}  # by the id of such a tensor: its node just before


class WithoutMemory(BaseException):
    """A recorded function changes tensors in place that must be computed first.

    It goes through the function to the recorder, which computes them and starts again.
    """

    def __init__(self, tensors: list[Any]) -> None:
        super().__init__(f"{len(tensors)} tensors")
        self.tensors = tensors


class Timed:
    """A loop whose body is being recorded: its length, and the number of the step as a value."""

    __slots__ = ("is_asked", "length", "number")

    def __init__(self, length: int, number: UOp) -> None:
        self.length = length
        self.number = number
        self.is_asked = False  # the body needs to know which step it is


class _State(local):
    depth = 0  # how many functions are being recorded in this thread
    loops: tuple[Timed, ...] = ()  # of these, the bodies of scans
    names: tuple[str, ...] = ()
    stand_ins: frozenset[UOp] = frozenset()
    effects: Effects | None = None


state = _State()
_gone: WeakSet[BufferRef] = WeakSet()  # memory of arguments outside the call they stood for


@contextmanager
def recording(
    name: str,
    stand_ins: Iterable[UOp],
    loop: Timed | None = None,
    effects: Effects | None = None,
) -> Iterator[None]:
    """While a function is recorded, these nodes have no values."""
    before = state.depth, state.loops, state.names, state.stand_ins, state.effects
    state.depth += 1
    state.loops = state.loops if loop is None else (*state.loops, loop)
    state.names = (*state.names, name)
    state.stand_ins |= frozenset(stand_ins)
    state.effects = effects or state.effects
    try:
        yield
    finally:
        state.depth, state.loops, state.names, state.stand_ins, state.effects = before


def look_into(watched: Watched) -> None:
    """A function being recorded depends on the settings of an object."""
    effects = state.effects
    if effects is not None and id(watched) not in effects.facts:
        effects.facts[id(watched)] = (watched, Facts(watched))


def found_facts(effects: Effects) -> list[Facts]:
    """What a function that has been recorded found in the objects it looked into."""
    for watched, _ in list(effects.facts.values()):
        for part in watched._plan_parts():
            if id(part) not in effects.facts:
                effects.facts[id(part)] = (part, Facts(part))
    found = [facts for _, facts in effects.facts.values()]
    for facts in found:
        facts.settle()
    return found


def is_traced(node: UOp) -> bool:
    """Whether a value depends on what comes later: arguments, or memory written by then."""
    known, writes = state.stand_ins, state.effects is not None
    seen = {node}
    found = [node]
    for n in found:  # grows while it is read
        if n in known or (writes and n.op == O.ASSIGN):
            return True
        for s in outer_sources(n):
            if s not in seen:
                seen.add(s)
                found.append(s)
    return False


def refuse_traced(tensors: Iterable[Tensor]) -> None:
    """Raise if a tensor depends on values that are not there yet."""
    for t in tensors:
        node = t.uop
        if is_traced(node):
            shape = "x".join([str(n) for n in node.shape]) or "a number"
            raise TracedValueError(
                f"{state.names[-1]}: the function asks for the values of a tensor "
                f"({node.dtype.name}, {shape}) while it is being recorded, when there are none. "
                "Use where() instead of if, a Variable for a size, and return what shall be read"
            )


def note_write(t: Tensor) -> None:
    """A tensor is about to get a new value: where it is from outside, every call makes that anew,
    so nobody may read what its memory holds while the function is recorded."""
    effects = state.effects
    if effects is None or id(t) not in effects.outside or not elements(t.uop.shape):
        return
    if id(t) not in effects.written:
        node = floats_of(t.uop)
        while node.op in O.VIEWS or node.op in (O.AFTER, O.ASSIGN, O.BITCAST):
            node = node.src[0]
        if node.op not in (O.BUFFER, O.BUFFER_VIEW):
            raise WithoutMemory([t])
        effects.written.add(id(t))
        effects.starts[id(t)] = t.uop
        state.stand_ins |= {node}


def after_writes(target: UOp, writes: Iterable[UOp]) -> UOp:
    """A view of memory as these assignments leave it, so that what writes there comes later."""
    view = floats_of(target)
    base = moved_from(view)
    memory = memory_of(base)
    before = [node for node in writes if memory_of(node) is memory]
    if not before or base.op not in (O.BUFFER, O.AFTER):
        return target
    waits = dict.fromkeys((*(base.src[1:] if base.op == O.AFTER else ()), *before))
    later = make(O.AFTER, memory.dtype, (memory, *waits))
    later._shape = memory.shape
    return like(target, moved_to(view, base, later))


def memory_of(node: UOp) -> UOp:
    """The BUFFER behind views and assignments, or what else is there."""
    while node.op in O.VIEWS or node.op in (O.ASSIGN, O.AFTER):
        node = node.src[0]
    return node


def without_waits(node: UOp) -> UOp:
    """A view of memory as it is once all assignments to it have happened."""
    views = []
    while node.op in O.VIEWS or node.op in (O.ASSIGN, O.AFTER):
        if node.op in O.VIEWS:
            views.append(node)
        node = node.src[0]
    for view in reversed(views):
        node = make(view.op, view.dtype, (node,), view.arg)
    return node


def without_writes(nodes: Sequence[UOp]) -> tuple[UOp, ...]:
    """Values that a recorded function left behind, where it made assignments on the way: nobody
    may compute them, for that would make these once more."""
    waits = [n for n in outer_order(nodes) if n.op in (O.AFTER, O.ASSIGN)]
    return replaced(nodes, {n: lost(n) for n in waits}) if waits else tuple(nodes)


def lost(node: UOp) -> UOp:
    """A node of the same shape whose values nobody can read."""
    gone = new_buffer(elements(node.shape), node.dtype, "CPU")
    forget((gone,))
    return view_as(gone, node.shape)


# -- arguments -----------------------------------------------------------------------------------


def forget(stand_ins: Iterable[UOp]) -> None:
    """The function is recorded: its stand-ins must not be computed with any more."""
    for node in stand_ins:
        for ref in (node.arg, node.arg.local):
            if ref is not None:
                ref.buffer = None
                _gone.add(ref)


def is_gone(node: UOp) -> bool:
    """Whether a BUFFER stood for something in a function that has been recorded."""
    return node.arg in _gone


def refuse_gone(node: UOp) -> None:
    """Raise for the memory of an argument outside of the function."""
    if is_gone(node):
        raise TracedValueError(
            "this tensor was computed from an argument of a jit function and kept outside of it: "
            "return it from the function instead (what backward() leaves in .grad is such a tensor)"
        )
