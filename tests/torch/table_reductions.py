"""Folding axes, running folds, sorting, counting, statistics."""

from __future__ import annotations

from tests.torch.table import (
    ALL,
    DT,
    FLOATS,
    NUMBERS,
    ONE,
    WIDE,
    add,
    bad,
    distinct,
    ids,
    lit,
    mask,
    pos,
    special,
    x,
)  # fmt: skip

_NAN, _INF = float("nan"), float("inf")
_SIGNED = (*FLOATS, "int64", "int32", "bool")

# -- sums and their kin ------------------------------------------------------------------------

for name in ("sum", "prod"):
    add(name, x(3, 4), _dtypes=_SIGNED)
    add(name, x(3, 4), 1, _dtypes=_SIGNED)
    add(name, x(2, 3, 4), -2, True, _dtypes=("float32", "int64"))
    add(name, x(2, 3, 2, layout="turned"), 0)
    add(name, x(), _dtypes=WIDE)
    add(name, x(0, 3), 0, _grad=False)
    add(name, x(0), _grad=False)
    add(name, special(), _grad=False)
    add(name, x(3, 4), dim=1, dtype=DT("float64"), _dtypes=("float32", "int64"), _grad=False)
add("prod", lit(2.0, 0.0, 3.0))
add("prod", lit(0.0, 0.0, 3.0))
add("sum", x(2, 3, 4), (0, 2))
add("sum", x(2, 3, 4), dim=(0, 1), keepdim=True)
for name in ("mean", "nanmean", "nansum", "std", "var", "logsumexp", "amax", "amin"):
    kinds = (*FLOATS, "int64") if name in ("amax", "amin") else FLOATS
    add(name, x(3, 4), 1, _dtypes=kinds)
    add(name, x(2, 3, 4), (0, 2), _dtypes=WIDE)
    add(name, x(2, 3, 4), (0, 2), keepdim=True, _dtypes=ONE)
    add(name, x(3, 4, layout="turned"), 0, _dtypes=ONE)
    add(name, lit(1.0, _NAN, 3.0, 2.0, shape=(2, 2)), 1, _grad=False)
    add(name, lit(1.0, _INF, 3.0, -_INF, shape=(2, 2)), 1, _grad=False)
add("mean nanmean nansum std var", x(3, 4), _dtypes=FLOATS)
add("amax amin", x(3, 4))
add("amax amin", lit(1.0, 3.0, 3.0, 2.0, shape=(2, 2)), (0, 1), _differences=False)
add("mean", x(0, 3), 0, _grad=False)
add("std var", x(1, 3), 0, _grad=False)
for c in (0, 1, 2):
    add("std var", x(3, 4), 1, correction=c, _forms="m")
    add("std_mean var_mean", x(3, 4), 1, correction=c)
add("std_mean var_mean", x(3, 4), _dtypes=FLOATS)
add("std var", x(3, 4), dim=1, unbiased=False, keepdim=True, _forms="m")
add("logsumexp", lit(-_INF, -_INF, 0.0, _INF, 1.0, -_INF, shape=(3, 2)), 1, _grad=False)
add("logsumexp", lit(1000.0, 1000.0, -1000.0, -1000.0, shape=(2, 2)), 1)
for p in (0, 1, 2, 3, 0.5, _INF, -_INF):
    add("norm", x(3, 4), p, _differences=p not in (_INF, -_INF))
    add("norm", x(3, 4), p, 1, _differences=p not in (_INF, -_INF))
