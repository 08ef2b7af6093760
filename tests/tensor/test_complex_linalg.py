"""Sums, products, moments and linear algebra of complex numbers against NumPy, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, linalg

RNG = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def turned(a: np.ndarray) -> np.ndarray:
    return a.conj().swapaxes(-1, -2)


A = numbers(2, 4, 4)
HERMITIAN = A + turned(A)
POSITIVE = A @ turned(A) + 3 * np.eye(4)
TALL, WIDE = numbers(2, 5, 3), numbers(3, 5)


def check(found: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.numpy().dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_folds(axis: Any, keepdims: bool) -> None:
    z = numbers(3, 2, 4)
    x = Tensor(z)
    for name in ("sum", "prod", "mean", "var", "std", "any", "all", "count_nonzero"):
        found = getattr(svod, name)(x, axis=axis, keepdims=keepdims)
        check(found, getattr(np, name)(z, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_folds_of_nothing(shape: tuple[int, ...]) -> None:
    z = np.zeros(shape, np.complex128)
    x = Tensor(z)
    for axis in (None, *range(len(shape))):
        check(svod.sum(x, axis=axis), z.sum(axis=axis))
        check(svod.prod(x, axis=axis), z.prod(axis=axis))
    check(x + 1, z + 1)
    check(x.exp(), np.exp(z))


@pytest.mark.parametrize("size", [1, 2, 7, 64, 333])
def test_running_sums_and_products(size: int) -> None:
    z = np.exp(1j * RNG.standard_normal((2, size)))
    x = Tensor(z)
    check(x.cumsum(1), z.cumsum(1))
    check(x.cumprod(1), z.cumprod(1))
    check(svod.cumulative_prod(x, axis=1), z.cumprod(1))
    check(svod.cumulative_sum(x, axis=0), z.cumsum(0))
    check(x.prod(1), z.prod(1))


def test_products() -> None:
    a, b, v = numbers(2, 3, 4), numbers(2, 4, 3), numbers(4)
    r = RNG.standard_normal((4, 3))
    check(Tensor(a) @ Tensor(b), a @ b)
    check(Tensor(a) @ Tensor(r), a @ r)
    check(Tensor(r) @ Tensor(a[0]), r @ a[0])
    check(Tensor(a) @ Tensor(v), a @ v)
    check(svod.matmul(Tensor(a), b), a @ b)
    check(
        svod.tensordot(Tensor(a), Tensor(b), ([2, 0], [1, 0])), np.tensordot(a, b, ([2, 0], [1, 0]))
    )
    check(svod.vecdot(Tensor(a), Tensor(a[:1])), np.vecdot(a, a[:1]))
    check(svod.vecdot(Tensor(r), Tensor(r * 1j)), np.vecdot(r, r * 1j))
    check(Tensor(v).vdot(Tensor(v * 1j)), np.vdot(v, v * 1j))
    check(svod.einsum("bij,bjk->kb", Tensor(a), Tensor(b)), np.einsum("bij,bjk->kb", a, b))
    check(svod.kron(Tensor(a[0]), Tensor(b[0])), np.kron(a[0], b[0]))
    check(svod.outer(Tensor(v), Tensor(v)), np.outer(v, v))
    check(linalg.cross(Tensor(r), Tensor(r * 1j)), np.cross(r, r * 1j))
    check(linalg.trace(Tensor(A)), np.trace(A, axis1=1, axis2=2))
    check(svod.inner(Tensor(v), Tensor(v)), np.inner(v, v))
    check(Tensor(A).mH, turned(A))
    check(Tensor(A[0]).H, A[0].conj().T)
    check(Tensor(A).adjoint(), turned(A))


def test_a_complex_product_is_four_contractions() -> None:
    a, b = Tensor(numbers(64, 64)), Tensor(numbers(64, 64))
    plan = (a @ b).prepare()
    plan.execute()
    assert len(plan.prepared_kernels()) <= 5


def test_factorisations() -> None:
    check(linalg.det(Tensor(A)), np.linalg.det(A))
    sign, size = linalg.slogdet(Tensor(A))
    check(sign, np.linalg.slogdet(A)[0])
    check(size, np.linalg.slogdet(A)[1])
    check(Tensor(A).logdet().exp(), np.linalg.det(A))
    check(linalg.inv(Tensor(A)), np.linalg.inv(A))
    check(linalg.solve(Tensor(A), Tensor(numbers(4))).unsqueeze(-1).sum() * 0, np.complex128(0))
    b = numbers(2, 4, 3)
    check(linalg.solve(Tensor(A), Tensor(b)), np.linalg.solve(A, b))
    check(linalg.solve(Tensor(A), Tensor(b.real)), np.linalg.solve(A, b.real))
    check(linalg.solve(Tensor(A.real), Tensor(b)), np.linalg.solve(A.real, b))
    lower = np.linalg.cholesky(POSITIVE)
    check(linalg.cholesky(Tensor(POSITIVE)), lower)
    check(linalg.cholesky(Tensor(POSITIVE), upper=True), turned(lower))
    check(Tensor(b).cholesky_solve(Tensor(lower)), np.linalg.solve(POSITIVE, b))
    check(Tensor(lower).cholesky_inverse(), np.linalg.inv(POSITIVE))
    check(Tensor(turned(lower)).cholesky_inverse(upper=True), np.linalg.inv(POSITIVE))
    check(linalg.matrix_power(Tensor(A), -2), np.linalg.matrix_power(A, -2))
    check(linalg.matrix_power(Tensor(A), 3), np.linalg.matrix_power(A, 3))
    check(linalg.pinv(Tensor(TALL)), np.linalg.pinv(TALL))
    check(linalg.matrix_rank(Tensor(TALL)), np.linalg.matrix_rank(TALL))
    half = linalg.matrix_exp(Tensor(A * 0.5))
    check(half @ half, linalg.matrix_exp(Tensor(A)).numpy())
    solution = linalg.lstsq(Tensor(TALL[0]), Tensor(b[0, :1].repeat(5, 0)))[0]
    check(solution, np.linalg.lstsq(TALL[0], b[0, :1].repeat(5, 0), rcond=None)[0])


def test_decompositions_rebuild_the_matrix() -> None:
    values, vectors = linalg.eigh(Tensor(HERMITIAN))
    check(values, np.linalg.eigvalsh(HERMITIAN))
    check(vectors @ (values.unsqueeze(-1) * vectors.mH), HERMITIAN)
    check(linalg.eigvalsh(Tensor(HERMITIAN)), np.linalg.eigvalsh(HERMITIAN))
    for m in (TALL, WIDE):
        for full in (False, True):
            left, size, right = linalg.svd(Tensor(m), full_matrices=full)
            k = min(m.shape[-2:])
            check(size, np.linalg.svd(m)[1])
            check(left[..., :k] * size.unsqueeze(-2) @ right[..., :k, :], m)
        q, r = linalg.qr(Tensor(m))
        check(q @ r, m)
        check(q.mH @ q, np.broadcast_to(np.eye(k), (*m.shape[:-2], k, k)) + 0j)
        check(linalg.svdvals(Tensor(m)), np.linalg.svd(m)[1])


@pytest.mark.parametrize("matrix", [A, A.real, HERMITIAN, np.diag([1.0, 2.0, 2.0])])
def test_eigenvalues_of_any_matrix(matrix: np.ndarray) -> None:
    values, vectors = linalg.eig(Tensor(matrix))
    assert values.dtype is vectors.dtype is svod.complex128
    check(Tensor(matrix) @ vectors + 0j, (vectors * values.unsqueeze(-2)).numpy())
    found, wanted = linalg.eigvals(Tensor(matrix)).numpy(), np.linalg.eigvals(matrix)
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(wanted), rtol=1e-10)
    assert linalg.eigvals(Tensor(matrix.astype(np.complex64))).dtype is svod.complex64


def test_norms() -> None:
    for order in ("fro", "nuc", 1, 2, np.inf, -1, -2, -np.inf):
        check(linalg.matrix_norm(Tensor(TALL), ord=order), np.linalg.matrix_norm(TALL, ord=order))
    for order in (0, 1, 2, 3, 0.5, np.inf, -1, -np.inf):
        check(linalg.vector_norm(Tensor(TALL), ord=order), np.linalg.vector_norm(TALL, ord=order))
        found = linalg.vector_norm(Tensor(TALL), ord=order, axis=1)
        check(found, np.linalg.vector_norm(TALL, ord=order, axis=1))


def test_sets_and_places() -> None:
    z = np.array([2j, 1, 0, 2j, 1 + 1j])
    x = Tensor(z)
    check(svod.unique_values(x), np.unique(z))
    found = svod.unique_all(x)
    wanted = np.unique(z, return_index=True, return_inverse=True, return_counts=True)
    for a, b in zip(found, wanted, strict=True):
        check(a, b)
    check(svod.nonzero(x)[0], np.nonzero(z)[0])
    check(svod.isin(x, Tensor([2j, 5])), np.isin(z, [2j, 5]))
    check(x[x == 2j], z[z == 2j])
    check(svod.where(x == 0, 1j, x), np.where(z == 0, 1j, z))
    check(svod.take(x, Tensor([3, 1])), z[[3, 1]])


# -- gradients by differences of both parts -------------------------------------------------------


def differences(loss: Callable[[np.ndarray], float], z: np.ndarray, h: float = 1e-6) -> np.ndarray:
    found = np.zeros_like(z)
    for place in np.ndindex(z.shape):
        for unit in (1, 1j):
            step = np.zeros_like(z)
            step[place] = h * unit
            found[place] += unit * (loss(z + step) - loss(z - step)) / (2 * h)
    return found


M = numbers(3, 3)
LOSSES: dict[str, tuple[np.ndarray, Callable[[Any], Any]]] = {
    "det": (M, lambda x: (linalg.det(x) * (1 + 2j)).real),
    "slogdet sign": (M, lambda x: (linalg.slogdet(x)[0] * (2 - 1j)).real),
    "slogdet size": (M, lambda x: linalg.slogdet(x)[1]),
    "inv": (M, lambda x: (linalg.inv(x) * (1 - 1j)).real.sum()),
    "solve": (M, lambda x: (linalg.solve(x, x.conj() + 1) * 1j).real.sum()),
    "cholesky": (M, lambda x: linalg.cholesky(x @ x.mH + 2 * svod.eye(3)).abs().sum()),
    "eigh": (M, lambda x: (linalg.eigh(x + x.mH)[0] * Tensor([1.0, 2.0, 4.0])).sum()),
    "eigh vectors": (M, lambda x: (linalg.eigh(x + x.mH)[1].abs() ** 4).sum()),
    "eig": (M, lambda x: (linalg.eigvals(x) ** 2 * 1j).real.sum()),
    "eig vectors": (M, lambda x: (linalg.eig(x)[1].abs() ** 4).sum()),
    "svd": (M, lambda x: (linalg.svd(x)[1] ** 3).sum()),
    "svd vectors": (M[:, :2], lambda x: (linalg.svd(x, full_matrices=False)[0].abs() ** 4).sum()),
    "qr": (M, lambda x: (linalg.qr(x)[1].abs() ** 2 * Tensor([1.0, 2.0, 3.0])).sum()),
    "qr q": (M, lambda x: (linalg.qr(x)[0].abs() ** 4).sum()),
    "matrix_exp": (M, lambda x: (linalg.matrix_exp(x * 0.3) * 1j).real.sum()),
    "pinv": (M[:, :2], lambda x: (linalg.pinv(x) * (1 + 1j)).real.sum()),
    "matmul": (M, lambda x: (x @ x.mT @ x.conj()).imag.sum()),
    "prod": (M, lambda x: (x.prod() * 1j).real + x.prod(1).real.sum()),
    "cumprod": (M, lambda x: (x.cumprod(1) * 1j).real.sum()),
    "norm": (M, lambda x: x.norm() + x.norm(1)),
    "var": (M, lambda x: x.var() + x.std(0).sum()),
    "power": (M, lambda x: (x ** x.conj()).real.sum() + (2.0**x).real.sum()),
    "quotient": (M, lambda x: (x / (x + 2j)).real.sum() + (1 / x).imag.sum()),
    "angle": (M, lambda x: x.angle().sum() + x.abs().sum() + x.sgn().real.sum()),
}


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_gradients(name: str) -> None:
    z, loss = LOSSES[name]
    x = Tensor(z).requires_grad_()
    loss(x).backward()
    wanted = differences(lambda v: float(loss(Tensor(v)).item()), z)
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "asin", "atanh", "sigmoid"])
def test_second_derivatives(name: str) -> None:
    z = numbers(4)
    x = Tensor(z)
    first = svod.grad(lambda v: getattr(v, name)().real.sum())

    def slope(v: Any) -> Any:
        return (first(v) * (1 - 2j)).real.sum()

    found = svod.grad(slope)(x).numpy()
    wanted = differences(lambda v: float(slope(Tensor(v)).item()), z)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_a_complex_weight_is_trained() -> None:
    target = np.array([1 + 2j, -1j])
    w = Tensor(np.zeros(2, np.complex128)).requires_grad_()
    for _ in range(60):
        w.grad = None
        ((w - Tensor(target)).abs() ** 2).sum().backward()
        with svod.no_grad():
            w -= w.grad * 0.2
    np.testing.assert_allclose(w.numpy(), target, atol=1e-8)


def test_custom_gradients_see_complex_numbers() -> None:
    seen = []

    @svod.custom_gradient
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    @doubled.backward
    def _(grad: Tensor, output: Tensor, x: Tensor) -> Tensor:
        seen.extend([grad.dtype, output.dtype, x.dtype])
        return grad * 5j

    x = Tensor([1 + 1j]).requires_grad_()
    doubled(x).real.sum().backward()
    assert x.grad.tolist() == [5j] and set(seen) == {svod.complex64}
