"""The error function and the normal distribution in float64: erfc, erfcx, erfinv, log_ndtr, ..."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from svod.tensor.autograd import custom_gradient
from svod.tensor.elementwise import select
from svod.tensor.precise import chebyshev, polynomial

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_INF = float("inf")
_NAN = float("nan")
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


def _scaled_tail(size: Tensor) -> Tensor:
    """exp(x**2) * erfc(x) for x of 0 and more."""
    t = 2 / (size + 2)
    found: Tensor = t * chebyshev(t * 2 - 1, _ERFC)
    return found


@custom_gradient
def erfc(x: Tensor) -> Tensor:
    size = x.abs()
    found = _scaled_tail(size) * (-size * size).exp()
    return select(x < 0, 2 - found, found)


@erfc.backward
def _erfc_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (-x * x).exp() * (-2 / sqrt(pi))


@custom_gradient
def erfcx(x: Tensor) -> Tensor:
    found = _scaled_tail(x.abs())
    return select(x < 0, (x * x).exp() * 2 - found, found)


@erfcx.backward
def _erfcx_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (x * output * 2 - 2 / sqrt(pi))


@custom_gradient
def erfinv(y: Tensor) -> Tensor:
    w = -((1 - y) * (1 + y)).log()
    guess = select(w < 5, polynomial(w - 2.5, _CENTRE), polynomial(w.sqrt() - 3, _TAIL))
    x = y * guess
    for _ in range(2):  # Newton
        x = x - (x.erf() - y) * (x * x).exp() * (sqrt(pi) / 2)
    x = select(y.abs() == 1, y * _INF, x)
    return select(y.abs() > 1, _NAN, x)


@erfinv.backward
def _erfinv_gradient(grad: Tensor, output: Tensor, y: Tensor) -> Tensor:
    return grad * (output * output).exp() * (sqrt(pi) / 2)


# -- the normal distribution -------------------------------------------------------------------


def ndtr(x: Tensor) -> Tensor:
    """The share of a normal distribution below x."""
    found: Tensor = erfc(x * -sqrt(0.5)) * 0.5
    return found


@custom_gradient
def log_ndtr(x: Tensor) -> Tensor:
    is_low = x < -1
    low, high = select(is_low, x, -1.0), select(is_low, -1.0, x)
    below = (_scaled_tail(low * -sqrt(0.5)) * 0.5).log() - low * low * 0.5
    found = select(is_low, below, (erfc(high * sqrt(0.5)) * -0.5).log1p())
    return select(x == -_INF, -_INF, found)


@log_ndtr.backward
def _log_ndtr_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * _density_of_share(x)


def _density_of_share(x: Tensor) -> Tensor:
    """The normal density divided by the share below x."""
    found: Tensor = sqrt(2 / pi) / erfcx(x * -sqrt(0.5))
    return found


@custom_gradient
def ndtri(p: Tensor) -> Tensor:
    is_low = p <= 0.5
    share = select(is_low, p, 1 - p)
    inside = (share > 0) & (share < 0.5)
    safe = select(inside, share, 0.25)
    w = (safe.log() * -2).sqrt()
    # Abramowitz and Stegun 26.2.22, good to 3 digits; then Newton's method for log_ndtr
    x = (2.30753 + w * 0.27061) / (1 + w * (0.99229 + w * 0.04481)) - w
    for _ in range(4):
        x = x - (log_ndtr(x) - safe.log()) / _density_of_share(x)
    x = select(share == 0.5, 0.0, select(share == 0, -_INF, select(inside, x, _NAN)))
    return select(is_low, x, -x)


@ndtri.backward
def _ndtri_gradient(grad: Tensor, output: Tensor, p: Tensor) -> Tensor:
    return grad * (output * output * 0.5).exp() * sqrt(2 * pi)
