"""200 steps of the convnet example follow torch's losses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.nn import convnet_curve as curve


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_losses_follow_those_recorded_from_torch(jitted: bool) -> None:
    weights, wanted = curve.recorded()
    found = curve.svod_losses(weights, jitted=jitted)
    assert wanted[-1] < 1e-2 * wanted[0], "the recorded run has learnt"
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-3), (np.float64, 1e-9)])
def test_losses_follow_torch(dtype: type, rtol: float) -> None:
    pytest.importorskip("torch")
    weights, _ = curve.recorded()
    found, wanted = curve.svod_losses(weights, dtype), curve.torch_losses(weights, dtype)
    np.testing.assert_allclose(found, wanted, rtol=rtol)
