"""Caches that others can have written are not used, whichever part of the path others can write."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from svod.base import store as store_module
from svod.base import trust
from svod.base.store import BlobStore

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes are a POSIX thing")
KEY, LIMIT = "key", 1 << 20
ROOT = Path(__file__).parents[2]
OTHER = 54321


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path / "above" / "svod" / "objects", LIMIT)
    assert made.put(KEY, b"code")
    return made


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path belong to another user; who may not do that becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, OTHER, OTHER)
    else:
        monkeypatch.setattr(trust.os, "geteuid", lambda: OTHER)


def entry(store: BlobStore) -> Path:
    return store.folder / f"{KEY}.blob"


def part(number: int) -> Callable[[BlobStore], Path]:
    return lambda store: (entry(store), *entry(store).parents)[number]


PARTS = pytest.mark.parametrize(
    "part", [part(n) for n in range(4)], ids=["entry", "folder", "root", "above the root"]
)


@PARTS
def test_what_belongs_to_another_user_is_not_used(
    store: BlobStore,
    part: Callable[[BlobStore], Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert store.get(KEY) == b"code"
    give_away(part(store), monkeypatch)
    with caplog.at_level(logging.WARNING, "svod"):
        assert store.get(KEY) is None, "looked at again at every use"
        assert BlobStore(store.folder, LIMIT).get(KEY) is None
        assert not store.put("other", b"x") and not store.enabled
    assert len(caplog.records) == 1, "said once"
    assert "belongs to user" in caplog.text and "SVOD_CACHE_DIR" in caplog.text


@PARTS
@pytest.mark.parametrize("mode", [0o20, 0o2])
def test_what_others_can_write_is_not_used(
    store: BlobStore,
    part: Callable[[BlobStore], Path],
    mode: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = part(store)
    path.chmod(path.stat().st_mode | mode)
    with caplog.at_level(logging.WARNING, "svod"):
        assert store.get(KEY) is None
        assert BlobStore(store.folder, LIMIT).put(KEY, b"x") is (path == entry(store))
    assert f"others can write to {path}: chmod go-w makes it yours" in caplog.text


def test_a_sticky_folder_above_is_like_tmp(store: BlobStore) -> None:
    store.folder.parents[1].chmod(0o1777)
    assert store.get(KEY) == b"code"
    store.folder.chmod(0o1777)
    assert store.get(KEY) is None


def test_an_entry_that_is_a_link_a_fifo_or_a_device_is_ignored_and_replaced(
    store: BlobStore, tmp_path: Path
) -> None:
    path = entry(store)
    kept = tmp_path / "kept"
    path.rename(kept)

    def link() -> None:
        path.symlink_to(kept)

    def fifo() -> None:
        os.mkfifo(path)

    def device() -> None:
        path.symlink_to("/dev/zero")

    for make in (link, fifo, device):
        make()
        assert store.get(KEY) is None, make.__name__
        assert store.enabled
        assert store.put(KEY, b"new") and store.get(KEY) == b"new"
        path.unlink()
    assert kept.exists()


def test_a_size_note_that_is_a_fifo_does_not_hang(store: BlobStore) -> None:
    note = store.folder / store_module.SIZE_NAME
    note.unlink(missing_ok=True)
    os.mkfifo(note)
    assert BlobStore(store.folder, LIMIT).put("other", b"x")


@pytest.mark.parametrize("depth", [0, 1])
def test_a_folder_that_is_a_link_is_not_used(
    store: BlobStore, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = (store.folder, *store.folder.parents)[depth]
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.symlink_to(moved)
    assert store.get(KEY) is None
    assert f"{folder} is a symbolic link" in caplog.text


def test_links_further_up_are_followed_and_where_they_lead_is_looked_at(
    store: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "above")
    assert BlobStore(tmp_path / "home" / "svod" / "objects", LIMIT).get(KEY) == b"code"
    (tmp_path / "above").chmod(0o777)
    assert BlobStore(tmp_path / "home" / "svod" / "objects", LIMIT).get(KEY) is None


WITHOUT_HOME = """
import os
os.environ.pop("HOME", None)
import pwd
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
from svod.base.paths import cache_folder
from svod.base.store import BlobStore
store = BlobStore(cache_folder("objects"), 1 << 20)
print(store.put("key", b"code"), store.get("key"), store.folder)
"""


def test_without_a_home_a_folder_that_somebody_else_has_made_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    folder = tmp_path / f"svod-{os.getuid()}"

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_HOME],
            env=environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    assert run() == f"True b'code' {folder}/objects\n"
    folder.chmod(0o777)  # as one who was faster would have made it
    assert run() == f"False None {folder}/objects\n"
