"""realize and prepare: from tensors to a plan, and from a plan back to tensors.

In: lazy tensors. Out: their values in memory, or a plan that computes them as often as wanted.
The graph is normalised, its schedule is found in the cache or made, buffers are attached, kernels
compiled. Then every live tensor that mentions a computed node is pointed at its buffer, in one
pass; only after that is the plan of a `realize` dropped, and with it all intermediate memory.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import (
    BatchOutputMismatch,
    BufferNotFound,
    ConfigError,
    EmptySchedule,
    ShapeError,
)
from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.device.names import DISK_PREFIX
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, elements, make, serial, toposort
from svod.ir.placement import has_meshes, is_mesh
from svod.ir.scan import replaced
from svod.ir.sweep import maybe_sweep, note_buffers
from svod.runtime.assemble import PortNames
from svod.runtime.config import PrepareConfig
from svod.runtime.freeze import Constants, freeze_schedule
from svod.runtime.instantiate import check_before_writing, instantiate
from svod.runtime.ops import PreparedCustomFunction, PreparedKernel
from svod.runtime.plan import ExecutionPlan, watchers
from svod.runtime.plan_facts import PlanFacts
from svod.runtime.ports import Shape
from svod.runtime.prepare import prepare_plan
from svod.schedule.normalize import Normalization, normalization
from svod.schedule.partition import Partition, on_mesh
from svod.schedule.preschedule import PreSchedule, restored
from svod.schedule.schedule import pre_schedule, schedules
from svod.schedule.sizes import check_ranges
from svod.tensor.core import history, tensor_registry, tracing
from svod.tensor.core.tensor_core import wrap
from svod.tensor.recording.kept_plans import put, take
from svod.tensor.recording.parts import Names, Place, names_of_parts, places_of, shapes_of
from svod.tensor.recording.scalar_arguments import count_compilation, lifted
from svod.tensor.views.pending_writes import assignments, deferred, with_writes

if TYPE_CHECKING:
    from svod.tensor.recording.debug_output import Watch
    from svod.tensor.tensor import Tensor

_STORED = (O.ASSIGN, O.COPY, O.SCATTER, O.CONTIGUOUS, O.CUSTOM_FUNCTION, O.SORT)


def realize(tensors: Sequence[Tensor], config: Any = None) -> None:
    """Compute the values of tensors; shared parts are computed once."""
    if any(t.uop.op == O.COMPLEX for t in tensors):
        _realize_pairs(tensors, config)
        return
    if tracing.state.depth:
        tensors = deferred(tensors)
    pending = _pending(tensors)
    if not pending:
        return
    context = "bind extraction" if len(pending) == 1 else "realize_batch input collection"
    if not tracing.state.depth:
        pending = [t for t in with_writes(pending) if 0 not in t.uop.shape]
    watch = _watch("realize", pending)
    on_one = not (has_meshes() and on_mesh([t.uop for t in pending]))
    is_plain = on_one and config is None and watch is None and not watchers
    config = PrepareConfig.of(config)
    found, results, made = _compute(pending, config, context, watch, on_one, is_plain)
    if len(results) < len(pending):
        raise BatchOutputMismatch(len(pending), len(results))
    places = places_of(pending, None if made is None else made.parts)
    note_buffers([*found.buffers, *wire(pending, results, places)])
    del made  # only now: intermediate memory goes after the tensors have theirs


def _compute(
    tensors: Sequence[Tensor],
    config: PrepareConfig,
    context: str,
    watch: Watch | None,
    on_one: bool,
    is_plain: bool,
) -> tuple[Normalization, list[Buffer], Made | None]:
    """The graph of the tensors, their values, and the plan that computed them.

    Where the plan of an equal graph was kept, it runs again; in a new one, numbers that change from
    call to call are arguments.
    """
    default = tensors[0].device
    state = (default, config.optimizer, config.memory, knobs.codegen_key(), knobs.threads)
    graph, kept, is_known = None, None, True
    with _Uncollected():
        if on_one:
            roots = _roots(tensors)
            graph = _normalized(roots, context)
            kept = take((graph.sink.sn, *state)) if is_plain else None
            if kept is None:
                is_known = _is_known(graph, default, config)
                changed = roots if is_known else lifted(roots, default)
                if changed is not roots:
                    graph = _normalized(changed, context)
                    kept = take((graph.sink.sn, *state)) if is_plain else None
                    is_known = kept is not None or _is_known(graph, default, config)
        if kept is None:
            made = _make_plan(tensors, config, context, None, None, graph)
    if kept is not None and graph is not None:
        try:
            held = input_buffers(graph.parameters)
            return graph, kept.run([held[node.sn] for node in graph.parameters]), None
        finally:
            put((graph.sink.sn, *state), kept)
    plan = made.plan
    if watch is None:
        plan.execute()
    else:
        watch.prepared(plan)
        watch.execute(plan)
    results = plan.output_buffers()
    if is_plain and is_known and graph is not None:
        kept = plan.without_memory([node.sn for node in graph.parameters])
        if kept is not None:
            put((graph.sink.sn, *state), kept)
    return made.found, results, made


def _realize_pairs(tensors: Sequence[Tensor], config: Any) -> None:
    """Complex tensors are computed as their floats."""
    pairs = as_floats(tensors)
    realize(pairs, config)
    for tensor, floats in zip(tensors, pairs, strict=True):
        if floats is not tensor:
            tensor.uop = B.complex_view(floats.uop)


def as_floats(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Each complex tensor as a tensor of its pairs of floats; the others as they are."""
    return [t if t.uop.op != O.COMPLEX else wrap(t.uop.src[0], t._device) for t in tensors]


