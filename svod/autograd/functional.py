"""``svod.autograd.functional``: Jacobians, Hessians and products with them, as in torch.

Results are plain data unless ``create_graph`` asks for ones that can be differentiated again.
With ``strict`` it is an error that a result does not depend on an input; else that part is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svod.autograd.derivatives import Applied, directions_of
from svod.base.errors import ConfigError
from svod.ir import build as B
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.reverse_mode import GradientError
from svod.tensor.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function, and the product of a vector with its Jacobian."""
    found = Applied(func, _list(inputs), create_graph, strict)
    given = found.transposed(directions_of(v, found.outputs, "output"))
    return found.values(), _like(inputs, given)


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function, and the product of its Jacobian with a vector."""
    found = Applied(func, _list(inputs), create_graph, strict)
    vectors = [B.floats_of(t.uop) for t in directions_of(v, found.inputs, "input")]
    given = found.finished(found.directed(vectors), found.outputs)
    return found.values(), tuple(given) if found.is_tuple else given[0]


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivatives of every element of the outputs by every element of the inputs.

    A tensor for one output and one input, else tuples of tensors: by outputs, then by inputs. All
    rows are one graph; ``vectorize`` is accepted for torch's sake.
    """
    found = Applied(func, _list(inputs), create_graph, strict)
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ConfigError(f"strategy is 'reverse-mode' or 'forward-mode', not {strategy!r}")
    rows = found.rows() if strategy == "reverse-mode" else found.columns()
    parts = [_like(inputs, row) for row in rows]
    return tuple(parts) if found.is_tuple else parts[0]


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that returns one number."""
    first = _gradient_function(func, strict)
    found = jacobian(
        first, tuple(_list(inputs)), create_graph, strict, strategy=outer_jacobian_strategy
    )
    return found if isinstance(inputs, (tuple, list)) else found[0][0]


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function, and the product of a vector with its Hessian."""
    found, value, vectors = _second(func, inputs, v, create_graph, strict)
    return value, _like(inputs, found.transposed(vectors))


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function, and the product of its Hessian with a vector."""
    found, value, vectors = _second(func, inputs, v, create_graph, strict)
    given = found.directed([B.floats_of(t.uop) for t in vectors])
    return value, _like(inputs, found.finished(given, found.inputs))


def _second(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Applied, Any, list[Tensor]]:
    """The gradient of a function at a place, its value there, and the vectors that are given."""
    found = Applied(_with_value(func, strict), _list(inputs), create_graph, strict)
    vectors = directions_of(v, found.inputs, "input")
    value = found.outputs.pop(0)
    return found, found.finished([value.uop], [value])[0], vectors


def _gradient_function(func: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    """The gradient of a function of tensors, as a tuple."""

    def first(*args: Tensor) -> tuple[Tensor, ...]:
        found = Applied(func, args, True, strict)
        return tuple(found.transposed([_one_number(found)]))

    return first


def _with_value(func: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    """The value of a function and its gradient, as one tuple."""

    def both(*args: Tensor) -> tuple[Tensor, ...]:
        found = Applied(func, args, True, strict)
        given = found.transposed([_one_number(found)])
        return (found.values(), *given)

    return both


def _one_number(found: Applied) -> Tensor:
    """The seed of a function that returns one number."""
    if found.is_tuple or found.outputs[0].numel() != 1:
        raise GradientError(
            "a Hessian is that of a function which returns one tensor with one element, not "
            f"{[t.shape for t in found.outputs]}"
        )
    return found.outputs[0].ones_like()


def _list(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]


def _like(inputs: Any, found: Sequence[Tensor]) -> Any:
    return tuple(found) if isinstance(inputs, (tuple, list)) else found[0]


guard(globals())

describe(globals(), "svod.autograd.functional")
