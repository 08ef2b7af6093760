"""Cut a tensor graph into kernel calls.

In: a SINK and the set of nodes to store. Out: CALLs in order. A call's body is a small tensor
graph over PARAMs, ``SINK(STORE(view of PARAM 0, value))``; since nodes are interned, equal layers
have the very same body, so everything after this point is done once per distinct kernel.
Order lives in AFTER: a read of a stored value is ``AFTER(BUFFER, CALL)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import BufferArg, ParamArg
from svod.ir.build import view_as, whole_of
from svod.ir.capabilities import Capabilities, Capable, capabilities_of
from svod.ir.node import UOp, elements, make, stored_shape
from svod.ir.scan import Loop, loop_of, outer_order
from svod.schedule.attention import whole_kernels
from svod.schedule.bands import find_bands
from svod.schedule.block_sums import block_sums
from svod.schedule.files import FilePart, file_part, is_disk
from svod.schedule.operands import decide_operands
from svod.schedule.overwrites import Overwritten, base_buffer, ordered, with_copies
from svod.schedule.prefixes import scanned_values
from svod.schedule.reasons import CallFacts, Reason
from svod.schedule.scan import Target, emit_loop
from svod.schedule.storage import decide_storage
from svod.schedule.views import Shape, movement_chain


@dataclass(slots=True)
class Cut:
    """Kernel calls in execution order, and where the results are."""

    calls: list[UOp] = field(default_factory=list)
    outputs: list[UOp] = field(default_factory=list)  # AFTER or BUFFER nodes, in SINK order
    facts: dict[UOp, CallFacts] = field(default_factory=dict)  # of calls, for people


def cut(
    sink: UOp,
    default_device: str,
    capable: Capable = capabilities_of,
    in_place: frozenset[UOp] = frozenset(),
) -> Cut:
    """Decide what is stored and make one call per stored value; products ``in_place`` read the
    windows of their factors from where those are."""
    while True:
        try:
            return Cutter(sink, default_device, capable, in_place).run()
        except Overwritten as found:
            sink = with_copies(sink, found.values)


def devices(order: list[UOp]) -> dict[UOp, str]:
    """Where nodes are computed, as far as a buffer below or a copy says so.

    What is computed from files alone is not in the result: a disk holds values and computes none.
    """
    device: dict[UOp, str] = {}
    for n in order:
        if n.op == O.COPY:
            device[n] = n.src[1].arg
        elif n.op in (O.BUFFER, O.PARAM) and n.src:
            device[n] = n.src[-1].arg
        else:
            for s in n.src:
                found = device.get(s)
                if found is not None and (n.op in _SHOWING or not is_disk(found)):
                    device[n] = found
                    break
    if len(set(device.values())) > 1:  # what reads no memory is computed where it is used
        for n in reversed(order):
            where = device.get(n)
            if where is not None and n.op not in (O.COPY, O.SINK) and not is_disk(where):
                for s in n.src:
                    device.setdefault(s, where)
    return device


# Nodes that show memory and compute nothing.
_SHOWING = O.MOVEMENT | {O.AFTER, O.ASSIGN, O.BUFFER_VIEW}


class Numbers:
    """Numbers of local buffers and loops, each given once in a graph and the loops inside it."""

    def __init__(self) -> None:
        self.locals = self.loops = -1

    def next_local(self) -> int:
        self.locals += 1
        return self.locals

    def next_loop(self) -> int:
        self.loops += 1
        return self.loops


class Cutter:
    """Cuts one graph; the body of a loop inside it is cut by a cutter of its own."""

    def __init__(
        self,
        sink: UOp,
        default_device: str,
        capable: Capable = capabilities_of,
        in_place: frozenset[UOp] = frozenset(),
    ) -> None:
        self.sink = sink
        self.default_device = default_device
        self.capable = capable
        self.in_place = in_place
        self.order = outer_order((sink,))
        self.device = devices(self.order)

        able = self._able
        whole = whole_kernels(self.order, able)
        held = find_bands(self.order, lambda node: able(node).takes is None)
        apart = held.values | held.passes | whole.inside
        operands = decide_operands(self.order, able, apart, in_place)
        whole.stored |= operands.stored
        inside = operands.inside | scanned_values(self.order, able)
        inside |= block_sums(self.order, able)
        self.reasons: dict[UOp, Reason] = {}
        self.stored = decide_storage(
            sink, self.order, whole, held, inside, lambda node: able(node).runs_blocks, self.reasons
        )
        self.place: dict[UOp, UOp] = {}  # stored node -> what a call reads: AFTER(BUFFER, CALL)
        self.lines: dict[UOp, Any] = {}  # node -> line of user code
        self.readers: dict[UOp, list[UOp]] = {}  # buffer or parameter -> calls that read it
        self.last_write: dict[UOp, UOp] = {}
        self.views: dict[UOp, tuple[list[UOp], UOp]] = {}  # movement and memory of partial values
        self.loops: dict[Loop, list[UOp]] = {}  # the SCAN nodes of each loop
        self.binds: tuple[UOp, ...] = ()  # counters of the loops around
        self.targets: dict[UOp, Target] = {}  # values of a loop's body that go into slots
        self.numbers = Numbers()
        self.inside: dict[UOp, UOp] = {}  # nodes of the latest body, by what they were
        self.cut = Cut()

    def inside_loop(self, sink: UOp, device: str, bind: UOp, targets: dict[UOp, Target]) -> Cutter:
        """A cutter of a loop's body: its calls are given the counter, some write into slots."""
        inner = Cutter(sink, device, self.capable, self.in_place)
        inner.numbers, inner.cut = self.numbers, Cut(self.cut.calls)
        inner.binds = (*self.binds, bind)
        inner.targets = targets
        return inner

    def run(self) -> Cut:
        order = self.order
        self._propagate_lines(order)
        for node in order:
            if node.op == O.SCAN:
                self.loops.setdefault(loop_of(node), []).append(node)
        pending = [n for n in order if n in self.stored]
        for node in ordered(pending, self.stored):
            self._emit(node)
        for root in self.sink.src:
            self.cut.outputs.append(self._storage_of(root))
        return self.cut

    def _able(self, node: UOp) -> Capabilities:
        """What the device that computes a node can do."""
        return self.capable(self.device.get(node, self.default_device))

    def _propagate_lines(self, order: list[UOp]) -> None:
        """What has no line of user code belongs to the line of what was made from it."""
        lines = self.lines
        for node in reversed(order):
            line = node.origin
            if line is None:
                line = lines.get(node)
            if line is not None:
                lines[node] = line
                for s in node.src:
                    lines.setdefault(s, line)

    def _new_buffer(self, node: UOp, device: UOp | None = None) -> UOp:
        if device is None:
            device = make(O.DEVICE, dt.void, (), self.device.get(node, self.default_device))
        unique = make(O.LUNIQUE, dt.void, (), self.numbers.next_local())
        return make(O.BUFFER, node.dtype, (unique, device), BufferArg(elements(node.shape)))

    def _storage_of(self, node: UOp) -> UOp:
        """What a call must be given to read this stored value or buffer."""
        while node not in self.place and whole_of(node) is not node:
            node = node.src[0]
        found = self.place.get(node)
        if found is not None:
            return found
        if node.op in (O.BUFFER, O.PARAM, O.BUFFER_VIEW, O.MSELECT, O.MSTACK):
            return node
        if node.op == O.AFTER:
            calls = [self.place[a].src[1] for a in node.src[1:]]
            return make(O.AFTER, node.dtype, (node.src[0], *calls))
        raise GraphError(f"no storage was decided for {node!r}")

    def _emit(self, node: UOp) -> None:
        first = len(self.cut.calls)
        self.inside = {}
        self.emit_calls(node)
        for call in self.cut.calls[first:]:
            if call.origin is None:
                call.origin = self.lines.get(node) or self.lines.get(node.src[0])
            self.cut.facts[call] = self._facts(node, call.origin)

    def _facts(self, node: UOp, line: Any) -> CallFacts:
        """What is known of the call that stores a node."""
        reasons, lines = self.reasons, self.lines
        kept, origins = [], []
        for old, new in self.inside.items():
            if new.op == O.PARAM or not new.src:
                continue
            if old in reasons and old is not node:
                kept.append((new, reasons[old]))
            found = lines.get(old)
            if found is not None and found != line:
                origins.append((new, found))
        return CallFacts(reasons.get(node), tuple(kept), tuple(origins))

    def emit_calls(self, node: UOp) -> None:
        if node in self.targets:
            self._emit_into(node, self.targets[node])
            return
        if node.op == O.ASSIGN:
            self._emit_assign(node)
            return
        if node.op == O.SCAN:
            emit_loop(self, node)
            return
        if node.op == O.CONTIGUOUS and self._is_alias(node.src[0]):
            self.place[node] = self._storage_of(node.src[0])
            return
        part = file_part(node, self.device)
        if part is not None:
            self._emit_part(node, part)
            return
        buffer = self._new_buffer(node)
        if node.op == O.COPY:
            body = make(O.COPY, node.dtype, (_param(node.src[0], 1), node.src[1]))
            call = self.call(body, buffer, [self._storage_of(node.src[0])])
        elif node.op == O.CUSTOM_FUNCTION:
            params = tuple([_param(s, i + 1) for i, s in enumerate(node.src)])
            body = make(O.CUSTOM_FUNCTION, node.dtype, params, node.arg)
            call = self.call(body, buffer, [self._storage_of(s) for s in node.src])
        elif node.op == O.SCATTER:
            call = self._emit_scatter(node, buffer)
        else:
            value = node.src[0] if node.op == O.CONTIGUOUS else node
            target = _target(node)
            body, arguments = self.body(target, value, node)
            call = self.call(body, buffer, arguments)
        self.place[node] = make(O.AFTER, node.dtype, (buffer, call))

    def _emit_into(self, node: UOp, target: Target) -> None:
        """A value of a loop's body that goes into a slot of memory."""
        memory = target.memory
        view = memory.at(memory.base, target.slot)
        body, arguments = self.body(view, node.src[0], node)
        call = self.call(body, target.place, arguments)
        self.place[node] = make(O.AFTER, node.dtype, (memory.buffer, call))
        self.views[node] = (movement_chain(view), memory.base)

    def _emit_part(self, node: UOp, part: FilePart) -> None:
        """A part of a file that is in one piece is seen where it lies: nothing is copied."""
        device = make(O.DEVICE, dt.void, (), self.device[part.memory])
        buffer = self._new_buffer(node, device)
        base = _param(part.memory, 1)
        body = make(O.BUFFER_VIEW, node.dtype, (base,), part.view)
        call = self.call(body, buffer, [self._storage_of(part.memory)])
        self.place[node] = make(O.AFTER, node.dtype, (buffer, call))

    def _is_alias(self, node: UOp) -> bool:
        """Whether the value is stored anyway; a buffer of the user's is copied, for either of
        the two may be written to later."""
        node = whole_of(node)
        return node in self.stored and node not in self.views

    def _emit_scatter(self, node: UOp, buffer: UOp) -> UOp:
        target = _target(node)
        body, arguments = self.body(target, node.src[0], node)
        first = self.call(body, buffer, arguments)
        place = make(O.AFTER, node.dtype, (buffer, first))
        scattered = make(O.SCATTER, node.dtype, (target, *node.src[1:]), node.arg)
        inner, arguments = self.substitute(scattered, {target: target}, 1)
        return self.call(make(O.SINK, dt.void, (inner,)), place, arguments)

    def _emit_assign(self, node: UOp) -> None:
        target, value = node.src
        base = base_buffer(node)
        chain = movement_chain(target)
        view = chain[-1].src[0] if chain else target
        if any(v.op in (O.EXPAND, O.PAD) for v in chain):
            raise GraphError("cannot assign to an expanded or padded view: elements would overlap")
        parameter = make(
            O.PARAM, node.dtype, (), ParamArg(0, base.shape if view is base else view.shape)
        )
        out = parameter
        for v in reversed(chain):
            out = make(v.op, v.dtype, (out,), v.arg)
        body, arguments = self.body(out, value, node)
        is_memory = view is base or view.op == O.AFTER
        before = self.last_write.get(base, base) if is_memory else self.place.get(view, base)
        waits = [c for c in self.readers.get(base, ()) if c not in before.src]
        where = make(O.AFTER, node.dtype, (before, *waits)) if waits else before
        call = self.call(body, where, arguments)
        after = make(O.AFTER, node.dtype, (base, call))
        self.last_write[base] = after
        self.place[node] = after
        self.views[node] = (chain, base)

    def body(self, target: UOp, value: UOp, root: UOp | None = None) -> tuple[UOp, list[UOp]]:
        inner, arguments = self.substitute(value, {}, 1, root)
        store = make(O.STORE, dt.void, (target, inner))
        return make(O.SINK, dt.void, (store,)), arguments

    def substitute(
        self, value: UOp, done: dict[UOp, UOp], slot: int, root: UOp | None = None
    ) -> tuple[UOp, list[UOp]]:
        """The value over PARAMs, and what to pass for them from ``slot`` on."""
        arguments: list[UOp] = []
        slots: dict[UOp, UOp] = {}

        def parameter(node: UOp, shape: Shape) -> UOp:
            place = self._storage_of(node)
            found = slots.get(place)
            if found is None:
                arg = ParamArg(slot + len(arguments), (elements(shape),))
                found = slots[place] = make(O.PARAM, node.dtype, (), arg)
                arguments.append(place)
            return view_as(found, shape)

        stack = [(value, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                src = tuple([done[s] for s in node.src])
                done[node] = node.with_sources(src)
                continue
            if node in self.stored and (node is not root or node.op == O.ASSIGN):
                if node in self.views:
                    done[node] = self._read_part(node, parameter)
                else:
                    done[node] = parameter(node, node.shape)
            elif node.op in (O.BUFFER, O.PARAM, O.BUFFER_VIEW, O.MSELECT, O.MSTACK, O.AFTER):
                done[node] = parameter(node, node.shape)
            elif not node.src or node.op == O.BIND:
                done[node] = node
            else:
                stack.append((node, True))
                for s in reversed(node.src):
                    if s not in done:
                        stack.append((s, False))
        self.inside = done
        return done[value], arguments

    def _read_part(self, node: UOp, parameter) -> UOp:  # type: ignore[no-untyped-def]
        chain, base = self.views[node]
        found = parameter(node, base.shape)
        for v in reversed(chain):
            found = make(v.op, v.dtype, (found,), v.arg)
        return found  # type: ignore[no-any-return]

    def call(self, body: UOp, out: UOp, arguments: list[UOp]) -> UOp:
        call = make(O.CALL, dt.void, (body, out, *arguments, *self.binds))
        self.cut.calls.append(call)
        for argument in arguments:
            base = argument
            while base.op == O.AFTER:
                base = base.src[0]
            self.readers.setdefault(base, []).append(call)
        return call


def _param(node: UOp, slot: int) -> UOp:
    return make(O.PARAM, node.dtype, (), ParamArg(slot, stored_shape(node.shape)))


def _target(node: UOp) -> UOp:
    """Where a stored value goes: the whole of argument 0."""
    return view_as(make(O.PARAM, node.dtype, (), ParamArg(0, stored_shape(node.shape))), node.shape)