def prepare(
    tensors: Sequence[Tensor],
    config: Any = None,
    inputs: Mapping[str, Tensor] | Sequence[Tensor] | None = None,
    outputs: Sequence[str] | None = None,
    freeze: bool = False,
    target: str | None = None,
) -> ExecutionPlan:
    """The plan that computes the tensors; they point at its outputs at once.

    The plan's inputs are the buffers of the graph: those of the tensors in ``inputs`` by their
    names, the others as input0, input1, .. in the order of their creation; ``inputs`` without
    names come first. The outputs are called as ``outputs`` says, else output0, output1, .. Where
    inputs or outputs are named, every tensor is an output; else those that are not realised yet.

    With ``freeze``, memory that is no input and that the plan does not write is constant: what
    depends on it alone is computed now, matrices are packed now, and the plan keeps these values.

    With ``target``, such as ``"aarch64-linux+dotprod"``, the plan is for such a machine: it can be
    saved and exported, and runs where that machine's instructions are.
    """
    if tracing.state.depth:
        tracing.refuse_traced(tensors)
    config = PrepareConfig.of(config).for_machine(target)
    if freeze and not inputs:
        raise ConfigError("freeze=True needs inputs=[..]: all other memory becomes constant")
    if inputs is not None and not isinstance(inputs, Mapping):
        inputs = {f"input{number}": tensor for number, tensor in enumerate(inputs)}
    named = _named_inputs(inputs or {})
    pairs = {name for name, tensor in (inputs or {}).items() if tensor.uop.op == O.COMPLEX}
    asked = tensors
    tensors = as_floats(tensors)
    both = list(zip(tensors, asked, strict=True))
    # A function of its inputs: every tensor is a result, also a view of an input.
    is_function = bool(inputs or outputs)
    pending = [_as_output(t) for t in tensors] if is_function else _pending(tensors)
    if not pending:
        raise EmptySchedule("nothing to prepare: every tensor is realised, or there is none")
    watch = _watch("prepare", pending)
    context = "bind extraction" if len(pending) == 1 else "prepare_batch input collection"
    live = frozenset(named) if freeze else None
    places = [i for i, t in enumerate(pending) if any(t is f and f is not a for f, a in both)]
    plan, found, parts = _plan(pending, config, context, (named, outputs, pairs, places), live)
    if watch is not None:
        watch.prepared(plan)
    made = assignments(pending)
    places = places_of(pending, parts)
    note_buffers([*found.buffers, *wire(pending, plan.output_buffers(), places)])
    tensor_registry.replace_nodes({node: _assigned(node) for node in made})
    for tensor, floats in zip(asked, tensors, strict=True):
        if floats is not tensor:
            tensor.uop = B.complex_view(floats.uop)
    return plan


