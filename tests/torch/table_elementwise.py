"""Functions element by element: of one tensor, of two, of three; logic, bits, comparison."""

from __future__ import annotations

from tests.torch.table import (
    ALL,
    DT,
    FLOATS,
    INTEGERS,
    NUMBERS,
    ONE,
    WIDE,
    add,
    bad,
    each,
    lit,
    mask,
    pos,
    special,
    unit,
    x,
)  # fmt: skip

_NAN, _INF = float("nan"), float("inf")
_FLOATS_AND_INTEGERS = (*FLOATS, "int64", "uint8", "bool")

# -- one tensor --------------------------------------------------------------------------------

each("exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan arcsinh arctan erf sigmoid sinc",
     dtypes=_FLOATS_AND_INTEGERS)  # fmt: skip
each("erfc", dtypes=FLOATS)
add("erfc", lit(3.0, 5.0, 9.0, 26.0, -3.0, 0.01), _dtypes=WIDE, _differences=False)
each("sqrt rsqrt log log2 log10 log1p", pos, dtypes=FLOATS)
add("sqrt rsqrt log log2 log10 log1p", pos(2, 3), _dtypes=("int64", "bool"), _grad=False)
each("reciprocal", pos, dtypes=FLOATS)
add("reciprocal", pos(4), _dtypes=("int32",), _grad=False)
each("asin acos atanh arcsin arccos arctanh erfinv", unit, dtypes=FLOATS)
each("acosh arccosh", lambda *s, **m: pos(*s, low=1.1, high=4, **m), dtypes=FLOATS)
each("abs absolute", dtypes=NUMBERS)
each("neg negative", dtypes=("float64", "float32", "bfloat16", "int64", "int32", "uint8"))
each("sign sgn", dtypes=ALL, grad=False, edge=False)  # of NaN: NaN, as the standard says; torch: 0
add("sign sgn", lit(_INF, -_INF, 0.0, -0.0, 3.0), _grad=False)
each("floor ceil trunc fix round", dtypes=NUMBERS, grad=False)
each("frac", dtypes=FLOATS)
each("square", dtypes=(*FLOATS, "int64"))
each("positive", dtypes=NUMBERS)
each("deg2rad rad2deg", dtypes=(*FLOATS, "int64"))
each(
    "isnan isinf isfinite isposinf isneginf isreal signbit",
    dtypes=(*FLOATS, "int64", "bool"),
    grad=False,
)
each("logical_not", dtypes=ALL, grad=False)
each("angle", dtypes=("float64", "float32", "int64"), grad=False)
each("lgamma digamma", lambda *s, **m: x(*s, low=0.1, high=6, **m), dtypes=WIDE)
add("lgamma digamma", lit(-0.3, -1.7, -4.5, -20.25, 0.001, 1.0, 2.0, 2.5, 50.0, 1e6))
each(
    "i0", lambda *s, **m: x(*s, low=-6, high=6, **m), dtypes=WIDE, edge=False
)  # of inf: inf; torch: NaN
add("i0", lit(_NAN, 0.0, -0.0, 1.0, -30.0), _grad=False)
add("i0", lit(-40.0, -17.9, 18.1, 80.0, 0.0), _gradient_tolerance=10, _differences=False)
each("logit", lambda *s, **m: pos(*s, low=0.1, high=0.9, **m), dtypes=FLOATS)
add("logit", x(3, 4), 1e-3, _differences=False)
for n in (0, 1, 2, 3):
    add("polygamma", n, pos(3, 2), _forms="t", _tolerance=10, _gradient_tolerance=10)
    add("polygamma", n, lit(-0.3, -1.7, -2.4, 0.05, 30.0), _forms="t", _tolerance=10,
        _gradient_tolerance=100, _differences=False)  # fmt: skip
