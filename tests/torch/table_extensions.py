"""torch.linalg beyond the standard, torch.masked, torch.signal.windows, and names about copies."""

from __future__ import annotations

from tests.torch.table import ALL, FLOATS, ONE, WIDE, add, bad, distinct, lit, mask, pos, x

M, W, T, S = [{"_forms": form} for form in "kwts"]
# What runs on the host has gradients that are compared with torch's alone.
L, H = [{"_forms": form, "_differences": False} for form in "lt"]
NONE = {"_grad": False}


def square(*shape: int) -> object:
    """Matrices far from singular, whose pivots are no ties."""
    return distinct(*shape, low=-3, high=5)


# -- LU, Householder, and functions that report -------------------------------------------------

for shape in ((3, 3), (2, 4, 3), (3, 5)):
    add("lu lu_factor lu_factor_ex", square(*shape), _tolerance=10, _gradient_tolerance=100, **L)
add("lu", square(4, 4), _tolerance=10, _gradient_tolerance=100, **H)
add("lu", square(2, 3, 3), get_infos=True, _tolerance=10, _gradient_tolerance=100, **H)
add("lu_factor_ex", lit(1.0, 2.0, 2.0, 4.0, shape=(2, 2)), **NONE, **L)
_ROWS = lit(2, 3, 3, dtype="int32")
add("lu_unpack", square(3, 3), _ROWS, _tolerance=10, **H)
add("lu_solve", x(3, 2), square(3, 3), _ROWS, _tolerance=100, _gradient_tolerance=1e3, **H)
for options in ({}, {"left": False}, {"adjoint": True}, {"left": False, "adjoint": True}):
    add("lu_solve", square(3, 3), _ROWS, x(3, 3), **options, _tolerance=100,
        _gradient_tolerance=1e3, **L)  # fmt: skip
add("inv_ex cholesky_ex", lit(4.0, 1.0, 1.0, 3.0, shape=(2, 2)), _tolerance=10, **L)
add("solve_ex solve", square(3, 3), x(3, 2), _tolerance=100, _gradient_tolerance=100, **L)
add("solve", square(2, 3, 3), x(2, 3), _tolerance=100, _gradient_tolerance=100, **L)
add("solve", square(3, 3), x(2, 3), left=False, _tolerance=100, _gradient_tolerance=100, **L)
add("eigh eigvalsh", lit(4.0, 1.0, 7.0, 3.0, shape=(2, 2)), UPLO="U", _order="sorted", **NONE, **L)
add("geqrf", x(4, 3), **NONE, _tolerance=10, **H)
add("householder_product", x(4, 3), pos(2), _tolerance=10, _gradient_tolerance=10, **L)
for left, transpose in ((True, False), (False, True)):
    add("ormqr", x(4, 3), pos(3), x(4, 4), left=left, transpose=transpose, _tolerance=10,
        _gradient_tolerance=10, **H)  # fmt: skip
add("triangular_solve", x(3, 2), square(3, 3), _tolerance=1e3, _gradient_tolerance=1e4, **H)
add("svd_lowrank pca_lowrank", x(5, 4), 3, _values=False, **NONE, **H)
add("tensorinv", square(2, 3, 6), _tolerance=1e3, _gradient_tolerance=1e4, **L)
add("tensorsolve", square(2, 3, 6), x(2, 3), _tolerance=1e3, _gradient_tolerance=1e4, **L)
add("vander", x(2, 3), N=4, **L)
bad("lu_factor inv_ex tensorinv", x(3), **L)
bad("solve_ex", square(3, 3), x(2, 2), **L)
bad("householder_product", x(2, 3), x(2), **L)

# -- masked -------------------------------------------------------------------------------------

_FOLDS = "sum prod mean amax amin logsumexp norm var std"
add(_FOLDS, x(3, 4), mask=mask(3, 4), _dtypes=FLOATS, _tolerance=4, **M)
for options in ({"dim": 1}, {"dim": (0, 1), "keepdim": True}):
    add("sum mean amax amin logsumexp var", distinct(2, 3), mask=lit(True, False, True), **options,
        **M)  # fmt: skip
add("sum prod amax argmax cumsum", x(3, 4), dim=0, mask=mask(3, 4), _dtypes=("int64",), **NONE, **M)
add("argmax argmin", distinct(3, 4), 1, mask=mask(3, 4), **NONE, **M)
add("median", distinct(3, 4), 1, mask=lit(True, False, True, True), **M)
add("cumsum cumprod softmax log_softmax softmin", x(3, 4), 1, mask=lit(True, True, False, True),
    _differences=False, **M)  # fmt: skip
