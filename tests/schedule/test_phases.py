"""Products that are stored before their rows are laid between their columns, and those that need
not be."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor


def kernels(result: Tensor) -> int:
    return len(list(svod.prepare(result).kernels()))


def given(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).realize()


SHAPES = {
    "flat": lambda y: y.reshape(-1),
    "heads": lambda y: y.reshape(64 * 4, 24),
    "heads apart": lambda y: y.reshape(64, 4, 24).permute(1, 0, 2),
    "turned": lambda y: y.T,
    "blocks of rows": lambda y: y.reshape(8, 8, 96).permute(1, 0, 2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_one_kernel(name: str) -> None:
    a, b = given(64, 48), given(48, 96)
    assert kernels((SHAPES[name](a @ b) * 2.0).contiguous()) == 1
    found = SHAPES[name](a @ b) * 2.0
    wanted = SHAPES[name](Tensor(a.numpy() @ b.numpy())).numpy()
    np.testing.assert_allclose(found.numpy(), 2 * wanted, rtol=1e-4, atol=1e-4)


def test_flat_images_are_one_kernel() -> None:
    x, w = given(4, 16, 12, 12), given(32, 16, 3, 3)
    assert kernels((x.conv2d(w, padding=1).flatten(1) * 2.0).contiguous()) == 1


def test_phases_are_stored_first() -> None:
    x, w = given(4, 16, 12, 12), given(64, 16, 3, 3)
    assert kernels(x.conv2d(w, padding=1).pixel_shuffle(2)) == 2
    found = x.conv2d(w, padding=1).pixel_shuffle(2)
    y = x.conv2d(w, padding=1).numpy().reshape(4, 16, 2, 2, 12, 12)
    wanted = y.transpose(0, 1, 4, 2, 5, 3).reshape(4, 16, 24, 24)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_phases_of_a_line_are_stored_first() -> None:
    x, w = given(1, 32, 200), given(64, 32, 3)
    y = x.conv1d(w, padding=1)
    found = y.reshape(1, 32, 2, 200).permute(0, 1, 3, 2).reshape(1, 32, 400)
    assert kernels(found.contiguous()) == 2
