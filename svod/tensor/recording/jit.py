"""jit: a function of tensors as prepared plans, one per signature of its arguments.

In: a Python function. Out: a callable that records the function at the first call with new shapes,
dtypes, devices or plain values, and from then on only binds memory and runs the plan. Tensors that
the function assigns to are state: they keep their memory, and the plan writes there. Results are
fresh tensors unless arguments are donated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from svod.base.errors import DTypeError, VariableError
from svod.base.locks import reset_rlock
from svod.ir import ops as O
from svod.ir.build import floats_of
from svod.ir.node import UOp, is_symbolic
from svod.ir.placement import Placed, is_mesh
from svod.tensor.core import history, tracing
from svod.tensor.core.history import is_leaf
from svod.tensor.core.public_functions import guard_class, spelled
from svod.tensor.core.pytrees import Form, flatten
from svod.tensor.core.tensor_core import Core, default_device
from svod.tensor.core.tensor_registry import buffer_node
from svod.tensor.recording.realize import realize
from svod.tensor.recording.recorded_call import Prepared, unbound_shape
from svod.tensor.recording.recorder import Recorder, placed_of
from svod.tensor.views.aliases import strides_of

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan

R = TypeVar("R")

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
    def decorate(f: Callable[..., Any]) -> Jit[Any]:
        return Jit(f, state, positions, config, signatures, freeze)

    return decorate if function is None else decorate(function)


class Jit(Generic[R]):
    """A function with the plans recorded so far."""

    def __init__(
        self,
        function: Callable[..., R],
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
        self._known: dict[Any, tuple[Prepared, ...]] = {}  # by signature, the newest first
        self._lock = reset_rlock()
        update_wrapper(self, function)

    @property
    def plans(self) -> int:
        """How many plans there are: one per signature and set of settings."""
        return sum([len(plans) for plans in self._known.values()])

    def plan(self, *args: Any, **options: Any) -> ExecutionPlan:
        """The plan for arguments like these; it is recorded if need be, but does not run."""
        signature, form, leaves = _signature(args, options)
        return self._prepared(signature, form, leaves).plan

    def clear(self) -> None:
        """Forget all plans."""
        with self._lock:
            self._known.clear()

    def __call__(self, *args: Any, **options: Any) -> R:
        if tracing.state.depth:  # part of something larger that is being recorded
            return self.function(*args, **options)
        signature, form, leaves = _signature(args, options)
        found = self._found(signature)
        if found is None:
            found = self._prepared(signature, form, leaves)
        if found.shares_elements(leaves):
            return self.function(*args, **options)
        found.write_numbers()
        return found.run(leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Jit[R]:
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

    def _prepared(self, signature: Any, form: Form, leaves: list[Any]) -> Prepared:
        with self._lock:
            found = self._found(signature)
            if found is None:
                found = Recorder(self, form, leaves).prepared()
                others = self._known.pop(signature, ())
                kept = [p for p in others if p.is_lasting() and not p.applies()]
                self._known[signature] = (found, *kept)
                self._trim()
            return found

    def _found(self, signature: Any) -> Prepared | None:
        """The plan for a signature under the settings of now."""
        for prepared in self._known.get(signature, ()):
            if prepared.applies() and prepared.is_current():
                return prepared
        return None

    def _trim(self) -> None:
        """Forget the oldest plans where there are too many."""
        while self.plans > self.signatures:
            oldest = next(iter(self._known))
            if len(self._known[oldest]) > 1:
                self._known[oldest] = self._known[oldest][:-1]
            else:
                del self._known[oldest]


# -- signatures ------------------------------------------------------------------------------------


def _signature(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Form, list[Any]]:
    leaves, form = flatten((args, options) if options else args)
    key: list[Any] = [form]
    for leaf in leaves:
        if isinstance(leaf, Core):
            node = leaf.uop
            shape = node.shape
            if node.op != O.BUFFER and is_symbolic(shape):
                shape = unbound_shape(shape)
            held = _placed(leaf) if is_mesh(leaf._device) else None
            strides = None if leaf._link is None else strides_of(leaf)  # type: ignore[arg-type]
            device = leaf._device or default_device()
            key.append((shape, node.dtype, device, strides, is_leaf(leaf), held))
        elif isinstance(leaf, np.ndarray):
            key.append((leaf.shape, leaf.dtype.str))
        elif isinstance(leaf, UOp):
            key.append(_variable(leaf))
        elif type(leaf) is float:
            key.append((float, leaf.hex()))  # -0.0 is not 0.0, a NaN is a NaN
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


def _placed(leaf: Any) -> Placed | None:
    """How an argument on a mesh is held, which is known once it has memory."""
    if buffer_node(floats_of(leaf.uop)) is None:
        with history.paused():
            realize([leaf])
    return placed_of(leaf)


def _variable(leaf: UOp) -> UOp:
    if leaf.op != O.BIND or leaf.src[1].op != O.CONST:
        raise VariableError(
            f"jit: a run-time size must be a variable with a value, n.bind(7), not {leaf!r}"
        )
    return leaf.src[0]


guard_class(Jit, "__call__", "plan")
