"""Tensors over files: what is computed from them, and the parts of them that are not copied."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DeviceError
from svod.nn.state import load_file, save_file
from svod.runtime.ops import PreparedBufferView, PreparedCopy, PreparedKernel
from svod.tensor.core.tensor_registry import buffer_of


@pytest.fixture
def file(tmp_path):
    array = np.arange(30, dtype=np.float32).reshape(5, 6)
    return array, Tensor(array).to(f"DISK:{tmp_path}/values.bin")


def address(tensor):
    found = buffer_of(tensor.uop)
    assert found is not None
    return found.address


def test_moving_a_tensor_to_a_file_writes_the_file(tmp_path):
    path = tmp_path / "values.bin"
    x = svod.arange(30.0).to(f"DISK:{path}")
    np.testing.assert_array_equal(np.fromfile(path, np.float32), np.arange(30))
    assert x.device == f"DISK:{path}"
    np.testing.assert_array_equal(x[10:20].numpy(), np.arange(10, 20))
    np.testing.assert_array_equal(x.numpy(), np.arange(30))


@pytest.mark.row("S234")
def test_what_is_computed_from_files_alone_is_computed_on_the_cpu(file, tmp_path):
    array, x = file
    other = Tensor(array.T.copy()).to(f"DISK:{tmp_path}/other.bin")
    for found, exact in [
        (x + 1, array + 1),
        (x.sum(0), array.sum(0)),
        (x @ other, array @ array.T),
        (x.T, array.T),
        (x[:, 2:4], array[:, 2:4]),
        (x[::2].relu() + x[1], array[::2] + array[1]),
        (x.softmax(1).sum(), 5.0),
    ]:
        assert found.realize().device == "CPU"
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-6)


def test_a_result_of_files_goes_on_with_tensors_of_the_cpu(file):
    array, x = file
    here = Tensor(array).realize()
    assert (x * 2).device == (x * here).device == (here - x).device == "CPU"
    np.testing.assert_array_equal(((x * 2) + here - x).numpy(), array * 2)
    second = Tensor(array, device="CPU:1").realize()
    assert (second - x).device == (x - second).device == "CPU:1"
    np.testing.assert_array_equal((second - x + second).numpy(), array)
    with pytest.raises(DeviceError, match="operands are on"):
        _ = x + Tensor(array, device="REF").realize()


@pytest.mark.row("S150")
@pytest.mark.parametrize(
    ("cut", "start"),
    [(np.s_[1:3], 6), (np.s_[4], 24), (np.s_[2, 1:4], 13), (np.s_[3:4, 2:], 20), (np.s_[:2], 0)],
)
def test_a_part_of_a_file_in_one_piece_is_a_view_of_it(file, cut, start):
    array, x = file
    plan = x[cut].prepare()
    assert [type(op) for op in plan.prepared_ops()] == [PreparedBufferView]
    part = x[cut].realize()
    assert part.device == x.device
    assert address(part) == address(x) + 4 * start
    np.testing.assert_array_equal(part.numpy(), array[cut])
    np.testing.assert_array_equal((part * 2).numpy(), array[cut] * 2)


@pytest.mark.parametrize("cut", [np.s_[:, 1], np.s_[1:3, 2:4], np.s_[::2], np.s_[::-1]])
def test_a_part_of_a_file_with_gaps_is_copied_to_the_cpu(file, cut):
    array, x = file
    part = x[cut].realize()
    assert part.device == "CPU"
    np.testing.assert_array_equal(part.numpy(), array[cut])


@pytest.mark.row("S149")
def test_only_the_rows_of_a_saved_weight_that_are_used_are_copied(tmp_path):
    table = np.arange(1000, dtype=np.float32).reshape(100, 10)
    save_file({"small": Tensor([1.0]), "table": Tensor(table)}, tmp_path / "model.safetensors")
    w = load_file(tmp_path / "model.safetensors")["table"]
    part = w[40:42]
    plan = part.prepare()
    assert [type(op) for op in plan.prepared_ops()] == [PreparedBufferView, PreparedCopy]
    assert sum(b.nbytes for b in plan.buffers() if b.device == "CPU") == 80
    plan.execute()
    np.testing.assert_array_equal(part.numpy(), table[40:42])
    w = load_file(tmp_path / "model.safetensors")["table"]
    np.testing.assert_array_equal((w[3] + w[7:9].sum(0)).numpy(), table[3] + table[7:9].sum(0))


def test_a_saved_weight_that_is_used_whole_is_copied_once(tmp_path):
    table = np.arange(1000, dtype=np.float32).reshape(100, 10)
    save_file({"table": Tensor(table)}, tmp_path / "model.safetensors")
    w = load_file(tmp_path / "model.safetensors")["table"]
    both = w[40:42].sum() + w.sum()
    plan = both.prepare()
    kinds = [type(op) for op in plan.prepared_ops()]
    assert kinds.count(PreparedCopy) == 1 and PreparedBufferView not in kinds
    assert PreparedKernel in kinds
    plan.execute()
    assert both.item() == table[40:42].sum() + table.sum()


def test_parts_of_parts_are_views_of_the_same_file(file):
    array, x = file
    part = x[1:4].realize()
    inner = part[1].reshape(2, 3)[1].realize()
    assert address(inner) == address(x) + 4 * 15
    np.testing.assert_array_equal(inner.numpy(), array[2, 3:])


def test_a_compiled_function_returns_parts_of_files_in_memory_of_its_own(file):
    array, x = file

    @svod.jit
    def parts(t):
        return t[1:3], t[4] * 2, t

    for _ in range(2):
        first, second, same = parts(x)
        assert first.device == second.device == "CPU" and same.device == x.device
        np.testing.assert_array_equal(first.numpy(), array[1:3])
        np.testing.assert_array_equal(second.numpy(), array[4] * 2)
        np.testing.assert_array_equal(same.numpy(), array)
