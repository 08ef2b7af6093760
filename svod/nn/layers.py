"""Linear layers, embeddings, dropout and small glue."""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError, UnsupportedError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.nn import init
from svod.nn.module import Module, Parameter
from svod.tensor.core import wrap
from svod.tensor.creation import zeros
from svod.tensor.elementwise import select
from svod.tensor.tensor import Tensor


def parameter(
    *shape: int, bound: float | None = None, dtype: Any = None, device: str | None = None
) -> Parameter:
    """A parameter of uniform numbers up to a bound, or of zeros."""
    found = Parameter(zeros(*shape, dtype=dtype, device=device))
    return found if bound is None else init.uniform_(found, -bound, bound)  # type: ignore[return-value]


class Identity(Module):
    """The input."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight.T + bias."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / sqrt(in_features) if in_features > 0 else 0.0
        made: dict[str, Any] = {"bound": bound, "dtype": dtype, "device": device}
        self.weight = parameter(out_features, in_features, **made)
        self.register_parameter("bias", parameter(out_features, **made) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """a @ weight @ b + bias for every output."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        bound = 1 / sqrt(in1_features) if in1_features > 0 else 0.0
        made: dict[str, Any] = {"bound": bound, "dtype": dtype, "device": device}
        self.weight = parameter(out_features, in1_features, in2_features, **made)
        self.register_parameter("bias", parameter(out_features, **made) if bias else None)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        from svod.tensor.linear import einsum

        found = einsum("...i,oij,...j->...o", a, self.weight, b)
        return found if self.bias is None else found + self.bias


class Embedding(Module):
    """Rows of a table at integer positions; the row of ``padding_idx`` is not trained.

    With ``max_norm``, rows that are used and longer than that are shortened in the table.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if scale_grad_by_freq or sparse:
            raise UnsupportedError("gradients that are sparse or scaled by counts", "option")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ShapeError(f"padding_idx {padding_idx} is outside {num_embeddings} rows")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        start = init.normal_(zeros(num_embeddings, embedding_dim, dtype=dtype, device=device))
        if self.padding_idx is not None:
            start = select(self._is_padding(), 0.0, start).cast(start.dtype)
        self.weight = Parameter(start)

    def _is_padding(self) -> Tensor:
        count = self.num_embeddings
        rows = wrap(B.reshape(B.iota(count, dt.int32), (count, 1)), None)
        return rows == self.padding_idx

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
    ) -> Embedding:
        """A module over rows that are known; with ``freeze`` they are not trained."""
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained takes a matrix, not shape {embeddings.shape}")
        found = cls(*embeddings.shape, padding_idx, max_norm, norm_type)
        found.weight = Parameter(embeddings, requires_grad=not freeze)
        return found

    def _shorten(self, indices: Tensor) -> None:
        """Rows that are used and too long become as long as they may be."""
        table = self.weight.detach()
        lengths = table.norm(self.norm_type, 1, True)
        limit = float(self.max_norm)  # type: ignore[arg-type]
        used = zeros(self.num_embeddings, dtype=dt.int32)
        flat = indices.reshape(-1)
        used = used.index_add(0, flat, zeros(flat.shape, dtype=dt.int32) + 1)
        is_long = (used.reshape(-1, 1) > 0) & (lengths > limit)
        self.weight.assign(select(is_long, table * (limit / (lengths + 1e-7)), table))

    def forward(self, indices: Tensor) -> Tensor:
        if self.max_norm is not None:
            self._shorten(indices)
        table = self.weight
        if self.padding_idx is not None:
            table = select(self._is_padding(), table.detach(), table)
        return indices.embedding(table)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Dropout(Module):
    """In training, zeros with probability p, the rest scaled up."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ShapeError(f"dropout: p is a probability, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x.dropout(self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """Axes from start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """One axis cut into several."""

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)
