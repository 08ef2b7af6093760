"""Embeddings: rows of a table at integer positions, one by one or in bags."""

from __future__ import annotations

from typing import Any

from svod.base.errors import ShapeError, UnsupportedError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.nn import functional, init
from svod.nn.module import Module, Parameter
from svod.tensor.core.tensor_core import wrap
from svod.tensor.ops.creation import zeros
from svod.tensor.ops.elementwise import select
from svod.tensor.tensor import Tensor


class _Table(Module):
    """Rows to be looked up, one of which may stand for nothing."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        device: str | None,
        dtype: Any,
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

    def reset_parameters(self) -> None:
        """New starting values."""
        start = init.normal_(self.weight.detach())
        if self.padding_idx is not None:
            start = select(self._is_padding(), 0.0, start)
        init.copy_(self.weight, start)
        self.__dict__["_is_ready"] = False

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Embedding(_Table):
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
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
            sparse, device, dtype,
        )  # fmt: skip

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

    def forward(self, indices: Tensor) -> Tensor:
        if self.max_norm is not None:
            self._shorten(indices)
        table = self.weight
        if self.padding_idx is not None:
            table = select(self._is_padding(), table.detach(), table)
        return indices.embedding(table)


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows: of each row of indices, or of runs that start at offsets."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
            sparse, device, dtype,
        )  # fmt: skip
        if mode not in ("sum", "mean", "max"):
            raise ShapeError(f"EmbeddingBag: mode is sum, mean or max, not {mode!r}")
        self.mode, self.include_last_offset = mode, include_last_offset
        if _weight is not None:
            if _weight.shape != (num_embeddings, embedding_dim):
                raise ShapeError(
                    f"EmbeddingBag: a weight of shape {_weight.shape} for "
                    f"{num_embeddings} rows of {embedding_dim}"
                )
            self.weight = Parameter(_weight)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A module over rows that are known; with ``freeze`` they are not trained."""
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained takes a matrix, not shape {embeddings.shape}")
        found = cls(
            *embeddings.shape, max_norm, norm_type, scale_grad_by_freq, mode, sparse, None,
            include_last_offset, padding_idx,
        )  # fmt: skip
        found.weight = Parameter(embeddings, requires_grad=not freeze)
        return found

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        if self.max_norm is not None:
            self._shorten(input)
        found: Tensor = functional.embedding_bag(  # type: ignore[attr-defined]
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx,
        )  # fmt: skip
        return found
