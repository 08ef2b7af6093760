"""Memory of the GPU: exchange with others, copies, run-time sizes, stored machine code."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import AllocationError
from svod.device.buffer import Buffer
from svod.device.cuda.pinned import PIECE_BYTES
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.tensor.core.tensor_registry import buffer_of
from svod.tools.doctor import gpus

Array = np.ndarray[Any, Any]


def address(x: Tensor) -> int:
    buffer = buffer_of(x.uop)
    assert buffer is not None
    return buffer.address


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.float16, ml_dtypes.bfloat16, np.bool_])
def test_memory_is_shared_through_dlpack(kind: type) -> None:
    array = np.arange(60).reshape(3, 4, 5).astype(kind)
    x = (Tensor(array).realize().reshape(3, 4, 5) + Tensor(np.zeros(5, kind))).realize()
    y = svod.from_dlpack(x)
    assert y.device == "CUDA" and y.shape == (3, 4, 5) and y.dtype is x.dtype
    assert address(x) == address(y)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    del x
    gc.collect()
    other = Tensor(np.ones(60, kind)).realize()  # may not get the memory that is still in use
    np.testing.assert_array_equal(y.numpy(), array)
    del other
    copy = svod.from_dlpack(y, copy=True)
    assert address(copy) != address(y)
    np.testing.assert_array_equal(copy.numpy(), array)


def test_a_view_is_exported_as_its_values() -> None:
    x = Tensor(np.arange(24, dtype=np.float32)).realize()
    y = svod.from_dlpack(x.reshape(4, 6).permute(1, 0))
    np.testing.assert_array_equal(y.numpy(), np.arange(24).reshape(4, 6).T)


def test_torch_and_ours_share_memory() -> None:
    torch = pytest.importorskip("torch")
    given = torch.arange(12, device="cuda", dtype=torch.bfloat16).reshape(3, 4) * 2
    x = svod.from_dlpack(given)
    assert address(x) == given.data_ptr()
    values = np.arange(12).reshape(3, 4) * 2
    np.testing.assert_array_equal((x + 1).numpy().astype(np.float32), values + 1)
    back = torch.from_dlpack((x * 3).realize())
    assert back.is_cuda and back.dtype == torch.bfloat16
    assert torch.equal(back, given * 3)
    made = Tensor(given)  # a copy
    given.zero_()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(made.numpy().astype(np.float32), values)


@pytest.mark.parametrize(
    ("layout", "is_shared"),
    [
        (lambda t: t.permute(2, 0, 1), True),
        (lambda t: t.permute(0, 2, 1)[1:], True),
        (lambda t: t[:, 1:3, ::2], False),
        (lambda t: t[:, :, 1].expand(3, 2, 4), False),
    ],
)
def test_other_layouts_are_shared_or_copied(layout: Any, is_shared: bool) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24, device="cuda", dtype=torch.float32).reshape(2, 4, 3)
    given = layout(base)
    values = given.cpu().numpy().copy()
    x = svod.from_dlpack(given)
    np.testing.assert_array_equal((x + 1).numpy(), values + 1)
    assert (svod.from_dlpack(given, copy=True) * 2).numpy().tolist() == (values * 2).tolist()
    if is_shared:
        svod.from_dlpack(given, copy=False)
    else:
        with pytest.raises(BufferError, match="cannot be shared"):
            svod.from_dlpack(given, copy=False)
    base.zero_()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(x.numpy(), values * (not is_shared))


def test_streams_wait_for_each_other() -> None:
    torch = pytest.importorskip("torch")
    side = torch.cuda.Stream()
    for _ in range(20):
        x = Tensor(np.ones((2048, 2048), np.float32)).realize()
        y = ((x @ x) @ x).realize()
        with torch.cuda.stream(side):
            total = torch.from_dlpack(y).sum()
            shared = svod.from_dlpack(torch.from_dlpack(y) @ torch.from_dlpack(x))
        side.synchronize()
        assert float(total) == 2048.0**4
        assert float(shared[0, 0].numpy()) == 2048.0**3


@pytest.mark.parametrize(
    "nbytes", [1, 1000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9 * PIECE_BYTES + 77]
)
def test_copies_of_all_sizes_keep_the_bytes(nbytes: int) -> None:
    array = np.random.default_rng(nbytes).integers(0, 255, nbytes).astype(np.uint8)
    given = array.copy()
    x = Tensor(given)
    given[:] = 0  # it may be changed as soon as the tensor is there
    np.testing.assert_array_equal(x.realize().numpy(), array)
    np.testing.assert_array_equal((x + 1).numpy(), array + np.uint8(1))


def test_threads_copy_at_once() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for round_ in range(5):
            array = np.random.default_rng(seed + round_).standard_normal(2_500_000)
            if not np.array_equal(Tensor(array, device="CUDA").realize().numpy(), array):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_with_run_time_shapes_are_read() -> None:
    array = np.arange(200, dtype=np.float32).reshape(20, 10)
    n = svod.Variable("n", 1, 20)
    x = Tensor(array).realize()
    for size in (1, 7, 20):
        part = x[: n.bind(size)]
        np.testing.assert_array_equal((part * 2).numpy(), array[:size] * 2)
        np.testing.assert_array_equal(part.numpy(), array[:size])
        np.testing.assert_array_equal((part + 1).T.numpy(), array[:size].T + 1)


@pytest.mark.alone
def test_all_memory_taken_leaves_everything_usable() -> None:
    allocator = get_device("CUDA").allocator
    x = Tensor(np.arange(10, dtype=np.float32)).realize()
    held = []
    with pytest.raises(AllocationError, match="could not allocate"):
        for _ in range(1000):
            held.append(Buffer.new("CUDA", 4 << 30, dt.uint8).allocate())
    assert len(held) > 2
    with pytest.raises(AllocationError):
        (Tensor(np.ones(1, np.uint8)).expand(8 << 30) + 1).realize()
    held.clear()
    gc.collect()
    np.testing.assert_array_equal((x * 2).numpy(), np.arange(10) * 2.0)
    big = Buffer.new("CUDA", 4 << 30, dt.uint8).allocate()
    assert big.is_allocated
    del big
    assert allocator.counters.live >= 0


def test_machine_code_is_kept_in_the_cache_folder() -> None:
    x = Tensor(np.arange(77, dtype=np.float32)).realize()
    np.testing.assert_array_equal((x * 3.25 - 11).numpy(), np.arange(77) * 3.25 - 11)
    folder = Path(os.environ["CUDA_CACHE_PATH"])
    assert any(each.is_file() for each in folder.rglob("*"))


def test_the_doctor_knows_the_gpu() -> None:
    (check, *_) = gpus()
    assert check.ok and check.found.startswith("CUDA:0 ")
    assert check.facts["multiprocessors"] > 0 and check.facts["memory_bytes"] > 1 << 30
