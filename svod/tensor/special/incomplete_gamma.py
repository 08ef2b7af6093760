"""The incomplete gamma functions and Hurwitz' zeta function, in float64.

Loops of a fixed length everywhere: for small a a power series and a continued fraction, for large
a the integral of the density near its peak, by Gauss' rule.
"""

from __future__ import annotations

from functools import cache
from math import factorial, pi
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.special.float64_functions import without_gradient
from svod.tensor.special.gamma import BERNOULLI, lgamma

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_INF = float("inf")
_NAN = float("nan")
_LARGE = 20.0  # from this a on the integral is taken
_APART = 10.0  # from this far above a on the continued fraction is taken
_TERMS = 80  # of the series: enough for a = _LARGE and x = _LARGE + _APART
_LEVELS = 30  # of the fraction: enough for x = _APART
_NODES = 64


def _series(a: Tensor, x: Tensor) -> Tensor:
    """The lower function, divided by x**a exp(-x) / gamma(a + 1)."""
    found: Any = 1.0
    for k in range(_TERMS, 0, -1):
        found = x / (a + k) * found + 1
    result: Tensor = found
    return result


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The upper function, divided by x**a exp(-x) / gamma(a)."""
    found: Any = x - a + (2 * _LEVELS + 1)
    for k in range(_LEVELS, 0, -1):
        found = (x - a + (2 * k - 1)) - (k - a) * k / found
    return 1 / found


@cache
def _rule() -> tuple[Any, Any]:
    """Nodes and weights of Gauss' rule on 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


def _integral(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function for large a: the smaller integrated, the other the rest."""
    is_below = x < a
    deviation = a.sqrt() * 10
    width = select(is_below, deviation.minimum(x), deviation + 30)
    nodes, weights = [tensor_of(v) for v in _rule()]
    step = select(is_below, -width, width).unsqueeze(-1) * nodes
    share = (x.unsqueeze(-1) - a.unsqueeze(-1) + step) / a.unsqueeze(-1)
    # the density at t = a (1 + s): a (log(1 + s) - s) - log(t), and Stirling's series
    around = share.log1p()
    exponent = (around - share) * a.unsqueeze(-1) - around
    inverse = a.reciprocal()
    height = (a * (1 / (2 * pi))).log() * 0.5 - a.log()
    height = height - inverse / 12 + inverse**3 / 360 - inverse**5 / 1260
    part = ((exponent + height.unsqueeze(-1)).exp() * weights).sum(-1) * width
    return select(is_below, part, 1 - part), select(is_below, 1 - part, part)


def _both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function for a > 0, x > 0, both finite."""
    is_large = a >= _LARGE
    small, large = select(is_large, 1.0, a), select(is_large, a, _LARGE)
    by_series = x < small + _APART
    inner, outer = select(by_series, x, 1.0), select(by_series, small + _APART, x)
    base = lgamma(small + 1)
    lower = _series(small, inner) * (small * inner.log() - inner - base).exp()
    upper = _fraction(small, outer) * (small * outer.log() - outer - base).exp() * small
    lower, upper = select(by_series, lower, 1 - upper), select(by_series, 1 - lower, upper)
    of_large = _integral(large, select(is_large, x, _LARGE))
    return select(is_large, of_large[0], lower), select(is_large, of_large[1], upper)


def _incomplete(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    inside = (a > 0) & (x > 0) & (a < _INF) & (x < _INF)
    low, high = (0.0, 1.0) if not upper else (1.0, 0.0)  # at x = 0, and where all is below x
    found = _both(select(inside, a, 1.0), select(inside, x, 1.0))[int(upper)]
    found = select(inside, found, select(x == _INF, high, low))
    found = select(a == 0, select(x > 0, high, _NAN), found)
    found = select(a == _INF, select(x == _INF, _NAN, low), found)
    return select((a >= 0) & (x >= 0), found, _NAN)


@custom_gradient
def _igamma(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    return _incomplete(a, x, upper)


@_igamma.backward
def _igamma_gradient(
    grad: Tensor, output: Tensor, a: Tensor, x: Tensor, upper: bool
) -> tuple[Tensor, Tensor]:
    density = ((a - 1) * x.log() - x - lgamma(a)).exp()
    return grad * _NAN, grad * (-density if upper else density)


def igamma(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The regularised lower or upper incomplete gamma function."""
    name = "igammac" if upper else "igamma"
    found: Tensor = _igamma(without_gradient(a, f"{name} has no gradient for input"), x, upper)
    return found


# -- zeta --------------------------------------------------------------------------------------

_DIRECT = 12  # terms before the formula of Euler and Maclaurin
_STEEP = 1000.0  # from this power on its terms vanish beside the first ones


def _zeta_above(x: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k) ** -x over all k, for q > 0."""
    places = q.unsqueeze(-1) + tensor_of(np.arange(float(_DIRECT)), q)
    total = (places ** -x.unsqueeze(-1)).sum(-1)
    x = x.clamp(max=_STEEP)
    far = q + _DIRECT
    power = far**-x
    tail = power * far / (x - 1) + power * 0.5
    rising: Any = x
    for k, b in enumerate(BERNOULLI, 1):
        power = power / far
        tail = tail + rising * power * (b / factorial(2 * k))
        rising = rising * (x + (2 * k - 1)) * (x + 2 * k)
        power = power / far
    result: Tensor = total + tail
    return result


@custom_gradient
def _zeta(x: Tensor, q: Tensor) -> Tensor:
    is_fine = x > 1
    safe = select(is_fine, x, 2.0)
    is_below = (q < 0) & (q != q.floor()) & (x == x.floor())
    start = select(is_below, q - q.floor(), select(q > 0, q, 1.0))
    found = _zeta_above(safe, start)
    # below zero the terms are those of 1 - start up to -q, with the sign of the power
    size = select(is_below, -q, 1.0)
    missing = _zeta_above(safe, select(is_below, 1 - start, 1.0)) - _zeta_above(safe, size + 1)
    missing = select(x.remainder(2) == 0, missing, -missing)
    found = select(is_below, found + missing, found)
    found = select((q > 0) | is_below, found, select(q == q.floor(), _INF, _NAN))
    return select(is_fine, found, select(x == 1, _INF, _NAN))


@_zeta.backward
def _zeta_gradient(grad: Tensor, output: Tensor, x: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    return grad * _NAN, grad * -x * _zeta(x + 1, q)


def zeta(x: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k) ** -x over k from 0 on."""
    found: Tensor = _zeta(without_gradient(x, "zeta has no gradient for input"), q)
    return found
