"""Elementary functions of complex numbers (exp, log, sqrt, sin, ...) over their two parts.

Every function is a pair: the value from the parts, with the special values of C's Annex G and the
array API standard, and the complex derivative, from which the gradient is ``grad * conj(f'(z))``,
torch's convention. Inverse functions follow Hull, Fairgrieve and Tang, "Implementing the complex
arcsine and arccosine functions using exception handling", 1997; the others scale where a part
would overflow on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp as exp_of
from math import inf, log, nan, pi
from typing import TYPE_CHECKING, Any

from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.ir.build import broadcast_shapes
from svod.tensor.core.complex_parts import joined, parts
from svod.tensor.core.tensor_core import pair, tensor_of, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Parts = tuple["Tensor", "Tensor"]
_LN2 = log(2.0)
# where exp overflows, rounded down; a part of the exponent taken out beyond; where tanh is 1
_EXP_LIMIT = {dt.float32: (88.0, 40.0, 10.0), dt.float64: (709.0, 100.0, 22.0)}
_LARGE = {dt.float32: 1e18, dt.float64: 1e150}  # squares of larger ones overflow
_SMALL = {dt.float32: 1e-18, dt.float64: 1e-150}  # squares of smaller ones vanish


def holomorphic(
    value: Callable[[Tensor, Tensor], Parts], slope: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """A function of complex tensors from its value and its derivative at z, given z and f(z)."""

    def forward(z: Tensor) -> Tensor:
        return joined(*value(*parts(z)))

    forward.__name__ = forward.__qualname__ = value.__name__.strip("_")
    function = custom_gradient(forward)

    @function.backward
    def _(grad: Tensor, output: Tensor, z: Tensor) -> Tensor:
        return grad * slope(z, output).conj()

    return function


def _choice(condition: Tensor, a: float, b: float, like: Tensor) -> Tensor:
    """One of two numbers, in the dtype of a tensor."""
    return select(condition, tensor_of(float(a), like), float(b))


def _zero(y: Tensor) -> Tensor:
    """0 with the sign of y."""
    return _choice(y.signbit(), -0.0, 0.0, y)


# -- size and direction ----------------------------------------------------------------------------


@custom_gradient
def absolute(z: Tensor) -> Tensor:
    """The distance from 0, without overflow on the way."""
    x, y = parts(z)
    return x.hypot(y)


@absolute.backward
def _(grad: Tensor, output: Tensor, z: Tensor) -> Tensor:
    return direction(z) * grad


@custom_gradient
def angle(z: Tensor) -> Tensor:
    """The angle from the positive real axis, from -pi to pi."""
    x, y = parts(z)
    return y.atan2(x)


@angle.backward
def _(grad: Tensor, output: Tensor, z: Tensor) -> Tensor:
    x, y = parts(z)
    size = x.hypot(y)
    scale = select(size == 0, 0.0, grad / select(size == 0, 1.0, size))
    unit = direction(z)
    return joined(-unit.imag * scale, unit.real * scale)


def direction(z: Tensor) -> Tensor:
    """z / abs(z); 0 at 0."""
    x, y = parts(z)
    large = x.abs().maximum(y.abs())
    is_plain = (large > 0) & (large < inf)
    scale = select(is_plain, large, 1.0)
    # Of infinite parts only the signs count; where one is NaN, so is the result.
    a = select(large == inf, _infinite_sign(x), x / scale)
    b = select(large == inf, _infinite_sign(y), y / scale)
    is_zero = large == 0
    size = select(is_zero, 1.0, a.hypot(b))
    return joined(select(is_zero, 0.0, a / size), select(is_zero, 0.0, b / size))


def _infinite_sign(part: Tensor) -> Tensor:
    is_kept = part.isinf() | part.isnan()
    return select(is_kept, part.sign(), part * 0.0)


# -- exponentials and logarithms -------------------------------------------------------------------


def _exp(x: Tensor, y: Tensor) -> Parts:
    return _spiral(x, y, x.exp(), *_scaled_exp(x))


def _exp2(x: Tensor, y: Tensor) -> Parts:
    limit, taken, _ = _EXP_LIMIT[x.dtype]
    is_large = x > limit / _LN2
    scale = _choice(is_large, 2.0**taken, 1.0, x)
    grown = (x - _choice(is_large, taken, 0.0, x)).exp2()
    return _spiral(x, y * _LN2, x.exp2(), grown, scale)


def _spiral(x: Tensor, y: Tensor, size: Tensor, grown: Tensor, scale: Tensor) -> Parts:
    """The point at an angle y and a distance ``size``, which is ``grown * scale``; x is its log."""
    re, im = grown * y.cos() * scale, grown * y.sin() * scale
    is_wild = ~y.isfinite()
    at_zero = x == -inf
    re = select(at_zero & is_wild, 0.0, select((x == inf) & is_wild, inf, re))
    im = select(at_zero & is_wild, _zero(y), im)
    return select(y == 0, size, re), select(y == 0, y, im)


def _scaled_exp(x: Tensor) -> Parts:
    """exp(x) as a product: the first factor is finite a little beyond where exp overflows."""
    limit, taken, _ = _EXP_LIMIT[x.dtype]
    is_large = x > limit
    scale = _choice(is_large, exp_of(taken), 1.0, x)
    return (x - _choice(is_large, taken, 0.0, x)).exp(), scale


def _expm1(x: Tensor, y: Tensor) -> Parts:
    re, im = _exp(x, y)
    half = (y * 0.5).sin()
    near = x.expm1() * y.cos() - half * half * 2
    real = x.expm1() + 0.0  # -0 + 0j gives 0 + 0j
    whole = select(y == 0, real, select((x.abs() < 1) & y.isfinite(), near, re - 1))
    return whole, im


def _log(x: Tensor, y: Tensor) -> Parts:
    return log_size(x, y), y.atan2(x)


def log_size(x: Tensor, y: Tensor) -> Tensor:
    """log(hypot(x, y)), also where that overflows, vanishes or is near 1."""
    a, b = x.abs(), y.abs()
    large, small = a.maximum(b), a.minimum(b)
    high, low = _LARGE[x.dtype], _SMALL[x.dtype]
    is_large, is_small = (large > high) & (large < inf), large < low
    scale = select(is_large, 1 / high, _choice(is_small, high, 1.0, x))
    shift = select(is_large, log(high), _choice(is_small, -log(high), 0.0, x))
    plain = (x * scale).hypot(y * scale).log() + shift
    near = ((large - 1) * (large + 1) + small * small).log1p() * 0.5
    is_near = (large > 0.5) & (large < 2) & (small < 2)
    return select(is_near, near, plain)


def _log1p(x: Tensor, y: Tensor) -> Parts:
    size = x.abs().maximum(y.abs())
    near = (x * (x + 2) + y * y).log1p() * 0.5
    return select(size < 0.5, near, log_size(x + 1, y)), y.atan2(x + 1)


def _log2(x: Tensor, y: Tensor) -> Parts:
    re, im = _log(x, y)
    return re * (1 / _LN2), im * (1 / _LN2)


def _log10(x: Tensor, y: Tensor) -> Parts:
    re, im = _log(x, y)
    return re * (1 / log(10.0)), im * (1 / log(10.0))


# -- roots and quotients ---------------------------------------------------------------------------


def _sqrt(x: Tensor, y: Tensor) -> Parts:
    high, low = _LARGE[x.dtype], _SMALL[x.dtype]
    large = x.abs().maximum(y.abs())
    up = 2.0**80 if x.dtype is dt.float32 else 2.0**600
    scale = select(large > high, 2.0**-4, _choice(large < low, up, 1.0, x))
    back = select(large > high, 4.0, _choice(large < low, up**-0.5, 1.0, x))
    a, b = x * scale, y * scale
    root = ((a.abs() + a.hypot(b)) * 0.5).sqrt()
    other = b.abs() / select(root == 0, 1.0, root * 2) * back
    root = root * back
    is_right = (x >= 0) | x.isnan()
    re, im = select(is_right, root, other), select(is_right, other, root)
    re = select((x == -inf) & y.isfinite(), 0.0, select(y.isinf(), inf, re))
    im = select((x == inf) & y.isfinite(), 0.0, select(y.isinf() | (x == -inf), inf, im))
    return select((x == -inf) & y.isnan(), nan, re), im.copysign(y)


def quotient(z: Tensor, w: Tensor) -> Tensor:
    """z / w, scaled by the larger part of w, as Smith does."""
    return _quotient(*_stretched(z, w))  # type: ignore[no-any-return]


def _stretched(z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    shape = broadcast_shapes(z.shape, w.shape)
    return z.expand(shape), w.expand(shape)


@custom_gradient
def _quotient(z: Tensor, w: Tensor) -> Tensor:
    (a, b), (c, d) = parts(z), parts(w)
    is_first = c.abs() >= d.abs()
    large, small = select(is_first, c, d), select(is_first, d, c)
    ratio = select(large == 0, 0.0, small / select(large == 0, 1.0, large))
    scale = 1 / (large + small * ratio)
    is_zero = (c == 0) & (d == 0)
    re = select(is_first, a + b * ratio, a * ratio + b) * scale
    im = select(is_first, b - a * ratio, b * ratio - a) * scale
    return joined(select(is_zero, a / c.abs(), re), select(is_zero, b / c.abs(), im))


@_quotient.backward
def _(grad: Tensor, output: Tensor, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    first = quotient(grad, w.conj())
    return first, -(first * output.conj())


# -- hyperbolic and trigonometric functions --------------------------------------------------------


def _halves(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """cosh(x), sinh(x) and a factor of both, which is not 1 where they would overflow."""
    limit, _, _ = _EXP_LIMIT[x.dtype]
    grown, scale = _scaled_exp(x.abs())
    is_large = x.abs() > limit
    half = grown * 0.5
    return select(is_large, half, x.cosh()), select(is_large, half.copysign(x), x.sinh()), scale


def _sinh(x: Tensor, y: Tensor) -> Parts:
    even, odd, scale = _halves(x)
    re, im = odd * y.cos() * scale, even * y.sin() * scale
    is_wild = ~y.isfinite()
    re = select(((x == 0) | x.isinf()) & is_wild, x, select(y == 0, x.sinh(), re))
    return re, select(y == 0, y, im)


def _cosh(x: Tensor, y: Tensor) -> Parts:
    even, odd, scale = _halves(x)
    re, im = even * y.cos() * scale, odd * y.sin() * scale
    re = select(x.isinf() & ~y.isfinite(), inf, select(y == 0, x.cosh(), re))
    zero = _choice(x.signbit() ^ y.signbit(), -0.0, 0.0, x)
    is_flat = (y == 0) | ((x == 0) & ~y.isfinite())
    return re, select(is_flat, zero, im)


def _tanh(x: Tensor, y: Tensor) -> Parts:
    """Kahan's formula; far from the imaginary axis the limit."""
    *_, limit = _EXP_LIMIT[x.dtype]
    tangent = y.tan()
    square = tangent * tangent + 1
    near = select(x.abs() > limit, 0.0, x)
    sine, cosine = near.sinh(), near.cosh()
    below = square * sine * sine + 1
    is_far = x.abs() > limit
    faded = (y.sin() * y.cos() * 4) * (x.abs() * -2).exp()
    faded = select(x.isinf(), _zero(y), faded)  # as the array API has it; C99 looks at sin(2y)
    one = _choice(x < 0, -1.0, 1.0, x)
    one = select(x.isinf() | y.isfinite(), one, nan)
    re = select(is_far, one, square * cosine * sine / below)
    re = select((x == 0) | x.isnan(), x, re)
    im = select(is_far, faded, select(x.isnan(), nan, tangent / below))
    return re, select(y == 0, y, im)


