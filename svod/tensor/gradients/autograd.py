"""Autograd: requires_grad, backward and detach of tensors, and the transformation ``grad(f)``.

``loss.backward()`` adds to ``.grad`` of every leaf the loss was computed from. ``grad(f)`` is the
functional form. Nothing is recorded while tensors are computed: the graph that realises a value
is the graph that is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, substitute
from svod.tensor.core import history, tracing
from svod.tensor.core.history import detached
from svod.tensor.core.public_functions import spelled
from svod.tensor.core.tensor_core import Core, integer, tensor_of, wrap
from svod.tensor.gradients import gradient_hooks
from svod.tensor.gradients.custom_gradient import custom_gradient as custom_gradient
from svod.tensor.gradients.endpoints import gradients_of, node_gradients
from svod.tensor.gradients.grad_modes import enable_grad as enable_grad
from svod.tensor.gradients.grad_modes import inference_mode as inference_mode
from svod.tensor.gradients.grad_modes import is_grad_enabled as is_grad_enabled
from svod.tensor.gradients.grad_modes import no_grad as no_grad
from svod.tensor.gradients.grad_modes import own_leaf
from svod.tensor.gradients.grad_modes import set_grad_enabled as set_grad_enabled
from svod.tensor.gradients.reverse_mode import GradientError as GradientError
from svod.tensor.gradients.reverse_mode import Mark, mark
from svod.tensor.views.aliases import cut_off, linked, view

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


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
            self.uop = own_leaf(self.uop)
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
        """The same elements, cut off from what computed them."""
        node = self.uop
        base = history.leaf_node(node)
        if base.op == O.BUFFER and not history.is_leaf(self) and not history.tracked((base,)):
            return linked(wrap(node, self._device), self, ((cut_off, None),))
        return view(self, (cut_off, None))

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
        add_gradients([(self, gradient)], create_graph, inputs)

    def register_hook(
        self: Tensor, hook: Callable[[Tensor], Tensor | None]
    ) -> gradient_hooks.Handle:
        """Call ``hook(gradient)`` when backward reaches this tensor; what it returns is used.

        It runs while the graph of the gradients is built, so it sees a lazy tensor.
        """
        return gradient_hooks.register(self, hook)

    def register_post_accumulate_grad_hook(
        self: Tensor, hook: Callable[[Tensor], None]
    ) -> gradient_hooks.Handle:
        """Call ``hook(tensor)`` after backward has added to ``grad`` of this leaf."""
        return gradient_hooks.register_after(self, hook)

    def retain_grad(self: Tensor) -> None:
        """Let backward fill ``grad`` of this tensor though it is not a leaf."""
        gradient_hooks.retain(self)

    @property
    def retains_grad(self: Tensor) -> bool:
        """Whether backward fills ``grad`` of this tensor though it is not a leaf."""
        return history.is_retained(self)


def add_gradients(
    roots: Sequence[tuple[Tensor, Tensor | None]],
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of several tensors, each with its own, to ``grad`` of leaves or inputs."""
    targets = history.leaves() if inputs is None else list(inputs)
    kept = [t for t in gradient_hooks.kept() if not any(t is other for other in targets)]
    found = gradients_of(roots, [*targets, *kept])
    is_lost = all(node is None for node in found[: len(targets)])
    if is_lost and not all(history.is_constant(t.uop) for t, _ in roots):
        shown = " and ".join([f"{t.dtype.name} tensor of shape {t.shape}" for t, _ in roots])
        raise GradientError(
            f"backward: no leaf that requires a gradient is behind this {shown}: "
            "set requires_grad on what it is computed from"
        )
    for t, node in zip([*targets, *kept], found, strict=True):
        if node is None:
            continue
        new = wrap(node if create_graph else detached(node), t._device or roots[0][0]._device)
        t.grad = new if t.grad is None else t.grad + new
        gradient_hooks.call_after(t)


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
        found = node_gradients([(loss, None)], [B.floats_of(seen.uop) for _, seen in leaves])
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
    nodes = [x.zeros_like().uop if n is None else B.like(x.uop, n) for n, (x, _) in pairs]
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
