"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from svod.base.errors import ShapeError
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.ops.joining import concatenate
from svod.tensor.recording.realize import realize
from svod.tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements, one parameter after the other."""
    given = list(parameters)
    if not given:
        raise ShapeError("parameters_to_vector takes at least one parameter")
    return concatenate([p.reshape(-1) for p in given], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters the elements of a vector."""
    given = list(parameters)
    count = sum([p.numel() for p in given])
    if vec.shape != (count,):
        raise ShapeError(f"a vector of shape {vec.shape} for {count} elements of parameters")
    with no_grad():
        place = 0
        for p in given:
            p.assign(vec[place : place + p.numel()].reshape(p.shape).cast(p.dtype).detach())
            place += p.numel()
        realize(given)


guard(globals())