def _turned(function: Callable[[Tensor, Tensor], Parts]) -> Callable[[Tensor, Tensor], Parts]:
    """f(z) = -i g(iz) for an odd g that keeps conjugates: sin from sinh, atan from atanh."""

    def value(x: Tensor, y: Tensor) -> Parts:
        re, im = function(y, x)
        return im, re

    return value


def _cos(x: Tensor, y: Tensor) -> Parts:
    return _cosh(-y, x)


# -- inverse functions -----------------------------------------------------------------------------


def _height_and_base(x: Tensor, y: Tensor) -> Parts:
    """asin and acos from the ellipse with foci -1 and 1 through z.

    With its half axis A, the height is log(A + sqrt(A**2 - 1)), the imaginary part of both, and the
    base sqrt(A**2 - x**2), the leg beside abs(x) in a triangle with the angle asin(x / A).
    """
    a, b = x.abs(), y.abs()
    far, near = (a + 1).hypot(b), (a - 1).hypot(b)
    axis = (far + near) * 0.5
    over = b / (far + a + 1)
    rest, beyond = near + (1 - a), near + (a - 1)
    is_inside = a < 1
    # A - 1 and A - x without cancellation
    excess = (b * over + select(is_inside, b * _over(b, rest), beyond)) * 0.5
    inner = ((b * over + rest) * (axis + a) * 0.5).sqrt()
    outer = b * (((axis + a) / (far + a + 1) + _over(axis + a, beyond)) * 0.5).sqrt()
    limit = _LARGE[x.dtype]
    is_far = a.maximum(b) > limit
    close = (excess + (excess * (axis + 1)).sqrt()).log1p()
    tame = select(is_far, 2.0, axis)
    wide = (tame + (tame * tame - 1).maximum(0.0).sqrt()).log()
    height = select(axis <= 1.5, close, select(axis <= limit, wide, log_size(x, y) + _LN2))
    is_thin = is_inside & (b <= (1 - a) * finfo(x.dtype).eps)
    height = select(is_thin, b / select(is_inside, (1 - a) * (1 + a), 1.0).sqrt(), height)
    return height, select(is_far, b, select(a <= 1, inner, outer))