add("norm", x(3, 4), dim=1, keepdim=True)
add("norm", lit(0.0, 0.0, 0.0), _differences=False)
add("any all", mask(3, 4), _dtypes=ONE, _grad=False)
add("any all", x(3, 4), _dtypes=ALL, _grad=False)
add("any all", mask(3, 4), 1, _dtypes=ONE, _grad=False)
add("any all", mask(3, 4), dim=(0, 1), _dtypes=ONE, _grad=False)
add("any all", mask(0, 4), _dtypes=ONE, _grad=False)
add("any all", special(), _grad=False)
add("count_nonzero", x(3, 4), _dtypes=ALL, _grad=False)
add("count_nonzero", x(3, 4), dim=1, _dtypes=("int64",), _grad=False)
add("max min", distinct(3, 4), _dtypes=NUMBERS, _forms="m")
add("max min", distinct(3, 4), 1, _dtypes=NUMBERS, _forms="m")
add("max min", distinct(2, 3, 4), 1, True, _forms="m")
add("max min", lit(1.0, 3.0, 3.0, 2.0, 2.0, 2.0, shape=(2, 3)), 1, _forms="m", _differences=False)
add("max min", lit(1.0, 3.0, 3.0, 2.0, 2.0, 2.0, shape=(2, 3)), _forms="m", _differences=False)
add("max min", lit(1.0, _NAN, 3.0, 2.0, shape=(2, 2)), 1, _forms="m", _grad=False)
add("max min", x(3, 4), x(4), _forms="m", _grad=False)
add("max min", x(), _forms="m")
add("aminmax", distinct(3, 4), dim=1, _dtypes=("float32", "float64", "int64"))
add("aminmax", distinct(3, 4), _dtypes=WIDE)
add("argmax argmin", distinct(3, 4), _dtypes=NUMBERS, _grad=False)
add("argmax argmin", distinct(3, 4), 1, _dtypes=NUMBERS, _grad=False)
add("argmax argmin", distinct(3, 4), 0, True, _grad=False)
add("argmax argmin", lit(1.0, 3.0, _NAN, 3.0), 0, _grad=False)
add("argmax argmin", x(), _grad=False)
add("trace", x(4, 4), _dtypes=("float32", "float64", "int64"))
add("trace", x(3, 4))

# -- running folds -----------------------------------------------------------------------------

for name in ("cumsum", "cumprod"):
    add(name, x(3, 4), 1, _dtypes=_SIGNED)
    add(name, x(3, 4), 0)
    add(name, x(), 0, _grad=False)
    add(name, x(0, 3), 0, _grad=False)
    add(name, special(), 0, _grad=False)
    add(name, x(3, 4), 1, dtype=DT("float64"), _dtypes=("float32", "int64"), _grad=False)
add("cumsum", x(100), 0)
add("cumprod", lit(2.0, 0.0, 3.0, 0.0, 1.0), 0)
add("cumprod", pos(100, low=0.9, high=1.1), 0, _differences=False)
add("cummax cummin", distinct(3, 5), 1, _dtypes=("float32", "float64", "int64", "uint8"))
add("cummax cummin", lit(1.0, 3.0, 3.0, 2.0, 1.0, 1.0), 0, _differences=False)
add("cummax cummin", lit(1.0, _NAN, 3.0, 2.0), 0, _grad=False)
add("cummax cummin", x(), 0, _grad=False)
add("logcumsumexp", x(3, 4), 1, _dtypes=FLOATS)
add("logcumsumexp", lit(-100.0, 0.0, 50.0, 800.0, -800.0), 0)
add("logcumsumexp", lit(-_INF, -_INF, 0.0, 1.0), 0, _grad=False)
add("logcumsumexp", lit(0.0, _INF, 0.0, _NAN), 0, _grad=False)
add("logcumsumexp", x(0), 0, _grad=False)
add("cumsum_ cumprod_", x(3, 4), 1, _grad=False)
add("diff", x(3, 5), _dtypes=("float32", "float64", "int64", "bool"))
add("diff", x(3, 5), 2, 0)
add("diff", x(3, 5), prepend=x(3, 1), append=x(3, 2))
add("trapezoid trapz", x(3, 5))
add("trapezoid trapz", x(3, 5), x(5))
add("trapezoid trapz", x(3, 5), dx=0.5, dim=0)
add("cumulative_trapezoid", x(3, 5))
add("cumulative_trapezoid", x(3, 5), x(5))
add("cumulative_trapezoid", x(3, 5), dx=0.5, dim=0)
add("gradient", x(3, 5))
add("gradient", x(3, 5), spacing=2.0, dim=1)
add("gradient", x(5), spacing=[lit(0.0, 1.0, 1.5, 3.0, 3.5, grad=False)])
add("gradient", x(4, 5), edge_order=2)

