"""Further elementwise functions: aliases of torch, frexp and nextafter, gcd and lcm."""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.tensor.core.tensor_core import (
    Axis,
    Core,
    Operand,
    Scalar,
    axes_of,
    axis_of,
    float_node,
    pair,
    tensor_of,
    wrap,
)
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_BITS = {16: dt.int16, 32: dt.int32, 64: dt.int64}
# dtype: bits of the mantissa, bias of the exponent
_LAYOUT = {
    dt.float16: (10, 15),
    dt.bfloat16: (7, 127),
    dt.float32: (23, 127),
    dt.float64: (52, 1023),
}
_EUCLID = {8: 13, 16: 24, 32: 47, 64: 93}  # most steps of Euclid's algorithm for a width


def _bits_of(x: Tensor, what: str) -> Tensor:
    if x.dtype not in _LAYOUT:
        raise DTypeError(f"{what} takes floats of 16 bits or more, not {x.dtype.name}")
    return x.bitcast(_BITS[x.dtype.bits])


def _floats(a: Tensor, b: Any) -> tuple[Tensor, Tensor]:
    """Both operands as floats of their common dtype."""
    x, y, device = pair(a, b)
    return wrap(float_node(x), device), wrap(float_node(y), device)


def _integers(a: Tensor, b: Any, what: str) -> tuple[Tensor, Tensor]:
    x, y, device = pair(a, b)
    if not x.dtype.is_int:
        raise DTypeError(f"{what} takes integers, not {x.dtype.name}")
    return wrap(x, device), wrap(y, device)


def greatest_divisor(a: Tensor, b: Tensor) -> Tensor:
    """Euclid's algorithm, as many steps as the width may need."""
    a, b = a.abs(), b.abs()
    for _ in range(_EUCLID[a.dtype.bits]):
        a, b = select(b == 0, a, b), a % b
    return a.abs()


