"""The gradient of a convolution's input, which is a convolution, against the derived one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.tensor.layers import convolution_graph

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 7, 8), (4, 3, 3, 2), {}),
    "padded": ((2, 3, 7, 8), (4, 3, 3, 3), {"padding": (1, 2)}),
    "padded by more than a window": ((2, 3, 5, 6), (4, 3, 2, 3), {"padding": (3, 4)}),
    "same size": ((1, 2, 6, 5), (3, 2, 4, 2), {"padding": "same"}),
    "dilation": ((2, 3, 9, 11), (4, 3, 3, 2), {"dilation": (2, 3), "padding": 2}),
    "groups": ((2, 6, 6, 6), (4, 3, 3, 3), {"groups": 2, "padding": 1}),
    "one channel each": ((2, 4, 6, 6), (8, 1, 3, 3), {"groups": 4, "padding": 1}),
    "a line": ((2, 3, 9), (5, 3, 4), {"padding": 1}),
    "space": ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"padding": (1, 0, 0)}),
    "one image": ((3, 7, 8), (4, 3, 3, 3), {"padding": 1}),
    "stride": ((2, 3, 9, 9), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "stride of a line": ((2, 3, 12), (4, 3, 5), {"stride": 3, "padding": 2}),
    "strides": ((2, 4, 10, 11), (4, 2, 3, 4), {"stride": (2, 3), "padding": 1, "groups": 2}),
    "one stride": ((2, 3, 8, 9), (4, 3, 3, 2), {"stride": (1, 2)}),
    "stride past the window": ((2, 3, 9, 11), (4, 3, 2, 1), {"stride": 3}),
    "stride and dilation": ((2, 3, 12, 12), (4, 3, 3, 3), {"stride": 2, "dilation": 2}),
    "inputs that no window meets": ((1, 2, 8, 10), (3, 2, 3, 3), {"stride": 4}),
    "steps in space": ((1, 2, 5, 6, 5), (2, 2, 3, 2, 3), {"stride": 2, "padding": 1}),
}


def gradients(name: str) -> list[Any]:
    image, kernel, options = CASES[name]
    rng = np.random.default_rng(5)
    x, w = (Tensor(rng.standard_normal(s)) for s in (image, kernel))
    run = {3: Tensor.conv1d, 4: Tensor.conv2d, 5: Tensor.conv3d}[len(kernel)]
    return gradients_of(lambda a, b: run(a, b, **options), x, w)


def gradients_of(run: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor) -> list[Any]:
    """Of the input, of the weight, and of a sum of both squared, which takes them again."""
    a, b = x.requires_grad_(), w.requires_grad_()
    y = run(a, b)
    seed = Tensor(np.random.default_rng(4).standard_normal(y.shape))
    value, found = (y * y * seed).sum(), []
    for _ in range(2):
        a.grad = b.grad = None
        value.backward(create_graph=True)
        assert a.grad is not None and b.grad is not None
        found += [a.grad, b.grad]
        value = a.grad.square().sum() + b.grad.square().sum()
    return [t.numpy() for t in found]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_derived_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients(name)
    monkeypatch.setattr(convolution_graph, "_has_own_gradient", lambda *given: False)
    for ours, derived in zip(found, gradients(name), strict=True):
        np.testing.assert_allclose(ours, derived, rtol=1e-11, atol=1e-11 * np.abs(derived).max())


def test_one_kernel_per_gradient() -> None:
    x, w = (svod.rand(*s).realize().requires_grad_() for s in ((4, 16, 20, 20), (16, 16, 3, 3)))
    x.conv2d(w, padding=1).sum().backward()
    assert x.grad is not None
    assert len(list(svod.prepare(x.grad).kernels())) == 1


def test_narrow_types() -> None:
    for kind in (svod.float16, svod.bfloat16):
        x = svod.rand(2, 8, 9, 9).to(dtype=kind).requires_grad_()
        w = svod.rand(8, 8, 3, 3).to(dtype=kind).requires_grad_()
        x.conv2d(w, padding=1).sum().backward()
        assert x.grad is not None and w.grad is not None
        assert x.grad.dtype is kind and w.grad.dtype is kind
        wanted = w.float().sum(0).numpy()
        inner = x.grad.float().numpy()[0, :, 4, 4]
        np.testing.assert_allclose(inner, wanted.sum((1, 2)), rtol=2e-2)
