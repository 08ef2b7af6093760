"""jit: a function of tensors as prepared plans, one per signature of its arguments.

In: a Python function. Out: a callable that records the function at the first call with new shapes,
dtypes, devices or plain values, and from then on only binds memory and runs the plan. Tensors that
the function assigns to are state: they keep their memory, and the plan writes there. Results are
fresh tensors unless arguments are donated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svod.base.errors import ConfigError, DTypeError, VariableError
from svod.device.buffer import Buffer, Storage
from svod.device.registry import get_device
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, elements, is_symbolic, make, maybe_sweep, note_buffers
from svod.ir.scan import outer_order
from svod.runtime.prepare import PortNames
from svod.tensor import history, registry, tracing
from svod.tensor.core import Core, tensor_of, wrap
from svod.tensor.guard import guard_class, spelled
from svod.tensor.realize import realize, recorded_plan
from svod.tensor.tracing import Effects, recording
from svod.tensor.trees import Form, flatten, unflatten

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan
    from svod.tensor.tensor import Tensor

SIGNATURES = 32  # plans kept per function; the oldest goes first


def jit(
    function: Callable[..., Any] | None = None,
    *,
    state: Any = (),
    donate: int | Sequence[int] = (),
    config: Any = None,
    signatures: int = SIGNATURES,
    freeze: bool = False,
) -> Any:
    """The function as prepared plans: ``@svod.jit`` or ``@svod.jit(state=(model, optimizer))``.

    Arguments are tensors, arrays and structures of them; ``n.bind(7)`` is a value of a Variable
    and may change from call to call. Anything else is part of the signature. The function runs
    once per signature, so it must not depend on the values of tensors.

    Tensors it assigns to (parameters, optimizer state, caches) keep their memory and are updated
    by the plan; ``state`` names modules, optimizers and tensors that must have memory before, and
    whose values the function must not read. ``donate`` names positions of arguments whose memory
    results of the same shape take over. With ``freeze=True`` tensors that are neither arguments
    nor state nor assigned to are constant: they are folded and packed while recording, and what
    happens to them later does not change the results.

        >>> import svod
        >>> @svod.jit
        ... def f(x, y):
        ...     return (x @ y).relu()
        >>> f(svod.ones(2, 3), svod.ones(3, 4)).shape
        (2, 4)
        >>> f.plans
        1
    """
    positions = (donate,) if isinstance(donate, int) else tuple(donate)

    @spelled
    def decorate(f: Callable[..., Any]) -> Jit:
        return Jit(f, state, positions, config, signatures, freeze)

    return decorate if function is None else decorate(function)


class Jit:
    """A function with the plans recorded so far."""

    def __init__(
        self,
        function: Callable[..., Any],
        state: Any,
        donate: tuple[int, ...],
        config: Any,
        signatures: int = SIGNATURES,
        freeze: bool = False,
    ) -> None:
        if not callable(function):
            raise DTypeError(f"jit takes a function, not a {type(function).__name__}")
        self.function = function
        self.state = state
        self.donate = donate
        self.config = config
        self.signatures = signatures
        self.freeze = freeze
        self._known: dict[Any, _Prepared] = {}
        self._lock = RLock()
        self._refresh = [part.refresh for part in _parts(state) if hasattr(part, "refresh")]
        update_wrapper(self, function)

    @property
    def plans(self) -> int:
        """How many signatures have a plan."""
        return len(self._known)

    def plan(self, *args: Any, **options: Any) -> ExecutionPlan:
        """The plan for arguments like these; it is recorded if need be, but does not run."""
        signature, form, leaves = _signature(args, options)
        return self._prepared(signature, form, leaves).plan

    def clear(self) -> None:
        """Forget all plans."""
        with self._lock:
            self._known.clear()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if tracing.state.depth:  # part of something larger that is being recorded
            return self.function(*args, **options)
        signature, form, leaves = _signature(args, options)
        found = self._known.get(signature)
        if found is None:
            found = self._prepared(signature, form, leaves)
        for refresh in self._refresh:
            refresh()
        return found.run(leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method: the plans of each instance are its own, for its tensors are."""
        if instance is None:
            return self
        name = f"_jit_{self.function.__name__}"
        if name not in instance.__dict__:
            function = self.function.__get__(instance, owner)
            instance.__dict__[name] = Jit(
                function, self.state, self.donate, self.config, self.signatures, self.freeze
            )
        return instance.__dict__[name]

    def _prepared(self, signature: Any, form: Form, leaves: list[Any]) -> _Prepared:
        with self._lock:
            found = self._known.get(signature)
            if found is None:
                found = _Recorder(self, form, leaves).prepared()
                self._known[signature] = found
                while len(self._known) > self.signatures:
                    del self._known[next(iter(self._known))]
            return found


