"""``svod.func``: transformations of functions, as in torch.func: results can be transformed again.

``vmap`` calls a function once, with stand-ins for one element of the batch, and rewrites the graph
of the result for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from svod.autograd.derivatives import Applied, directions_of
from svod.base.errors import ConfigError, DTypeError, ShapeError
from svod.ir import build as B
from svod.ir.node import UOp
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.core.pytrees import Form, flatten, unflatten
from svod.tensor.core.tensor_core import axis_of, wrap
from svod.tensor.core.tracing import recording
from svod.tensor.gradients.autograd import grad as grad
from svod.tensor.gradients.autograd import value_and_grad
from svod.tensor.gradients.batching import batched, stand_in
from svod.tensor.tensor import Tensor

__all__ = [
    "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp", "vmap",
]  # fmt: skip


def grad_and_value(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of func, and its value."""
    both = value_and_grad(func, argnums, has_aux)

    @wraps(func)
    def call(*args: Any, **options: Any) -> Any:
        value, found = both(*args, **options)
        return found, value

    return call


def vjp(
    func: Callable[..., Any], *primals: Tensor
) -> tuple[Any, Callable[..., tuple[Tensor, ...]]]:
    """The value of a function, and the function that multiplies vectors with its Jacobian."""
    found = Applied(func, primals, True)

    def product(*cotangents: Any) -> tuple[Tensor, ...]:
        given = cotangents[0] if found.is_tuple and len(cotangents) == 1 else cotangents
        return tuple(found.transposed(directions_of(tuple(given), found.outputs, "output")))

    return found.values(), product


def jvp(
    func: Callable[..., Any], primals: Sequence[Tensor], tangents: Sequence[Tensor]
) -> tuple[Any, Any]:
    """The value of a function, and the product of its Jacobian with vectors."""
    found = Applied(func, primals, True)
    vectors = directions_of(tuple(tangents), found.inputs, "input")
    given = found.finished(found.directed([B.floats_of(v.uop) for v in vectors]), found.outputs)
    return found.values(), tuple(given) if found.is_tuple else given[0]


def linearize(func: Callable[..., Any], *primals: Tensor) -> tuple[Any, Callable[..., Any]]:
    """The value of a function, and the function that multiplies its Jacobian with vectors."""
    found = Applied(func, primals, True)

    def product(*tangents: Tensor) -> Any:
        vectors = directions_of(tangents, found.inputs, "input")
        nodes = found.directed([B.floats_of(v.uop) for v in vectors])
        given = found.finished(nodes, found.outputs)
        return tuple(given) if found.is_tuple else given[0]

    return found.values(), product


def jacrev(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that gives the Jacobian of func, computed by rows."""
    return _jacobian(func, argnums, Applied.rows)


def jacfwd(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that gives the Jacobian of func, computed by columns."""
    return _jacobian(func, argnums, Applied.columns)


def hessian(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of func."""
    return jacfwd(jacrev(func, argnums), argnums)


def _jacobian(
    func: Callable[..., Any],
    argnums: int | Sequence[int],
    parts: Callable[[Applied], list[list[Tensor]]],
) -> Callable[..., Any]:
    places = [argnums] if isinstance(argnums, int) else list(argnums)

    @wraps(func)
    def call(*args: Any) -> Any:
        for place in places:
            if not -len(args) <= place < len(args):
                raise ShapeError(f"argument {place} of {len(args)}")
        forms: list[Form] = []

        def of_these(*given: Tensor) -> Any:
            inside = list(args)
            for place, x in zip(places, given, strict=True):
                inside[place] = x
            leaves, form = flatten(func(*inside))
            forms.append(form)
            return leaves

        found = parts(Applied(of_these, [args[p] for p in places], True))
        rows = [row[0] if isinstance(argnums, int) else tuple(row) for row in found]
        return unflatten(forms[0], rows)

    return call


# -- batches -------------------------------------------------------------------------------------


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "same",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of batches from a function of one element.

    ``in_dims`` says which axis of each argument is that of the batch, None for arguments that are
    the same for all; ``out_dims`` where it goes in the results. Random numbers drawn inside are
    the same for all elements; ``chunk_size`` is accepted for torch's sake.
    """
    if randomness != "same":
        raise ConfigError(f"vmap: randomness={randomness!r}: numbers drawn inside are the same")

    @wraps(func)
    def call(*args: Any, **options: Any) -> Any:
        leaves, form = flatten(args)
        axes = _axes(in_dims, form, leaves)
        known: dict[UOp, UOp] = {}
        seen = [_one_of(x, axis, known) for x, axis in zip(leaves, axes, strict=True)]
        sizes = {node.shape[0] for node in known.values()}
        if len(sizes) != 1:
            raise ShapeError(f"vmap: arguments have batches of {sorted(sizes) or 'no'} elements")
        with recording("vmap", known):
            result = func(*unflatten(form, seen), **options)
        results, kind = flatten(result)
        for r in results:
            if not isinstance(r, Tensor):
                raise DTypeError(f"vmap: the function returned a {type(r).__name__}, no tensor")
        moved = batched([B.floats_of(r.uop) for r in results], known)
        found = [wrap(B.like(r.uop, n), r._device) for r, n in zip(results, moved, strict=True)]
        places = _axes(out_dims, kind, results)
        pairs = zip(found, places, strict=True)
        return unflatten(kind, [_moved_to(t, place) for t, place in pairs])

    return call


def _axes(dims: Any, form: Form, leaves: Sequence[Any]) -> list[int | None]:
    """The axis of every leaf: one for all, or a structure over the first levels of the form."""
    found: list[int | None] = []

    def fill(dims: Any, form: Form) -> None:
        if dims is None or isinstance(dims, int):
            found.extend([dims] * _count(form))
            return
        parts = [dims[k] for k in form.keys] if isinstance(dims, dict) else list(dims)
        if len(parts) != len(form.parts):
            raise ShapeError(f"vmap: axes {dims} for a structure {form}")
        for part, inner in zip(parts, form.parts, strict=True):
            fill(part, inner)

    fill(dims, form)
    return found


def _count(form: Form) -> int:
    if form.kind is None:
        return 1 if form.keys else 0
    return sum([_count(part) for part in form.parts])


def _one_of(x: Any, axis: int | None, known: dict[UOp, UOp]) -> Any:
    """What stands for one element of a batch; the batch is noted with its axis in front."""
    if axis is None or not isinstance(x, Tensor):
        if axis is not None and axis != 0:
            raise DTypeError(f"vmap: axis {axis} of a {type(x).__name__}, which is no tensor")
        return x
    if not x.ndim:
        raise ShapeError("vmap: a tensor without axes has no batch: give None for it in in_dims")
    front = x.movedim(axis_of(axis, x.ndim), 0)
    node = B.floats_of(front.uop)
    one = stand_in(node.shape[1:], node.dtype)
    known[one] = node
    return wrap(B.like(front.uop, one), x._device)


def _moved_to(t: Tensor, place: int | None) -> Tensor:
    if place is None:
        raise ShapeError("vmap: out_dims=None is for results that do not depend on the batch")
    return t.movedim(0, place)


guard(globals())

describe(globals(), "svod.func")
