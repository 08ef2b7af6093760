"""Methods of complex tensors whose formula differs from that of real tensors."""

from __future__ import annotations

from math import inf, pi
from typing import TYPE_CHECKING, Any
from warnings import warn

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.ir import build as B
from svod.ir import ops as O
from svod.tensor.complex import elementary_functions as math
from svod.tensor.core.complex_parts import complex_pair, joined, parts
from svod.tensor.core.tensor_core import (
    Axis,
    Core,
    Operand,
    Scalar,
    axes_of,
    axis_of,
    pair,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.matrix_products import Linear
from svod.tensor.views.aliases import part_of, view

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

STORED_LEVELS = 3  # products of so many pairs of halves are one kernel


class ComplexElements(Core):
    """Parts, functions element by element, tests."""

    __slots__ = ()

    @property
    def real(self: Tensor) -> Tensor:
        """The real part."""
        return view(self, (part_of, 0))

    @property
    def imag(self: Tensor) -> Tensor:
        """The imaginary part."""
        return view(self, (part_of, 1))

    def conj(self: Tensor) -> Tensor:
        """The conjugate: the imaginary part with the other sign."""
        x, y = parts(self)
        return joined(x, -y)

    conj_physical = conj

    def cast(self: Tensor, dtype: Any) -> Tensor:
        """Converted to another dtype; a real one drops the imaginary part and warns."""
        target = dtype_of(dtype)
        if target.kind in "cb":
            return self if target is self.dtype else wrap(B.cast(self.uop, target), self._device)
        warn(f"a cast from {self.dtype.name} to {target.name} drops imaginary parts", stacklevel=4)
        return self.real.cast(target)

    astype = cast

    def resolve_conj(self: Tensor) -> Tensor:
        """x itself: conjugates are values here."""
        return self

    resolve_neg = resolve_conj

    @property
    def H(self: Tensor) -> Tensor:
        """The conjugate transpose of a matrix."""
        if self.ndim not in (0, 2):
            raise ShapeError(f"H takes a matrix, not shape {self.shape}")
        return self.T.conj()

    @property
    def mH(self: Tensor) -> Tensor:
        """The last two axes exchanged, and the conjugate."""
        return self.mT.conj()

    def adjoint(self: Tensor) -> Tensor:
        """The last two axes exchanged, and the conjugate."""
        return self.mT.conj()

    def abs(self: Tensor) -> Tensor:
        """The magnitude."""
        return math.absolute(self)  # type: ignore[no-any-return]

    absolute = abs

    def angle(self: Tensor) -> Tensor:
        """The angle from the positive real axis."""
        return math.angle(self)  # type: ignore[no-any-return]

    def sign(self: Tensor) -> Tensor:
        """x / abs(x); 0 at 0."""
        return math.direction(self)

    sgn = sign

    def exp(self: Tensor) -> Tensor:
        """e to the power of x."""
        return math.exp(self)

    def exp2(self: Tensor) -> Tensor:
        """2 to the power of x."""
        return math.exp2(self)

    def expm1(self: Tensor) -> Tensor:
        """exp(x) - 1, exact near zero."""
        return math.expm1(self)

    def log(self: Tensor) -> Tensor:
        """The natural logarithm; the cut is the negative real axis."""
        return math.log_(self)

    def log2(self: Tensor) -> Tensor:
        """The logarithm to base 2."""
        return math.log2(self)

    def log10(self: Tensor) -> Tensor:
        """The logarithm to base 10."""
        return math.log10(self)

    def log1p(self: Tensor) -> Tensor:
        """log(1 + x), exact near zero."""
        return math.log1p(self)

    def sqrt(self: Tensor) -> Tensor:
        """The square root with a real part of 0 or more."""
        return math.sqrt(self)

    def rsqrt(self: Tensor) -> Tensor:
        """1 / sqrt(x)."""
        return math.reciprocal(math.sqrt(self))

    def reciprocal(self: Tensor) -> Tensor:
        """1 / x."""
        return math.reciprocal(self)

    def sin(self: Tensor) -> Tensor:
        """The sine."""
        return math.sin(self)

    def cos(self: Tensor) -> Tensor:
        """The cosine."""
        return math.cos(self)

    def tan(self: Tensor) -> Tensor:
        """The tangent."""
        return math.tan(self)

    def asin(self: Tensor) -> Tensor:
        """The inverse sine."""
        return math.asin(self)

    def acos(self: Tensor) -> Tensor:
        """The inverse cosine."""
        return math.acos(self)

    def atan(self: Tensor) -> Tensor:
        """The inverse tangent."""
        return math.atan(self)

    def sinh(self: Tensor) -> Tensor:
        """The hyperbolic sine."""
        return math.sinh(self)

    def cosh(self: Tensor) -> Tensor:
        """The hyperbolic cosine."""
        return math.cosh(self)

    def tanh(self: Tensor) -> Tensor:
        """The hyperbolic tangent."""
        return math.tanh(self)

    def asinh(self: Tensor) -> Tensor:
        """The inverse hyperbolic sine."""
        return math.asinh(self)

    def acosh(self: Tensor) -> Tensor:
        """The inverse hyperbolic cosine."""
        return math.acosh(self)

    def atanh(self: Tensor) -> Tensor:
        """The inverse hyperbolic tangent."""
        return math.atanh(self)

    arcsin, arccos, arctan = asin, acos, atan
    arcsinh, arccosh, arctanh = asinh, acosh, atanh

    def sigmoid(self: Tensor) -> Tensor:
        """1 / (1 + exp(-x))."""
        return math.reciprocal(math.exp(-self) + 1)

    def sinc(self: Tensor) -> Tensor:
        """sin(pi x) / (pi x), 1 at zero."""
        is_zero = self == 0
        angle = select(is_zero, 1.0, self * pi)
        return select(is_zero, 1.0, math.quotient(math.sin(angle), angle))

    def round(self: Tensor, decimals: int = 0) -> Tensor:
        """Both parts rounded to the nearest, halves to even."""
        return joined(*[part.round(decimals) for part in parts(self)])

    def nan_to_num(
        self: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Tensor:
        """NaN and infinities of both parts replaced by numbers."""
        return joined(*[part.nan_to_num(nan, posinf, neginf) for part in parts(self)])

    # -- arithmetic ----------------------------------------------------------------------------

    def div(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """self / other."""
        if rounding_mode is not None:
            raise DTypeError(f"div rounds real numbers, not {self.dtype.name}")
        return divided(self, other)

    divide = true_divide = div

    def pow(self: Tensor, exponent: Operand) -> Tensor:
        """self ** exponent."""
        return math.power(self, exponent)

    def float_power(self: Tensor, exponent: Operand) -> Tensor:
        """self ** exponent in complex128."""
        if not isinstance(exponent, (int, float, complex)):
            exponent = tensor_of(exponent, self).cast(dt.complex128)
        return math.power(self.cast(dt.complex128), exponent)

    def addcdiv(self: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
        """self + value * a / b."""
        quotient = tensor_of(a, self) / b
        return self + (quotient if value == 1 else quotient * value)

    # -- tests ---------------------------------------------------------------------------------

    def isnan(self: Tensor) -> Tensor:
        """Whether a part is NaN."""
        x, y = parts(self)
        return x.isnan() | y.isnan()

    def isinf(self: Tensor) -> Tensor:
        """Whether a part is infinite."""
        x, y = parts(self)
        return x.isinf() | y.isinf()

    def isfinite(self: Tensor) -> Tensor:
        """Whether both parts are finite."""
        x, y = parts(self)
        return x.isfinite() & y.isfinite()

    def isreal(self: Tensor) -> Tensor:
        """Whether the imaginary part is zero."""
        return parts(self)[1] == 0

    def is_signed(self: Tensor) -> bool:
        """Whether the dtype has negative numbers."""
        return True

    def isclose(
        self: Tensor,
        other: Operand,
        rtol: float = 1e-5,
        atol: float = 1e-8,
        equal_nan: bool = False,
    ) -> Tensor:
        """Whether the distance of both is at most ``atol + rtol * |other|``."""
        a, b = complex_pair(self, other)
        apart = (a - b).abs()
        near = (a == b) | ((apart <= b.abs() * rtol + atol) & (apart < inf))
        return near | (a.isnan() & b.isnan()) if equal_nan else near


def divided(a: Tensor, b: Any, is_turned: bool = False) -> Tensor:
    """a / b, or b / a; what is real divides the parts."""
    x, y, device = pair(a, b)
    top, below = (
        (wrap(y, device), wrap(x, device)) if is_turned else (wrap(x, device), wrap(y, device))
    )
    if not is_turned and _is_real(b):
        return wrap(B.binary(O.DIV, x, y), device)
    return math.quotient(top, below)


def _is_real(value: Any) -> bool:
    if isinstance(value, Core):
        return value.dtype.kind != "c"
    return isinstance(value, (int, float))


class ComplexFolds(Core):
    """Products, moments, norms, inner products."""

    __slots__ = ()

    def prod(self: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The product over axes."""
        x = self if dtype is None else self.cast(dtype)
        axes = axes_of(dim, x.ndim)
        kept = [a for a in range(x.ndim) if a not in axes]
        lead = tuple([x.shape[a] for a in kept])
        if not axes:
            return x
        if 0 in x.shape:
            found = x.new_ones(lead)  # products of nothing
        else:
            found = _product(x.permute((*kept, *axes)).reshape((*lead, -1)))
        return (
            found.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
            if keepdim
            else found
        )

    def logaddexp(self: Tensor, other: Operand) -> Tensor:
        """log(exp(self) + exp(other)); its angle is near that of the operand with more weight."""
        a, b = complex_pair(self, other)
        is_first = a.real >= b.real
        large, small = select(is_first, a, b), select(is_first, b, a)
        gap = select(small.real == float("-inf"), float("-inf"), small - large)
        return large + gap.exp().log1p()

    def logcumsumexp(self: Tensor, dim: int) -> Tensor:
        """log of the sum of exp up to each place along an axis."""
        axis = axis_of(dim, self.ndim)
        if not self.ndim or 0 in self.shape:
            return self
        found, step = self.movedim(axis, -1), 1
        while step < found.shape[-1]:
            before = found[..., :-step].pad((step, 0), value=float("-inf"))
            found = found.logaddexp(before).contiguous()
            step *= 2
        return found.movedim(-1, axis)

    def cumprod(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        """The product up to each place along an axis."""
        x = self if dtype is None else self.cast(dtype)
        axis = axis_of(dim, x.ndim)
        if not x.ndim or 0 in x.shape:
            return x
        found, step = x.movedim(axis, -1), 1
        while step < found.shape[-1]:
            before = found[..., :-step].pad((step, 0), value=1)
            found = (found * before).contiguous()
            step *= 2
        return found.movedim(-1, axis)

    def var(
        self: Tensor,
        dim: Axis = None,
        correction: float | None = 1,
        keepdim: bool = False,
        *,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The variance over axes, a real number: that of both parts together."""
        x, y = parts(self)
        first = x.var(dim, correction, keepdim, unbiased=unbiased)
        return first + y.var(dim, correction, keepdim, unbiased=unbiased)

    def norm(self: Tensor, p: Scalar | str = 2, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The p-norm of the magnitudes over axes."""
        if p == "nuc":
            return self._nuclear_norm(dim, keepdim)
        return self.abs().norm(p, dim, keepdim)

    def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
        """The p-norm of the difference."""
        return (self - other).norm(p)

    def logdet(self: Tensor) -> Tensor:
        """The logarithm of the determinant."""
        sign, size = self.slogdet()
        return joined(size, sign.angle())

    def vdot(self: Tensor, other: Tensor) -> Tensor:
        """The inner product of two vectors, the first one conjugated."""
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(f"vdot takes vectors, not shapes {self.shape} and {other.shape}")
        return self.conj() @ other

    def vecdot(self: Tensor, other: Tensor, dim: int = -1) -> Tensor:
        """The sum of products over one axis, the first operand conjugated."""
        return Linear.vecdot(self.conj(), other, dim)


def _product(x: Tensor) -> Tensor:
    """The product over the last axis, by halves."""
    level = 0
    while x.shape[-1] > 1:
        half, rest = divmod(x.shape[-1], 2)
        found = x[..., :half] * x[..., half : 2 * half]
        if rest:
            last = x[..., 2 * half :]
            first = found[..., :1] * last
            found = first if half == 1 else first.cat(found[..., 1:], dim=-1)
        level += 1
        x = found if level % STORED_LEVELS else found.contiguous()
    return x.squeeze(-1)
