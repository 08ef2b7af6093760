"""Gradient modes: no_grad, enable_grad, inference_mode, set_grad_enabled.

Nothing is recorded while tensors are computed, so a block without gradients notes the tensors
that its thread makes and makes them plain data when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any

from svod.ir import ops as O
from svod.ir.build import floats_of
from svod.ir.node import UOp
from svod.tensor.core import history, tensor_registry
from svod.tensor.core.history import as_leaf, detached
from svod.tensor.core.public_functions import guard_class

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_Outer = tuple[int, "tensor_registry.Collected | None"]  # what holds around a block


def own_leaf(node: UOp) -> UOp:
    """The node of a tensor that becomes a leaf, which nobody else uses.

    Other tensors may show the same memory, or be computed from it: they are no part of the leaf.
    """
    base = history.leaf_node(node)
    if base.op == O.BUFFER and base.arg.buffer is not None:
        return tensor_registry.twin_of(node)
    taken = any(history.leaf_node(t.uop) is base for t in history.leaves())
    return as_leaf(node) if taken or not history.is_leaf_node(node) else node


def is_grad_enabled() -> bool:
    """Whether tensors made now let gradients through."""
    return not history.state.without_gradient


class no_grad(ContextDecorator):
    """Tensors made inside are plain data: ``with no_grad(): ...`` or ``@no_grad()``.

    This holds for tensors that the thread makes which entered the block.
    """

    def __init__(self) -> None:
        self._outer: list[_Outer] = []  # one block may be entered repeatedly

    def __enter__(self) -> no_grad:
        self._outer.append(_begin(False))
        return self

    def __exit__(self, *error: object) -> None:
        _end(self._outer.pop())


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
        self._outer: list[_Outer] = []

    def __enter__(self) -> enable_grad:
        self._outer.append(_begin(True))
        return self

    def __exit__(self, *error: object) -> None:
        _end(self._outer.pop())


class set_grad_enabled:
    """Gradients on or off from now on; as a block or a decorator, until its end."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._outer = None if self.mode == is_grad_enabled() else _begin(self.mode)

    def __enter__(self) -> set_grad_enabled:
        return self

    def __exit__(self, *error: object) -> None:
        if self._outer is not None:
            _end(self._outer)
            self._outer = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.__exit__()  # a decorator changes nothing but the function
        mode = self.mode

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with set_grad_enabled(mode):
                return function(*args, **options)

        return call


def _begin(enabled: bool) -> _Outer:
    """Switch gradients on or off in this thread; returns what held before."""
    thread = get_ident()
    outer = history.state.without_gradient, tensor_registry.collected.get(thread)
    if not enabled:
        tensor_registry.collected[thread] = tensor_registry.Collected()
        history.state.without_gradient += 1
        return outer
    made = tensor_registry.collected.pop(thread, None)
    if made is not None:  # no gradient flows through what was made so far
        _settle(made)
        made.clear()
    history.state.without_gradient = 0
    return outer


def _end(outer: _Outer) -> None:
    """What was made since a block without gradients began is data; the block around goes on."""
    thread = get_ident()
    made = tensor_registry.collected.pop(thread, None)
    history.state.without_gradient, around = outer
    if around is not None:
        tensor_registry.collected[thread] = around
    if made is not None and made is not around:
        _settle(made)


def _settle(made: tensor_registry.Collected) -> None:
    live = [r() for r in made]
    _cut([t for t in live if t is not None and not history.is_leaf(t)])
    for t in history.leaves():  # a leaf changed in place is a leaf with another value
        if not history.is_leaf_node(t.uop):
            t.uop = as_leaf(detached(t.uop))


def _cut(tensors: Sequence[Tensor]) -> None:
    known = history.tracked([t.uop for t in tensors])
    for t in tensors:
        if floats_of(t.uop) in known:
            t.uop = detached(t.uop)


for _mode in (no_grad, inference_mode, enable_grad, set_grad_enabled):
    guard_class(_mode, "__init__")
