"""Reading and writing by index: gather, scatter, select, put, masks."""

from __future__ import annotations

from tests.torch.table import (
    FLOATS,
    NUMBERS,
    ONE,
    Data,
    add,
    bad,
    distinct,
    ids,
    lit,
    mask,
    pos,
    x,
)  # fmt: skip

_SOME = ("float32", "float64", "int64")
_ROWS = ids(0, 2, 1, 1, 0, 2, shape=(2, 3))

add("gather", x(3, 4), 0, ids(0, 2, 1, 1, 2, 0, shape=(2, 3)), _dtypes=NUMBERS)
add("gather", x(3, 4), 1, ids(0, 3, 1, 2, 2, 0, shape=(3, 2)))
add("gather", x(3, 4, layout="turned"), -1, ids(0, 3, 1, shape=(3, 1)))
add("gather", x(3), 0, Data((0,), dtype="int64"), _grad=False)
add("take_along_dim", x(3, 4), ids(0, 3, 1, shape=(3, 1)), 1)
add("take_along_dim", x(3, 4), ids(0, 11, 5))
add("take", x(3, 4), ids(0, 11, 5, 5, shape=(2, 2)))
add("index_select", x(3, 4), 0, ids(2, 0, 0), _dtypes=NUMBERS)
add("index_select", x(3, 4), 1, ids(3))
add("masked_select", x(3, 4), mask(3, 4))
add("masked_select", x(3, 4), mask(4))
for name in ("scatter", "scatter_"):
    grad = name == "scatter"
    add(name, x(3, 4), 0, ids(0, 1, 2, 0, shape=(1, 4)), x(1, 4), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), 1, ids(0, 3, 1, shape=(3, 1)), 5.0, _grad=grad)
    add(name, x(3, 4), 1, ids(0, 3, 1, shape=(3, 1)), x(3, 2), reduce="add", _grad=False)
    add(name, x(3, 4), 1, ids(0, 3, 1, shape=(3, 1)), x(3, 2), reduce="multiply", _grad=False)
for name in ("scatter_add", "scatter_add_"):
    grad = name == "scatter_add"
    add(
        name,
        x(3, 4),
        0,
        ids(0, 1, 0, 0, 2, 1, 0, 0, shape=(2, 4)),
        x(2, 4),
        _dtypes=_SOME,
        _grad=grad,
    )
for how in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        add("scatter_reduce", x(3, 4), 0, ids(0, 1, 0, 0, 2, 1, 0, 0, shape=(2, 4)), distinct(2, 4),
            how, include_self=own, _dtypes=_SOME)  # fmt: skip
    add("scatter_reduce", x(5), 0, ids(0, 1, 0, 4, 0, 4), distinct(6), how)
    if how != "sum":
        add(
            "index_reduce",
            pos(3, 4),
            0,
            ids(0, 2, 0),
            distinct(3, 4, low=0.5),
            how,
            _grad=how != "prod",
        )
        add(
            "index_reduce",
            pos(3, 4),
            1,
            ids(0, 2),
            distinct(3, 2),
            how,
            include_self=False,
            _grad=False,
        )
add("scatter_reduce_", x(3, 4), 0, ids(0, 1, 0, 0, shape=(1, 4)), x(1, 4), "amax", _grad=False)
add("index_reduce_", x(3, 4), 0, ids(0, 2), x(2, 4), "mean", _grad=False)
for name in ("index_add", "index_add_"):
    grad = name == "index_add"
    add(name, x(3, 4), 0, ids(0, 2, 0), x(3, 4), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), 1, ids(0, 2), x(3, 2), alpha=2, _grad=grad)
for name in ("index_copy", "index_copy_"):
    grad = name == "index_copy"
    add(name, x(3, 4), 0, ids(0, 2), x(2, 4), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), 1, ids(3), x(3, 1), _grad=grad)
for name in ("index_fill", "index_fill_"):
    grad = name == "index_fill"
    add(name, x(3, 4), 0, ids(0, 2), 5, _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), 1, ids(3), 1.5, _grad=grad)
for name in ("index_put", "index_put_"):
    grad = name == "index_put"
    add(name, x(3, 4), (ids(0, 2), ids(1, 3)), x(2), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), (ids(0, 0, 2),), x(3, 4), accumulate=True, _grad=grad)
    add(name, x(3, 4), (mask(3, 4),), x(), _grad=grad)
for name in ("masked_scatter", "masked_scatter_"):
    grad = name == "masked_scatter"
    add(name, x(3, 4), mask(3, 4), x(12), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), mask(4), x(3, 4), _grad=grad)
for name in ("put", "put_"):
    grad = name == "put"
    add(name, x(3, 4), ids(0, 11, 5), x(3), _dtypes=_SOME, _grad=grad)
    add(name, x(3, 4), ids(0, 0, 5), x(3), True, _grad=grad)
