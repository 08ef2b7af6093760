"""Results as in torch: values, dtypes, shapes and gradients that torch 2.13 gives, written down."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor
from svod.base.errors import DTypeError, ShapeError

_BOOLS = [True, False, False]
_PLACES = [0, 1, 1]


def same(found: Tensor, dtype: str, values: object) -> None:
    """Equal in dtype, shape and value."""
    assert found.dtype.name == dtype
    wanted = np.asarray(values)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy().astype(np.float64), wanted, rtol=1e-6, atol=1e-7)


def gradients(result: Tensor, *inputs: Tensor) -> list[object]:
    found = svod.autograd.grad(result.sum(), list(inputs), allow_unused=True)
    return [None if g is None else g.tolist() for g in found]


def test_var_mean_of_a_bool_is_over_all_axes_without_the_correction():
    x = svod.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]])
    for unbiased, variance in ((False, 20 / 3), (True, 8.0)):
        for found in (svod.var_mean(x, unbiased), x.var_mean(unbiased=unbiased)):
            same(found[0], "float32", variance)
            same(found[1], "float32", 4.0)
        same(svod.std_mean(x, unbiased)[0], "float32", variance**0.5)
        same(x.var(unbiased), "float32", variance)
        same(x.std(unbiased), "float32", variance**0.5)
    same(x.var(correction=None), "float32", 8.0)
    same((x + 1j * x).var(False), "float32", 40 / 3)


@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_adding_bools_by_index_is_or(device):
    x, at, hits = [svod.tensor(v).to(device) for v in (_BOOLS, _PLACES, [True, True, True])]
    for found in (
        x.scatter_add(0, at, hits),
        x.scatter(0, at, hits, reduce="add"),
        x.scatter_reduce(0, at, hits, "sum"),
        x.index_add(0, at, hits),
        x.index_put((at,), hits, accumulate=True),
        x.put(at, hits, accumulate=True),
    ):
        assert found.dtype.name == "bool"
        assert found.tolist() == [True, True, False]


def test_adding_bools_by_index_is_or_for_many_hits():
    at = svod.zeros(512, dtype="int64")
    assert svod.tensor([False]).index_add(0, at, svod.ones(512, dtype="bool")).tolist() == [True]


def test_pinv_has_a_gradient_where_singular_values_are_equal():
    a = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0]  # both of them are 1
    weights = np.random.default_rng(1).normal(size=(2, 6))
    x = Tensor(a).requires_grad_()
    (found,) = svod.autograd.grad((svod.linalg.pinv(x) * Tensor(weights)).sum(), [x])
    wanted = np.zeros_like(a)
    for i in np.ndindex(*a.shape):  # by central differences
        for sign in (1, -1):
            near = a.copy()
            near[i] += sign * 1e-6
            wanted[i] += sign * (np.linalg.pinv(near) * weights).sum() / 2e-6
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-8)


def test_gradient_of_a_mantissa_is_the_power_of_two_it_was_divided_by():
    x = svod.tensor([3.0, 0.0, -0.1], dtype="float64").requires_grad_()
    mantissa, exponent = x.frexp()
    same(mantissa, "float64", [0.75, 0.0, -0.8])
    same(exponent, "int32", [2, 0, -3])
    assert gradients(mantissa, x) == [[0.25, 1.0, 8.0]]


def test_gradient_of_nextafter_is_that_of_its_first_operand():
    a = svod.tensor([1.0, 2.0, 3.0], dtype="float64").requires_grad_()
    b = svod.tensor([2.0, 2.0, 1.0], dtype="float64").requires_grad_()
    for found in (a.nextafter(b), svod.nextafter(a, b)):
        given = gradients(found, a, b)
        assert given[0] == [1.0, 0.0, 1.0]
        assert given[1] in (None, [0.0, 0.0, 0.0])


def test_vector_norm_takes_its_order_by_position_or_by_name():
    x = svod.tensor([[3.0, -4.0], [1.0, 1.0]])
    same(svod.linalg.vector_norm(x, 1, 1), "float32", [7.0, 2.0])
    same(svod.linalg.vector_norm(x, ord=1, axis=1), "float32", [7.0, 2.0])
    same(svod.linalg.vector_norm(x[0]), "float32", 5.0)


def test_gradient_of_sinc_is_zero_at_zero():
    x = svod.tensor([0.0, 0.5]).requires_grad_()
    (found,) = gradients(x.sinc(), x)
    np.testing.assert_allclose(found, [0.0, -4 / np.pi], rtol=1e-6)


def test_gradient_of_a_cholesky_factor_is_that_of_all_its_elements():
    a = np.array([[2.0, 0.0], [1.0, 3.0]])
    weights = np.array([[1.0, 2.0], [3.0, 0.5]])
    inverse = np.linalg.inv(a @ a.T)
    change = inverse @ (weights + weights.T) @ inverse
    x = Tensor(a).requires_grad_()
    lower = svod.autograd.grad((x.cholesky_inverse() * Tensor(weights)).sum(), [x])[0]
    np.testing.assert_allclose(lower.numpy(), -change @ a, rtol=1e-10, atol=1e-15)
    upper = Tensor(a.T).requires_grad_()
    given = svod.autograd.grad(
        (upper.cholesky_inverse(upper=True) * Tensor(weights)).sum(), [upper]
    )
    np.testing.assert_allclose(given[0].numpy(), -a.T @ change, rtol=1e-10, atol=1e-15)


def test_gradient_of_max_unpool_reaches_values_that_others_replaced():
    x = svod.tensor([[[1.0, 2.0, 3.0]]]).requires_grad_()
    found = F.max_unpool1d(x, svod.tensor([[[1, 1, 4]]]), 2)
    same(found, "float32", [[[0, 2, 0, 0, 3, 0]]])
    assert gradients(found * svod.tensor([1.0, 2, 3, 4, 5, 6]), x) == [[[[2.0, 2.0, 5.0]]]]


def test_gradient_of_ctc_loss_is_that_of_normalised_chances():
    logs = svod.tensor([[[-0.5, -1.0]], [[-0.2, -2.0]]], dtype="float64").requires_grad_()
    loss = F.ctc_loss(logs, svod.tensor([[1]]), [2], [1], reduction="sum")
    p = np.exp([[-0.5, -1.0], [-0.2, -2.0]])
    walks = {(0, 1): p[0, 0] * p[1, 1], (1, 0): p[0, 1] * p[1, 0], (1, 1): p[0, 1] * p[1, 1]}
    total = sum(walks.values())
    assert loss.item() == pytest.approx(-np.log(total))
    wanted = p.copy()  # what torch gives: the chances less those of the walks through each place
    for walk, chance in walks.items():
        for time, label in enumerate(walk):
            wanted[time, label] -= chance / total
    (found,) = svod.autograd.grad(loss, [logs])
    np.testing.assert_allclose(found.numpy()[:, 0], wanted, rtol=1e-10)


def test_histogram_of_equal_elements_is_half_a_unit_wide_on_each_side():
    x = svod.tensor([2.0, 2.0, 2.0])
    for found, edges in (x.histogram(4), x.histogram(4, range=(2.0, 2.0))):
        same(found, "float32", [0, 0, 3, 0])
        same(edges, "float32", [1.5, 1.75, 2.0, 2.25, 2.5])
    same(x.histogram(2, range=(3.0, 3.0))[1], "float32", [2.5, 3.0, 3.5])
    same(x.histc(4), "float32", [0, 0, 3, 0])


def test_prelu_of_a_scalar_stays_a_scalar():
    same(F.prelu(svod.tensor(-2.0), svod.tensor([0.25])), "float32", -0.5)
    x = svod.tensor([[-1.0, -2.0]])
    same(F.prelu(x, svod.tensor([0.5, 0.25])), "float32", [[-0.5, -0.5]])
    with pytest.raises(ShapeError, match=r"prelu.*\(3,\)"):
        F.prelu(x, svod.tensor([0.5, 0.25, 1.0]))


def test_hinge_embedding_loss_of_other_targets_is_the_sum_of_both_parts():
    x, target = svod.tensor([0.5, 2.0, -1.0, 0.25]), svod.tensor([1.0, -1.0, 0.0, -1.0])
    found = F.hinge_embedding_loss(x, target, reduction="none")
    same(found, "float32", [0.5, 0.0, 1.0, 0.75])


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e5m2"])
def test_float8_is_finite_except_for_nan_and_infinity(name):
    a = np.array([1.0, np.nan, 448.0, -0.0], np.float32)
    x = Tensor(a).cast(name)
    assert x.isfinite().tolist() == [True, False, True, True]
    assert x.isinf().tolist() == [False] * 4
    assert (x < 1e9).tolist() == [True, False, True, True]
    assert (x > float("-inf")).tolist() == [True, False, True, True]
    high = x.clamp(-1e9, 1e9).numpy().astype(np.float32)
    np.testing.assert_array_equal(high, a)


def test_dtypes_of_integers_and_bools_stay_whole():
    same(svod.tensor([True, False]).square(), "int64", [1, 0])
    same(svod.tensor(True).sum_to_size(()), "int64", 1)
    same(svod.tensor([[1, 2], [3, 4]], dtype="int32").sum_to_size(2, 2), "int32", [[1, 2], [3, 4]])
    same(F.hardtanh(svod.tensor([-3, 0, 3])), "int64", [-1, 0, 1])
    same(F.hardtanh(svod.tensor([-3, 0, 3]), -1.5, 2.5), "int64", [-1, 0, 2])
    with pytest.raises(DTypeError, match="hardtanh"):
        F.hardtanh(svod.tensor([True]))
    with pytest.raises(ShapeError, match="uint8"):
        F.hardtanh(svod.tensor([1], dtype="uint8"))


def test_averages_of_integers_are_their_whole_part():
    line = svod.tensor([[[-3, 0, 3, 8]]])
    same(F.avg_pool1d(line, 2), "int64", [[[-1, 5]]])
    plane = svod.arange(-8, 8).reshape(1, 1, 4, 4)
    same(F.avg_pool2d(plane, 3, 2, 1), "int64", [[[[-2, -2], [0, 2]]]])
    without = F.avg_pool2d(plane, 3, 2, 1, count_include_pad=False)
    same(without, "int64", [[[[-5, -4], [0, 2]]]])
    same(F.avg_pool2d(plane, 2, divisor_override=3), "int64", [[[[-7, -4], [3, 6]]]])
    same(F.avg_pool3d(plane.unsqueeze(2), (1, 2, 2)), "int64", [[[[[-5, -3], [2, 4]]]]])
    with pytest.raises(DTypeError, match="bool"):
        F.avg_pool1d(svod.tensor([[[True, False]]]), 2)


def test_logspace_has_the_dtype_that_is_asked_for():
    same(svod.logspace(0, 3, 4, dtype="int64"), "int64", [1, 10, 100, 1000])
    same(svod.logspace(-2, 3, 5, base=2, dtype="int64"), "int64", [0, 0, 1, 3, 8])
    same(svod.logspace(0, 3, 4, dtype="float64"), "float64", [1, 10, 100, 1000])
    same(svod.logspace(0, 1, 2, base=-2.0), "float32", [1, -2])
    narrow = svod.logspace(0, 1, 4, dtype="bfloat16")
    assert narrow.dtype.name == "bfloat16"
    assert narrow.float().tolist() == [1.0, 2.15625, 4.65625, 10.0]


def test_random_numbers_have_the_dtype_of_what_they_are_like():
    mean, wide = svod.tensor([1.0, 2.0]), svod.tensor([1.0, 2.0], dtype="float64")
    assert svod.normal(wide, 2.0).dtype.name == "float64"
    assert svod.normal(mean, wide).dtype.name == "float32"
    assert svod.normal(0, wide).dtype.name == "float64"
    assert svod.normal(mean.bfloat16(), 1.0).dtype.name == "bfloat16"
    assert svod.normal(0.0, 1.0, (2,)).dtype.name == "float32"
    svod.manual_seed(0)
    z = svod.zeros(4000, dtype="complex64")
    for found, level, spread in ((z.rand_like(), 0.5 + 0.5j, 1 / 6), (z.randn_like(), 0, 1.0)):
        a = found.numpy()
        assert a.dtype == np.complex64
        assert abs(a.mean() - level) < 0.05
        assert a.var() == pytest.approx(spread, rel=0.1)
        assert np.corrcoef(a.real, a.imag)[0, 1] == pytest.approx(0, abs=0.06)
    assert svod.randn(2, dtype="complex128").dtype.name == "complex128"


def test_integer_products_take_the_whole_part_of_their_factors():
    one = [svod.ones(s, dtype="int32") for s in ((2,), (2, 2), (3, 2, 2))]
    for beta, alpha in ((0.6, 0.5), (2.6, 1.5)):
        a, b = int(beta), int(alpha)
        factors = {"beta": beta, "alpha": alpha}
        same(one[0].addmv(one[1], one[0], **factors), "int32", np.full(2, a + 2 * b))
        same(one[1].addmm(one[1], one[1], **factors), "int32", np.full((2, 2), a + 2 * b))
        same(one[1].addbmm(one[2], one[2], **factors), "int32", np.full((2, 2), a + 6 * b))
        same(one[2].baddbmm(one[2], one[2], **factors), "int32", np.full((3, 2, 2), a + 2 * b))
    with pytest.raises(DTypeError, match="whole numbers"):
        one[1].addr(one[0], one[0], beta=0.6)
    truth = svod.tensor([True, False])
    same(svod.zeros((2, 2), dtype="bool").addr(truth, truth, alpha=2), "bool", [[1, 0], [0, 0]])


def test_sums_of_narrow_products_are_rounded_once():
    random = np.random.default_rng(0)
    x, a, b = [random.normal(size=(16, 16)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    wide = [v.astype(np.float64) for v in (x, a, b)]
    wanted = {
        "addmm": 0.6 * wide[0] + 0.2 * wide[1] @ wide[2],
        "addcmul": wide[0] + 3.14 * wide[1] * wide[2],
        "addcdiv": wide[0] + 3.14 * wide[1] / wide[2],
    }
    for name, exact in wanted.items():
        factors = {"beta": 0.6, "alpha": 0.2} if name == "addmm" else {"value": 3.14}
        found = getattr(Tensor(x), name)(Tensor(a), Tensor(b), **factors).numpy()
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2.0**-8, atol=1e-5)
    cosine = F.cosine_similarity(Tensor(a), Tensor(b)).numpy().astype(np.float64)
    sizes = np.linalg.norm(wide[1], axis=1) * np.linalg.norm(wide[2], axis=1)
    np.testing.assert_allclose(cosine, (wide[1] * wide[2]).sum(1) / sizes, rtol=2.0**-8)
    angle = np.pi * wide[0]
    sinc = Tensor(x).sinc().numpy().astype(np.float64)
    np.testing.assert_allclose(sinc, np.sin(angle) / angle, rtol=2.0**-8, atol=1e-7)
