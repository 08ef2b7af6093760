"""Operators element by element. Operands are brought to torch's dtype first, then combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svod
import svod.nn.functional as F
from svod.dtype import types as dt
from svod.frontend.torch.ops.registry import Call, alias, op, operand, tensor
from svod.tensor.tensor import Tensor

# -- functions of one tensor -----------------------------------------------------------------------

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 "
    "floor frac i0 lgamma log log10 log1p log2 neg reciprocal relu rsqrt sgn sigmoid sign "
    "sin sinh sqrt square tan tanh trunc"
)
_QUESTIONS = "isinf isnan isfinite isneginf isposinf signbit logical_not"


def _unary(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def apply(call: Call, x: Any) -> Tensor:
        if isinstance(x, Tensor) and x.dtype.kind == "c":
            return function(x)
        return function(tensor(x, call.dtype))

    return apply


for _name in _UNARY.split():
    op(f"aten.{_name}.default", call=True)(_unary(getattr(svod, _name)))
for _name in _QUESTIONS.split():
    op(f"aten.{_name}.default")(getattr(svod, _name))
for _name in ("i1", "i0e", "i1e"):
    op(f"aten.special_{_name}.default", call=True)(_unary(getattr(svod.special, _name)))


@op("aten.bitwise_not.default")
def bitwise_not(x: Tensor) -> Tensor:
    return x.logical_not() if x.dtype is dt.bool_ else x.bitwise_not()


@op("aten.round.default", "aten.round.decimals")
def round_(x: Tensor, *, decimals: int = 0) -> Tensor:
    return x.round(decimals=decimals) if decimals else x.round()


@op("aten.conj.default", "aten._conj.default", "aten.conj_physical.default",
    "aten.resolve_conj.default", "aten._conj_physical.default", call=True)  # fmt: skip
def conj(call: Call, x: Any) -> Tensor:
    return tensor(x, call.dtype).conj()


# -- arithmetic ------------------------------------------------------------------------------------


@op("aten.add.Tensor", "aten.add.Scalar", call=True)
def add(call: Call, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    x, y = tensor(a, call.dtype), operand(b, call.dtype)
    if call.dtype is dt.bool_:
        return x.logical_or(y)
    return x + (y if alpha == 1 else y * operand(alpha, call.dtype))


@op("aten.sub.Tensor", "aten.sub.Scalar", call=True)
def sub(call: Call, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    y = operand(b, call.dtype)
    return tensor(a, call.dtype) - (y if alpha == 1 else y * operand(alpha, call.dtype))


@op("aten.rsub.Tensor", "aten.rsub.Scalar", call=True)
def rsub(call: Call, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return sub(call, b, a, alpha)


@op("aten.mul.Tensor", "aten.mul.Scalar", call=True)
def mul(call: Call, a: Any, b: Any) -> Tensor:
    if call.dtype is dt.bool_:
        return tensor(a, dt.bool_).logical_and(tensor(b, dt.bool_))
    return tensor(a, call.dtype) * operand(b, call.dtype)


@op("aten.div.Tensor", "aten.div.Scalar", call=True)
def div(call: Call, a: Any, b: Any) -> Tensor:
    return tensor(a, call.dtype) / operand(b, call.dtype)


@op("aten.div.Tensor_mode", "aten.div.Scalar_mode", call=True)
def div_mode(call: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    x, y = tensor(a, call.dtype), operand(b, call.dtype)
    return svod.div(x, tensor(y, call.dtype), rounding_mode=rounding_mode)


@op("aten.floor_divide.default", "aten.floor_divide.Scalar", call=True)
def floor_divide(call: Call, a: Any, b: Any) -> Tensor:
    return div_mode(call, a, b, rounding_mode="floor")


@op("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", call=True)
def remainder(call: Call, a: Any, b: Any) -> Tensor:
    return tensor(a, call.dtype).remainder(tensor(b, call.dtype))


@op("aten.fmod.Tensor", "aten.fmod.Scalar", call=True)
def fmod(call: Call, a: Any, b: Any) -> Tensor:
    return tensor(a, call.dtype).fmod(tensor(b, call.dtype))


@op("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", call=True)
def power(call: Call, a: Any, b: Any) -> Tensor:
    return tensor(a, call.dtype) ** operand(b, call.dtype)


_BINARY = (
    "atan2 fmax fmin gcd heaviside hypot igamma igammac lcm logaddexp logaddexp2 maximum "
    "minimum nextafter"
)


def _binary(name: str) -> Callable[..., Tensor]:
    function = getattr(svod, name)

    def apply(call: Call, a: Any, b: Any) -> Tensor:
        return function(tensor(a, call.dtype), tensor(b, call.dtype))

    return apply


for _name in _BINARY.split():
    op(f"aten.{_name}.default", call=True)(_binary(_name))
for _name in ("copysign.Scalar", "copysign.Tensor", "xlogy.Tensor", "xlogy.Scalar_Other"):
    op(f"aten.{_name}", call=True)(_binary(_name.split(".")[0]))


@op("aten.addcmul.default", call=True)
def addcmul(call: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Tensor:
    found = tensor(a, call.dtype) * tensor(b, call.dtype)
    return tensor(x, call.dtype) + (found if value == 1 else found * value)


@op("aten.addcdiv.default", call=True)
def addcdiv(call: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Tensor:
    found = tensor(a, call.dtype) / tensor(b, call.dtype)
    return tensor(x, call.dtype) + (found if value == 1 else found * value)


@op("aten.lerp.Scalar", "aten.lerp.Tensor", call=True)
def lerp(call: Call, a: Any, b: Any, weight: Any) -> Tensor:
    return tensor(a, call.dtype).lerp(tensor(b, call.dtype), operand(weight, call.dtype))


# -- bits and truth --------------------------------------------------------------------------------

_BITS = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"
_TRUTH = "logical_and logical_or logical_xor"


def _bits(name: str) -> Callable[..., Tensor]:
    function = getattr(svod, name)
    of_truth = getattr(svod, name.replace("bitwise", "logical"), function)

    def apply(call: Call, a: Any, b: Any) -> Tensor:
        x, y = tensor(a, call.dtype), tensor(b, call.dtype)
        return of_truth(x, y) if call.dtype is dt.bool_ else function(x, y)

    return apply


for _name in _BITS.split():
    for _form in ("Tensor", "Tensor_Scalar" if "shift" in _name else "Scalar", "Scalar_Tensor"):
        op(f"aten.{_name}.{_form}", call=True)(_bits(_name))
for _short, _long in {"and": "and", "or": "or", "xor": "xor"}.items():
    for _form in ("Tensor", "Scalar"):
        op(f"aten.__{_short}__.{_form}", call=True)(_bits(f"bitwise_{_long}"))
for _name in _TRUTH.split():
    op(f"aten.{_name}.default")(getattr(svod, _name))

# -- comparisons -----------------------------------------------------------------------------------


def _comparison(name: str) -> Callable[..., Tensor]:
    function = getattr(Tensor, name)

    def apply(call: Call, a: Any, b: Any) -> Tensor:
        return function(tensor(a, call.common), operand(b, call.common))

    return apply


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _form in ("Tensor", "Scalar"):
        op(f"aten.{_name}.{_form}", call=True)(_comparison(_name))

# -- choices ---------------------------------------------------------------------------------------


@op("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar",
    call=True)  # fmt: skip
def where(call: Call, condition: Tensor, a: Any, b: Any) -> Tensor:
    return svod.where(operand(condition, dt.bool_), tensor(a, call.dtype), tensor(b, call.dtype))


@op("aten.clamp.default", "aten.clamp.Tensor", call=True)
def clamp(call: Call, x: Any, min: Any = None, max: Any = None) -> Tensor:
    found = tensor(x, call.dtype)
    return found.clamp(operand(min, call.dtype), operand(max, call.dtype))


@op("aten.clamp_min.default", "aten.clamp_min.Tensor", call=True)
def clamp_min(call: Call, x: Any, bound: Any) -> Tensor:
    return clamp(call, x, bound)


@op("aten.clamp_max.default", "aten.clamp_max.Tensor", call=True)
def clamp_max(call: Call, x: Any, bound: Any) -> Tensor:
    return clamp(call, x, None, bound)


@op("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", call=True)
def masked_fill(call: Call, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return svod.where(mask, tensor(value, call.dtype), x)


@op("aten.nan_to_num.default")
def nan_to_num(x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    return x.nan_to_num(0.0 if nan is None else nan, posinf, neginf)


# -- activations -----------------------------------------------------------------------------------


@op("aten.gelu.default")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@op("aten.elu.default")
def elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    low = ((x * input_scale).expm1() if input_scale != 1 else x.expm1()) * (alpha * scale)
    return svod.where(x > 0, x * scale if scale != 1 else x, low)


_ACTIVATIONS = "silu mish hardswish hardsigmoid softplus hardtanh leaky_relu softshrink hardshrink"
for _name in _ACTIVATIONS.split():
    op(f"aten.{_name}.default")(getattr(F, _name))


@op("aten.threshold.default")
def threshold(x: Tensor, threshold: Any, value: Any) -> Tensor:
    return svod.where(x > threshold, x, tensor(value, x.dtype))


@op("aten.threshold_backward.default")
def threshold_backward(grad: Tensor, x: Tensor, threshold: Any) -> Tensor:
    return svod.where(x <= threshold, tensor(0, grad.dtype), grad)


@op("aten.glu.default")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    return F.glu(x, dim)


# -- dtypes ----------------------------------------------------------------------------------------


@op("aten._to_copy.default", "prims.convert_element_type.default", call=True)
def to_copy(call: Call, x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    return x.cast(call.dtype)


@op("aten.view.dtype", call=True)
def view_dtype(call: Call, x: Tensor, dtype: Any) -> Tensor:
    return x.bitcast(call.dtype)


@op("aten.real.default")
def real(x: Tensor) -> Tensor:
    return x.real if x.dtype.kind == "c" else x


@op("aten.imag.default")
def imag(x: Tensor) -> Tensor:
    return x.imag


@op("aten.view_as_real.default")
def view_as_real(x: Tensor) -> Tensor:
    return svod.view_as_real(x)


@op("aten.view_as_complex.default")
def view_as_complex(x: Tensor) -> Tensor:
    return svod.view_as_complex(x)


@op("aten.complex.default")
def complex_(a: Tensor, b: Tensor) -> Tensor:
    return svod.complex(a, b)


@op("aten.polar.default")
def polar(a: Tensor, b: Tensor) -> Tensor:
    return svod.polar(a, b)


@op("aten.angle.default")
def angle(x: Tensor) -> Tensor:
    return svod.angle(x)


# -- other names -----------------------------------------------------------------------------------

alias(
    {
        "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub",
        "negative": "neg", "absolute": "abs", "greater": "gt", "greater_equal": "ge", "less": "lt",
        "less_equal": "le", "not_equal": "ne", "clip": "clamp", "fix": "trunc", "arccos": "acos",
        "arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "special_expit": "sigmoid",
        "special_erf": "erf", "special_erfc": "erfc", "special_exp2": "exp2",
        "special_expm1": "expm1", "special_log1p": "log1p",
    }
)  # fmt: skip
