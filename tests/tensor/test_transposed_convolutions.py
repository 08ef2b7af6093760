"""Transposed convolutions and their gradients, against sums over taps in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ShapeError
from svod.tensor.layers import convolution, convolution_graph
from tests.tensor.test_convolution_gradients import gradients_of

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 6), (3, 4, 3, 2), {}),
    "padded": ((2, 3, 5, 6), (3, 4, 3, 3), {"padding": (1, 2)}),
    "dilation": ((2, 3, 5, 6), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 1}),
    "groups": ((2, 6, 5, 4), (6, 2, 3, 3), {"groups": 3, "padding": 1}),
    "doubling": ((2, 3, 5, 6), (3, 4, 4, 4), {"stride": 2, "padding": 1}),
    "doubling without overlap": ((2, 3, 5, 6), (3, 4, 2, 2), {"stride": 2}),
    "odd window": ((2, 3, 5, 6), (3, 4, 3, 3), {"stride": 2, "padding": 1}),
    "one more": ((2, 3, 5, 6), (3, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "uneven": (
        (2, 4, 5, 6), (4, 3, 5, 4),
        {"stride": (3, 2), "padding": (2, 0), "output_padding": (1, 0), "groups": 2},
    ),
    "stride in one axis": ((2, 3, 5, 6), (3, 4, 3, 2), {"stride": (1, 2), "dilation": (3, 1)}),
    "stride past the window": ((2, 3, 5, 6), (3, 4, 2, 1), {"stride": 3, "padding": 1}),
    "points": ((2, 3, 5, 6), (3, 4, 1, 1), {"stride": 2, "output_padding": 1}),
    "wide padding": ((2, 3, 7, 8), (3, 4, 3, 4), {"stride": 2, "padding": 4}),
    "stride and dilation": ((2, 3, 5, 6), (3, 4, 3, 3), {"stride": 2, "dilation": 2}),
    "coprime": ((2, 3, 5, 6), (3, 4, 3, 2), {"stride": (2, 3), "dilation": (3, 2), "padding": 2}),
    "more than a stride": (
        (2, 3, 5, 6), (3, 4, 3, 3), {"stride": 2, "dilation": 4, "output_padding": 3},
    ),
    "one channel each": ((2, 4, 5, 6), (4, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 4}),
    "one image": ((3, 5, 6), (3, 4, 4, 4), {"stride": 2, "padding": 1}),
    "a line": ((2, 3, 7), (3, 5, 5), {"stride": 3, "padding": 1, "output_padding": 2}),
    "space": ((1, 2, 3, 4, 3), (2, 3, 3, 2, 4), {"stride": (2, 1, 2), "padding": (1, 0, 1)}),
}  # fmt: skip
RUN = {3: Tensor.conv_transpose1d, 4: Tensor.conv_transpose2d, 5: Tensor.conv_transpose3d}


def spread_out(x: Any, w: Any, options: dict[str, Any]) -> Any:
    """Every input times every tap, added to where it belongs."""
    if x.ndim < w.ndim:
        return spread_out(x[None], w, options)[0]
    space = w.ndim - 2
    names, usual = ("stride", "padding", "output_padding", "dilation"), (1, 0, 0, 1)
    each = [options.get(name, value) for name, value in zip(names, usual, strict=True)]
    each = [(n,) * space if isinstance(n, int) else n for n in each]
    steps, pads, extra, apart = each
    groups = options.get("groups", 1)
    x = x.reshape(len(x), groups, -1, *x.shape[2:])
    w = w.reshape(groups, -1, *w.shape[1:])
    spans = [d * (k - 1) + 1 for k, d in zip(w.shape[3:], apart, strict=True)]
    whole = [
        (n - 1) * s + m + e for n, s, m, e in zip(x.shape[3:], steps, spans, extra, strict=True)
    ]
    found = np.zeros((len(x), groups, w.shape[2], *whole), x.dtype)
    for tap in product(*map(range, w.shape[3:])):
        places = zip(tap, apart, x.shape[3:], steps, strict=True)
        cut = tuple([slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in places])
        found[(..., *cut)] += np.einsum(
            "ngi...,gio->ngo...", x, w[(..., *tap)], optimize=x.dtype.kind == "f"
        )
    found = found.reshape(len(x), -1, *whole)
    return found[(..., *[slice(p, n - p) for p, n in zip(pads, whole, strict=True)])]


def arrays(name: str) -> tuple[Any, Any, dict[str, Any]]:
    image, kernel, options = CASES[name]
    rng = np.random.default_rng(3)
    return rng.standard_normal(image), rng.standard_normal(kernel), options


@pytest.mark.parametrize("is_one", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as a GPU computes them: all phases of a stride by one product."""
    monkeypatch.setattr(convolution, "_joins_phases", lambda device: is_one)
    x, w, options = arrays(name)
    run = RUN[w.ndim]
    wanted = spread_out(x, w, options)
    np.testing.assert_allclose(run(Tensor(x), Tensor(w), **options).numpy(), wanted, 1e-12, 1e-12)
    bias = np.arange(wanted.shape[1 if x.ndim == w.ndim else 0]).astype(np.float32)
    narrow = [Tensor(t.astype(np.float32)) for t in (x, w)]
    found = run(*narrow, Tensor(bias), **options).numpy()
    shifted = wanted + bias.reshape(-1, *[1] * (w.ndim - 2))
    np.testing.assert_allclose(found, shifted, 1e-4, 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_whole_numbers(name: str) -> None:
    x, w, options = arrays(name)
    x, w = (np.round(4 * t).astype(np.int64) for t in (x, w))
    found = RUN[w.ndim](Tensor(x), Tensor(w), **options).numpy()
    np.testing.assert_array_equal(found, spread_out(x, w, options))


def gradients(name: str) -> list[Any]:
    x, w, options = arrays(name)
    return gradients_of(lambda a, b: RUN[w.ndim](a, b, **options), Tensor(x), Tensor(w))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_derived_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients(name)
    monkeypatch.setattr(convolution_graph, "_has_own_gradient", lambda *given: False)
    for ours, derived in zip(found, gradients(name), strict=True):
        np.testing.assert_allclose(ours, derived, rtol=1e-11, atol=1e-11 * np.abs(derived).max())


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_transpose(name: str) -> None:
    """<f(x, w), g> has the derivative <f(dx, w), g> along any dx, and so for w."""
    x, w, options = arrays(name)
    a, b = Tensor(x).requires_grad_(), Tensor(w).requires_grad_()
    y = RUN[w.ndim](a, b, **options)
    rng = np.random.default_rng(6)
    g, dx, dw = (rng.standard_normal(s) for s in (y.shape, x.shape, w.shape))
    y.backward(Tensor(g))
    assert a.grad is not None and b.grad is not None
    for grad, moved, other in ((a.grad, dx, (dx, w)), (b.grad, dw, (x, dw))):
        wanted = (spread_out(*other, options) * g).sum()
        np.testing.assert_allclose((grad.numpy() * moved).sum(), wanted, rtol=1e-10)


def test_bad_arguments() -> None:
    x, w = svod.zeros(1, 2, 4, 4), svod.zeros(2, 3, 3, 3)
    with pytest.raises(ShapeError, match="has no size"):
        x.conv_transpose2d(w, padding=4)
    with pytest.raises(ShapeError, match="at least 1"):
        x.conv_transpose2d(w, stride=0)
    with pytest.raises(ShapeError, match="0 or more"):
        x.conv_transpose2d(w, output_padding=-1)
    with pytest.raises(ShapeError, match="no elements"):
        x.conv_transpose2d(svod.zeros(2, 3, 0, 3))
    with pytest.raises(ShapeError, match="2 channels"):
        x.conv_transpose2d(svod.zeros(4, 3, 3, 3))


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_finite_stays_in_its_window(name: str) -> None:
    """No phase multiplies taps that it does not meet."""
    x, w, options = arrays(name)
    marked = np.zeros_like(x)
    marked[(..., *[n // 2 for n in x.shape[-(w.ndim - 2) :]])] = 1.0
    met = spread_out(marked, np.ones_like(w), options) > 0
    x = np.where(marked > 0, np.inf, x)
    found = RUN[w.ndim](Tensor(x), Tensor(np.abs(w)), **options).numpy()
    np.testing.assert_array_equal(np.isinf(found), met)
    assert not np.isnan(found).any()
