"""``svod.signal.windows``: the window functions (Hann, Kaiser, ...), and torch's older names.

A window is symmetric, or with ``sym=False`` one period of a longer one. All are computed in
float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from typing import Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import device_name, integer, wrap
from svod.tensor.ops.creation import arange, full
from svod.tensor.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def _window(
    shape: Callable[[Tensor, int], Tensor],
    M: int,
    sym: bool,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The values of a shape at 0 .. M - 1, given those places and the last place."""
    size = integer(M, "the length of a window")
    if size < 0:
        raise ShapeError(f"a window has 0 or more values, not {size}")
    kind = dt.float32 if dtype is None else dtype_of(dtype)
    if kind.kind != "f":
        raise ShapeError(f"a window holds floats, not {kind.name}")
    if size < 2:
        found = full((size,), 1.0, dtype=kind, device=device)
    else:
        found = shape(arange(size, device=device).double(), size - 1 if sym else size).cast(kind)
    found = wrap(found.uop, device_name(device))
    return found.requires_grad_() if requires_grad else found


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """A sum of cosines of whole multiples of the angle once round, with alternating signs."""
    if not isinstance(a, Iterable):
        raise DTypeError(f"general_cosine needs a list of coefficients, not {a!r:.60}")
    terms = list(a)
    if not terms:
        raise ShapeError("general_cosine needs at least one coefficient")

    def shape(place: Tensor, last: int) -> Tensor:
        angle = place * (2 * pi / last)
        found = angle * 0 + terms[0]
        for k, factor in enumerate(terms[1:], 1):
            found = found + (angle * k).cos() * (-factor if k % 2 else factor)
        return found

    return _window(shape, M, sym, **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha less (1 - alpha) times the cosine of the angle."""
    return general_cosine(M, a=(alpha, 1 - alpha), sym=sym, **options)


_COSINES = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
}


def _sum_of_cosines(name: str) -> Any:
    def function(M: int, *, sym: bool = True, **options: Any) -> Tensor:
        return general_cosine(M, a=_COSINES[name], sym=sym, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The window of cosines {_COSINES[name]}."
    return function


hann, hamming, blackman, nuttall = [_sum_of_cosines(name) for name in _COSINES]


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A straight rise and fall."""
    return _window(lambda place, last: 1 - (place * (2 / last) - 1).abs(), M, sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of the sine."""
    return _window(lambda place, last: ((place + 0.5) * (pi / (last + 1))).sin(), M, sym, **options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """A decay by e every tau samples from the centre."""
    if tau <= 0:
        raise ShapeError(f"exponential: tau is above 0, not {tau}")
    if sym and center is not None:
        raise ShapeError("exponential: a symmetric window has its centre in the middle")

    def shape(place: Tensor, last: int) -> Tensor:
        return ((place - (last / 2 if center is None else center)).abs() / -tau).exp()

    return _window(shape, M, sym, **options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """The bell curve."""
    if std <= 0:
        raise ShapeError(f"gaussian: std is above 0, not {std}")
    return _window(
        lambda place, last: (((place - last / 2) / std) ** 2 * -0.5).exp(), M, sym, **options
    )


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """A window of the Bessel function i0."""
    if beta < 0:
        raise ShapeError(f"kaiser: beta is 0 or more, not {beta}")

    def shape(place: Tensor, last: int) -> Tensor:
        x = place * (2 / last) - 1
        y = (1 - x * x).clamp(0).sqrt() * beta
        top = full((), float(beta), dtype=dt.float64).i0e()
        return y.i0e() / top * (y - beta).exp()  # i0(y) / i0(beta), which overflow

    return _window(shape, M, sym, **options)


# -- torch's older names: periodic unless told otherwise ----------------------------------------


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Half a cosine up and down."""
    return hann(window_length, sym=not periodic, **options)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """alpha - beta * cos of the angle."""
    return general_cosine(window_length, a=(alpha, beta), sym=not periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Three cosine terms."""
    return blackman(window_length, sym=not periodic, **options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A straight rise and fall."""
    return bartlett(window_length, sym=not periodic, **options)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """A window of the Bessel function i0."""
    return kaiser(window_length, beta=beta, sym=not periodic, **options)


guard(globals(), __all__)
