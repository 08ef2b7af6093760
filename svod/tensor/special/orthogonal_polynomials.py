"""Orthogonal polynomials of ``svod.special``: each degree from the two below it, in float64.

The degree may differ from element to element and is truncated; below zero the value is 0. A tensor
of degrees is read now, for the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import Core, Operand
from svod.tensor.ops.creation import arange
from svod.tensor.ops.elementwise import select
from svod.tensor.recording.scan import scan

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_MOST = 1 << 20  # steps: as many as anybody waits for


def _chebyshev(x: Any, k: Any, now: Any, before: Any) -> Any:
    return 2 * x * now - before


# name: what it is called, the value for degree 1, and the value for degree k + 1 of those for k
# and k - 1.
_FAMILIES: dict[str, tuple[str, Callable[[Any], Any], Callable[..., Any]]] = {
    "chebyshev_polynomial_t": ("Chebyshev's, first kind", lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": ("Chebyshev's, second kind", lambda x: 2 * x, _chebyshev),
    "chebyshev_polynomial_v": ("Chebyshev's, third kind", lambda x: 2 * x - 1, _chebyshev),
    "chebyshev_polynomial_w": ("Chebyshev's, fourth kind", lambda x: 2 * x + 1, _chebyshev),
    "hermite_polynomial_h": (
        "Hermite's, of physics",
        lambda x: 2 * x,
        lambda x, k, now, before: 2 * (x * now - k * before),
    ),
    "hermite_polynomial_he": (
        "Hermite's, of probability",
        lambda x: x,
        lambda x, k, now, before: x * now - k * before,
    ),
    "laguerre_polynomial_l": (
        "Laguerre's",
        lambda x: 1 - x,
        lambda x, k, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    ),
    "legendre_polynomial_p": (
        "Legendre's",
        lambda x: x,
        lambda x, k, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    ),
}


def _family(name: str, pair: Callable[..., Any], is_shifted: bool) -> Any:
    title, first, following = _FAMILIES[name]

    def function(input: Any, n: Operand) -> Tensor:
        x, degree, dtype = pair(input, n)
        x, degree = 2 * x - 1 if is_shifted else x, degree.trunc()
        largest = n if isinstance(n, (int, float)) else 0.0
        if isinstance(n, Core) and degree.numel():
            largest = select(degree.isnan(), -1.0, degree).amax().item()
        if not largest < _MOST:
            raise ShapeError(f"{function.__name__}: degrees are below {_MOST}, not {largest}")
        found = select(degree >= 1, first(x), select(degree < 0, 0.0, 1.0))

        def step(carry: Any, k: Tensor) -> Any:
            before, now, result = carry
            after = following(x, k, now, before)
            return (now, after, select(degree == k + 1, after, result)), ()

        if largest >= 2:
            steps = arange(1, int(largest), dtype=x.dtype)
            (_, _, found), _ = scan(step, (x.ones_like(), first(x), found), steps)
        return found.cast(dtype)

    function.__name__ = function.__qualname__ = f"shifted_{name}" if is_shifted else name
    function.__doc__ = f"{title} polynomial of degree n{', of 2 x - 1' if is_shifted else ''}."
    return function


def polynomials(pair: Callable[..., Any]) -> dict[str, Any]:
    """All families by name; ``pair`` brings both operands to float64."""
    found = [_family(name, pair, False) for name in _FAMILIES]
    found += [_family(name, pair, True) for name in _FAMILIES if name.startswith("chebyshev")]
    return {f.__name__: f for f in found}
