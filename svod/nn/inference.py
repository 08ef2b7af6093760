"""A model for use: recorded in evaluation mode, its weights folded and packed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from svod.base.errors import DTypeError
from svod.nn.module import Module
from svod.tensor.core import recorded_settings
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.recording.jit import Jit


def inference(model: Module, *example: Any, state: Any = (), config: Any = None) -> Jit:
    """The model as a function with frozen weights; one plan per signature of its arguments.

    The plans keep the weights as they are when a signature is first met: later changes of the
    model do not show, and the model itself may be dropped. Buffers that ``forward`` assigns to,
    and what ``state`` names, stay live. With ``example`` arguments the plan for them is made now.

        >>> import svod
        >>> run = svod.nn.inference(svod.nn.Linear(4, 2), svod.ones(8, 4))
        >>> run(svod.ones(8, 4)).shape
        (8, 2)
        >>> run.plan(svod.ones(8, 4)).memory.constant_bytes > 0
        True
    """
    if not isinstance(model, Module):
        raise DTypeError(f"inference takes a module, not a {type(model).__name__}")
    model.realize()

    def forward(*args: Any, **options: Any) -> Any:
        with _evaluating(model), no_grad():
            return model(*args, **options)

    forward.__name__ = type(model).__name__
    found = Jit(forward, state, (), config, freeze=True)
    if example:
        found.plan(*example)
    return found


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """Evaluation mode for a while; parts get back the mode each of them had."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.__dict__["training"] = mode
        recorded_settings.changed()


guard(globals())