# -- signatures ------------------------------------------------------------------------------------


def _signature(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Form, list[Any]]:
    leaves, form = flatten((args, options) if options else args)
    key: list[Any] = [form]
    for leaf in leaves:
        if isinstance(leaf, Core):
            node = leaf.uop
            shape = node.shape
            if node.op != O.BUFFER and is_symbolic(shape):
                shape = _unbound_shape(shape)
            key.append((shape, node.dtype, leaf._device))
        elif isinstance(leaf, np.ndarray):
            key.append((leaf.shape, leaf.dtype.str))
        elif isinstance(leaf, UOp):
            key.append(_variable(leaf))
        else:
            key.append((type(leaf), leaf))
    found = tuple(key)
    try:
        hash(found)
    except TypeError:
        odd = [x for x in leaves if not isinstance(x, (Core, np.ndarray, UOp))]
        raise DTypeError(
            f"jit: an argument that is no tensor must be hashable: {odd!r:.80}"
        ) from None
    return found, form, leaves


def _variable(leaf: UOp) -> UOp:
    if leaf.op != O.BIND or leaf.src[1].op != O.CONST:
        raise VariableError(
            f"jit: a run-time size must be a variable with a value, n.bind(7), not {leaf!r}"
        )
    return leaf.src[0]


def _unbound_shape(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape over variables, without their values."""
    from svod.schedule.sizes import replace_in_size

    found = []
    for size in shape:
        if isinstance(size, UOp):
            binds = {n: n.src[0] for n in size.toposort() if n.op == O.BIND}
            size = replace_in_size(size, binds)
        found.append(size)
    return tuple(found)


def _bound_values(shape: tuple[Any, ...]) -> dict[str, int]:
    found = {}
    for size in shape:
        if isinstance(size, UOp):
            for n in size.toposort():
                if n.op == O.BIND:
                    found[n.src[0].arg.name] = n.src[1].arg
    return found


def _parts(state: Any) -> list[Any]:
    if isinstance(state, dict):
        return [part for value in state.values() for part in _parts(value)]
    if isinstance(state, (list, tuple)):
        return [part for value in state for part in _parts(value)]
    return [state]


def _state_tensors(state: Any) -> list[Tensor]:
    """Tensors, and those of modules and optimizers."""
    found: list[Any] = []
    for part in _parts(state):
        if isinstance(part, Core):
            found.append(part)
        elif hasattr(part, "parameters") and hasattr(part, "buffers"):
            found += [*part.parameters(), *part.buffers()]
        elif hasattr(part, "param_groups"):
            found += [p for group in part.param_groups for p in group["params"]]
        else:
            raise ConfigError(f"jit: state is tensors, modules and optimizers, not {part!r:.60}")
    return found


# -- recording -------------------------------------------------------------------------------------


class _Output(NamedTuple):
    """A result of the function: of the plan, an argument, or something that never changes."""

    port: str = ""  # of the plan
    is_twin: bool = False  # another result of the port is a tensor of its own
    argument: int = -1  # a leaf that is given back, or whose memory was taken over
    value: Any = None
    shape: tuple[Any, ...] = ()
    size: int = 0
    dtype: Any = None
    device: str = ""
    is_complex: bool = False  # shape, size and dtype are those of its pairs of floats


class _Recorder:
    """Calls the function once with stand-ins and makes the plan of what it did."""

    def __init__(self, owner: Jit, form: Form, leaves: list[Any]) -> None:
        self.owner = owner
        self.form = form
        self.nodes: dict[int, UOp] = {}  # leaf -> BUFFER that stands for it
        self.seen: list[Any] = list(leaves)  # what the function is given
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, (Core, np.ndarray)):
                self._stand_in(place, leaf)
            elif isinstance(leaf, UOp):
                self.seen[place] = leaf.src[0]
        self.leaves = leaves
        self.donated = self._donated()

    def _stand_in(self, place: int, leaf: Any) -> None:
        given = tensor_of(leaf)
        shape = _unbound_shape(B.floats_of(given.uop).shape)
        node = B.new_buffer(elements(shape), B.floats_of(given.uop).dtype, given.device)
        self.nodes[place] = node
        self.seen[place] = wrap(B.like(given.uop, B.view_as(node, shape)), given.device)

    def _donated(self) -> list[int]:
        parts = self.form.parts
        if not self.owner.donate:
            return []
        if len(parts) == 2 and parts[1].kind is dict and parts[0].kind is tuple:
            parts = parts[0].parts  # (args, options)
        sizes = [_count(part) for part in parts]
        found = []
        for position in self.owner.donate:
            if not 0 <= position < len(sizes):
                raise ConfigError(f"jit: donate names argument {position} of {len(sizes)}")
            first = sum(sizes[:position])
            found += [n for n in range(first, first + sizes[position]) if n in self.nodes]
        return found

    def prepared(self) -> _Prepared:
        state = _state_tensors(self.owner.state)
        with history.paused():
            realize(state)
        guarded = [tracing.memory_of(t.uop) for t in state]
        before = [(t, t.uop) for t in registry.live_tensors()]
        grads = [(t, t.grad) for t in history.leaves()]
        effects = Effects()
        name = getattr(self.owner.function, "__name__", "jit")
        try:
            with recording(name, [*self.nodes.values(), *guarded], effects=effects):
                result = self._called()
                outputs, form = flatten(result)
            roots = self._effects(before, effects)
            live = frozenset((*self.nodes.values(), *guarded)) if self.owner.freeze else None
            return self._plan(outputs, form, roots, effects, live)
        finally:
            for t, node in before:
                if t.uop is not node and registry.buffer_node(t.uop) is None:
                    t.uop = node
            known = {id(t) for t, _ in before}
            for t in registry.live_tensors():
                if id(t) not in known and tracing.memory_of(t.uop).op == O.BUFFER:
                    t.uop = tracing.without_waits(t.uop)
            for t, grad in grads:
                t.grad = grad
            for t in history.leaves():
                if t.grad is not None and _reads(t.grad.uop, self.nodes.values()):
                    t.grad = None
            tracing.forget(self.nodes.values())

    def _called(self) -> Any:
        given = unflatten(self.form, self.seen)
        parts = self.form.parts
        if len(parts) == 2 and parts[1].kind is dict and parts[0].kind is tuple:
            return self.owner.function(*given[0], **given[1])
        return self.owner.function(*given)

    def _effects(self, before: list[tuple[Tensor, UOp]], effects: Effects) -> list[UOp]:
        """The assignments the plan makes."""
        found = dict(effects.assigned)
        stand_ins = set(self.nodes.values())
        for t, old in before:
            old, new = B.floats_of(old), B.floats_of(t.uop)
            if new is old or registry.buffer_node(new) is not None:
                continue
            if new.op == O.ASSIGN:
                found[new] = None
            elif tracing.memory_of(new).op != O.AFTER and registry.buffer_node(old) is not None:
                if not _is_view(new):
                    registry.own_memory(old)
                    found[B.assign(old, new)] = None
            elif _reads(new, stand_ins):
                raise ConfigError(
                    f"jit: the function gives a new value to a tensor of shape {t.shape} that has "
                    "no memory: realize() it before, or name it in state="
                )
        known = {id(t) for t, _ in before}
        own = {id(t) for t in self.seen}
        for t in registry.live_tensors():
            if id(t) in own:
                place = next(i for i, s in enumerate(self.seen) if s is t)
                node = B.floats_of(t.uop)
                start = B.view_as(self.nodes[place], node.shape)
                if node.op == O.ASSIGN:
                    found[node] = None
                elif node is not start and not _is_view(node):
                    found[B.assign(start, node)] = None  # changed in place, as without jit
            elif id(t) not in known and B.floats_of(t.uop).op == O.ASSIGN:
                found[B.floats_of(t.uop)] = None
        return list(found)

    def _plan(
        self,
        outputs: list[Any],
        form: Form,
        roots: list[UOp],
        effects: Effects,
        live: frozenset[UOp] | None,
    ) -> _Prepared:
        pending: dict[UOp, str] = {}
        first: dict[str, Any] = {}  # port -> the first tensor it stands for
        results: list[_Output] = []
        devices: list[str | None] = []
        taken: list[int] = list(self.donated)
        places = {node: place for place, node in self.nodes.items()}
        for value in outputs:
            if not isinstance(value, Core):
                results.append(_Output(value=value))
                continue
            node = B.floats_of(value.uop)
            own = registry.buffer_node(node)
            if own is not None and own in places:
                results.append(_Output(argument=places[own]))
                continue
            if own is not None:
                results.append(_Output(value=value))
                continue
            match = next((p for p in taken if _fits(self.seen[p], value)), None)
            if match is not None:
                taken.remove(match)
                roots.append(B.assign(B.view_as(self.nodes[match], node.shape), node))
                results.append(_Output(argument=match))
                continue
            stored = make(O.CONTIGUOUS, node.dtype, (node,))
            if stored not in pending:
                pending[stored] = f"output{len(pending)}"
                devices.append(value._device)
            port = pending[stored]
            is_twin = first.setdefault(port, value) is not value
            size = elements(node.shape)
            results.append(
                _Output(
                    port, is_twin, -1, None, node.shape, size, node.dtype, value.device,
                    value.dtype.is_complex,
                )
            )  # fmt: skip
        nodes = [*pending, *dict.fromkeys(roots)]
        if not nodes:
            return _Prepared(None, {}, form, results, {}, [], None, False, [])
        used = set(outer_order(nodes))
        names = {p: f"argument{p}" for p, node in self.nodes.items() if node in used}
        inputs = {self.nodes[p].sn: (name, self.seen_shape(p)) for p, name in names.items()}
        ports = PortNames(inputs, [(n, s.shape) for s, n in pending.items()])
        where = [*devices, *[None] * (len(nodes) - len(devices))]
        tensors = [wrap(node, device) for node, device in zip(nodes, where, strict=True)]
        if tensors[0]._device is None:
            tensors[0]._device = self._device()
        if live is not None:  # random words are drawn anew for every run
            live |= {tracing.memory_of(node) for _, _, node in effects.draws}
        plan = recorded_plan(tensors, self.owner.config, ports, live)
        variables = {p: leaf.src[0].arg.name for p, leaf in enumerate(self.leaves)
                     if isinstance(leaf, UOp)}  # fmt: skip
        draws = [(g, count, _memory(node)) for g, count, node in effects.draws]
        code = getattr(self.owner.function, "__code__", None)
        line = None if code is None else (code.co_filename, code.co_firstlineno)
        has_sizes = any(is_symbolic(self.seen[place].shape) for place in self.nodes)
        targets = {tracing.memory_of(node) for node in roots}
        written = [place for place, node in self.nodes.items() if node in targets]
        return _Prepared(plan, names, form, results, variables, draws, line, has_sizes, written)

    def seen_shape(self, place: int) -> tuple[Any, ...]:
        return _unbound_shape(B.floats_of(tensor_of(self.leaves[place]).uop).shape)

    def _device(self) -> str | None:
        for place in self.nodes:
            return str(self.seen[place].device)
        return None


def _count(form: Form) -> int:
    if not form.parts:
        return 1 if form.keys == ("leaf",) else 0
    return sum([_count(part) for part in form.parts])


def _reads(node: UOp, memory: Iterable[UOp]) -> bool:
    known = set(memory)
    return any(n in known for n in outer_order((node,)))


def _is_view(node: UOp) -> bool:
    """Whether a node only shows memory, perhaps once it was written."""
    while node.op in O.VIEWS:
        node = node.src[0]
    return node.op in (O.BUFFER, O.AFTER)


def _fits(argument: Tensor, value: Tensor) -> bool:
    same = argument.shape == value.shape and argument.dtype is value.dtype
    return same and argument.device == value.device


def _memory(node: UOp) -> Buffer:
    found = registry.buffer_of(node)
    assert found is not None, "random words are data"
    return found


# -- running ---------------------------------------------------------------------------------------


class _Prepared:
    """A plan, and how arguments and results are bound to it."""

    def __init__(
        self,
        plan: ExecutionPlan | None,
        names: dict[int, str],
        form: Form,
        results: list[_Output],
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
        new = {r.port: r for r in results if r.port and not r.is_twin}
        self.fresh = [(r, get_device(r.device).allocator) for r in new.values()]
        self.line = line
        self.variables = list(variables.items())
        self.has_sizes = has_sizes or any(is_symbolic(r.shape) for r in results)
        self.written = written  # places of arguments whose memory the plan writes
        self.draws = draws
        self.has_drawn = bool(draws)  # recording drew for the first run
        self.is_single = form.kind is None and form.keys == ("leaf",)

    @property
    def plan(self) -> ExecutionPlan:
        if self._plan is None:
            raise ConfigError("jit: the function computes nothing")
        return self._plan

    def run(self, leaves: list[Any]) -> Any:
        """Bind, run, and wrap what came out."""
        plan = self._plan
        made: dict[str, Tensor] = {}
        if plan is not None:
            bound: dict[str, Any] = {}
            held: dict[str, Buffer] = {}
            values: dict[str, int] = {}
            for place in self.written:
                if isinstance(leaves[place], Core):
                    registry.own_memory(_realized(leaves[place]).uop)
            for place, name in self.names:
                leaf = leaves[place]
                if isinstance(leaf, Core):
                    node = leaf.uop
                    if self.has_sizes and is_symbolic(node.shape):
                        values.update(_bound_values(node.shape))
                    bound[name] = _buffer(leaf)
                else:
                    bound[name] = leaf if leaf.dtype.kind != "c" else _pairs(leaf)
            for result, allocator in self.fresh:
                storage = Storage(result.device, result.size * result.dtype.itemsize, allocator)
                buffer = Buffer(storage, result.size, result.dtype)
                bound[result.port] = held[result.port] = buffer
            for place, name in self.variables:
                values[name] = leaves[place].src[1].arg
            with plan._lock:
                plan._wiring.rebind(bound)
                if values:
                    plan.set_vars(values)
                if self.draws:
                    self._draw()
                plan.execute()
            for result, _ in self.fresh:
                made[result.port] = self._wrapped(result, held[result.port], values)
            maybe_sweep()
        if self.is_single:
            return self._result(self.results[0], made, leaves)
        return unflatten(self.form, [self._result(r, made, leaves) for r in self.results])

    def _draw(self) -> None:
        if self.has_drawn:
            self.has_drawn = False
            return
        for generator, count, words in self.draws:
            words.copyin(generator.words(count))

    def _wrapped(self, result: _Output, buffer: Buffer, values: dict[str, int]) -> Tensor:
        node = B.new_buffer(result.size, result.dtype, result.device, buffer)
        note_buffers((node,))
        shape = result.shape
        if self.has_sizes:
            node = B.view_as(node, _with_values(shape, values))
        elif len(shape) != 1:
            node = make(O.RESHAPE, node.dtype, (node,), shape)
            node._shape = shape
        if result.is_complex:
            node = B.complex_view(node)
        node.origin = self.line
        return wrap(node, result.device)

    def _result(self, result: _Output, made: dict[str, Tensor], leaves: list[Any]) -> Any:
        if result.is_twin:
            first = made[result.port]
            return wrap(registry.twin_of(first.uop), first._device)
        if result.port:
            return made[result.port]
        if result.argument >= 0:
            given = leaves[result.argument]
            return wrap(given.uop, given._device) if isinstance(given, Core) else tensor_of(given)
        return result.value


def _buffer(t: Tensor) -> Buffer:
    """The memory of a tensor, computed now where there is none."""
    node = B.floats_of(t.uop)
    found: Buffer | None = node.arg.buffer if node.op == O.BUFFER else registry.buffer_of(node)
    if found is None:
        found = registry.buffer_of(B.floats_of(_realized(t).uop))
        if found is None:  # a value that is no buffer even when realised, such as an empty one
            raise DTypeError(f"jit: a tensor of shape {t.shape} has no memory")
    return found


def _pairs(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Complex numbers as pairs of floats, in the same memory where it is row-major."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype).reshape(*array.shape, 2)


def _realized(t: Tensor) -> Tensor:
    if registry.buffer_of(t.uop) is None:
        with history.paused():
            realize([t])
    return t


def _with_values(shape: tuple[Any, ...], values: dict[str, int]) -> tuple[Any, ...]:
    from svod.schedule.sizes import replace_in_size

    found = []
    for size in shape:
        if isinstance(size, UOp):
            free = [n for n in size.toposort() if n.op == O.DEFINE_VAR and n.arg.name in values]
            size = replace_in_size(size, {n: n.bind(values[n.arg.name]) for n in free})
        found.append(size)
    return tuple(found)


guard_class(Jit, "__call__", "plan")
