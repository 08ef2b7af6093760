"""Matrices of a model as they are kept in memory, and products with them.

What comes in are tensors of floats, or bytes of a block format; what comes out are `Matrix`
modules, of which a decoder asks products and rows. Nothing here becomes float32 in memory: float16
and bfloat16 are converted on their way into a product, and block formats with an integer product
are kept in lanes (`svod.llm.lanes`), where a run reads each byte once.

The integer product rounds the activations, in blocks of 32, to 127 steps either way. An activation
is then off by at most ``max(abs(block)) / 254``, and a result by at most the sum over blocks of
that times the sum of the absolute weights of the block.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import svod
from svod import nn
from svod.dtype import types as dt
from svod.llm.formats import BlockFormat
from svod.llm.lanes import LAYOUTS, WORD, Factors, in_lanes, picked, weights
from svod.tensor.tensor import Tensor

Products = Literal["integer", "float"]
WHOLE = (dt.float32, dt.float16, dt.bfloat16)  # kinds of floats that are kept as they are
BLOCK = 32  # activations with one scale, in all formats: a row is quantised once
STEPS = 127


class Matrix(nn.Module):
    """A matrix of weights: (rows, columns)."""

    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return sum([part.nbytes for part in self.buffers()])

    def product(self, x: Tensor) -> Tensor:
        """x (m, columns) times the transposed matrix: (m, rows)."""
        raise NotImplementedError

    def rows(self, places: Tensor) -> Tensor:
        """Some rows as float32."""
        raise NotImplementedError

    def whole(self) -> Tensor:
        """All weights as float32."""
        raise NotImplementedError


class FloatMatrix(Matrix):
    """Weights that are floats: of 16 bits, they are widened where they are multiplied."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.shape = tuple(values.shape)
        self.register_buffer("values", values, persistent=False)

    def product(self, x: Tensor) -> Tensor:
        return x @ self.whole().transpose(0, 1)

    def rows(self, places: Tensor) -> Tensor:
        values: Tensor = self.values
        return values[places].float()

    def whole(self) -> Tensor:
        values: Tensor = self.values
        return values.float()


class BlockMatrix(Matrix):
    """Bytes of a block format as a file has them, decoded where they are multiplied."""

    def __init__(self, kind: BlockFormat, raw: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.kind = shape, kind
        self.register_buffer("raw", raw, persistent=False)

    def product(self, x: Tensor) -> Tensor:
        return x @ self.whole().transpose(0, 1)

    def rows(self, places: Tensor) -> Tensor:
        count, columns = self.shape
        raw: Tensor = self.raw
        return self.kind.decoded(raw.reshape(count, -1)[places], (places.shape[0], columns))

    def whole(self) -> Tensor:
        return self.kind.decoded(self.raw, self.shape)


class LaneMatrix(Matrix):
    """A block format with rows in lanes; products are of whole numbers, or of floats."""

    def __init__(
        self, kind: BlockFormat, raw: Tensor, shape: tuple[int, ...], products: Products
    ) -> None:
        super().__init__()
        self.shape, self.kind, self.products = shape, kind, products
        parts = in_lanes(kind, raw, shape[0])
        svod.realize(*parts.values())
        self.names = tuple(parts)
        for name, value in parts.items():
            self.register_buffer(name, value, persistent=False)

    @property
    def parts(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.names}

    def product(self, x: Tensor) -> Tensor:
        if self.products == "float":
            return x @ self.whole().transpose(0, 1)
        factors = LAYOUTS[self.kind.name].factors(self.parts)
        return integer_product(quantised(x), factors)[:, : self.shape[0]]

    def rows(self, places: Tensor) -> Tensor:
        return weights(self.kind, picked(self.parts, places))

    def whole(self) -> Tensor:
        return weights(self.kind, self.parts)[: self.shape[0]]


def matrix_of(kind: BlockFormat, raw: Tensor, shape: tuple[int, ...], products: Products) -> Matrix:
    """A matrix from its bytes in a block format."""
    if kind.name in LAYOUTS:
        return LaneMatrix(kind, raw, shape, products)
    return BlockMatrix(kind, raw, shape)


class Quantised(NamedTuple):
    """Rows of activations as bytes: ``quants * scale`` in blocks of 32."""

    quants: Tensor  # int8 (m, blocks, 32)
    scale: Tensor  # float32 (m, blocks)


def quantised(x: Tensor) -> Quantised:
    """Rows of activations (m, columns) as bytes."""
    blocks = x.reshape(x.shape[0], -1, BLOCK)
    scale = (blocks.abs().amax(2) * (1.0 / STEPS)).contiguous()
    per_step = svod.where(scale > 0, 1.0 / scale, 0.0).unsqueeze(2)
    return Quantised((blocks * per_step).round().cast(dt.int8), scale)


def integer_product(x: Quantised, w: Factors, apart: int = 1) -> Tensor:
    """Sums of whole numbers for each group of columns, put together by its scales.

    All rows of x meet all weights, or, where these are ``apart``, each row its own part of them.
    """
    count, lanes = x.quants.shape[0], w.scale.shape[-1]
    panels = w.scale.shape[0] // apart
    groups, inner = w.groups, w.inner

    def own(value: Tensor) -> Tensor:
        """Weights with an axis for rows of x ahead."""
        return value.reshape(apart, panels, *value.shape[1:])

    scale = _per_group(x.scale, groups, count)
    each = x.quants.reshape(count, -1, WORD * _product(inner))
    summed = _like(each.sum(2, dtype=dt.int32), groups, count)
    quants = x.quants.reshape(count, 1, *groups, *inner, 1, WORD)
    first = 2 + len(groups)
    axes = (*range(first, first + len(inner)), first + len(inner) + 1)
    terms = own(w.quants).cast(dt.int32) * quants.cast(dt.int32)
    total = terms.sum(axes, dtype=dt.int32).float() * scale
    if w.offset:
        total = total - (summed.float() * (scale * float(w.offset))).contiguous()
    total = total * own(w.scale)
    if w.minimum is not None:
        total = total - (summed.float() * scale).contiguous() * own(w.minimum)
    sums = total.sum(tuple(range(2, 2 + len(groups))))
    return sums.reshape(count, panels * lanes)


def _per_group(scale: Tensor, groups: tuple[int, ...], count: int) -> Tensor:
    """A scale of 32 activations for each group that they are in."""
    repeats = _product(groups) // scale.shape[1]
    if repeats > 1:
        scale = scale.unsqueeze(2).expand(count, scale.shape[1], repeats)
    return _like(scale, groups, count)


def _like(value: Tensor, groups: tuple[int, ...], count: int) -> Tensor:
    return value.reshape(count, 1, *groups, 1)


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found
