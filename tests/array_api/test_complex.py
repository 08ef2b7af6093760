"""complex64 and complex128: functions, folds, moves and linear algebra as in the reference."""

from __future__ import annotations

import operator
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod
from svod import Tensor
from tests.array_api import reference as R
from tests.array_api.reference import COMPLEX, array_of, check, names, quick

UNARY = names(
    "abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag isfinite isinf isnan log "
    "log10 log1p log2 negative positive real reciprocal round sign sin sinh sqrt square tan tanh"
)
BINARY = names("add subtract multiply divide pow equal not_equal")
FOLDS = names("sum prod mean cumulative_sum cumulative_prod")
MOVES = {
    "flip": ((), {}),
    "roll": ((2,), {}),
    "squeeze": ((0,), {}),
    "expand_dims": ((), {"axis": 1}),
    "tril": ((), {}),
    "triu": ((), {"k": 1}),
    "matrix_transpose": ((), {}),
    "repeat": ((2,), {}),
    "tile": (((2, 1, 1),), {}),
}
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def _arrays(dtype: str, shape: Any = R.shapes) -> st.SearchStrategy[Any]:
    return R.arrays(dtype, shape, bound=8)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", UNARY)
@quick
@given(data=st.data())
def test_one_argument(name: str, dtype: str, data: Any) -> None:
    check(name, data.draw(_arrays(dtype)), **CLOSE)


@pytest.mark.parametrize("name", BINARY)
@quick
@given(data=st.data())
def test_two_arguments(name: str, data: Any) -> None:
    a, b = data.draw(R.pairs(COMPLEX, bound=3))
    if name == "pow":  # near zero a power is any number
        a, b = a + np.sign(a.real) + (a.real == 0), b.real.astype(b.dtype)
    check(name, a, b, **CLOSE)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "eq", "ne"])
@pytest.mark.parametrize("number", [2, 0.5, 1 + 2j])
def test_numbers_of_python(name: str, dtype: str, number: complex) -> None:
    values = np.array([1 + 1j, 2, -3j, 0.5 - 2j], dtype)
    act = getattr(operator, name)
    for mine, wanted in [
        (act(Tensor(values), number), act(strict.asarray(values), number)),
        (act(number, Tensor(values)), act(number, strict.asarray(values))),
    ]:
        R.same(mine, wanted, f"{name} {number}", **CLOSE)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", FOLDS)
@quick
@given(data=st.data())
def test_folds(name: str, dtype: str, data: Any) -> None:
    x = data.draw(_arrays(dtype, R.filled)) / np.dtype(dtype).type(4)
    check(name, x, axis=data.draw(st.integers(-x.ndim, x.ndim - 1)), **CLOSE)


@pytest.mark.parametrize("name", ["all", "any", "nonzero", "count_nonzero"])
@quick
@given(data=st.data())
def test_truth(name: str, data: Any) -> None:
    x = data.draw(_arrays(data.draw(st.sampled_from(COMPLEX)), R.filled))
    check(name, np.where(x.real > 2, x, 0).astype(x.dtype))


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    values = (np.arange(12) + 1j * np.arange(12)[::-1]).reshape(1, 3, 4).astype("complex64")
    args, options = MOVES[name]
    check(name, values, *args, **options)


@pytest.mark.parametrize("name", ["unique_values", "unique_counts", "unique_inverse"])
def test_sets(name: str) -> None:
    values = np.array([1j, 2, 1j, 1, 2 + 0j, -1j], "complex64")
    mine, wanted = (
        getattr(svod, name)(Tensor(values)),
        getattr(strict, name)(strict.asarray(values)),
    )
    found = array_of(mine[0] if isinstance(mine, tuple) else mine)
    theirs = array_of(wanted[0] if isinstance(wanted, tuple) else wanted)
    assert sorted(found.tolist(), key=str) == sorted(theirs.tolist(), key=str)
    if name == "unique_inverse":
        np.testing.assert_array_equal(found[array_of(mine[1])], values)


@pytest.mark.parametrize("dtype", COMPLEX)
@quick
@given(data=st.data())
def test_products(dtype: str, data: Any) -> None:
    a, b = data.draw(_arrays(dtype, (2, 3))), data.draw(_arrays(dtype, (3, 2)))
    check("matmul", a, b, **CLOSE)
    check("vecdot", a, np.swapaxes(b, 0, 1), **CLOSE)
    check("tensordot", a, b, axes=1, **CLOSE)
    check("linalg.outer", a[0], b[:, 0], **CLOSE)
    check("linalg.trace", a, **CLOSE)


def test_the_first_argument_of_vecdot_is_conjugated() -> None:
    a, b = svod.asarray([1j, 2j]), svod.asarray([1j, 1 + 0j])
    assert svod.vecdot(a, b).item() == 1 - 2j == svod.linalg.vecdot(a, b).item()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["inv", "det", "qr", "svd", "svdvals", "matrix_norm", "pinv"])
def test_matrices(name: str, dtype: str) -> None:
    values = np.array([[2 + 1j, 1, 0], [1j, 3, 1 - 1j], [0, 1, 4]], dtype)
    mine = getattr(svod.linalg, name)(Tensor(values))
    wanted = getattr(strict.linalg, name)(strict.asarray(values))
    R.same(mine, wanted, name, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [*R.FLOATS, *COMPLEX])
def test_eigenvalues(dtype: str) -> None:
    values = np.array([[0, -1, 0], [1, 0, 0], [0, 2, 3]], dtype)
    found, vectors = [array_of(t) for t in svod.linalg.eig(Tensor(values))]
    assert found.dtype == vectors.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(values @ vectors, vectors * found, atol=1e-5)
    alone = array_of(svod.linalg.eigvals(Tensor(values)))
    np.testing.assert_allclose(np.sort_complex(alone), np.sort_complex(found), atol=1e-5)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(("real", "imag"), [(0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (-0.0, -0.0)])
def test_zeros_of_sign_and_expm1(dtype: str, real: float, imag: float) -> None:
    x = Tensor(np.array([complex(real, imag)], dtype))
    signs = svod.sign(x).numpy()
    assert not np.signbit(signs.real)[0] and not np.signbit(signs.imag)[0] and signs[0] == 0
    power = svod.expm1(x).numpy()
    assert power[0] == 0 and not np.signbit(power.real)[0]
    assert np.signbit(power.imag)[0] == np.signbit(imag)


@pytest.mark.parametrize("value", [2 - 1j, 3.0, np.complex64(1j)])
def test_a_masked_element_takes_a_number(value: complex) -> None:
    for chosen in (True, False):
        x = svod.asarray(np.array(5 + 5j, "complex64"))
        x[svod.asarray(chosen)] = value
        assert x.item() == (value if chosen else 5 + 5j)
    y = svod.asarray([1j, 2j, 3j])
    y[svod.asarray([True, False, True])] = value
    assert y.tolist() == [value, 2j, value]


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("imag", [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf])
def test_tanh_of_infinity_keeps_the_sign_of_the_imaginary_part(dtype: str, imag: float) -> None:
    values = np.array([complex(np.inf, imag), complex(-np.inf, imag)], dtype)
    found = svod.tanh(Tensor(values)).numpy()
    assert found.tolist() == [1, -1]
    np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(values.imag))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("copy", [None, True])
def test_dlpack(dtype: str, copy: bool | None) -> None:
    values = np.array([[1 + 2j, 3], [4j, 5 - 1j]], dtype)
    for source, wanted in ((values, values), (values.T, values.T), (Tensor(values), values)):
        found = svod.from_dlpack(source, copy=copy)
        np.testing.assert_array_equal(found.numpy(), wanted)