add("polygamma", pos(3), 2, _forms="m", _tolerance=10, _gradient_tolerance=10)
add("mvlgamma", pos(3, low=3, high=6), 3)
add("round", x(3, 4, low=-20, high=20), decimals=1, _dtypes=WIDE, _grad=False)
add("round", x(3, 4, low=-200, high=200), decimals=-1, _dtypes=WIDE, _grad=False)
add("nan_to_num", special(), _dtypes=("float64", "float32", "float16"), _grad=False)
add("nan_to_num", special(), 1.5, 7.0, -7.0, _grad=False)
add("nan_to_num", x(2, 3), _dtypes=("float64", "int64"))
add(
    "frexp",
    lit(0.0, -0.0, 1.0, 0.75, -3.0, 1e-30, 1e30, 0.1, _INF, -_INF),
    _dtypes=(*WIDE,),
    _grad=False,
)
add("frexp", lit(1e-310, 5e-324, -1e-308), _dtypes=("float64",), _grad=False)
add("conj resolve_conj resolve_neg conj_physical", x(2, 3), _dtypes=("float32", "int64"))
add("real", x(2, 3), _dtypes=("float32",), _forms="t")
add("clone detach", x(2, 3), _dtypes=ALL, _grad=False)
add("is_floating_point is_complex is_signed", x(2), _dtypes=ALL, _grad=False)
add("is_nonzero", lit(2.0), _dtypes=("float32", "int64"), _grad=False)
add("is_nonzero", lit(0.0), _dtypes=("float32",), _grad=False)
add("is_same_size", x(2, 3), x(2, 3), _dtypes=ONE, _grad=False)
add("is_same_size", x(2, 3), x(3, 2), _dtypes=ONE, _grad=False)
for name in ("float", "double", "half", "bfloat16", "char", "byte", "short", "int", "long", "bool"):
    add(name, pos(2, 3), _dtypes=("float32", "int64", "bool"), _forms="m", _grad=False)
add("type_as", x(2, 3), x(1, dtype="float64"), _dtypes=ONE, _forms="m", _grad=False)
add("to", x(2, 3), DT("float64"), _dtypes=("float32", "int64"), _forms="m", _grad=False)

# -- two tensors -------------------------------------------------------------------------------

_PAIRS = (
    (x(3, 4), x(3, 4)),
    (x(3, 4), x(4)),
    (x(2, 1, 3), x(4, 1)),
    (x(3, 4, layout="turned"), x(3, 1)),
    (x(0, 3), x(3)),
    (x(), x()),
)


def both(
    names: str, dtypes: tuple[str, ...], grad: bool = True, edge: bool = True, **more: object
) -> None:
    """Two tensors: equal shapes, broadcast, turned, empty, scalars, special values."""
    for i, pair in enumerate(_PAIRS):
        kinds = dtypes if i == 0 else ("float32",)
        add(names, *pair, _dtypes=kinds, _grad=grad and i < 3, **more)
    if edge:
        add(names, special(), lit(2.0), _dtypes=WIDE, _grad=False, **more)
        add(names, lit(2.0), special(), _dtypes=WIDE, _grad=False, **more)
        add(names, special(), special(), _dtypes=WIDE, _grad=False, **more)


both("add mul", ALL)
both("sub multiply subtract", NUMBERS)
both("maximum minimum fmax fmin", ALL)
both("atan2 arctan2 hypot logaddexp logaddexp2 copysign", FLOATS)
add("atan2 copysign", x(3), x(3), _dtypes=("int64",), _grad=False)
both("eq ne lt le gt ge greater greater_equal less less_equal not_equal", ALL, grad=False)
both("logical_and logical_or logical_xor", ALL, grad=False)
add("div divide true_divide", x(3, 4), pos(3, 4), _dtypes=ALL)
add("div divide true_divide", special(), special(), _dtypes=WIDE, _grad=False)
add("div divide", x(3, 4), pos(4), rounding_mode="floor", _dtypes=NUMBERS, _grad=False)
add("div divide", x(3, 4), pos(4), rounding_mode="trunc", _dtypes=NUMBERS, _grad=False)
add("floor_divide", x(3, 4), pos(4), _dtypes=NUMBERS, _grad=False)
add("floor_divide", x(3, 4), lit(-2, -1, 1, 3), _dtypes=("int64", "float32"), _grad=False)
add("remainder fmod", x(3, 4), lit(-2, -1.5, 1.5, 3), _dtypes=WIDE)
add("remainder fmod", x(3, 4), lit(-2, -1, 1, 3), _dtypes=("int64", "int32"), _grad=False)
add("remainder fmod", special(), special(), _dtypes=WIDE, _grad=False)
add("pow", pos(3, 4), x(3, 4), _dtypes=FLOATS)
add("pow", pos(3, 4), pos(4), _dtypes=("int64", "uint8"), _grad=False)
for e in (0, 1, 2, 3, -1, -2, 0.5, 2.5):
    add("pow", pos(3, 4), e)
