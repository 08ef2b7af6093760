"""Convolutions that tensor cores compute from windows where they are, against float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.tensor.recording.realize import prepare
from tests.gpu.test_matmul import check, operands
from tests.tensor.test_transposed_convolutions import spread_out


class Case(NamedTuple):
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1


CASES = {
    "padded": Case((8, 64, 28, 28), (64, 64, 3, 3), padding=1),
    "not padded": Case((8, 64, 30, 29), (96, 64, 3, 3)),
    "stride": Case((8, 128, 29, 31), (64, 128, 3, 3), stride=2, padding=1),
    "stride 3": Case((9, 128, 29, 31), (64, 128, 5, 5), stride=3, padding=2),
    "dilation": Case((8, 64, 28, 30), (72, 64, 3, 3), padding=2, dilation=2),
    "stride and dilation": Case((8, 64, 41, 40), (72, 64, 3, 3), 2, 3, 3),
    "odd channels": Case((8, 72, 28, 28), (200, 72, 3, 3), padding=1),
    "few channels": Case((8, 32, 56, 56), (128, 32, 3, 3), padding=1),
    "one row": Case((64, 128, 1, 200), (128, 128, 1, 7)),
    "seven": Case((32, 256, 7, 7), (256, 256, 3, 3), padding=1),
    "groups": Case((4, 256, 28, 28), (256, 64, 3, 3), padding=1, groups=4),
    "wide padding": Case((8, 64, 20, 20), (64, 64, 5, 5), padding=4),
    "even kernel": Case((8, 64, 33, 33), (64, 64, 4, 2), stride=2, padding=1),
    "line": Case((4, 128, 1001), (256, 128, 5), padding=2),
    "space": Case((2, 64, 9, 14, 15), (64, 64, 3, 3, 3), padding=1),
}


def convolved(x: Any, w: Any, case: Case) -> Any:
    """The convolution in float64, one product per tap."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    sides = len(x.shape) - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(case.padding, case.padding)] * sides])
    sizes = [
        (n - (k - 1) * case.dilation - 1) // case.stride + 1
        for n, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    x = x.reshape(len(x), case.groups, -1, *x.shape[2:])
    w = w.reshape(case.groups, -1, *w.shape[1:])
    found: Any = 0
    for tap in np.ndindex(*w.shape[3:]):
        cut = [
            slice(k * case.dilation, k * case.dilation + (n - 1) * case.stride + 1, case.stride)
            for k, n in zip(tap, sizes, strict=True)
        ]
        found = found + np.einsum(
            "ngc...,goc->ngo...", x[(..., *cut)], w[(..., *tap)], optimize=True
        )
    return found.reshape(len(x), -1, *sizes)


def convolve(x: Tensor, w: Tensor, case: Case) -> Tensor:
    names = {3: x.conv1d, 4: x.conv2d, 5: x.conv3d}
    given = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation}
    return names[len(case.image)](w, groups=case.groups, **given)


def run(result: Tensor) -> list[str]:
    """The names of the kernels that were run."""
    plan = prepare([result])
    plan.execute()
    return [k.entry_point for k in plan.kernels()]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_windows(kind: str, name: str) -> None:
    case = CASES[name]
    a, b = operands(kind, case.image, case.kernel)
    x, w = Tensor(a).realize(), Tensor(b).realize()
    check(convolve(x, w, case), convolved(a, b, case), kind)


@pytest.mark.parametrize("name", ["padded", "stride", "odd channels", "dilation"])
def test_channels_that_are_last_already(name: str) -> None:
    case = CASES[name]
    a, b = operands("bfloat16", case.image, case.kernel)
    last = (0, *range(2, a.ndim), 1)
    back = (0, a.ndim - 1, *range(1, a.ndim - 1))
    x, w = (Tensor(t.transpose(last).copy()).realize().permute(*back) for t in (a, b))
    found = convolve(x, w, case)
    assert not any("copy" in name for name in run(found))
    check(found, convolved(a, b, case), "bfloat16")


