"""Norms of vectors and matrices, and the condition number that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.core.complex_parts import squares
from svod.tensor.core.tensor_core import Axis, axes_of, spelled
from svod.tensor.linalg.factorizations import inv, matrices, svdvals

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def check_order(order: Any, what: str) -> None:
    """Refuse what cannot be the order of a norm."""
    if order is not None and not isinstance(order, (int, float, str)):
        raise DTypeError(f"{what}: the order is a number or a name, not {order!r:.60}")


@spelled
def vector_norm(x: Tensor, /, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The norm of the elements over axes, as of one vector."""
    check_order(ord, "vector_norm")
    found = x.norm(ord, axes_of(axis, x.ndim), True)
    if keepdims:
        return found
    axes = axes_of(axis, x.ndim)
    return found.reshape([n for i, n in enumerate(x.shape) if i not in axes])


@spelled
def matrix_norm(
    x: Tensor,
    /,
    ord: float | str | None = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdims: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices, which two axes hold: "fro", "nuc", 1, 2, inf or their negatives."""
    if tuple(dim) != (-2, -1) or dtype is not None:
        axes = axes_of(dim, x.ndim)
        if len(axes) != 2:
            raise ShapeError(f"matrix_norm: a matrix has two axes, not {dim}")
        turned = (x if dtype is None else x.cast(dtype)).movedim(axes, (-2, -1))
        found = matrix_norm(turned, ord, keepdims=keepdims)
        return found.movedim((-2, -1), axes) if keepdims else found
    matrix = matrices(x, "matrix_norm")
    check_order(ord, "matrix_norm")
    if 0 in matrix.shape[-2:]:
        found = matrix.real.sum((-2, -1))  # zeros: the norm of no elements
    elif ord in ("fro", None):
        found = squares(matrix).sum((-2, -1)).sqrt()
    elif ord in ("nuc", 2, -2):
        values = svdvals(matrix)
        fold: dict[Any, Callable[..., Tensor]] = {
            "nuc": values.sum, 2: values.amax, -2: values.amin,
        }  # fmt: skip
        found = fold[ord](-1)
    elif ord in (1, -1, inf, -inf):
        assert isinstance(ord, (int, float))
        sums = matrix.abs().sum(-2 if abs(ord) == 1 else -1)
        found = sums.amax(-1) if ord > 0 else sums.amin(-1)
    else:
        raise ShapeError(f"matrix_norm: ord is 'fro', 'nuc', 1, 2, inf or -1, -2, -inf, not {ord}")
    return found.unsqueeze((-2, -1)) if keepdims else found


@spelled
def norm(A: Tensor, ord: Any = None, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The norm of a vector or of matrices, as np.linalg.norm chooses between the two."""
    check_order(ord, "norm")
    if dim is None and (ord is None or A.ndim == 1):
        return vector_norm(A, ord=2 if ord is None else ord, keepdims=keepdim)
    if dim is None and A.ndim != 2:
        raise ShapeError(f"norm: with ord and no dim, a vector or a matrix, not shape {A.shape}")
    axes = axes_of(dim, A.ndim)
    if len(axes) == 1 or ord is None:
        order = 2 if ord is None else ord
        return vector_norm(A, axis=axes, ord=order, keepdims=keepdim)
    if len(axes) != 2:
        raise ShapeError(f"norm: dim names 1 or 2 axes, not {dim}")
    found = matrix_norm(A.movedim(axes, (-2, -1)), ord=ord)
    if not keepdim:
        return found
    for axis in sorted(axes):
        found = found.unsqueeze(axis)
    return found


@spelled
def cond(A: Tensor, p: Any = None) -> Tensor:
    """How much the matrix can magnify relative errors: norm(A) * norm(inv(A))."""
    check_order(p, "cond")
    if p in (None, 2, -2):
        values = svdvals(A)
        large, small = values.amax(-1), values.amin(-1)
        return small / large if p == -2 else large / small
    if p not in ("fro", "nuc", 1, -1, inf, -inf):
        raise ShapeError(f"cond: p is None, 'fro', 'nuc', 1, 2, inf or a negative, not {p!r}")
    return matrix_norm(A, ord=p) * matrix_norm(inv(A), ord=p)
