"""svod.linalg: values against the reference, identities, errors and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import svod
from svod import Tensor, linalg
from tests.array_api import reference as R
from tests.array_api.reference import FLOATS, NUMBERS, check, quick

_CLOSE = {"rtol": 1e-3, "atol": 1e-3}
_ORDERS = [0, 1, 2, 3.5, svod.inf, -svod.inf, -1]
_MATRIX_ORDERS = ["fro", "nuc", 1, -1, 2, -2, svod.inf, -svod.inf]


def _matrices(data: Any, square: bool = False, low: int = 1) -> Any:
    """Matrices far from singular: random ones with a heavy diagonal."""
    lead = data.draw(npst.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=2))
    m = data.draw(st.integers(low, 4))
    n = m if square else data.draw(st.integers(low, 4))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(FLOATS))
    return (random.normal(size=(*lead, m, n)) + 3 * np.eye(m, n)).astype(dtype)


@quick
@given(data=st.data())
def test_square_matrices(data: Any) -> None:
    x = _matrices(data, square=True)
    for name in ("inv", "det", "slogdet"):
        check(f"linalg.{name}", x, **_CLOSE)
    symmetric = x + np.swapaxes(x, -1, -2)
    check("linalg.eigvalsh", symmetric, **_CLOSE)
    values, vectors = linalg.eigh(Tensor(symmetric))
    again = (vectors * values.unsqueeze(-2)) @ vectors.mT
    np.testing.assert_allclose(again.numpy(), symmetric, **_CLOSE)
    definite = x @ np.swapaxes(x, -1, -2)
    check("linalg.cholesky", definite, upper=data.draw(st.booleans()), **_CLOSE)
    check("linalg.matrix_power", x, data.draw(st.integers(-2, 3)), rtol=1e-2, atol=1e-2)
    check("linalg.solve", x, x[..., :1] + 1, **_CLOSE)
    check("linalg.solve", x, x[(0,) * (x.ndim - 2) + (0,)], **_CLOSE)


@quick
@given(data=st.data())
def test_any_matrices(data: Any) -> None:
    x = _matrices(data)
    for name in ("svdvals", "matrix_rank", "pinv", "matrix_transpose"):
        check(f"linalg.{name}", x, **_CLOSE)
    for order in _MATRIX_ORDERS:
        check("linalg.matrix_norm", x, ord=order, keepdims=data.draw(st.booleans()), **_CLOSE)
    full = data.draw(st.booleans())
    left, values, right = linalg.svd(Tensor(x), full_matrices=full)
    count = values.shape[-1]
    again = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
    np.testing.assert_allclose(again.numpy(), x, **_CLOSE)
    assert left.shape[-1] == (x.shape[-2] if full else count)
    q, r = linalg.qr(Tensor(x), mode=data.draw(st.sampled_from(["reduced", "complete"])))
    np.testing.assert_allclose((q @ r).numpy(), x, **_CLOSE)
    same_as = svod.eye(q.shape[-1], dtype=q.dtype)
    np.testing.assert_allclose((q.mT @ q - same_as).numpy(), 0, atol=1e-5)
    np.testing.assert_array_equal(r.tril(-1).numpy(), 0)


@quick
@given(data=st.data())
def test_diagonals(data: Any) -> None:
    shape = npst.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4)
    x = data.draw(R.any_array(NUMBERS, shape, bound=9))
    offset = data.draw(st.integers(-4, 4))
    check("linalg.diagonal", x, offset=offset)
    check("linalg.trace", x, offset=offset, rtol=1e-5, atol=1e-4)


@quick
@given(data=st.data())
def test_products(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    m, n, k = [data.draw(st.integers(1, 4)) for _ in range(3)]
    a, b = [data.draw(R.arrays(dtype, s, bound=9)) for s in ((m, k), (2, k, n))]
    for name in ("matmul", "linalg.matmul"):
        check(name, a, b, rtol=1e-4, atol=1e-3)
        check(name, a[0], b[0], rtol=1e-4, atol=1e-3)
    check("linalg.outer", a[0], b[0, 0], rtol=1e-4, atol=1e-3)
    for name in ("tensordot", "linalg.tensordot"):
        check(name, a, b, axes=((1,), (1,)), rtol=1e-4, atol=1e-3)
        check(name, a, a, axes=0, rtol=1e-4, atol=1e-3)
        check(name, a, a, axes=2, rtol=1e-4, atol=1e-3)
    for name in ("vecdot", "linalg.vecdot"):
        check(name, a, a[:1], rtol=1e-4, atol=1e-3)
        check(name, b, b, axis=-2, rtol=1e-4, atol=1e-3)
    three = data.draw(R.arrays(dtype, (2, 3), bound=9)), data.draw(R.arrays(dtype, (3,), bound=9))
    check("linalg.cross", *three, rtol=1e-4, atol=1e-3)
    check("linalg.cross", three[0].T, three[0].T + 1, axis=-2, rtol=1e-4, atol=1e-3)


@quick
@given(data=st.data())
def test_vector_norm(data: Any) -> None:
    x = data.draw(R.any_array(FLOATS, R.filled, bound=9))
    axes = st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1).map(tuple)
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1) | axes)
    x = np.where(np.abs(x) < 0.1, 0.5, x).astype(x.dtype)  # negative orders divide by elements
    order = data.draw(st.sampled_from(_ORDERS))
    check(
        "linalg.vector_norm", x, axis=axis, keepdims=data.draw(st.booleans()), ord=order, **_CLOSE
    )


def test_nothing_to_factor() -> None:
    none = svod.zeros((2, 0, 0))
    assert linalg.inv(none).shape == (2, 0, 0) and linalg.det(none).tolist() == [1, 1]
    left, values, right = linalg.svd(svod.zeros((0, 3)))
    assert (left.shape, values.shape, right.shape) == ((0, 0), (0,), (3, 3))
    assert linalg.pinv(svod.zeros((0, 3))).shape == (3, 0)
    assert linalg.solve(svod.eye(2), svod.zeros((2, 0))).shape == (2, 0)
    for order in _MATRIX_ORDERS:
        assert linalg.matrix_norm(svod.zeros((2, 0, 3)), ord=order).tolist() == [0, 0]
    assert linalg.matrix_rank(svod.zeros((2, 0, 3))).tolist() == [0, 0]


def test_half_precision_is_computed_in_single() -> None:
    found = linalg.inv(Tensor([[2.0, 0.0], [0.0, 4.0]], dtype=svod.float16))
    assert found.dtype == svod.float16 and found.tolist() == [[0.5, 0.0], [0.0, 0.25]]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: linalg.inv(svod.zeros((2, 3))), "inv needs square matrices"),
        (lambda: linalg.cholesky(svod.zeros(3)), "at least 2 axes"),
        (lambda: linalg.qr(svod.eye(2), mode="r"), "mode is 'reduced' or 'complete'"),
        (lambda: linalg.matrix_norm(svod.eye(2), ord=7), "ord is 'fro'"),
        (lambda: linalg.solve(svod.eye(2), svod.ones(3)), "do not fit together"),
        (lambda: linalg.cross(svod.ones(2), svod.ones(2)), "3 elements"),
    ],
)
def test_wrong_arguments(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_no_tensor_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="inv takes tensors"):
        linalg.inv([[1.0]])


def test_a_singular_matrix_is_an_error_when_it_is_computed() -> None:
    lazy = linalg.inv(svod.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="Singular matrix"):
        lazy.realize()


def test_a_factorisation_is_part_of_a_plan() -> None:
    x = Tensor(np.eye(3) * 2.0)
    plan = (linalg.inv(x + 1) * 4).prepare(inputs={"x": x}, outputs=["y"])
    for scale in (2.0, 5.0):
        given = np.eye(3) * scale
        np.testing.assert_allclose(plan(x=given), np.linalg.inv(given + 1) * 4)


# -- gradients ---------------------------------------------------------------------------------


def _definite(x: Tensor) -> Tensor:
    return x @ x.mT + svod.eye(3, dtype=svod.float64)


_DIFFERENTIABLE: dict[str, Any] = {
    "cholesky": lambda x: linalg.cholesky(_definite(x)),
    "inv": linalg.inv,
    "det": linalg.det,
    "slogdet": lambda x: linalg.slogdet(x).logabsdet,
    "solve": lambda x: linalg.solve(x, x[..., :1] * x[..., 1:]),
    "solve vector": lambda x: linalg.solve(x[0], x[1, 0]),
    "eigvalsh": lambda x: linalg.eigvalsh(_definite(x)),
    "eigenvectors": lambda x: linalg.eigh(_definite(x)).eigenvectors ** 2,
    "svdvals": linalg.svdvals,
    "tall svd": lambda x: linalg.svd(x[:, :, :2], full_matrices=False).U ** 2,
    "wide svd": lambda x: linalg.svd(x[:, :2], full_matrices=False).Vh ** 2,
    "qr": lambda x: linalg.qr(x).Q * 2 + linalg.qr(x).R,
    "tall qr": lambda x: linalg.qr(x[:, :, :2]).Q,
    "pinv": lambda x: linalg.pinv(x[:, :, :2]),
    "nuclear norm": lambda x: linalg.matrix_norm(x, ord="nuc"),
    "spectral norm": lambda x: linalg.matrix_norm(x, ord=2),
    "matrix_power": lambda x: linalg.matrix_power(x, -2),
}


@pytest.mark.parametrize("name", _DIFFERENTIABLE)
def test_gradients_are_finite_differences(name: str) -> None:
    function = _DIFFERENTIABLE[name]
    values = np.random.default_rng(0).normal(size=(2, 3, 3))
    x = Tensor(values).requires_grad_()
    result = function(x)
    weights = np.random.default_rng(1).normal(size=result.shape)
    (result * Tensor(weights)).sum().backward()
    step, wanted = 1e-6, np.zeros_like(values)
    for place in np.ndindex(*values.shape):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * step
            ends.append((function(Tensor(moved)).numpy() * weights).sum())
        wanted[place] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["inv", "det", "solve", "cholesky"])
def test_gradients_of_gradients(name: str) -> None:
    def slope(x: Tensor) -> Tensor:
        return (svod.grad(lambda y: (_DIFFERENTIABLE[name](y) ** 2).sum())(x) * weights).sum()

    values = np.random.default_rng(0).normal(size=(2, 3, 3)) + 2 * np.eye(3)
    weights = Tensor(np.random.default_rng(1).normal(size=(2, 3, 3)))
    found = svod.grad(slope)(Tensor(values)).numpy()
    step = 1e-5
    for place in [(0, 0, 0), (1, 2, 1)]:
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * step
            ends.append(slope(Tensor(moved)).item())
        wanted = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(found[place], wanted, rtol=1e-4)


def test_matrices_without_a_solution_are_named_with_the_line_of_the_user() -> None:
    from svod.linalg import LinAlgError

    for fault in (
        lambda: linalg.solve(svod.zeros((2, 2)), svod.ones(2)),
        lambda: linalg.cholesky(-svod.eye(2)),
        lambda: (linalg.inv(svod.zeros((3, 2, 2))) + 1).sum(),
    ):
        with pytest.raises(LinAlgError, match=r"of shape .*test_linalg\.py, line \d+\)$") as found:
            fault().numpy()
        assert isinstance(found.value, (RuntimeError, ValueError, svod.errors.SvodError))