add("normalize", x(3, 4), 2.0, 1, mask=mask(3, 4), **M)
add("logaddexp", x(3), x(3), input_mask=lit(True, False, True), **M)
bad("sum softmax", x(3), 0, mask=mask(2, 3), **M)

# -- windows ------------------------------------------------------------------------------------

_WINDOWS = "hann hamming blackman nuttall bartlett cosine exponential gaussian kaiser"
for size in (0, 1, 6):
    add(f"{_WINDOWS} general_hamming", size, _dtypes=ONE, **NONE, **W)
    add(_WINDOWS, size, sym=False, _dtypes=ONE, **NONE, **W)
add("general_cosine", 5, a=(0.4, 0.5, 0.1), _dtypes=ONE, **NONE, **W)
add("exponential", 5, center=1.0, tau=2.0, sym=False, _dtypes=ONE, **NONE, **W)
bad(_WINDOWS, -1, **W)

# -- polynomials --------------------------------------------------------------------------------

_KINDS = "chebyshev_polynomial_"
for kind in "tuvw":
    add(f"{_KINDS}{kind} shifted_{_KINDS}{kind}", x(2, 6), lit(-1, 0, 1, 2, 5, 9), _tolerance=50,
        **NONE, **S)  # fmt: skip
for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
             "legendre_polynomial_p"):  # fmt: skip
    add(name, x(2, 6), lit(-1, 0, 1, 2, 5, 9), _tolerance=50, **NONE, **S)
    add(name, x(3), 4, _dtypes=(*WIDE, "int64"), _tolerance=50, **NONE, **S)

# -- copies, strides, bits ----------------------------------------------------------------------

add("alias_copy t_copy unbind_copy squeeze_copy", x(2, 3), _dtypes=ALL, **T)
add("expand_copy", x(2, 1), (2, 3), **T)
add("view_copy", x(2, 3), (3, 2), **T)
add("permute_copy", x(2, 3), (1, 0), **T)
add("transpose_copy", x(2, 3), 0, 1, **T)
add("unsqueeze_copy unsafe_chunk unsafe_split", x(4, 3), 1, **T)
add("diagonal_copy", x(3, 4), 1, **T)
add("as_strided_copy", x(3, 4), (2, 2), (1, 4), 1, **T)
add("split_with_sizes_copy", x(4, 3), (1, 3), **T)
add("unfold_copy", x(6), 0, 3, 2, **T)
add(
    "as_strided_scatter", x(3, 3), x(2, 2), (2, 2), (1, 2), 1, **NONE, **T
)  # torch's gradient is off
add("fill", x(3), 2.5, _dtypes=ALL, **NONE, **T)
add("constant_pad_nd", x(2, 3), (1, 2), 0.5, **T)
add("empty_strided", (2, 3), (1, 2), _values=False, _dtypes=ONE, **NONE, **T)
add("empty_permuted", (2, 3), (1, 0), _values=False, _dtypes=ONE, **NONE, **T)
add("resize_", x(2, 3), (3, 2), _forms="m", **NONE)
add("resize_as_", x(2, 3), x(6), _forms="tm", **NONE)
add("cfloat cdouble", x(3), _values=False, _forms="m", **NONE)
add("hash_tensor", x(3, 4), _dtypes=("float32", "bfloat16", "int32"), **NONE, **T)
add("hash_tensor", x(3, 4), 0, keepdim=True, **NONE, **T)
add("histogramdd", x(20, 2), [3, 4], range=[-2.0, 2.0, -2.0, 2.0], **NONE, **T)
add("histogramdd", x(20, 2), [3, 4], density=True, _tolerance=10, **NONE, **T)
add("grid_sampler_2d", x(1, 2, 3, 4), x(1, 2, 3, 2, low=-1, high=1), 0, 1, True, _tolerance=10, **T)
add("grid_sampler_3d", x(1, 1, 3, 2, 2), x(1, 2, 2, 1, 3, low=-1, high=1), 1, 0, False, **NONE, **T)
add("linear_cross_entropy", x(4, 3), x(5, 3), lit(0, 4, 2, 1, dtype="int64"), _forms="f")
bad("as_strided_scatter", x(4), x(2), (2,), (9,))
bad("empty_permuted", (2, 3), (0, 0))
