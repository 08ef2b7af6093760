"""Functions of torch.special, and the incomplete gamma functions."""

from __future__ import annotations

from tests.torch.table import FLOATS, WIDE, add, bad, each, lit, pos, special, x

_NAN, _INF = float("nan"), float("inf")
S = {"_forms": "s"}


def wide(*shape: int, **more: object) -> object:
    """Numbers between -8 and 8."""
    return x(*shape, low=-8, high=8, **more)


def share(*shape: int, **more: object) -> object:
    """Numbers between 0 and 1."""
    return pos(*shape, low=0.01, high=0.99, **more)


# -- one tensor --------------------------------------------------------------------------------

each("expit", wide, dtypes=(*FLOATS, "int64"), **S)
each("psi gammaln", lambda *s, **m: pos(*s, low=0.1, high=6, **m), dtypes=WIDE, **S)
each("i0e i1e", wide, dtypes=WIDE, **S)
each("i1", wide, dtypes=WIDE, edge=False, **S)  # of inf: inf; torch: NaN
each("modified_bessel_i0 modified_bessel_i1", wide, dtypes=WIDE, grad=False, edge=False, **S)
each("erfcx", x, dtypes=WIDE, **S)
each("log_ndtr ndtr", wide, dtypes=WIDE, _gradient_tolerance=10, **S)
add("erfcx", lit(-30.0, -5.0, 0.0, 50.0, 1e10), _differences=False, **S)
add("log_ndtr ndtr", lit(-40.0, -1.0, 0.0, 1.0, 9.0), _differences=False, **S)
each("ndtri", share, dtypes=WIDE, _tolerance=10, **S)
add("ndtri", lit(1e-300, 1e-20, 0.5, 0.0, 1.0, 1.5, -0.1), _grad=False, _tolerance=10, **S)
each("entr", pos, dtypes=FLOATS, **S)
add("entr", pos(3), _dtypes=("int64",), _grad=False, **S)
each("spherical_bessel_j0", wide, dtypes=WIDE, grad=False, **S)
add("multigammaln", pos(3, low=3, high=6), 3, **S)

# torch's are good to seven digits between 5 and 15; tests/tensor/test_special.py has exact values
for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"):
    places = lit(0.0, 0.3, 1.0, 4.5, 9.0, 20.0, 26.0, 80.0, -1.0, -30.0, _NAN)
    add(name, places, _dtypes=("float64",), _grad=False, _tolerance=1e4, **S)
    add(name, places, _dtypes=("float32",), _grad=False, _tolerance=3, **S)
    add(name, pos(0, 3), _dtypes=("float32", "int64"), _grad=False, **S)
for name in ("modified_bessel_k0", "modified_bessel_k1"):
    places = lit(0.0, 0.01, 0.5, 1.9, 2.1, 6.0, 17.9, 18.1, 40.0, -1.0, _NAN)
    add(f"{name} scaled_{name}", places, _dtypes=WIDE, _grad=False, **S)
    add(f"{name} scaled_{name}", pos(2, 3), _dtypes=("int64",), _grad=False, **S)

# -- two tensors -------------------------------------------------------------------------------

_A = pos(3, 4, low=0.2, high=60, grad=False)
_X = pos(3, 4, low=0.1, high=60)
add("igamma igammac", _A, _X, _tolerance=10, _gradient_tolerance=10, _forms="tm")
add("gammainc gammaincc", _A, _X, _tolerance=10, _gradient_tolerance=10, **S)
add("igamma igammac", pos(4, grad=False), pos(3, 1), _forms="tm")
add("igamma igammac", lit(1e-3, 5.0, 19.9, 20.1, 500.0, 1e5),
    lit(1e-4, 15.1, 30.0, 20.0, 550.0, 1e5), _grad=False, _tolerance=10)  # fmt: skip
add("igamma igammac", lit(0.0, 0.0, 1.0, -1.0, 1.0, _INF, 2.0, _INF),
    lit(0.0, 1.0, 0.0, 1.0, -1.0, 1.0, _INF, _INF), _grad=False)  # fmt: skip
add("igamma igammac", pos(0, 2), pos(2), _dtypes=("float32",), _grad=False)
add("igamma_ igammac_", pos(3, grad=False), pos(3), _dtypes=("float32",), _grad=False)
add("xlog1py", x(3, 4), pos(3, 4, low=-0.9), _dtypes=WIDE, **S)
add("xlog1py", x(3, 4), pos(4), _dtypes=("float32", "int64"), _grad=False, **S)
add("xlog1py", special(), special(), _dtypes=WIDE, _grad=False, **S)
add("xlog1py", lit(0.0, 0.0, 0.0, 2.0), lit(-1.0, -2.0, _NAN, -1.0), _grad=False, **S)
add("xlog1py", x(3), 2.0, **S)
add("zeta", pos(3, 4, low=1.1, high=9, grad=False), pos(3, 4, high=20), **S)
add("zeta", pos(4, low=1.5, high=9, grad=False), pos(3, 1), **S)
add("zeta", lit(2.0, 3.0, 4.0, 2.5, 2.0, 1.0, 0.5, 40.0),
    lit(-0.5, -7.3, -20.1, -0.5, -3.0, 2.0, 1.0, 0.5), _grad=False, _tolerance=10, **S)  # fmt: skip
add("zeta", 2.0, pos(3), _grad=False, **S)
add("zeta", pos(3, low=2, high=4, grad=False), 1.5, _grad=False, **S)

# -- refused -----------------------------------------------------------------------------------

bad("igamma igammac", pos(3), pos(4))
bad("gammainc zeta xlog1py", pos(3), pos(4), **S)
bad("multigammaln", pos(3), 0, **S)
bad("erfcx ndtri bessel_j0", "no", **S)