add("pow", special(), special(), _dtypes=WIDE, _grad=False)
add("pow", special(), 2.5, _dtypes=WIDE, _grad=False)
add("pow", x(3, 4), 3, _dtypes=("int64", "float16"))
add("float_power", pos(3, 4), x(3, 4), _dtypes=("float32", "int64"), _grad=False)
add("float_power", pos(3, 4), 2, _dtypes=("float32", "int64"))
add("add sub subtract", x(3, 4), x(3, 4), alpha=2, _dtypes=("float32", "int64"))
add("rsub", x(3, 4), x(3, 4), _forms="t", _dtypes=("float32", "int64"))
add("rsub", x(3, 4), 3, alpha=2, _forms="t", _dtypes=("float32", "int64"))
add("add mul sub div", x(3, 4), 3, _dtypes=("float32", "int64", "float16"))
add("add mul sub div", x(3, 4), 2.5, _dtypes=("float32", "float16"))
add("eq ne lt le gt ge", x(3, 4), 1, _dtypes=("float32", "int64", "uint8"), _grad=False)
add("xlogy", x(3, 4), pos(3, 4), _dtypes=FLOATS)
add("xlogy", lit(0.0, 0.0, 0.0, 0.0, 2.0, 0.0), lit(0.0, _NAN, _INF, -1.0, 3.0, 2.0), _grad=False)
add("xlogy", lit(0.0, 2.0), lit(2.0, 3.0))
add("heaviside", special(), lit(0.25), _dtypes=WIDE, _grad=False)
add("heaviside", x(3, 4), x(4), _dtypes=("int64", "float32"), _grad=False)
add("ldexp", x(3, 4), lit(-1, 0, 3, 5, dtype="int64"), _dtypes=WIDE, _grad=False)
add("ldexp", x(3, 4), lit(1, 0, 3, 5, dtype="int64"))
add("nextafter", x(3, 4), x(3, 4), _dtypes=WIDE, _grad=False)
add(
    "nextafter",
    lit(0.0, 0.0, 1.0, _INF, -_INF, _NAN, -1.0, 0.0),
    lit(1.0, -1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0),
    _grad=False,
)
add(
    "gcd lcm",
    lit(12, -18, 0, 7, 0, 100, -5),
    lit(18, 24, 5, 0, 0, 75, 15),
    _dtypes=("int64", "int32"),
    _grad=False,
)
add("gcd lcm", lit(12, 18, 0, 7), lit(18, 24, 5, 0), _dtypes=("uint8", "int16"), _grad=False)
both("isclose", ("float32", "float64", "int64"), grad=False)
add(
    "isclose",
    lit(1.0, 1.0, _NAN, _INF),
    lit(1.00001, 1.1, _NAN, _INF),
    1e-3,
    1e-3,
    True,
    _grad=False,
)
add("allclose", x(3, 4), x(3, 4), _grad=False)
add("allclose", lit(1.0, _NAN), lit(1.0, _NAN), equal_nan=True, _grad=False)
add("equal", x(3, 4), x(3, 4), _grad=False, _forms="m")
add("dist", x(3, 4), x(3, 4))
add("dist", x(3, 4), x(4), 1)
add("dist", x(3, 4), x(3, 4), _INF, _differences=False)
add("dist", x(3, 4), x(3, 4), 3)

# -- bits --------------------------------------------------------------------------------------

for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    add(name, x(3, 4), x(3, 4), _dtypes=(*INTEGERS, "bool"), _grad=False)
    add(name, x(3, 4), x(4), _dtypes=("int64",), _grad=False)
    add(name, x(3, 4), 6, _dtypes=("int64",), _grad=False)
