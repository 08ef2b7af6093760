"""The call of a recorded function: binds arguments and state to its plan, wraps the results.

The plan reads and writes memory of tensors outside of it. Before it runs, assignments that wait
for that memory are made, and values computed from what it writes are computed. A tensor that was
changed in place, or state that is gone, makes the record outdated: `is_current` says so.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from svod.base.errors import ConfigError, DTypeError
from svod.device.buffer import Buffer, Storage
from svod.device.names import memory_device
from svod.device.registry import get_device
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic
from svod.ir.sweep import maybe_sweep
from svod.schedule.normalize import bind_value
from svod.schedule.sizes import replace_in_size
from svod.tensor.core import history, recorded_settings, tensor_registry, tracing
from svod.tensor.core.pytrees import Form, unflatten
from svod.tensor.core.recorded_settings import Facts
from svod.tensor.core.tensor_core import Core, wrap
from svod.tensor.core.tracing import Effects
from svod.tensor.recording.realize import realize
from svod.tensor.recording.recorded_results import Output, Wrapping
from svod.tensor.views.aliases import family, refresh
from svod.tensor.views.pending_writes import overdue

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan
    from svod.tensor.tensor import Tensor


class Prepared:
    """A plan, and how arguments and results are bound to it."""

    def __init__(
        self,
        plan: ExecutionPlan | None,
        names: dict[int, str],
        form: Form,
        results: list[Output],
        variables: dict[int, str],
        draws: list[tuple[Any, int, Buffer]],
        line: tuple[str, int] | None,
        has_sizes: bool,
        written: list[int],
    ) -> None:
        self._plan = plan
        self.names = list(names.items())
        self.form = form
        self.results = results
        new = [r for r in results if r.port and not r.is_twin]
        self.fresh = [
            (
                r,
                get_device(r.device).allocator,
                memory_device(r.device),
                r.size if r.held < 0 else r.held,
            )
            for r in new
        ]
        self.line = line
        self.variables = list(variables.items())
        self.has_sizes = has_sizes or any(is_symbolic(r.shape) for r in results)
        self.written = written  # places of arguments whose memory the plan writes
        self.draws = draws
        self.has_drawn = bool(draws)  # recording drew for the first run
        self.is_single = form.kind is None and form.keys == ("leaf",)
        self.memory: Set[UOp] = frozenset()  # BUFFERs of tensors outside that the plan uses
        self.targets: Set[UOp] = frozenset()  # of these, what it writes
        self.outside: list[tuple[ref[Tensor], UOp, UOp]] = []  # tensor, its node, its BUFFER
        self.harmless: set[int] = set()  # nodes that are not affected by a run
        self.seen = -1  # how many changes of tensors there were after the last run
        self.writers: list[ref[Tensor]] = []  # tensors outside that it writes
        self.origins: set[Any] = set()  # of those that are views or have some
        self.facts: list[Facts] = []  # settings of modules and optimizers that the plan is made for
        self.assumed: list[tuple[ref[Tensor], ref[Tensor] | None]] = []  # leaves, gradients read
        self.left: list[tuple[ref[Tensor], Tensor | None]] = []  # leaves, gradients afterwards
        self.numbered = -1  # how many changes of numbers there were when they were last written
        self.settled = -1  # how many changes of settings there were when they were last looked at

    @property
    def plan(self) -> ExecutionPlan:
        if self._plan is None:
            raise ConfigError("jit: the function computes nothing")
        return self._plan

    def watch(self, memory: Set[UOp], targets: Set[UOp], used: Set[UOp]) -> None:
        """Note the tensors whose memory or values the plan uses."""
        self.memory, self.targets = memory, memory & targets
        for t in tensor_registry.live_tensors():
            base = tracing.memory_of(t.uop)
            if base in memory or t.uop in used:
                self.outside.append((ref(t), t.uop, base))

    def watch_gradients(self, effects: Effects) -> None:
        """Note gradients from outside that the function reads, and those that it leaves behind.

        The plan does not compute the latter. They are tensors that nobody can read.
        """
        for t, grad in effects.assumed.values():
            self.assumed.append((ref(t), None if grad is None else ref(grad)))
        for t, grad in effects.given.values():
            if t.grad is not grad:
                self.left.append((ref(t), None if t.grad is None else _lost(t.grad)))

    def watch_writers(self, tensors: list[Tensor]) -> None:
        """Note the tensors outside that are written: their views show it."""
        self.writers = [ref(t) for t in tensors]
        self.origins = {t._link.origin for t in tensors if t._link is not None}

    def shares_elements(self, leaves: list[Any]) -> bool:
        """Whether an argument shows elements of another, or of a tensor outside, that are written.

        The plan has memory for each of them: such a call is made without it.
        """
        if not self.written:
            targets = self.targets
            if not targets:
                return False
            shown = [leaf for leaf in leaves if isinstance(leaf, Core)]
            linked = [t for t in shown if t._link is not None]
            if not linked and targets.isdisjoint([tracing.memory_of(t.uop) for t in shown]):
                return False
        given = {p: leaf for p, leaf in enumerate(leaves) if isinstance(leaf, Core)}
        keys = {p: _keys(t) for p, t in given.items()}
        changed = {key for p in self.written if p in keys for key in keys[p]}
        if changed:
            rest = [key for p in keys if p not in self.written for key in keys[p]]
            own = sum([len(keys[p]) for p in self.written if p in keys])
            outside = [t for known, _, _ in self.outside if (t := known()) is not None]
            if own > len(changed) or not changed.isdisjoint(rest):
                return True
            if any(not changed.isdisjoint(_keys(t)) for t in outside):
                return True
        shown = {key for found in keys.values() for key in found}
        if not self.targets.isdisjoint(shown):
            return True
        is_linked = any(t._link is not None for t in given.values())
        return is_linked and not self._families().isdisjoint(shown)

    def _families(self) -> set[Any]:
        """Of the tensors outside that are written."""
        own = [t for known in self.writers if (t := known()) is not None]
        return {*self.origins, *[family(t) for t in own]}

    def applies(self) -> bool:
        """Whether modules and optimizers have the modes and options the plan was made with."""
        count = recorded_settings.changes[0]
        if self.settled == count:
            return True
        if not all(facts.hold() and facts.are_lasting() for facts in self.facts):
            return False
        self.settled = count
        return True

    def write_numbers(self) -> None:
        """Learning rates that were changed since the last run reach the plan."""
        count = recorded_settings.numbers[0]
        if self.numbered != count:
            for facts in self.facts:
                facts.write_numbers()
            self.numbered = count

    def is_lasting(self) -> bool:
        """Whether it may apply again: modules and optimizers have the same tensors."""
        return all(facts.are_lasting() for facts in self.facts)

    def is_current(self) -> bool:
        """Whether the tensors outside are those that were there when the plan was made."""
        for leaf, known in self.assumed:
            t = leaf()
            if t is not None and t.grad is not (None if known is None else known()):
                return False
        if self.seen == tensor_registry.changes[0]:
            return True
        gone = []
        for known, node, base in self.outside:
            t = known()
            if t is None:
                gone.append(base)
            elif t.uop is not node and _assigned(t) is not node:
                return False
        if not gone:
            return True
        held = {base for known, _, base in self.outside if known() is not None}
        return all(base in held or base not in self.targets for base in gone)

    def run(self, leaves: list[Any]) -> Any:
        """Bind, run, and wrap what came out."""
        plan = self._plan
        held: dict[str, Buffer] = {}
        values = self._values(leaves) if self.has_sizes or self.variables else {}
        if plan is not None:
            bound: dict[str, Any] = {}
            is_new = bool(self.memory) and self.seen != tensor_registry.changes[0]
            if is_new:
                _settle(self.memory, self.targets, self.harmless, self._families())
            changed = [leaves[p] for p in self.written if isinstance(leaves[p], Core)]
            if changed:
                targets = {tracing.memory_of(_realized(t).uop) for t in changed}
                _settle(targets, targets, set(), {family(t) for t in changed})
                for t in changed:
                    tensor_registry.own_memory(t.uop)
            for place, name in self.names:
                leaf = leaves[place]
                if isinstance(leaf, Core):
                    bound[name] = _buffer(leaf)
                else:
                    bound[name] = leaf if leaf.dtype.kind != "c" else _pairs(leaf)
            for result, allocator, where, size in self.fresh:
                storage = Storage(where, size * result.dtype.itemsize, allocator)
                buffer = Buffer(storage, size, result.dtype)
                bound[result.port] = held[result.port] = buffer
            with plan._lock:
                plan._wiring.rebind(bound)
                if values:
                    plan.set_vars(values)
                if self.draws:
                    self._draw()
                plan.execute()
            if is_new and self.targets:
                self._refresh()
            refresh(changed)
            maybe_sweep()
        made = Wrapping(held, values, self.line).results(self.results, leaves)
        found = made[0] if self.is_single else unflatten(self.form, made)
        is_noted = tracing.state.effects is not None
        for leaf, grad in self.left:
            t = leaf()
            if t is not None and (is_noted or getattr(t, "_grad", None) is not grad):
                t.grad = grad
        self.seen = tensor_registry.changes[0]
        return found

    def _values(self, leaves: list[Any]) -> dict[str, int]:
        """What the arguments bind variables to; one variable has one value."""
        found: dict[str, int] = {}
        for leaf in leaves:
            sizes = leaf.uop.shape if isinstance(leaf, Core) else (leaf,)
            for size in [s for s in sizes if isinstance(s, UOp)]:
                for bind in [n for n in size.toposort() if n.op == O.BIND]:
                    bind_value(found, bind, "arguments of a jit function")
        return found

    def _refresh(self) -> None:
        """Tensors that show what was written, but have memory of their own, follow."""
        for known in self.writers:
            t = known()
            if t is not None and tracing.memory_of(B.floats_of(t.uop)) in self.targets:
                refresh((t,))
        for origin in self.origins:
            group = [t for r in origin.storage.aliases if (t := r()) is not None]
            refresh([t for t in group if tracing.memory_of(B.floats_of(t.uop)) in self.targets])

    def _draw(self) -> None:
        if self.has_drawn:
            self.has_drawn = False
            return
        for generator, count, words in self.draws:
            words.copyin(generator.words(count))


def _keys(t: Any) -> tuple[Any, ...]:
    """What a tensor has in common with those that show its elements, or its memory."""
    memory = tracing.memory_of(B.floats_of(t.uop))
    return (family(t), memory) if memory.op == O.BUFFER else (family(t),)


def _buffer(t: Tensor) -> Buffer:
    """The memory of a tensor, computed now where there is none."""
    node = B.floats_of(t.uop)
    found: Buffer | None = (
        node.arg.buffer if node.op == O.BUFFER else tensor_registry.buffer_of(node)
    )
    if found is None:
        found = tensor_registry.buffer_of(B.floats_of(_realized(t).uop))
        if found is None:  # a value that is no buffer even when realised, such as an empty one
            raise DTypeError(f"jit: a tensor of shape {t.shape} has no memory")
    return found


def _pairs(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Complex numbers as pairs of floats, in the same memory where it is row-major."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype).reshape(*array.shape, 2)


def _realized(t: Tensor) -> Tensor:
    if tensor_registry.buffer_of(t.uop) is None:
        with history.paused():
            realize([t])
    return t


def _settle(reads: Set[UOp], writes: Set[UOp], harmless: set[int], families: Set[Any]) -> None:
    due = overdue(reads, writes, harmless, families)
    if due:
        with history.paused():
            realize(due)


def _lost(t: Tensor) -> Tensor:
    """A tensor of the same shape whose values nobody can read."""
    return wrap(B.like(t.uop, tracing.lost(B.floats_of(t.uop))), t._device)


def _assigned(t: Tensor) -> UOp:
    """The node of a tensor, once an assignment that waits has been made."""
    if B.floats_of(t.uop).op == O.ASSIGN:
        with history.paused():
            realize([t])
    return t.uop


def unbound_shape(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape over variables, without their values."""
    found = []
    for size in shape:
        if isinstance(size, UOp):
            binds = {n: n.src[0] for n in size.toposort() if n.op == O.BIND}
            size = replace_in_size(size, binds)
        found.append(size)
    return tuple(found)
