from __future__ import annotations

import errno
import logging
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from svod.base import store as store_module
from svod.base.errors import CacheError
from svod.base.hashing import checksum, digest
from svod.base.store import FORMAT_VERSION, MAGIC, BlobStore

LIMIT = 1 << 20
KEY = digest("a kernel")
HEADER = struct.Struct("<8sIQ32s")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "objects", LIMIT)


def file_of(store: BlobStore, key: str = KEY) -> Path:
    return store.folder / f"{key}.blob"


def set_age(store: BlobStore, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file_of(store, key), (then, then))


def test_what_is_put_comes_back(store: BlobStore) -> None:
    assert store.get(KEY) is None
    assert not store.folder.exists(), "reading makes no folder"
    assert store.put(KEY, b"machine code")
    assert store.get(KEY) == b"machine code"
    assert store.put(KEY, b"")
    assert store.get(KEY) == b""
    assert (store.hits, store.misses, store.writes) == (2, 1, 2)
    assert BlobStore(store.folder, LIMIT).get(KEY) == b"", "a second process finds it"


def test_entries_and_sizes(store: BlobStore) -> None:
    assert store.entries() == []
    assert store.size() == 0
    store.put("one", b"x" * 10)
    store.put("two", b"x" * 20)
    set_age(store, "two", 60)
    assert [entry.key for entry in store.entries()] == ["two", "one"]
    assert store.size() == 30 + 2 * HEADER.size
    store.remove("one")
    assert [entry.key for entry in store.entries()] == ["two"]
    assert store.clear() == 20 + HEADER.size
    assert store.entries() == []


def garbage(good: bytes) -> dict[str, bytes]:
    body = good[HEADER.size :]
    flipped = bytearray(good)
    flipped[-1] ^= 1
    own = HEADER.pack(MAGIC, FORMAT_VERSION, len(body), checksum(b"another key", body)) + body
    next_version = HEADER.pack(MAGIC, FORMAT_VERSION + 1, len(body), checksum(KEY.encode(), body))
    return {
        "empty": b"",
        "header only": good[: HEADER.size],
        "half a header": good[: HEADER.size // 2],
        "truncated": good[:-1],
        "longer": good + b"!",
        "one bit": bytes(flipped),
        "foreign": b"\x7fELF" + os.urandom(200),
        "text": b"hello world\n" * 20,
        "another version": next_version + body,
        "of another key": own,
        "a huge length": HEADER.pack(MAGIC, FORMAT_VERSION, 1 << 63, b"\0" * 32) + body,
    }


@pytest.mark.parametrize("kind", garbage(b"\0" * 99))
def test_a_broken_entry_is_a_miss_and_goes_away(store: BlobStore, kind: str) -> None:
    store.put(KEY, b"machine code")
    path = file_of(store)
    path.write_bytes(garbage(path.read_bytes())[kind])
    assert store.get(KEY) is None
    assert not path.exists()
    assert store.put(KEY, b"machine code")
    assert store.get(KEY) == b"machine code"


def test_an_entry_that_is_a_folder_is_a_miss(store: BlobStore) -> None:
    store.put("other", b"x")
    file_of(store).mkdir()
    assert store.get(KEY) is None
    assert store.entries()[0].key == "other"


def test_an_unreadable_entry_is_a_miss_and_goes_away(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, b"x")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store_module, "read_file", refuse)
    assert store.get(KEY) is None
    monkeypatch.undo()
    assert not file_of(store).exists()


def test_a_process_out_of_file_handles_keeps_the_entry(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, b"x")

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(store_module, "read_file", refuse)
    assert store.get(KEY) is None
    monkeypatch.undo()
    assert store.get(KEY) == b"x"


def test_a_folder_that_cannot_be_made_turns_the_store_off_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    store = BlobStore(blocking / "objects", LIMIT)
    with caplog.at_level(logging.WARNING, "svod"):
        assert store.enabled
        for _ in range(3):
            assert store.put(KEY, b"x") is False
            assert store.get(KEY) is None
    assert not store.enabled
    [record] = caplog.records
    assert f"cache folder {store.folder} is not written to: " in record.getMessage()
    assert store.entries() == []
    assert store.prune() == 0