def _over(b: Tensor, below: Tensor) -> Tensor:
    """b / below, which is 0 where nothing is below."""
    is_zero = below <= 0
    return select(is_zero, 0.0, b / select(is_zero, 1.0, below))


def _asin(x: Tensor, y: Tensor) -> Parts:
    height, base = _height_and_base(x, y)
    return select(x == 0, x, x.abs().atan2(base).copysign(x)), height.copysign(y)


def _acos(x: Tensor, y: Tensor) -> Parts:
    height, base = _height_and_base(x, y)
    return select(x == 0, pi / 2, base.atan2(x)), height.copysign(-y)


def _acosh(x: Tensor, y: Tensor) -> Parts:
    re, im = _acos(x, y)
    return im.abs(), re.copysign(y)


def _atanh(x: Tensor, y: Tensor) -> Parts:
    a, b = x.abs(), y.abs()
    large, small = a.maximum(b), a.minimum(b)
    limit = 1e9 if x.dtype is dt.float32 else 1e100
    is_far = large > limit
    tame, low = select(is_far, 1.0, a), select(is_far, 1.0, b)
    apart = (1 - tame) * (1 - tame) + low * low
    re = (tame * 4 / apart).log1p() * 0.25
    is_close = (a == 1) & (b < _SMALL[x.dtype])
    re = select(is_close, (_LN2 - b.log()) * 0.5, re)
    ratio = small / large
    re = select(is_far, a / large / (large * (ratio * ratio + 1)), re)
    im = (low * 2).atan2((1 - tame) * (1 + tame) - low * low) * 0.5
    im = select(is_far, pi / 2, im)
    is_infinite = x.isinf() | y.isinf()
    re = select(is_infinite | (x == 0), 0.0, re)
    im = select(is_infinite, select(y.isnan(), y, pi / 2), im)
    return re.copysign(x), im.copysign(y)


