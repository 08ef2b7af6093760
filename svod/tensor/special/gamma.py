"""The gamma function and relatives in float64: lgamma, digamma, polygamma."""

from __future__ import annotations

from math import comb, factorial, log, pi
from typing import TYPE_CHECKING, Any

from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.special.float64_functions import polynomial

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


def _sine_of_pi(x: Tensor) -> Tensor:
    """sin(pi x), exactly 0 at whole numbers."""
    near = x.round()
    sine = ((x - near) * pi).sin()
    return select(near.remainder(2) == 0, sine, -sine)


@custom_gradient
def lgamma(x: Tensor) -> Tensor:
    reflected = x < 0.5
    z = select(reflected, 1 - x, x) - 1
    total: Any = _LANCZOS[0]
    for i, c in enumerate(_LANCZOS[1:], 1):
        total = total + c / (z + i)
    t = z + 7.5
    found = (z + 0.5) * t.log() - t + (total.log() + 0.5 * log(2 * pi))
    found = select(reflected, (pi / _sine_of_pi(x).abs()).log() - found, found)
    return select(x.abs() == _INF, _INF, found)


@lgamma.backward
def _lgamma_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * digamma(x)


_STEPS = 8  # how far digamma and polygamma move up before their asymptotic series
BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
)  # fmt: skip


@custom_gradient
def digamma(x: Tensor) -> Tensor:
    reflected = x < 0
    z = select(reflected, 1 - x, x)
    low = z < _STEPS
    down: Any = 0.0
    for k in range(_STEPS):
        down = down + 1 / (z + k)
    far = select(low, z + _STEPS, z)
    square = far.reciprocal().square()
    terms = [-b / (2 * k) for k, b in enumerate(BERNOULLI, 1)]
    series = polynomial(square, [*terms[::-1], 0.0])
    found = far.log() - 0.5 / far + series - select(low, down, 0.0)
    found = select(z == _INF, _INF, found)
    turned = found - pi / ((x - x.round()) * pi).tan()
    found = select(reflected, select(x == x.floor(), _NAN, turned), found)
    return select(x == 0, select(x.signbit(), _INF, -_INF), found)


@digamma.backward
def _digamma_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * polygamma(x, 1)


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
def polygamma(x: Tensor, n: int) -> Tensor:
    reflected = x < 0
    z = select(reflected, 1 - x, x)
    s, steps = n + 1, _STEPS + n
    total: Any = 0.0
    for k in range(steps):
        total = total + (z + k) ** (-float(s))
    far = z + steps
    tail = far ** (1.0 - s) / n + 0.5 * far ** (-float(s))
    for k, b in enumerate(BERNOULLI, 1):
        factor = b * comb(s + 2 * k - 2, 2 * k - 1) / (2 * k)
        tail = tail + factor * far ** (-float(s + 2 * k - 1))
    found = (total + tail) * ((-1) ** (n + 1) * factorial(n))
    cot = ((x - x.round()) * pi).tan().reciprocal()
    turned = found * (-1) ** n - polynomial(cot, _cotangent_derivative(n)[::-1]) * pi ** (n + 1)
    pole = _INF if n % 2 else -_INF
    return select((x <= 0) & (x == x.floor()), pole, select(reflected, turned, found))


@polygamma.backward
def _polygamma_gradient(grad: Tensor, output: Tensor, x: Tensor, n: int) -> Tensor:
    return grad * polygamma(x, n + 1)
