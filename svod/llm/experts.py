"""Experts: networks of which a router chooses a few for each token.

The weights of all experts of a layer are one stack (experts, rows, columns). A product reads only
those that were chosen: where they lie is data, so it is an indexed read inside of the product.
"""

from __future__ import annotations

import svod
from svod import nn
from svod.llm.errors import ModelFileError
from svod.llm.formats import BlockFormat
from svod.llm.lanes import LANES, LAYOUTS, in_lanes, weights
from svod.llm.weights import Products, Quantised, integer_product, quantised
from svod.tensor.tensor import Tensor


class Stack(nn.Module):
    """The same matrix of every expert."""

    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return sum([part.nbytes for part in self.buffers()])

    def product(self, x: Tensor, places: Tensor) -> Tensor:
        """x (m, columns) times the transposed matrices of experts (m, k): (m, k, rows)."""
        raise NotImplementedError


class FloatStack(Stack):
    """Weights that are floats."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.shape = tuple(values.shape)
        self.register_buffer("values", values, persistent=False)

    def product(self, x: Tensor, places: Tensor) -> Tensor:
        values: Tensor = self.values
        return _float_product(values[places.reshape(-1)].float(), x, places)


class BlockStack(Stack):
    """Bytes of a block format as a file has them."""

    def __init__(self, kind: BlockFormat, raw: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.kind = shape, kind
        self.register_buffer("raw", raw, persistent=False)

    def product(self, x: Tensor, places: Tensor) -> Tensor:
        count, rows, columns = self.shape
        raw: Tensor = self.raw
        chosen = raw.reshape(count, -1)[places.reshape(-1)]
        shape = (chosen.shape[0], rows, columns)
        return _float_product(self.kind.decoded(chosen, shape), x, places)


class LaneStack(Stack):
    """A block format with rows in lanes."""

    def __init__(
        self, kind: BlockFormat, raw: Tensor, shape: tuple[int, ...], products: Products
    ) -> None:
        super().__init__()
        self.shape, self.kind, self.products = shape, kind, products
        parts = in_lanes(kind, raw, shape[0] * shape[1])
        svod.realize(*parts.values())
        self.names = tuple(parts)
        for name, value in parts.items():
            by_expert = value.reshape(shape[0], shape[1] // LANES, *value.shape[1:])
            self.register_buffer(name, by_expert, persistent=False)

    def product(self, x: Tensor, places: Tensor) -> Tensor:
        count, each = places.shape
        chosen = {name: getattr(self, name)[places.reshape(-1)] for name in self.names}
        parts = {name: value.reshape(-1, *value.shape[2:]) for name, value in chosen.items()}
        if self.products == "float":
            whole = weights(self.kind, parts).reshape(count * each, *self.shape[1:])
            return _float_product(whole, x, places)
        row = quantised(x)
        repeated = Quantised(_repeated(row.quants, each), _repeated(row.scale, each))
        factors = LAYOUTS[self.kind.name].factors(parts)
        return integer_product(repeated, factors, count * each).reshape(count, each, -1)


def stack_of(kind: BlockFormat, raw: Tensor, shape: tuple[int, ...], products: Products) -> Stack:
    """The matrices of experts from their bytes in a block format."""
    if kind.name in LAYOUTS and shape[1] % LANES == 0:
        return LaneStack(kind, raw, shape, products)
    return BlockStack(kind, raw, shape)


def chosen(scores: Tensor, count: int, is_normed: bool) -> tuple[Tensor, Tensor]:
    """The experts of each token, and what part of the result each of them gives: (m, count)."""
    if count > scores.shape[1]:
        raise ModelFileError(f"{count} of {scores.shape[1]} experts cannot be used")
    shares, places = scores.softmax(1).topk(count, 1)
    if is_normed:
        shares = shares / shares.sum(1, keepdim=True)
    return places, shares


def _float_product(chosen_weights: Tensor, x: Tensor, places: Tensor) -> Tensor:
    count, each = places.shape
    rows = _repeated(x, each).unsqueeze(1)
    return (chosen_weights * rows).sum(2).reshape(count, each, -1)


def _repeated(x: Tensor, each: int) -> Tensor:
    """Every row so often in a row."""
    if each == 1:
        return x
    rows = x.unsqueeze(1).expand(x.shape[0], each, *x.shape[1:])
    return rows.reshape(x.shape[0] * each, *x.shape[1:])


__all__ = ["FloatStack", "LaneStack", "Stack", "chosen", "stack_of"]