def test_what_follows_and_one_after_another() -> None:
    case = CASES["padded"]
    a, b, c, d = operands("bfloat16", case.image, case.kernel, case.kernel, (64,))
    x, w, v, bias = (Tensor(t).realize() for t in (a, b, c, d))
    first = (x.conv2d(w * 0.1, bias, padding=1)).relu()
    result = (first.conv2d(v * 0.1, padding=1) + first).relu()
    scaled = [np.asarray((t * 0.1).numpy()) for t in (w, v)]
    middle = np.maximum(convolved(a, scaled[0], case) + d.astype(np.float64)[:, None, None], 0)
    middle = middle.astype(a.dtype)
    wanted = convolved(middle, scaled[1], case) + middle.astype(np.float64)
    check(result, np.maximum(wanted, 0), "bfloat16")
    check(first, middle.astype(np.float64), "bfloat16")


def test_arguments_that_are_not_aligned() -> None:
    """What is stored or added at odd addresses is computed without the copy engine."""
    case = Case((4, 64, 16, 16), (64, 64, 3, 3), padding=1)
    a, b, c = operands("bfloat16", case.image, case.kernel, (65,))
    x, w = (Tensor(t).realize() for t in (a, b))
    bias = Tensor(c).realize()
    step = svod.jit(lambda x, bias: x.conv2d(w, bias, padding=1))
    for first in (0, 1):
        given = Tensor(c[first : first + 64]).realize()
        wanted = convolved(a, b, case) + c[first : first + 64].astype(np.float64)[:, None, None]
        check(step(x, given), wanted, "bfloat16")
        check(x.conv2d(w, bias[first : first + 64], padding=1), wanted, "bfloat16")


