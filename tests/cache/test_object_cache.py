"""Results are right whatever state the machine-code cache is in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "tests.cache.work"]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SVOD_")}
    return {**kept, "SVOD_CACHE_DIR": str(folder), **more}


def run(folder: Path, **more: str) -> dict[str, Any]:
    """What one process computes with its caches in a folder."""
    done = subprocess.run(
        COMMAND, env=environment(folder, **more), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def right() -> list[float]:
    """The results without any cache."""
    found = run(Path("unused"), SVOD_OBJECT_CACHE="0")
    assert found["compiled"] > 0 and found["loaded"] == 0
    return found["results"]  # type: ignore[no-any-return]


def blobs(folder: Path) -> list[Path]:
    return sorted((folder / "objects").glob("*.blob"))


def test_a_switched_off_cache_leaves_no_files(tmp_path: Path, right: list[float]) -> None:
    folder = tmp_path / "caches"
    found = run(folder, SVOD_OBJECT_CACHE="0")
    assert found["results"] == right
    assert not folder.exists()


def test_a_second_process_compiles_nothing_and_does_not_load_llvm(
    tmp_path: Path, right: list[float]
) -> None:
    cold = run(tmp_path)
    assert cold["results"] == right
    assert cold["compiled"] > 0 and cold["llvmlite"]
    warm = run(tmp_path)
    assert warm["results"] == right
    assert warm["compiled"] == 0 and warm["loaded"] == cold["compiled"]
    assert not warm["llvmlite"]


def _truncate(data: bytes, number: int) -> bytes:
    return data[: (0, 7, len(data) // 2)[number % 3]]


def _garbage(data: bytes, number: int) -> bytes:
    return bytes([(17 * i + number) % 256 for i in range(len(data))])


def _one_bit(data: bytes, number: int) -> bytes:
    place = len(data) * 3 // 4
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


@pytest.mark.parametrize("spoil", [_truncate, _garbage, _one_bit])
def test_broken_files_are_compiled_anew(tmp_path: Path, right: list[float], spoil: Any) -> None:
    first = run(tmp_path)
    files = blobs(tmp_path)
    assert len(files) > first["compiled"]  # the kernels, and what launches them
    for number, file in enumerate(files):
        file.write_bytes(spoil(file.read_bytes(), number))
    again = run(tmp_path)
    assert again["results"] == right
    assert again["compiled"] == first["compiled"] and again["loaded"] == 0
    healed = run(tmp_path)
    assert healed["results"] == right and healed["compiled"] == 0


def test_swapped_files_are_not_taken_for_each_other(tmp_path: Path, right: list[float]) -> None:
    run(tmp_path)
    files = blobs(tmp_path)
    contents = [f.read_bytes() for f in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    assert run(tmp_path)["results"] == right


def test_strange_things_in_the_folder_do_no_harm(tmp_path: Path, right: list[float]) -> None:
    folder = tmp_path / "objects"
    folder.mkdir(mode=0o700)
    (folder / "not a key!.blob").write_bytes(b"x")
    (folder / "folder.blob").mkdir()
    (folder / "README").write_text("hello")
    assert run(tmp_path)["results"] == right
    assert run(tmp_path)["compiled"] == 0


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, right: list[float]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run(blocked)["results"] == right
    if os.geteuid() != 0:  # root writes anywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        assert run(closed)["results"] == right


def test_two_processes_may_fill_one_folder_at_once(tmp_path: Path, right: list[float]) -> None:
    started = [
        subprocess.Popen(COMMAND, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in started:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(output)["results"] == right
    assert run(tmp_path)["compiled"] == 0
    assert not list((tmp_path / "objects").glob(".tmp-*"))


def test_a_small_limit_keeps_the_folder_small(tmp_path: Path, right: list[float]) -> None:
    assert run(tmp_path, SVOD_OBJECT_CACHE_BYTES="6K")["results"] == right
    assert sum(f.stat().st_size for f in blobs(tmp_path)) <= 6 << 10
