"""Gradients of tensors: requires_grad, backward, detach, no_grad, grad and custom gradients.

``loss.backward()`` adds to ``.grad`` of every leaf the loss was computed from. ``grad(f)`` is the
functional form. Nothing is recorded while tensors are computed: the graph that realises a value
is the graph that is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from functools import update_wrapper, wraps
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from svod.base.errors import DTypeError, ShapeError, SvodError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make, substitute
from svod.tensor import history, registry, tracing
from svod.tensor.core import Core, integer, tensor_of, wrap
from svod.tensor.gradient import Mark, custom_rules, gradient, mark
from svod.tensor.guard import guard_class, spelled

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class GradientError(SvodError, RuntimeError):
    """A gradient that cannot be formed: nothing to differentiate, or a seed is missing."""


def detached(node: UOp) -> UOp:
    """The same value, with no gradient flowing through."""
    if node.op == O.COMPLEX:
        return B.complex_view(detached(node.src[0]))
    if node.dtype.kind != "f" or node.op == O.CONST:
        return node
    return node if node.op == O.BITCAST and node.arg is None else mark(node)


def _leaf(node: UOp) -> UOp:
    """A node of its own for a leaf that is not realised."""
    if node.op == O.COMPLEX:
        return B.complex_view(_leaf(node.src[0]))
    found = make(O.CONTIGUOUS, node.dtype, (node,), history.LeafMark())
    found._shape = node.shape
    return found


class Autograd(Core):
    """requires_grad, grad, backward, detach."""

    __slots__ = ()

    if TYPE_CHECKING:
        _grad: Tensor | None

    @property
    def requires_grad(self: Tensor) -> bool:
        """Whether gradients reach this tensor: it is a leaf that asks for one, or uses such."""
        if history.is_leaf(self):
            return True
        node = B.floats_of(self.uop)
        if node.dtype.kind != "f" or history.state.without_gradient:
            return False
        return node in history.tracked((node,))

    @requires_grad.setter
    def requires_grad(self: Tensor, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
        """Say whether ``backward`` shall fill ``grad`` of this tensor."""
        if not requires_grad:
            history.remove_leaf(self)
            return self
        if self.uop.dtype.kind not in "fc":
            raise DTypeError(f"only floats have gradients, not {self.dtype.name}")
        if not history.is_leaf(self):
            node = history.leaf_node(self.uop)
            taken = any(history.leaf_node(t.uop) is node for t in history.leaves())
            if taken or not history.is_leaf_node(self.uop):
                self.uop = _leaf(self.uop)
            history.add_leaf(self)
        return self

    @property
    def is_leaf(self: Tensor) -> bool:
        """Whether the tensor was made by the user rather than computed from leaves."""
        return history.is_leaf(self) or not self.requires_grad

    @property
    def grad(self: Tensor) -> Tensor | None:
        """The gradient that ``backward`` has added up, or None."""
        try:
            found = self._grad
        except AttributeError:
            found = None
        effects = tracing.state.effects
        if effects is not None and id(self) in effects.gradients:
            effects.assumed[id(self)] = (self, found)
        return found

    @grad.setter
    def grad(self: Tensor, value: Tensor | None) -> None:
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"a gradient of shape {value.shape} for a tensor of {self.shape}")
        effects = tracing.state.effects
        if effects is not None:
            effects.gradients.pop(id(self), None)
            effects.given.setdefault(id(self), (self, getattr(self, "_grad", None)))
        self._grad = value

    def detach(self: Tensor) -> Tensor:
        """The same values, cut off from what computed them."""
        node = self.uop
        base = history.leaf_node(node)
        if base.op == O.BUFFER and not history.is_leaf(self) and not history.tracked((base,)):
            return wrap(node, self._device)
        return wrap(detached(node), self._device)

    def detach_(self: Tensor) -> Tensor:
        """In place: no gradient flows to what computed this tensor."""
        history.remove_leaf(self)
        self.uop = detached(self.uop)
        return self

    def backward(
        self: Tensor,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of this tensor to ``grad`` of every leaf it was computed from.

        A tensor with one element needs no ``gradient``. Gradients are plain data unless
        ``create_graph`` asks for ones that can be differentiated again. The graph stays usable;
        ``retain_graph`` is accepted for torch's sake.
        """
        targets = history.leaves() if inputs is None else list(inputs)
        found = _gradients(self, gradient, [t.uop for t in targets])
        if all(node is None for node in found):
            raise GradientError(
                f"backward: no leaf that requires a gradient is behind this {self.dtype.name} "
                f"tensor of shape {self.shape}: set requires_grad on what it is computed from"
            )
        for t, node in zip(targets, found, strict=True):
            if node is None:
                continue
            new = wrap(node if create_graph else detached(node), t._device or self._device)
            t.grad = new if t.grad is None else t.grad + new