add("bitwise_not", x(3, 4), _dtypes=(*INTEGERS, "bool"), _grad=False)
add(
    "bitwise_left_shift bitwise_right_shift",
    x(3, 4),
    lit(0, 1, 2, 5),
    _dtypes=INTEGERS,
    _grad=False,
)

# -- three tensors, limits ---------------------------------------------------------------------

add("lerp", x(3, 4), x(3, 4), 0.3, _dtypes=FLOATS)
add("lerp", x(3, 4), x(3, 4), pos(3, 4, low=0, high=1))
add("lerp", x(3, 4), x(4), 0.75)
add("addcmul", x(3, 4), x(3, 4), x(3, 4), _dtypes=(*FLOATS, "int64"))
add("addcmul", x(3, 4), x(3, 1), x(4), value=2)
add("addcdiv", x(3, 4), x(3, 4), pos(3, 4), _dtypes=FLOATS)
add("addcdiv", x(3, 4), x(3, 1), pos(4), value=0.5)
add("clamp clip", x(3, 4), -0.5, 0.75, _dtypes=FLOATS)
add("clamp clip", x(3, 4), -1, 2, _dtypes=("int64", "float32"), _differences=False)
add("clamp clip", x(3, 4), 0.3)
add("clamp clip", x(3, 4), max=0.3)
add("clamp clip", x(3, 4), x(4), pos(3, 1))
add("clamp clip", special(), -2.0, 2.0, _grad=False)
add("clamp clip", x(0, 4), 0.0, 1.0, _grad=False)
add("clamp_min clamp_max", x(3, 4), 0.3, _dtypes=FLOATS)
add("clamp_min clamp_max", x(3, 4), x(4))
add("clamp_min clamp_max", special(), 0.5, _grad=False)
add("where", mask(3, 4), x(3, 4), x(4), _forms="t", _dtypes=ALL)
add("where", mask(3, 1), x(3, 4), 2.0, _forms="t", _dtypes=FLOATS)
add("where", x(3, 4), mask(3, 4), x(3, 4), _forms="m")
add("masked_fill", x(3, 4), mask(3, 4), 2.0, _dtypes=ALL)
add("masked_fill", x(3, 4), mask(4), 2.0)
add("masked_fill", x(3, 4), mask(3, 4), x())
add("renorm", x(3, 4), 2, 0, 1.0)
add("renorm", x(3, 4, 2), 1, 2, 2.0)

# -- in place ----------------------------------------------------------------------------------

_ONE_IN_PLACE = (
    "abs_ absolute_ arcsinh_ arctan_ asinh_ atan_ ceil_ cos_ cosh_ deg2rad_ erf_ erfc_ exp2_ exp_ "
    "expm1_ fix_ floor_ frac_ i0_ neg_ negative_ rad2deg_ relu_ round_ selu_ sgn_ sigmoid_ sign_ "
    "sin_ sinc_ sinh_ square_ tan_ tanh_ trunc_ nan_to_num_ logical_not_ celu_"
)
add(_ONE_IN_PLACE, x(3, 4), _dtypes=WIDE, _grad=False)
add("elu_ leaky_relu_ hardtanh_", x(3, 4), _dtypes=WIDE, _grad=False, _forms="f")
add(
    "log_ log2_ log10_ log1p_ sqrt_ rsqrt_ reciprocal_ lgamma_ digamma_",
    pos(3, 4),
    _dtypes=WIDE,
    _grad=False,
)
add("acos_ arccos_ asin_ arcsin_ atanh_ arctanh_ erfinv_", unit(3, 4), _dtypes=WIDE, _grad=False)
add("acosh_ arccosh_", pos(3, 4, low=1.1), _dtypes=WIDE, _grad=False)
add("logit_", pos(3, 4, low=0.1, high=0.9), _dtypes=WIDE, _grad=False)
add("polygamma_", pos(3, 4), 1, _dtypes=WIDE, _grad=False, _tolerance=10)
add("mvlgamma_", pos(3, 4, low=2), 2, _dtypes=WIDE, _grad=False)
add("add_ mul_ sub_ multiply_ subtract_ atan2_ arctan2_ hypot_ copysign_ fmod_ remainder_ "
    "floor_divide_ eq_ ne_ lt_ le_ gt_ ge_ greater_ greater_equal_ less_ less_equal_ "
    "not_equal_ logical_and_ logical_or_ logical_xor_", x(3, 4), pos(4), _dtypes=WIDE,
    _grad=False)  # fmt: skip
