"""Special functions: gamma functions, Bessel functions, the inverse error function and relatives.

All are built from ordinary ops, in float64, and rounded to the dtype at the end: series where they
converge quickly, recurrences and reflections to get there. Gradients are given, not derived.
"""

from __future__ import annotations

from math import comb, factorial, log, pi, sqrt
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.autograd import custom_gradient
from svod.tensor.core import Core, Operand, float_node, integer, pair, wrap
from svod.tensor.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_INF = float("inf")
_NAN = float("nan")
# Coefficients of Lanczos' series for the logarithm of gamma, with g = 7.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
# First guess of the inverse error function in w = -log(1 - y**2): near zero, and in the tails.
_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
# Chebyshev coefficients of exp(x**2) * erfc(x) / t over t = 2 / (2 + x), fitted with 40 digits.
_ERFC = (
    0.5770337386164753, 0.3554369212704876, 0.06509515882879627, 0.0036711423958287453,
    -0.0011128447433471416, -0.0001607582991564859, 3.2780315741465675e-05, 5.442441648716029e-06,
    -1.5154665612396206e-06, -1.4297607360301562e-07, 8.234607836532537e-08, -1.296273780941133e-09,
    -4.15473275764214e-09, 6.34716390599429e-10, 1.431989715348552e-10, -6.159660025465541e-11,
    2.0563739360042174e-12, 3.5735432156076957e-12, -8.577734504808506e-13, -6.516441927438003e-14,
    8.045408092934664e-14,
)  # fmt: skip
_SERIES = 60  # terms of the Bessel series below _FAR, where the last is far below rounding
_ASYMPTOTIC = 22  # terms of their series in 1 / x above it
_FAR = 18.0


def _precise(x: Tensor) -> Tensor:
    """x in float64."""
    return wrap(B.cast(float_node(x.uop), dt.float64), x._device)


def _like(found: Tensor, x: Tensor) -> Tensor:
    """A float64 result in the float dtype of x."""
    return found.cast(float_node(x.uop).dtype)


def _polynomial(x: Tensor, coefficients: Any) -> Tensor | float:
    """Horner's rule, the highest power first."""
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = x * found + c
    return found


def _sine_of_pi(x: Tensor) -> Tensor:
    """sin(pi x), exactly 0 at whole numbers."""
    near = x.round()
    sine = ((x - near) * pi).sin()
    return select(near.remainder(2) == 0, sine, -sine)


# -- gamma -------------------------------------------------------------------------------------


@custom_gradient
def _lgamma(x: Tensor) -> Tensor:
    reflected = x < 0.5
    z = select(reflected, 1 - x, x) - 1
    total: Any = _LANCZOS[0]
    for i, c in enumerate(_LANCZOS[1:], 1):
        total = total + c / (z + i)
    t = z + 7.5
    found = (z + 0.5) * t.log() - t + (total.log() + 0.5 * log(2 * pi))
    found = select(reflected, (pi / _sine_of_pi(x).abs()).log() - found, found)
    return select(x.abs() == _INF, _INF, found)


@_lgamma.backward
def _lgamma_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * _digamma(x)


_STEPS = 8  # how far digamma and polygamma move up before their asymptotic series
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
)  # fmt: skip