# -- the functions ---------------------------------------------------------------------------------

exp = holomorphic(_exp, lambda z, f: f)
exp2 = holomorphic(_exp2, lambda z, f: f * _LN2)
expm1 = holomorphic(_expm1, lambda z, f: f + 1)
log_ = holomorphic(_log, lambda z, f: reciprocal(z))
log2 = holomorphic(_log2, lambda z, f: reciprocal(z * _LN2))
log10 = holomorphic(_log10, lambda z, f: reciprocal(z * log(10.0)))
log1p = holomorphic(_log1p, lambda z, f: reciprocal(z + 1))
sqrt = holomorphic(_sqrt, lambda z, f: reciprocal(f * 2))
sinh = holomorphic(_sinh, lambda z, f: cosh(z))
cosh = holomorphic(_cosh, lambda z, f: sinh(z))
tanh = holomorphic(_tanh, lambda z, f: 1 - f * f)
sin = holomorphic(_turned(_sinh), lambda z, f: cos(z))
cos = holomorphic(_cos, lambda z, f: -sin(z))
tan = holomorphic(_turned(_tanh), lambda z, f: 1 + f * f)
asin = holomorphic(_asin, lambda z, f: reciprocal(sqrt(1 - z * z)))
acos = holomorphic(_acos, lambda z, f: -reciprocal(sqrt(1 - z * z)))
atan = holomorphic(_turned(_atanh), lambda z, f: reciprocal(1 + z * z))
asinh = holomorphic(_turned(_asin), lambda z, f: reciprocal(sqrt(1 + z * z)))
acosh = holomorphic(_acosh, lambda z, f: reciprocal(sqrt(z - 1) * sqrt(z + 1)))
atanh = holomorphic(_atanh, lambda z, f: reciprocal(1 - z * z))


