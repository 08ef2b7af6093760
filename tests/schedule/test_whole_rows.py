"""Reductions along long rows: split where cores need it, whole where a kernel comes back to one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from svod import Tensor
from tests.optimize.kernels import floats
from tests.schedule.graphs import kernel_count

WHOLE: dict[str, Callable[[], Tensor]] = {
    "softmax": lambda: floats(16, 65536).softmax(-1),
    "log_softmax": lambda: floats(32, 65536).log_softmax(-1),
    "logsumexp": lambda: floats(32, 100000).logsumexp(-1),
    "layernorm beyond the caches": lambda: floats(64, 65536).layer_norm((65536,)),
}
SPLIT: dict[str, tuple[Callable[[], Tensor], int]] = {
    "softmax of few rows": (lambda: floats(15, 65536).softmax(-1), 3),
    "softmax of a middle axis": (lambda: floats(4, 65536, 4).softmax(1), 5),
    "layernorm in a cache": (lambda: floats(32, 65536).layer_norm((65536,)), 3),
    "a plain sum": (lambda: floats(64, 65536).sum(-1), 2),
    "a sum of functions": (lambda: floats(64, 65536).exp().sum(-1), 2),
}


@pytest.mark.parametrize("name", WHOLE)
def test_rows_that_stay_whole_are_one_kernel(name: str) -> None:
    assert kernel_count(WHOLE[name]()) == 1


@pytest.mark.parametrize("name", SPLIT)
def test_other_long_reductions_are_split(name: str) -> None:
    make, kernels = SPLIT[name]
    assert kernel_count(make()) == kernels


@pytest.mark.parametrize(("rows", "columns"), [(16, 65536), (17, 70001), (16, 270000), (3, 65536)])
def test_softmax_of_long_rows(rows: int, columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    below = (x - x.max(1, keepdims=True)).astype(np.float64)
    total = np.exp(below).sum(1, keepdims=True)
    np.testing.assert_allclose(Tensor(x).softmax(-1).numpy(), np.exp(below) / total, rtol=1e-6)
    exact = below - np.log(total)
    np.testing.assert_allclose(Tensor(x).log_softmax(-1).numpy(), exact, rtol=1e-6)
