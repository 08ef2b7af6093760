"""Functions of one tensor, element by element, and conversion between dtypes.

Functions that leave the integers (sqrt, exp, ...) turn integers into float32 first; rounding an
integer returns it.
"""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of, finfo
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import const
from svod.tensor.core.tensor_core import Core, float_node, fresh, wrap
from svod.tensor.ops.elementwise import rounded, select, truth, widened
from svod.tensor.views.aliases import view

if TYPE_CHECKING:
    from svod.dtype.types import DType
    from svod.tensor.tensor import Tensor


def _float_function(op: int, doc: str) -> Any:
    def function(self: Tensor) -> Tensor:
        return wrap(B.unary(op, float_node(self.uop)), self._device)

    function.__doc__ = doc
    function.__name__ = function.__qualname__ = O.NAMES[op].lower()
    return function


def _rounding(op: int, doc: str) -> Any:
    def function(self: Tensor) -> Tensor:
        x = self.uop
        return wrap(B.unary(op, x) if x.dtype.kind == "f" else x, self._device)

    function.__doc__ = doc
    function.__name__ = function.__qualname__ = O.NAMES[op].lower()
    return function


class Unary(Core):
    """Mathematical functions, rounding, tests, dtype conversion."""

    __slots__ = ()

    sqrt = _float_function(O.SQRT, "The square root; NaN below zero.")
    rsqrt = _float_function(O.RSQRT, "1 / sqrt(x).")
    exp = _float_function(O.EXP, "e to the power of x.")
    exp2 = _float_function(O.EXP2, "2 to the power of x.")
    expm1 = _float_function(O.EXPM1, "exp(x) - 1, exact near zero.")
    log = _float_function(O.LOG, "The natural logarithm.")
    log2 = _float_function(O.LOG2, "The logarithm to base 2.")
    log1p = _float_function(O.LOG1P, "log(1 + x), exact near zero.")
    sin = _float_function(O.SIN, "The sine.")
    cos = _float_function(O.COS, "The cosine.")
    tan = _float_function(O.TAN, "The tangent.")
    asin = _float_function(O.ASIN, "The inverse sine.")
    acos = _float_function(O.ACOS, "The inverse cosine.")
    atan = _float_function(O.ATAN, "The inverse tangent.")
    sinh = _float_function(O.SINH, "The hyperbolic sine.")
    cosh = _float_function(O.COSH, "The hyperbolic cosine.")
    tanh = _float_function(O.TANH, "The hyperbolic tangent.")
    asinh = _float_function(O.ASINH, "The inverse hyperbolic sine.")
    acosh = _float_function(O.ACOSH, "The inverse hyperbolic cosine.")
    atanh = _float_function(O.ATANH, "The inverse hyperbolic tangent.")
    erf = _float_function(O.ERF, "The error function.")
    reciprocal = _float_function(O.RECIP, "1 / x.")

    floor = _rounding(O.FLOOR, "Rounded down.")
    ceil = _rounding(O.CEIL, "Rounded up.")
    trunc = _rounding(O.TRUNC, "Rounded toward zero.")

    def round(self: Tensor, decimals: int = 0) -> Tensor:
        """Rounded to the nearest, halves to even: ``Tensor([0.5, 1.5]).round()`` is [0, 2]."""
        if self.dtype.kind != "f":
            return fresh(self.uop, self._device)
        if decimals:
            if not -300 <= decimals <= 300:
                raise ShapeError(f"round: decimals are between -300 and 300, not {decimals}")
            scale = 10.0**decimals
            return (self * scale).round() / scale
        return wrap(B.unary(O.ROUND, self.uop), self._device)

    def frac(self: Tensor) -> Tensor:
        """The part after the point, with the sign of x."""
        return self - self.trunc()

    def log10(self: Tensor) -> Tensor:
        """The logarithm to base 10."""
        return self.log2() * (log(2) / log(10))

    def square(self: Tensor) -> Tensor:
        """x * x; bools become int64, as in powers."""
        return self**2

    def neg(self: Tensor) -> Tensor:
        """-x."""
        return -self

    def abs(self: Tensor) -> Tensor:
        """The magnitude."""
        x = self.uop
        return fresh(x if x.dtype.kind in "bu" else B.unary(O.ABS, x), self._device)

    def sign(self: Tensor) -> Tensor:
        """-1, 0 or 1; NaN stays, -0.0 becomes 0."""
        x = self.uop
        if x.dtype.kind == "b":
            return fresh(self.uop, self._device)
        zero, one = const(0, x.dtype), const(1, x.dtype)
        if x.dtype.kind == "u":
            return wrap(B.cast(truth(x), x.dtype), self._device)
        rest = B.binary(O.ADD, B.binary(O.MUL, x, zero), zero)  # NaN, or 0 without a gradient
        below = B.where(B.binary(O.LT, x, zero), const(-1, x.dtype), rest)
        return wrap(B.where(B.binary(O.LT, zero, x), one, below), self._device)

    def signbit(self: Tensor) -> Tensor:
        """Whether the sign bit is set: true for -0.0."""
        x = self.uop
        if x.dtype.kind != "f":
            return self < 0
        integer = {8: dt.int8, 16: dt.int16, 32: dt.int32, 64: dt.int64}[x.dtype.bits]
        return wrap(B.bitcast(x, integer), self._device) < 0

    def deg2rad(self: Tensor) -> Tensor:
        """Degrees to radians."""
        return self * (pi / 180)

    def rad2deg(self: Tensor) -> Tensor:
        """Radians to degrees."""
        return self * (180 / pi)

    def sinc(self: Tensor) -> Tensor:
        """sin(pi x) / (pi x), 1 at zero."""
        x = widened(wrap(float_node(self.uop), self._device))
        is_zero = x == 0
        angle = select(is_zero, 1.0, x * pi)
        return rounded(select(is_zero, 1.0, angle.sin() / angle), self)

    # -- tests ---------------------------------------------------------------------------------

    def isnan(self: Tensor) -> Tensor:
        """Whether the element is NaN."""
        return wrap(B.binary(O.NE, self.uop, self.uop), self._device)

    def isinf(self: Tensor) -> Tensor:
        """Whether the element is infinite."""
        if self.dtype.kind != "f":
            return wrap(B.full(self.shape, False, dt.bool_), self._device)
        return self.abs() == float("inf")

    def isfinite(self: Tensor) -> Tensor:
        """Whether the element is neither NaN nor infinite."""
        if self.dtype.kind != "f":
            return wrap(B.full(self.shape, True, dt.bool_), self._device)
        return self.abs() < float("inf")

    def nan_to_num(
        self: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Tensor:
        """NaN and infinities replaced by numbers, by default 0 and the largest ones."""
        if self.dtype.kind != "f":
            return fresh(self.uop, self._device)
        limits = finfo(self.dtype)
        high = limits.max if posinf is None else posinf
        low = limits.min if neginf is None else neginf
        x = select(self.isnan(), nan, self)
        x = select(x == float("inf"), high, x)
        return select(x == float("-inf"), low, x)

    # -- dtypes --------------------------------------------------------------------------------

    def cast(self: Tensor, dtype: DType | Any) -> Tensor:
        """Converted to another dtype: ``x.cast(svod.float16)`` or ``x.cast("f16")``."""
        x = self.uop
        target = dtype_of(dtype)
        return self if x.dtype is target else wrap(B.cast(x, target), self._device)

    astype = cast

    def type(self: Tensor, dtype: DType | Any) -> Tensor:
        """Converted to another dtype."""
        return self.cast(dtype)

    def type_as(self: Tensor, other: Tensor) -> Tensor:
        """Converted to the dtype of another tensor."""
        return self.cast(other.dtype)

    def bitcast(self: Tensor, dtype: DType | Any) -> Tensor:
        """The same bits read as another dtype; another width splits or joins the last axis."""
        x = self.uop
        target = dtype_of(dtype)
        if x.dtype.bits == target.bits and x.dtype.kind != "b" and target.kind != "b":
            return view(self, (B.bitcast, target))
        raise DTypeError(
            f"bitcast keeps the width: {x.dtype.name} has {x.dtype.bits} bits, "
            f"{target.name} has {target.bits}"
        )

    def bool(self: Tensor) -> Tensor:
        """Whether the element is not zero."""
        return self if self.dtype is dt.bool_ else wrap(truth(self.uop), self._device)

    def float(self: Tensor) -> Tensor:
        """As float32."""
        return self.cast(dt.float32)

    def double(self: Tensor) -> Tensor:
        """As float64."""
        return self.cast(dt.float64)

    def half(self: Tensor) -> Tensor:
        """As float16."""
        return self.cast(dt.float16)

    def bfloat16(self: Tensor) -> Tensor:
        """As bfloat16."""
        return self.cast(dt.bfloat16)

    def cfloat(self: Tensor) -> Tensor:
        """As complex64."""
        return self.cast(dt.complex64)

    def cdouble(self: Tensor) -> Tensor:
        """As complex128."""
        return self.cast(dt.complex128)

    def char(self: Tensor) -> Tensor:
        """As int8."""
        return self.cast(dt.int8)

    def byte(self: Tensor) -> Tensor:
        """As uint8."""
        return self.cast(dt.uint8)

    def short(self: Tensor) -> Tensor:
        """As int16."""
        return self.cast(dt.int16)

    def int(self: Tensor) -> Tensor:
        """As int32."""
        return self.cast(dt.int32)

    def long(self: Tensor) -> Tensor:
        """As int64."""
        return self.cast(dt.int64)

    def is_floating_point(self: Tensor) -> Any:
        """Whether the dtype is a float."""
        return self.dtype.kind == "f"