def test_a_full_disk_stops_the_writing_and_keeps_the_reading(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(KEY, b"x")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "atomic_write", full)
    assert store.put("other", b"y") is False
    assert store.put("third", b"y") is False
    assert "No space left on device" in caplog.text
    assert len(caplog.records) == 1
    assert store.get(KEY) == b"x"


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX thing")
def test_a_folder_that_others_can_write_is_not_used(
    store: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(KEY, b"x")
    store.folder.chmod(0o777)
    second = BlobStore(store.folder, LIMIT)
    assert second.get(KEY) is None
    assert second.put(KEY, b"y") is False
    [record] = caplog.records
    said = f"others can write to {store.folder}: chmod go-w makes it yours"
    assert record.getMessage() == f"caches are not used, because {said}"


def test_the_oldest_go_first(store: BlobStore) -> None:
    for age in range(10):
        store.put(f"age{age}", b"x" * 100)
        set_age(store, f"age{age}", age * 10)
    size = 100 + HEADER.size
    assert store.prune(limit=4 * size) == 6 * size
    assert [entry.key for entry in store.entries()] == ["age3", "age2", "age1", "age0"]


def test_the_limit_holds_while_writing(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 10_000)
    for number in range(100):
        assert store.put(f"key{number}", b"x" * 1000)
        assert store.size() <= 10_000
        assert store.get(f"key{number}") is not None, "the newest entry stays"
    assert store.put("large", b"x" * 10_000) is False
    assert store.enabled


def test_a_new_process_believes_the_size_that_another_wrote_down(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    plain = BlobStore._files
    monkeypatch.setattr(BlobStore, "_files", lambda s: looks.append(s.folder) or plain(s))
    store.put("one", b"x" * 1000)
    assert len(looks) == 1
    second = BlobStore(store.folder, LIMIT)
    assert second.put("two", b"x" * 1000) and len(looks) == 1
    small = BlobStore(store.folder, 1500)
    assert small.put("three", b"x" * 1000) and len(looks) == 2
    assert [entry.key for entry in small.entries()] == ["three"]


@pytest.mark.parametrize("note", ["age", "words"])
def test_a_size_that_is_old_or_no_number_is_not_believed(store: BlobStore, note: str) -> None:
    store.put("one", b"x" * 1000)
    path = store.folder / store_module.SIZE_NAME
    if note == "age":
        os.utime(path, (0, 0))
    else:
        path.write_text("much")
    BlobStore(store.folder, LIMIT).put("two", b"x" * 1000)
    assert int(path.read_text()) == 2000 + 2 * HEADER.size


def test_a_limit_of_zero_is_a_store_that_is_off(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "objects", 0)
    assert not store.enabled
    assert store.put(KEY, b"") is False
    assert store.get(KEY) is None
    assert not store.folder.exists()


def test_pruning_removes_what_dead_writers_left_and_spares_the_rest(store: BlobStore) -> None:
    store.put(KEY, b"x")
    old, young, foreign = (store.folder / n for n in (".tmp-1-a", ".tmp-2-b", "notes.txt"))
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.prune()
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()
    assert [entry.key for entry in store.entries()] == [KEY]


@pytest.mark.parametrize("key", ["", "../up", "a/b", ".hidden", "a b", "x" * 161, "nul\0"])
def test_a_key_that_is_no_file_name_is_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(CacheError, match="cannot be a key: use 1 to 160 letters"):
        store.put(key, b"x")
    with pytest.raises(CacheError):
        store.get(key)


WRITER = """
import sys
from svod.base.store import BlobStore
folder, seed = sys.argv[1], int(sys.argv[2])
store = BlobStore(folder, 40_000)
for step in range(300):
    name = f"key{(step * 7 + seed) % 20}"
    payload = name.encode() * 300
    found = store.get(name)
    assert found is None or found == payload, "a torn entry"
    assert store.put(name, payload)
    if step % 50 == 49:
        store.prune(20_000)
assert store.enabled
print(store.hits)
"""


def test_many_processes_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, results
    assert sum(int(out) for out, _ in results) > 0
    assert not [name for name in os.listdir(folder) if name.startswith(".tmp-")]


def test_many_threads_share_a_store(store: BlobStore) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        for step in range(100):
            name = f"key{(step + seed) % 5}"
            store.put(name, name.encode() * 50)
            if store.get(name) != name.encode() * 50:
                failures.append(name)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert (store.hits, store.writes) == (400, 400)
