"""DISK: files as buffers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from svod.base.errors import AllocationError, DeviceError
from svod.device.buffer import Buffer
from svod.device.disk import map_file
from svod.device.registry import get_device
from svod.dtype import types as dt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "Weights.bin"
    path.write_bytes(bytes(range(64)))
    return path


def test_a_mapped_file_shows_its_bytes_and_cannot_be_written(file: Path) -> None:
    buffer = map_file(file)
    assert buffer.device == f"DISK:{file}"
    assert buffer.numpy().tolist() == list(range(64))
    assert buffer.is_read_only
    assert not buffer.numpy().flags.writeable
    with pytest.raises(DeviceError, match="read-only"):
        buffer.copyin(np.zeros(64, np.uint8))


def test_views_may_start_at_any_byte_and_copy_to_the_cpu(file: Path) -> None:
    view = map_file(file).view(3, 5, dt.float32)
    target = Buffer.new("CPU", 5, dt.float32)
    target.copy_from(view)
    assert target.numpy().tobytes() == bytes(range(3, 23))
    assert view.copyout().tobytes() == bytes(range(3, 23))


def test_writing_reaches_the_file(file: Path) -> None:
    buffer = map_file(file, "r+")
    buffer.view(8, 2, dt.int32).copy_from(Buffer.from_numpy(np.array([-1, -1], np.int32)))
    del buffer
    assert file.read_bytes() == bytes(range(8)) + b"\xff" * 8 + bytes(range(16, 64))


def test_a_new_file_has_the_asked_size(tmp_path: Path) -> None:
    buffer = map_file(tmp_path / "new", "w+", 16)
    assert buffer.numpy().tolist() == [0] * 16
    buffer.numpy()[:] = 9
    del buffer
    assert (tmp_path / "new").read_bytes() == b"\x09" * 16


def test_the_mapping_outlives_the_buffer_while_a_view_is_held(file: Path) -> None:
    array = map_file(file).view(0, 4).numpy()
    file.unlink()
    assert array.tolist() == [0, 1, 2, 3]


def test_part_of_a_file(file: Path) -> None:
    assert map_file(file, nbytes=10).size == 10
    with pytest.raises(AllocationError, match="65 bytes were asked of a file of 64"):
        map_file(file, nbytes=65)


def test_an_empty_file_is_an_empty_buffer(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    buffer = map_file(tmp_path / "empty")
    assert buffer.size == 0
    assert buffer.copyout().tolist() == []


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"absent: cannot open the file: No such file"):
        map_file(tmp_path / "absent")
    with pytest.raises(DeviceError, match="a new file needs a size"):
        map_file(tmp_path / "new", "w+")
    with pytest.raises(DeviceError, match="file mode 'a' is unknown"):
        map_file(tmp_path / "new", "a")  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cannot"):
        map_file(tmp_path)


def test_a_buffer_made_by_name_maps_an_existing_file_read_only(file: Path) -> None:
    buffer = Buffer.new(f"disk:{file}", 16, dt.uint32)
    assert not buffer.is_allocated
    assert buffer.numpy().tobytes() == bytes(range(64))
    assert buffer.is_read_only
    with pytest.raises(DeviceError, match="read-only"):
        buffer.copy_from(Buffer.new("CPU", 16, dt.uint32))
    with pytest.raises(AllocationError, match="68 bytes were asked of a file of 64"):
        Buffer.new(f"DISK:{file}", 17, dt.uint32).allocate()


def test_a_buffer_made_by_name_makes_a_missing_file(tmp_path: Path) -> None:
    buffer = Buffer.new(f"DISK:{tmp_path}/made", 4, dt.float32)
    buffer.copy_from(Buffer.from_numpy(np.arange(4, dtype=np.float32)))
    del buffer
    assert np.fromfile(tmp_path / "made", np.float32).tolist() == [0, 1, 2, 3]


def test_files_run_no_programs(file: Path) -> None:
    device = get_device(f"DISK:{file}")
    assert not device.runs_programs
    with pytest.raises(DeviceError, match="holds memory only and runs no programs: copy to CPU"):
        _ = device.renderer
