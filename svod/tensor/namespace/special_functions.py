"""``svod.special``: the functions of torch.special.

Those that are methods too are called here under their own or another name. Floats are computed in
float64 and rounded once; integers give float32.
"""

from __future__ import annotations

from typing import Any

from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import Operand, tensor_of
from svod.tensor.namespace.method_functions import forward
from svod.tensor.ops.elementwise import select
from svod.tensor.special import bessel, incomplete_gamma, normal_distribution
from svod.tensor.special.float64_functions import like, precise, precise_pair
from svod.tensor.special.orthogonal_polynomials import polynomials
from svod.tensor.special.special_methods import polygamma as _polygamma
from svod.tensor.tensor import Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx",
    "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1",
    "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr",
    "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip

_INF = float("inf")

digamma = forward("digamma", "digamma")
erf = forward("erf", "erf")
erfc = forward("erfc", "erfc")
erfinv = forward("erfinv", "erfinv")
exp2 = forward("exp2", "exp2")
expit = forward("expit", "sigmoid")
expm1 = forward("expm1", "expm1")
gammainc = forward("gammainc", "igamma")
gammaincc = forward("gammaincc", "igammac")
gammaln = forward("gammaln", "lgamma")
i0 = forward("i0", "i0")
i0e = forward("i0e", "i0e")
i1 = forward("i1", "i1")
i1e = forward("i1e", "i1e")
log1p = forward("log1p", "log1p")
log_softmax = forward("log_softmax", "log_softmax")
logit = forward("logit", "logit")
logsumexp = forward("logsumexp", "logsumexp")
modified_bessel_i0 = forward("modified_bessel_i0", "i0")
modified_bessel_i1 = forward("modified_bessel_i1", "i1")
multigammaln = forward("multigammaln", "mvlgamma")
psi = forward("psi", "digamma")
round = forward("round", "round")
sinc = forward("sinc", "sinc")
softmax = forward("softmax", "softmax")
xlogy = forward("xlogy", "xlogy")


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    return _polygamma(n, tensor_of(input))


# -- error functions and the normal distribution -----------------------------------------------


def erfcx(input: Tensor) -> Tensor:
    """exp(x**2) * erfc(x), which does not vanish for large x."""
    return _rounded(normal_distribution.erfcx, input)


def ndtr(input: Tensor) -> Tensor:
    """The share of a normal distribution below x."""
    return _rounded(normal_distribution.ndtr, input)


def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of ndtr, exact where that vanishes."""
    return _rounded(normal_distribution.log_ndtr, input)


def ndtri(input: Tensor) -> Tensor:
    """The number below which this share of a normal distribution lies."""
    return _rounded(normal_distribution.ndtri, input)


# -- entropy and logarithms --------------------------------------------------------------------


def entr(input: Tensor) -> Tensor:
    """-x * log(x): 0 at zero, -infinity below."""
    x = tensor_of(input)
    x = x if x.dtype.kind == "f" else x.float()
    inside = x > 0
    safe = select(inside, x, 1.0)
    found = select(x < 0, -_INF, select(inside, -x * safe.log(), 0.0))
    return select(x.isnan(), x, found)


def xlog1py(input: Tensor, other: Operand) -> Tensor:
    """input * log1p(other), 0 where input is 0."""
    x, y, dtype = _floats(input, other)
    no_log = (x == 0) & ((y <= -1) | (y == _INF))
    return (x * select(no_log, 0.0, y).log1p()).cast(dtype)


# -- zeta --------------------------------------------------------------------------------------


def zeta(input: Tensor, other: Operand) -> Tensor:
    """The sum of (other + k) ** -input over k from 0 on; no gradient for input."""
    x, q, dtype = _pair(input, other)
    return incomplete_gamma.zeta(x, q).cast(dtype)


# -- Bessel functions --------------------------------------------------------------------------


def bessel_j0(input: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 0."""
    return _rounded(bessel.j0, input)


def bessel_j1(input: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 1."""
    return _rounded(bessel.j1, input)


def bessel_y0(input: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 0; NaN below zero."""
    return _rounded(bessel.y0, input)


def bessel_y1(input: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 1; NaN below zero."""
    return _rounded(bessel.y1, input)


def modified_bessel_k0(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 0; NaN below zero."""
    return _rounded(bessel.k0, input)


def modified_bessel_k1(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 1; NaN below zero."""
    return _rounded(bessel.k1, input)


def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """exp(x) times modified_bessel_k0."""
    return _rounded(bessel.k0e, x)


def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """exp(x) times modified_bessel_k1."""
    return _rounded(bessel.k1e, x)


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x."""
    return _rounded(bessel.spherical_j0, input)


def _rounded(compute: Any, input: Any) -> Tensor:
    x = tensor_of(input)
    return like(compute(precise(x)), x)


def _pair(x: Any, y: Any) -> tuple[Tensor, Tensor, Any]:
    """Two operands in float64, of which one may be a number."""
    if isinstance(x, Tensor):
        return precise_pair(x, y)
    right, left, dtype = precise_pair(tensor_of(y), x)
    return left, right, dtype


def _floats(x: Any, y: Any) -> tuple[Tensor, Tensor, Any]:
    left, right, dtype = _pair(x, y)
    return left.cast(dtype), right.cast(dtype), dtype


_polynomials = polynomials(_pair)
globals().update(_polynomials)
__all__ += list(_polynomials)
guard(globals(), __all__)
