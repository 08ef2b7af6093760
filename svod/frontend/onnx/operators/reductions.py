"""Reductions: axes as an attribute, or as an input where the version says so."""

from __future__ import annotations

from collections.abc import Callable

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Host, Tensor, operator

Axes = list[int]


def _log_sum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _floats(x).sum(axes, keepdim=keep).log().cast(x.dtype)


def _log_sum_exp(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _floats(x).logsumexp(axes, keepdim=keep).cast(x.dtype)


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.cast(dt.float64)


def _max(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return (
        x.cast(dt.uint8).amax(axes, keepdim=keep).cast(x.dtype)
        if x.dtype is dt.bool_
        else (x.amax(axes, keepdim=keep))
    )


def _min(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return (
        x.cast(dt.uint8).amin(axes, keepdim=keep).cast(x.dtype)
        if x.dtype is dt.bool_
        else (x.amin(axes, keepdim=keep))
    )


def _mean(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if x.dtype.is_float:
        return x.mean(axes, keepdim=keep)
    return _floats(x).mean(axes, keepdim=keep).trunc().cast(x.dtype)


def _product(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    for axis in axes:
        x = x.prod(axis, keepdim=True, dtype=x.dtype)
    return x if keep else x.squeeze(tuple(axes))


_FOLDS: dict[str, Callable[[Tensor, Axes, bool], Tensor]] = {
    "ReduceSum": lambda x, a, k: x.sum(a, keepdim=k, dtype=x.dtype),
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": _product,
    "ReduceL1": lambda x, a, k: x.abs().sum(a, keepdim=k, dtype=x.dtype),
    "ReduceL2": lambda x, a, k: _floats(x).square().sum(a, keepdim=k).sqrt().cast(x.dtype),
    "ReduceSumSquare": lambda x, a, k: x.square().sum(a, keepdim=k, dtype=x.dtype),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
_EMPTY = {"ReduceMax": (float("-inf"), 0), "ReduceMin": (float("inf"), 1)}


def reduce(name: str, x: Tensor, axes: Axes | None, keep: bool) -> Tensor:
    """A fold over axes, or over all of them."""
    chosen = sorted({a % x.ndim for a in axes}) if axes else list(range(x.ndim))
    if not chosen:  # a scalar: what each does with one value
        return _FOLDS[name](x.reshape(1), [0], False)
    if name in _EMPTY and 0 in [x.shape[a] for a in chosen]:
        return _of_nothing(name, x, chosen, keep)
    return _FOLDS[name](x, chosen, keep)


def _of_nothing(name: str, x: Tensor, axes: Axes, keep: bool) -> Tensor:
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    value, end = _EMPTY[name]
    if not x.dtype.is_float:
        value = dt.integer_limits(x.dtype)[end]
    return svod.full(shape, value, dtype=x.dtype)


def _by_attribute(
    x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1, node: NodeView
) -> Tensor:
    return reduce(node.proto.op_type, x, axes, bool(keepdims))


def _by_input(
    x: Tensor, axes: Host | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
    node: NodeView,
) -> Tensor:  # fmt: skip
    chosen = [] if axes is None else [int(a) for a in axes.reshape(-1)]
    if not chosen and noop_with_empty_axes:
        if node.proto.op_type in (
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
        ):
            return x
        return _FOLDS[node.proto.op_type](x.unsqueeze(0), [0], False)
    return reduce(node.proto.op_type, x, chosen, bool(keepdims))


for _name in _FOLDS:
    operator(_name)(_by_attribute)
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_by_input)


@operator("ArgMax", "ArgMin")
def arg_extreme(
    x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0, node: NodeView
) -> Tensor:
    source = x.flip(axis) if select_last_index else x
    if x.dtype is dt.bool_:
        source = source.cast(dt.uint8)
    method = source.argmax if node.proto.op_type == "ArgMax" else source.argmin
    found = method(axis, keepdim=bool(keepdims)).cast(dt.int64)
    return x.shape[axis] - 1 - found if select_last_index else found
