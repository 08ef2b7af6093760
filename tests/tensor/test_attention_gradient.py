"""The gradient of attention from the logarithms of rows, as a graph: against the derived one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.tensor.layers import attention

Array = np.ndarray[Any, Any]
NEAR = 4e-3


@pytest.fixture
def by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device that has kernels for it."""
    monkeypatch.setattr(attention, "_has_blocks", lambda name: True)


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(s).astype(np.float16) for s in shapes]


def gradients(arrays: list[Array], grad: Array, dtype: Any, **options: Any) -> list[Array]:
    tensors = [Tensor(a).cast(dtype) for a in arrays]
    for t in tensors:
        t.requires_grad = True
    if len(tensors) > 3:
        options["attn_mask"] = tensors[3]
    out = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2], **options)
    found = svod.autograd.grad((out.float() * Tensor(grad).float()).sum(), tensors)
    return [g.numpy().astype(np.float64) for g in found]


def check(arrays: list[Array], grad: Array, **options: Any) -> None:
    """Narrow floats go by blocks, wide ones step by step."""
    found = gradients(arrays, grad, svod.float16, **options)
    wanted = gradients(arrays, grad, svod.float64, **options)
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        assert np.linalg.norm(f - w) < NEAR * np.linalg.norm(w)


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("is_causal", [False, True])
def test_plain_and_causal(is_causal: bool) -> None:
    *arrays, grad = draw((2, 70, 16), (2, 90, 16), (2, 90, 24), (2, 70, 24))
    check(arrays, grad, is_causal=is_causal)
    check(arrays, grad, is_causal=is_causal, scale=0.1)


@pytest.mark.usefixtures("by_blocks")
def test_a_boolean_mask_that_leaves_rows_nothing() -> None:
    *arrays, grad = draw((2, 70, 16), (2, 64, 16), (2, 64, 16), (2, 70, 16))
    keep = np.random.default_rng(3).random((70, 64)) < 0.6
    keep[[0, 33]] = False
    check(arrays, grad, attn_mask=Tensor(keep))
    assert (gradients(arrays, grad, svod.float16, attn_mask=Tensor(keep))[0][:, [0, 33]] == 0).all()


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("shape", [(64, 70), (2, 1, 70), (70,)])
def test_an_added_mask_has_a_gradient_too(shape: tuple[int, ...]) -> None:
    *arrays, grad = draw((2, 64, 16), (2, 70, 16), (2, 70, 16), shape, (2, 64, 16))
    check(arrays, grad)


@pytest.mark.usefixtures("by_blocks")
def test_groups_and_batches_that_are_broadcast() -> None:
    *arrays, grad = draw((2, 4, 64, 16), (2, 2, 64, 16), (2, 2, 64, 16), (2, 4, 64, 16))
    check(arrays, grad, enable_gqa=True, is_causal=True)
    *arrays, grad = draw((3, 64, 16), (64, 16), (1, 64, 16), (3, 64, 16))
    check(arrays, grad)


@pytest.mark.usefixtures("by_blocks")
def test_a_gradient_that_is_one_number() -> None:
    arrays = draw((64, 16), (64, 16), (64, 16))
    tensors = [Tensor(a) for a in arrays]
    for t in tensors:
        t.requires_grad = True
    out = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2], is_causal=True)
    found = svod.autograd.grad(out.sum(), tensors)
    wanted = gradients(arrays, np.ones((64, 16)), svod.float64, is_causal=True)
    np.testing.assert_allclose(found[2].numpy(), wanted[2], rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("by_blocks")
def test_second_derivatives() -> None:
    *arrays, grad = draw((64, 16), (64, 16), (64, 16), (64, 16))

    def second(dtype: Any) -> list[Array]:
        tensors = [Tensor(a).cast(dtype) for a in arrays]
        for t in tensors:
            t.requires_grad = True
        out = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2], is_causal=True)
        total = (out * Tensor(grad).cast(dtype)).sum()
        first = svod.autograd.grad(total, tensors, create_graph=True)
        squares = sum([(g.cast("float32") ** 2).sum() for g in first])
        return [g.numpy().astype(np.float64) for g in svod.autograd.grad(squares, tensors)]

    for f, w in zip(second(svod.float16), second(svod.float64), strict=True):
        assert np.linalg.norm(f - w) < 1e-2 * np.linalg.norm(w)


@pytest.mark.usefixtures("by_blocks")
def test_values_that_were_realized_on_the_way() -> None:
    *arrays, grad = draw((64, 16), (64, 16), (64, 16), (64, 16))
    tensors = [Tensor(a) for a in arrays]
    for t in tensors:
        t.requires_grad = True
    out = tensors[0].scaled_dot_product_attention(tensors[1], tensors[2])
    out.realize()
    found = svod.autograd.grad((out * Tensor(grad)).sum(), tensors)
    for f, w in zip(found, gradients(arrays, grad, svod.float64), strict=True):
        assert np.linalg.norm(f.numpy() - w) < NEAR * np.linalg.norm(w)