add("select_scatter", x(3, 4), x(4), 0, 1)
add("select_scatter", x(3, 4), x(3), 1, -1)
add("slice_scatter", x(5, 4), x(2, 4), 0, 1, 3)
add("slice_scatter", x(3, 6), x(3, 2), 1, 1, 5, 2)
add("slice_scatter", x(3, 4), x(3, 4))
add("diagonal_scatter", x(3, 4), x(3))
add("diagonal_scatter", x(2, 3, 4), x(2, 3), 1, 1, 2)
add("diagonal_scatter", x(4, 3), x(2), -2)
add("fill_diagonal_", x(3, 4), 7.0, _forms="m", _grad=False)
add("fill_diagonal_", x(7, 3), 7.0, True, _forms="m", _grad=False)
add("fill_diagonal_", x(3, 3, 3), 7.0, _forms="m", _grad=False)
add("one_hot", ids(0, 2, 1), _forms="f", _dtypes=ONE, _grad=False)
add("one_hot", ids(0, 2, 1, 0, shape=(2, 2)), 5, _forms="f", _dtypes=ONE, _grad=False)
add("embedding", ids(0, 2, 2, 1, shape=(2, 2)), x(3, 4), _forms="f", _dtypes=FLOATS)
add("embedding", ids(0, 2, 2, 1), x(3, 4), 2, _forms="f", _differences=False)
for how in ("sum", "mean", "max"):
    add("embedding_bag", ids(0, 2, 2, 1, 0, 1, shape=(2, 3)), distinct(3, 4), mode=how, _forms="f")
    add(
        "embedding_bag",
        ids(0, 2, 2, 1, 0, 1),
        distinct(3, 4),
        ids(0, 2, 2, 5),
        mode=how,
        _forms="f",
    )
    add("embedding_bag", ids(0, 2, 2, 1, 0, 1), distinct(3, 4), ids(0, 2, 6), mode=how, _forms="f",
        include_last_offset=True, padding_idx=2)  # fmt: skip
add(
    "embedding_bag",
    ids(0, 2, 2, 1, shape=(2, 2)),
    x(3, 4),
    mode="sum",
    per_sample_weights=x(2, 2),
    _forms="f",
)

# -- refused -----------------------------------------------------------------------------------

bad("gather", x(3, 4), 0, ids(0, 1))
bad("gather", x(3, 4), 5, ids(0, 1, shape=(1, 2)))
bad("gather", x(3, 4), 0, x(1, 4))
bad("gather", x(3, 4), 0, ids(0, 0, 0, 0, 0, shape=(1, 5)))
bad("index_select", x(3, 4), 0, _ROWS)
bad("index_select", x(3, 4), 5, ids(0))
bad("index_select", x(3, 4), 0, x(2))
bad("masked_select", x(3, 4), mask(5))
bad("scatter", x(3, 4), 0, ids(0, 1), x(2))
bad("scatter", x(3, 4), 5, ids(0, 1, shape=(1, 2)), x(1, 2))
bad("scatter", x(3, 4), 0, ids(0, shape=(1, 1)), x(1, 1), reduce="no")
bad("scatter_reduce", x(3, 4), 0, ids(0, shape=(1, 1)), x(1, 1), "no")
bad("scatter_add", x(3, 4), 0, ids(0, 1), x(2, 2))
bad("index_add", x(3, 4), 0, ids(0, 1), x(3, 4))
bad("index_add index_copy", x(3, 4), 5, ids(0), x(1, 4))
bad("index_copy", x(3, 4), 0, ids(0, 1), x(3, 4))
bad("index_fill", x(3, 4), 5, ids(0), 1.0)
bad("index_fill", x(3, 4), 0, x(2), 1.0)
bad("index_reduce", x(3, 4), 0, ids(0), x(1, 4), "no")
bad("masked_scatter", x(3, 4), mask(5), x(12))
bad("put", x(3, 4), ids(0, 1), x(3))
bad("put", x(3, 4), x(2), x(2))
bad("select_scatter", x(3, 4), x(3), 0, 1)
bad("select_scatter", x(3, 4), x(4), 0, 7)
bad("slice_scatter", x(3, 4), x(3, 4), 0, 1, 3)
bad("diagonal_scatter", x(3, 4), x(4))
bad("fill_diagonal_", x(3), 1.0, _forms="m")
bad("fill_diagonal_", x(2, 3, 4), 1.0, _forms="m")
bad("take_along_dim", x(3, 4), x(3, 1), 1)
bad("take", x(3, 4), x(2))
bad("one_hot", x(3), _forms="f")
bad("embedding_bag", ids(0, 1), x(3, 4), _forms="f")
bad("embedding_bag", ids(0, 1, shape=(1, 2)), x(3, 4), ids(0), _forms="f")
bad("embedding_bag", ids(0, 1, shape=(1, 2)), x(3, 4), mode="no", _forms="f")
bad(
    "embedding_bag",
    ids(0, 1, shape=(1, 2)),
    x(3, 4),
    mode="mean",
    per_sample_weights=x(1, 2),
    _forms="f",
)

_ZEROS = lit(0.0, 1.0, 0.0, 2.0, 3.0, 0.0, shape=(2, 3))
for size in (0, 2, 3, 5):
    add("nonzero_static", _ZEROS, size=size, _dtypes=("float32", "int64", "bool"), _grad=False)
add("nonzero_static", _ZEROS, size=4, fill_value=7, _dtypes=("float32",), _grad=False)
add("nonzero_static", lit(0.0, 1.0, 2.0), size=2, _dtypes=("int64",), _grad=False)
add("nonzero_static", x(0, 3), size=2, _dtypes=("float32",), _grad=False)
bad("nonzero_static", _ZEROS, size=-1)
add("get_device", x(2), _dtypes=("float32",), _grad=False)
