"""What is computed together and what is stored."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.ir import ops as O
from svod.ir.build import iota
from svod.tensor.core.tensor_core import wrap
from tests.schedule.graphs import (
    bodies,
    kernel_count,
    loop_nest,
    reduced_sizes,
    schedule,
    stored_elements,
)


def floats(*shape: int) -> Tensor:
    size = int(np.prod(shape))
    return Tensor((np.arange(size, dtype=np.float32) % 17 - 8).reshape(shape))


def softmax(x: Tensor) -> Tensor:
    grown = (x - x.amax(-1, True)).exp()
    return grown / grown.sum(-1, True)


def layernorm(x: Tensor) -> Tensor:
    apart = x - x.mean(-1, True)
    return apart * ((apart * apart).mean(-1, True) + 1e-5).rsqrt()


@pytest.mark.parametrize("length", [1, 10, 200])
def test_an_elementwise_chain_is_one_kernel(length: int) -> None:
    x = floats(64, 64)
    for i in range(length):
        x = (x * 1.5 + i).maximum(0.25)
    assert kernel_count(x) == 1


def test_movement_costs_no_kernel() -> None:
    x = floats(6, 8, 10)
    y = x.permute(2, 0, 1).reshape(10, 48).flip(0)[1:9, ::3].pad(((1, 1), (0, 2))) + 1
    assert kernel_count(y) == 1


@pytest.mark.parametrize("rows, columns", [(8, 64), (128, 1000), (1000, 17)])
def test_softmax_is_at_most_two_kernels(rows: int, columns: int) -> None:
    assert kernel_count(softmax(floats(rows, columns))) <= 2


def test_layernorm_is_at_most_two_kernels() -> None:
    assert kernel_count(layernorm(floats(128, 768))) <= 2


def test_matmul_takes_bias_and_activation_with_it() -> None:
    x, w, b = floats(32, 64), floats(64, 48), floats(48)
    y = x @ w + b
    gelu = y * 0.5 * ((y * 0.7071).erf() + 1)
    assert kernel_count(gelu) == 1


def test_a_matmul_converts_and_scales_its_operands_itself() -> None:
    codes = Tensor((np.arange(96 * 80) % 255 - 127).astype(np.int8).reshape(96, 80)).realize()
    scale, x = floats(80), floats(64, 96)
    product = x @ ((codes.cast(svod.float32) - 3.0) * scale)
    assert kernel_count(product) == 1
    want = x.numpy() @ ((codes.numpy().astype(np.float32) - 3.0) * scale.numpy())
    np.testing.assert_allclose(product.numpy(), want, rtol=1e-5)


def test_what_a_matmul_does_not_pack_is_stored() -> None:
    x = floats(64, 96) * 0.1
    w = floats(96, 80)
    assert kernel_count(x.gelu() @ w) == 2  # too much to compute again for every block
    scaled = w * 2
    assert kernel_count(x @ scaled, floats(32, 96) @ scaled) == 3  # used twice, computed once
    assert kernel_count(floats(4, 96) @ w.exp()) == 2  # so few rows read it where it is


def test_two_matmuls_in_a_row_are_two_kernels() -> None:
    x, w, v = floats(64, 64), floats(64, 64), floats(64, 64)
    assert stored_elements((x @ w) @ v) == [4096, 4096]


def test_a_convolution_before_a_strided_window_is_stored_with_its_activation() -> None:
    image, pointwise, windows = floats(1, 8, 16, 16), floats(24, 8, 1, 1), floats(24, 1, 3, 3)
    inner = image.conv2d(pointwise).relu()
    first, second = bodies(inner.conv2d(windows, stride=2, padding=1, groups=24))
    count = [sum(n.op == O.MAX for n in body.toposort()) for body in (first, second)]
    assert count == [1, 0]


def test_an_expensive_value_used_many_times_is_stored_once() -> None:
    x = floats(64, 256)
    rows = x.exp().sum(1)  # 64 sums over 256 elements each
    y = rows.reshape(64, 1) * rows.reshape(1, 64)  # every sum in 64 places
    assert stored_elements(y) == [64, 4096]


def test_a_cheap_value_with_two_uses_is_computed_twice() -> None:
    x = floats(32, 32)
    y = x + 1
    assert stored_elements(y * 2, y * 3) == [1024, 1024]


def test_a_sum_used_along_its_row_stays_in_the_kernel() -> None:
    x = floats(64, 128)
    assert kernel_count(x - x.sum(1, True)) == 1


def test_asking_for_contiguous_makes_a_kernel() -> None:
    x = floats(16, 16)
    assert kernel_count((x + 1).contiguous() * 2) == 2
    assert kernel_count((x + 1) * 2) == 1


def test_a_value_asked_for_twice_is_computed_once() -> None:
    x = floats(16, 16)
    y = (x * 2).exp()
    assert kernel_count(y, y) == 1


def test_a_realised_tensor_is_copied_by_one_kernel() -> None:
    x = floats(16)  # either of the two may be written to later
    assert kernel_count(x.reshape(4, 4)) == 1


def test_a_large_reduction_has_two_stages() -> None:
    sizes = stored_elements(floats(1 << 20).sum())
    assert len(sizes) == 2
    assert sizes[-1] == 1 and 8 <= sizes[0] <= 1024


def test_a_large_reduction_of_many_rows_has_one_stage() -> None:
    assert stored_elements(floats(512, 2048).sum(1)) == [512]


@pytest.mark.parametrize("layers", [2, 12, 48])
def test_equal_layers_share_their_kernels(layers: int) -> None:
    def layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        hidden = (layernorm(x) @ w).maximum(0)
        return x + hidden @ v

    x = floats(16, 32)
    for _ in range(layers):
        x = layer(x, floats(32, 64), floats(64, 32))
    distinct = len(bodies(x))
    calls = kernel_count(x)
    first = floats(16, 32)
    two = layer(layer(first, floats(32, 64), floats(64, 32)), floats(32, 64), floats(64, 32))
    assert distinct == len(bodies(two))
    assert calls == layers * kernel_count(two) // 2


# -- load collapse -----------------------------------------------------------------------------


def test_an_embedding_by_a_one_hot_sum_has_no_loop_over_the_vocabulary() -> None:
    table = floats(1000, 24)
    rows = Tensor(np.array([3, 999, 0, 17], np.int32))
    hot = rows.reshape(4, 1) == svod.arange(1000, dtype=svod.int32)
    picked = svod.where(hot.reshape(4, 1000, 1), table.reshape(1, 1000, 24), 0.0).sum(1)
    (body,) = bodies(picked)
    assert reduced_sizes(body) == []
    assert np.array_equal(picked.numpy(), table.numpy()[[3, 999, 0, 17]])


def test_an_embedding_of_small_floats_has_no_loop_over_the_vocabulary() -> None:
    table = floats(100, 24).cast(svod.float16).realize()
    hot = Tensor(np.array([3, 99], np.int32)).reshape(2, 1) == svod.arange(100, dtype=svod.int32)
    picked = svod.where(hot.reshape(2, 100, 1), table.reshape(1, 100, 24), 0.0).sum(1)
    (body,) = bodies(picked)
    assert reduced_sizes(body) == []
    assert np.array_equal(picked.numpy(), table.numpy()[[3, 99]])


def test_a_place_outside_the_table_gives_zero() -> None:
    table = floats(10, 4)
    rows = Tensor(np.array([-1, 10, 1 << 40, 9], np.int64))
    hot = rows.reshape(4, 1) == svod.arange(10)
    picked = svod.where(hot.reshape(4, 10, 1), table.reshape(1, 10, 4), 0.0).sum(1)
    want = np.zeros((4, 4), np.float32)
    want[3] = table.numpy()[9]
    assert np.array_equal(picked.numpy(), want)


def test_a_counter_that_wraps_is_not_collapsed() -> None:
    # 0..299 as uint8 meets 44 twice: at 44 and at 300 - 256
    values = floats(301)
    wrapped = wrap(iota(301, svod.uint8), None)
    total = svod.where(wrapped == Tensor(np.array(44, np.uint8)), values, 0.0).sum()
    assert total.item() == values.numpy()[44] + values.numpy()[300]


def test_indexing_reads_only_what_it_needs() -> None:
    table = floats(1000, 24)
    picked = table[Tensor(np.array([5, 7]))]
    (body,) = bodies(picked)
    assert reduced_sizes(body) == []
    assert stored_elements(picked) == [48]


def test_a_sum_over_a_real_condition_keeps_its_loop() -> None:
    x = floats(100)
    total = svod.where(x > 3, x, 0.0).sum()
    (body,) = bodies(total)
    assert reduced_sizes(body) == [100]


def test_the_loop_form_of_a_kernel_has_no_movement_left() -> None:
    x = floats(6, 8)
    (body,) = bodies(x.permute(1, 0).pad(((1, 1), (0, 0))).flip(0) + 1)
    nest = loop_nest(body)
    assert not [n for n in nest.toposort() if n.op in O.MOVEMENT]


def test_a_schedule_lists_dependencies_before_users() -> None:
    x = floats(64, 64)
    made = schedule(softmax((x @ x) @ x).sum(0))
    seen: set[int] = set()
    for item in made.items:
        assert set(item.dependencies) <= seen
        seen.add(item.call.sn)


def test_values_side_by_side_are_one_kernel() -> None:
    """Each depends on all inputs, and they share what they are made of."""
    x = floats(8, 64, 32)
    parts = [x[i] for i in range(8)]
    for _ in range(3):
        parts = [a + b for a, b in zip(parts, parts[1:] + parts[:1], strict=True)]
    assert kernel_count(svod.stack(parts, 1)) == 1


def test_sums_side_by_side_are_stored() -> None:
    x = floats(64, 256)
    assert kernel_count(svod.stack([x.sum(1), (x * x).sum(1)], 1)) == 3


def test_a_value_in_pieces_that_do_not_overlap_is_computed_inside() -> None:
    x = floats(1024) * 2 + 1
    parts = [x[i * 64 : (i + 1) * 64] for i in range(16)]
    total = parts[0]
    for part in parts[1:]:
        total = total * 0.5 + part
    assert kernel_count(total) == 1
