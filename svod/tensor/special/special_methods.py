"""Special functions as methods: gamma functions, error functions, Bessel functions.

All are built from ordinary ops, in float64, and rounded to the dtype at the end: series where they
converge quickly, recurrences and reflections to get there. Gradients are given, not derived.
``svod.special`` has them as functions, and more of them.
"""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import Core, Operand, float_node, integer, pair, wrap
from svod.tensor.ops.elementwise import select
from svod.tensor.special import bessel, gamma, incomplete_gamma, normal_distribution
from svod.tensor.special.float64_functions import is_single, like, precise, precise_pair

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_INF = float("inf")


class Special(Core):
    """lgamma, digamma, polygamma, igamma, erfinv, i0, xlogy and relatives."""

    __slots__ = ()

    def lgamma(self: Tensor) -> Tensor:
        """The logarithm of the magnitude of the gamma function."""
        return like(gamma.lgamma(precise(self)), self)

    def digamma(self: Tensor) -> Tensor:
        """The derivative of lgamma."""
        return like(gamma.digamma(precise(self)), self)

    def polygamma(self: Tensor, n: int) -> Tensor:
        """The n-th derivative of digamma."""
        return polygamma(n, self)

    def mvlgamma(self: Tensor, p: int) -> Tensor:
        """The logarithm of the multivariate gamma function of dimension p."""
        count = integer(p, "p")
        if count < 1:
            raise ShapeError(f"mvlgamma: p is at least 1, not {count}")
        x = precise(self)
        total: Any = count * (count - 1) / 4 * log(pi)
        for j in range(count):
            total = gamma.lgamma(x - j / 2) + total
        return like(total, self)

    def igamma(self: Tensor, other: Operand) -> Tensor:
        """The share of a gamma distribution of shape self below other; no gradient for self."""
        a, x, dtype = precise_pair(self, other)
        return incomplete_gamma.igamma(a, x, False).cast(dtype)

    def igammac(self: Tensor, other: Operand) -> Tensor:
        """The share of a gamma distribution of shape self above other; no gradient for self."""
        a, x, dtype = precise_pair(self, other)
        return incomplete_gamma.igamma(a, x, True).cast(dtype)

    def erfc(self: Tensor) -> Tensor:
        """1 - erf(x), exact where that is small."""
        return like(normal_distribution.erfc(precise(self), is_single(self)), self)

    def erfinv(self: Tensor) -> Tensor:
        """The inverse of erf."""
        return like(normal_distribution.erfinv(precise(self), is_single(self)), self)

    def i0(self: Tensor) -> Tensor:
        """The modified Bessel function of order 0."""
        return like(bessel.i0(precise(self)), self)

    def i0e(self: Tensor) -> Tensor:
        """exp(-|x|) times i0."""
        return like(bessel.i0e(precise(self)), self)

    def i1(self: Tensor) -> Tensor:
        """The modified Bessel function of order 1."""
        return like(bessel.i1(precise(self)), self)

    def i1e(self: Tensor) -> Tensor:
        """exp(-|x|) times i1."""
        return like(bessel.i1e(precise(self)), self)

    def xlogy(self: Tensor, other: Operand) -> Tensor:
        """self * log(other), 0 where self is 0."""
        x, y, device = pair(self, other)
        a, b = wrap(float_node(x), device), wrap(float_node(y), device)
        no_log = (a == 0) & ((b <= 0) | (b == _INF))
        return a * select(no_log, 1.0, b).log()


def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    order = integer(n, "n")
    if order < 0:
        raise ShapeError(f"polygamma: n is 0 or more, not {order}")
    wide = precise(x)
    return like(gamma.polygamma(wide, order) if order else gamma.digamma(wide), x)