@custom_gradient
def _digamma(x: Tensor) -> Tensor:
    reflected = x < 0
    z = select(reflected, 1 - x, x)
    low = z < _STEPS
    down: Any = 0.0
    for k in range(_STEPS):
        down = down + 1 / (z + k)
    far = select(low, z + _STEPS, z)
    square = far.reciprocal().square()
    terms = [-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    series = _polynomial(square, [*terms[::-1], 0.0])
    found = far.log() - 0.5 / far + series - select(low, down, 0.0)
    found = select(z == _INF, _INF, found)
    turned = found - pi / ((x - x.round()) * pi).tan()
    found = select(reflected, select(x == x.floor(), _NAN, turned), found)
    return select(x == 0, select(x.signbit(), _INF, -_INF), found)


@_digamma.backward
def _digamma_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * _polygamma(x, 1)


def _cotangent_derivative(n: int) -> list[int]:
    """The n-th derivative of cot as a polynomial of cot, the lowest power first."""
    found = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            found[k] -= c
            found[k + 2] -= c
    return found


@custom_gradient
def _polygamma(x: Tensor, n: int) -> Tensor:
    reflected = x < 0
    z = select(reflected, 1 - x, x)
    s, steps = n + 1, _STEPS + n
    total: Any = 0.0
    for k in range(steps):
        total = total + (z + k) ** (-float(s))
    far = z + steps
    tail = far ** (1.0 - s) / n + 0.5 * far ** (-float(s))
    for k, b in enumerate(_BERNOULLI, 1):
        factor = b * comb(s + 2 * k - 2, 2 * k - 1) / (2 * k)
        tail = tail + factor * far ** (-float(s + 2 * k - 1))
    found = (total + tail) * ((-1) ** (n + 1) * factorial(n))
    cot = ((x - x.round()) * pi).tan().reciprocal()
    turned = found * (-1) ** n - _polynomial(cot, _cotangent_derivative(n)[::-1]) * pi ** (n + 1)
    pole = _INF if n % 2 else -_INF
    return select((x <= 0) & (x == x.floor()), pole, select(reflected, turned, found))


@_polygamma.backward
def _polygamma_gradient(grad: Tensor, output: Tensor, x: Tensor, n: int) -> Tensor:
    return grad * _polygamma(x, n + 1)


# -- errors ------------------------------------------------------------------------------------


@custom_gradient
def _erfc(x: Tensor) -> Tensor:
    size = x.abs()
    t = 2 / (size + 2)
    u = t * 2 - 1
    last: Any = 0.0
    before: Any = 0.0
    for c in _ERFC[:0:-1]:  # Clenshaw
        last, before = u * 2 * last - before + c, last
    found = t * (u * last - before + _ERFC[0]) * (-size * size).exp()
    return select(x < 0, 2 - found, found)


@_erfc.backward
def _erfc_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (-x * x).exp() * (-2 / sqrt(pi))


@custom_gradient
def _erfinv(y: Tensor) -> Tensor:
    w = -((1 - y) * (1 + y)).log()
    guess = select(w < 5, _polynomial(w - 2.5, _CENTRE), _polynomial(w.sqrt() - 3, _TAIL))
    x = y * guess
    for _ in range(2):  # Newton
        x = x - (x.erf() - y) * (x * x).exp() * (sqrt(pi) / 2)
    x = select(y.abs() == 1, y * _INF, x)
    return select(y.abs() > 1, _NAN, x)


@_erfinv.backward
def _erfinv_gradient(grad: Tensor, output: Tensor, y: Tensor) -> Tensor:
    return grad * (output * output).exp() * (sqrt(pi) / 2)


# -- Bessel functions of the first kind, modified ----------------------------------------------


def _bessel_near(x: Tensor, order: int) -> Tensor:
    """The power series of I_order; every term is positive."""
    quarter = (x * 0.5).square()
    terms = [1 / (factorial(k) * factorial(k + order)) for k in range(_SERIES)]
    found: Any = _polynomial(quarter, terms[::-1])
    return found * (x * 0.5) if order else found


def _bessel_far(x: Tensor, order: int) -> Tensor:
    """exp(-x) I_order(x) for large x, by its series in 1 / x."""
    terms = [1.0]
    for k in range(1, _ASYMPTOTIC):
        terms.append(-terms[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return _polynomial(x.reciprocal(), terms[::-1]) * (x * (2 * pi)).rsqrt()


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
def _i0(x: Tensor) -> Tensor:
    return _bessel(x, 0, False)


@_i0.backward
def _i0_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * _i1(x)


@custom_gradient
def _i1(x: Tensor) -> Tensor:
    return _bessel(x, 1, False)


@_i1.backward
def _i1_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    ratio = select(x == 0, 0.5, output / select(x == 0, 1.0, x))
    return grad * (_i0(x) - ratio)


@custom_gradient
def _i0e(x: Tensor) -> Tensor:
    return _bessel(x, 0, True)


@_i0e.backward
def _i0e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (_i1e(x) - x.sign() * output)


@custom_gradient
def _i1e(x: Tensor) -> Tensor:
    return _bessel(x, 1, True)


@_i1e.backward
def _i1e_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    ratio = select(x == 0, 0.5, output / select(x == 0, 1.0, x))
    return grad * (_i0e(x) - x.sign() * output - ratio)


class Special(Core):
    """lgamma, digamma, polygamma, erfinv, i0, xlogy, gcd, frexp and relatives."""

    __slots__ = ()

    def lgamma(self: Tensor) -> Tensor:
        """The logarithm of the magnitude of the gamma function."""
        return _like(_lgamma(_precise(self)), self)

    def digamma(self: Tensor) -> Tensor:
        """The derivative of lgamma."""
        return _like(_digamma(_precise(self)), self)

    def polygamma(self: Tensor, n: int) -> Tensor:
        """The n-th derivative of digamma."""
        return polygamma(n, self)

    def mvlgamma(self: Tensor, p: int) -> Tensor:
        """The logarithm of the multivariate gamma function of dimension p."""
        count = integer(p, "p")
        if count < 1:
            raise ShapeError(f"mvlgamma: p is at least 1, not {count}")
        x = _precise(self)
        total: Any = count * (count - 1) / 4 * log(pi)
        for j in range(count):
            total = _lgamma(x - j / 2) + total
        return _like(total, self)

    def erfc(self: Tensor) -> Tensor:
        """1 - erf(x), exact where that is small."""
        return _like(_erfc(_precise(self)), self)

    def erfinv(self: Tensor) -> Tensor:
        """The inverse of erf."""
        return _like(_erfinv(_precise(self)), self)

    def i0(self: Tensor) -> Tensor:
        """The modified Bessel function of order 0."""
        return _like(_i0(_precise(self)), self)

    def i0e(self: Tensor) -> Tensor:
        """exp(-|x|) times i0."""
        return _like(_i0e(_precise(self)), self)

    def i1(self: Tensor) -> Tensor:
        """The modified Bessel function of order 1."""
        return _like(_i1(_precise(self)), self)

    def i1e(self: Tensor) -> Tensor:
        """exp(-|x|) times i1."""
        return _like(_i1e(_precise(self)), self)

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
    wide = _precise(x)
    return _like(_polygamma(wide, order) if order else _digamma(wide), x)
