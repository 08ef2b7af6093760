"""Attention and its gradient.

``attend`` is softmax(query @ key.T * factor + mask) @ value. Where the device computes that by
blocks, so that the scores never reach memory, the gradient is written so that it can be too: from
the logarithm of each row's sum of exponentials, one number per query, weights are made again
wherever they are needed. Elsewhere the gradient is derived step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from svod.base.errors import DeviceError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import capabilities_of
from svod.ir.node import UOp, is_symbolic
from svod.runtime.config import PrepareConfig
from svod.tensor.core.slicing import transpose
from svod.tensor.core.tensor_core import accumulator, scalar_node, wrap
from svod.tensor.gradients.gradient_rules import summed
from svod.tensor.gradients.reverse_mode import Mark, custom_rules, mark
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.matrix_products import matmul
from svod.tensor.ops.reductions import top_of

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_NAME = "attention"  # of its gradient
_HALVES = (dt.bfloat16, dt.float16)
_WIDTHS = range(16, 129)  # elements of a head that a block of the gradient holds
_LEAST = 64  # queries and keys


class Call(NamedTuple):
    """How scores become weights."""

    factor: float
    is_causal: bool


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, call: Call
) -> Tensor:
    """Attention over the last two axes; a boolean mask says what stays, another is added."""
    if call.is_causal and mask is not None:
        raise ShapeError("attention: give attn_mask or is_causal, not both")
    given = [query, key, value, *([] if mask is None else [mask])]
    is_own = dropout == 0 and _has_kernels(given)
    if is_own:
        nodes = [mark(t.uop, Mark(_NAME, "input", i)) for i, t in enumerate(given)]
        query, key, value, *masks = (wrap(n, t._device) for n, t in zip(nodes, given, strict=True))
        mask = masks[0] if masks else None
    if not capabilities_of(query.device).fuses_attention:
        return _in_float32(query, key, value, mask, dropout, call)
    scores = masked(query @ key.transpose(-2, -1), mask, call)
    # A triangle leaves every row its first key; a mask may leave it none.
    weights = scores.softmax(-1) if mask is None else _safe_softmax(scores)
    found = weights.dropout(dropout, dropout > 0) @ value
    return wrap(mark(found.uop, Mark(_NAME, "output", 0, call)), found._device) if is_own else found


def _in_float32(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, call: Call
) -> Tensor:
    """Scores and weights of narrow floats in float32, as a GPU's kernel keeps them: the result is
    rounded once."""
    kind = accumulator(promote(query.dtype, key.dtype))
    scores = masked(query.matmul(key.transpose(-2, -1), dtype=kind), mask, call)
    weights = scores.softmax(-1) if mask is None else _safe_softmax(scores)
    found = weights.dropout(dropout, dropout > 0) @ value
    given = [query, key, value, *([] if mask is None or mask.dtype.kind == "b" else [mask])]
    common = reduce(promote, [t.dtype for t in given])
    return found.cast(common) if common.kind == "f" else found


def masked(products: Tensor, mask: Tensor | None, call: Call, is_turned: bool = False) -> Tensor:
    """Scores of the products of queries and keys, or of keys and queries."""
    scores = products * call.factor
    if call.is_causal:
        rows, columns = scores.shape[-2:]
        row = wrap(B.reshape(B.iota(rows), (rows, 1)), None)
        column = wrap(B.reshape(B.iota(columns), (1, columns)), None)
        mask = row <= column if is_turned else column <= row
    elif mask is not None and is_turned:
        mask = wrap(_turned(mask.uop), mask._device)
    if mask is None:
        return scores
    return select(mask, scores, float("-inf")) if mask.dtype.kind == "b" else scores + mask


def _turned(mask: UOp) -> UOp:
    """Columns by rows, where there are two axes."""
    shape = (1,) * (2 - len(mask.shape)) + mask.shape
    return transpose(B.reshape(mask, shape), -1, -2)


def _safe_softmax(scores: Tensor) -> Tensor:
    """softmax over the last axis, zeros for rows that are minus infinity everywhere."""
    x = wrap(B.cast(scores.uop, accumulator(scores.dtype)), scores._device)
    grown, total, _ = _sums(x, True)
    found = grown * total.reciprocal()
    return wrap(B.cast(found.uop, scores.dtype), found._device)


def _sums(scores: Tensor, is_guarded: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Exponentials, their sums over rows, and what was subtracted; a guard makes rows of minus
    infinity zeros with a sum of one."""
    top = top_of(scores, -1)
    if is_guarded:
        top = top.maximum(finfo(scores.dtype).min)
    grown = (scores - top).exp()
    total = grown.sum(-1, True)
    return grown, select(total == 0, 1, total) if is_guarded else total, top


