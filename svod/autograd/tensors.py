"""grad and backward of tensors that were computed, with torch's signatures and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svod.base.errors import ArgumentError, ConfigError, DTypeError, ShapeError
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core import history
from svod.tensor.core.history import detached
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import wrap
from svod.tensor.gradients.autograd import add_gradients
from svod.tensor.gradients.batching import batched, stand_in
from svod.tensor.gradients.endpoints import Root, gradients_of
from svod.tensor.gradients.reverse_mode import GradientError
from svod.tensor.tensor import Tensor


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of outputs, added up, with respect to inputs; ``grad`` of leaves stays.

    Outputs with more than one element need ``grad_outputs``; with ``is_grads_batched`` these have
    a leading axis of several seeds, and so have the results. An input that the outputs do not
    depend on is an error, or None with ``allow_unused``, or zeros with ``materialize_grads`` and
    where the outputs are constants.
    Gradients are plain data unless ``create_graph`` asks for ones that can be differentiated
    again. The graph stays usable; ``retain_graph`` is accepted for torch's sake.
    """
    if allow_unused is False and materialize_grads:
        raise ConfigError(
            "grad: materialize_grads gives zeros for inputs that are not used, which "
            "allow_unused=False forbids"
        )
    targets = _tensors(inputs, "inputs")
    roots = _roots(outputs, grad_outputs, is_grads_batched, allow_unused or materialize_grads)
    _check_tracked(targets, "input")
    if is_grads_batched:
        found = _batched_gradients(roots, targets)
    else:
        found = gradients_of(roots, targets)
    is_lost = None in found  # then it matters whether there was anything to depend on
    zero = materialize_grads or (is_lost and all(history.is_constant(t.uop) for t, _ in roots))
    size = roots[0][1].shape[:1] if is_grads_batched and roots[0][1] is not None else ()
    result: list[Tensor | None] = []
    for position, (t, node) in enumerate(zip(targets, found, strict=True)):
        if node is None and not (allow_unused or zero):
            raise GradientError(
                f"grad: input {position}, {t.dtype.name} of shape {t.shape}, was not used to "
                "compute the outputs: pass allow_unused=True for None in its place"
            )
        if node is not None:
            result.append(wrap(node if create_graph else detached(node), t._device))
        else:
            zeros = B.full((*size, *t.shape), 0, t.dtype)
            result.append(wrap(zeros, t._device) if zero else None)
    return tuple(result)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of tensors to ``grad`` of all leaves, or of ``inputs``.

    Tensors with more than one element need ``grad_tensors``; ``grad_variables`` is its old name.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise ArgumentError("backward: grad_variables is another name of grad_tensors")
        grad_tensors = grad_variables
    wanted = None if inputs is None else _tensors(inputs, "inputs")
    if wanted is not None and not wanted:
        raise GradientError("backward: inputs is empty: leave it out for all leaves")
    add_gradients(_roots(tensors, grad_tensors, False), create_graph, wanted)


def _tensors(given: Any, what: str) -> list[Tensor]:
    found = [given] if isinstance(given, Tensor) else list(given)
    for t in found:
        if not isinstance(t, Tensor):
            raise DTypeError(f"{what} must be tensors, not a {type(t).__name__}: {t!r:.60}")
    return found


def _roots(
    outputs: Any, seeds: Any, is_batched: bool, may_be_lost: bool | None = False
) -> list[Root]:
    """The outputs that have gradients, each with its own."""
    found = _tensors(outputs, "outputs")
    if not found:
        raise GradientError("a gradient starts from at least one tensor")
    given = [seeds] if seeds is None or isinstance(seeds, Tensor) else list(seeds)
    if seeds is None:
        given *= len(found)
    if len(given) != len(found):
        raise ShapeError(f"{len(given)} gradients for {len(found)} outputs")
    if is_batched and any(g is None for g in given):
        raise GradientError("is_grads_batched needs grad_outputs for every output")
    if not may_be_lost:
        _check_tracked(found, "output")
    for t, g in zip(found, given, strict=True):
        if is_batched and (g.shape[1:] != t.shape or g.shape[:1] != given[0].shape[:1]):
            raise ShapeError(
                f"a batch of gradients of shape {g.shape} for a tensor of shape {t.shape}: "
                "it has one axis more, of the same size for all"
            )
    return list(zip(found, given, strict=True))


def _check_tracked(tensors: Sequence[Tensor], what: str) -> None:
    known = history.tracked([t.uop for t in tensors])
    for position, t in enumerate(tensors):
        if not history.is_leaf(t) and B.floats_of(t.uop) not in known:
            if what == "output" and history.is_constant(t.uop):
                continue  # its gradients are zero
            raise GradientError(
                f"{what} {position}, {t.dtype.name} of shape {t.shape}, does not require a "
                "gradient: call requires_grad_() on it, or on what it is computed from, before "
                "it is used"
            )


def _batched_gradients(roots: Sequence[Root], targets: Sequence[Tensor]) -> list[UOp | None]:
    """Gradients for many seeds at once: the graph for one, with an axis more."""
    known: dict[UOp, UOp] = {}
    single: list[Root] = []
    for t, seeds in roots:
        assert seeds is not None
        node = B.floats_of(seeds.cast(t.dtype).uop)
        one = stand_in(node.shape[1:], node.dtype)
        known[one] = node
        single.append((t, wrap(B.like(t.uop, one), t._device)))
    found = gradients_of(single, targets)
    nodes = [B.floats_of(n) for n in found if n is not None]
    moved = iter(batched(nodes, known))
    return [None if n is None else B.like(n, next(moved)) for n in found]


guard(globals())