def _as_output(tensor: Tensor) -> Tensor:
    """What is computed for a tensor: a copy of one that has memory, which may be an input."""
    node = tensor.uop
    if tensor_registry.buffer_node(node) is None or 0 in node.shape:
        return tensor
    return wrap(make(O.CONTIGUOUS, node.dtype, (node,)), tensor._device)


def recorded_plan(
    tensors: Sequence[Tensor],
    config: Any,
    ports: PortNames,
    live: frozenset[UOp] | None = None,
) -> tuple[ExecutionPlan, Partition | None]:
    """The plan of a recorded function, and its parts where it is over a mesh; no tensor is pointed
    at its outputs.

    With ``live``, the BUFFERs that are not in it and not written are constants of the plan.
    """
    plan, found, parts = _plan(tensors, PrepareConfig.of(config), "jit", ports, live)
    note_buffers(found.buffers)
    return plan, parts


def realize_batch(tensors: Iterable[Tensor], config: Any = None) -> None:
    """`realize` for any iterable; with no tensors it does nothing."""
    realize(list(tensors), config)


def prepare_batch(tensors: Iterable[Tensor], config: Any = None, **names: Any) -> ExecutionPlan:
    """`prepare` for any iterable."""
    return prepare(list(tensors), config, **names)


def schedule_of(
    tensors: Sequence[Tensor], config: Any = None
) -> tuple[PreSchedule, tuple[UOp, ...]]:
    """The cached schedule of tensors that are not realised, and what its placeholders stand for."""
    found = _normalized([B.floats_of(t.uop) for t in tensors], "bind extraction")
    return _schedule(found, tensors[0].device, PrepareConfig.of(config)), found.parameters


def wire(
    pending: Sequence[Tensor], results: Sequence[Buffer], places: Sequence[Place] = ()
) -> list[UOp]:
    """Point the tensors, and every live tensor built on them, at the results.

    Results belong to tensors by position; tensors past the last one stay as they are. Returns
    the new BUFFERs.
    """
    mapping: dict[UOp, UOp] = {}
    owners: dict[UOp, Tensor] = {}
    bases: dict[tuple[int, Place], UOp] = {}
    held = list(places) or [None] * len(pending)
    for tensor, buffer, place in zip(pending, results, held, strict=False):
        old = tensor.uop
        if old.op == O.ASSIGN:
            mapping[old] = _assigned(old)
            continue
        if not buffer.size:
            continue  # it has its memory
        where = buffer.device if place is None else place.mesh
        is_split = place is not None and place.placed is not None
        if elements(old.shape) != buffer.size and not is_split:
            raise ShapeError(f"an output of {buffer.size} elements is no tensor of {old.shape}")
        tensor._device = where
        if old in mapping and tensor_registry.device_below(mapping[old]) == where:
            continue  # made alike
        base = bases.get((buffer.id, place))
        if base is None:
            base = B.new_buffer(elements(old.shape), buffer.dtype, where, buffer)
            base.arg.placed = None if place is None else place.placed
            bases[buffer.id, place] = base
        else:  # values that differ only in their gradients are computed once
            base = tensor_registry.twin_of(base, has_history=False)
        new = B.view_as(base, old.shape)
        # The memory of a constant is this tensor's own: others may be written to as well.
        if _is_constant(old) or old in mapping:
            tensor.uop = new
        else:
            mapping[old] = new
            if not history.is_mark(old):  # nothing else is equal to a leaf; its views are its own
                owners[old] = tensor
    if mapping:
        tensor_registry.replace_nodes(mapping, owners)
        if any(t._link is not None for t in pending):  # a view may have memory of its own now
            tensor_registry.changes[0] += 1
    return list(bases.values())


