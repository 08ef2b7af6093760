"""Functions over axes of a run-time size: one plan, and for each size what a fixed size gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod.device.cpu.compiler import counters
from svod.nn import functional as F

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)


def weight() -> Any:
    return svod.Tensor(W)


LINE, IMAGE = (2, None), (1, 3, None, None)
CASES: dict[str, tuple[tuple[int | None, ...], Callable[[Any, Any], Any]]] = {
    "first half": (LINE, lambda x, s: x[:, : s // 2]),
    "second half": (LINE, lambda x, s: x[:, s // 2 :]),
    "every second": (LINE, lambda x, s: x[:, ::2]),
    "every third inside": (LINE, lambda x, s: x[:, 1 : s - 1 : 3]),
    "arithmetic with the size": (LINE, lambda x, s: x * s / (s - 1) + (s - x)),
    "counting": (LINE, lambda x, s: x + svod.arange(s)),
    "counting in steps": (LINE, lambda x, s: x[:, :1] + svod.arange(1, s, 3)),
    "running sum": (LINE, lambda x, s: x.cumsum(1)),
    "running product": (LINE, lambda x, s: x.cumprod(1)),
    "running maximum": (LINE, lambda x, s: x.cummax(1)[0]),
    "sort": (LINE, lambda x, s: svod.sort(x, dim=1, descending=True)[0]),
    "sort of doubles": (LINE, lambda x, s: svod.sort(x.double(), dim=1)[1]),
    "largest two": (LINE, lambda x, s: x.topk(2, 1)[0]),
    "convolution": (IMAGE, lambda x, s: x.conv2d(weight(), padding=1)),
    "stride": (IMAGE, lambda x, s: x.conv2d(weight(), padding=1, stride=2)),
    "dilation": (IMAGE, lambda x, s: x.conv2d(weight(), padding=2, dilation=2)),
    "both": (IMAGE, lambda x, s: x.conv2d(weight(), padding=2, dilation=2, stride=3)),
    "stride beyond the window": (IMAGE, lambda x, s: x.conv2d(weight()[:, :, :2, :2], stride=3)),
    "transposed": (IMAGE, lambda x, s: x.conv_transpose2d(weight()[:3].transpose(0, 1), stride=2)),
    "maxima": (IMAGE, lambda x, s: F.max_pool2d(x, 3, 2, 1)),
    "maxima, rounded up": (IMAGE, lambda x, s: F.max_pool2d(x, 3, 2, 0, ceil_mode=True)),
    "means": (IMAGE, lambda x, s: F.avg_pool2d(x, 2, 2)),
    "means without borders": (
        IMAGE,
        lambda x, s: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_plan_gives_what_each_fixed_size_gives(name: str) -> None:
    shape, function = CASES[name]
    size = svod.Variable("s", 4, 80 if len(shape) == 2 else 20)
    whole = svod.Tensor.empty(*[n or size.arg.hi for n in shape]).realize()
    x = whole[tuple([slice(0, n or size) for n in shape])]
    plan = svod.prepare(function(x, size), inputs={"x": x}, outputs=["y"])
    compiled = None
    for value in (5, 4, 13, size.arg.hi):
        array = RNG.standard_normal([n or value for n in shape]).astype(np.float32)
        found = np.asarray(plan(x=array))
        assert compiled in (None, dict(counters))
        wanted = function(svod.Tensor(array), value).numpy()
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        compiled = dict(counters)


def test_sums_of_sizes_know_what_their_terms_are_together() -> None:
    s = svod.Variable("s", 2, 32)
    t = svod.Variable("t", 2, 32)
    assert -(-s // 2) is (s + 1) // 2
    assert (s // 2 - s).vmax == -1
    assert (s // 2 * 2 - s).vmin == -1
    assert ((s + t) // 2 * 2 - s - t).vmax == 0
    assert s * t * 3 + t is t + t * (3 * s)
    assert s * (t * (s // 2)) is (s // 2) * (s * t)