# -- the gradient ---------------------------------------------------------------------------------


def _has_kernels(given: Sequence[Tensor]) -> bool:
    """Whether the gradient is made of kernels that keep scores to themselves."""
    query, key, value = given[:3]
    kinds = {t.dtype for t in given if t.dtype is not dt.bool_}
    if len(kinds) != 1 or kinds.pop() not in _HALVES or any(is_symbolic(t.shape) for t in given):
        return False
    sizes = (query.shape[-1], value.shape[-1])
    if not all(s in _WIDTHS for s in sizes) or min(query.shape[-2], key.shape[-2]) < _LEAST:
        return False
    return _has_blocks(query.device)


def _has_blocks(name: str) -> bool:
    if not capabilities_of(name).fuses_attention:
        return False
    try:
        return PrepareConfig().resolve_device(name).capabilities.fuses_attention_gradient
    except DeviceError:
        return False  # a graph for a device that is elsewhere


def _rule(output: UOp, grad: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
    given = [wrap(n.src[0], None) for n in inputs]
    mask = given[3] if len(given) > 3 else None
    below = grad
    while below.op in O.MOVEMENT or below.op == O.CAST:
        below = below.src[0]
    if below.op in (O.CONST, O.IOTA):
        grad = B.contiguous(grad)  # one number everywhere is no matrix
    found = attention_gradients(
        given[0], given[1], given[2], mask, wrap(output, None), wrap(grad, None),
        Call(*output.arg.options),
    )  # fmt: skip
    return [t.uop for t in found]


def attention_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    grad: Tensor,
    call: Call,
) -> list[Tensor]:
    """What query, key, value and an added mask receive.

    With weights p = exp(scores - logarithm), what scores receive is p * (grad @ value.T - own),
    where ``own`` is the sum of grad * output over a row: the same for all keys.
    """
    kind = query.dtype
    factor = float(scalar_node(call.factor, kind).arg)  # as the scores know it
    call = call._replace(factor=factor)
    scores = masked(_product(query, key), mask, call)
    _, total, top = _sums(scores, mask is not None)
    logarithm = top + total.log()
    own = (grad.float() * output.float()).sum(-1, True)
    received = (scores - logarithm).exp() * (_product(grad, value) - own)
    turned = masked(_product(key, query), mask, call, True)
    weights = (turned - logarithm.transpose(-1, -2)).exp()
    back = weights * (_product(value, grad) - own.transpose(-1, -2))
    found = [
        _product(received.cast(kind), key.transpose(-1, -2)) * factor,
        _product(back.cast(kind), query.transpose(-1, -2)) * factor,
        _product(weights.cast(kind), grad.transpose(-1, -2)),
    ]
    targets = [query, key, value]
    if mask is not None and mask.dtype.kind == "f":
        found.append(received)
        targets.append(mask)
    return [_fitted(f, t) for f, t in zip(found, targets, strict=True)]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Rows of one with rows of the other, added and kept in float32."""
    return wrap(matmul(a.uop, transpose(b.uop, -1, -2), dt.float32), a._device)


def _fitted(found: Tensor, target: Tensor) -> Tensor:
    """The sum over axes that were broadcast, in the target's type."""
    node, shape = found.uop, target.shape
    lead = len(node.shape) - len(shape)
    axes = [a for a, n in enumerate(node.shape) if a < lead or shape[a - lead] != n]
    if axes:
        node = B.reshape(summed(node, tuple(axes)), shape)
    return wrap(B.cast(node, target.dtype), None)


custom_rules[_NAME] = _rule
