"""Gradient hooks: functions called with the gradient of a tensor, and retain_grad.

A tensor that was computed gets a marked node; what is computed from it, before or after, goes
through that. The hooks of a leaf are kept with the leaf and see the sum that it receives. All run
while the graph of the gradients is built.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.tensor.core import history, tensor_registry
from svod.tensor.core.tensor_core import Core, wrap
from svod.tensor.gradients.reverse_mode import GradientError, Hooks, is_hooked, mark

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_numbers = count()
_BEFORE, _AFTER = "before", "after"  # the gradient is added up


class Handle:
    """What takes a hook away again: ``handle.remove()``, or the end of a block."""

    def __init__(self, table: dict[int, Any]) -> None:
        self._table, self.id = table, next(_numbers)

    def remove(self) -> None:
        """The hook is called no more."""
        self._table.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register(t: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Handle:
    """Call a function with the gradient of a tensor whenever there is one."""
    _check(t, hook, "register_hook")
    if history.is_leaf(t):
        return _add(t, _BEFORE, hook)
    hooks = _hooks_of(t)
    handle = Handle(hooks.functions)
    device = t._device

    def call(own: UOp) -> UOp:
        seen = B.complex_view(own) if hooks.is_complex else own
        return B.floats_of(_changed(hook, wrap(seen, device)).uop)

    hooks.functions[handle.id] = call
    return handle


def register_after(t: Tensor, hook: Callable[[Tensor], None]) -> Handle:
    """Call a function with a leaf once its gradient has been added up."""
    _check(t, hook, "register_post_accumulate_grad_hook")
    if not history.is_leaf(t):
        raise GradientError("register_post_accumulate_grad_hook: only a leaf adds up gradients")
    return _add(t, _AFTER, hook)


def retain(t: Tensor) -> None:
    """Keep the gradient of a tensor that is no leaf."""
    if history.is_leaf(t):
        return
    _check(t, retain, "retain_grad")
    _hooks_of(t)
    history.retain(t)


def kept() -> list[Tensor]:
    """Tensors inside of graphs that keep their gradients, while they are what they were."""
    return [t for t in history.retained() if hooked_origin(B.floats_of(t.uop)) is not None]


def seen_by_leaf(t: Tensor, node: UOp) -> UOp:
    """The gradient of a leaf after its hooks have seen it."""
    for hook in _of_leaf(t, _BEFORE):
        node = _changed(hook, wrap(node, t._device)).uop
    return node


def call_after(t: Tensor) -> None:
    """The gradient of a leaf has been added up."""
    for hook in _of_leaf(t, _AFTER):
        hook(t)


def hooked_origin(node: UOp) -> UOp | None:
    """The marked node with hooks that this node is, or that its BUFFER was computed from."""
    base = history.leaf_node(node)
    found = history.origin_of(base) if base.op == O.BUFFER else base
    return found if found is not None and is_hooked(found) else None


def _check(t: Tensor, hook: Any, what: str) -> None:
    if not callable(hook):
        raise DTypeError(f"{what}: a hook is a function, not a {type(hook).__name__}")
    if not t.requires_grad:
        raise GradientError(
            f"{what}: this {t.dtype.name} tensor of shape {t.shape} does not require a gradient"
        )


def _changed(hook: Callable[[Tensor], Any], own: Tensor) -> Tensor:
    found = hook(own)
    if found is None:
        return own
    if not isinstance(found, Core):
        raise DTypeError(f"a hook returns a tensor or None, not a {type(found).__name__}")
    if found.shape != own.shape:
        raise ShapeError(f"a hook returned shape {found.shape} for a gradient of {own.shape}")
    return found.to(dtype=own.dtype)  # type: ignore[attr-defined,no-any-return]


def _add(t: Tensor, kind: str, hook: Callable[[Tensor], Any]) -> Handle:
    table = getattr(t, "_hooks", None)
    if table is None:
        table = t._hooks = {}
    handle = Handle(table)
    table[handle.id] = (kind, hook)
    return handle


def _of_leaf(t: Tensor, kind: str) -> list[Callable[[Tensor], Any]]:
    table = getattr(t, "_hooks", None) if history.is_leaf(t) else None
    return [hook for own, hook in table.values() if own == kind] if table else []


def _hooks_of(t: Tensor) -> Hooks:
    """The hooks of a computed tensor, which from now on is a marked node."""
    node = B.floats_of(t.uop)
    known = hooked_origin(node)
    if known is not None:
        return known.arg  # type: ignore[no-any-return]
    hooks = Hooks(t.dtype.is_complex)
    marked = mark(node, hooks)
    base = history.leaf_node(node)
    if all(history.leaf_node(leaf.uop) is not base for leaf in history.leaves()):
        _put_into_users(t, node, marked)
    t.uop = B.like(t.uop, marked)
    return hooks


def _put_into_users(t: Tensor, node: UOp, marked: UOp) -> None:
    """What was computed from the tensor before goes through the mark too."""
    alike = [u for u in tensor_registry.live_tensors() if u is not t and B.floats_of(u.uop) is node]
    before = [u.uop for u in alike]
    tensor_registry.replace_nodes({node: marked})
    for other, uop in zip(alike, before, strict=True):  # equal, but another tensor
        other.uop = uop