# -- order -------------------------------------------------------------------------------------

for name in ("sort", "argsort"):
    forms = "m"
    grad = name == "sort"
    add(name, distinct(3, 5), _dtypes=NUMBERS, _forms=forms, _grad=grad)
    add(name, distinct(3, 5), 0, True, _forms=forms, _grad=grad)
    add(name, lit(3.0, _NAN, 1.0, _INF, -_INF, 2.0), _forms=forms, _grad=False)
    add(name, x(), _forms=forms, _grad=False)
    add(name, x(0, 3), 0, _forms=forms, _grad=False)
add("sort", lit(2, 1, 2, 1, 0), stable=True, dim=0, _dtypes=("int64",), _forms="m", _grad=False)
add("sort", distinct(300), _forms="m", _grad=False)
add("msort", distinct(4, 3))
add("topk", distinct(3, 6), 3, _dtypes=NUMBERS)
add("topk", distinct(3, 6), 2, 0, False)
add("topk", distinct(6), 0, _grad=False)
add("kthvalue", distinct(3, 6), 2, _dtypes=("float32", "float64", "int64"))
add("kthvalue", distinct(3, 6), 3, 0, True)
add("median nanmedian", distinct(3, 5), _dtypes=("float32", "float64", "int64"))
add("median nanmedian", distinct(3, 6), 1)
add("median nanmedian", distinct(3, 6), 0, True)
add("median nanmedian", lit(1.0, _NAN, 3.0, 2.0, 5.0, 4.0, shape=(2, 3)), 1, _grad=False)
add("median nanmedian", lit(1.0, _NAN, 3.0), _grad=False)
add(
    "mode",
    lit(1, 2, 2, 3, 3, 1, 5, 5, 5, 0, 1, 2, shape=(3, 4)),
    _dtypes=("float32", "int64"),
    _grad=False,
)
add("mode", lit(1.0, 2.0, 1.0, 3.0), 0, True, _grad=False)
for how in ("linear", "lower", "higher", "midpoint", "nearest"):
    add("quantile nanquantile", distinct(3, 6), 0.35, 1, interpolation=how)
