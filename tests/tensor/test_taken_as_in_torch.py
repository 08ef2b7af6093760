"""Arguments that torch takes: scalars where an axis is named, bools, ends of lines, complex."""

from __future__ import annotations

import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor

S, T = svod.tensor(2.0), svod.tensor(3.0)
AT, PLACE = svod.tensor([0]), svod.tensor(0)

SCALARS = {
    "index_select": (lambda: S.index_select(0, AT), 2.0),
    "index_add": (lambda: S.index_add(0, AT, T, alpha=-1), -1.0),
    "index_copy": (lambda: S.index_copy(0, AT, T), 3.0),
    "index_fill": (lambda: S.index_fill(0, AT, 5.0), 5.0),
    "index_fill with a tensor": (lambda: S.index_fill(-1, AT, T), 3.0),
    "index_reduce": (lambda: S.index_reduce(0, AT, T, "prod"), 6.0),
    "scatter": (lambda: S.scatter(0, PLACE, T), 3.0),
    "scatter a number": (lambda: S.scatter(dim=0, index=PLACE, src=2.5), 2.5),
    "scatter times": (lambda: S.scatter(0, PLACE, 2.5, reduce="multiply"), 5.0),
    "scatter_add": (lambda: S.scatter_add(0, PLACE, T), 5.0),
    "scatter_reduce": (lambda: S.scatter_reduce(0, PLACE, T, "mean", include_self=False), 3.0),
    "kthvalue": (lambda: S.kthvalue(1, 0).values, 2.0),
    "kthvalue's place": (lambda: S.kthvalue(1, 0, True).indices, 0),
    "median": (lambda: S.median(-1).values, 2.0),
}


@pytest.mark.parametrize("name", list(SCALARS))
def test_a_scalar_is_a_vector_of_one_where_an_axis_is_named(name):
    made, wanted = SCALARS[name]
    found = made()
    assert found.shape == ()
    assert found.item() == wanted


def test_gradients_of_scalars_by_index():
    x = svod.tensor(2.0).requires_grad_()
    y = svod.tensor(3.0).requires_grad_()
    found = svod.autograd.grad(x.index_add(0, AT, y, alpha=-2) * 5, [x, y])
    assert [g.item() for g in found] == [5.0, -10.0]
    with pytest.raises(IndexError):
        x.index_select(1, AT)


def test_running_extremes_of_bools():
    x = svod.tensor([[False, True, False], [True, True, False]])
    values, places = x.cummax(1)
    assert values.dtype.name == "bool"
    assert values.tolist() == [[False, True, True], [True, True, True]]
    assert places.tolist() == [[0, 1, 1], [0, 1, 1]]
    values, places = x.cummin(1)
    assert values.tolist() == [[False, False, False], [True, True, False]]
    assert places.tolist() == [[0, 0, 2], [0, 1, 2]]
    low, high = svod.ones((5, 0, 5), dtype="bool").aminmax(0)
    assert low.shape == high.shape == (0, 5)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_folds_of_bools_by_index(reduce):
    x, at = svod.tensor([True, False, True]), svod.tensor([0, 1, 1])
    source = svod.tensor([False, True, True])
    wanted = {"sum": any, "amax": any, "prod": all, "amin": all}[reduce]
    for include in (True, False):
        found = x.scatter_reduce(0, at, source, reduce, include_self=include)
        first = wanted([True, False] if include else [False])
        second = wanted([False, True, True] if include else [True, True])
        assert found.tolist() == [first, second, True]


def test_gather_by_an_empty_index_of_any_rank():
    found = svod.arange(5.0).gather(0, svod.zeros((2, 0), dtype="int64"))
    assert found.shape == (2, 0)


def test_ends_of_lines_may_be_tensors():
    start, stop = svod.tensor(-1.0), svod.tensor(3)
    assert svod.linspace(start, stop, 5).tolist() == [-1, 0, 1, 2, 3]
    assert svod.linspace(-1, stop, 5, dtype="int64").tolist() == [-1, 0, 1, 2, 3]
    assert svod.logspace(start, 2, 4).tolist() == pytest.approx([0.1, 1, 10, 100])
    (slope,) = svod.autograd.grad(svod.linspace(0, x := T.clone().requires_grad_(), 5).sum(), [x])
    assert slope.item() == pytest.approx(2.5)
    with pytest.raises(TypeError, match="start"):
        svod.linspace(svod.ones(2), 3, 5)


