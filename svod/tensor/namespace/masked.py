"""``svod.masked``: the folds and normalisations of torch.masked, over the elements a mask names.

Elements outside the mask become a value that does not count, and the plain function does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.base.errors import IndexingError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of, iinfo
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import Axis
from svod.tensor.linalg import linear_algebra
from svod.tensor.ops.elementwise import select
from svod.tensor.tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]  # fmt: skip

_INF = float("inf")


def _least(x: Tensor) -> Any:
    return -_INF if x.dtype.kind in "fc" else iinfo(x.dtype).min


def _most(x: Tensor) -> Any:
    return _INF if x.dtype.kind in "fc" else iinfo(x.dtype).max


def _kept(x: Tensor, mask: Tensor | None, other: Any) -> Tensor:
    """x where the mask holds, else a value."""
    if mask is None:
        return x
    if mask.ndim > x.ndim:
        raise IndexingError(f"a mask of shape {mask.shape} has more axes than {x.shape}")
    return select(mask.cast(dt.bool_).expand(x.shape), x, other)


def _fold(name: str, other: Callable[[Tensor], Any], takes_dtype: bool = False) -> Any:
    def function(
        input: Tensor,
        dim: Axis = None,
        *,
        keepdim: bool = False,
        dtype: Any = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        x = _kept(input, mask, other(input))
        axes = None if dim == () else dim
        if takes_dtype:
            found: Tensor = getattr(x, name)(axes, keepdim, dtype=dtype)
            return found
        return getattr(x, name)(axes, keepdim).cast(input.dtype if dtype is None else dtype)

    return _named(function, name)


def _along(name: str, other: Callable[[Tensor], Any]) -> Any:
    def function(
        input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
    ) -> Tensor:
        found: Tensor = getattr(_kept(input, mask, other(input)), name)(dim, dtype=dtype)
        return found.cast(input.dtype if dtype is None else dtype)

    return _named(function, name)


def _named(function: Callable[..., Tensor], name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over the elements where the mask holds."
    return function


sum = _fold("sum", lambda x: 0, True)
prod = _fold("prod", lambda x: 1, True)
amax = _fold("amax", _least)
amin = _fold("amin", _most)
argmax = _fold("argmax", _least)
argmin = _fold("argmin", _most)
logsumexp = _fold("logsumexp", _least)
cumsum = _along("cumsum", lambda x: 0)
cumprod = _along("cumprod", lambda x: 1)
softmax = _along("softmax", _least)
log_softmax = _along("log_softmax", _least)
softmin = _along("softmin", _most)


def mean(
    input: Tensor,
    dim: Axis = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The average of the elements where the mask holds; NaN where it holds nowhere."""
    kind = input.dtype if dtype is None else dtype_of(dtype)
    if kind.kind not in "fc":
        raise ShapeError(f"masked mean is a float or complex number, not {kind.name}")
    return _total(input, dim, keepdim, kind, mask) / _count(input, dim, keepdim, mask)


def _total(x: Tensor, dim: Axis, keepdim: bool, kind: Any, mask: Tensor | None) -> Tensor:
    found: Tensor = sum(x, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return found


def _count(x: Tensor, dim: Axis, keepdim: bool, mask: Tensor | None) -> Tensor:
    """How many elements the mask names."""
    return _total(x.ones_like(dtype=dt.int64), dim, keepdim, dt.int64, mask)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median of the elements where the mask holds; NaN where it holds nowhere."""
    x = input if input.dtype.kind == "f" else input.float()
    found: Tensor = _kept(x, mask, float("nan")).nanmedian(dim, keepdim).values
    if input.dtype.kind != "f" and bool(found.isnan().any().item()):
        raise ShapeError("masked median: some rows have no elements, which integers cannot say")
    return found.cast(input.dtype if dtype is None else dtype)


def norm(
    input: Tensor,
    ord: float = 2.0,
    dim: Axis = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm of the elements where the mask holds, as of one vector."""
    x = _kept(input, mask, _INF if ord == -_INF else 0)
    x = x if dtype is None else x.cast(dtype)
    return linear_algebra.vector_norm(x, axis=None if dim == () else dim, ord=ord, keepdims=keepdim)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The elements divided by the norm of those where the mask holds; others are zero."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _kept(input, mask, 0) / size.clamp(eps)


def var(
    input: Tensor,
    dim: Axis = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance of the elements where the mask holds; the divisor is their count less one."""
    if unbiased is not None and correction is not None:
        raise ShapeError("masked var takes one of unbiased and correction")
    less = correction if correction is not None else 0.0 if unbiased is False else 1.0
    kind = (input.dtype if input.dtype.kind in "fc" else dt.float32) if dtype is None else dtype
    middle = mean(input, dim, keepdim=True, dtype=kind, mask=mask)
    apart = input - middle
    total = _total(apart * apart.conj(), dim, keepdim, kind, mask)
    count = (_count(input, dim, keepdim, mask) - less).clamp(0)
    return (total / count).cast(kind)


def std(
    input: Tensor,
    dim: Axis = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation of the elements where the mask holds."""
    found = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    )
    return found.sqrt()


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)) of the elements where their masks hold."""
    left, right = _kept(input, input_mask, -_INF), _kept(other, other_mask, -_INF)
    return left.logaddexp(right).cast(input.dtype if dtype is None else dtype)


guard(globals(), __all__)
