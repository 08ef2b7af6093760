"""Sums that are compared with their own maximum are computed once.

A kernel that looks for the maximum and one that looks for where it is may add up in another order:
then nothing is equal to the maximum, and gradients are lost.
"""

from __future__ import annotations

import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor
from tests.fuzz.networks import difference, evaluated

DRAW = np.random.default_rng(5)
IMAGES = DRAW.normal(size=(4, 4, 1, 3)).astype(np.float32)
WEIGHT = (DRAW.normal(size=(3, 4, 3, 3)) * 0.2).astype(np.float32)
FACTORS = DRAW.normal(size=(2, 9)).astype(np.float32)


def _joined(axes: tuple[int, int], other: str, images: Tensor, weight: Tensor) -> Tensor:
    y = F.conv2d(images, weight, padding=1).softmax(axes[0]).softmax(axes[1]).flatten(1)
    return svod.stack([y, y.sin() if other == "sin" else y.flip(0)], 0).mean(1)


@pytest.mark.parametrize("other", ["sin", "flip"])
@pytest.mark.parametrize("axes", [(-1, -1), (-1, 1), (1, -1), (1, 1)])
@pytest.mark.parametrize("is_realized", [False, True])
def test_gradients_of_a_maximum_of_sums_are_not_lost(
    axes: tuple[int, int], other: str, is_realized: bool
) -> None:
    images, weight = Tensor(IMAGES).requires_grad_(), Tensor(WEIGHT).requires_grad_()
    y = _joined(axes, other, images, weight)
    highest = y.amax(0, keepdim=True)
    if is_realized:
        highest.realize()
    ((y - highest) * Tensor(FACTORS)).sum().backward()
    for leaf in (images, weight):
        gradient = leaf.grad
        assert gradient is not None
        wanted = evaluated(gradient)
        assert difference(gradient.numpy(), wanted) is None


@pytest.mark.parametrize("other", ["sin", "flip"])
@pytest.mark.parametrize("axes", [(-1, -1), (-1, 1), (1, -1), (1, 1)])
def test_the_place_of_a_maximum_of_sums_is_found(axes: tuple[int, int], other: str) -> None:
    y = _joined(axes, other, Tensor(IMAGES), Tensor(WEIGHT))
    assert np.array_equal(y.argmax(0).numpy(), y.numpy().argmax(0))
