"""scan: a recurrence over time as one loop, recorded once and run once per step.

In: a function of one step, what it starts from, and sequences. Out: the last carry and what the
steps gave, lazily. The function is called once with tensors that stand for a step's values; what
it uses from outside becomes an input of the loop. The loop is a few kernels, whatever its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, largest, make
from svod.ir.scan import Carry, Given, closed, outer_order, outer_sources, parameter
from svod.tensor.core.pytrees import Form, flatten, unflatten
from svod.tensor.core.tensor_core import Core, tensor_of, wrap
from svod.tensor.core.tracing import Timed, recording, state

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_LEVEL = 1 << 16  # slots of the stand-ins of one scan; scans inside scans count on
# What is not computed inside the body: memory, sums, and the marks that gradients flow to.
_MEMORY = frozenset(
    {
        O.BITCAST,
        O.BUFFER,
        O.BUFFER_VIEW,
        O.PARAM,
        O.MSELECT,
        O.MSTACK,
        O.CONTIGUOUS,
        O.COPY,
        O.ASSIGN,
    }
    | {O.SCATTER, O.CUSTOM_FUNCTION, O.SCAN, O.REDUCE_AXIS, O.SORT}
)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: UOp | int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run ``carry, y = f(carry, x)`` for every slice x of xs; the last carry, and all y stacked.

    Carry, x and y are tensors or structures of them (tuples, lists, dicts); xs may be None when
    ``length`` says how many steps there are. A carry keeps its shape and dtype. With ``reverse``
    the steps go from the last slice to the first; y stays where its x was. A run-time number of
    steps takes the time of the largest one: steps past the end change nothing.

        >>> import svod
        >>> def step(total, x):
        ...     return total + x, total * x
        >>> last, ys = svod.scan(step, svod.Tensor(0.0), svod.arange(1.0, 5.0))
        >>> last.item(), ys.tolist()
        (10.0, [0.0, 2.0, 9.0, 24.0])
    """
    starts, form = _tensors(init, "init")
    sequences, x_form = _tensors(xs, "xs")
    steps = _length(sequences, length)
    if isinstance(steps, UOp):
        return _up_to(f, init, sequences, x_form, steps, reverse)
    shapes = [t.shape for t in starts] + [t.shape[1:] for t in sequences]
    given = [*starts, *sequences]
    base = _LEVEL * (1 + len(state.loops))
    leaves = [
        parameter(base + i, s, t.dtype) for i, (s, t) in enumerate(zip(shapes, given, strict=True))
    ]
    seen = [wrap(leaf, t._device) for leaf, t in zip(leaves, given, strict=True)]
    loop_now = Timed(steps, parameter(base + len(leaves), (), dt.uint32))
    with recording("scan", (*leaves, loop_now.number), loop_now):
        carry = unflatten(form, seen[: len(starts)])
        result = f(carry, unflatten(x_form, seen[len(starts) :]))
    if loop_now.is_asked:
        leaves.append(loop_now.number)
        sequences.append(wrap(B.iota(steps, dt.uint32), None))
    news, ys, y_form = _results(result, form, seen[: len(starts)])
    if steps == 0:
        return init, unflatten(y_form, [wrap(B.full((0, *y.shape), 0, y.dtype), None) for y in ys])
    lifted = _Lifted(leaves, base + len(given) + 1)
    inside = lifted.inside([t.uop for t in (*news, *ys)])
    carries = [
        Carry(leaf, t.uop, new)
        for leaf, t, new in zip(leaves, starts, inside[: len(starts)], strict=False)
    ]
    stacks = [Given(n, t.uop) for n, t in zip(leaves[len(starts) :], sequences, strict=True)]
    loop, values = closed(steps, reverse, carries, stacks, lifted.given, inside[len(starts) :])
    last = [wrap(loop.last(i), t._device) for i, t in enumerate(news)]
    stacked = [wrap(loop.stacked(v), y._device) for v, y in zip(values, ys, strict=True)]
    return unflatten(form, last), unflatten(y_form, stacked)


