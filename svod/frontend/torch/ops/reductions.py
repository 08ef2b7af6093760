"""Operators that fold axes, and running folds."""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import UnsupportedError
from svod.frontend.torch.ops.registry import Call, op, operand
from svod.tensor.tensor import Tensor


def _axes(x: Tensor, dim: Any) -> Any:
    """None and no axes mean all of them."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


@op("aten.sum.default", "aten.sum.dim_IntList", call=True)
def sum_(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    return x.sum(_axes(x, dim), keepdim, dtype=call.dtype)


@op("aten.mean.default", "aten.mean.dim", call=True)
def mean(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    return operand(x, call.dtype).mean(_axes(x, dim), keepdim)


@op("aten.prod.default", call=True)
def prod(call: Call, x: Tensor, **_: Any) -> Tensor:
    return x.prod(dtype=call.dtype)


@op("aten.prod.dim_int", call=True)
def prod_dim(call: Call, x: Tensor, dim: int, keepdim: bool = False, **_: Any) -> Tensor:
    return x.prod(dim, keepdim, dtype=call.dtype)


@op("aten.amax.default")
def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return x.amax(_axes(x, dim), keepdim)


@op("aten.amin.default")
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return x.amin(_axes(x, dim), keepdim)


@op("aten.max.default")
def max_all(x: Tensor) -> Tensor:
    return x.amax()


@op("aten.min.default")
def min_all(x: Tensor) -> Tensor:
    return x.amin()


@op("aten.max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(x.max(dim, keepdim))


@op("aten.min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(x.min(dim, keepdim))


@op("aten.aminmax.default")
def aminmax(x: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    return tuple(x.aminmax(dim=dim, keepdim=keepdim))


@op("aten.argmax.default")
def argmax(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return x.argmax(dim, keepdim)


@op("aten.argmin.default")
def argmin(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return x.argmin(dim, keepdim)


@op("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return x.any(_axes(x, dim), keepdim)


@op("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return x.all(_axes(x, dim), keepdim)


def _correction(given: Any) -> Any:
    return 1 if given is None else given


@op("aten.var.correction")
def var(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return x.var(_axes(x, dim), correction=_correction(correction), keepdim=keepdim)


@op("aten.var.dim")
def var_dim(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return x.var(_axes(x, dim), correction=int(unbiased), keepdim=keepdim)


@op("aten.std.correction")
def std(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return x.std(_axes(x, dim), correction=_correction(correction), keepdim=keepdim)


@op("aten.var_mean.correction")
def var_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = _axes(x, dim)
    found = x.var(axes, correction=_correction(correction), keepdim=keepdim)
    return found, x.mean(axes, keepdim)


@op("aten.logsumexp.default", call=True)
def logsumexp(call: Call, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return operand(x, call.dtype).logsumexp(_axes(x, dim), keepdim)


@op("aten.linalg_vector_norm.default", call=True)
def vector_norm(
    call: Call, x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    if not isinstance(ord, (int, float)):
        raise UnsupportedError("a norm whose order is a run-time size")
    if x.dtype.kind == "c":
        x = x.abs()
    return svod.linalg.vector_norm(operand(x, call.dtype), ord, _axes(x, dim), keepdim)


@op("aten.cumsum.default", call=True)
def cumsum(call: Call, x: Tensor, dim: int, **_: Any) -> Tensor:
    return x.cumsum(dim, dtype=call.dtype) if x.ndim else x


@op("aten.cumprod.default", call=True)
def cumprod(call: Call, x: Tensor, dim: int, **_: Any) -> Tensor:
    return x.cumprod(dim, dtype=call.dtype) if x.ndim else x


@op("aten.cummax.default")
def cummax(x: Tensor, dim: int) -> Any:
    return tuple(x.cummax(dim))


@op("aten.cummin.default")
def cummin(x: Tensor, dim: int) -> Any:
    return tuple(x.cummin(dim))


@op("aten.logcumsumexp.default")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return x.logcumsumexp(dim)


@op("aten.sort.default", "aten.sort.stable")
def sort(x: Tensor, *args: Any, **options: Any) -> Any:
    if args and isinstance(args[0], bool):
        options["stable"], args = args[0], args[1:]
    dim = args[0] if args else options.get("dim", -1)
    descending = args[1] if len(args) > 1 else options.get("descending", False)
    return tuple(x.sort(dim, descending))


@op("aten.topk.default")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return tuple(x.topk(k, dim, largest, sorted))


@op("aten.kthvalue.default")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return tuple(x.kthvalue(k, dim, keepdim))


@op("aten.median.dim")
def median(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(x.median(dim, keepdim))