GRADIENTS = {
    "padded": CASES["padded"],
    "stride": Case((32, 64, 28, 28), (128, 64, 3, 3), stride=2, padding=1),
    "sixteen images": Case((16, 72, 14, 14), (136, 72, 3, 3), padding=1),
    "odd sizes": Case((30, 64, 13, 15), (64, 64, 3, 3), padding=1),
    "dilation": Case((16, 64, 16, 24), (64, 64, 3, 3), padding=2, dilation=2),
    "many pixels": Case((4, 64, 64, 64), (64, 64, 3, 3), padding=1),
    "groups": Case((16, 128, 16, 16), (128, 64, 3, 3), padding=1, groups=2),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("wanted_kind", ["bfloat16", "float32"])
def test_gradients(wanted_kind: str, name: str) -> None:
    case = GRADIENTS[name]
    a, b = operands("bfloat16", case.image, case.kernel)
    found: list[list[Any]] = []
    for device in ("CUDA", "CPU"):
        kind = getattr(svod, wanted_kind) if device == "CUDA" else svod.float32
        x, w = (Tensor(t, device=device).to(dtype=kind) for t in (a, b))
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = convolve(x, w, case)
        (c,) = operands("bfloat16", y.shape)
        (y * Tensor(c, device=device).to(dtype=kind)).sum().backward()
        assert x.grad is not None and w.grad is not None
        found.append([t.numpy().astype(np.float64) for t in (x.grad, w.grad)])
    for ours, wanted in zip(*found, strict=True):
        rounding = 5e-3 if wanted_kind == "bfloat16" else 1e-5
        assert np.linalg.norm(ours - wanted) < rounding * np.linalg.norm(wanted)


def test_gradients_beside_numbers_that_are_not_finite() -> None:
    """What a box has past the end of an image is no part of any sum."""
    case = Case((16, 64, 28, 28), (64, 64, 3, 3), padding=1)
    a, c = operands("bfloat16", case.image, case.image)
    a[:, :, :, -1] = np.inf
    x = Tensor(a).realize()
    w = svod.zeros(64, 64, 3, 3, dtype=svod.bfloat16).realize().requires_grad_()
    (x.conv2d(w, padding=1) * Tensor(c).realize()).sum().backward()
    assert w.grad is not None
    taps = np.isfinite(w.grad.numpy().astype(np.float32)).all((0, 1))
    assert taps[:, 0].all() and not taps[:, 1:].any()


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "doubling": ((8, 64, 28, 28), (64, 64, 4, 4), {"stride": 2, "padding": 1}),
    "odd window": ((8, 128, 15, 17), (128, 64, 3, 3), {"stride": 2, "padding": 1}),
    "one more": ((8, 64, 14, 28), (64, 96, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "without overlap": ((8, 64, 28, 28), (64, 64, 2, 2), {"stride": 2}),
    "three": ((4, 64, 21, 20), (64, 64, 5, 5), {"stride": 3, "padding": 2}),
    "plain": ((8, 64, 28, 28), (64, 72, 3, 3), {"padding": 1}),
    "dilation": ((4, 64, 20, 20), (64, 64, 3, 3), {"stride": 2, "dilation": 3, "padding": 1}),
    "groups": ((4, 128, 28, 28), (128, 64, 4, 4), {"stride": 2, "padding": 1, "groups": 2}),
    "a line": ((8, 64, 501), (64, 128, 8), {"stride": 4, "padding": 2}),
    "space": ((2, 64, 7, 8, 8), (64, 64, 4, 4, 4), {"stride": 2, "padding": 1}),
}


@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(name: str, kind: str) -> None:
    """Values, and the gradients of both operands, with a bias after it."""
    image, kernel, options = TRANSPOSED[name]
    a, b = operands(kind, image, kernel)
    x, w = (Tensor(t).realize().requires_grad_() for t in (a, b))
    (bias,) = operands(kind, (kernel[1] * options.get("groups", 1),))
    run = {3: Tensor.conv_transpose1d, 4: Tensor.conv_transpose2d, 5: Tensor.conv_transpose3d}
    y = run[len(image)](x, w, Tensor(bias).realize(), **options)
    wide = [t.astype(np.float64) for t in (a, b, bias)]
    wanted = spread_out(wide[0], wide[1], options)
    check(y, wanted + wide[2].reshape(-1, *[1] * (len(image) - 2)), kind)
    (g,) = operands(kind, y.shape)
    y.backward(Tensor(g).realize())
    rng = np.random.default_rng(8)
    for own, sizes, is_image in ((x, image, True), (w, kernel, False)):
        assert own.grad is not None
        moved = rng.standard_normal(sizes)
        pair = (moved, wide[1]) if is_image else (wide[0], moved)
        along = spread_out(*pair, options) * g.astype(np.float64)
        found = own.grad.numpy().astype(np.float64) * moved
        spread = np.sqrt((found**2).sum())
        assert abs(along.sum() - found.sum()) < (2e-2 if kind == "bfloat16" else 1e-4) * spread


@pytest.mark.parametrize("name", ["padded", "stride", "sixteen images", "many pixels"])
def test_factors_of_eleven_bits(name: str) -> None:
    """Where that is allowed, float32 goes to tensor cores too, and so do gradients."""
    case = GRADIENTS[name]
    a, b = operands("float32", case.image, case.kernel)
    found: list[list[Any]] = []
    for allowed in (False, True):
        with knobs.scope(tf32=allowed):
            x, w = (Tensor(t).realize().requires_grad_() for t in (a, b))
            y = convolve(x, w, case)
            y.backward(Tensor(operands("float32", y.shape)[0]).realize())
            assert x.grad is not None and w.grad is not None
            found.append([t.numpy().astype(np.float64) for t in (y, x.grad, w.grad)])
    for exact, rounded in zip(*found, strict=True):
        assert np.linalg.norm(rounded - exact) < 2e-3 * np.linalg.norm(exact)
    assert not np.array_equal(found[0][0], found[1][0])