def test_a_masked_scatter_broadcasts_its_tensor():
    x, mask = svod.tensor([1.0, 2.0]), svod.tensor([[True, False], [False, True]])
    found = x.masked_scatter(mask, svod.tensor([7.0, 8.0, 9.0]))
    assert found.tolist() == [[7.0, 2.0], [1.0, 8.0]]


def test_tensordot_sums_the_axes_that_meet_one_element():
    a, b = np.full((1, 2), 3.0), np.arange(8.0).reshape(4, 2)
    found = Tensor(a).tensordot(Tensor(b), ((0,), (0,)))
    np.testing.assert_array_equal(found.numpy(), np.tensordot(a, b.sum(0, keepdims=True), (0, 0)))


def test_a_tensor_says_where_to_split():
    x = svod.arange(6.0)
    assert [p.tolist() for p in x.tensor_split(svod.tensor(2))] == [[0, 1, 2], [3, 4, 5]]
    assert [p.tolist() for p in x.tensor_split(svod.tensor([1, 4]))] == [[0], [1, 2, 3], [4, 5]]


def test_gradients_of_embeddings_may_be_divided_by_frequencies():
    weight = svod.ones((3, 2)).requires_grad_()
    at = svod.tensor([1, 1, 2, 1])
    found = F.embedding(at, weight, scale_grad_by_freq=True)
    assert found.tolist() == [[1.0, 1.0]] * 4
    (slope,) = svod.autograd.grad(found.sum(), [weight])
    np.testing.assert_allclose(slope.numpy(), [[0, 0], [1, 1], [1, 1]], rtol=1e-6)


def test_nuclear_norms():
    random = np.random.default_rng(0)
    a = random.normal(size=(3, 4))
    for matrix in (a, a + 1j * random.normal(size=(3, 4))):
        found = Tensor(matrix).norm("nuc").item()
        assert found == pytest.approx(np.linalg.norm(matrix, "nuc"), rel=1e-9)


def test_complex_distances_and_sums_of_exponentials():
    random = np.random.default_rng(0)
    a, b = [random.normal(size=(2, 5)) + 1j * random.normal(size=(2, 5)) for _ in range(2)]
    x, y = Tensor(a), Tensor(b)
    found = F.pairwise_distance(x, y).numpy()
    np.testing.assert_allclose(found, np.linalg.norm(a - b + 1e-6, axis=1), rtol=1e-9)
    assert svod.nn.PairwiseDistance()(x, y).shape == (2,)
    margin = F.triplet_margin_loss(x, y, x + 1).item()
    wanted = np.linalg.norm(a - b + 1e-6, axis=1) - np.linalg.norm(-1 + 1e-6 + 0 * a, axis=1) + 1
    assert margin == pytest.approx(np.maximum(wanted, 0).mean(), rel=1e-9)
    np.testing.assert_allclose(np.exp(x.logaddexp(y).numpy()), np.exp(a) + np.exp(b), rtol=1e-9)
    running = np.exp(x.logcumsumexp(1).numpy())
    np.testing.assert_allclose(running, np.exp(a).cumsum(1), rtol=1e-9)
    far = svod.tensor([1000 + 1j, -1000 + 1j]).logcumsumexp(0).tolist()
    assert far == [1000 + 1j, 1000 + 1j]
    mean = (a * a).mean(1, keepdims=True)
    norm = x.rms_norm(5, eps=0.5).numpy()
    np.testing.assert_allclose(norm, a / np.sqrt(mean + 0.5), rtol=1e-9)


def test_complex_windows_and_numbers():
    random = np.random.default_rng(0)
    signal, window = random.normal(size=32), random.normal(size=8) + 1j * random.normal(size=8)
    found = svod.stft(
        Tensor(signal), 8, 8, window=Tensor(window), center=False, return_complex=True
    ).numpy()
    np.testing.assert_allclose(found.T, np.fft.fft(signal.reshape(4, 8) * window), atol=1e-9)
    svod.manual_seed(0)
    z = svod.zeros(2000, dtype="complex64")
    drawn = z.clone().uniform_(2, 4).numpy()
    assert drawn.real.min() >= 2 and drawn.imag.min() >= 2 and drawn.imag.max() < 4
    assert z.clone().normal_(3, 2).numpy().mean() == pytest.approx(3, abs=0.2)
    assert svod.tensor([0j, 1j]).nonzero_static(size=1).tolist() == [[1]]
    x = svod.tensor([[1j]])
    assert F.feature_alpha_dropout(x, 0.5, False).tolist() == [[1j]]
    with pytest.raises(TypeError, match="complex"):
        F.alpha_dropout(x, 0.5, True)