add("quantile nanquantile", distinct(3, 6), 0.5)
add("quantile nanquantile", distinct(3, 6), lit(0.0, 0.25, 1.0, grad=False), 0, True)
add("quantile", lit(1.0, _NAN, 3.0, 2.0, shape=(2, 2)), 0.5, 1, _grad=False)
add("nanquantile", lit(1.0, _NAN, 3.0, 2.0, shape=(2, 2)), 0.5, 1, _grad=False)
add("unique", lit(3, 1, 2, 3, 1), _dtypes=("int64", "float32"), _forms="m", _grad=False)
add("unique", lit(3, 1, 2, 3, 1), True, True, True, _dtypes=("int64",), _forms="m", _grad=False)
add("unique_consecutive", lit(3, 3, 2, 3, 1, 1), _dtypes=("int64", "float32"), _grad=False)
add("unique_consecutive", lit(3, 3, 2, 3, 1, 1), True, True, _dtypes=("int64",), _grad=False)
add(
    "unique_consecutive",
    lit(1, 1, 2, 1, 1, 2, 3, 3, shape=(4, 2)),
    dim=0,
    _dtypes=("int64",),
    _grad=False,
)
_EDGES = lit(-1.0, 0.0, 0.5, 2.0)
add("searchsorted", _EDGES, x(3, 4), _grad=False, _forms="t")
add("searchsorted", _EDGES, lit(-1.0, 0.0, 0.5, 2.0, 9.0), right=True, _grad=False, _forms="t")
add(
    "searchsorted",
    lit(1, 3, 5, 7),
    lit(0, 3, 4, 9),
    side="right",
    _dtypes=("int64",),
    _grad=False,
    _forms="t",
)
add("bucketize", x(3, 4), _EDGES, _grad=False)
add("bucketize", lit(-1.0, 0.0, 0.5, 2.0, 9.0), _EDGES, right=True, out_int32=True, _grad=False)
add("isin", lit(1, 2, 3, 4), lit(2, 4), _dtypes=("int64", "float32"), _grad=False)
add("isin", lit(1, 2, 3, 4, shape=(2, 2)), lit(2, 4), invert=True, _dtypes=("int64",), _grad=False)
add("isin", lit(1, 2, 3, 4), 3, _dtypes=("int64",), _grad=False)
add("bincount", lit(1, 3, 1, 0, 5), _dtypes=("int64", "int32"), _grad=False)
add("bincount", lit(1, 3, 1, 0, 5), minlength=9, _dtypes=("int64",), _grad=False)
add(
    "bincount",
    lit(1, 3, 1, 0, 5),
    lit(0.5, 1.0, 2.0, 4.0, 8.0, dtype="float64"),
    _dtypes=("int64",),
    _grad=False,
)
add("histc", x(4, 5), 5, -1, 1, _dtypes=WIDE, _grad=False)
add("histc", x(20), 4, _dtypes=WIDE, _grad=False)
add("histogram", x(20), 4, range=(-1.0, 2.0), _grad=False)
add("histogram", x(20), lit(-2.0, -1.0, 0.5, 2.0), _grad=False)
add("histogram", x(20), 5, range=(-2.0, 2.0), weight=pos(20), density=True, _grad=False)
add("cov", x(3, 5))
add("cov", x(5))
add("cov", x(3, 5), correction=0)
add("cov", x(3, 4), fweights=ids(1, 2, 1, 3), aweights=pos(4, grad=False))
add("corrcoef", x(3, 5))
add(
    "nonzero argwhere",
    lit(0, 1, 2, 0, 0, 3, shape=(2, 3)),
    _dtypes=("int64", "float32", "bool"),
    _forms="m",
    _grad=False,
)

# -- refused -----------------------------------------------------------------------------------

bad("sum mean amax amin argmax any all logsumexp std var count_nonzero", x(3, 4), dim=5, _forms="m")
bad("sum mean amax", x(3, 4), dim=(0, 0), _forms="m")
bad("cumsum cumprod cummax cummin logcumsumexp", x(3, 4), 5)
bad("cumsum cumprod cummax cummin logcumsumexp", x(3, 4))
bad("sort argsort median nanmedian mode", x(3, 4), 5, _forms="m")
bad("kthvalue", x(3, 4), 2, 5)
bad("kthvalue", x(3, 4), 9)
bad("kthvalue", x(3, 4), 0)
bad("topk", x(3, 4), 9)
bad("topk", x(3, 4), 1, 5)
bad("amax amin argmax argmin", x(0), _forms="m")
bad("amax amin", x(0, 3), 0)
bad("argmax max", x(0, 3), 0, _forms="m")
bad("quantile", x(3, 4), 1.5)
bad("quantile", x(3, 4), 0.5, 5)
bad("quantile", x(3, 4), 0.5, interpolation="near")
bad("quantile", x(3, 4), _dtypes=("int64",))
bad("searchsorted", x(3, 4), x(2, 4), _forms="t")
bad("bucketize", x(3), x(3, 4))
bad("bincount", x(3, 4), _dtypes=("int64",))
bad("bincount", x(3))
bad("histc", x(3), 0)
bad("histc", x(3), 4, 2, 1)
bad("trapezoid", x(3, 5), x(4))
bad("gradient", x(3, 5), dim=4)
bad("cov", x(2, 3, 4))
bad("trace", x(3))
bad("diff", x())
bad("diff", x(3), dim=3)
bad("var_mean std_mean", x(3), dim=3)
bad("aminmax", x(3), dim=3)
bad("unique_consecutive", x(3), dim=3)
bad("prod", x(3), dim=3)
bad("norm", x(3), 2, 4)
