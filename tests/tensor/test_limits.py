"""Numbers and sizes at the end of what there is, and values where formulas divide by nothing."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import RangeError, ShapeError


def len_of(value: int) -> str:
    return f"{value.bit_length()} bits"


@pytest.mark.parametrize("value", [2**64, 2**70, -(2**63) - 1, 1 << 20000], ids=len_of)
def test_whole_numbers_beyond_all_integers(value: int) -> None:
    x = svod.arange(3)
    for call in (Tensor, lambda v: svod.full((2,), v), lambda v: x + v, svod.asarray, x.fill_):
        with pytest.raises(RangeError, match="64 bits"):
            call(value)
    with pytest.raises(OverflowError):
        Tensor(value)
    assert (x == 2**64).tolist() == [False] * 3 and (x < 2**64).tolist() == [True] * 3


def test_numbers_above_int64_are_uint64() -> None:
    for made in (Tensor(2**63), svod.full((), 2**63), svod.asarray(2**63), Tensor([2**63])[0]):
        assert (made.dtype, made.item()) == (svod.uint64, 2**63)


def test_bounds_beyond_the_dtype_bound_nothing() -> None:
    x = svod.arange(3, dtype=svod.uint8)
    assert x.clamp(-5, 1).tolist() == [0, 1, 1]
    assert x.clamp(1, 1000).tolist() == [1, 1, 2]
    y = Tensor([-128, 0, 127], dtype=svod.int8)
    assert y.clip(-1000, 1000).tolist() == [-128, 0, 127]
    assert y.clamp_min(200).tolist() == [127] * 3


def test_tensors_have_less_than_two_to_the_63_elements() -> None:
    with pytest.raises(ShapeError, match=r"less than 2\*\*63"):
        svod.ones(1, 1).expand(2**32, 2**32)
    with pytest.raises(ShapeError, match=r"less than 2\*\*63"):
        svod.ones(2**40, 1) * svod.ones(1, 2**40)
    assert svod.ones(1).expand(2**40)[5:7].tolist() == [1.0, 1.0]


def test_the_deviation_of_equal_numbers_has_no_slope() -> None:
    x = svod.ones(4).requires_grad_()
    x.std().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0] * 4
    y = Tensor([[1.0, 1.0], [1.0, 3.0]]).requires_grad_()
    y.std(1).sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), [[0, 0], [-(0.5**0.5), 0.5**0.5]], rtol=1e-6)