add(
    "div_ divide_ true_divide_ xlogy_ pow_ float_power_",
    pos(3, 4),
    pos(4),
    _dtypes=("float64",),
    _grad=False,
)
add("nextafter_", x(3, 4), x(3, 4), _dtypes=WIDE, _grad=False)
add("heaviside_", x(3, 4), x(4), _dtypes=WIDE, _grad=False)
add("ldexp_", x(3, 4), lit(1, 2, 0, -1, dtype="int64"), _dtypes=WIDE, _grad=False)
add(
    "add_ mul_ sub_ gcd_ lcm_ bitwise_and_ bitwise_or_ bitwise_xor_",
    x(3, 4),
    x(4),
    _dtypes=("int64",),
    _grad=False,
)
add(
    "bitwise_left_shift_ bitwise_right_shift_",
    x(3, 4),
    lit(0, 1, 2, 3),
    _dtypes=("int64",),
    _grad=False,
)
add("bitwise_not_", x(3, 4), _dtypes=("int64", "bool"), _grad=False)
add("clamp_ clip_", x(3, 4), -0.5, 0.5, _grad=False)
add("clamp_min_ clamp_max_", x(3, 4), 0.25, _grad=False)
add("threshold_", x(3, 4), 0.5, 7.0, _grad=False)
add("lerp_", x(3, 4), x(4), 0.3, _grad=False)
add("addcmul_", x(3, 4), x(4), x(3, 1), value=2, _grad=False)
add("addcdiv_", x(3, 4), x(4), pos(3, 1), value=2, _grad=False)
add("masked_fill_", x(3, 4), mask(3, 4), 3.0, _grad=False)
add("renorm_", x(3, 4), 2, 0, 1.0, _grad=False)
add("zero_", x(3, 4), _dtypes=("float32", "int64"), _grad=False)
add("fill_", x(3, 4), 2, _dtypes=("float32", "int64"), _grad=False)
add("copy_", x(3, 4), x(4), _forms="m", _grad=False)

# -- refused -----------------------------------------------------------------------------------

bad("add sub mul div maximum atan2 eq lerp", x(3, 4), *[x(5)])
bad("lerp", x(3, 4), x(5), 0.5)
bad("sub", x(3), x(3), _dtypes=("bool",))
bad("neg", x(3), _dtypes=("bool",))
bad("positive", x(3), _dtypes=("bool",))
bad("clamp", x(3))
bad("bitwise_and bitwise_or bitwise_xor", x(3), x(3))
bad("bitwise_not", x(3))
bad("gcd lcm", x(3), x(3))
bad("heaviside", x(3), x(3, dtype="float64"))
bad("div", x(3), x(3), rounding_mode="up")
bad("mvlgamma", x(3), 0)
bad("polygamma", -1, x(3), _forms="t")
bad("frexp", x(3), _dtypes=("int64",))
bad("where", mask(3), x(4), x(5), _forms="t")
bad("masked_fill", x(3), mask(4), 1.0)
bad("add", x(3), "text")
bad("add", x(3))
bad("sin", x(3), 5)
bad("pow", x(3), None)
bad("renorm", x(3), 2, 0, 1.0)
bad("is_nonzero", x(3))
bad("add_", x(3), x(2, 3))
bad("add_", x(3), x(3, dtype="float64"), _dtypes=("int64",))
bad("allclose", x(3), x(4))
bad("dist", x(3), x(4))
bad("clamp_min clamp_max", x(3), x(4))
bad("fmod remainder", x(3), x(4))
bad("lgamma", "text", _forms="t")