class Numeric(Core):
    """gcd, lcm, frexp, ldexp, nextafter, heaviside, clamp_min, float_power and relatives."""

    __slots__ = ()

    def gcd(self: Tensor, other: Operand) -> Tensor:
        """The greatest common divisor."""
        return greatest_divisor(*_integers(self, other, "gcd"))

    def lcm(self: Tensor, other: Operand) -> Tensor:
        """The least common multiple."""
        a, b = _integers(self, other, "lcm")
        return (a // greatest_divisor(a, b) * b).abs()

    def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
        """Mantissa from 0.5 up to 1 and exponent (int32): x = mantissa * 2**exponent."""
        return _mantissa(self), _mantissa_and_exponent(self)[1]

    def ldexp(self: Tensor, other: Operand) -> Tensor:
        """self * 2**other."""
        exponent = tensor_of(other, self)
        return self * wrap(float_node(exponent.uop), exponent._device).exp2()

    def nextafter(self: Tensor, other: Operand) -> Tensor:
        """The next float from self toward other."""
        x, y, device = pair(self, other)
        shape = B.broadcast_shapes(x.shape, y.shape)
        a, b = wrap(B.broadcast_to(x, shape), device), wrap(B.broadcast_to(y, shape), device)
        return _next_float(a, b)  # type: ignore[no-any-return]

    def heaviside(self: Tensor, values: Operand) -> Tensor:
        """0 below zero, 1 above, ``values`` at zero."""
        at_zero = tensor_of(values, self)
        if at_zero.dtype is not self.dtype:
            raise DTypeError(f"heaviside of {self.dtype.name} with values of {at_zero.dtype.name}")
        step = select(self > 0, 1, 0).cast(self.dtype)
        return select(self == 0, at_zero, step)

    def float_power(self: Tensor, exponent: Operand) -> Tensor:
        """self ** exponent in float64."""
        if not isinstance(exponent, (int, float)):
            exponent = tensor_of(exponent, self).double()
        return self.double() ** exponent

    def logaddexp2(self: Tensor, other: Operand) -> Tensor:
        """log2(2**self + 2**other)."""
        a, b = _floats(self, other)
        gap = select(a == b, 0.0, -(a - b).abs())
        return a.maximum(b) + gap.exp2().log1p() * (1 / log(2))

    def rsub(self: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor:
        """other - alpha * self."""
        scaled = self if alpha == 1 else self * alpha
        return (
            tensor_of(other, self) - scaled
            if not isinstance(other, (int, float))
            else other - scaled
        )

    def clamp_min(self: Tensor, min: Operand) -> Tensor:
        """Limited to at least ``min``."""
        return self.clamp(min)

    def clamp_max(self: Tensor, max: Operand) -> Tensor:
        """Limited to at most ``max``."""
        return self.clamp(None, max)

    def isposinf(self: Tensor) -> Tensor:
        """Whether the element is plus infinity."""
        return _equals(self, float("inf"))

    def isneginf(self: Tensor) -> Tensor:
        """Whether the element is minus infinity."""
        return _equals(self, float("-inf"))

    def isreal(self: Tensor) -> Tensor:
        """Whether the imaginary part is zero; real numbers have none."""
        return wrap(B.full(self.shape, True, dt.bool_), self._device)

    def angle(self: Tensor) -> Tensor:
        """pi below zero, 0 above; NaN stays."""
        x = wrap(float_node(self.uop), self._device)
        half = wrap(B.full((), pi, x.dtype), None)
        return select(x.isnan(), x, select(x < 0, half, 0.0))

    def renorm(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor:
        """Slices along an axis scaled down so that their p-norm is at most ``maxnorm``."""
        if self.ndim < 2:
            raise ShapeError(f"renorm needs at least 2 axes, not shape {self.shape}")
        axis = axis_of(dim, self.ndim)
        others = tuple([i for i in range(self.ndim) if i != axis])
        size = self.norm(p, others, True)
        return self * select(size > maxnorm, maxnorm / (size + 1e-7), 1.0)

    def positive(self: Tensor) -> Tensor:
        """x itself."""
        if self.dtype is dt.bool_:
            raise DTypeError("positive takes numbers, not bool")
        return self

    def is_signed(self: Tensor) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.kind in "if"

    def is_complex(self: Tensor) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.kind == "c"

    def is_same_size(self: Tensor, other: Tensor) -> bool:
        """Whether both have the same shape."""
        return self.shape == other.shape

    def equal(self: Tensor, other: Tensor) -> bool:
        """Whether both have the same shape and elements; they are read now."""
        return self.shape == other.shape and bool((self == other).all().item())

    def is_nonzero(self: Tensor) -> bool:
        """Whether the only element is not zero; it is read now."""
        return bool(self)

    def conj(self: Tensor) -> Tensor:
        """The conjugate; a real number is its own."""
        return self

    resolve_conj = resolve_neg = conj_physical = conj

    @property
    def real(self: Tensor) -> Tensor:
        """The real part; a real number is its own."""
        return self

    @property
    def imag(self: Tensor) -> Tensor:
        """The imaginary part, of complex numbers."""
        raise DTypeError(f"imag takes complex numbers, not {self.dtype.name}")


def _mantissa_and_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    mantissa, bias = _LAYOUT.get(x.dtype, (0, 0))
    _bits_of(x, "frexp")
    # What is too small for the exponent's range is scaled into it first.
    is_small = x.abs() < 2.0 ** (2 - bias)
    scaled = select(is_small, x * 2.0**mantissa, x)
    bits = _bits_of(scaled, "frexp")
    top = 2 * bias + 1
    raw = (bits >> mantissa) & top
    whole = (raw - (bias - 1)).cast(dt.int32) - select(is_small, mantissa, 0).cast(dt.int32)
    kept = (bits & ~(top << mantissa)) | ((bias - 1) << mantissa)
    is_plain = (x == 0) | ~x.isfinite()
    return select(is_plain, x, kept.bitcast(x.dtype)), select(is_plain, 0, whole).cast(dt.int32)


@custom_gradient
def _mantissa(x: Tensor) -> Tensor:
    return _mantissa_and_exponent(x)[0]


@_mantissa.backward
def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
    exponent = _mantissa_and_exponent(x)[1]
    return grad / exponent.cast(x.dtype).exp2()


@custom_gradient
def _next_float(a: Tensor, b: Tensor) -> Tensor:
    bits = _bits_of(a, "nextafter")
    away = (a < b) == (a > 0)
    stepped = (bits + select(away, 1, -1).cast(bits.dtype)).bitcast(a.dtype)
    one = wrap(B.full((), 1, bits.dtype), a._device).bitcast(a.dtype)
    smallest = select(b > 0, one, -one)
    found = select(a == b, b, select(a == 0, smallest, stepped))
    return select(a.isnan() | b.isnan(), float("nan"), found)


@_next_float.backward
def _(grad: Tensor, output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor | None]:
    return select(a == b, 0.0, grad), None


def _equals(x: Tensor, value: float) -> Tensor:
    if x.dtype.kind != "f":
        return wrap(B.full(x.shape, False, dt.bool_), x._device)
    return x == value


def promote_types(type1: Any, type2: Any) -> Any:
    """The dtype that two dtypes have in common."""
    return promote(dtype_of(type1), dtype_of(type2))


# torch's second name of a method = the first one
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "fix": "trunc", "sgn": "sign",
    "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub",
    "negative": "neg", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "nelement": "numel", "ndimension": "dim", "ger": "outer",
}  # fmt: skip


def hash_tensor(input: Tensor, dim: Axis = None, *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the bits of the elements, as 64-bit numbers, over axes."""
    if mode != 0:
        raise ShapeError(f"hash_tensor: the only mode is 0, not {mode}")
    bits = input.double() if input.dtype.kind == "f" else input.cast(dt.int64)
    place = wrap(B.iota(64, dt.uint64), None)
    axes = axes_of(None if dim == () else dim, input.ndim)
    odd = ((bits.bitcast(dt.uint64).unsqueeze(-1) >> place) & 1).sum(axes, keepdim) & 1
    return (odd << place).sum(-1)
