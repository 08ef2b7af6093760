"""Bessel functions of orders 0 and 1 in float64: J, Y, I and K.

Close to zero J and Y are means of cosines over a circle (the trapezoidal rule for Bessel's
integral, exact to rounding once the circle has more points than x is large), I is its power series
and K an integral over a line. Far from zero all are series in 1 / x.
"""

from __future__ import annotations

from functools import cache
from math import factorial, pi
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.special.float64_functions import polynomial

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_INF = float("inf")
_NAN = float("nan")
_EULER = 0.5772156649015329
_SERIES = 60  # terms of the series of I below _FAR, where the last is far below rounding
_ASYMPTOTIC = 22  # terms of the series in 1 / x above it
_FAR = 18.0
_ROUND = 25.0  # below it J and Y are means over a circle of
_POINTS = 128  # points, of which a quarter is computed
_NEUMANN = 32  # terms of Neumann's series of Y; J of order 64 is below 1e-18 at _ROUND


# -- J and Y -----------------------------------------------------------------------------------


def _far_terms(order: int) -> list[float]:
    """The coefficients of Hankel's series in 1 / x, signs apart."""
    terms = [1.0]
    for k in range(1, _ASYMPTOTIC):
        terms.append(terms[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return terms


def _waves(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J and Y of an order far from zero."""
    terms = _far_terms(order)
    inverse = x.reciprocal()
    square = -inverse * inverse
    even = polynomial(square, terms[::2][::-1])
    odd = polynomial(square, terms[1::2][::-1]) * inverse
    sine, cosine = x.sin(), x.cos()
    # the angle is x less a quarter of pi for order 0, three quarters for order 1
    along, across = (
        (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -(cosine + sine))
    )
    size = (x * pi).rsqrt()
    return size * (even * along - odd * across), size * (even * across + odd * along)


@cache
def _circle(order: int) -> tuple[Any, Any, Any]:
    """Points of a quarter circle: sines, and the weights there for J and for Neumann's sum."""
    angles = np.arange(_POINTS // 4 + 1) * (2 * pi / _POINTS)
    many = np.where((angles == 0) | (angles == angles[-1]), 2, 4) / _POINTS
    k = np.arange(1, _NEUMANN)[:, None]
    sign = np.where(k % 2, -1.0, 1.0)
    if order == 0:
        return np.sin(angles), many, many * (sign / k * np.cos(2 * k * angles)).sum(0) * 2
    ratio = sign * (2 * k + 1) / (k * (k + 1))
    rest = (ratio * np.sin((2 * k + 1) * angles)).sum(0)
    return np.sin(angles), many * np.sin(angles), many * rest


def _means(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J of an order close to zero, and the sum in Neumann's series of Y."""
    sines, first, rest = [tensor_of(v) for v in _circle(order)]
    angles = x.unsqueeze(-1) * sines
    values = angles.sin() if order else angles.cos()
    return (values * first).sum(-1), (values * rest).sum(-1)


def _first_kind(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    is_near = size < _ROUND
    near, _ = _means(size.clamp(max=_ROUND), order)
    far, _ = _waves(select(size == _INF, _ROUND, size.clamp(_ROUND)), order)
    found = select(is_near, near, select(size == _INF, 0.0, far))
    found = select(x.isnan(), x, found)
    return select(x < 0, -found, found) if order else found


def _second_kind(x: Tensor, order: int) -> Tensor:
    is_near = x < _ROUND
    inner = select((x > 0) & is_near, x, 1.0)
    first, rest = _means(inner, order)
    near = ((inner * 0.5).log() + (_EULER - order)) * first - rest
    if order:
        near = near - _means(inner, 0)[0] / inner
    _, far = _waves(select(x == _INF, _ROUND, x.clamp(_ROUND)), order)
    found = select(is_near, near * (2 / pi), select(x == _INF, 0.0, far))
    return select(x > 0, found, select(x == 0, -_INF, _NAN))


@custom_gradient
def j0(x: Tensor) -> Tensor:
    return _first_kind(x, 0)


@j0.backward
def _j0_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return -grad * j1(x)


@custom_gradient
def j1(x: Tensor) -> Tensor:
    return _first_kind(x, 1)


@j1.backward
def _j1_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    ratio = select(x == 0, 0.5, output / select(x == 0, 1.0, x))
    return grad * (j0(x) - ratio)


@custom_gradient
def y0(x: Tensor) -> Tensor:
    return _second_kind(x, 0)


@y0.backward
def _y0_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return -grad * y1(x)


@custom_gradient
def y1(x: Tensor) -> Tensor:
    return _second_kind(x, 1)


@y1.backward
def _y1_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (y0(x) - output / x)


def spherical_j0(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at zero and 0 at infinity."""
    is_zero, is_far = x == 0, x.abs() == _INF
    safe = select(is_zero | is_far, 1.0, x)
    return select(is_zero, 1.0, select(is_far, 0.0, safe.sin() / safe))


# -- I -----------------------------------------------------------------------------------------


def _bessel_near(x: Tensor, order: int) -> Tensor:
    """The power series of I_order; every term is positive."""
    quarter = (x * 0.5).square()
    terms = [1 / (factorial(k) * factorial(k + order)) for k in range(_SERIES)]
    found: Any = polynomial(quarter, terms[::-1])
    return found * (x * 0.5) if order else found


def _bessel_far(x: Tensor, order: int) -> Tensor:
    """exp(-x) I_order(x) for large x, by its series in 1 / x."""
    terms = [1.0]
    for k in range(1, _ASYMPTOTIC):
        terms.append(-terms[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return polynomial(x.reciprocal(), terms[::-1]) * (x * (2 * pi)).rsqrt()


def _bessel(x: Tensor, order: int, scaled: bool) -> Tensor:
    size = x.abs()
    is_near = size < _FAR
    inner, outer = size.clamp(max=_FAR), size.clamp(_FAR)
    near = _bessel_near(inner, order)
    far = select(outer == _INF, 0.0, _bessel_far(outer, order))
    if scaled:
        found = select(is_near, near * (-inner).exp(), far)
    else:
        # exp of half the size twice: the product overflows no earlier than the result
        grown = (outer * 0.5).exp()
        whole = select(outer == _INF, _INF, (far * grown) * grown)
        found = select(is_near, near, whole)
    found = select(x.isnan(), x, found)
    return select(x < 0, -found, found) if order else found


@custom_gradient
def i0(x: Tensor) -> Tensor:
    return _bessel(x, 0, False)


@i0.backward
def _i0_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * i1(x)


@custom_gradient
def i1(x: Tensor) -> Tensor:
    return _bessel(x, 1, False)


@i1.backward
def _i1_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    ratio = select(x == 0, 0.5, output / select(x == 0, 1.0, x))
    return grad * (i0(x) - ratio)


@custom_gradient
def i0e(x: Tensor) -> Tensor:
    return _bessel(x, 0, True)


@i0e.backward
def _i0e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (i1e(x) - x.sign() * output)


@custom_gradient
def i1e(x: Tensor) -> Tensor:
    return _bessel(x, 1, True)


@i1e.backward
def _i1e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    ratio = select(x == 0, 0.5, output / select(x == 0, 1.0, x))
    return grad * (i0e(x) - x.sign() * output - ratio)


# -- K -----------------------------------------------------------------------------------------

_CLOSE = 2.0  # below it K is a power series with a logarithm
_STEP = 0.125  # of the integral between _CLOSE and _FAR; its last point is below rounding
_STEPS = 31


def _k_near(x: Tensor, order: int) -> Tensor:
    """The power series of K for small x."""
    half = x * 0.5
    quarter = half * half
    harmonic = [sum([1 / j for j in range(1, k + 1)]) for k in range(_STEPS)]
    if order == 0:
        terms = [(harmonic[k] - _EULER) / factorial(k) ** 2 for k in range(20)]
        return polynomial(quarter, terms[::-1]) - half.log() * _bessel_near(x, 0)
    terms = [
        (harmonic[k] + harmonic[k + 1] - 2 * _EULER) / (2 * factorial(k) * factorial(k + 1))
        for k in range(20)
    ]
    return 1 / x + half.log() * _bessel_near(x, 1) - half * polynomial(quarter, terms[::-1])


def _k_middle(x: Tensor, order: int) -> Tensor:
    """exp(x) K by the integral of exp(-x (cosh t - 1)) cosh(order t), equally spaced."""
    places = np.arange(_STEPS) * _STEP
    weights = np.where(places == 0, 0.5, 1.0) * _STEP * (np.cosh(places) if order else 1)
    heights = tensor_of(1 - np.cosh(places))
    found: Tensor = ((x.unsqueeze(-1) * heights).exp() * tensor_of(weights)).sum(-1)
    return found


def _k_far(x: Tensor, order: int) -> Tensor:
    """exp(x) K for large x."""
    return polynomial(x.reciprocal(), _far_terms(order)[::-1]) * (x * (2 / pi)).rsqrt()


def _third_kind(x: Tensor, order: int, scaled: bool) -> Tensor:
    is_close, is_middle = x < _CLOSE, x < _FAR
    inner = select((x > 0) & is_close, x, 1.0)
    near = _k_near(inner, order)
    middle = _k_middle(x.clamp(_CLOSE, _FAR), order)
    far = _k_far(select(x == _INF, _FAR, x.clamp(_FAR)), order)
    outer = select(is_middle, middle, select(x == _INF, 0.0, far))
    if scaled:
        found = select(is_close, near * inner.exp(), outer)
    else:
        found = select(is_close, near, outer * (-x.clamp(_CLOSE)).exp())
    return select(x > 0, found, select(x == 0, _INF, _NAN))


@custom_gradient
def k0(x: Tensor) -> Tensor:
    return _third_kind(x, 0, False)


@k0.backward
def _k0_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return -grad * k1(x)


@custom_gradient
def k1(x: Tensor) -> Tensor:
    return _third_kind(x, 1, False)


@k1.backward
def _k1_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return -grad * (k0(x) + output / x)


@custom_gradient
def k0e(x: Tensor) -> Tensor:
    return _third_kind(x, 0, True)


@k0e.backward
def _k0e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (output - k1e(x))


@custom_gradient
def k1e(x: Tensor) -> Tensor:
    return _third_kind(x, 1, True)


@k1e.backward
def _k1e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (output - k0e(x) - output / x)
