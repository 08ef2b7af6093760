"""Matrix functions under torch's names, against NumPy and against what defines them."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor, linalg
from svod.base.errors import ShapeError

SHAPES = [(1, 1), (3, 3), (2, 4, 4)]


def _pair(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, np.ndarray]:
    array = np.random.default_rng(seed).normal(size=shape)
    return Tensor(array), array


def _close(mine: Tensor, wanted: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(mine.numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_methods(shape):
    x, a = _pair(shape)
    _close(x.det(), np.linalg.det(a))
    _close(x.slogdet().logabsdet, np.linalg.slogdet(a)[1])
    _close(x.inverse(), np.linalg.inv(a))
    _close(x.pinverse(), np.linalg.pinv(a))
    sign, size = np.linalg.slogdet(a)
    _close(x.logdet(), np.where(sign < 0, np.nan, size))
    q, r = x.qr()
    _close(q @ r, a)
    left, values, right = x.svd()
    _close((left * values.unsqueeze(-2)) @ right.mT, a)
    assert svod.det(x).tolist() == x.det().tolist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_and_what_uses_it(shape, upper):
    x, a = _pair(shape)
    definite = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])
    factor = Tensor(definite).cholesky(upper)
    product = factor.mT @ factor if upper else factor @ factor.mT
    _close(product, definite)
    _close(x.cholesky_solve(factor, upper), np.linalg.solve(definite, a))
    _close(factor.cholesky_inverse(upper), np.linalg.inv(definite))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_solve_triangular(upper, left, unit):
    x, a = _pair((2, 4, 4))
    b, right = _pair((2, 4, 4), 1)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        triangle = triangle * (1 - np.eye(4)) + np.eye(4)
    found = linalg.solve_triangular(x, b, upper=upper, left=left, unitriangular=unit).numpy()
    product = triangle @ found if left else found @ triangle
    np.testing.assert_allclose(product, right, atol=1e-8)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 40.0])
def test_matrix_exp_of_rotations_and_diagonals(scale):
    turn = np.array([[0.0, -scale], [scale, 0.0]])
    wanted = [[np.cos(scale), -np.sin(scale)], [np.sin(scale), np.cos(scale)]]
    _close(Tensor(turn).matrix_exp(), wanted, 1e-9)
    line = np.array([0.5, -1.0, 0.1]) * scale
    _close(linalg.matrix_exp(Tensor(np.diag(line))), np.diag(np.exp(line)), 1e-9)
    both = Tensor(np.stack([turn, turn * 0]))
    _close(both.matrix_exp(), np.stack([wanted, np.eye(2)]), 1e-9)


def test_matrix_exp_of_float32_and_of_nan():
    x = Tensor(np.array([[1.0, 2.0], [0.0, 1.0]], np.float32))
    found = x.matrix_exp()
    assert found.dtype == svod.float32
    _close(found, [[np.e, 2 * np.e], [0, np.e]], 1e-6)
    assert np.isnan(Tensor([[np.inf]]).matrix_exp().item())


def test_gradient_of_matrix_exp():
    x, a = _pair((3, 3))
    weights = np.random.default_rng(1).normal(size=(3, 3))
    x.requires_grad_()
    (x.matrix_exp() * Tensor(weights)).sum().backward()
    for place in [(0, 0), (1, 2)]:
        ends = []
        for step in (1e-6, -1e-6):
            moved = a.copy()
            moved[place] += step
            ends.append((Tensor(moved).matrix_exp().numpy() * weights).sum())
        np.testing.assert_allclose(x.grad.numpy()[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norm_and_cond(order):
    x, a = _pair((3, 4, 4))
    _close(linalg.cond(x, order), np.linalg.cond(a, order))
    for axes in ((-2, -1), (0, 2)):
        for keep in (False, True):
            wanted = np.linalg.norm(a, order, axes, keep)
            _close(linalg.norm(x, order, axes, keep), wanted)
    assert linalg.norm(x[0], order).shape == ()


def test_norm_of_vectors():
    x, a = _pair((3, 4))
    _close(linalg.norm(x), np.linalg.norm(a))
    _close(linalg.norm(x, 3, 1, True), np.linalg.norm(a, 3, 1, True))
    _close(linalg.norm(x[0], 1), np.linalg.norm(a[0], 1))
    with pytest.raises(ShapeError, match="a vector or a matrix"):
        linalg.norm(svod.ones(2, 2, 2), 2)


def test_multi_dot():
    arrays = [_pair(s, i)[1] for i, s in enumerate([(3,), (3, 5), (5, 2), (2, 7), (7,)])]
    _close(linalg.multi_dot([Tensor(a) for a in arrays]), np.linalg.multi_dot(arrays))
    _close(linalg.multi_dot([Tensor(a) for a in arrays[1:4]]), np.linalg.multi_dot(arrays[1:4]))
    with pytest.raises(ShapeError, match="at least 2"):
        linalg.multi_dot([svod.eye(2)])


def test_lstsq():
    x, a = _pair((6, 3))
    y, b = _pair((6, 2), 1)
    solution, residuals, rank, values = np.linalg.lstsq(a, b)
    found = linalg.lstsq(x, y)
    _close(found.solution, solution)
    _close(found.residuals, residuals)
    _close(found.singular_values, values)
    assert found.rank.item() == rank
    _close(linalg.lstsq(x, y[:, 0]).solution, solution[:, 0])


@pytest.mark.parametrize("rows", [4, 3, 2])
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_lstsq_with_a_driver_gives_what_torch_gives_for_it(driver, rows):
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((rows, 3)), rng.standard_normal((rows, 2))
    solution, residuals, rank, values = np.linalg.lstsq(a, b, rcond=None)
    found = linalg.lstsq(Tensor(a), Tensor(b), driver=driver)
    _close(found.solution, solution)
    assert found.residuals.shape == ((2,) if rows > 3 and driver != "gelsy" else (0,))
    if found.residuals.shape[0]:
        _close(found.residuals, residuals)
    assert found.rank.tolist() == ([] if driver == "gels" else rank)
    assert found.singular_values.tolist() == pytest.approx(
        values.tolist() if driver in ("gelsd", "gelss") else []
    )


def test_lstsq_refuses_an_unknown_driver():
    with pytest.raises(ValueError, match="driver is one of gels, gelsy, gelsd, gelss, not 'qr'"):
        linalg.lstsq(Tensor(np.eye(2)), Tensor(np.eye(2)), driver="qr")
