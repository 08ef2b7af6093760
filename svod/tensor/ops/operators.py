"""The operators of tensors, and their named forms: arithmetic, comparison, bits, choice."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.dtype.promotion import result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.tensor.core.tensor_core import (
    Core,
    Operand,
    Scalar,
    float_node,
    is_operand,
    pair,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import (
    arithmetic,
    bitwise,
    compare,
    divide,
    floor_divide,
    modulo,
    power,
    select,
    widened,
)

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _limit(value: Operand, dtype: DType) -> Operand:
    """A bound for integers or float8: a number beyond their range bounds nothing."""
    if dtype.kind == "f" and dtype.bits == 8 and isinstance(value, (int, float)) and value == value:
        most_float = finfo(dtype).max
        return min(max(value, -most_float), most_float)
    if type(value) is not int or dtype.kind not in "iu":
        return value
    least, most = dt.integer_limits(dtype)
    return min(max(value, least), most)


def _limited(op: int, x: Tensor, limit: Operand) -> Tensor:
    """The larger or smaller of both; where they are equal it is x, which gets the gradient."""
    bound = _limit(limit, x.dtype)
    if x.dtype.kind == "b":
        return arithmetic(op, x, bound)
    a, b, device = pair(x, bound)
    return wrap(B.extreme(op, a, b, 0), device)


def _narrowed(found: Tensor, *operands: Any) -> Tensor:
    """A result of `widened` operands in the dtype that they have in common: rounded once."""
    common = result_type(*[v.dtype if isinstance(v, Core) else v for v in operands])
    return found.cast(common) if common.kind == "f" and common.bits < 32 else found


class Operators(Core):
    """Operators, comparison, logic, and functions of several operands."""

    __slots__ = ()

    # -- arithmetic ----------------------------------------------------------------------------

    def __add__(self: Tensor, other: Operand) -> Tensor:
        return arithmetic(O.ADD, self, other)

    def __radd__(self: Tensor, other: Operand) -> Tensor:
        return arithmetic(O.ADD, self, other, True)

    def __sub__(self: Tensor, other: Operand) -> Tensor:
        return arithmetic(O.SUB, self, other)

    def __rsub__(self: Tensor, other: Operand) -> Tensor:
        return arithmetic(O.SUB, self, other, True)

    def __mul__(self: Tensor, other: Operand) -> Tensor:
        return arithmetic(O.MUL, self, other)

    def __rmul__(self: Tensor, other: Operand) -> Tensor:
        if isinstance(other, (str, bytes, list, tuple)) and not self.shape and self.dtype.is_int:
            return other * index(self)  # a sequence so many times, as in Python and torch
        return arithmetic(O.MUL, self, other, True)

    def __truediv__(self: Tensor, other: Operand) -> Tensor:
        return divide(self, other)

    def __rtruediv__(self: Tensor, other: Operand) -> Tensor:
        return divide(self, other, True)

    def __floordiv__(self: Tensor, other: Operand) -> Tensor:
        return floor_divide(self, other)

    def __rfloordiv__(self: Tensor, other: Operand) -> Tensor:
        return floor_divide(self, other, True)

    def __mod__(self: Tensor, other: Operand) -> Tensor:
        return modulo(self, other)

    def __rmod__(self: Tensor, other: Operand) -> Tensor:
        return modulo(self, other, True)

    def __divmod__(self: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
        return floor_divide(self, other), modulo(self, other)

    def __pow__(self: Tensor, other: Operand) -> Tensor:
        return power(self, other)

    def __rpow__(self: Tensor, other: Operand) -> Tensor:
        return power(self, other, True)

    def __neg__(self: Tensor) -> Tensor:
        if self.dtype is dt.bool_:
            raise DTypeError("a bool tensor cannot be negated with -: use ~")
        return wrap(B.unary(O.NEG, self.uop), self._device)

    def __pos__(self: Tensor) -> Tensor:
        return self

    def __abs__(self: Tensor) -> Tensor:
        return self.abs()

    def add(self: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor:
        """self + alpha * other."""
        return self + other if alpha == 1 else self + tensor_of(other, self) * alpha

    def sub(self: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor:
        """self - alpha * other."""
        return self - other if alpha == 1 else self - tensor_of(other, self) * alpha

    def mul(self: Tensor, other: Operand) -> Tensor:
        """self * other."""
        return arithmetic(O.MUL, self, other)

    def div(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """self / other; ``rounding_mode`` "floor" or "trunc" rounds the quotient."""
        if rounding_mode is None:
            return divide(self, other)
        if rounding_mode == "floor":
            return floor_divide(self, other)
        if rounding_mode != "trunc":
            raise ShapeError(f"rounding_mode must be None, 'floor' or 'trunc': {rounding_mode!r}")
        if (self - other).dtype.kind == "f":
            return divide(self, other).trunc()
        x, y, device = pair(self, other)
        a, b = wrap(x, device), wrap(y, device)
        down = a // b
        return select((down < 0) & (down * b != a), down + 1, down)

    def floor_divide(self: Tensor, other: Operand) -> Tensor:
        """self // other, toward minus infinity."""
        return floor_divide(self, other)

    def remainder(self: Tensor, other: Operand) -> Tensor:
        """self % other, with the sign of other."""
        return modulo(self, other)

    def fmod(self: Tensor, other: Operand) -> Tensor:
        """The remainder with the sign of self, as in C."""
        x, y, device = pair(self, other)
        if x.dtype.kind == "f":
            return wrap(B.binary(O.FMOD, x, y), device)
        a, b = wrap(x, device), wrap(y, device)
        return a - a.div(b, rounding_mode="trunc") * b

    def pow(self: Tensor, exponent: Operand) -> Tensor:
        """self ** exponent."""
        return power(self, exponent)

    def maximum(self: Tensor, other: Operand) -> Tensor:
        """The larger of both; NaN where either is NaN."""
        return arithmetic(O.MAX, self, other)

    def minimum(self: Tensor, other: Operand) -> Tensor:
        """The smaller of both; NaN where either is NaN."""
        return arithmetic(O.MIN, self, other)

    def fmax(self: Tensor, other: Operand) -> Tensor:
        """The larger of both; a NaN gives way to a number."""
        b = tensor_of(other, self)
        return select(self.isnan(), b, select(b.isnan(), self, _limited(O.MAX, self, b)))

    def fmin(self: Tensor, other: Operand) -> Tensor:
        """The smaller of both; a NaN gives way to a number."""
        b = tensor_of(other, self)
        return select(self.isnan(), b, select(b.isnan(), self, _limited(O.MIN, self, b)))

    def atan2(self: Tensor, other: Operand) -> Tensor:
        """The angle of the point (other, self)."""
        x, y, device = pair(self, other)
        return wrap(B.binary(O.ATAN2, float_node(x), float_node(y)), device)

    def hypot(self: Tensor, other: Operand) -> Tensor:
        """sqrt(self**2 + other**2) without overflow on the way."""
        x, y, device = pair(self, other)
        a, b = wrap(float_node(x), device).abs(), wrap(float_node(y), device).abs()
        large, small = a.maximum(b), a.minimum(b)
        ratio = select((large == 0) | (large == float("inf")), 0.0, small / large)
        found = large * (ratio * ratio + 1).sqrt()
        return select((a == float("inf")) | (b == float("inf")), float("inf"), found)

    def logaddexp(self: Tensor, other: Operand) -> Tensor:
        """log(exp(self) + exp(other))."""
        x, y, device = pair(self, other)
        a, b = wrap(float_node(x), device), wrap(float_node(y), device)
        if a.dtype.is_complex:
            return a.logaddexp(b)
        top = a.maximum(b)
        gap = select(a == b, 0.0, -(a - b).abs())  # equal infinities have no difference
        return top + gap.exp().log1p()

    def copysign(self: Tensor, other: Operand) -> Tensor:
        """The magnitude of self with the sign of other."""
        x, y, device = pair(self, other)
        a, b = wrap(float_node(x), device).abs(), wrap(float_node(y), device)
        return select(b.signbit(), -a, a)

    def lerp(self: Tensor, end: Operand, weight: Operand) -> Tensor:
        """self + weight * (end - self)."""
        return self + (tensor_of(end, self) - self) * weight

    def addcmul(self: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
        """self + value * a * b."""
        x, y, z = widened(self), widened(tensor_of(a, self)), widened(tensor_of(b, self))
        product = y * z
        found = x + (product if value == 1 else product * value)
        return _narrowed(found, self, a, b)

    def addcdiv(self: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
        """self + value * a / b."""
        x, y, z = widened(self), widened(tensor_of(a, self)), widened(tensor_of(b, self))
        quotient = y / z
        found = x + (quotient if value == 1 else quotient * value)
        return _narrowed(found, self, a, b)

    def clamp(self: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit to at least ``min`` and at most ``max``."""
        if min is None and max is None:
            raise ShapeError("clamp needs min, max or both")
        low = self if min is None else _limited(O.MAX, self, min)
        return low if max is None else _limited(O.MIN, low, max)

    clip = clamp

    # -- comparison ----------------------------------------------------------------------------

    def __lt__(self: Tensor, other: Operand) -> Tensor:
        return compare(O.LT, self, other)

    def __le__(self: Tensor, other: Operand) -> Tensor:
        return compare(O.LE, self, other)

    def __gt__(self: Tensor, other: Operand) -> Tensor:
        return compare(O.LT, self, other, True)

    def __ge__(self: Tensor, other: Operand) -> Tensor:
        return compare(O.LE, self, other, True)

    def __eq__(self: Tensor, other: object) -> Any:
        return compare(O.EQ, self, other) if is_operand(other) else NotImplemented

    def __ne__(self: Tensor, other: object) -> Any:
        return compare(O.NE, self, other) if is_operand(other) else NotImplemented

    __hash__ = object.__hash__

    def lt(self: Tensor, other: Operand) -> Tensor:
        """self < other."""
        return compare(O.LT, self, other)

    def le(self: Tensor, other: Operand) -> Tensor:
        """self <= other."""
        return compare(O.LE, self, other)

    def gt(self: Tensor, other: Operand) -> Tensor:
        """self > other."""
        return compare(O.LT, self, other, True)

    def ge(self: Tensor, other: Operand) -> Tensor:
        """self >= other."""
        return compare(O.LE, self, other, True)

    def eq(self: Tensor, other: Operand) -> Tensor:
        """self == other."""
        return compare(O.EQ, self, other)

    def ne(self: Tensor, other: Operand) -> Tensor:
        """self != other."""
        return compare(O.NE, self, other)

    def isclose(
        self: Tensor,
        other: Operand,
        rtol: float = 1e-5,
        atol: float = 1e-8,
        equal_nan: bool = False,
    ) -> Tensor:
        """Whether both are equal within ``atol + rtol * |other|``."""
        if rtol < 0 or atol < 0:
            raise ShapeError(f"isclose: tolerances are 0 or more, not rtol={rtol}, atol={atol}")
        b = tensor_of(other, self)
        if self.dtype.kind == b.dtype.kind == "b":
            return self == b
        near = (self == b) | (((self - b).abs() <= b.abs() * rtol + atol) & (self - b).isfinite())
        return near | (self.isnan() & b.isnan()) if equal_nan else near

    # -- bits and logic ------------------------------------------------------------------------

    def __and__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.AND, self, other)

    def __rand__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.AND, self, other, True)

    def __or__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.OR, self, other)

    def __ror__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.OR, self, other, True)

    def __xor__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.XOR, self, other)

    def __rxor__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.XOR, self, other, True)

    def __lshift__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.SHL, self, other)

    def __rlshift__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.SHL, self, other, True)

    def __rshift__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.SHR, self, other)

    def __rrshift__(self: Tensor, other: Operand) -> Tensor:
        return bitwise(O.SHR, self, other, True)

    def __invert__(self: Tensor) -> Tensor:
        if self.dtype.kind == "f":
            raise DTypeError(f"~ takes integers or bool, not {self.dtype.name}")
        return wrap(B.unary(O.NOT, self.uop), self._device)

    def bitwise_and(self: Tensor, other: Operand) -> Tensor:
        """self & other."""
        return bitwise(O.AND, self, other)

    def bitwise_or(self: Tensor, other: Operand) -> Tensor:
        """self | other."""
        return bitwise(O.OR, self, other)

    def bitwise_xor(self: Tensor, other: Operand) -> Tensor:
        """self ^ other."""
        return bitwise(O.XOR, self, other)

    def bitwise_not(self: Tensor) -> Tensor:
        """~self."""
        return ~self

    def bitwise_left_shift(self: Tensor, other: Operand) -> Tensor:
        """self << other; past the width gives 0."""
        return bitwise(O.SHL, self, other)

    def bitwise_right_shift(self: Tensor, other: Operand) -> Tensor:
        """self >> other, arithmetic for signed integers."""
        return bitwise(O.SHR, self, other)

    def logical_and(self: Tensor, other: Operand) -> Tensor:
        """Whether both are not zero."""
        return self.bool() & tensor_of(other, self).bool()

    def logical_or(self: Tensor, other: Operand) -> Tensor:
        """Whether one of both is not zero."""
        return self.bool() | tensor_of(other, self).bool()

    def logical_xor(self: Tensor, other: Operand) -> Tensor:
        """Whether exactly one of both is not zero."""
        return self.bool() ^ tensor_of(other, self).bool()

    def logical_not(self: Tensor) -> Tensor:
        """Whether the element is zero."""
        return ~self.bool()

    # -- choice --------------------------------------------------------------------------------

    def where(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
        """self where the condition holds, else other: ``x.where(x > 0, 0)``."""
        return select(condition, self, other)

    def masked_fill(self: Tensor, mask: Tensor, value: Scalar | Tensor) -> Tensor:
        """self with ``value`` where the mask holds; the dtype stays."""
        result = select(mask, value, self)
        return result.to(self.dtype)
