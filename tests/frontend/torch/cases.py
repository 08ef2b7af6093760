"""Calls of core ATen operators: for each name, arguments that show what it does.

`core_operators` is torch's own list, by its tag. A name without a case here has to be in `LEFT`,
with the reason; the coverage test counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Case = tuple[tuple[Any, ...], dict[str, Any]]

CASES: dict[str, list[Callable[[], Case]]] = {}

# Core operators that are no work for a plan, or none for any compiler.
LEFT = {
    "_local_scalar_dense.default": "reads a number: torch does it between plans",
    "nonzero.default": "the shape depends on values: torch does it between plans",
    "resize_.default": "changes memory; aot_autograd never leaves it in a graph",
    "atan2.out": "writes to its argument; aot_autograd never leaves it in a graph",
    "sym_is_contiguous.default": "a question about sizes, answered when the graph is recorded",
    "sym_numel.default": "a size, taken from torch's expression",
    "sym_size.int": "a size, taken from torch's expression",
    "sym_storage_offset.default": "a size, taken from torch's expression",
    "sym_stride.int": "a size, taken from torch's expression",
}


def core_operators() -> list[str]:
    """Names such as ``add.Tensor``, of all operators that torch tags as core."""
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        if space != "aten":
            continue
        packet = getattr(torch.ops.aten, base, None)
        op = getattr(packet, overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            found.append(f"{base}.{overload or 'default'}")
    return sorted(found)


def overload(name: str) -> Any:
    base, _, form = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), form)


def add(names: str, *args: Any, **named: Any) -> None:
    """A case for operators: tensors are described by functions, made when the case runs."""
    for name in names.split():
        CASES.setdefault(name, []).append(
            lambda: (_made(args), {key: _made(v) for key, v in named.items()})
        )


def _made(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([_made(v) for v in value])
    return value() if callable(value) and not isinstance(value, torch.dtype) else value


def f(*shape: int, dtype: torch.dtype = torch.float32, low: float = -2, high: float = 2) -> Any:
    """Floats between two numbers, the same ones every time."""

    def make() -> torch.Tensor:
        generator = torch.Generator().manual_seed(sum(shape) + len(shape))
        found = torch.rand(shape, generator=generator, dtype=torch.float64)
        return (found * (high - low) + low).to(dtype)

    return make


def i(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> Any:
    def make() -> torch.Tensor:
        generator = torch.Generator().manual_seed(sum(shape) + 7)
        return torch.randint(low, high, shape, generator=generator).to(dtype)

    return make


def t(make: Any) -> Any:
    """The same tensor, transposed in memory."""
    return lambda: make().mT.contiguous().mT


HALF = torch.bfloat16
DOUBLE = torch.float64

# -- element by element ----------------------------------------------------------------------------

_EVERYWHERE = (
    "abs ceil cos cosh erf exp expm1 floor neg relu round sigmoid sign sin sinh tan tanh trunc "
    "isinf isnan logical_not atan asinh gelu elu hardtanh leaky_relu"
)
for _name in _EVERYWHERE.split():
    add(f"{_name}.default", f(3, 5))
    add(f"{_name}.default", t(f(4, 6, dtype=DOUBLE)))
    if _name not in ("logical_not", "isinf", "isnan"):
        add(f"{_name}.default", f(3, 5, dtype=HALF))
for _name in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]:
    add(f"{_name}.default", f(3, 5, low=0.1))
    add(f"{_name}.default", f(4, dtype=DOUBLE, low=0.1))
    add(f"{_name}.default", i(4, low=1))
for _name in ["acos", "asin", "atanh"]:
    add(f"{_name}.default", f(3, 5, low=-0.9, high=0.9))
add("acosh.default", f(3, 5, low=1.1, high=4))
for _name in ["exp", "sin", "tanh", "sigmoid"]:
    add(f"{_name}.default", i(4))
add("isnan.default isinf.default", lambda: torch.tensor([1.0, float("nan"), float("inf")]))
add("bitwise_not.default", i(5))
add("bitwise_not.default logical_not.default", lambda: torch.tensor([True, False]))
add("gelu.default", f(3, 5), approximate="tanh")

for _name in ["add", "sub", "mul", "div"]:
    add(f"{_name}.Tensor", f(3, 5), f(5))
    add(f"{_name}.Tensor", f(3, 5), i(3, 5, low=1))
    add(f"{_name}.Tensor", i(3, 5), i(5, low=1, dtype=torch.int32))
    add(f"{_name}.Tensor", f(3, 5, dtype=HALF), f(3, 5, dtype=torch.float32))
    add(f"{_name}.Tensor", t(f(3, 5)), 2.5)
    add(f"{_name}.Scalar", f(3, 5), 3)
    add(f"{_name}.Scalar", i(3, 5), 2)
    add(f"{_name}.Scalar", i(3, 5), 2.5)
add("add.Tensor sub.Tensor", f(3), f(3), alpha=2.5)
add("add.Tensor", lambda: torch.tensor([True, False]), lambda: torch.tensor([True, True]))
for _mode in ("floor", "trunc", None):
    add("div.Tensor_mode", f(3, 5), f(5, low=0.5), rounding_mode=_mode)
    add("div.Tensor_mode", i(30), i(30, low=1), rounding_mode=_mode)
    add("div.Scalar_mode", i(30), -3, rounding_mode=_mode)
for _name in ["fmod", "remainder"]:
    add(f"{_name}.Tensor", f(3, 5), f(5, low=0.5))
    add(f"{_name}.Tensor", i(30), i(30, low=1))
    add(f"{_name}.Scalar", i(30), -3)
    add(f"{_name}.Scalar", f(30), 0.7)
add("pow.Tensor_Tensor", f(3, 5, low=0.1), f(5))
add("pow.Tensor_Scalar", f(3, 5), 2)
add("pow.Tensor_Scalar", f(3, 5, low=0.1), 0.5)
add("pow.Tensor_Scalar", i(5), 3)
add("pow.Scalar", 2.0, f(3, 5))
add("pow.Scalar", 2, i(5, low=0))
add("atan2.default maximum.default minimum.default", f(3, 5), f(3, 5, dtype=DOUBLE))
add("maximum.default minimum.default", i(5), i(5, low=-9, high=2))
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    add(f"{_name}.Tensor", i(9), i(9, low=0, high=99))
    add(f"{_name}.Tensor", lambda: torch.tensor([True, False]), lambda: torch.tensor([True, True]))
    add(f"{_name}.Scalar", i(9), 5)
for _name in ["logical_and", "logical_or", "logical_xor"]:
    add(f"{_name}.default", i(9, low=0, high=2), f(9))
for _name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    add(f"{_name}.Tensor", i(3, 5), i(5))
    add(f"{_name}.Tensor", f(3, 5), i(5))
    add(f"{_name}.Scalar", i(3, 5), 1)
    add(f"{_name}.Scalar", i(3, 5), 0.5)
    add(f"{_name}.Scalar", f(3, 5, dtype=HALF), 0.5)
add("where.self", lambda: torch.tensor([[True], [False]]), f(2, 3), f(3, dtype=DOUBLE))
add("clamp.default", f(3, 5), -1, 1)
add("clamp.default", i(9), None, 2)
add("clamp.Tensor", f(3, 5), f(5, low=-1, high=0), f(3, 5, low=0.1))
add("_to_copy.default", f(3, 5), dtype=torch.int32)
add("_to_copy.default", i(5), dtype=HALF)
add("clone.default alias.default", t(f(3, 5)))
add("copy.default", f(3, 5), i(5))
add("fill.Scalar", f(3, 5), 3)

# -- shapes ----------------------------------------------------------------------------------------

add("view.default", f(4, 6), [2, 2, -1])
add("permute.default", f(2, 3, 4), [2, 0, 1])
add("expand.default", f(3, 1), [2, -1, 4])
add("unsqueeze.default", f(3, 4), 1)
add("squeeze.dim", f(3, 1, 4), 1)
add("squeeze.dims", f(3, 1, 1), [1, 2])
add("select.int", f(3, 4), 1, -1)
add("slice.Tensor", f(7, 4), 0, 1, 6, 2)
add("slice.Tensor", f(7, 4), 1, -3, 9223372036854775807)
add("slice_scatter.default", f(7, 4), f(2, 4), 0, 1, 3)
add("select_scatter.default", f(3, 4), f(3), 1, 2)
add("split_with_sizes.default", f(7, 4), [2, 5])
add("diagonal.default", f(4, 5), 1)
add("as_strided.default", f(4, 6), [2, 3], [6, 2], 1)
add("flip.default", f(3, 4), [0, 1])
add("repeat.default", f(3, 4), [2, 1, 3])
add("cat.default", [f(2, 3), i(4, 3)], 0)
add("cat.default", [f(0), f(4, 3)], -1)
add("constant_pad_nd.default", f(3, 4), [1, 2, 0, 1], 2.0)
add("constant_pad_nd.default", f(3, 4), [-1, 2])
add("reflection_pad1d.default", f(2, 3, 6), [2, 1])
add("reflection_pad2d.default replication_pad2d.default", f(2, 3, 6, 5), [2, 1, 0, 3])
add("reflection_pad3d.default replication_pad3d.default", f(1, 2, 4, 4, 5), [2, 1, 0, 3, 1, 1])
add("col2im.default", f(2, 12, 12), [5, 4], [2, 2], [1, 1], [0, 0], [1, 1])

# -- made of nothing -------------------------------------------------------------------------------

add("arange.start_step", 1, 9, 2)
add("arange.start_step", 0.5, 3.0, 0.25)
add("full.default", [2, 3], 1.5)
add("full_like.default", i(3), 2)
add("scalar_tensor.default", 2.5)

# -- folds -----------------------------------------------------------------------------------------

for _name in ["amax", "amin"]:
    add(f"{_name}.default", f(3, 4, 5), [0, 2])
    add(f"{_name}.default", i(3, 4), [], True)
for _name in ["argmax", "argmin"]:
    add(f"{_name}.default", f(3, 4))
    add(f"{_name}.default", f(3, 4), 1, True)
add("any.default", i(3, 4, low=0, high=2))
add("any.dim", i(3, 4, low=0, high=2), 1)
add("any.dims", i(3, 4, 5, low=0, high=2), [0, 2], True)
add("max.dim min.dim", f(3, 4), 1)
add("mean.default", f(3, 4))
add("mean.dim sum.dim_IntList", f(3, 4, 5), [0, -1], True)
add("mean.dim", f(3, 400, dtype=HALF), [1])
add("sum.dim_IntList", i(3, 4, dtype=torch.int32), [1])
add("sum.dim_IntList", f(30, 400, dtype=HALF), [1])
add("prod.default", f(3, 4))
add("prod.dim_int", f(3, 4), 1)
add("var.correction", f(3, 4), [1], correction=0)
add("var.dim", f(3, 4), [1])
add("cumsum.default", f(3, 40), 1)
add("cumsum.default", i(3, 4, dtype=torch.int32), 0)
add("sort.default", f(3, 9), 1)
add("topk.default", f(3, 9), 4)

# -- places ----------------------------------------------------------------------------------------

_rows = i(4, low=0, high=5)
add("index.Tensor", f(5, 6), [_rows])
add("index.Tensor", f(5, 6), [None, _rows])
add("index.Tensor", f(5, 6, 5), [_rows, None, _rows])
add("index_put.default", f(5, 6), [_rows], f(6))
add("index_put.default", f(5, 6), [None, _rows], f(5, 4))
add("index_put.default", f(5, 6), [_rows], f(4, 6), True)
add(
    "index_put.default",
    f(3),
    [lambda: torch.tensor([True, False, True])],
    lambda: torch.tensor(7.0),
)
add("index_select.default", f(5, 6), 1, _rows)
add("gather.default", f(5, 6), 1, i(5, 3, low=0, high=6))
add("scatter.src", f(5, 6), 0, lambda: torch.tensor([[0, 1, 2, 3, 4, 0]]), f(1, 6))
add("scatter.value", f(5, 6), 1, i(5, 1, low=0, high=6), 2.5)
add("scatter_add.default", f(5, 6), 1, i(5, 8, low=0, high=6), f(5, 8))
for _mode in ("sum", "prod", "amax", "amin", "mean"):
    add("scatter_reduce.two", f(5, 6), 1, i(5, 8, low=0, high=6), f(5, 8), _mode)
add("masked_scatter.default", f(3, 4), lambda: torch.arange(12).reshape(3, 4) % 3 == 0, f(9))
add("embedding.default", f(9, 4), i(2, 3, low=0, high=9))
add("embedding_dense_backward.default", f(2, 3, 4), i(2, 3, low=0, high=9), 9, 2, False)
add("_embedding_bag.default", f(9, 4), i(6, low=0, high=9), lambda: torch.tensor([0, 2, 5]))

# -- products --------------------------------------------------------------------------------------

add("mm.default", f(5, 6), f(6, 7))
add("mm.default", t(f(5, 6)), t(f(6, 7)))
add("mm.default", f(33, 64, dtype=HALF), f(64, 17, dtype=HALF))
add("bmm.default", f(2, 5, 6), f(2, 6, 7))
add("addmm.default", f(7), f(5, 6), f(6, 7))
add("addmm.default", f(5, 7), f(5, 6), f(6, 7), beta=0.5, alpha=2)
_plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
add("convolution.default", f(2, 3, 8, 8), f(4, 3, 3, 3), f(4), *_plain)
add("convolution.default", f(2, 4, 9), f(6, 2, 3), None, [2], [1], [1], False, [0], 2)
add(
    "convolution.default",
    f(2, 3, 5, 5),
    f(3, 4, 3, 3),
    f(4),
    [2, 2],
    [1, 1],
    [1, 1],
    True,
    [1, 1],
    1,
)
add("convolution_backward.default", f(2, 4, 8, 8), f(2, 3, 8, 8), f(4, 3, 3, 3), [4], *_plain,
    [True, True, True])  # fmt: skip
add("_cdist_forward.default", f(4, 3), f(5, 3), 2.0, None)
add("_pdist_forward.default", f(4, 3), 2.0)

# -- norms, pools, resampling ----------------------------------------------------------------------

add("_softmax.default _log_softmax.default", f(3, 9), 1, False)
add("_softmax.default _log_softmax.default", f(3, 9, dtype=HALF), 0, False)
add("native_layer_norm.default", f(3, 8), [8], f(8), f(8), 1e-5)
add("native_layer_norm_backward.default", f(3, 8), f(3, 8), [8], f(3, 1), f(3, 1, low=0.5), f(8),
    f(8), [True, True, True])  # fmt: skip
add("native_group_norm.default", f(2, 6, 4), f(6), f(6), 2, 6, 4, 3, 1e-5)
add("native_group_norm_backward.default", f(2, 6, 4), f(2, 6, 4), f(2, 3), f(2, 3, low=0.5), f(6),
    2, 6, 4, 3, [True, True, True])  # fmt: skip
add("_native_batch_norm_legit_no_training.default", f(2, 3, 4), f(3), f(3), f(3), f(3, low=0.5),
    0.1, 1e-5)  # fmt: skip
add("_native_batch_norm_legit.no_stats", f(2, 3, 4), f(3), f(3), True, 0.1, 1e-5)
add("adaptive_avg_pool1d.default", f(2, 3, 9), [4])
add("_adaptive_avg_pool2d.default", f(2, 3, 9, 7), [4, 3])
add("_adaptive_avg_pool2d_backward.default", f(2, 3, 4, 3), f(2, 3, 9, 7))
add("_adaptive_avg_pool3d.default", f(2, 3, 5, 6, 7), [2, 3, 3])
add("avg_pool1d.default", f(2, 3, 9), [3], [2], [1])
add("avg_pool2d.default", f(2, 3, 9, 8), [3, 2], [2, 2], [1, 1], True, False)
add("avg_pool2d_backward.default", f(2, 3, 4, 4), f(2, 3, 9, 8), [3, 2], [2, 2], [0, 0], False,
    True, None)  # fmt: skip
add("avg_pool3d.default", f(1, 2, 5, 6, 7), [2, 2, 2])
add("max_pool2d_with_indices.default", f(2, 3, 9, 8), [3, 3], [2, 2], [1, 1])
add("max_pool2d_with_indices_backward.default", f(2, 3, 3, 2), f(2, 3, 6, 4), [2, 2], [2, 2],
    [0, 0], [1, 1], False,
    lambda: torch.nn.functional.max_pool2d(f(2, 3, 6, 4)(), 2, return_indices=True)[1])  # fmt: skip
add("max_pool3d_with_indices.default", f(1, 2, 4, 6, 6), [2, 2, 2])
add("upsample_bilinear2d.vec", f(2, 3, 4, 5), [8, 7], False, None)
add("upsample_bilinear2d.vec", f(2, 3, 4, 5), None, True, [2.0, 2.0])
add("upsample_nearest2d.vec", f(2, 3, 4, 5), [8, 7], None)
add("upsample_nearest2d.vec", f(2, 3, 4, 5), None, [2.0, 1.5])
add("grid_sampler_2d.default", f(2, 3, 5, 6), f(2, 4, 4, 2, low=-1, high=1), 0, 0, False)
add("_fft_r2c.default", f(3, 8), [1], 0, True)
add("_fft_c2r.default", f(3, 5, dtype=torch.complex64), [1], 0, 8)

# Their values are checked elsewhere: memory without values, and random numbers.
SHAPES_ONLY = {
    "empty.memory_format": lambda: (([2, 3],), {}),
    "empty_strided.default": lambda: (([2, 3], [1, 2]), {}),
    "rand.default": lambda: (([2, 3],), {}),
    "randn.default": lambda: (([2, 3],), {}),
    "randperm.default": lambda: ((7,), {}),
    "native_dropout.default": lambda: ((f(3, 4)(), 0.5, True), {}),
}
# Writes its statistics: aot_autograd makes it `_native_batch_norm_legit_functional`.
FUNCTIONAL = {"_native_batch_norm_legit.default": "_native_batch_norm_legit_functional.default"}
add("_native_batch_norm_legit_functional.default", f(2, 3, 4), f(3), f(3), f(3), f(3, low=0.5),
    True, 0.1, 1e-5)  # fmt: skip
# The other results are notes for its own gradient, which eager leaves empty or unwritten.
FIRST_ONLY = {"_embedding_bag.default"}
