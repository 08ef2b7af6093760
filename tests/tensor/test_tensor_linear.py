"""Matrix products, einsum, convolution and pooling against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ShapeError
from tests.tensor.check import EPSILON, NUMBERS, Cases, pair


@pytest.mark.parametrize("dtype", ("bool", *NUMBERS))
def test_matmul_dtypes(dtype):
    x, a = pair((3, 5), dtype, low=-2, high=2)
    y, b = pair((5, 4), dtype, low=-2, high=2, seed=1)
    wide = np.float64 if a.dtype.kind in "fV" else a.dtype
    near = 4 * EPSILON.get(dtype, 0)
    cases = Cases()
    cases.add("matmul", x @ y, (a.astype(wide) @ b.astype(wide)).astype(a.dtype), near, near)
    cases.run()


def test_matmul_shapes():
    cases = Cases()
    for left, right in [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((4, 2, 3), (3, 5)),
        ((4, 2, 3), (4, 3, 5)),
        ((2, 1, 2, 3), (4, 3, 5)),
        ((3,), (4, 3, 5)),
        ((4, 2, 3), (3,)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((1, 1), (1, 1)),
    ]:
        x, a = pair(left)
        y, b = pair(right, seed=1)
        cases.add(f"{left} {right}", x @ y, a @ b, rtol=1e-5, atol=1e-5)
    x, a = pair((2, 3))
    cases.add("array on the left", a.T @ x, a.T @ a, rtol=1e-5, atol=1e-5)
    cases.add("transposed", x @ x.T, a @ a.T, rtol=1e-5, atol=1e-5)
    cases.run()
    for left, right in [((2, 3), (2, 3)), ((), (3,)), ((2, 2, 3), (3, 3, 2))]:
        with pytest.raises(ShapeError):
            Tensor(np.ones(left, np.float32)) @ Tensor(np.ones(right, np.float32))


def test_relatives_of_matmul():
    x, a = pair((3, 4))
    y, b = pair((3, 4), seed=1)
    v, c = pair((4,), seed=2)
    cases = Cases()
    cases.add(
        "linear", x.linear(y, Tensor([1.0, 2.0, 3.0])), a @ b.T + [1, 2, 3], 1e-5, 1e-5, False
    )
    cases.add("outer", v.outer(v), np.outer(c, c))
    cases.add("vecdot", svod.vecdot(x, y), (a * b).sum(-1), 1e-5, 1e-5)
    cases.add("tensordot", x.tensordot(y, 2), np.tensordot(a, b, 2), 1e-5, 1e-5)
    cases.add("axes", x.tensordot(y, ((1,), (1,))), np.tensordot(a, b, ((1,), (1,))), 1e-5, 1e-5)
    cases.add("inner", x.inner(y), np.inner(a, b), 1e-5, 1e-5)
    cases.add("kron", x.kron(y), np.kron(a, b))
    cases.add("addmm", x.mT.addmm(v.outer(v), y.mT), a.T + np.outer(c, c) @ b.T, 1e-5, 1e-5)
    cases.add("cross", x[:, :3].cross(y[:, :3]), np.cross(a[:, :3], b[:, :3]), 1e-5, 1e-5)
    square = a[:, :3]
    wanted = np.linalg.matrix_power(square.astype(float), 3).astype("f")
    cases.add("matrix_power", Tensor(square).matrix_power(3), wanted, 1e-5, 1e-4)
    cases.run()


@pytest.mark.parametrize(
    "formula",
    [
        "ij,jk->ik", "ij,kj->ik", "ij->ji", "ij->", "ii->i", "ii", "ij,ij->i", "bij,bjk->bik",
        "i,j->ij", "...ij,...jk->...ik", "ij,jk,kl->il", "i->i", "bij,bij->b", "ij,j", "iij->ij",
        "...i->...",
    ],
)  # fmt: skip
def test_einsum(formula):
    sizes = {"i": 3, "j": 4, "k": 5, "l": 2, "b": 2}
    operands = []
    for place, term in enumerate(formula.split("->")[0].split(",")):
        shape = (2,) * ("..." in term) + tuple(sizes[c] for c in term.replace("...", ""))
        operands.append(pair(shape, seed=place))
    cases = Cases()
    wanted = np.einsum(formula, *[a.astype(np.float64) for _, a in operands])
    found = svod.einsum(formula, *[x for x, _ in operands])
    cases.add(formula, found, wanted.astype(np.float32), 1e-5, 1e-5)
    cases.run()


def test_einsum_errors():
    x = Tensor(np.ones((2, 3), np.float32))
    for formula in ("ijk->i", "ij->z", "ij,jk->ik", "ij->ii"):
        with pytest.raises(ShapeError, match="einsum"):
            svod.einsum(formula, x)
    with pytest.raises(ShapeError):
        svod.einsum("ij,ij->ij", x, x.T)


# -- convolution -------------------------------------------------------------------------------


def reference_convolution(a, w, stride, padding, dilation, groups):
    space = a.ndim - 2
    a = np.pad(a, [(0, 0), (0, 0)] + [(p, p) for p in padding]).astype(np.float64)
    kernel = w.shape[2:]
    outer = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(a.shape[2:], kernel, stride, dilation, strict=True)
    ]
    found = np.zeros((a.shape[0], w.shape[0], *outer))
    depth, per_group = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*[range(k) for k in kernel]):
        cut = tuple(
            slice(p * d, p * d + (o - 1) * s + 1, s)
            for p, d, o, s in zip(place, dilation, outer, stride, strict=True)
        )
        part = a[(slice(None), slice(None), *cut)]
        for g in range(groups):
            rows = slice(g * per_group, (g + 1) * per_group)
            weight = w[(rows, slice(None), *place)]
            inputs = part[:, g * depth : (g + 1) * depth]
            found[:, rows] += np.moveaxis(np.tensordot(inputs, weight, ((1,), (1,))), -1, 1)
    assert found.ndim == space + 2
    return found.astype(np.float32)


CONVOLUTIONS = [
    ((2, 3, 8), (4, 3, 3), 1, 0, 1, 1),
    ((2, 4, 9), (6, 2, 3), 2, 1, 1, 2),
    ((1, 3, 6, 7), (4, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 8, 8), (4, 1, 3, 3), 1, 1, 1, 4),
    ((1, 2, 9, 10), (3, 2, 3, 2), (2, 3), (1, 0), (2, 1), 1),
    ((2, 3, 5, 5), (4, 3, 1, 1), 1, 0, 1, 1),
    ((2, 3, 5, 5), (4, 3, 1, 1), 2, 0, 1, 1),
    ((1, 2, 8, 8), (2, 2, 2, 2), 2, 0, 1, 1),
    ((1, 2, 9, 9), (2, 2, 2, 2), 3, 0, 1, 1),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), 1, 1, 1, 1),
]


def spread(value, count):
    return value if isinstance(value, tuple) else (value,) * count


def test_convolution():
    cases = Cases()
    for shape, weights, stride, padding, dilation, groups in CONVOLUTIONS:
        x, a = pair(shape)
        w, b = pair(weights, seed=1)
        space = len(shape) - 2
        found = getattr(x, f"conv{space}d")(w, None, stride, padding, dilation, groups)
        sizes = [spread(v, space) for v in (stride, padding, dilation)]
        wanted = reference_convolution(a, b, *sizes, groups)
        cases.add(f"{shape} {weights} {stride} {padding}", found, wanted, 1e-5, 1e-4)
    x, a = pair((3, 6, 6))
    w, b = pair((2, 3, 3, 3), seed=1)
    bias, c = pair((2,), seed=2)
    wanted = reference_convolution(a[None], b, (1, 1), (1, 1), (1, 1), 1)[0] + c[:, None, None]
    cases.add("single with bias", x.conv2d(w, bias, padding="same"), wanted, 1e-5, 1e-4)
    cases.run()
    with pytest.raises(ShapeError, match="channels"):
        x.conv2d(Tensor(np.ones((2, 4, 3, 3), np.float32)))
    with pytest.raises(ShapeError, match="does not fit"):
        x.conv2d(Tensor(np.ones((2, 3, 7, 7), np.float32)))
    with pytest.raises(ShapeError):
        x.conv1d(w)


def reference_transposed(a, w, stride, padding, extra, dilation, groups):
    """Every input element adds its weights to the output."""
    kernel = w.shape[2:]
    inner = a.shape[2:]
    sizes = list(zip(inner, kernel, stride, dilation, strict=True))
    full = [(n - 1) * s + d * (k - 1) + 1 for n, k, s, d in sizes]
    per_group = w.shape[1]
    depth = a.shape[1] // groups
    grown = [n + e + p for n, e, p in zip(full, extra, padding, strict=True)]
    found = np.zeros((a.shape[0], per_group * groups, *grown))
    for place in itertools.product(*[range(k) for k in kernel]):
        cut = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, (n, _, s, d) in zip(place, sizes, strict=True)
        )
        for g in range(groups):
            inputs = a[:, g * depth : (g + 1) * depth].astype(np.float64)
            weight = w[(slice(g * depth, (g + 1) * depth), slice(None), *place)]
            rows = slice(g * per_group, (g + 1) * per_group)
            part = np.moveaxis(np.tensordot(inputs, weight, ((1,), (0,))), -1, 1)
            found[(slice(None), rows, *cut)] += part
    cuts = [slice(p, n - p + e) for p, n, e in zip(padding, full, extra, strict=True)]
    return found[(slice(None), slice(None), *cuts)].astype(np.float32)


def test_transposed_convolution():
    cases = Cases()
    for shape, weights, stride, padding, extra, groups, dilation in [
        ((2, 3, 5), (3, 4, 3), 2, 1, 1, 1, 1),
        ((1, 4, 4, 5), (4, 2, 3, 3), 1, 0, 0, 2, 1),
        ((1, 2, 3, 4), (2, 3, 2, 3), (2, 3), (1, 0), (0, 1), 1, (1, 2)),
        ((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), 2, 0, 0, 1, 1),
        ((1, 2, 3, 3), (2, 2, 1, 1), 2, 0, 0, 1, 1),
    ]:
        x, a = pair(shape)
        w, b = pair(weights, seed=1)
        space = len(shape) - 2
        method = getattr(x, f"conv_transpose{space}d")
        found = method(w, None, stride, padding, extra, groups, dilation)
        sizes = [spread(v, space) for v in (stride, padding, extra, dilation)]
        wanted = reference_transposed(a, b, *sizes, groups)
        cases.add(f"{shape} {weights}", found, wanted, 1e-5, 1e-4)
    cases.run()


def reference_pool(a, kernel, stride, padding, function, fill, ceil=False, dilation=1):
    space = a.ndim - 2
    found = np.pad(
        a.astype(np.float64), [(0, 0)] * 2 + [(padding, padding)] * space, constant_values=fill
    )
    span = dilation * (kernel - 1) + 1
    places = []
    for n, size in zip(a.shape[2:], found.shape[2:], strict=True):
        starts = [
            s
            for s in range(0, size, stride)
            if s + span <= size or (ceil and s < n + padding)
        ]  # fmt: skip
        places.append(starts)
    out = np.empty((*a.shape[:2], *[len(p) for p in places]))
    for place in itertools.product(*[enumerate(p) for p in places]):
        cut = tuple(slice(s, s + span, dilation) for _, s in place)
        part = found[(slice(None), slice(None), *cut)]
        out[(slice(None), slice(None), *[i for i, _ in place])] = function(
            part, tuple(range(2, a.ndim))
        )
    return out.astype(np.float32)


def test_pooling():
    cases = Cases()
    for shape, kernel, stride, padding, ceil in [
        ((2, 3, 9), 2, 2, 0, False),
        ((1, 2, 7, 8), 3, 2, 1, False),
        ((1, 2, 7, 7), 3, 2, 1, True),
        ((1, 2, 8, 8), 3, 2, 0, True),
        ((1, 2, 6, 6), 2, 3, 0, False),
        ((1, 1, 4, 4, 5), 2, 1, 1, False),
    ]:
        x, a = pair(shape)
        name = f"{shape} {kernel} {stride} {padding} {ceil}"
        space = len(shape) - 2
        found = getattr(x, f"max_pool{space}d")(kernel, stride, padding, ceil_mode=ceil)
        wanted = reference_pool(a, kernel, stride, padding, np.max, -np.inf, ceil)
        cases.add("max " + name, found, wanted)
        average = getattr(x, f"avg_pool{space}d")
        found = average(kernel, stride, padding, ceil_mode=ceil, count_include_pad=False)
        wanted = reference_pool(a, kernel, stride, padding, np.nanmean, np.nan, ceil)
        cases.add("mean without padding " + name, found, wanted, 1e-5, 1e-5)
        found = average(kernel, stride, padding, ceil_mode=ceil)
        wanted = reference_pool(a, kernel, stride, padding, np.mean, 0, ceil)
        cases.add("mean " + name, found, wanted, 1e-5, 1e-5)
    x, a = pair((1, 2, 6, 6))
    values, places = x.max_pool2d(3, 2, return_indices=True)
    flat = a.reshape(1, 2, 36)
    wanted = reference_pool(a, 3, 2, 0, np.max, 0)
    cases.add("pool values", values, wanted)
    picked = Tensor(flat).gather(2, places.flatten(2))
    cases.add("pool places", picked.reshape(values.shape), wanted)
    for size in (1, 2, 3, 4, 5):
        edges = [(p * 6 // size, -(-(p + 1) * 6 // size)) for p in range(size)]
        blocks = [[a[:, :, r:s, t:u] for t, u in edges] for r, s in edges]
        mean = np.array([[b.mean((2, 3)) for b in row] for row in blocks]).transpose(2, 3, 0, 1)
        cases.add(f"adaptive {size}", x.adaptive_avg_pool2d(size), mean, 1e-5, 1e-5)
        top = np.array([[b.max((2, 3)) for b in row] for row in blocks]).transpose(2, 3, 0, 1)
        cases.add(f"adaptive max {size}", x.adaptive_max_pool2d(size), top)
    cases.run()
    with pytest.raises(ShapeError, match="half"):
        x.max_pool2d(2, padding=2)


@pytest.mark.parametrize("left, right", [("int8", "int8"), ("uint8", "int8"), ("int16", "uint8")])
def test_matmul_sums_in_the_dtype_it_is_asked_for(left, right):
    rng = np.random.default_rng(0)
    a = rng.integers(*np.array([np.iinfo(left).min, np.iinfo(left).max]), (24, 40)).astype(left)
    b = rng.integers(*np.array([np.iinfo(right).min, np.iinfo(right).max]), (40, 24)).astype(right)
    got = Tensor(a).matmul(Tensor(b), dtype=svod.int32)
    assert got.dtype is svod.int32
    np.testing.assert_array_equal(got.numpy(), a.astype(np.int32) @ b.astype(np.int32))


def test_matmul_of_bools_counts_where_the_dtype_is_wider():
    x = np.ones((3, 5), bool)
    assert Tensor(x).matmul(Tensor(x.T.copy()), dtype=svod.int32).numpy().max() == 5
    half = Tensor(np.full((2, 3), 0.1)).cast(svod.bfloat16)
    assert half.matmul(half.T, dtype=svod.float32).dtype is svod.float32
