"""Functions that draw random numbers: what they draw has the right shares, means and spreads."""

from __future__ import annotations

import numpy as np
import pytest

import svod
import svod.nn.functional as F


def drawn(x: svod.Tensor) -> np.ndarray:
    return x.numpy()


def test_dropout_keeps_the_mean() -> None:
    svod.manual_seed(1)
    x = svod.ones(200, 100)
    for p in (0.1, 0.5, 0.9):
        found = drawn(F.dropout(x, p))
        assert abs((found == 0).mean() - p) < 0.02
        np.testing.assert_allclose(found[found != 0], 1 / (1 - p), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_channels_are_dropped_whole(count: int) -> None:
    svod.manual_seed(2)
    x = svod.ones(*(40, 50, *[3] * count))
    found = drawn(getattr(F, f"dropout{count}d")(x, 0.3)).reshape(40, 50, -1)
    assert ((found == found[:, :, :1]).all(-1)).all()
    assert abs((found[:, :, 0] == 0).mean() - 0.3) < 0.05


def test_alpha_dropout_keeps_mean_and_spread() -> None:
    svod.manual_seed(3)
    x = svod.randn(300, 300)
    found = drawn(F.alpha_dropout(x, 0.4, training=True))
    assert abs(found.mean()) < 0.02 and abs(found.std() - 1) < 0.02
    whole = drawn(F.feature_alpha_dropout(svod.randn(100, 100, 4), 0.4, training=True))
    assert abs(whole.mean()) < 0.05 and abs(whole.std() - 1) < 0.05


def test_gumbel_softmax_picks_by_weight() -> None:
    svod.manual_seed(4)
    shares = np.array([0.1, 0.2, 0.7], np.float32)
    logits = svod.Tensor(np.broadcast_to(np.log(shares), (20000, 3)).copy())
    found = drawn(F.gumbel_softmax(logits, hard=True))
    assert set(np.unique(found.round(5))) <= {0.0, 1.0}
    np.testing.assert_allclose(found.mean(0), shares, atol=0.02)
    soft = drawn(F.gumbel_softmax(logits, 0.5))
    np.testing.assert_allclose(soft.sum(-1), 1, rtol=1e-5)


def test_rrelu_slopes_lie_between_their_limits() -> None:
    svod.manual_seed(5)
    found = drawn(F.rrelu(svod.full((100, 100), -1.0), 0.2, 0.6, training=True))
    assert -0.6 <= found.min() < -0.55 and -0.25 < found.max() <= -0.2
    assert abs(found.mean() + 0.4) < 0.01


def test_fractional_pooling_draws_its_own_windows() -> None:
    svod.manual_seed(6)
    x = svod.randn(1, 2, 9, 9)
    values, places = F.fractional_max_pool2d(x, 2, (4, 4), return_indices=True)
    flat = x.numpy().reshape(1, 2, 81)
    picked = np.take_along_axis(flat, places.numpy().reshape(1, 2, 16), -1)
    np.testing.assert_array_equal(values.numpy().reshape(1, 2, 16), picked)


def test_waiting_times_and_relatives() -> None:
    svod.manual_seed(7)
    x = svod.zeros(200, 200)
    found = drawn(x.clone().exponential_(2.0))
    assert found.min() >= 0 and abs(found.mean() - 0.5) < 0.01 and abs(found.std() - 0.5) < 0.01
    found = drawn(x.clone().log_normal_(0.5, 0.2))
    assert abs(np.log(found).mean() - 0.5) < 0.01 and abs(np.log(found).std() - 0.2) < 0.01
    found = drawn(x.clone().cauchy_(1.0, 3.0))
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
    assert abs(middle - 1) < 0.1 and abs(high - 4) < 0.2 and abs(low + 2) < 0.2
    found = drawn(x.clone().geometric_(0.25))
    assert found.min() == 1 and abs(found.mean() - 4) < 0.1
    np.testing.assert_allclose((found == 1).mean(), 0.25, atol=0.01)


def test_whole_numbers_over_a_range_and_over_a_dtype() -> None:
    svod.manual_seed(8)
    x = svod.zeros(100, 100, dtype=svod.int64)
    found = drawn(x.clone().random_(2, 6))
    assert set(np.unique(found)) == {2, 3, 4, 5}
    assert set(np.unique(drawn(x.clone().random_(3)))) == {0, 1, 2}
    assert set(np.unique(drawn(svod.randint_like(x, 4, 6)))) == {4, 5}
    small = drawn(svod.zeros(100, 100, dtype=svod.uint8).random_())
    assert small.min() == 0 and small.max() == 255
    large = drawn(svod.zeros(100, 100).random_())
    assert large.max() <= 2**24 and large.max() > 2**23 and (large == np.floor(large)).all()


def test_modes_without_and_with_gradients() -> None:
    x = svod.Tensor([1.0, 2.0], requires_grad=True)
    with svod.inference_mode():
        assert not (x * 2).requires_grad
    with svod.inference_mode(False), svod.enable_grad():
        assert (x * 2).requires_grad
    with svod.no_grad(), svod.enable_grad():
        assert (x * 2).requires_grad
