from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from svod.base import paths
from svod.base.knobs import knobs
from svod.base.system import system_of


def test_the_knob_moves_the_root(tmp_path: Path) -> None:
    with knobs.scope(cache_dir=tmp_path / "mine"):
        assert paths.cache_root() == tmp_path / "mine"
        assert paths.cache_folder("objects") == tmp_path / "mine" / "objects"
    assert not (tmp_path / "mine").exists(), "naming a folder does not make it"


def test_the_home_sign_is_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with knobs.scope(cache_dir="~/here"):
        assert paths.cache_root() == tmp_path / "here"


@pytest.mark.parametrize(
    ("system", "expected"),
    [("linux", ".cache/svod"), ("darwin", "Library/Caches/svod")],
)
def test_the_user_folder_follows_the_system(
    system: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths, "system", lambda: system_of(system))
    assert paths.cache_root() == tmp_path / expected


def test_windows_uses_the_local_application_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(paths, "system", lambda: system_of("win32"))
    assert paths.cache_root() == tmp_path / "svod" / "Cache"


def test_xdg_is_honoured_where_it_is_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert paths.cache_root() == tmp_path / "xdg" / "svod"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.cache_root().is_relative_to(tmp_path)
    assert paths.cache_root() != tmp_path / "xdg" / "svod"


@pytest.mark.skipif(os.name != "posix", reason="homes are a POSIX thing")
@pytest.mark.parametrize("home", [".", "relative/home"])
def test_without_a_home_the_temporary_folder_serves_and_never_the_current_one(
    home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    assert paths.cache_root() == tmp_path / "temporary" / f"svod-{os.getuid()}"
    monkeypatch.setenv("TMPDIR", ".")
    assert paths.cache_root() == Path(f"/tmp/svod-{os.getuid()}")


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX thing")
def test_folders_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    paths.make_private(folder)
    paths.make_private(folder)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700


def test_writable_asks_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert paths.is_writable(tmp_path / "not" / "yet")
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    assert not paths.is_writable(blocking / "below")


def test_a_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "entry"
    paths.atomic_write(target, b"old")
    paths.atomic_write(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["entry"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "entry"
    paths.atomic_write(target, b"old")

    def fail(*_: object) -> None:
        raise OSError("no rename today")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no rename today"):
        paths.atomic_write(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["entry"]