def input_buffers(nodes: Iterable[UOp]) -> dict[int, Buffer]:
    """The memory behind BUFFER and BUFFER_VIEW nodes by their ids; new where there is none yet."""
    found: dict[int, Buffer] = {}
    for node in nodes:
        if node.op == O.BIND:
            continue
        buffer = node.arg.buffer if node.op == O.BUFFER else tensor_registry.buffer_of(node)
        if buffer is None:
            buffer = _ensure_memory(node)
        found[node.sn] = buffer
    return found


# -- what there is to do ------------------------------------------------------------------------


def _pending(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that must be computed; those with memory, or without elements, get theirs."""
    found = []
    for t in tensors:
        node = t.uop
        if tensor_registry.buffer_node(node) is not None:
            _ensure_memory(node)
        elif 0 in node.shape:
            _empty(t)
        else:
            found.append(t)
    return found


def _ensure_memory(node: UOp) -> Buffer:
    base = tensor_registry.buffer_node(node)
    if base is not None and base.op == O.BUFFER_VIEW:
        base = base.src[0]
    if base is None or base.op != O.BUFFER:
        raise BufferNotFound(node.sn, "an input of the graph")
    if base.arg.buffer is None:
        tracing.refuse_gone(base)
        base.arg.buffer = Buffer.new(base.src[-1].arg, base.arg.size, base.dtype)
    found = tensor_registry.buffer_of(node)
    assert found is not None
    return found


def _empty(tensor: Tensor) -> None:
    device = tensor.device
    buffer = Buffer.new(device, 0, tensor.dtype)
    node = B.reshape(B.new_buffer(0, tensor.dtype, device, buffer), tensor.shape)
    tensor_registry.replace_nodes({tensor.uop: node})


def _named_inputs(inputs: Mapping[str, Tensor]) -> dict[UOp, tuple[str, Shape]]:
    """The BUFFER of each named tensor, computed first where it has none."""
    pending = [t for t in inputs.values() if tensor_registry.buffer_node(t.uop) is None]
    if pending:
        realize(pending)
    found: dict[UOp, tuple[str, Shape]] = {}
    for name, tensor in inputs.items():
        node = tensor_registry.buffer_node(tensor.uop)
        assert node is not None
        if node in found:
            raise ConfigError(f"inputs {found[node][0]!r} and {name!r} are the same tensor")
        found[node] = (name, B.floats_of(tensor.uop).shape)
    return found


# -- the plan -----------------------------------------------------------------------------------


class Made(NamedTuple):
    """A plan, the graph it is made of, and the parts of this process where that is on a mesh."""

    plan: ExecutionPlan
    found: Normalization
    parts: Partition | None


def _plan(
    pending: Sequence[Tensor],
    config: PrepareConfig,
    context: str,
    names: Names | PortNames | None = None,
    live: frozenset[UOp] | None = None,
) -> Made:
    with _Uncollected():
        return _make_plan(pending, config, context, names, live)


class _Uncollected:
    """Keeps the garbage collector out while a graph becomes a plan.

    Preparation makes many objects and almost no cycles: looking for these costs a fifth of it.
    Afterwards all objects count as old: they have just been made, to be kept. Else the collector
    would walk over all nodes of a graph several times before it thinks so itself.
    """

    __slots__ = ("_was_collecting",)

    def __enter__(self) -> None:
        maybe_sweep()  # what earlier work left behind
        self._was_collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_collecting:
            if not gc.get_freeze_count():  # somebody else's frozen objects would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _make_plan(
    pending: Sequence[Tensor],
    config: PrepareConfig,
    context: str,
    names: Names | PortNames | None,
    live: frozenset[UOp] | None,
    graph: Normalization | None = None,
) -> Made:
    default = pending[0].device
    roots = _roots(pending)
    parts = None
    if has_meshes() and on_mesh(roots):
        nodes = [_on_device(t, t.device) for t in pending if 0 not in t.uop.shape]
        if names is not None:  # before the host's view of the memory is made
            for node in toposort(nodes):
                if node.op == O.BUFFER and is_mesh(node.src[-1].arg):
                    tensor_registry.own_memory(node)
        parts = Partition(nodes)
        roots, default = parts.roots, "CPU"
        names = names_of_parts(names, parts)
        live = None if live is None else frozenset([parts.memory.get(n, n) for n in live])
    folded: list[Buffer] = []
    if live is not None:
        roots, folded = _folded(roots, live, config)
    found = graph or _normalized(roots, context)
    if not _is_known(found, default, config):
        if graph is None and names is None and live is None:  # of a plan that is run once
            found = _normalized(lifted(roots, default), context)
        count_compilation(pending[0].uop, pending[0].shape)
    if isinstance(names, tuple) and found.values:  # callers may give variables other values
        check_ranges(found.sink)
    schedule = _schedule(found, default, config)
    if knobs.debug >= 3:
        from svod.tensor.recording.debug_output import say_schedule

        say_schedule(schedule)
    if names is not None:  # the plan lives on and keeps the memory it was made with
        for node in found.parameters:
            tensor_registry.own_memory(node)
    inputs = input_buffers(found.parameters)
    own = restored(schedule, found)
    if found.checks:  # their words are nobody's results
        own = replace(own, outputs=own.outputs[len(found.checks) :])
    ready = instantiate(own, inputs, found.values)
    if found.checks:
        check_before_writing(ready)
    constants = Constants()
    if live is not None:
        constants = freeze_schedule(ready, {node.sn for node in live}, folded, config)
    ports = names if isinstance(names, PortNames) else None
    if isinstance(names, tuple):
        shapes = shapes_of(pending, roots, parts is not None)
        ports = _port_names(found, pending, shapes, *names, constants.ids)
    plan = prepare_plan(ready, config, ports)
    if constants.nbytes:
        plan.memory = replace(plan.memory, constant_bytes=constants.nbytes)
    if knobs.origins:
        _trace_kernels(plan, schedule, found)
    return Made(plan, found, parts)


def _roots(tensors: Sequence[Tensor]) -> Sequence[UOp]:
    """What is computed for the tensors that have elements."""
    default = tensors[0].device
    return [_on_device(t, default) for t in tensors if 0 not in t.uop.shape]


def _on_device(tensor: Tensor, default: str) -> UOp:
    """The value of a tensor; what reads no memory is computed on the default device."""
    node, device = tensor.uop, tensor.device
    if device == default or tensor_registry.device_below(node) is not None:
        return node
    return B.copy(node, device)


def _folded(
    roots: Sequence[UOp], live: frozenset[UOp], config: PrepareConfig
) -> tuple[Sequence[UOp], list[Buffer]]:
    """The roots with their constant parts computed, and the memory these are in."""
    from svod.tensor.recording.constant_parts import constant_parts

    parts = constant_parts(roots, live)
    if not parts:
        return roots, []
    tensors = [wrap(part, None) for part in parts]
    plan, found, _ = _make_plan(tensors, config.here(), "freeze", None, None)
    plan.execute()
    buffers = plan.output_buffers()
    mapping = {
        part: B.view_as(B.new_buffer(b.size, b.dtype, b.device, b), part.shape)
        for part, b in zip(parts, buffers, strict=True)
    }
    note_buffers(found.buffers)
    return replaced(roots, mapping), buffers


def _trace_kernels(plan: ExecutionPlan, schedule: PreSchedule, found: Normalization) -> None:
    """Tell every kernel of the plan which line of user code it computes."""
    lines: dict[int, Any] = {}
    for item in schedule.items:
        origin = item.call.origin
        lines[item.id] = found.origins.get(origin) if isinstance(origin, int) else origin
    owner = {item.arguments[0]: item.id for item in schedule.items if item.arguments}
    for output, line in zip(schedule.outputs, found.checks, strict=False):
        lines[owner[output]] = line
    for op in plan.prepared_ops():
        if isinstance(op, (PreparedKernel, PreparedCustomFunction)):
            op.origin = lines.get(op.id)
    plan.facts = PlanFacts(schedule.facts, found.origins)


def _normalized(nodes: Sequence[UOp], context: str) -> Normalization:
    roots: list[UOp] = []
    for node in nodes:
        if node.op not in _STORED:
            # Two tensors of zeros are equal nodes, but each gets memory of its own.
            number = len(roots) if _is_constant(node) else None
            node = make(O.CONTIGUOUS, node.dtype, (node,), number)
        roots.append(node)
    return normalization(make(O.SINK, dt.void, tuple(roots)), context)


def _is_constant(node: UOp) -> bool:
    """Whether a tensor is one number everywhere, or counts."""
    while node.op in O.MOVEMENT or node.op == O.CAST:
        node = node.src[0]
    return node.op in (O.CONST, O.IOTA)


def _schedule(found: Normalization, default: str, config: PrepareConfig) -> PreSchedule:
    use_cache = not config.disable_schedule_cache
    if default.startswith(DISK_PREFIX):
        default = "CPU"  # a disk computes nothing
    identity = compiler_identity(found, default, config)

    def capable(name: str) -> Capabilities:
        return config.resolve_device(name).capabilities

    return pre_schedule(found, default, use_cache, identity, capable)


def _is_known(found: Normalization, default: str, config: PrepareConfig) -> bool:
    """Whether the schedule of a graph is in the cache, so that nothing will be compiled."""
    return (found.sink, default, compiler_identity(found, default, config)) in schedules


def compiler_identity(found: Normalization, default: str, config: PrepareConfig) -> str:
    """The compiler a schedule is for: of the first device that holds an input and is no disk."""
    held = [b.arg.buffer.device for b in found.buffers if b.arg.buffer is not None]
    named = [b.src[-1].arg for b in found.buffers]
    for name in [*held, *named, default]:
        if not name.startswith(DISK_PREFIX):
            device = config.resolve_device(name)
            return device.compiler.cache_key() if device.runs_programs else device.name
    return config.resolve_device("CPU").compiler.cache_key()


def _port_names(
    found: Normalization,
    pending: Sequence[Tensor],
    result_shapes: Sequence[tuple[Any, ...]],
    given: Mapping[UOp, tuple[str, Shape]],
    outputs: Sequence[str] | None,
    complex_inputs: Collection[str],
    complex_places: Collection[int],
    constants: Collection[int],
) -> PortNames:
    inputs: dict[int, tuple[str, Shape | None]] = {}
    taken = {name for name, _ in given.values()}
    number = 0
    for node in sorted(found.parameters, key=serial):
        if node.op == O.BIND or node.sn in constants:
            continue
        if node in given:
            inputs[node.sn] = given[node]
            continue
        while f"input{number}" in taken:
            number += 1
        inputs[node.sn] = (f"input{number}", None)
        number += 1
    for node, (name, shape) in given.items():
        if node.sn not in inputs and 0 not in shape:  # without elements, nothing can depend on them
            raise ConfigError(
                f"the tensors do not depend on the input {name!r}: where it is a constant such as "
                "zeros, realize() it before it is used, so that it has memory"
            )
        inputs[node.sn] = (name, shape)
    names = list(outputs or [])
    if names and len(names) != len(pending):
        raise ConfigError(f"{len(pending)} outputs need as many names, got {names}")
    if not names:
        names = [f"output{i}" for i in range(len(pending))]
    shapes = list(zip(names, result_shapes, strict=True))
    pairs = frozenset((*complex_inputs, *[names[place] for place in complex_places]))
    empty = {n: Buffer.new(t.device, 0, t.dtype) for n, t in enumerate(pending) if 0 in t.shape}
    memory = {node.sn: _ensure_memory(node) for node in given}
    return PortNames(inputs, shapes, pairs, empty, memory)


def _assigned(node: UOp) -> UOp:
    """After an assignment has run, its value is what its target shows."""
    while node.op == O.ASSIGN:
        node = node.src[0]
    if node.op in O.MOVEMENT:
        inner = _assigned(node.src[0])
        return node if inner is node.src[0] else make(node.op, node.dtype, (inner,), node.arg)
    return node


def _watch(word: str, pending: Sequence[Tensor]) -> Watch | None:
    """Clocks and counters for SVOD_DEBUG; times of preparing and running are told apart."""
    if not knobs.debug:
        return None
    from svod.tensor.recording.debug_output import Watch

    return Watch(word, len(pending))