def _up_to(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    sequences: list[Tensor],
    form: Form,
    steps: UOp,
    reverse: bool,
) -> tuple[Any, Any]:
    """A scan with a run-time number of steps: one of the largest number, which pauses outside."""
    most = largest(steps)

    def step(carry: Any, given: Any) -> tuple[Any, Any]:
        number, *slices = given
        new, y = f(carry, unflatten(form, slices))
        olds, _ = _tensors(carry, "the carry")
        news, new_form = _tensors(new, "the new carry")
        is_on = number < steps
        kept = [
            a.where(is_on, b) if a.shape == b.shape and a.dtype is b.dtype else a
            for a, b in zip(news, olds, strict=False)
        ]
        return unflatten(new_form, kept), y

    def padded(t: Tensor) -> Tensor:
        rest = ((0, 0),) * (t.ndim - 1)
        return wrap(B.pad(t.uop, ((0, most - steps), *rest)), t._device)

    numbers = wrap(B.iota(most, dt.int64), None)
    last, ys = scan(step, init, (numbers, *[padded(t) for t in sequences]), reverse=reverse)
    outs, y_form = _tensors(ys, "y")
    return last, unflatten(y_form, [y[:steps] for y in outs])


def _tensors(tree: Any, name: str) -> tuple[list[Tensor], Form]:
    leaves, form = flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, (Core, int, float)) and not hasattr(leaf, "__array__"):
            raise DTypeError(f"scan: {name} holds a {type(leaf).__name__}, no tensor: {leaf!r:.60}")
    return [tensor_of(leaf) for leaf in leaves], form


def _length(sequences: Sequence[Tensor], length: UOp | int | None) -> UOp | int:
    sizes: list[UOp | int] = []
    for t in sequences:
        if not t.shape:
            raise ShapeError("scan: a sequence needs an axis of time, got a scalar")
        sizes.append(t.shape[0])
    if length is not None:
        try:
            sizes.append(length if isinstance(length, UOp) else as_index(length))
        except TypeError:
            raise DTypeError(f"scan: length must be a whole number, not {length!r}") from None
    if not sizes:
        raise ShapeError("scan: without sequences it needs a length")
    if len(set(sizes)) > 1:
        raise ShapeError(f"scan: the sequences and the length differ: {sizes}")
    if sizes[0] < 0:
        raise ShapeError(f"scan: a length of {sizes[0]}")
    return sizes[0]


def _results(
    result: Any, form: Form, carries: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor], Form]:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        what = f"{len(result)} values" if isinstance(result, (tuple, list)) else repr(result)[:60]
        raise DTypeError(f"scan: the function must return (carry, y), it returned {what}")
    news, new_form = _tensors(result[0], "the new carry")
    if new_form != form:
        raise ShapeError(f"scan: the carry has the form {form}, the function returned {new_form}")
    for position, (old, new) in enumerate(zip(carries, news, strict=True)):
        if old.shape != new.shape or old.dtype is not new.dtype:
            raise ShapeError(
                f"scan: carry {position} goes in as {old.dtype.name}{list(old.shape)} and comes "
                f"out as {new.dtype.name}{list(new.shape)}: it must keep its shape and dtype"
            )
    ys, y_form = _tensors(result[1], "y")
    return news, ys, y_form


class _Lifted:
    """What a body uses from outside, as inputs of the loop."""

    def __init__(self, leaves: Sequence[UOp], first_slot: int) -> None:
        self.leaves = frozenset(leaves)
        self.slot = first_slot
        self.given: list[Given] = []
        self.known: dict[UOp, UOp] = {}

    def inside(self, roots: Sequence[UOp]) -> list[UOp]:
        """The roots over stand-ins alone."""
        order = outer_order(roots)
        varies: set[UOp] = set()
        has_memory: set[UOp] = set()
        for node in order:
            own = outer_sources(node)
            if node in self.leaves or any(s in varies for s in own):
                varies.add(node)
            if node.op in _MEMORY or any(s in has_memory for s in own):
                has_memory.add(node)
        done: dict[UOp, UOp] = {}
        for node in order:
            if node not in varies:
                continue
            own = outer_sources(node)
            src = [done[s] if s in varies else self._input(s, has_memory) for s in own]
            body = node.src[: len(node.src) - len(own)]
            new = (*body, *src)
            done[node] = node.with_sources(new)
        return [done[r] if r in varies else self._input(r, has_memory) for r in roots]

    def _input(self, node: UOp, has_memory: set[UOp]) -> UOp:
        """A value that is the same in every step; movement stays with whoever reads it."""
        if node not in has_memory:
            return node
        found = self.known.get(node)
        if found is None:
            if node.op in O.MOVEMENT:
                below = self._input(node.src[0], has_memory)
                found = make(node.op, node.dtype, (below,), node.arg)
            else:
                found = parameter(self.slot, node.shape, node.dtype)
                self.slot += 1
                self.given.append(Given(found, node))
            self.known[node] = found
        return found