def reciprocal(z: Tensor) -> Tensor:
    """1 / z."""
    return quotient(z.ones_like(), z)


# -- powers ----------------------------------------------------------------------------------------

MOST_PRODUCTS = 64  # larger whole exponents go through the logarithm


def power(z: Tensor, w: Any) -> Tensor:
    """z to the power of a number or of a tensor."""
    if isinstance(w, (int, float)) and w == int_of(w) and abs(w) <= MOST_PRODUCTS:
        found = _whole_power(z, abs(int_of(w)))
        return found if w >= 0 else reciprocal(found)
    if isinstance(w, (int, float)) and w == 0.5:
        return sqrt(z)
    x, y, device = pair(z, w)
    return _power(*_stretched(wrap(x, device), wrap(y, device)))  # type: ignore[no-any-return]


def int_of(w: float) -> int:
    """A number without what comes after the point; 0 for what is not finite."""
    return int(w) if abs(w) < inf else 0


def _whole_power(z: Tensor, n: int) -> Tensor:
    if n == 0:
        return z.ones_like()
    found: Tensor | None = None
    while True:
        if n & 1:
            found = z if found is None else found * z
        n >>= 1
        if not n:
            assert found is not None
            return found
        z = z * z


@custom_gradient
def _power(z: Tensor, w: Tensor) -> Tensor:
    base = select(z == 0, 1.0, z)
    found = exp(w * log_(base))
    at_zero = select((w.real > 0) & (w.imag == 0), 0.0, complex(nan, nan))
    return select(w == 0, 1.0, select(z == 0, at_zero, found))


@_power.backward
def _(grad: Tensor, output: Tensor, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    first = select(w == 0, 0.0, grad * (w * power(z, w - 1)).conj())
    second = select(z == 0, 0.0, grad * (output * log_(select(z == 0, 1.0, z))).conj())
    return first, second
