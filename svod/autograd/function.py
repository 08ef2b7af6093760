"""Function: an operation with a forward and a backward of its own, as in torch.

``apply`` runs forward without gradients and marks the results. A marked result has the inputs and
the saved tensors as further sources, so what backward reads follows the graph wherever it goes:
through realised values, recorded functions and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.tensor.core.tensor_core import tensor_of, wrap
from svod.tensor.gradients.grad_modes import is_grad_enabled, no_grad
from svod.tensor.gradients.reverse_mode import Call, GradientError, Result
from svod.tensor.tensor import Tensor

_FLOATS = "fc"


class Context:
    """What forward leaves for backward; other attributes may be set as well."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._plain: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._materializes = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, results or other tensors; backward finds them in ``saved_tensors``."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise DTypeError(f"save_for_backward keeps tensors, not a {type(t).__name__}")
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was kept by ``save_for_backward``."""
        return self._saved

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """These results let no gradient through."""
        self._plain = results

    def mark_dirty(self, *inputs: Tensor) -> None:
        """These inputs were changed in place and are results."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or else None, for results that received nothing."""
        self._materializes = value


class Function:
    """An operation with its own gradient: static methods ``forward`` and ``backward``.

    ``forward(ctx, ...)`` computes and saves, or ``forward(...)`` computes and
    ``setup_context(ctx, inputs, output)`` saves. ``backward(ctx, *gradients)`` gets one gradient
    per result and gives one per argument of forward, None for those without. ::

        class Square(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return 2 * x * gradient

        y = Square.apply(x)
    """

    @staticmethod
    def forward(*args: Any, **options: Any) -> Any:
        """What the operation computes."""
        raise NotImplementedError("a Function defines forward as a static method")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep for backward what it needs, where forward takes no context."""
        raise NotImplementedError("a Function whose forward takes no ctx defines setup_context")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments of forward, given those of its results."""
        raise NotImplementedError("a Function that is differentiated defines backward")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The result of forward, with the gradient that backward gives."""
        is_on = is_grad_enabled()
        needs = tuple([is_on and isinstance(a, Tensor) and a.requires_grad for a in args])
        ctx = Context(needs)
        before = [a.uop if isinstance(a, Tensor) else None for a in args]
        with no_grad():
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        if not any(needs):
            return output
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        found = _CallOf(cls, ctx, args, before, results).marked(results)
        return tuple(found) if isinstance(output, (tuple, list)) else found[0]


class _Kept(NamedTuple):
    """Where a saved tensor is found among the sources of a result."""

    place: int
    is_complex: bool
    device: str | None
    position: int | None  # of the result that it is


class _Kind(NamedTuple):
    """What is known of a tensor without its value."""

    dtype: DType
    shape: tuple[int, ...]
    device: str | None

    @staticmethod
    def of(t: Tensor, node: UOp) -> _Kind:
        return _Kind(node.dtype, node.shape, t._device)

    def tensor(self, floats: UOp) -> Tensor:
        return wrap(B.complex_view(floats) if self.dtype.is_complex else floats, self.device)


class _CallOf(Call):
    """One call of a Function: sources of its results after the value are float inputs, then
    saved tensors, of a saved result its value."""

    __slots__ = ("args", "context", "function", "kept", "results", "sources")

    def __init__(
        self,
        function: type[Function],
        context: Context,
        args: Sequence[Any],
        before: Sequence[UOp | None],
        results: Sequence[Any],
    ) -> None:
        self.function, self.context = function, context
        pairs = list(zip(args, before, strict=True))
        self.args = [_kind_of_float(a, node) for a, node in pairs]
        nodes = [B.floats_of(n) for n in before if n is not None and n.dtype.kind in _FLOATS]
        self.inputs = len(nodes)
        self.results = [_Kind.of(r, r.uop) if isinstance(r, Tensor) else None for r in results]
        self.kept: list[_Kept | None] = []
        for t in context._saved:
            if t is None:
                self.kept.append(None)
                continue
            is_changed = any(t is d for d in context._dirty)
            given = [n for a, n in pairs if a is t and n is not None and not is_changed]
            made = [i for i, r in enumerate(results) if r is t and self._has_gradient(r)]
            position = made[0] if made and not given else None
            kind = t.dtype.is_complex
            self.kept.append(_Kept(1 + len(nodes), kind, t._device, position))
            nodes.append(B.floats_of(given[0] if given else t.uop))
        context._saved = ()
        self.sources = tuple(nodes)

    def marked(self, results: Sequence[Any]) -> list[Any]:
        """The results as tensors that know this call."""
        found: list[Any] = []
        for position, r in enumerate(results):
            if not isinstance(r, Tensor):
                found.append(r)
            elif not self._has_gradient(r):
                found.append(r.detach())
            else:
                node = self._result(B.floats_of(r.uop), self.sources, position)
                if any(r is t for t in self.context._dirty):
                    r.uop = B.like(r.uop, node)
                    found.append(r)
                else:
                    found.append(wrap(B.like(r.uop, node), r._device))
        self.sources = ()  # from here on they are those of the nodes
        self.context._dirty = self.context._plain = ()
        return found

    def backward(self, node: UOp, received: Mapping[int, UOp]) -> list[UOp | None]:
        """What the float inputs receive."""
        self.context._saved = tuple([self._unpacked(kept, node) for kept in self.kept])
        try:
            given = self.function.backward(self.context, *self._gradients(received))
        finally:
            self.context._saved = ()
        parts = list(given) if isinstance(given, (tuple, list)) else [given]
        name, count = self.function.__name__, len(self.args)
        if len(parts) < count or any(p is not None for p in parts[count:]):
            raise GradientError(
                f"{name}.backward gave {len(parts)} gradients for the {count} arguments of forward"
            )
        found: list[UOp | None] = []
        for position, (kind, part) in enumerate(zip(self.args, parts, strict=False)):
            if kind is not None:
                found.append(None if part is None else _fitted(part, kind, name, position))
            elif part is not None:
                raise GradientError(
                    f"{name}.backward gave a gradient for argument {position}, which is no tensor "
                    "of floats: give None in its place"
                )
        return found

    def _gradients(self, received: Mapping[int, UOp]) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        for position, kind in enumerate(self.results):
            own = received.get(position)
            if own is not None and kind is not None:
                found.append(kind.tensor(own))
            elif kind is not None and self.context._materializes:
                found.append(wrap(B.full(kind.shape, 0, kind.dtype), kind.device))
            else:
                found.append(None)
        return found

    def _unpacked(self, kept: _Kept | None, node: UOp) -> Tensor | None:
        """A saved tensor as the graph has it now."""
        if kept is None:
            return None
        found = node.src[kept.place]
        if kept.position is not None:
            found = self._result(found, node.src[1:], kept.position)
        return wrap(B.complex_view(found) if kept.is_complex else found, kept.device)

    def _result(self, value: UOp, sources: tuple[UOp, ...], position: int) -> UOp:
        node = make(O.BITCAST, value.dtype, (value, *sources), Result(self, position))
        node._shape = value.shape
        return node

    def _has_gradient(self, result: Any) -> bool:
        is_float = isinstance(result, Tensor) and result.dtype.kind in _FLOATS
        return is_float and not any(result is t for t in self.context._plain)


def _kind_of_float(argument: Any, node: UOp | None) -> _Kind | None:
    is_float = node is not None and node.dtype.kind in _FLOATS
    return _Kind.of(argument, node) if is_float and node is not None else None


def _fitted(part: Any, kind: _Kind, name: str, position: int) -> UOp:
    """A gradient in the dtype and shape of its input; what broadcasting added is summed."""
    found = tensor_of(part)
    if found.shape != kind.shape:
        lead = found.ndim - len(kind.shape)
        sizes = (1,) * max(lead, 0) + kind.shape
        fits = lead >= 0 and all(n in (1, m) for n, m in zip(sizes, found.shape, strict=True))
        if not fits:
            raise ShapeError(
                f"{name}.backward gave shape {found.shape} for argument {position} of {kind.shape}"
            )
        axes = [a for a, (n, m) in enumerate(zip(sizes, found.shape, strict=True)) if n != m]
        found = found.sum(axes, keepdim=True).reshape(kind.shape)
    if found.dtype.is_complex and not kind.dtype.is_complex:
        found = found.real
    return B.floats_of(found.cast(kind.dtype).uop)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose own gradient is not known: differentiating it again is an error."""

    @wraps(backward)
    def call(ctx: Any, *gradients: Any) -> Any:
        behind = [t for t in (*gradients, *ctx.saved_tensors) if isinstance(t, Tensor)]
        with no_grad():
            given = backward(ctx, *gradients)
        parts = list(given) if isinstance(given, (tuple, list)) else [given]
        places = [i for i, p in enumerate(parts) if isinstance(p, Tensor)]
        sealed = _Once.apply(len(places), *[parts[i] for i in places], *behind)
        for i, part in zip(places, sealed, strict=True):
            parts[i] = part
        return tuple(parts)

    return call


class _Once(Function):
    """The first tensors as they are, without a gradient that could be computed."""

    @staticmethod
    def forward(ctx: Context, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tensors[:count]

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> Any:
        raise GradientError(
            "a backward marked with once_differentiable cannot be differentiated again"
        )