def test_bits_read_as_another_dtype_are_a_view():
    def bits() -> tuple[Tensor, Tensor]:
        x = svod.tensor([1.0, 2.0, 3.0])
        return x, x.bitcast("int32")

    x, v = bits()
    v.assign(svod.zeros(3, dtype="int32"))
    assert x.tolist() == [0.0, 0.0, 0.0]
    x, v = bits()
    v[1:].fill_(0)
    x.add_(1)
    assert x.tolist() == [2.0, 1.0, 1.0]
    assert v.bitcast("float32").tolist() == [2.0, 1.0, 1.0]

    @svod.jit
    def write(y: Tensor) -> Tensor:
        y.bitcast("int32")[1:].fill_(0)
        return y * 1

    x, v = bits()
    assert write(x).tolist() == x.tolist() == [1.0, 0.0, 0.0]
    assert v.tolist() == [1065353216, 0, 0]
    lazy = svod.ones(3) * 2
    lazy.bitcast("int32")[0] = 0
    assert lazy.tolist() == [0.0, 2.0, 2.0]


def test_ranks_and_inverses_of_hermitian_matrices_read_the_lower_triangle():
    random = np.random.default_rng(0)
    a = random.normal(size=(4, 4)) + 1j * random.normal(size=(4, 4))
    lower = np.tril(a, -1)
    whole = lower + lower.conj().T + np.diag(np.diag(a).real)
    found = svod.linalg.pinv(Tensor(a), hermitian=True).numpy()
    np.testing.assert_allclose(found, np.linalg.pinv(whole), rtol=1e-9)
    assert svod.linalg.matrix_rank(Tensor(a), hermitian=True).item() == 4
    line = svod.tensor([[3.0, 0.0], [0.0, 0.5]])
    assert svod.linalg.matrix_rank(line, atol=1.0).item() == 1
    assert svod.linalg.matrix_rank(line, atol=0.1, rtol=0.5).item() == 1
    assert svod.linalg.pinv(line, atol=1.0).tolist() == [[pytest.approx(1 / 3), 0], [0, 0]]


def test_norms_of_matrices_along_other_axes():
    a = np.random.default_rng(0).normal(size=(3, 4, 5))
    found = svod.linalg.matrix_norm(Tensor(a), "nuc", (0, 2))
    wanted = np.linalg.norm(a.transpose(1, 0, 2), "nuc", axis=(1, 2))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
    assert svod.linalg.matrix_norm(Tensor(a), 1, (2, 0), True).shape == (1, 4, 1)


def test_values_are_searched_for_in_several_vectors():
    rows, values = np.sort(np.random.default_rng(0).normal(size=(3, 7))), np.zeros((3, 2))
    found = Tensor(rows).searchsorted(Tensor(values), out_int32=True)
    assert found.dtype.name == "int32"
    assert found.tolist() == [
        np.searchsorted(r, v).tolist() for r, v in zip(rows, values, strict=True)
    ]
    with pytest.raises(ValueError, match=r"\(2, 2\).*\(3, 7\)"):
        Tensor(rows).searchsorted(svod.zeros((2, 2)))


def test_repeats_may_say_how_many_there_are():
    x = svod.tensor([1.0, 2.0])
    found = x.repeat_interleave(svod.tensor([0, 3]), output_size=3)
    assert found.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="output_size"):
        x.repeat_interleave(svod.tensor([0, 3]), output_size=4)


def test_weights_of_values_outside_of_a_histogram_do_not_count():
    x, weight = svod.tensor([-5.0, 0.5, 1.5, 9.0]), svod.tensor([1.0, 2.0, 3.0, 4.0])
    found, _ = x.histogram(svod.tensor([0.0, 1.0, 2.0]), weight=weight)
    assert found.tolist() == [2.0, 3.0]


def test_diagonals_of_other_axes():
    a = np.arange(24.0).reshape(2, 3, 4)
    found = svod.linalg.diagonal(Tensor(a), offset=1, dim1=0, dim2=1)
    np.testing.assert_array_equal(found.numpy(), np.diagonal(a, 1, 0, 1))
