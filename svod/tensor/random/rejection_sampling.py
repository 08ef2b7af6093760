"""Rejection sampling: random numbers of the gamma and the Poisson distribution.

A graph has no loop until something is accepted, so each number gets a fixed count of proposals and
is the first accepted one; the chance that none is, is far below that of a rounding to the wrong
neighbour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.dtype import types as dt
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.ops.elementwise import select
from svod.tensor.random.threefry import Generator, rand, randn

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_GAMMA_TRIES = 12  # each is accepted with more than 95 %
_POISSON_TRIES = 24  # each is accepted with more than 70 %
_SMALL_RATE = 10  # below, arrivals are counted; 60 of them within that time have chance 1e-25
_ARRIVALS = 60
_TINY = 1e-38


def standard_gamma(
    concentration: Tensor, shape: tuple[int, ...], generator: Generator | None = None
) -> Tensor:
    """Gamma numbers of rate 1, by the method of Marsaglia and Tsang.

    A concentration below 1 is drawn with 1 more, and made smaller by a power of a uniform number.
    """
    a = concentration
    like: dict[str, Any] = {"dtype": a.dtype, "device": a.device, "generator": generator}
    is_small = a < 1
    d = select(is_small, a + 1, a) - 1 / 3
    z = randn(_GAMMA_TRIES, *shape, **like)
    v = (1 + z / (9 * d).sqrt()) ** 3
    u = rand(_GAMMA_TRIES, *shape, **like).clamp(min=_TINY)
    bound = 0.5 * z * z + d - d * v + d * v.clamp(min=_TINY).log()
    found = _first(d * v, (v > 0) & (u.log() < bound))
    share = rand(*shape, **like).clamp(min=_TINY) ** (1 / a)
    return select(is_small, found * share, found)


def poisson(input: Any, generator: Generator | None = None) -> Tensor:
    """Poisson numbers with the rates of ``input``, in its dtype.

    Small rates count arrivals; large ones use Hörmann's transformed rejection.
    """
    rate = tensor_of(input)
    result = rate.dtype
    rate = rate.cast(dt.float64) if result is dt.float64 else rate.cast(dt.float32)
    like: dict[str, Any] = {"dtype": rate.dtype, "device": rate.device, "generator": generator}
    waits = -rand(_ARRIVALS, *rate.shape, **like).clamp(min=_TINY).log()
    few = (waits.cumsum(0) < rate).sum(0).cast(rate.dtype)

    large = rate.clamp(min=_SMALL_RATE)
    b = 0.931 + 2.53 * large.sqrt()
    a = -0.059 + 0.02483 * b
    u = rand(_POISSON_TRIES, *rate.shape, **like) - 0.5
    v = rand(_POISSON_TRIES, *rate.shape, **like).clamp(min=_TINY)
    edge = (0.5 - u.abs()).clamp(min=_TINY)
    k = ((2 * a / edge + b) * u + large + 0.43).floor()
    is_inside = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    is_outside = (k < 0) | ((edge < 0.013) & (v > edge))
    scale = (1.1239 + 1.1328 / (b - 3.4)).log() - (a / (edge * edge) + b).log()
    density = k * large.log() - large - (k.clamp(min=0) + 1).lgamma()
    many = _first(k, is_inside | (~is_outside & (v.log() + scale <= density)))
    return select(rate < _SMALL_RATE, few, many).cast(result)


def _first(proposals: Tensor, is_accepted: Tensor) -> Tensor:
    """Along the first axis: the first accepted proposal."""
    first = is_accepted.cast(dt.int32).argmax(0, keepdim=True)
    return proposals.gather(0, first).squeeze(0)


guard(globals())
