"""Keywords that programs written for torch use, and functions that two standards share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.autograd import grad
from svod.base.errors import ArgumentError, DTypeError
from svod.tensor.gradients.reverse_mode import GradientError

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: svod.zeros(2, **k),
        lambda **k: svod.ones((2, 3), **k),
        lambda **k: svod.full((2,), 1.5, **k),
        lambda **k: svod.empty(size=(2,), **k),
        lambda **k: svod.arange(3.0, **k),
        lambda **k: svod.linspace(0, 1, steps=3, **k),
        lambda **k: svod.logspace(0, 1, 3, **k),
        lambda **k: svod.eye(3, **k),
        lambda **k: svod.rand(3, pin_memory=False, **k),
        lambda **k: svod.randn(size=(3, 2), **k),
        lambda **k: svod.normal(0.0, 1.0, (3,), **k),
        lambda **k: svod.zeros_like(Tensor(ROWS), **k),
        lambda **k: svod.randn_like(Tensor(ROWS), device="CPU", **k),
        lambda **k: svod.signal.windows.hann(4, **k),
        lambda **k: svod.scalar_tensor(2.0, **k),
        lambda **k: Tensor(ROWS).new_zeros((2,), device="CPU", **k),
        lambda **k: Tensor(ROWS).new_tensor([1.0], **k),
        lambda **k: Tensor.zeros(2, **k),
    ],
)
def test_a_constructor_makes_a_leaf_when_it_is_asked_to(make: Any) -> None:
    leaf = make(requires_grad=True)
    assert leaf.requires_grad and leaf.is_leaf
    assert not make().requires_grad and not make(requires_grad=False).requires_grad
    (leaf * 3).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(leaf.shape, 3.0))


def test_other_functions_take_no_requires_grad() -> None:
    with pytest.raises(ArgumentError, match="requires_grad"):
        svod.sum(Tensor(ROWS), requires_grad=True)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda x: svod.flip(x, dims=(0,)), ROWS[::-1]),
        (lambda x: x.flip(dims=(0, 1)), ROWS[::-1, ::-1]),
        (lambda x: x.permute(dims=(1, 0)), ROWS.T),
        (lambda x: svod.permute(x, dims=(1, 0)), ROWS.T),
        (lambda x: x.expand(size=(2, 2, 3)), np.broadcast_to(ROWS, (2, 2, 3))),
        (lambda x: x.view(size=(3, 2)), ROWS.reshape(3, 2)),
        (lambda x: x.reshape(shape=(6,)), ROWS.ravel()),
        (lambda x: x.repeat(repeats=(2, 1)), np.tile(ROWS, (2, 1))),
        (lambda x: svod.tile(x, dims=(2, 1)), np.tile(ROWS, (2, 1))),
        (lambda x: svod.sum(input=x, dim=1), ROWS.sum(1)),
        (lambda x: svod.linalg.solve(A=svod.eye(2), B=x), ROWS),
        (lambda x: svod.arange(0, end=3), np.arange(3)),
        (lambda x: svod.arange(end=3), np.arange(3)),
        (lambda x: svod.arange(start=1, end=7, step=2), np.arange(1, 7, 2)),
        (lambda x: svod.linspace(start=0, end=1, steps=5), np.linspace(0, 1, 5, dtype=np.float32)),
        (lambda x: svod.eye(n=2, m=3), np.eye(2, 3, dtype=np.float32)),
        (lambda x: svod.cat([svod.zeros(0), x, svod.zeros(0)], dim=1), ROWS),
        (lambda x: svod.cat([svod.zeros(0), svod.zeros(0)]), np.zeros(0, np.float32)),
    ],
)
def test_torch_keywords_say_what_they_say_in_torch(found: Any, wanted: Any) -> None:
    got = found(Tensor(ROWS))
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got.numpy(), wanted)


def test_to_takes_torch_keywords_and_copies_when_asked() -> None:
    x = Tensor(ROWS)
    assert x.to("CPU", non_blocking=True) is x
    assert x.to("CPU", svod.float32, True, False) is x
    assert x.to(svod.float32, False, True) is not x
    assert x.to(svod.float64, non_blocking=True, memory_format=None).dtype is svod.float64
    twin = x.to(svod.float32, copy=True)
    assert twin is not x
    twin += 1
    np.testing.assert_array_equal(x.numpy(), ROWS)
    np.testing.assert_array_equal(twin.numpy(), ROWS + 1)


def test_rows_that_are_equal_are_one_of_unique() -> None:
    rows = np.array([[3, 4], [1, 2], [3, 4]])
    for axis in (0, 1, -1):
        values, inverse, counts = Tensor(rows).unique(
            dim=axis, return_inverse=True, return_counts=True
        )
        want = np.unique(rows, return_inverse=True, return_counts=True, axis=axis)
        np.testing.assert_array_equal(values.numpy(), want[0])
        np.testing.assert_array_equal(inverse.numpy(), want[1].ravel())
        np.testing.assert_array_equal(counts.numpy(), want[2])


def test_torch_keywords_choose_the_function_of_torch() -> None:
    x = Tensor(ROWS)
    for name in ("max", "min"):
        pair = getattr(svod, name)(x, dim=1, keepdim=True)
        assert pair.values.shape == pair.indices.shape == (2, 1)
        plain = getattr(svod, name)(x, axis=1)
        np.testing.assert_array_equal(plain.numpy(), pair.values.numpy()[:, 0])
        assert isinstance(getattr(svod, name)(x, 1), Tensor)
        assert getattr(svod, name)(x, other=x * 2).shape == x.shape
    values, places = svod.sort(x, dim=1, descending=True)
    np.testing.assert_array_equal(values.numpy(), ROWS[:, ::-1])
    assert places.dtype is svod.int64 and isinstance(svod.sort(x, axis=1), Tensor)
    for name in ("std", "var"):
        of = getattr(svod, name)
        exact = getattr(np, name)
        for found in (of(x, dim=1), of(x, 1), of(x, dim=1, unbiased=True)):
            np.testing.assert_allclose(found.numpy(), exact(ROWS, 1, ddof=1), rtol=1e-6)
        for found in (of(x, axis=1), of(x, dim=1, unbiased=False), of(x, dim=1, correction=0)):
            np.testing.assert_allclose(found.numpy(), exact(ROWS, 1), rtol=1e-6)
    assert svod.nonzero(x, as_tuple=False).shape == (5, 2)
    assert len(svod.nonzero(x)) == len(svod.where(x > 0)) == 2


def test_scalars_are_vectors_of_one_element_for_indices() -> None:
    five, zero, one = Tensor(5.0), Tensor(0), Tensor(3.0)
    found = [
        five.index_select(0, zero),
        five.gather(0, zero),
        five.take_along_dim(zero, 0),
        five.scatter(0, zero, one),
        five.scatter_add(0, zero, one),
        five.scatter_reduce(0, zero, one, "prod"),
        five.index_add(0, zero, one),
        five.index_copy(0, Tensor([0]), Tensor([3.0])),
        five.index_fill(0, zero, 3.0),
        five.index_reduce(0, Tensor([0]), Tensor([3.0]), "prod"),
        Tensor([1.0, 2.0]).gather(0, Tensor(1)),
    ]
    assert [t.shape for t in found] == [()] * len(found)
    assert [t.item() for t in found] == [5, 5, 5, 3, 8, 15, 8, 3, 3, 15, 2]
    line = Tensor([1.0, 2.0, 3.0])
    assert line.index_add(0, Tensor(1), one).tolist() == [1, 5, 3]
    assert line.index_fill(0, Tensor(1), Tensor(9.0)).tolist() == [1, 9, 3]
    assert line.scatter(0, Tensor(2), one).tolist() == [1, 2, 3]


def test_results_that_depend_on_nothing_have_gradients_of_zero() -> None:
    x = Tensor(ROWS, requires_grad=True)
    nothing = svod.linalg.inv(Tensor(np.zeros((0, 0), np.float32), requires_grad=True)).sum()
    for loss in (svod.fill(x, 2.0).sum(), nothing):
        (found,) = grad(loss, [x])
        assert found is not None
        np.testing.assert_array_equal(found.numpy(), np.zeros((2, 3)))
    loss = (svod.fill(x, 2.0) * Tensor(ROWS)).sum()
    assert grad(loss, [x], allow_unused=True) == (None,)
    with pytest.raises(GradientError, match="does not require a gradient"):
        grad(loss, [x])


def test_bools_are_close_when_they_are_equal() -> None:
    a, b = Tensor([True, False]), Tensor([True, True])
    assert a.isclose(b).tolist() == [True, False]
    assert svod.allclose(a, a) and not svod.allclose(a, b)


def test_complex_numbers_have_softmax_logsumexp_covariance_and_casts() -> None:
    z = np.array([[1 + 2j, 3 - 1j, 0.5j], [2j, 1, -1 - 1j]], np.complex64)
    x = Tensor(z)
    grown = np.exp(z)
    np.testing.assert_allclose(x.softmax(1).numpy(), grown / grown.sum(1, keepdims=True), 1e-5)
    np.testing.assert_allclose(np.exp(x.logsumexp(1).numpy()), grown.sum(1), 1e-5)
    np.testing.assert_allclose(x.cov().numpy(), np.cov(z), 1e-5)
    np.testing.assert_allclose(x.corrcoef().numpy(), np.corrcoef(z), 1e-5)
    with pytest.warns(UserWarning, match="imaginary"):
        np.testing.assert_array_equal(x.float().numpy(), z.real)
    with pytest.warns(UserWarning, match="imaginary"):
        np.testing.assert_array_equal(x.to(svod.int64).numpy(), z.real.astype(np.int64))
    with pytest.raises(DTypeError, match="take real or imag"):
        svod.astype(x, svod.float32)


def test_batches_of_vectors_are_solved_one_by_one() -> None:
    a = np.random.default_rng(0).normal(size=(4, 3, 3))
    b = np.random.default_rng(1).normal(size=(4, 3))
    want = np.stack([np.linalg.solve(m, v) for m, v in zip(a, b, strict=True)])
    np.testing.assert_allclose(svod.linalg.solve(Tensor(a), Tensor(b)).numpy(), want, rtol=1e-9)
    square = svod.linalg.solve(Tensor(a[:3]), Tensor(b[:3]))  # fits as one matrix: it is one
    np.testing.assert_allclose(square.numpy(), np.linalg.solve(a[:3], b[:3]), rtol=1e-9)


def test_one_triangle_of_a_hermitian_matrix_is_read() -> None:
    a = np.array([[2.0, 9.0], [1.0, 3.0]])
    for triangle in ("L", "U"):
        found = svod.linalg.eigh(Tensor(a), UPLO=triangle)
        np.testing.assert_allclose(found.eigenvalues.numpy(), np.linalg.eigvalsh(a, triangle))


def test_singular_matrices_are_reported_where_functions_report() -> None:
    a = np.stack([np.eye(2), np.ones((2, 2))])
    inverse, info = svod.linalg.inv_ex(Tensor(a))
    assert info.tolist() == [0, 2]
    np.testing.assert_array_equal(inverse.numpy()[0], np.eye(2))
    assert np.isnan(inverse.numpy()[1]).all()
    factor, info = svod.linalg.cholesky_ex(Tensor(np.stack([np.eye(2), -np.eye(2)])))
    assert info.tolist() == [0, 1] and np.isnan(factor.numpy()[1]).all()
    with pytest.raises(svod.errors.ExecutionError, match="singular"):
        svod.linalg.lu_factor(Tensor(a)).LU.realize()
