"""gradcheck and gradgradcheck: gradients against finite differences, with torch's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from svod.autograd.derivatives import Applied
from svod.autograd.tensors import grad
from svod.base.errors import ConfigError, SvodError
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.grad_modes import no_grad
from svod.tensor.random.threefry import randn
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


class GradcheckError(SvodError, RuntimeError):
    """A gradient that differs from finite differences."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the Jacobian of a function is what finite differences say.

    Inputs that require a gradient are checked; they should be float64. With ``raise_exception`` an
    error says where values differ.
    """
    given = _list(inputs)
    places = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    if not places:
        raise ConfigError("gradcheck: no input requires a gradient")

    def of_these(*checked: Tensor) -> list[Tensor]:
        return [t for t in _list(func(*_replaced(given, places, checked))) if _is_checked(t)]

    found = Applied(of_these, [given[i] for i in places], False).rows()
    for column, place in enumerate(places):
        numeric = _differences(of_these, [given[i] for i in places], column, eps)
        for row, (analytic, wanted) in enumerate(zip(found, numeric, strict=True)):
            values = analytic[column].numpy().reshape(wanted.shape)
            if np.allclose(values, wanted, rtol, atol, equal_nan=True):
                continue
            if not raise_exception:
                return False
            raise GradcheckError(
                f"the derivative of output {row} by input {place} is not what differences say:\n"
                f"by gradients\n{values}\nby differences\n{wanted}"
            )
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether second derivatives are what finite differences of the first ones say.

    ``grad_outputs`` are the gradients of the outputs, random numbers where they are not given.
    """
    given = _list(inputs)
    outputs = [t for t in _list(func(*given)) if _is_checked(t)]
    if grad_outputs is None:
        with no_grad():
            seeds = [randn(*t.shape, dtype=t.dtype).realize() for t in outputs]
        seeds = [s.requires_grad_() for s in seeds]
    else:
        seeds = _list(grad_outputs)
    count = len(given)

    def first(*args: Any) -> tuple[Tensor | None, ...]:
        results = [t for t in _list(func(*args[:count])) if _is_checked(t)]
        wanted = [
            x
            for x, own in zip(args, given, strict=False)
            if isinstance(own, Tensor) and own.requires_grad
        ]
        return grad(results, wanted, args[count:], create_graph=True, materialize_grads=True)

    return gradcheck(
        first, [*given, *seeds], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception
    )


def _list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (tuple, list)) else [values]


def _is_checked(t: Any) -> bool:
    """Whether an output is differentiated."""
    return isinstance(t, Tensor) and t.dtype.kind in "fc"


def _replaced(given: Sequence[Any], places: Sequence[int], values: Sequence[Tensor]) -> list[Any]:
    found = list(given)
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return found


def _differences(
    function: Callable[..., list[Tensor]], inputs: Sequence[Tensor], column: int, eps: float
) -> list[Array]:
    """Central differences by one input: of each output a matrix, rows for its elements."""
    start = inputs[column].numpy()
    columns: list[list[Array]] = []
    for i in range(start.size):
        values = []
        for step in (eps, -eps):
            array = np.array(start)
            array.reshape(-1)[i] += step
            changed = Tensor(array, device=inputs[column]._device).requires_grad_()
            args = _replaced(inputs, [column], [changed])
            values.append([t.detach().numpy().reshape(-1) for t in function(*args)])
        pairs = zip(*values, strict=True)
        columns.append([(more - less) / (2 * eps) for more, less in pairs])
    sizes = [t.numel() for t in function(*inputs)] if not columns else []
    if sizes:
        return [np.zeros((n, 0)) for n in sizes]
    return [np.stack(own, axis=1) for own in zip(*columns, strict=True)]


guard(globals())
