"""The error function and the normal distribution in float64: erfc, erfcx, erfinv, log_ndtr, ...

``single`` asks for no more places than a float32 has.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.special.float64_functions import polynomial

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
    1.114683428931455e-06, -1.4874229568343961e-05, 7.594484489555825e-05, -0.00015624776138386365,
    -0.00010034835371089735, 0.0013201285730567907, -0.003511765522777407, 0.005749033961873881,
    -0.007669797849218511, 0.009436280616894244, 1.0016777967022872, 2.8329770731563255,
)  # fmt: skip
# The same to the places of a float32: w up to 5, and sqrt(w) up to 4.09.
_CENTRE_SINGLE = (
    1.3285919905044874e-10, 4.370310427486788e-10, -1.1023216997131237e-08, 1.6457231591996337e-08,
    4.796988657404782e-07, -3.4260121684641795e-06, -4.998759782624901e-06, 0.00021826355749627764,
    -0.0012527048768732115, -0.004177324636204709, 0.24664027578564673, 1.5014093516925102,
)  # fmt: skip
_TAIL_SINGLE = (
    -8.558132503048666e-06, -1.7266274810940324e-05, 0.00017281715340225132, -0.0002973568353329854,
    -0.0001266156953073251, 0.0014865756833206626, -0.003565331793846162, 0.0056849712312330766,
    -0.007643016112454331, 0.009445528894240733, 1.0016752497799812, 2.8329767985824694,
)  # fmt: skip
# exp(x**2) * erfc(x) / t as a polynomial in 2t - 1 with t = 2 / (2 + x), fitted with 50 digits.
_ERFC = (
    1.2051665995883637e-09, -1.05903331435718e-09, -9.744756625932259e-09, 1.3216325517632649e-08,
    2.9041985444209086e-08, -6.965842943409138e-08, -1.6982724012935667e-09, 1.7867229479168533e-07,
    -2.855481823834117e-07, -1.3754508233185945e-08, 1.00091858626541e-06, -1.8150355080541665e-06,
    -5.628166935192924e-07, 8.05787586714734e-06, -1.0848057268891096e-05, -1.7073781133818914e-05,
    7.223535061438543e-05, -1.7185831874889752e-05, -0.00033153674761946043, 0.0004186480432791111,
    0.0015453060290576436, -0.0032395925345820673, -0.010755330944716365, 0.01822111575345904,
    0.13973604627802688, 0.34358034220690514, 0.5107913526210115,
)  # fmt: skip
# The same to the places of a float32.
_ERFC_SINGLE = (
    -9.020301175920554e-06, -1.4688000262199686e-06, 6.921478153377526e-05, -3.256491264644713e-05,
    -0.0003298076531963244, 0.00042663625830014374, 0.0015449261367397812, -0.0032416884381080095,
    -0.010755319875545538, 0.018221354864691345, 0.1397360498652206, 0.3435803344162357,
    0.5107913525275861,
)  # fmt: skip


def _scaled_tail(size: Tensor, single: bool = False) -> Tensor:
    """exp(x**2) * erfc(x) for x of 0 and more."""
    t = 2 / (size + 2)
    found: Tensor = t * polynomial(t * 2 - 1, _ERFC_SINGLE if single else _ERFC)
    return found


def _exp_of_square(x: Tensor) -> Tensor:
    """exp(-x**2) for x of 0 and more; the rounding of the square does not count."""
    bounded = x.minimum(30.0)
    near = (bounded * 16).round() / 16  # its square is exact
    return (-near * near).exp() * ((near - bounded) * (near + bounded)).exp()


@custom_gradient
def erfc(x: Tensor, single: bool = False) -> Tensor:
    size = x.abs()
    below = (-size * size).exp() if single else _exp_of_square(size)
    found = _scaled_tail(size, single) * below
    return select(x < 0, 2 - found, found)


@erfc.backward
def _erfc_gradient(grad: Tensor, output: Tensor, x: Tensor, single: bool = False) -> Tensor:
    return grad * (-x * x).exp() * (-2 / sqrt(pi))


@custom_gradient
def erfcx(x: Tensor) -> Tensor:
    found = _scaled_tail(x.abs())
    return select(x < 0, (x * x).exp() * 2 - found, found)


@erfcx.backward
def _erfcx_gradient(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    return grad * (x * output * 2 - 2 / sqrt(pi))


@custom_gradient
def erfinv(y: Tensor, single: bool = False) -> Tensor:
    size = y.abs()
    above = 1 - size
    w = -(above * (1 + size)).log()
    centre, tail = (_CENTRE_SINGLE, _TAIL_SINGLE) if single else (_CENTRE, _TAIL)
    x = size * select(w < 5, polynomial(w - 2.5, centre), polynomial(w.sqrt() - 3, tail))
    if not single:  # Newton's step, and what the second derivative adds to it
        grown = (x * x).exp()
        low, high = (x.erf() - size) * grown, above * grown - _scaled_tail(x)
        step = select(size < 0.75, low, high) * (sqrt(pi) / 2)
        x = x - step / (1 + x * step)
    x = select(size == 1, _INF, select(size > 1, _NAN, x))
    return x.copysign(y)


@erfinv.backward
def _erfinv_gradient(grad: Tensor, output: Tensor, y: Tensor, single: bool = False) -> Tensor:
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