def _gradients(root: Tensor, seed: Tensor | None, targets: Sequence[UOp]) -> list[UOp | None]:
    """The gradient for each target; of a complex one, that of its parts as a complex number."""
    node = B.floats_of(root.uop)
    if node.dtype.kind != "f":
        raise GradientError(f"a gradient starts from floats, not {node.dtype.name}")
    if seed is None:
        if root.numel() != 1:
            raise GradientError(
                f"a gradient starts from one number, not shape {root.shape}: reduce it to a "
                "loss, or pass the gradient of this tensor"
            )
        if root.dtype.is_complex:
            raise GradientError(
                f"a gradient starts from a real number, not {root.dtype.name}: take .real, .abs() "
                "or pass the gradient of this tensor"
            )
        start = B.full(node.shape, 1.0, node.dtype)
    else:
        given = tensor_of(seed, root)
        if given.shape != root.shape:
            raise ShapeError(f"a seed of shape {given.shape} for a tensor of shape {root.shape}")
        start = B.floats_of(given.cast(root.dtype).uop)
    found = gradient(node, start, [B.floats_of(t) for t in targets], history.origin_of)
    pairs = zip(targets, found, strict=True)
    return [None if g is None else B.like(t, g) for t, g in pairs]


# -- blocks without gradients ------------------------------------------------------------------


class no_grad(ContextDecorator):
    """Tensors made inside are plain data: ``with no_grad(): ...`` or ``@no_grad()``.

    This holds for tensors that the thread makes which entered the block.
    """

    def __init__(self) -> None:
        self._outer: list[registry.Collected | None] = []  # one block may be entered repeatedly

    def __enter__(self) -> no_grad:
        thread = get_ident()
        self._outer.append(registry.collected.get(thread))
        registry.collected[thread] = registry.Collected()
        history.state.without_gradient += 1
        return self

    def __exit__(self, *error: object) -> None:
        history.state.without_gradient -= 1
        _end_block(self._outer.pop())


def _end_block(outer: registry.Collected | None) -> None:
    """What was made since the block began is data; the block around goes on."""
    thread = get_ident()
    made = registry.collected.pop(thread)
    if outer is not None:
        registry.collected[thread] = outer
    _cut_made(made)
    for t in history.leaves():  # a leaf changed in place is a leaf with another value
        if not history.is_leaf_node(t.uop):
            t.uop = _leaf(detached(t.uop))


def _cut_made(made: registry.Collected) -> None:
    live = [r() for r in made]
    _cut([t for t in live if t is not None and not history.is_leaf(t)])


class inference_mode(no_grad):
    """no_grad under torch's other name; ``inference_mode(False)`` changes nothing."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> inference_mode:
        if self.mode:
            super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.mode:
            super().__exit__(*error)


class enable_grad(ContextDecorator):
    """Gradients as always, also inside of ``no_grad``."""

    def __init__(self) -> None:
        super().__init__()
        self._outer: list[tuple[int, registry.Collected | None]] = []

    def __enter__(self) -> enable_grad:
        made = registry.collected.pop(get_ident(), None)
        if made is not None:  # no gradient flows through what was made so far
            _cut_made(made)
            made.clear()
        self._outer.append((history.state.without_gradient, made))
        history.state.without_gradient = 0
        return self

    def __exit__(self, *error: object) -> None:
        history.state.without_gradient, made = self._outer.pop()
        if made is not None:
            registry.collected[get_ident()] = made


def _cut(tensors: Sequence[Tensor]) -> None:
    known = history.tracked([t.uop for t in tensors])
    for t in tensors:
        if B.floats_of(t.uop) in known:
            t.uop = detached(t.uop)


def is_grad_enabled() -> bool:
    """Whether tensors made now let gradients through."""
    return not history.state.without_gradient


# -- functions ---------------------------------------------------------------------------------


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the value of f and its gradient with respect to arguments.

    Arguments may be tensors or lists, tuples and dicts of them; the gradient has the same
    structure. With ``has_aux`` f returns (loss, anything) and the value is that pair.
    """
    if not callable(f):
        raise DTypeError(f"grad takes a function, not a {type(f).__name__}")
    given = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    positions = [integer(n, "argnums") for n in given]

    @spelled
    @wraps(f)
    def call(*args: Any, **options: Any) -> Any:
        given = list(args)
        leaves: list[tuple[Tensor, Tensor]] = []  # the tensor given and the one f sees
        for position in positions:
            if not -len(args) <= position < len(args):
                raise ShapeError(f"grad: argument {position} of {len(args)}")
            given[position] = _mapped(args[position], lambda x: _argument(x, leaves))
        history.state.following += 1  # values realised on the way are still computed from arguments
        try:
            result = f(*given, **options)
        finally:
            history.state.following -= 1
        loss = result[0] if has_aux else result
        if not isinstance(loss, Core):
            raise GradientError(f"grad: the function returned a {type(loss).__name__}, no tensor")
        found = _gradients(loss, None, [seen.uop for _, seen in leaves])
        marks = {B.floats_of(seen.uop): B.floats_of(x.uop) for x, seen in leaves}
        grads = iter(_unmarked(found, leaves, marks))
        parts = [_mapped(args[p], lambda x: next(grads)) for p in positions]
        value = _mapped(result, lambda x: wrap(*substitute((x.uop,), marks), x._device))
        return value, parts[0] if isinstance(argnums, int) else tuple(parts)

    return call  # type: ignore[no-any-return]


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of f: ``grad(lambda x: (x * x).sum())(x)`` is 2 x."""
    both = value_and_grad(f, argnums, has_aux)

    @spelled
    @wraps(f)
    def call(*args: Any, **options: Any) -> Any:
        value, found = both(*args, **options)
        return (found, value[1]) if has_aux else found

    return call


def _argument(x: Any, leaves: list[tuple[Tensor, Tensor]]) -> Tensor:
    """A marked stand-in for one tensor of the arguments."""
    given = tensor_of(x)
    if given.dtype.kind not in "fc":
        raise DTypeError(f"grad: only floats have gradients, not {given.dtype.name}")
    marked = mark(B.floats_of(given.uop), Mark("grad", "argument", len(leaves)))
    seen = wrap(B.like(given.uop, marked), given._device)
    leaves.append((given, seen))
    return seen


def _unmarked(
    found: list[UOp | None], leaves: list[tuple[Tensor, Tensor]], marks: dict[UOp, UOp]
) -> list[Tensor]:
    """Gradients without the marks, and zeros where the result does not depend on an argument."""
    pairs = list(zip(found, leaves, strict=True))
    nodes = [x.zeros_like().uop if n is None else n for n, (x, _) in pairs]
    replaced = substitute(tuple(nodes), marks)
    return [wrap(n, x._device) for n, (_, (x, _)) in zip(replaced, pairs, strict=True)]


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dicts with every tensor and number in them changed."""
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_mapped(v, change) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return change(value) if isinstance(value, (Core, float)) else value


# -- custom gradients --------------------------------------------------------------------------

_numbers = count()
_TENSOR = "a tensor"  # in the place of a tensor among the plain arguments of a call


class CustomGradient:
    """A function of tensors with a gradient of its own; see ``custom_gradient``."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward
        self.rule: Callable[..., Any] | None = None
        self.name = f"{forward.__qualname__}#{next(_numbers)}"
        update_wrapper(self, forward)
        custom_rules[self.name] = self._apply

    def backward(self, rule: F) -> F:
        """Set the gradient: ``rule(grad, output, *arguments)`` gives one per tensor argument."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise GradientError(
                f"{self.name}: give the gradient with @{self.forward.__name__}.backward"
            )
        options = tuple([_TENSOR if isinstance(a, Core) else a for a in args])
        inputs = []
        for position, a in enumerate(args):
            if isinstance(a, Core):
                a = _marked(a, Mark(self.name, "input", position))
            inputs.append(a)
        result = self.forward(*inputs)
        if not isinstance(result, Core):
            raise GradientError(f"{self.name} returned a {type(result).__name__}, no tensor")
        try:
            return _marked(result, Mark(self.name, "output", 0, options))
        except TypeError:
            raise DTypeError(
                f"{self.name}: arguments that are no tensors must be hashable"
            ) from None

    def _apply(self, output: UOp, own: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
        assert self.rule is not None
        args: list[Any] = list(output.arg.options)
        for node in inputs:
            args[node.arg.position] = wrap(_seen(node.src[0], node), None)
        if any(a is _TENSOR for a in args):
            raise GradientError(f"{self.name}: its value must depend on every tensor argument")
        seen = [wrap(_seen(node, output), None) for node in (own, output)]
        given = self.rule(*seen, *args)
        found = iter(given if isinstance(given, (tuple, list)) else (given,))
        result: list[UOp | None] = [None] * len(args)
        for position, a in enumerate(args):
            if isinstance(a, Core):
                part = next(found, None)
                if part is not None:
                    result[position] = B.floats_of(tensor_of(part).cast(a.dtype).uop)
        return result


def _marked(x: Any, argument: Mark) -> Tensor:
    node = mark(B.floats_of(x.uop), argument._replace(is_complex=x.dtype.is_complex))
    return wrap(B.like(x.uop, node), x._device)


def _seen(floats: UOp, marked: UOp) -> UOp:
    """A value below a mark, or its gradient, as the function knows it."""
    return B.complex_view(floats) if marked.arg.is_complex else floats


def custom_gradient(forward: Callable[..., Any]) -> CustomGradient:
    """A function whose gradient is given, not derived.

    ::

        @custom_gradient
        def clipped(x, limit):
            return x

        @clipped.backward
        def _(grad, output, x, limit):
            return grad.clamp(-limit, limit)
    """
    return CustomGradient(forward)


for _mode in (no_grad, inference_mode, enable_grad):
    guard_class(_mode, "__init__")
